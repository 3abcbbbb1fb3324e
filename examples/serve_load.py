#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Load a model as a server does at its start: a safetensors file, an index of shards, or a folder, into
device memory, and print how fast that was.

  python examples/serve_load.py model/ --device cuda:0
  torchrun --nproc-per-node 2 examples/serve_load.py model/         # every rank the whole model: each reads
                                                                    # a share, and the ranks exchange
  torchrun --nproc-per-node 2 examples/serve_load.py model/ --rows  # tensor parallel: each rank its rows
"""
import argparse
import json
import os
import time

import torch
import torch.distributed as dist

import headrace
import headrace.torch


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", help="file, index.json or folder")
    p.add_argument("--device", help="cpu or cuda:N (the GPU of the rank, if there is one)")
    p.add_argument("--rows", action="store_true", help="only this rank's share of the rows of each matrix")
    p.add_argument("--alone", action="store_true", help="ranks do not exchange: each reads everything")
    p.add_argument("--rounds", type=int, default=1, help="load so many times (1)")
    p.add_argument("--json", action="store_true", help="print the result as one line of JSON")
    return p.parse_args()


def load_rows(model, device, rank, ranks):
    """One pass over the files: of each matrix the rows of this rank, as torch.chunk() cuts them."""
    with headrace.torch.safe_open(model, framework="pt", device=device) as f:
        plan = {}
        for name in f.keys():
            shape = f.get_slice(name).get_shape()
            each = -(-shape[0] // ranks) if len(shape) > 1 else 0
            plan[name] = slice(rank * each, (rank + 1) * each) if each else None
        f.prefetch(plan)
        return {name: f.get_tensor(name) if index is None else f.get_slice(name)[index]
                for name, index in plan.items()}


def main():
    args = arguments()
    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if args.device is None:
        args.device = f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if torch.cuda.is_available() else "cpu"
    cuda = args.device != "cpu"
    if cuda:
        torch.cuda.set_device(args.device)
        torch.zeros(1, device=args.device)  # the driver's start is nobody's reading time
    if ranks > 1:
        dist.init_process_group("nccl" if cuda else "gloo")
        dist.barrier()
    group = dist.group.WORLD if ranks > 1 and not args.alone else None
    times, size = [], 0
    for _ in range(args.rounds):
        if ranks > 1:
            dist.barrier()
        began = time.perf_counter()
        if args.rows:
            tensors = load_rows(args.model, args.device, rank, ranks)
        else:
            tensors = headrace.torch.load_file(args.model, args.device, group=group)
        if cuda:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
        size = sum(t.nelement() * t.element_size() for t in tensors.values())
        if len(times) < args.rounds:
            del tensors
    best = min(times)
    if args.json:
        print(json.dumps({"rank": rank, "ranks": ranks, "tensors": len(tensors), "bytes": size,
                          "seconds": times, "bytes_per_second": size / best}))
    else:
        print(f"rank {rank} of {ranks}: {len(tensors)} tensors, {size / 1e9:.2f} GB in {best:.3f} s: "
              f"{size / best / 1e9:.2f} GB/s into {args.device}")
    if ranks > 1:
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
