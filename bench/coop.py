#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One model to every GPU of a machine: each rank reads everything, or a share and the ranks exchange
(headrace.torch.load_file(group=...)). Every rank compares every tensor of the second with the first.
Skips where there are fewer than two GPUs; with --device host the ranks are processes and gloo."""
from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import files
import lib

HERE = Path(__file__).resolve().parent


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--size", type=lib.parse_size, default=1 << 30, help="of the weights (1G)")
    p.add_argument("--device", default="cuda", help="cuda or host (cuda)")
    p.add_argument("--ranks", type=int, default=0, help="(all GPUs, or 2)")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--limit", type=float, default=280, help="seconds for all of it (280)")
    p.add_argument("--headrace", help="not used: the package is")
    p.add_argument("--name", default="coop", help="of the JSON file (coop)")
    p.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    p.add_argument("--model", type=Path, help=argparse.SUPPRESS)
    return p.parse_args()


def rank_main(args: argparse.Namespace) -> None:
    import torch
    import torch.distributed as dist

    import headrace.torch as ht

    cuda = args.device != "host"
    device = f"cuda:{args.rank}" if cuda else "cpu"
    if cuda:
        torch.cuda.set_device(device)
        torch.zeros(1, device=device)
    dist.init_process_group("nccl" if cuda else "gloo", rank=args.rank, world_size=args.ranks)
    group = dist.group.WORLD
    dist.all_reduce(torch.zeros(1, device=device))  # the first one opens the connections
    out: dict[str, Any] = {"rank": args.rank, "seconds": {}, "verified": True}
    kept: dict[str, Any] = {}
    for number in range(args.rounds):
        for state in ("hot", "cold"):
            for way in lib.both_ways(["alone", "together"], number):
                dist.barrier()
                if args.rank == 0:
                    (files.heat(args.model) if state == "hot" else files.drop(args.model, limit=1.0))
                dist.barrier()
                began = time.monotonic()
                got = ht.load_file(args.model, device, group=group if way == "together" else None)
                if cuda:
                    torch.cuda.synchronize()
                out["seconds"].setdefault(f"{state} {way}", []).append(time.monotonic() - began)
                if kept:
                    out["verified"] &= got.keys() == kept.keys() and all(
                        torch.equal(t.view(torch.uint8), kept[n].view(torch.uint8))
                        for n, t in got.items())
                elif way == "alone":
                    kept = got
                out["bytes"] = sum(t.numel() * t.element_size() for t in got.values())
    print(json.dumps(out))
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    args = arguments()
    lib.need("torch", "numpy")
    if not lib.can_import("headrace"):
        print("the package headrace is not here: set PYTHONPATH to its folder")
        sys.exit(77)
    if args.rank is not None:
        rank_main(args)
        return
    import torch

    args.ranks = args.ranks or (2 if args.device == "host" else torch.cuda.device_count())
    if args.ranks < 2:
        print("there is one GPU here: nothing to exchange")
        sys.exit(77)
    from weights import TENSORS, header

    args.size = args.size // (TENSORS * 8192) * TENSORS * 8192
    model = files.make(lib.DATA / f"bf16-{lib.format_size(args.size)}.safetensors", args.size,
                       header(0, TENSORS, args.size // TENSORS))
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    env = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    ranks = [subprocess.Popen([sys.executable, __file__, "--device", args.device, "--ranks", str(args.ranks),
                               "--rounds", str(args.rounds), "--rank", str(rank), "--model", str(model)],
                              stdout=subprocess.PIPE, text=True, env=env) for rank in range(args.ranks)]
    end, said = time.monotonic() + args.limit, []
    try:
        for process in ranks:
            said.append(json.loads(process.communicate(timeout=max(1, end - time.monotonic()))[0].splitlines()[-1]))
    finally:
        for process in ranks:
            process.kill()
    # A load is over when the last rank has everything.
    times = {what: [max(each) for each in zip(*(r["seconds"][what] for r in said))]
             for what in said[0]["seconds"]}
    verified = all(r["verified"] for r in said)
    rows = [[what, f"{lib.median(each):.3f}", f"{said[0]['bytes'] / lib.median(each) / 1e9:.2f}", str(len(each))]
            for what, each in times.items()]
    print(lib.describe(lib.machine(model)))
    print(f"{args.ranks} ranks, {said[0]['bytes'] / 1e9:.2f} GB to each; right bytes: {verified}\n" +
          lib.table(rows, ["way", "s", "GB/s to each", "runs"]))
    lib.save(args.name, {"options": vars(args), "machine": lib.machine(model), "ranks": said,
                         "seconds": times, "verified": verified})
    sys.exit(0 if verified else 1)


if __name__ == "__main__":
    main()
