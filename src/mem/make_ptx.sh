#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compile kernels.cu to PTX with clang, which needs no CUDA toolkit: make_ptx.sh CLANG OUT
# PTX 6.0 for sm_70, so that every driver since CUDA 9 loads it.
set -eu
here=$(dirname "$0")
major=$("$1" -dumpversion | cut -d. -f1)
echo "// SPDX-License-Identifier: Apache-2.0" >"$2"
echo "// Made from kernels.cu by make_ptx.sh with clang $major; a test compares them." >>"$2"
"$1" -x cuda -nocudainc -nocudalib --cuda-device-only --cuda-gpu-arch=sm_70 \
	-Xclang -target-feature -Xclang +ptx60 -Wno-unknown-cuda-version -ffreestanding -O3 -S \
	-DHR_KERNELS_SHIM='"kernels_gpu.h"' -I "$here" "$here/kernels.cu" -o - >>"$2"
