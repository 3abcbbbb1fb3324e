#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One way of loading weights today, run in a process of its own: prints one JSON object.

The clock starts with the libraries loaded and the GPU awake, and stops when every tensor is in the
device's memory. --verify compares every byte with the file afterwards. --prepare writes the file
that torch.load reads, out of the tensors of the safetensors file. loads.py runs these in turns.
"""
from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any, Callable

import lib

lib.need("numpy", "torch")
import numpy as np  # noqa: E402
import torch  # noqa: E402

Tensors = dict[str, Any]


def layout(file: Path) -> tuple[int, dict[str, Any]]:
    """(where the data begins, name -> description) of a safetensors file."""
    with open(file, "rb") as f:
        length = int.from_bytes(f.read(8), "little")
        head = json.loads(f.read(length))
    head.pop("__metadata__", None)
    return 8 + length, head


def plain(file: Path) -> dict[str, np.ndarray]:
    begin, head = layout(file)
    data = np.memmap(file, dtype=np.uint8, mode="r", offset=begin)
    return {name: data[slice(*about["data_offsets"])] for name, about in head.items()}


def safetensors(args: argparse.Namespace) -> Tensors:
    from safetensors.torch import load_file
    return load_file(args.file, device="cpu" if args.device == "host" else args.device)


def torch_load(args: argparse.Namespace) -> Tensors:
    return torch.load(args.other, map_location="cpu" if args.device == "host" else args.device)


def torch_mmap(args: argparse.Namespace) -> Tensors:
    got = torch.load(args.other, map_location="cpu", mmap=True)
    return got if args.device == "host" else {k: v.to(args.device) for k, v in got.items()}


def classic(args: argparse.Namespace) -> Tensors:
    """Read a tensor into plain memory, copy it to the device, the next one."""
    begin, head = layout(args.file)
    out: Tensors = {}
    fd = os.open(args.file, os.O_RDONLY)
    for name, about in head.items():
        first, last = about["data_offsets"]
        memory = torch.empty(last - first, dtype=torch.uint8)
        view, done = memoryview(memory.numpy()), 0
        while done < last - first:
            done += os.preadv(fd, [view[done:]], begin + first + done)
        out[name] = memory if args.device == "host" else memory.to(args.device)
    os.close(fd)
    return out


WAYS: dict[str, Callable[[argparse.Namespace], Tensors]] = {
    "safetensors": safetensors, "torch-load": torch_load, "torch-mmap": torch_mmap,
    "classic": classic}


def same(got: Tensors, file: Path) -> bool:
    """Every byte, compared on the host."""
    want = plain(file)
    if got.keys() != want.keys():
        return False
    return all(np.array_equal(got[name].contiguous().view(torch.uint8).reshape(-1).cpu().numpy(),
                              data) for name, data in want.items())


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("way", choices=sorted(WAYS))
    p.add_argument("file", type=Path, help="safetensors file")
    p.add_argument("other", type=Path, help="file of torch.save with the same tensors")
    p.add_argument("--device", default="host", help="host or cuda:N (host)")
    p.add_argument("--verify", action="store_true", help="compare every byte afterwards")
    p.add_argument("--prepare", action="store_true", help="write the other file and stop")
    args = p.parse_args()
    if args.prepare:
        torch.save({n: torch.from_numpy(d.copy()) for n, d in plain(args.file).items()},
                   args.other)
        print("{}")
        return
    if args.way == "safetensors":
        import safetensors.torch  # noqa: F401  the time of importing it is not counted
    if args.device != "host":
        torch.zeros(1 << 20, device=args.device)
        torch.cuda.synchronize()
    began, cpu = time.monotonic(), time.process_time()
    got = WAYS[args.way](args)
    if args.device != "host":
        torch.cuda.synchronize()
    seconds, cpu = time.monotonic() - began, time.process_time() - cpu
    size = sum(t.numel() * t.element_size() for t in got.values())
    out = {"way": args.way, "bytes": size, "seconds": seconds, "bytes_per_second": size / seconds,
           "cpu_seconds": cpu, "torch": torch.__version__}
    if args.verify:
        out["verified"] = same(got, args.file)
    print(json.dumps(out))


if __name__ == "__main__":
    main()
