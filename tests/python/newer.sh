#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a command where a newer Python and PyTorch are: those of Debian 13, unpacked into a folder, with
# this machine's other folders mounted where they are; nothing is installed on this machine.
# Usage: newer.sh FOLDER COMMAND...  A complete folder is used as it is. Exit 77, with the reason, where
# the archive cannot be reached or nothing can be mounted, and where nobody asked for it: NEWER=1 does.
set -euo pipefail

suite=trixie
packages="python3-torch python3-numpy liburing2 libxxhash0 coreutils dash bash"
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
mkdir -p "$1"
folder=$(cd "$1" && pwd)
shift

skip()
{
	echo "SKIP newer PyTorch: $*"
	exit 77
}

# The mirror that this machine uses already, if it is Debian's; a proxy for it is apt's own business.
mirror()
{
	local found

	found=$(sed -n 's,^\(URIs:\|deb\( \[[^]]*\]\)\?\) *\(https\?://[^ ]*/debian\)/\? *.*,\3,p' \
		/etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | head -n 1)
	echo "${found:-http://deb.debian.org/debian}"
}

fetch()
{
	local apt=(-o "Dir::Etc::SourceList=$folder/list" -o Dir::Etc::SourceParts=/dev/null
		-o "Dir::State::Lists=$folder/lists" -o "Dir::State::status=$folder/status"
		-o "Dir::Cache=$folder/cache" -o APT::Sandbox::User="$(id -un)"
		-o APT::Architecture=amd64 -o APT::Install-Recommends=0) deb

	[[ $(uname -m) == x86_64 ]] || skip "made for x86-64"
	command -v apt-get dpkg-deb >/dev/null || skip "no apt here"
	[[ -r $keyring ]] || skip "no key of the archive: install debian-archive-keyring"
	rm -rf "$folder/root" "$folder/lists" "$folder/cache"
	mkdir -p "$folder/lists/partial" "$folder/cache/archives/partial" "$folder/root"
	: >"$folder/status"
	echo "deb [signed-by=$keyring] $(mirror) $suite main" >"$folder/list"
	apt-get "${apt[@]}" -qq update >"$folder/log" 2>&1 || skip "$(tail -n 1 "$folder/log")"
	# shellcheck disable=SC2086 # a list
	apt-get "${apt[@]}" install -y -qq --download-only $packages >"$folder/log" 2>&1 ||
		skip "$(tail -n 1 "$folder/log")"
	for deb in bin lib lib64 sbin; do
		ln -s "usr/$deb" "$folder/root/$deb"
	done
	for deb in "$folder"/cache/archives/*.deb; do
		dpkg-deb --fsys-tarfile "$deb" | tar -x --keep-directory-symlink -C "$folder/root"
	done
	# Otherwise every start compiles all of PyTorch's Python again.
	chroot "$folder/root" /usr/bin/python3 -m compileall -q /usr/lib/python3/dist-packages \
		/usr/lib/python3.13 >"$folder/log" 2>&1 || true
	rm -rf "$folder/cache" "$folder/lists"
	mkdir -p "$folder/root/dev" "$folder/root/proc" "$folder/root/tmp"
	touch "$folder/complete"
}

# Two tests may want it at once.
exec 9>"$folder/lock"
flock 9
if [[ ! -e $folder/complete ]]; then
	[[ -n ${NEWER:-} ]] || skip "1.2 GB to unpack; ask for it once with NEWER=1 ./dev test"
	fetch
fi
exec 9>&-

spread=(unshare --mount)
((EUID == 0)) || spread=(unshare --map-root-user --mount)
"${spread[@]}" true 2>/dev/null || skip "this user may not mount"
# The folders that a test reads and writes: the project, and where temporary files go.
project=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
export project folder TMPDIR=${TMPDIR:-/tmp}
# shellcheck disable=SC2016 # for the other bash
exec "${spread[@]}" bash -euc '
	for place in /dev /proc "$project" "$TMPDIR" ${HEADRACE_BUILD:-}; do
		mkdir -p "$folder/root$place"
		mount --rbind "$place" "$folder/root$place"
	done
	libs=/usr/lib/x86_64-linux-gnu
	exec chroot "$folder/root" /usr/bin/env PATH=/usr/bin:/bin \
		LD_LIBRARY_PATH="$libs/blas:$libs/lapack${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$@"
' newer "$@"
