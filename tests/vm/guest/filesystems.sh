# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# File systems that a build machine's kernel may lack: vfat, and NFS over the loopback interface. Each
# is read and written by tests/integration/fsbytes_probe, which compares every byte with read(2), and
# judged by fsmatrix_probe.

# bytes NAME FOLDER KEY=VALUE...: bytes, and what the library decides about a file there
bytes()
{
	local name=$1 folder=$2 found want

	shift 2
	mkdir -p "$folder"
	try "$name: files" fsbytes_probe make "$folder"
	try "$name: bytes" fsbytes_probe check host "$folder" write
	found=$(fsmatrix_probe "$folder/plain")
	for want in "$@"; do
		like "$name: $want" "*"$'\n'"$want"$'\n'"*" $'\n'"$found"$'\n'
	done
}

vfat()
{
	modprobe -a vfat nls_ascii nls_cp437
	mkdir -p /mnt/vfat
	if mkfs.vfat -F 32 /dev/nvme0n1 >/dev/null 2>&1 && mount -t vfat /dev/nvme0n1 /mnt/vfat; then
		bytes vfat /mnt/vfat/d fs=vfat direct=1 block=nvme0n1 after_direct=cold
	else
		fail "vfat: cannot be mounted"
	fi
}

# The kernel's server without its daemons: their answers to its questions, once and for all.
serve()
{
	local never=2147483647 flags=$((0x2402)) # fsid given, no subtree check, any port

	modprobe nfsd && mount -t nfsd nfsd /proc/fs/nfsd || return
	echo 10 >/proc/fs/nfsd/nfsv4leasetime
	echo 10 >/proc/fs/nfsd/nfsv4gracetime
	echo "-2 -3 +4" >/proc/fs/nfsd/versions
	echo "nfsd 127.0.0.1 $never *" >/proc/net/rpc/auth.unix.ip/channel
	echo "* $1 $never $flags 65534 65534 0" >/proc/net/rpc/nfsd.export/channel
	printf '* 1 \\x00000000 %s %s\n' "$never" "$1" >/proc/net/rpc/nfsd.fh/channel
	echo "tcp 2049" >/proc/fs/nfsd/portlist
	echo 2 >/proc/fs/nfsd/threads
}

export_ext4()
{
	mkdir -p /mnt/export
	mkfs.ext4 -q -F /dev/nvme0n2 && mount -t ext4 /dev/nvme0n2 /mnt/export &&
		chmod 777 /mnt/export && serve /mnt/export
}

nfs()
{
	mkdir -p /mnt/nfs
	modprobe nfsv4
	if mount -i -t nfs4 -o vers=4.2,addr=127.0.0.1,clientaddr=127.0.0.1,sec=sys \
		127.0.0.1:/ /mnt/nfs; then
		bytes nfs /mnt/nfs/d fs=nfs4 direct=1 block= after_direct=cold
		umount /mnt/nfs
	else
		fail "nfs: cannot be mounted"
	fi
	echo 0 >/proc/fs/nfsd/threads
}

export_ext4 # first, because the server lets nobody write for its first ten seconds
vfat
nfs
