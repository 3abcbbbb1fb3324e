# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Sourced by tests that prove where bytes went: hashed by the host in the BAR's own file, and counted in
# QEMU's trace of every address that a drive moved data to or from.
#
# A program makes a trial of each drive first: one block into the BAR, and the same block into memory.
TRIAL=4096

# "first last" of the BAR
find_bar()
{
	read -r bar_first bar_last _ < <(sed -n 3p \
		"/sys/bus/pci/devices/$(pci_of headrace_vgpu)/resource")
}

# value KEY TEXT: of "key=value key=value", the last one
value()
{
	sed -n "s/.*\<$1=\([^ ]*\).*/\1/p" <<<"$2" | tail -n 1
}

# place TEXT: where in the BAR what a program has printed lies; some know the address on the bus only
place()
{
	local at

	at=$(value offset "$1")
	echo $((at >= bar_first ? at - bar_first : at))
}

resident()
{
	headrace explain --json --device host "$1" | sed -n 's/.*"state": "\([a-z]*\)".*/\1/p' | head -n 1
}

# all_direct TRACE ASKED DRIVES [ENTRIES]: what was planned is in the BAR, no more and no less than the
# trials besides; outside there are the trials and what the file system reads for itself.
all_direct()
{
	local in out entries

	in=$(value in_bytes "$1") out=$(value out_bytes "$1") entries=$(value in "$1")
	if ((in == $2 + $3 * TRIAL && out <= 65536 && (${4:-0} == 0 || entries == $4 + $3))); then
		return
	fi
	echo "planned $2 bytes, ${4:-?} entries, $3 drives: $1"
	return 1
}

# read_directly NAME DRIVES FILE HOW COUNT LEN PROGRAM...: the program gets FILE HOW COUNT LEN as well; it
# prints where in the BAR the data is, its length with guard bytes, and what drives were asked for. What
# it printed is in $said afterwards.
read_directly()
{
	local name=$1 drives=$2 windows=("${@:3:4}") want trace entries=0

	shift 6
	want=$(gather_probe expect "${windows[@]}" | sha256sum)
	echo 3 >/proc/sys/vm/drop_caches
	ask bar-clear >/dev/null
	ask trace-mark >/dev/null
	if ! said=$("$@" "${windows[@]}" 2>&1); then
		fail "$name: $said"
		return
	fi
	trace=$(ask trace-count "$bar_first" "$bar_last")
	# Elsewhere an entry may be a part of a page.
	[[ ${windows[1]} != odd ]] && entries=$(($(value asked "$said") / 4096))
	same "$name: the BAR has it" "${want%% *}" \
		"$(ask bar-sha256 "$(place "$said")" "$(value len "$said")")"
	try "$name: all that was planned by peer DMA" all_direct "$trace" "$(value asked "$said")" \
		"$drives" "$entries"
	same "$name: nothing in the page cache" cold "$(resident "${windows[0]}")"
	printf '%s\n%s\n' "$said" "$trace"
}
