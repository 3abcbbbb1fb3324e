# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# The direct path through the library and the command: ext4, xfs and md raid0. What landed in the BAR
# is hashed by the host, and where the drive's DMA went is counted from QEMU's trace.
# shellcheck source=tests/vm/guest/evidence.sh
. /tests/evidence.sh
try "the modules load" load_modules
modprobe -a xfs md-mod raid0
find_bar

HEAD=$((2 << 20))

# measured COMMAND...: what it says as JSON is in $said, what the drives did meanwhile in $trace
measured()
{
	echo 3 >/proc/sys/vm/drop_caches
	ask trace-mark >/dev/null
	said=$("$@" --json 2>&1)
	trace=$(ask trace-count "$bar_first" "$bar_last")
}

number()
{
	sed -n "s/.*\"$1\": \([0-9]*\).*/\1/p" <<<"$said" | head -n 1
}

# by_bench NAME DRIVES FILE BLOCK: one gather of 4096 random blocks, aligned or at odd offsets; of those
# the ones that occur twice are read once. Then again, compared with plain reads.
by_bench()
{
	local name=$1 file=$3
	local bench=(headrace bench --device vgpu:0 --path p2p --rw randread --bs "$4" --batch 4096
		--depth 1 --requests 4096 --seconds 60 "$file")
	local want=$((4096 * $4)) in

	measured "${bench[@]}"
	in=$(($(value in_bytes "$trace") - $2 * TRIAL))
	same "$name: all by p2p" $want "$(number p2p)"
	try "$name: all by peer DMA" test $in -ge $((want / 2)) -a "$(value out_bytes "$trace")" -le 65536
	[[ $4 == 8192 ]] && same "$name: as many bytes as planned" $want $in
	same "$name: nothing in the page cache" cold "$(resident "$file")"
	try "$name: verified" "${bench[@]}" --verify
	printf '%s\n' "$trace"
}

# by_stream NAME DRIVES FILE: an epoch of 8192 samples of 8 KiB, hardly one of which begins with a block;
# then some, compared. The file's head is looked at for its format, with what the kernel reads
# ahead, and stays in the page cache.
by_stream()
{
	local stream=(headrace stream --device vgpu:0 --path p2p --format tokens --dtype u16
		--seq-len 4095 --batch-size 32 "$3")
	local planned in

	measured "${stream[@]}"
	planned=$(number bytes_read) in=$(value in_bytes "$trace")
	same "$1: all that was planned by peer DMA" $((planned + $2 * TRIAL)) "$in"
	try "$1: all of it was planned" test "$planned" -ge 67000000
	try "$1: nothing but the head elsewhere" test "$(value out_bytes "$trace")" -le $((HEAD + 65536))
	try "$1: nothing but the head in the page cache" test \
		"$(resident "$3" pages_resident)" -le $((HEAD / 4096))
	try "$1: verified" "${stream[@]}" --steps 32 --verify
	printf '%s %s\n' "$planned" "$trace"
}

# on_filesystem NAME MOUNTPOINT DRIVES
on_filesystem()
{
	local name=$1 file=$2/data

	head -c 67108864 /dev/urandom >"$file"
	sync
	read_directly "$name 64 MiB" "$3" "$file" whole 64 1048576 gather_probe vgpu:0
	read_directly "$name aligned windows" "$3" "$file" aligned 4096 8192 gather_probe vgpu:0
	read_directly "$name odd windows" "$3" "$file" odd 4096 8192 gather_probe vgpu:0
	by_bench "$name bench, aligned" "$3" "$file" 8192
	by_bench "$name bench, odd" "$3" "$file" 8191
	by_stream "$name stream" "$3" "$file"
	try "$name bench, narrower elements" headrace bench --device vgpu:0 --path p2p --rw randread \
		--seconds 60 --requests 1000 --from f32 --to bf16 --verify "$file"
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
mkfs.ext4 -q /dev/nvme0n1 && mount /dev/nvme0n1 /mnt/ext4 && on_filesystem ext4 /mnt/ext4 1
control /mnt/ext4/data
mkfs.xfs -q /dev/nvme1n1 && mount /dev/nvme1n1 /mnt/xfs && on_filesystem xfs /mnt/xfs 1
make_array
mkfs.ext4 -q /dev/md_t && mount /dev/md_t /mnt/md && on_filesystem "md raid0" /mnt/md 2
