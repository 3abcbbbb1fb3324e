# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Random calls on the modules, as root and as a user who may open the devices and nothing else. The
# host reads the kernel's log afterwards.
try "the modules load" load_modules
seconds=$(sed -n 's/.*headrace.fuzz=\([0-9]*\).*/\1/p' /proc/cmdline)
seconds=${seconds:-20}
nvme=$(pci_of nvme)
chmod 666 /dev/headrace_peer /dev/headrace_vgpu0

# fuzz NAME COMMAND...: how many calls were made is part of the result
fuzz()
{
	local said

	if said=$("${@:2}" 2>&1); then
		ok "$1: $said"
	else
		fail "$1: $said"
	fi
}

fuzz "fuzz as root" peer_tool fuzz "$seconds" 1 "$nvme"
fuzz "fuzz as a user" setpriv --reuid 1000 --regid 1000 --clear-groups \
	peer_tool fuzz "$seconds" 2 "$nvme"
chmod 600 /dev/headrace_peer
fuzz "fuzz as a user without rights" setpriv --reuid 1000 --regid 1000 --clear-groups \
	peer_tool fuzz 3 3 "$nvme"
try "no import is left" settled
try "the modules leave" unload_modules
