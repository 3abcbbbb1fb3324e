# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# The direct path under programs that know CUDA and cuFile alone: the pretended driver's memory is the
# BAR, the library is the product's with nothing changed, and what cuFile says must be what happened.
# shellcheck source=tests/vm/guest/evidence.sh
. /tests/evidence.sh
export LD_LIBRARY_PATH=/fakecuda FAKECUDA_BAR=1 FAKECUDA_EXPORT=1 FAKECUDA_DEVICES=1
# As on a GPU: freeing memory waits for streams, also for those that wait for a drive.
export FAKECUDA_FREE_WAITS=1
insmod /modules/headrace_vgpu.ko
find_bar
mkdir -p /mnt/ext4 /mnt/tmpfs
mkfs.ext4 -q /dev/nvme0n1 && mount /dev/nvme0n1 /mnt/ext4 && make_data /mnt/ext4 64
file=/mnt/ext4/data
mount -t tmpfs none /mnt/tmpfs && make_data /mnt/tmpfs 8

# not_direct NAME FILE [VARIABLE=VALUE...]: the bytes are right, no drive has touched the BAR but for the
# one block of a trial, and cuFile claims nothing else.
not_direct()
{
	local name=$1 want trace out

	want=$(gather_probe expect "$2" odd 100 8192 | sha256sum)
	echo 3 >/proc/sys/vm/drop_caches
	ask bar-clear >/dev/null
	ask trace-mark >/dev/null
	out=$(env "${@:3}" cufile_probe read "$2" odd 100 8192 2>&1)
	trace=$(ask trace-count "$bar_first" "$bar_last")
	same "$name: the bytes" "${want%% *}" \
		"$(ask bar-sha256 "$(place "$out")" "$(value len "$out")")"
	try "$name: no peer DMA" test "$(value in_bytes "$trace")" -le "$TRIAL"
	like "$name: statistics" "*p2p_reads=0 posix_reads=100 *" "$out"
}

# forbidden NAME CODE FILE: where cuFile may not copy, it says so
forbidden()
{
	like "$1" "*refused=$2*" "$(CUFILE_ENV_PATH_JSON=/tmp/strict.json cufile_probe read "$3" \
		whole 4 65536 2>&1)"
}

echo '{"properties": {"allow_compat_mode": false}}' >/tmp/strict.json
none="*nvme_p2p=0 nvme=0 p2p=0 version=0.0 *"
like "no module: the flags" "$none" "$(cufile_probe about)"
not_direct "no module" $file
forbidden "no module, copies forbidden" 5001 $file

insmod /modules/headrace_peer.ko
flags="*nvme_p2p=1 nvme=0 p2p=1 version=0.0 *"
like "the flags" "$flags" "$(cufile_probe about)"
read_directly "cuFileRead 64 MiB" 1 $file whole 64 1048576 cufile_probe read
like "cuFileRead 64 MiB: statistics" "*p2p_reads=64 posix_reads=0 *read_bytes=67108864 *" "$said"
CUFILE_ENV_PATH_JSON=/tmp/strict.json read_directly "copies forbidden" 1 $file whole 8 1048576 \
	cufile_probe read
like "copies forbidden: statistics" "*p2p_reads=8 posix_reads=0 *" "$said"

# windows WAY STATISTICS: unaligned ones of 8 KiB, which blocks around them are read for
windows()
{
	local want

	want=$(gather_probe expect $file odd 300 8192 | sha256sum)
	ask bar-clear >/dev/null
	if ! said=$(timeout 120 cufile_probe "$1" $file odd 300 8192 2>&1); then
		fail "odd windows by $1: $said"
		return
	fi
	same "odd windows by $1: the BAR has them" "${want%% *}" \
		"$(ask bar-sha256 "$(place "$said")" "$(value len "$said")")"
	like "odd windows by $1: statistics" "$2" "$said"
}

windows read "*p2p_reads=300 posix_reads=0 *read_bytes=2457600 *"
windows batch "*batch_p2p=300 batch_posix=0 batch_bytes=2457600*"
windows stream "*p2p_reads=300 posix_reads=0 *read_bytes=2457600 *"

# Out of the BAR; read back by other means.
ask trace-mark >/dev/null
said=$(timeout 120 cufile_probe write /mnt/ext4/out whole 16 1048576 2>&1)
trace=$(ask trace-count "$bar_first" "$bar_last")
like "cuFileWrite: statistics" "*p2p_writes=16 posix_writes=0 *" "$said"
# A trial write besides; the trial read is made where a file is opened for both.
try "cuFileWrite: out of the BAR" test "$(value in_bytes "$trace")" -ge 16777216
same "cuFileWrite: the file" "$(ask bar-sha256 $(($(place "$said") + 8192)) 16777216)" \
	"$(sha256sum </mnt/ext4/out | cut -d ' ' -f 1)"

# What must not go that way, and is not said to.
like "compat mode: the flags" "$none" "$(CUFILE_FORCE_COMPAT_MODE=true cufile_probe about)"
not_direct "compat mode" $file CUFILE_FORCE_COMPAT_MODE=true
not_direct "tmpfs" /mnt/tmpfs/data
forbidden "tmpfs, copies forbidden" 5008 /mnt/tmpfs/data
chmod 666 /dev/headrace_vgpu0
chmod 660 /dev/headrace_peer
like "an ordinary user: the flags" "$none" "$(setpriv --reuid 1000 --regid 1000 --clear-groups \
	cufile_probe about 2>&1)"
try "settled" settled

# The library itself on this driver: whole allocations are exported, and writes flushed if need be.
read_directly "cuda:0 odd windows" 1 $file odd 1000 8192 gather_probe cuda:0
FAKECUDA_PEER_ORDER=0 read_directly "cuda:0, a driver that must flush" 1 $file odd 1000 8192 \
	gather_probe cuda:0
like "cuda:0, a driver that cannot" "*refused*neither orders nor flushes*" \
	"$(FAKECUDA_PEER_ORDER=0 FAKECUDA_PEER_FLUSH=0 gather_probe cuda:0 $file whole 4 65536 2>&1)"
try "cuda:0 bench" headrace bench --device cuda:0 --path p2p --rw randread --seconds 60 \
	--requests 1000 --verify $file
try "cuda:0 conversion" headrace bench --device cuda:0 --path p2p --rw randread --seconds 60 \
	--requests 500 --from f32 --to bf16 --verify $file
try "the modules leave" unload_modules
