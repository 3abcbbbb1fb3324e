# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# No PCIe way between drive and device that the kernel knows to work.
try "the modules load" load_modules
mkdir -p /mnt/ext4
mkfs.ext4 -q /dev/nvme0n1 && mount /dev/nvme0n1 /mnt/ext4 && make_data /mnt/ext4
refused "apart" "no PCIe way" /mnt/ext4/data
like "check says so" "*nvme0n1 -> vgpu:0*no PCIe way*" "$(headrace check --device vgpu:0 2>&1)"
like "the module says so" "refusal=1 distance=-*" "$(peer_tool import "$(pci_of nvme)" 1048576)"
