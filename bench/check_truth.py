#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does `headrace check` tell the truth? Its verdict on a file and a device beside what is measured.

The ranges that it states for cold data, one by kinds and links alone and one of `--measure`, must
contain what `headrace bench` then reads past the page cache, in small random blocks and in long ones.
And where /sys says that the drive is virtio, a direct path to a GPU must be a "no" that says so.
Exit 1 where one of that is not so.
"""
from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import files
import lib
import runners

LOADS = {"randread 8K": ["--rw", "randread", "--bs", "8K", "--depth", "64"],
         "read 1M": ["--rw", "read", "--bs", "1M", "--depth", "16"]}


def run(argv: list[str]) -> dict[str, Any]:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode:
        raise SystemExit(f"{lib.command_line(argv)}: exit {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def pair_of(report: dict[str, Any], drive: str, device: str) -> dict[str, Any]:
    for pair in report["pairs"]:
        if (pair["drive"], pair["gpu"]) == (drive, device):
            return pair
    raise SystemExit(f"the report has no pair {drive} -> {device}: {report['pairs']}")


def whole_drive(path: Path) -> str:
    """The name of the drive below @path, by /sys and not by the command."""
    block = Path("/sys/dev/block") / lib.disk(path)["device"]
    if not block.exists():
        raise SystemExit(f"{path} is on no block device")
    block = block.resolve()
    return block.parent.name if (block / "partition").exists() else block.name


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--headrace")
    p.add_argument("--device", default="host")
    p.add_argument("--file", type=Path, help="made where there is none")
    p.add_argument("--size", type=lib.parse_size, default=1 << 30)
    p.add_argument("--seconds", type=float, default=2)
    p.add_argument("--name", default="check_truth")
    args = p.parse_args()
    headrace = runners.find_headrace(args.headrace)
    path = args.file or files.make(lib.DATA / "check.bin", args.size)
    drive = whole_drive(path)
    check = [headrace, "check", "--device", args.device, "--json"]
    told = run([*check, str(path)])
    measured = run([*check, "--measure", str(path)])
    wrong = []
    rates = {}
    for name, how in LOADS.items():
        files.drop(path)
        got = run([headrace, "bench", *how, "--device", args.device, "--direct", "--seconds",
                   str(args.seconds), "--json", str(path)])
        rates[name] = got["bytes_per_second"]
    rows = []
    for title, report in (("by kinds and links", told), ("measured", measured)):
        pair = pair_of(report, drive, args.device)
        expect = pair["expected_bytes_per_second"]
        for name, rate in rates.items():
            inside = bool(expect) and expect["low"] <= rate <= expect["high"]
            rows.append([f"{title}, {name}", f"{rate / 1e9:.2f}",
                         f"{expect['low'] / 1e9:.2f}..{expect['high'] / 1e9:.2f}" if expect
                         else "unknown", "yes" if inside else "NO"])
            if not inside:
                wrong.append(f"{title}: {name} gave {rate / 1e9:.2f} GB/s, outside of {expect}")
    pair = pair_of(told, drive, args.device)
    if drive.startswith("vd") and args.device != "host":
        if pair["direct"] != "no" or "virtio" not in pair["cause"] or not pair["fix"]:
            wrong.append(f"{drive} is virtio, and the verdict is {pair}")
    print(lib.table(rows, ["range, load", "GB/s", "expected", "inside"]))
    print(f"direct {drive} -> {args.device}: {pair['direct']}: {pair['cause']}"
          + (f"; {pair['fix']}" if pair["fix"] else ""))
    for line in wrong:
        print(f"WRONG: {line}")
    lib.save(args.name, {"options": vars(args), "machine": lib.machine(path), "truth_rates": rates,
                         "pair": pair, "pair_measured":
                         pair_of(measured, drive, args.device), "told": told, "wrong": wrong})
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
