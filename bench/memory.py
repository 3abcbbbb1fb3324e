#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Memory of `headrace stream` over a large file: anonymous and pinned, without the page cache.

While the command runs, /proc/PID/smaps_rollup and /proc/PID/status are read as fast as they
answer. Anonymous memory (heap, staging ring, batch ring) and memory that is pinned or locked
overlap: the staging ring is both. So two figures are given: "at least" takes the larger of the
two, "at most" their sum. File pages that the process maps are no memory of its own. On a GPU the
driver's own memory is found by a second run with the smallest ring, and shown beside.
"""
from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import files
import lib
import runners

LIMIT = 64 << 20
FIELDS = {"Rss", "Pss", "Pss_Anon", "Pss_File", "Anonymous", "Locked", "VmLck", "VmPin", "RssAnon",
          "RssFile", "RssShmem"}


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--file", type=Path, help="token file; default: one made in build/bench/data")
    p.add_argument("--size", type=lib.parse_size, default=8 << 30, help="of the file made (8G)")
    p.add_argument("--seq-len", type=int, default=4096)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--steps", type=int, help="batches; default: one whole epoch")
    p.add_argument("--device", default="host", help="host or cuda:N (host)")
    p.add_argument("--state", default="cold", choices=["hot", "cold"], help="of the file (cold)")
    p.add_argument("--timeout", type=float, default=600, help="seconds (600)")
    p.add_argument("--headrace", help="the command (build/bin/headrace)")
    p.add_argument("--headrace-extra", default="", help="more options of headrace stream")
    p.add_argument("--name", default="memory", help="of the JSON file (memory)")
    return p.parse_args()


def sample(pid: int) -> dict[str, int]:
    """Bytes by field name; empty once the process is gone."""
    out: dict[str, int] = {}
    for name in ("smaps_rollup", "status"):
        try:
            text = Path(f"/proc/{pid}/{name}").read_text()
        except OSError:
            return {}
        for field, value in re.findall(r"^(\w+):\s+(\d+) kB$", text, re.M):
            if field in FIELDS:
                out[field] = int(value) * 1024
    pinned = out.get("VmPin", 0) + max(out.get("VmLck", 0), out.get("Locked", 0))
    own = out.get("Anonymous", 0) + out.get("RssShmem", 0)
    out["at_least"], out["at_most"] = max(own, pinned), own + pinned
    return out


def watch(argv: list[str], timeout: float) -> tuple[dict[str, Any], dict[str, int], int]:
    """Run and sample; (the command's JSON, peak of every field, number of samples)."""
    peak: dict[str, int] = {}
    count = 0
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = subprocess.Popen(argv, stdout=out, stderr=err, stdin=subprocess.DEVNULL)
        end = time.monotonic() + timeout
        while child.poll() is None:
            now = sample(child.pid)
            for field, value in now.items():
                peak[field] = max(peak.get(field, 0), value)
            count += bool(now)
            lib.progress(f"anonymous {now.get('Anonymous', 0) >> 20} MiB, pinned "
                         f"{now.get('VmPin', 0) >> 20} MiB")
            if time.monotonic() > end:
                child.kill()
                child.wait()
                raise SystemExit(f"{lib.command_line(argv)}: no end after {timeout:.0f} s")
            time.sleep(0.01)
        lib.progress("")
        out.seek(0)
        err.seek(0)
        if child.returncode != 0:
            raise SystemExit(f"{lib.command_line(argv)}: exit {child.returncode}: "
                             f"{err.read().decode(errors='replace')[-600:]}")
        return runners.json_of(out.read().decode(errors="replace")), peak, count


def ring_bytes(got: dict[str, Any], args: argparse.Namespace) -> int:
    """As the command reports it, else the smallest ring there can be (2 slots)."""
    if got.get("ring_bytes"):
        return int(got["ring_bytes"])
    return 2 * args.batch_size * (args.seq_len + 1) * 8


def main() -> None:
    args = arguments()
    headrace = runners.find_headrace(args.headrace)
    file = args.file or files.make(lib.DATA / f"tokens-{lib.format_size(args.size)}.bin",
                                   args.size)
    samples = (file.stat().st_size // 2 - 1) // args.seq_len
    steps = args.steps or samples // args.batch_size
    argv = [headrace, "stream", "--format", "tokens", "--dtype", "u16", "--out-dtype", "i64",
            "--seq-len", str(args.seq_len), "--batch-size", str(args.batch_size), "--steps",
            str(steps), "--device", args.device, "--json", *args.headrace_extra.split(), str(file)]
    facts = lib.machine(file)
    print(lib.describe(facts))
    print(f"file     {lib.format_size(file.stat().st_size)}, {steps} batches, {args.state}")
    print(f"ours     {lib.command_line(argv)}")
    driver = {}
    if args.device != "host":
        driver = watch([*argv[:-1], "--steps", "2", "--threads", "1", "--slots", "2", "--staging",
                        "256K", str(file)], args.timeout)[1]
    before = files.heat(file) if args.state == "hot" else files.drop(file)
    got, peak, count = watch(argv, args.timeout)
    after = files.residency(file)
    ring = ring_bytes(got, args)
    for field in sorted(peak):
        print(f"  peak {field:<10} {peak[field] / 2**20:9.1f} MiB")
    least, most = peak["at_least"] - ring, peak["at_most"] - ring
    if driver:  # the batch ring is in the device's memory and no part of the process
        least, most = (peak[k] - driver[k] for k in ("at_least", "at_most"))
        print(f"driver and program with a ring of 256 KiB: {driver['at_least'] / 2**20:.1f} MiB, "
              "taken off below")
    verdict = ("inside" if most < LIMIT else
               "inside only if the overlap is counted once" if least < LIMIT else "OVER")
    print(f"{count} samples; batch ring {ring / 2**20:.1f} MiB"
          f"{' on the device' if driver else ''}; beside it at least "
          f"{least / 2**20:.1f} and at most {most / 2**20:.1f} MiB anonymous + pinned, "
          f"limit {LIMIT >> 20} MiB: {verdict}")
    print(f"page cache of the file: {before:.1%} before, {after:.1%} after (not counted)")
    lib.save(args.name, {"machine": facts, "command": lib.command_line(argv), "peak": peak,
                         "samples": count, "ring_bytes": ring, "beside_ring_at_least": least,
                         "beside_ring_at_most": most, "driver": driver, "limit": LIMIT,
                         "resident_before": before, "resident_after": after, "stream": got})


if __name__ == "__main__":
    main()
