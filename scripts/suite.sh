#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# suite.sh of the bundle - the GPU suite in sections: suite.sh [SECTION...] [--data DIR] [--list];
# results in $OUT (default ./out). Knows where things lie in the bundle, and nothing of the sections.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export OUT=${OUT:-$PWD/out} PATH="$here/bin:$PATH" HEADRACE="$here/bin/headrace" PYTHONUNBUFFERED=1
mkdir -p "$OUT"
cd "$here"
exec python3 bench/gpu_suite.py "$@"
