# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Two nodes, the drive and the device on the second: host memory that both use must be there, too.
try "the modules load" load_modules
like "the device knows its node" 1 "$(cat "/sys/bus/pci/devices/$(pci_of headrace_vgpu)/numa_node")"
mkdir -p /mnt/ext4
mkfs.ext4 -q /dev/nvme0n1 && mount /dev/nvme0n1 /mnt/ext4 && make_data /mnt/ext4 64
headrace bench --device vgpu:0 --path bounce --rw randread --seconds 20 --staging 16M /mnt/ext4/data \
	>/dev/null 2>&1 &
# Once the ring is in use: all of its pages lie on node 1.
ring=
for ((i = 0; i < 100; i++)); do
	ring=$(grep -E 'prefer.*:1 ' "/proc/$!/numa_maps" 2>/dev/null | grep 'N[01]=')
	[[ -n $ring ]] && break
	sleep 0.1
done
like "the ring is on node 1" "*N1=*" "$ring"
like "and nowhere else" "" "$(grep -o 'N0=[0-9]*' <<<"$ring")"
kill $!
wait $! 2>/dev/null
try "p2p works there" headrace bench --device vgpu:0 --path p2p --rw read --bs 64K --requests 100 \
	--seconds 30 --verify /mnt/ext4/data
