# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# The kernel modules by themselves: imports, what they refuse, and what happens to I/O when memory, a
# mapping, a process or a driver goes away. After each case the counters must be back at nothing.
try "the modules load" load_modules
nvme=$(pci_of nvme)
vgpu=$(pci_of headrace_vgpu)

modprobe loop
like "import for a PCI function" "refusal=0 distance=* segments=1 len=1048576" \
	"$(peer_tool import "$nvme" 1048576)"
like "import for a block device, in pieces" "refusal=0 distance=* segments=3 len=12582912" \
	"$(peer_tool import /dev/nvme0n1 12582912)"
same "import for no PCI device" "refusal=9 distance=-1 segments=0 len=0" \
	"$(peer_tool import /dev/loop0 65536)"
try "imports are gone" settled

head -c 16777216 /dev/urandom >/tmp/random
dd if=/tmp/random of=/dev/nvme0n1 bs=1M conv=fsync status=none
offset=$(peer_tool read "$nvme" /dev/nvme0n1 16777216)
same "a direct read lands in the BAR" "$(sha256sum </tmp/random | cut -d ' ' -f 1)" \
	"$(ask bar-sha256 "$offset" 16777216)"

# Memory gets its pages once and keeps them: all of it now, so that no case adds to the modules' objects.
like "import of the whole BAR" "refusal=0 *" "$(peer_tool import "$nvme" $((256 << 20)))"
for name in refused fork munmap kill move revoke; do
	objects=$(live_objects)
	try "case $name" peer_tool error "$name" "$nvme" /dev/nvme0n1
	try "case $name: counters" settled
	try "case $name: no memory lost" no_more_than "$objects"
done

# The count is one that sees something: an open file and an import are several objects.
objects=$(live_objects)
exec 5<>/dev/headrace_peer
try "objects are counted" test "$(live_objects)" -gt "$objects"
exec 5<&-
try "and gone" no_more_than "$objects"

# hold NAME COMMAND...: what a reader meets when the command is run under it
hold()
{
	local name=$1 line

	shift
	exec 4< <(exec peer_tool error hold "$nvme" /dev/nvme1n1 2>&1)
	read -r -t 30 line <&4
	same "$name: begins" reading "$line"
	try "$name" timeout 30 "$@"
	read -r -t 30 line <&4
	same "$name: reads fail" "ended: Bad address" "$line"
	exec 4<&-
	try "$name: counters" settled
}

same "rmmod while there are pages" 1 "$(rmmod headrace_peer 2>/dev/null; echo $?)"
hold "the memory's driver leaves" bash -c "echo $vgpu >/sys/bus/pci/drivers/headrace_vgpu/unbind"
same "its pages are gone" 0 "$(counter page_bytes)"
echo "$vgpu" >/sys/bus/pci/drivers/headrace_vgpu/bind
like "it comes back" "refusal=0 *" "$(peer_tool import "$nvme" 1048576)"
hold "the drive's driver leaves" bash -c "echo $nvme >/sys/bus/pci/drivers/nvme/unbind"
echo "$nvme" >/sys/bus/pci/drivers/nvme/bind
like "it comes back as well" "refusal=0 *" "$(peer_tool import "$nvme" 1048576)"
try "imports are gone" settled

echo "$vgpu" >/sys/bus/pci/drivers/headrace_vgpu/unbind
try "rmmod when all is over" rmmod headrace_peer
rmmod headrace_vgpu
