# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# The direct path through the library and the command: ext4, xfs and md raid0. What landed in the BAR
# is hashed by the host, and where the drive's DMA went is counted from QEMU's trace.
try "the modules load" load_modules
modprobe -a xfs md-mod raid0
vgpu=$(pci_of headrace_vgpu)
# "first last flags" of the BAR
read -r bar_first bar_last _ < <(sed -n 3p "/sys/bus/pci/devices/$vgpu/resource")

# value KEY TEXT: of "key=value key=value"
value()
{
	sed -n "s/.*\<$1=\([^ ]*\).*/\1/p" <<<"$2"
}

resident()
{
	headrace explain --json --device host "$1" | sed -n 's/.*"state": "\([a-z]*\)".*/\1/p' | head -n 1
}

# no_copies TRACE ASKED: all that was asked for is in the BAR and (nearly) nothing outside: blocks of
# the file system's own, and the trial read, which is made into host memory as well.
no_copies()
{
	local in out

	in=$(value in_bytes "$1") out=$(value out_bytes "$1")
	if ((in >= $2 && in <= $2 + 65536 && out <= 65536)); then
		return
	fi
	echo "asked for $2: $1"
	return 1
}

# gather NAME FILE HOW COUNT LEN: read, compare on the host, look at the trace
gather()
{
	local name=$1 file=$2 out trace want

	shift 2
	want=$(gather_probe expect "$file" "$@" | sha256sum)
	echo 3 >/proc/sys/vm/drop_caches
	ask bar-clear >/dev/null
	ask trace-mark >/dev/null
	if ! out=$(gather_probe vgpu:0 "$file" "$@" 2>&1); then
		fail "$name: $out"
		return
	fi
	trace=$(ask trace-count "$bar_first" "$bar_last")
	same "$name: the BAR has it" "${want%% *}" \
		"$(ask bar-sha256 "$(value offset "$out")" "$(value len "$out")")"
	try "$name: all of it by peer DMA" no_copies "$trace" "$(value asked "$out")"
	same "$name: nothing in the page cache" cold "$(resident "$file")"
	printf '%s %s\n' "$out" "$trace"
}

# on_filesystem NAME MOUNTPOINT
on_filesystem()
{
	local name=$1 file=$2/data

	head -c 67108864 /dev/urandom >"$file"
	sync
	gather "$name 64 MiB" "$file" whole 64 1048576
	gather "$name aligned windows" "$file" aligned 4096 8192
	gather "$name odd windows" "$file" odd 4096 8192
	try "$name bench" headrace bench --device vgpu:0 --path p2p --rw randread --seconds 60 \
		--requests 2000 --verify "$file"
	try "$name stream" headrace stream --device vgpu:0 --format tokens --dtype u16 \
		--seq-len 1024 --batch-size 32 --steps 50 --path p2p --verify "$file"
	writes "$name" "$2"
	like "$name explain" '*path*p2p*trial read*' "$(headrace explain --device vgpu:0 "$file")"
}

# writes NAME MOUNTPOINT: 8 MiB out of the GPU, checked by the command and counted on the host
writes()
{
	local trace

	ask trace-mark >/dev/null
	try "$1 writes" headrace bench --device vgpu:0 --path p2p --rw write --bs 64K --size 8M \
		--requests 128 --seconds 60 --verify "$2/out"
	trace=$(ask trace-count "$bar_first" "$bar_last")
	if (($(value in_bytes "$trace") >= 8388608)); then
		ok "$1 writes: out of the BAR"
	else
		fail "$1 writes: $trace"
	fi
	try "$1 copy" headrace cp --device vgpu:0 --verify "$2/data" "$2/copy"
	try "$1 copy: the same" cmp "$2/data" "$2/copy"
}

# The same bytes into host memory are seen outside the BAR, or the trace would prove nothing.
control()
{
	local trace

	ask trace-mark >/dev/null
	peer_tool ram "$1" 67108864
	trace=$(ask trace-count "$bar_first" "$bar_last")
	same "control: nothing in the BAR" 0 "$(value in "$trace")"
	if (($(value out_bytes "$trace") >= 67108864)); then
		ok "control: 64 MiB outside of it"
	else
		fail "control: $trace"
	fi
}

# An array without a superblock, by the kernel's own interface.
make_array()
{
	local md=/sys/block/md_t/md i

	echo md_t >/sys/module/md_mod/parameters/new_array
	echo none >$md/metadata_version
	echo raid0 >$md/level
	echo 65536 >$md/chunk_size
	echo 2 >$md/raid_disks
	for i in 0 1; do
		cat "/sys/block/nvme$((i + 2))n1/dev" >$md/new_dev
		echo 262144 >"$md/dev-nvme$((i + 2))n1/size"
		echo $i >"$md/dev-nvme$((i + 2))n1/slot"
	done
	echo active >$md/array_state
}

mkdir -p /mnt/ext4 /mnt/xfs /mnt/md
mkfs.ext4 -q /dev/nvme0n1 && mount /dev/nvme0n1 /mnt/ext4 && on_filesystem ext4 /mnt/ext4
control /mnt/ext4/data
mkfs.xfs -q /dev/nvme1n1 && mount /dev/nvme1n1 /mnt/xfs && on_filesystem xfs /mnt/xfs
make_array
mkfs.ext4 -q /dev/md_t && mount /dev/md_t /mnt/md && on_filesystem "md raid0" /mnt/md
