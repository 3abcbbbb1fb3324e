# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Sourced by the guest's init before each test: results and questions for the host, and file systems that
# go away again.

tell()
{
	printf '%s\n' "$*" >&3
	printf '[%s] %s\n' "$(cut -d ' ' -f 1 /proc/uptime)" "$*"
}

ok()
{
	tell "ok $*"
}

fail()
{
	tell "FAIL $*"
}

skip()
{
	tell "SKIP $*"
}

# ask QUESTION...: what the host answers, one line
ask()
{
	local answer

	printf '? %s\n' "$*" >&3
	IFS= read -r -t 120 answer <&3 || answer="no answer"
	printf '%s\n' "$answer"
}

# try NAME COMMAND...: one result; what the command says is shown when it fails
try()
{
	local name=$1 out

	shift
	if out=$("$@" 2>&1); then
		ok "$name"
	else
		fail "$name: ${out##*$'\n'}"
		printf '%s\n' "$out"
	fi
}

# same NAME WANTED FOUND: one result
same()
{
	if [[ $2 == "$3" ]]; then
		ok "$1"
	else
		fail "$1: wanted '$2', found '$3'"
	fi
}

# like NAME PATTERN TEXT: one result
like()
{
	# shellcheck disable=SC2053 # the right side is a pattern
	if [[ $3 == $2 ]]; then
		ok "$1"
	else
		fail "$1: wanted '$2', found '$3'"
	fi
}

# make_data FOLDER [MIB]: random bytes in FOLDER/data, on the drive only
make_data()
{
	head -c "$((${2:-8} << 20))" /dev/urandom >"$1/data"
	sync
	echo 3 >/proc/sys/vm/drop_caches
}

# refused NAME PATTERN FILE: by p2p not at all, and not without it where a direct path is required; by
# default the bytes take another way.
refused()
{
	local name=$1 pattern=$2 file=$3 out
	local read=(headrace bench --device vgpu:0 --rw read --bs 64K --requests 16 --seconds 30)

	if out=$("${read[@]}" --path p2p "$file" 2>&1); then
		fail "$name: went by p2p"
		return
	fi
	like "$name: the reason" "*p2p*refused*$pattern*" "$out"
	out=$(HEADRACE_REQUIRE=direct "${read[@]}" "$file" 2>&1)
	like "$name: direct required" "*refused*$pattern*" "$out"
	out=$("${read[@]}" --verify --json "$file" 2>&1)
	like "$name: by another way" '*"verified": true*' "$out"
	like "$name: not by p2p" '' "$(sed -n 's/.*"p2p": \([1-9][0-9]*\).*/\1/p' <<<"$out")"
}

# pci_of DRIVER: the address of its first device
pci_of()
{
	local path

	for path in "/sys/bus/pci/drivers/$1"/0000:*; do
		basename "$path"
		return
	done
}

# load_modules [headrace_vgpu's parameters]
load_modules()
{
	insmod /modules/headrace_vgpu.ko "$@" && insmod /modules/headrace_peer.ko
}

counter()
{
	cat "/sys/class/misc/headrace_peer/counters/$1"
}

# Imports end when their last I/O does, a moment after the file was closed.
settled()
{
	local i

	for ((i = 0; i < 100; i++)); do
		[[ $(counter imports) == 0 && $(counter import_bytes) == 0 ]] && return
		sleep 0.1
	done
	echo "still there: $(counter imports) imports, $(counter import_bytes) bytes"
	return 1
}

# Objects of the kernel's allocators, by the boot option slab_debug=U, that were allocated on the modules'
# behalf: whose trace of callers names one.
live_objects()
{
	cat /sys/kernel/debug/slab/*/alloc_traces | peer_tool live
}

# no_more_than WANTED: are there that few again? Some are freed a moment later.
no_more_than()
{
	local i now

	for ((i = 0; i < 50; i++)); do
		now=$(live_objects)
		((now <= $1)) && return
		sleep 0.2
	done
	echo "$now objects of the modules, $1 at first"
	return 1
}

# unload_modules: the pretended GPU first, because headrace_peer stays while a device has pages of it
unload_modules()
{
	settled && pci_of headrace_vgpu >/sys/bus/pci/drivers/headrace_vgpu/unbind &&
		rmmod headrace_vgpu headrace_peer
}

# wipe DEVICE: what an earlier test left there
wipe()
{
	dd if=/dev/zero of="$1" bs=1M count=4 conv=fsync status=none
}

# What a test mounted, newest first.
clean_up()
{
	local at

	tac /proc/mounts | while read -r _ at _; do
		case $at in
		/mnt/*) umount "$at" || umount -l "$at" ;;
		esac
	done
}
