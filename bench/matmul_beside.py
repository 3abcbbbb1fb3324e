#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much a training step suffers from a loader beside it: a large matrix product on the GPU alone,
and again while batches are gathered at full rate in the same process. Alternating rounds, medians.

Needs PyTorch with a GPU; exit 77 without. The token file is read into the page cache first.
"""
from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
PLACES = [HERE.parent / "lib/libbeside.so", HERE.parent / "build/obj/bench/libbeside.so"]


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--file", type=Path, required=True, help="token file (uint16)")
    p.add_argument("--size", type=int, default=8192, help="of the square bf16 matrices (8192)")
    p.add_argument("--products", type=int, default=40, help="per round (40)")
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--batch-size", type=int, default=256)
    p.add_argument("--threads", type=int, default=8)
    p.add_argument("--out", type=Path, help="JSON file")
    return p.parse_args()


def library() -> ctypes.CDLL:
    for place in PLACES:
        if place.exists():
            lib = ctypes.CDLL(str(place))
            lib.beside_start.restype = ctypes.c_void_p
            lib.beside_start.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint,
                                         ctypes.c_uint]
            lib.beside_bytes.restype = ctypes.c_ulonglong
            lib.beside_bytes.argtypes = [ctypes.c_void_p]
            lib.beside_stop.argtypes = [ctypes.c_void_p]
            return lib
    sys.exit("libbeside.so not found: build it with ./dev build or ./dev gpu")


def settle(lib: ctypes.CDLL, handle: int) -> None:
    """Wait until the rate grows no more (pages are registered meanwhile), 20 s at most."""
    last_bytes, last_rate, end = 0, 0, time.monotonic() + 20
    while time.monotonic() < end:
        time.sleep(0.2)
        now = lib.beside_bytes(handle)
        rate = now - last_bytes
        if last_rate and rate < 1.1 * last_rate:
            return
        last_bytes, last_rate = now, rate


def main() -> int:
    args = arguments()
    try:
        import torch
    except ImportError:
        print("skipped: PyTorch is not installed")
        return 77
    if not torch.cuda.is_available():
        print("skipped: PyTorch sees no GPU")
        return 77
    with args.file.open("rb") as f:
        while f.read(1 << 24):
            pass
    lib = library()
    n = args.size
    a = torch.randn(n, n, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(n, n, device="cuda", dtype=torch.bfloat16)

    def products() -> float:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(args.products):
            a @ b
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / args.products

    products()
    alone: list[float] = []
    beside: list[float] = []
    rates: list[float] = []
    for _ in range(args.rounds):
        alone.append(products())
        handle = lib.beside_start(b"cuda:0", str(args.file).encode(), args.batch_size,
                                  args.threads)
        if not handle:
            return 1
        settle(lib, handle)
        before, start = lib.beside_bytes(handle), time.monotonic()
        beside.append(products())
        rates.append((lib.beside_bytes(handle) - before) / (time.monotonic() - start))
        if lib.beside_stop(handle):
            return 1
    ratio = statistics.median(y / x for x, y in zip(alone, beside))
    flops = 2 * n ** 3 / 1e12
    result = {"alone_ms": alone, "beside_ms": beside, "gather_bytes_per_second": rates,
              "slowdown_percent": 100 * (ratio - 1)}
    print(f"matmul {n}: alone {statistics.median(alone):.3f} ms "
          f"({flops / statistics.median(alone) * 1e3:.0f} TFLOP/s), beside a gather of "
          f"{statistics.median(rates) / 1e9:.1f} GB/s {statistics.median(beside):.3f} ms: "
          f"{100 * (ratio - 1):.1f} % slower")
    if args.out:
        args.out.write_text(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
