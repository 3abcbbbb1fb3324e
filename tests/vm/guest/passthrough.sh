# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# An IOMMU that lets addresses through, as the remedy for a translating one says.
try "the modules load" load_modules
mkdir -p /mnt/ext4
mkfs.ext4 -q /dev/nvme0n1 && mount /dev/nvme0n1 /mnt/ext4 && make_data /mnt/ext4
try "bench by p2p" headrace bench --device vgpu:0 --path p2p --rw read --bs 64K --requests 100 \
	--seconds 30 --verify /mnt/ext4/data
text=$(headrace check --device vgpu:0 /mnt/ext4/data 2>&1)
like "check: the module" "*headrace_peer*loaded*" "$text"
like "check: the BAR" "*BAR of vgpu:0*all of its memory*" "$text"
like "check: the way" "*nvme0n1 -> vgpu:0: p2p*" "$text"
try "check: direct" headrace check --device vgpu:0 --require direct /mnt/ext4/data
try "where direct is required" env HEADRACE_REQUIRE=direct headrace stream --device vgpu:0 \
	--format tokens --dtype u16 --seq-len 500 --batch-size 8 --steps 20 --verify /mnt/ext4/data
