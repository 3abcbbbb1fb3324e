#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One way of making training batches today, run in a process of its own: prints one JSON object.

Every peer yields the same thing as headrace: windows of T + 1 tokens (inputs and targets share
them), in the same random order, as int64, on the device. The clock starts after the first batch,
so start-up of workers and of CUDA is not counted. stream_peers.py runs these in turns.
"""
from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any, Callable, Iterator

import lib

lib.need("numpy", "torch", optional=True)
lib.need("numpy")
import numpy as np  # noqa: E402
from numpy.lib.stride_tricks import sliding_window_view  # noqa: E402

try:
    import torch
    from torch.utils.data import BatchSampler, DataLoader
except ImportError:  # the numpy and classic peers do without on the host
    torch = None

Tensor = Any  # a torch tensor, or a numpy array where torch is not needed


class Windows:
    """A token file as a map-style dataset; `file` is a memmap, as users have it."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.file = np.memmap(args.file, dtype=args.dtype, mode="r", offset=args.header)
        self.seq_len = args.seq_len

    def __len__(self) -> int:
        return (len(self.file) - 1) // self.seq_len

    def __getitem__(self, index: int) -> Tensor:
        start = index * self.seq_len
        return torch.from_numpy(self.file[start:start + self.seq_len + 1].astype(np.int64))


class BatchedWindows(Windows):
    """The same, asked for a whole batch at once (what __getitems__ is for, without a collate)."""

    def __getitem__(self, index: list[int]) -> Tensor:  # type: ignore[override]
        rows = np.asarray(index)[:, None] * self.seq_len + np.arange(self.seq_len + 1)
        return torch.from_numpy(self.file[rows].astype(np.int64))


Batches = Iterator[Tensor]
Make = Callable[[argparse.Namespace, list[int]], Batches]


def _to(batch: Tensor, args: argparse.Namespace) -> Tensor:
    """Pinned, then asynchronous, as tutorials teach; nothing to do on the host."""
    if args.device == "host":
        return batch
    if isinstance(batch, np.ndarray):
        batch = torch.from_numpy(batch)
    if not batch.is_pinned():
        batch = batch.pin_memory()
    return batch.to(args.device, non_blocking=True)


def _batches(order: list[int], args: argparse.Namespace) -> Iterator[list[int]]:
    for at in range(0, len(order) - args.batch_size + 1, args.batch_size):
        yield order[at:at + args.batch_size]


def dataloader(args: argparse.Namespace, order: list[int]) -> Batches:
    loader = DataLoader(Windows(args), batch_size=args.batch_size, sampler=order, drop_last=True,
                        num_workers=args.workers, pin_memory=args.device != "host",
                        **({"prefetch_factor": 4} if args.workers else {}))
    return (_to(batch, args) for batch in loader)


def dataloader_batched(args: argparse.Namespace, order: list[int]) -> Batches:
    sampler = BatchSampler(order, args.batch_size, drop_last=True)
    loader = DataLoader(BatchedWindows(args), batch_size=None, sampler=sampler,
                        num_workers=args.workers, pin_memory=args.device != "host",
                        **({"prefetch_factor": 4} if args.workers else {}))
    return (_to(batch, args) for batch in loader)


def get_batch(args: argparse.Namespace, order: list[int]) -> Batches:
    """The loop of small GPT trainers: slices stacked twice, inputs and targets."""
    for ids in _batches(order, args):
        data = np.memmap(args.file, dtype=args.dtype, mode="r", offset=args.header)
        halves = [torch.stack([torch.from_numpy(
            data[i * args.seq_len + shift:(i + 1) * args.seq_len + shift].astype(np.int64))
            for i in ids]) for shift in (0, 1)]
        x, y = (_to(half, args) for half in halves)
        yield torch.cat([x, y[:, -1:]], dim=1) if args.verify else x


def numpy_fancy(args: argparse.Namespace, order: list[int]) -> Batches:
    file = np.memmap(args.file, dtype=args.dtype, mode="r", offset=args.header)
    columns = np.arange(args.seq_len + 1)
    for ids in _batches(order, args):
        rows = np.asarray(ids)[:, None] * args.seq_len + columns
        yield _to(file[rows].astype(np.int64), args)


def numpy_window(args: argparse.Namespace, order: list[int]) -> Batches:
    file = np.memmap(args.file, dtype=args.dtype, mode="r", offset=args.header)
    windows = sliding_window_view(file, args.seq_len + 1)[::args.seq_len]
    for ids in _batches(order, args):
        yield _to(windows[ids].astype(np.int64), args)


def classic(args: argparse.Namespace, order: list[int]) -> Batches:
    """Read every sample with pread, convert, copy: no page of the file is mapped."""
    fd = os.open(args.file, os.O_RDONLY)
    width = np.dtype(args.dtype).itemsize
    raw = np.empty((args.batch_size, args.seq_len + 1), dtype=args.dtype)
    for ids in _batches(order, args):
        for row, index in zip(raw, ids):
            os.preadv(fd, [row.data], args.header + index * args.seq_len * width)
        yield _to(raw.astype(np.int64), args)
    os.close(fd)


PEERS: dict[str, Make] = {
    "dataloader": dataloader, "dataloader-batched": dataloader_batched, "get-batch": get_batch,
    "numpy-fancy": numpy_fancy, "numpy-window": numpy_window, "classic": classic,
}


def check(batch: Tensor, ids: list[int], args: argparse.Namespace) -> None:
    """Against bytes read by pread, window by window."""
    width = np.dtype(args.dtype).itemsize
    fd = os.open(args.file, os.O_RDONLY)
    for row, index in zip(batch if isinstance(batch, np.ndarray) else batch.cpu().numpy(), ids):
        raw = os.pread(fd, (args.seq_len + 1) * width, args.header + index * args.seq_len * width)
        if not np.array_equal(row, np.frombuffer(raw, dtype=args.dtype).astype(np.int64)):
            raise SystemExit(f"{args.peer}: sample {index} is wrong")
    os.close(fd)


def run(args: argparse.Namespace) -> dict[str, object]:
    samples = len(Windows(args))
    order = [int(i) for i in np.random.default_rng(args.seed).permutation(samples)]
    while args.repeat and len(order) < args.max_batches * args.batch_size:
        order += order
    order = order[:args.max_batches * args.batch_size + args.batch_size]
    iterator = PEERS[args.peer](args, order)
    done, began, cpu = 0, 0.0, 0.0
    if args.verify:
        for batch, ids in zip(iterator, _batches(order, args)):
            check(batch, ids, args)
            done += 1
        return {"peer": args.peer, "verified": True, "batches": done}
    for batch in iterator:
        if began == 0.0:
            if args.device != "host":
                torch.cuda.synchronize()
            began, cpu = time.monotonic(), time.process_time()
            continue
        done += 1
        if done >= args.max_batches or time.monotonic() - began > args.seconds:
            break
    if args.device != "host":
        torch.cuda.synchronize()
    seconds = time.monotonic() - began
    count = done * args.batch_size
    return {"peer": args.peer, "workers": args.workers, "samples": count, "seconds": seconds,
            "samples_per_second": count / seconds, "cpu_s_main_process": time.process_time() - cpu,
            "torch": torch.__version__ if torch else "", "numpy": np.__version__}


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("peer", choices=sorted(PEERS))
    p.add_argument("file", type=Path)
    p.add_argument("--dtype", default="uint16", help="of the file (uint16)")
    p.add_argument("--header", type=int, default=0, help="bytes before the first token (0)")
    p.add_argument("--seq-len", type=int, default=4096)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--workers", type=int, default=0)
    p.add_argument("--device", default="host", help="host or cuda:N")
    p.add_argument("--seconds", type=float, default=3.0, help="stop after (3)")
    p.add_argument("--max-batches", type=int, default=1 << 20, help="and after so many batches")
    p.add_argument("--repeat", action="store_true", help="go over the file again when it ends")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--verify", action="store_true", help="check every batch instead of timing")
    args = p.parse_args()
    print(json.dumps(run(args)))


if __name__ == "__main__":
    main()
