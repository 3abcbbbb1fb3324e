#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the kernel modules for the kernel that fetch.sh brought. Usage: modules.sh FOLDER
# The result is FOLDER/modules/*.ko. Nothing is done when the sources are older than that.
set -euo pipefail

source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../kernel" && pwd)
folder=$(cd "$1" && pwd)
release=$(cat "$folder/release")
headers=$folder/kernel/usr/src/linux-headers-$release
kbuild=$(echo "$folder"/kernel/usr/lib/linux-kbuild-*)
libraries=$folder/toolchain/usr/lib/x86_64-linux-gnu
# A compiler of another release than the kernel's knows one option by an older name.
compiler=$folder/toolchain/kernel-gcc

# The tools were linked against a newer C library than this machine may have: run them with their own.
wrap_tool()
{
	[[ -f $1.real ]] && return
	mv "$1" "$1.real"
	cat >"$1" <<-END
		#!/bin/sh
		exec $libraries/ld-linux-x86-64.so.2 --library-path $libraries $1.real "\$@"
	END
	chmod +x "$1"
}

prepare()
{
	local tool

	# The archive's Makefiles name the places where the packages are installed.
	sed -i "s,\([ =]\)/usr/src/,\1$folder/kernel/usr/src/,g" "$headers/Makefile"
	for tool in "$kbuild"/scripts/mod/modpost.real-lsb-64 "$kbuild"/tools/objtool/objtool.real-x86; do
		wrap_tool "$tool"
	done
	cat >"$compiler" <<-'END'
		#!/bin/bash
		# Made by modules.sh.
		for word in "$@"; do
			case $word in
			-fmin-function-alignment=*) word=-falign-functions=${word#*=} ;;
			esac
			set -- "$@" "$word"
			shift
		done
		exec gcc "$@"
	END
	chmod +x "$compiler"
}

fresh()
{
	[[ -f $folder/modules/headrace_peer.ko && -f $folder/modules/headrace_vgpu.ko &&
		-z $(find "$source" "${BASH_SOURCE[0]}" -newer "$folder/modules/headrace_peer.ko" -type f) ]]
}

fresh && exit 0
prepare
rm -rf "$folder/modules"
cp -r "$source" "$folder/modules"
make -s -C "$headers" M="$folder/modules" CC="$compiler" CONFIG_DEBUG_INFO_BTF_MODULES= \
	HEADRACE_VGPU=m KCFLAGS="-Werror" modules >"$folder/modules.log" 2>&1 || {
	tail -n 40 "$folder/modules.log" >&2
	exit 1
}
strip -g "$folder/modules/"*.ko
