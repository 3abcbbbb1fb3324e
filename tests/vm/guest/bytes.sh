# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# The whole cross of offsets, lengths and destinations with guard bytes (fsbytes_probe) on the direct
# path, files that are being written included.
try "the modules load" load_modules
modprobe xfs

# cross NAME FOLDER
cross()
{
	local out

	mkdir -p "$2/d"
	fsbytes_probe make "$2/d"
	if out=$(fsbytes_probe check vgpu:0 "$2/d" write 2>&1); then
		like "$1 cross" "vgpu:0: fs=$1 path=p2p *p2p_MiB=[1-9]*" "$out"
	else
		fail "$1 cross: $out"
	fi
}

mkdir -p /mnt/ext4 /mnt/xfs
mkfs.ext4 -q /dev/nvme0n1 && mount /dev/nvme0n1 /mnt/ext4 && cross ext4 /mnt/ext4
mkfs.xfs -q -f /dev/nvme1n1 && mount /dev/nvme1n1 /mnt/xfs && cross xfs /mnt/xfs
try "the modules leave" unload_modules
