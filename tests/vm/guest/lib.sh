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
