#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh of the bundle - runs the GPU suite on the machine it was carried to: correctness, then
# benchmarks. Results are text and JSON in $OUT (default ./out); the last line is the sum.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
OUT=${OUT:-$PWD/out}
export OUT PATH="$here/bin:$PATH" HEADRACE="$here/bin/headrace"
mkdir -p "$OUT"
python=$(command -v python3 || true)
only=${1:-}

# One step = "name|seconds at most|command". A command starts in $here; what it prints becomes
# $OUT/name.txt, so a step that speaks JSON is best given a file name of its own in $OUT.
steps=(
	"check|60|headrace check --json"
)
for program in "$here"/tests/*; do
	[[ -x $program ]] && steps+=("$(basename "$program")|300|$program")
done
# Benchmarks: add lines here.
bench_steps=(
	"cufile_pairs|290|HEADRACE_BENCH_OUT='$OUT' $python bench/cufile_pairs.py"
	"gpu_suite|1800|./suite.sh"
)
if [[ -n $python ]]; then
	steps+=("${bench_steps[@]}")
fi

passed=0 failed=0 skipped=0

run_step()
{
	local name limit command status=0 start=$SECONDS

	IFS='|' read -r name limit command <<<"$1"
	[[ -z $only || $name == *"$only"* ]] || return 0
	(cd "$here" && timeout -k 10 "$limit" bash -c "$command") </dev/null >"$OUT/$name.txt" 2>&1 ||
		status=$?
	case $status in
	0) passed=$((passed + 1)) ;;
	77) skipped=$((skipped + 1)) ;;
	*)
		failed=$((failed + 1))
		tail -n 20 "$OUT/$name.txt"
		;;
	esac
	printf '%-28s status %s (%s s)\n' "$name" "$status" $((SECONDS - start))
}

nvidia-smi >"$OUT/nvidia-smi.txt" 2>&1 || true
for step in "${steps[@]}"; do
	run_step "$step"
done
echo "$passed passed, $failed failed, $skipped skipped"
((failed == 0))
