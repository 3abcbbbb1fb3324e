#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much a training step and transfers into the same GPU disturb each other.

A large matrix product alone, random 8 KiB gathers alone, and both at once, in alternating rounds in
one process. "gathers": threads with an engine each pull samples out of registered pages as fast as
the bus allows; how many threads that takes is tried first. "loaders": a loader as a training loop
has it, that is always asked for the next batch. Each kind beside products on PyTorch's usual stream
and on one of the highest priority (transfers run on streams of the lowest), and for several numbers
of thread blocks of the gather kernel (HEADRACE_GATHER_BLOCKS, a process each).

Samples of every run are compared with plain reads. Needs PyTorch with a GPU; exit 77 without.
"""
from __future__ import annotations

import argparse
import ctypes
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Callable

import files
import lib
import runners

HERE = Path(__file__).resolve().parent
PLACES = [HERE.parent / "lib/libbeside.so", HERE.parent / "build/obj/bench/libbeside.so"]


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--file", type=Path, help="token file (uint16); default: one made")
    p.add_argument("--file-size", type=lib.parse_size, default=4 << 30, help="of that (4G)")
    p.add_argument("--device", default="cuda:0")
    p.add_argument("--size", type=int, default=8192, help="of the square bf16 matrices (8192)")
    p.add_argument("--seconds", type=float, default=0.4, help="of products in a round (0.4)")
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--batch-size", type=int, default=1024, help="samples of a gather (1024)")
    p.add_argument("--kinds", default="gathers,loaders", help="a list (gathers,loaders)")
    p.add_argument("--blocks", default="0,4,8,16", help="of the gather kernel, a list (0,4,8,16)")
    p.add_argument("--gathers", default="1,2,4,8", help="threads to try, a list (1,2,4,8)")
    p.add_argument("--threads", type=int, default=8, help="of a loader (8)")
    p.add_argument("--name", default="matmul_beside", help="of the JSON file (matmul_beside)")
    p.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    return p.parse_args()


def library() -> ctypes.CDLL:
    for place in PLACES:
        if place.exists():
            beside = ctypes.CDLL(str(place))
            text, number = ctypes.c_char_p, ctypes.c_uint
            for name, kinds in (("beside_loaders", [text, text, number, number, number]),
                                ("beside_gathers", [text, text, number, number])):
                getattr(beside, name).restype = ctypes.c_void_p
                getattr(beside, name).argtypes = kinds
            beside.beside_bytes.restype = ctypes.c_ulonglong
            beside.beside_bytes.argtypes = [ctypes.c_void_p]
            beside.beside_stop.argtypes = [ctypes.c_void_p]
            return beside
    sys.exit("libbeside.so not found: build it with ./dev build or ./dev gpu")


class Transfers:
    """Something that runs beside, until it is left."""

    def __init__(self, beside: ctypes.CDLL, start: Callable[[], int | None]) -> None:
        self.beside, self.start, self.handle = beside, start, None

    def __enter__(self) -> Transfers:
        self.handle = self.start()
        if not self.handle:
            sys.exit("the transfers could not be started")
        self.settle()
        return self

    def __exit__(self, *_: object) -> None:
        handle, self.handle = self.handle, None
        if self.beside.beside_stop(handle):
            sys.exit("the transfers failed, or brought wrong bytes")

    def settle(self) -> None:
        """Wait until the rate grows no more (pages are registered meanwhile), 20 s at most."""
        last, end = 0.0, time.monotonic() + 20
        while time.monotonic() < end:
            rate = self.rate(lambda: time.sleep(0.15))
            if last and rate < 1.05 * last:
                return
            last = rate

    def rate(self, work: Callable[[], Any]) -> float:
        """File bytes a second while `work` runs."""
        before, began = self.beside.beside_bytes(self.handle), time.monotonic()
        work()
        return (self.beside.beside_bytes(self.handle) - before) / (time.monotonic() - began)


class Products:
    """Matrix products on a stream of its own priority."""

    def __init__(self, args: argparse.Namespace, torch: Any, priority: str) -> None:
        self.torch, n = torch, args.size
        self.stream = (torch.cuda.Stream(args.device, priority=-5) if priority == "high"
                       else torch.cuda.current_stream())
        self.a, self.b = (torch.randn(n, n, device=args.device, dtype=torch.bfloat16)
                          for _ in range(2))
        self.out = torch.empty_like(self.a)
        torch.cuda.synchronize()
        self.count = 20
        self.count = max(20, int(args.seconds * 1e3 / min(self.ms() for _ in range(3))))

    def ms(self) -> float:
        """Milliseconds of one product."""
        torch = self.torch
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        with torch.cuda.stream(self.stream):
            begin.record()
            for _ in range(self.count):
                torch.mm(self.a, self.b, out=self.out)
            end.record()
        end.synchronize()
        return begin.elapsed_time(end) / self.count


def one(args: argparse.Namespace) -> dict[str, Any]:
    """All measurements of one number of blocks, in this process."""
    import torch
    torch.cuda.set_device(args.device)
    beside = library()
    device, path = args.device.encode(), str(args.file).encode()
    products = {name: Products(args, torch, name) for name in ("usual", "high")}
    out: dict[str, Any] = {"tried": {}}

    def gathers(count: int) -> Transfers:
        return Transfers(beside, lambda: beside.beside_gathers(device, path, count,
                                                               args.batch_size))

    best, most = 1, 0.0
    for count in map(int, args.gathers.split(",")) if "gathers" in args.kinds else []:
        with gathers(count) as transfers:
            rate = transfers.rate(lambda: time.sleep(0.3))
        out["tried"][count] = rate
        if rate > 1.01 * most:
            best, most = count, rate
    for kind in args.kinds.split(","):
        make = (lambda: gathers(best)) if kind == "gathers" else lambda: Transfers(
            beside, lambda: beside.beside_loaders(device, path, 1, args.batch_size, args.threads))
        runs: list[dict[str, Any]] = []
        for _ in range(args.rounds):
            alone = {name: p.ms() for name, p in products.items()}
            with make() as transfers:
                rate = transfers.rate(lambda: time.sleep(args.seconds))
                for name, p in products.items():
                    ms: list[float] = []
                    during = transfers.rate(lambda: ms.append(p.ms()))
                    runs.append({"stream": name, "alone_ms": alone[name], "beside_ms": ms[0],
                                 "rate_alone": rate, "rate_beside": during})
        out[kind] = {"threads": best if kind == "gathers" else args.threads, "runs": runs}
    return out


def judge(runs: list[dict[str, Any]], stream: str) -> dict[str, Any]:
    mine = [r for r in runs if r["stream"] == stream]
    return {"alone_ms": lib.summary([r["alone_ms"] for r in mine]),
            "beside_ms": lib.summary([r["beside_ms"] for r in mine]),
            "slower": lib.summary([r["beside_ms"] / r["alone_ms"] - 1 for r in mine]),
            "rate_alone": lib.summary([r["rate_alone"] for r in mine]),
            "rate_beside": lib.summary([r["rate_beside"] for r in mine]),
            "rate_kept": lib.summary([r["rate_beside"] / r["rate_alone"] for r in mine])}


def show(rows: dict[str, dict[str, Any]]) -> None:
    lines = []
    for name, got in rows.items():
        slow = got["slower"]
        lines.append([name, f"{got['alone_ms']['median']:.3f}", f"{got['beside_ms']['median']:.3f}",
                      f"{100 * slow['median']:.1f} %",
                      f"{100 * slow['min']:.1f}..{100 * slow['max']:.1f}",
                      f"{got['rate_alone']['median'] / 1e9:.1f}",
                      f"{got['rate_beside']['median'] / 1e9:.1f}",
                      f"{100 * got['rate_kept']['median']:.0f} %"])
    print(lib.table(lines, ["kind, blocks, stream", "product ms", "beside", "slower", "all",
                            "GB/s alone", "beside", "kept"]))


def main() -> int:
    args = arguments()
    lib.need("torch", optional=True)
    try:
        import torch
        there = torch.cuda.is_available()
    except ImportError:
        there = False
    if not there:
        print("skipped: no PyTorch that sees a GPU")
        return 77
    args.file = args.file or files.make(
        lib.DATA / f"tokens-{lib.format_size(args.file_size)}.bin", args.file_size)
    if args.one:
        print(json.dumps(one(args)))
        return 0
    resident = files.heat(args.file)
    facts = lib.machine(args.file)
    print(lib.describe(facts))
    bus = runners.link(args.device)
    runners.show_link(bus)
    print(f"file     {lib.format_size(args.file.stat().st_size)}, {resident:.1%} resident; "
          f"products of {args.size} x {args.size} bf16, {args.rounds} rounds")
    result: dict[str, Any] = {"machine": facts, "bus": bus, "options": vars(args), "by_blocks": {}}
    rows: dict[str, dict[str, Any]] = {}
    for blocks in args.blocks.split(","):
        lib.progress(f"blocks {blocks}")
        argv = [sys.executable, os.path.abspath(__file__), *sys.argv[1:], "--file", str(args.file),
                "--one"]
        got = runners.json_of(runners.checked(argv, 240, {"HEADRACE_GATHER_BLOCKS": blocks}).out)
        result["by_blocks"][blocks] = got
        print(f"blocks {blocks if blocks != '0' else 'default'}: gathers tried, GB/s by threads: "
              + ", ".join(f"{n} {r / 1e9:.1f}" for n, r in got["tried"].items()))
        for kind in args.kinds.split(","):
            for stream in ("usual", "high"):
                name = f"{kind}, {blocks if blocks != '0' else 'default'}, {stream}"
                rows[name] = judge(got[kind]["runs"], stream)
    show(rows)
    median = lib.median(r["alone_ms"]["median"] for r in rows.values())
    print(f"product alone: {2 * args.size ** 3 / median / 1e9:.0f} TFLOP/s")
    lib.save(args.name, {**result, "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
