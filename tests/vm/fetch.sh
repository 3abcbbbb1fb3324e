#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Brings a kernel with CONFIG_PCI_P2PDMA, its modules and its headers from the Debian archive into a
# folder; nothing is installed on this machine. Usage: fetch.sh FOLDER
# Afterwards FOLDER/kernel has the tree, FOLDER/release its name, and FOLDER/toolchain the C library
# that the tools for building modules need. A complete folder is left as it is.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin # depmod, for users whose shell does not look there

mkdir -p "$1"
folder=$(cd "$1" && pwd)
# The cloud flavour has NVMe, ext4 and P2PDMA built in and is the smallest.
flavour=cloud-amd64
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

# The mirror that this machine uses already, if it is Debian's; a proxy for it is apt's own business.
mirror()
{
	local found

	found=$(sed -n 's,^\(URIs:\|deb\( \[[^]]*\]\)\?\) *\(https\?://[^ ]*/debian\)/\? *.*,\3,p' \
		/etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | head -n 1)
	echo "${found:-http://deb.debian.org/debian}"
}

# apt SUITE COMMAND ARGUMENTS...: with a list of sources of its own
apt()
{
	local suite=$1 command=$2

	shift 2
	"$command" -o "Dir::Etc::SourceList=$folder/apt/$suite.list" -o Dir::Etc::SourceParts=/dev/null \
		-o "Dir::State::Lists=$folder/apt/$suite" -o Dir::Cache::pkgcache= \
		-o Dir::Cache::srcpkgcache= -o APT::Sandbox::User="$(id -un)" \
		-o APT::Architecture=amd64 "$@"
}

add_suite()
{
	mkdir -p "$folder/apt/$1/partial"
	echo "deb [signed-by=$keyring] $(mirror) $1 main" >"$folder/apt/$1.list"
	apt "$1" apt-get -qq update
}

# The newest one: the archive keeps headers only for those.
newest_release()
{
	apt trixie-backports apt-cache pkgnames linux-headers- |
		sed -n "s/^linux-headers-\([0-9].*\)-$flavour\$/\1/p" | sort -V | tail -n 1
}

unpack()
{
	local deb

	for deb in "$folder"/debs/$2; do
		dpkg -x "$deb" "$folder/$1"
	done
}

complete()
{
	[[ -f $folder/release && -f $folder/kernel/usr/lib/modules/$(cat "$folder/release")/vmlinuz ]]
}

complete && exit 0
rm -rf "$folder/apt" "$folder/debs" "$folder/kernel" "$folder/toolchain" "$folder/release"
add_suite trixie-backports
add_suite trixie
version=$(newest_release)
[[ -n $version ]] || { echo "fetch: the archive has no kernel of the flavour $flavour" >&2; exit 1; }
mkdir -p "$folder/debs"
cd "$folder/debs"
apt trixie-backports apt-get -qq download "linux-binary-$version-$flavour" \
	"linux-modules-$version-$flavour" "linux-headers-$version-$flavour" \
	"linux-headers-$version-common" "linux-kbuild-$version"
apt trixie apt-get -qq download libc6 libelf1t64 zlib1g libssl3t64 libzstd1
unpack kernel 'linux-*'
unpack toolchain 'lib*'
unpack toolchain 'zlib*'
depmod -b "$folder/kernel/usr" "$version-$flavour" 2>"$folder/depmod.log"
rm -rf "$folder/debs" "$folder/apt"
echo "$version-$flavour" >"$folder/release"
echo "fetched: kernel $version-$flavour"
