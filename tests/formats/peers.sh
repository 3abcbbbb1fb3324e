#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# peers.sh GROUP PYTHON FOLDER - the libraries of one group in a virtual environment of their own, kept in
# FOLDER/GROUP. Prints the folder of its modules; exits 77 with the reason when they cannot be had.
set -eu

group=$1 python=$2 folder=$3

# What each group installs. Heavy packages come without what they only need to reach clouds or to train;
# the modules that reading and writing import are named instead.
case $group in
webdataset) packages="webdataset" options="" ;;
tfrecord) packages="tfrecord" options="" ;;
mds)
	packages="mosaicml-streaming catalogue Brotli zstd python-snappy cramjam xxhash tqdm filelock numpy pillow"
	options="--no-deps"
	;;
arrow) packages="pyarrow numpy>=2" options="" ;;
safetensors) packages="safetensors" options="" ;;
megatron) packages="megatron-core packaging" options="--no-deps" ;;
*)
	echo "peers.sh: no group $group" >&2
	exit 2
	;;
esac

skip()
{
	echo "$group: $1" >&2
	exit 77
}

mkdir -p "$folder"
home=$folder/$group
# Tests run side by side, and several builds share the folder: one installs, the others wait.
exec 9>"$folder/$group.lock"
flock -w 280 9 || skip "another test has been installing it for too long"
if [ "$(cat "$home/stamp" 2>/dev/null)" != "$packages" ]; then
	rm -rf "$home"
	"$python" -m venv --system-site-packages "$home" >"$folder/$group.log" 2>&1 ||
		skip "no virtual environment can be made (python3-venv?), see $folder/$group.log"
	# shellcheck disable=SC2086 # lists are split on purpose
	timeout 240 "$home/bin/python" -m pip install --quiet --disable-pip-version-check \
		--timeout 20 --retries 1 $options $packages >"$folder/$group.log" 2>&1 ||
		skip "cannot be installed from PyPI, see $folder/$group.log"
	echo "$packages" >"$home/stamp"
fi
"$home/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'
