# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Root ports of a processor that forwards peer traffic between them, as the kernel knows.
try "the modules load" load_modules
mkdir -p /mnt/ext4
mkfs.ext4 -q /dev/nvme0n1 && mount /dev/nvme0n1 /mnt/ext4 && make_data /mnt/ext4
try "bench by p2p" headrace bench --device vgpu:0 --path p2p --rw read --bs 64K --requests 100 \
	--seconds 30 --verify /mnt/ext4/data
