# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# An IOMMU that translates. An honest exporter's addresses show it; where they do not, the drive
# reports success and the bytes are nowhere, which only the trial read can find out.
try "the modules load" load_modules
mkdir -p /mnt/ext4
mkfs.ext4 -q /dev/nvme0n1 && mount /dev/nvme0n1 /mnt/ext4 && make_data /mnt/ext4
refused "translated addresses" "IOMMU translates" /mnt/ext4/data
like "the module says so" "refusal=2 *" "$(peer_tool import "$(pci_of nvme)" 1048576)"
try "the modules leave" unload_modules
load_modules bus_addresses=1
refused "bytes that do not arrive" "bytes did not arrive" /mnt/ext4/data
