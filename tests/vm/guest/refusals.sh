# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Where the direct path must not be taken: each no has its own reason, and nothing is bounced in silence.
modprobe -a dm-mod btrfs loop
mkdir -p /mnt/ext4 /mnt/dm /mnt/btrfs /mnt/tmpfs /mnt/loop
wipe /dev/nvme0n1
wipe /dev/nvme1n1
mkfs.ext4 -q -F /dev/nvme0n1 && mount /dev/nvme0n1 /mnt/ext4 && make_data /mnt/ext4

try "a device without our module" insmod /modules/headrace_vgpu.ko
refused "no module" "headrace_peer is not loaded" /mnt/ext4/data
insmod /modules/headrace_peer.ko
like "with it" '*"p2p": [1-9]*' "$(headrace bench --device vgpu:0 --rw read --bs 64K --requests 16 \
	--verify --json /mnt/ext4/data)"

echo 4096 >/sys/module/headrace_peer/parameters/import_bytes_max
refused "a limit" "limit of the module" /mnt/ext4/data
echo 1099511627776 >/sys/module/headrace_peer/parameters/import_bytes_max

# Half of the drive as a device of the device mapper.
dmsetup create half --table "0 524288 linear /dev/nvme1n1 0" --noudevsync &&
	mkfs.ext4 -q -F /dev/dm-0 && mount /dev/dm-0 /mnt/dm && make_data /mnt/dm
refused "device mapper" "device mapper" /mnt/dm/data
umount /mnt/dm
dmsetup remove half --noudevsync

mkfs.btrfs -q -f /dev/nvme1n1 && mount -t btrfs /dev/nvme1n1 /mnt/btrfs && make_data /mnt/btrfs
refused "btrfs" "on btrfs nobody has seen it work" /mnt/btrfs/data
like "a write on btrfs" "*p2p*refused*btrfs takes the page cache*" \
	"$(headrace bench --device vgpu:0 --rw write --bs 64K --requests 4 --path p2p --overwrite \
		/mnt/btrfs/data 2>&1)"
umount /mnt/btrfs

truncate -s 64M /mnt/ext4/image
loop=$(losetup -f --show /mnt/ext4/image) && mkfs.ext4 -q "$loop" && mount "$loop" /mnt/loop &&
	make_data /mnt/loop 4
refused "loop" "is no NVMe drive" /mnt/loop/data
umount /mnt/loop
losetup -d "$loop"

mount -t tmpfs none /mnt/tmpfs && make_data /mnt/tmpfs
refused "tmpfs" "direct I/O is impossible" /mnt/tmpfs/data
refused "a file of zeroes" "no block with data" "$(truncate -s 8M /mnt/ext4/zeroes; echo /mnt/ext4/zeroes)"

# Others may not even ask.
chmod 666 /dev/headrace_vgpu0
like "an ordinary user" "*p2p*refused*group headrace*" "$(setpriv --reuid 1000 --regid 1000 \
	--clear-groups headrace bench --device vgpu:0 --rw read --requests 4 --path p2p /mnt/ext4/data 2>&1)"
try "the modules leave" unload_modules

# The faces of a GPU's driver.
load_modules owned=1
refused "the driver owns the pages" "driver owns the pages" /mnt/ext4/data
try "the modules leave" unload_modules
# Older kernels cannot make pages of a BAR that is mapped write-combined; where it works, bytes decide.
load_modules write_combined=1
like "the BAR is mapped write-combined" "*write-combining*" "$(grep -i "$(sed -n '3s/^0x0*\([0-9a-f]*\) .*/\1/p' \
	"/sys/bus/pci/devices/$(pci_of headrace_vgpu)/resource")" /sys/kernel/debug/x86/pat_memtype_list)"
try "write-combined: verified" headrace bench --device vgpu:0 --path p2p --rw read --bs 64K \
	--requests 100 --verify /mnt/ext4/data
try "the modules leave" unload_modules
umount /mnt/ext4
