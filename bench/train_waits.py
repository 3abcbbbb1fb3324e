#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""examples/train.py with headrace and with PyTorch's DataLoader: the share of the time that training
waits for data, at steps so short that a DataLoader cannot keep up. The GPU has finished its step before
a batch is asked for, so that nothing but data is waited for. Runs take turns; each is a process."""
from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import Any

import files
import lib
import runners

HERE = Path(__file__).resolve().parent


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--size", type=lib.parse_size, default=256 << 20, help="of the tokens (256M)")
    p.add_argument("--file", type=Path, help="a token file that is there already")
    p.add_argument("--device", default="cpu")
    p.add_argument("--shapes", default="256x256x64,64x1024x64",
                   help="batch x length x width of the model, a list")
    p.add_argument("--vocabulary", type=int, default=1024,
                   help="of tokens; a large one is mostly a large last layer (1024)")
    p.add_argument("--cold", action="store_true", help="the file is not in the page cache when a run starts")
    p.add_argument("--workers", default="0,4,8,16", help="of the DataLoader, a list")
    p.add_argument("--steps", type=int, default=400)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--limit", type=float, default=math.inf, help="seconds for the rounds of each shape")
    p.add_argument("--headrace", help="not used: the package is")
    p.add_argument("--name", default="train", help="of the JSON file (train)")
    return p.parse_args()


def make_tokens(path: Path, size: int, vocabulary: int) -> Path:
    import numpy as np

    if not (path.exists() and path.stat().st_size == size):
        path.parent.mkdir(parents=True, exist_ok=True)
        np.random.default_rng(1).integers(0, vocabulary, size // 2, dtype=np.uint16).tofile(path)
    return path


def train(args: argparse.Namespace, file: Path, shape: str, more: list[str]) -> dict[str, Any]:
    batch, length, width = shape.split("x")
    example = next(p for p in (HERE / "../examples/train.py", HERE / "train.py") if p.exists())
    argv = [sys.executable, str(example), str(file), "--device", args.device, "--steps", str(args.steps),
            "--batch", batch, "--length", length, "--width", width, "--layers", "1", "--vocabulary",
            str(args.vocabulary), "--sync", "--json", *more]
    return {**runners.json_of(runners.checked(argv, 300).out), "command": lib.command_line(argv)}


def main() -> None:
    args = arguments()
    lib.need("torch", "numpy")
    if not lib.can_import("headrace"):
        print("the package headrace is not here: set PYTHONPATH to its folder")
        sys.exit(77)
    args.device = "cpu" if args.device == "host" else args.device
    file = args.file or make_tokens(
        lib.DATA / f"train-{args.vocabulary}.bin", args.size // 2 * 2, args.vocabulary)
    if not args.cold:
        files.heat(file)
    result: dict[str, Any] = {"machine": lib.machine(file), "options": vars(args)}
    print(lib.describe(result["machine"]))
    kinds = {"headrace": ["--data", "headrace"]}
    kinds.update({f"dataloader {n} workers": ["--data", "dataloader", "--workers", n]
                  for n in args.workers.split(",")})
    for shape in args.shapes.split(","):
        runs: dict[str, list[dict[str, Any]]] = {kind: [] for kind in kinds}

        def one_round(i: int) -> str:
            for kind in lib.both_ways(list(kinds), i):
                if args.cold:
                    files.drop(file, limit=1.0)
                runs[kind].append(train(args, file, shape, kinds[kind]))
            return shape

        lib.rounds(args.rounds, one_round, args.limit)
        rows = [[kind, f"{lib.median([r['waiting_share'] for r in each]):.2%}",
                 f"{lib.median([r['step_seconds'] for r in each]) * 1e3:.2f}", str(len(each))]
                for kind, each in runs.items() if each]
        print(f"\n{shape}, {'cold' if args.cold else 'hot'}\n" + lib.table(rows, ["data", "waits", "ms a step", "runs"]), flush=True)
        result[shape] = runs
    lib.save(args.name, result)


if __name__ == "__main__":
    main()
