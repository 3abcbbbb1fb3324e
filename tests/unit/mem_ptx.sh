#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# mem_ptx: the committed kernels.ptx is what clang makes of kernels.cu today. Skips without the very
# clang that made it, since another one chooses other registers. mem_ptx.sh SOURCE-FOLDER
set -eu
src=$1/src/mem
want=$(sed -n 's/.*with clang \([0-9]*\);.*/\1/p' "$src/kernels.ptx")
for clang in "clang-$want" clang; do
	command -v "$clang" >/dev/null || continue
	[ "$("$clang" -dumpversion | cut -d. -f1)" = "$want" ] || continue
	out=$(mktemp)
	trap 'rm -f "$out"' EXIT
	"$src/make_ptx.sh" "$clang" "$out"
	diff -q "$src/kernels.ptx" "$out" || {
		echo "kernels.ptx is stale: run src/mem/make_ptx.sh $clang src/mem/kernels.ptx"
		exit 1
	}
	exit 0
done
echo "skipped: clang $want is not installed"
exit 77
