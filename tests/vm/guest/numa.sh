# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Two nodes, the drive and the device on the second: host memory that both use must be there, and the
# threads that the library starts.
try "the modules load" load_modules
like "the device knows its node" 1 "$(cat "/sys/bus/pci/devices/$(pci_of headrace_vgpu)/numa_node")"
same "a node has processors of its own" "0 1" \
	"$(cat /sys/devices/system/node/node{0,1}/cpulist | tr '\n' ' ' | sed 's/ $//')"
mkdir -p /mnt/ext4
mkfs.ext4 -q /dev/nvme0n1 && mount /dev/nvme0n1 /mnt/ext4 && make_data /mnt/ext4 64

# threads PID: on which processors each thread may run, but for the first, which is the program's own
threads()
{
	local task

	for task in "/proc/$1/task"/*; do
		[[ ${task##*/} == "$1" ]] || sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' "$task/status"
	done 2>/dev/null | sort | tr '\n' ' '
}

# on_node_1 NAME PROCESSORS COMMAND...: all pages of the ring lie there, and threads run on these
on_node_1()
{
	local name=$1 ring="" found="" i

	"${@:3}" >/dev/null 2>&1 &
	for ((i = 0; i < 50; i++)); do
		# Once the ring is in use, and each thread has got to its work.
		ring=$(grep -E 'prefer.*:1 ' "/proc/$!/numa_maps" 2>/dev/null | grep 'N[01]=')
		found=$(threads $!)
		[[ -n $ring && $found == "$2" ]] && break
		sleep 0.1
	done
	like "$name: the ring is on node 1" "*N1=*" "$ring"
	like "$name: and nowhere else" "" "$(grep -o 'N0=[0-9]*' <<<"$ring")"
	same "$name: the threads" "$2" "$found"
	kill $!
	wait $! 2>/dev/null
}

# The command's own threads, one with an engine, run where they like; those of the library do not.
on_node_1 engine "0-1 " headrace bench --device vgpu:0 --path bounce --rw randread --seconds 600 \
	--staging 16M /mnt/ext4/data
# No io_uring: then three threads read.
on_node_1 "engine with threads" "0-1 1 1 1 " env HEADRACE_NO_URING=1 headrace bench --device vgpu:0 \
	--path bounce --rw randread --seconds 600 --helpers 3 --staging 16M /mnt/ext4/data
on_node_1 "loader with threads" "1 1 " headrace stream --device vgpu:0 --path bounce --direct \
	--format tokens --dtype u16 --seq-len 1000 --batch-size 8 --threads 2 --epochs 0 --staging 16M \
	/mnt/ext4/data
try "p2p works there" headrace bench --device vgpu:0 --path p2p --rw read --bs 64K --requests 100 \
	--seconds 30 --verify /mnt/ext4/data
