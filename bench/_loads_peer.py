#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One way of loading weights today, run in a process of its own: prints one JSON object.

The clock starts with the libraries loaded and the GPU awake, and stops when every tensor is in the
device's memory. --verify compares every byte with the file afterwards. --prepare writes the file
that torch.load reads, out of the tensors of the safetensors file. The ways save-* bring the tensors of
the safetensors file to the device first, and time the writing of the other file until it is on the
drive: fsync of the file and of its folder. loads.py and weights.py run these in turns.
"""
from __future__ import annotations

import argparse
import json
import os
import resource
import threading
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


def shards(file: Path) -> list[Path]:
    """The files of an index, or the file itself."""
    if file.suffix != ".json":
        return [file]
    places = json.loads(file.read_text())["weight_map"]
    return [file.parent / name for name in sorted(set(places.values()))]


def plain(file: Path) -> dict[str, np.ndarray]:
    if file.suffix == ".json":
        return {name: data for shard in shards(file) for name, data in plain(shard).items()}
    begin, head = layout(file)
    data = np.memmap(file, dtype=np.uint8, mode="r", offset=begin)
    return {name: data[slice(*about["data_offsets"])] for name, about in head.items()}


def safetensors(args: argparse.Namespace) -> Tensors:
    from safetensors.torch import load_file
    device = "cpu" if args.device == "host" else args.device
    return {k: v for shard in shards(args.file) for k, v in load_file(shard, device=device).items()}


def headrace(args: argparse.Namespace) -> Tensors:
    from headrace.torch import load_file
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


def to_drive(path: Path) -> None:
    for name, flags in ((path, os.O_RDONLY), (path.parent, os.O_RDONLY | os.O_DIRECTORY)):
        fd = os.open(name, flags)
        os.fsync(fd)
        os.close(fd)


def save_headrace(tensors: Tensors, path: Path) -> None:
    from headrace.torch import save_file
    save_file(tensors, path)  # durable when it returns


def save_torch(tensors: Tensors, path: Path) -> None:
    torch.save(tensors, path)
    to_drive(path)


def save_safetensors(tensors: Tensors, path: Path) -> None:
    from safetensors.torch import save_file
    save_file(tensors, path)
    to_drive(path)


WAYS: dict[str, Callable[[argparse.Namespace], Tensors]] = {
    "safetensors": safetensors, "torch-load": torch_load, "torch-mmap": torch_mmap,
    "classic": classic, "headrace": headrace}
SAVES: dict[str, Callable[[Tensors, Path], None]] = {
    "save-headrace": save_headrace, "save-torch": save_torch, "save-safetensors": save_safetensors}


class Memory:
    """The most memory of host and device that was taken besides the tensors, watched while it runs."""

    def __init__(self, device: str) -> None:
        self.device, self.least_free, self.ended = device, None, threading.Event()
        self.host_before = self.host()
        self.free_before = self.free()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    def free(self) -> int:
        return 0 if self.device == "host" else torch.cuda.mem_get_info(self.device)[0]

    @staticmethod
    def host() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def watch(self) -> None:
        while not self.ended.wait(0.005):
            free = self.free()
            self.least_free = free if self.least_free is None else min(free, self.least_free)

    def end(self, size: int) -> dict[str, int]:
        self.ended.set()
        self.thread.join()
        lowest = min(self.free(), self.least_free or self.free_before)
        on_host = size if self.device == "host" else 0
        return {"device_extra_bytes": 0 if self.device == "host" else self.free_before - lowest - size,
                "host_extra_bytes": self.host() - self.host_before - on_host}


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
    p.add_argument("way", choices=sorted([*WAYS, *SAVES]))
    p.add_argument("file", type=Path, help="safetensors file, or an index of them")
    p.add_argument("other", type=Path, help="file of torch.save with the same tensors")
    p.add_argument("--device", default="host", help="host or cuda:N (host)")
    p.add_argument("--verify", action="store_true", help="compare every byte afterwards")
    p.add_argument("--memory", action="store_true", help="watch memory; costs a little time")
    p.add_argument("--prepare", action="store_true", help="write the other file and stop")
    args = p.parse_args()
    if args.prepare:
        torch.save({n: torch.from_numpy(d.copy()) for n, d in plain(args.file).items()},
                   args.other)
        print("{}")
        return
    if "safetensors" in args.way:
        import safetensors.torch  # noqa: F401  the time of importing it is not counted
    if "headrace" in args.way:
        import headrace.torch  # noqa: F401
    if args.device != "host":
        torch.zeros(1 << 20, device=args.device)
        torch.cuda.synchronize()
    given = WAYS["headrace"](args) if args.way in SAVES else {}
    watched = Memory(args.device) if args.memory else None
    began, cpu = time.monotonic(), time.process_time()
    if args.way in SAVES:
        SAVES[args.way](given, args.other)
        got = given
    else:
        got = WAYS[args.way](args)
    if args.device != "host":
        torch.cuda.synchronize()
    seconds, cpu = time.monotonic() - began, time.process_time() - cpu
    size = sum(t.numel() * t.element_size() for t in got.values())
    out = {"way": args.way, "bytes": size, "seconds": seconds, "bytes_per_second": size / seconds,
           "cpu_seconds": cpu, "torch": torch.__version__}
    if watched:
        out.update(watched.end(0 if args.way in SAVES else size))
    if args.verify and args.way in SAVES:
        back = torch.load(args.other) if args.way == "save-torch" else None
        out["verified"] = (same(back, args.file) if back is not None else
                           same({n: torch.from_numpy(d.copy()) for n, d in plain(args.other).items()},
                                args.file))
    elif args.verify:
        out["verified"] = same(got, args.file)
    print(json.dumps(out))


if __name__ == "__main__":
    main()
