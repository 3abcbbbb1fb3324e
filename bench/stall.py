#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long a training loop waits for its data, in the manner of MLPerf Storage: sleep instead of compute.

A step takes a batch, sleeps for its pretended compute, and takes the next. Shown is the share of the time
spent waiting, the CPU time, and the memory of the program and its workers (anonymous and shared, by
proportion), for images, volumes and windows of tokens, beside the formats' own loaders. "cold": the files
are dropped from the page cache before each run, and nothing is read twice. Another check looks at an idle
loader: for ten seconds nobody takes its batches, and it must neither use a processor nor show as pressure
on I/O.
"""
from __future__ import annotations

import argparse
import math
import os
import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import _formats_peer as peers
import formats
import lib

# The loaders of each dataset, the pretended compute of a batch in ms, and the size of the data.
ROWS: dict[str, tuple[list[str], list[float], int]] = {
    "tar-150k": (["webdataset"], [5, 20, 80], 1 << 30),
    "mds-150k": (["StreamingDataset"], [5, 20, 80], 1 << 30),
    "volumes-npy": (["numpy-files"], [30, 100, 300], 1120 << 20),
    "volumes-mds": (["streaming-LocalDataset"], [30, 100, 300], 1120 << 20),
    "megatron": (["GPTDataset"], [2, 10, 50], 1 << 30),
}
IDLE_SECONDS = 10.0
IDLE_CPU_S = 0.01   # more than this of a processor in ten seconds is no idling
IDLE_STALL_S = 0.01


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--kinds", default=",".join(ROWS), help="datasets, a list")
    p.add_argument("--shrink", type=int, default=1, help="divide the data and the steps by (1)")
    p.add_argument("--state", default="cold", choices=["hot", "cold"], help="of the files (cold)")
    p.add_argument("--workers", default="1,2,4", help="DataLoader workers, a list (1,2,4)")
    p.add_argument("--rounds", type=int, default=3, help="alternating rounds (3)")
    p.add_argument("--seconds", type=float, default=4.0, help="of a run at most (4)")
    p.add_argument("--limit", type=float, default=math.inf, help="seconds for the rounds of a dataset")
    p.add_argument("--no-idle", action="store_true", help="leave out the idle loader")
    p.add_argument("--headrace", help="the command (build/bin/headrace)")
    p.add_argument("--headrace-extra", default="", help="more options of headrace stream")
    p.add_argument("--name", default="stall", help="of the JSON file (stall)")
    return p.parse_args()


class Memory:
    """The most that a program and its workers held, looked at now and then."""

    def __init__(self) -> None:
        self.peak, self.due = 0, 0.0

    def look(self, pid: int) -> None:
        if time.monotonic() < self.due:
            return
        self.due, now = time.monotonic() + 0.2, 0
        for each in peers.family(pid):
            try:
                text = Path(f"/proc/{each}/smaps_rollup").read_text()
            except OSError:
                continue
            now += sum(int(n) for n in re.findall(r"^Pss_(?:Anon|Shmem):\s+(\d+)", text, re.M))
        self.peak = max(self.peak, now << 10)


def one_run(row: formats.Row, name: str, step_ms: float, steps: int, seed: int,
            cold: bool) -> dict[str, Any]:
    memory = Memory()
    row.look = memory.look
    before = row.prepare(cold)
    us = str(round(step_ms * 1000))
    if name == "headrace":
        got = row.stream(steps, seed, "--step-us", us)
    else:
        got = row.peer(name, seed, "--step-us", us, "--max-batches", str(max(steps - 1, 1)),
                       "--seconds", str(formats.BOUND))
    return {"waiting_share": got["waiting_share"], "samples_per_second": got["samples_per_second"],
            "cores": got["cpu_us_per_sample"] * got["samples_per_second"] / 1e6,
            "memory_bytes": memory.peak, "resident_before": before,
            "resident_after": row.resident(), "load": os.getloadavg()[0]}


def measure(row: formats.Row, args: argparse.Namespace, steps_ms: list[float]) -> dict[str, Any]:
    """All step times of a dataset, in rounds; of a loader with workers only the best number is told."""
    names, cold = ["headrace", *row.contestants], args.state == "cold"
    runs: dict[str, dict[str, list[dict[str, Any]]]] = {
        f"{ms:g}": {n: [] for n in names} for ms in steps_ms}
    epoch = row.samples // row.kind.batch
    if not cold:
        row.heat()

    def one_round(i: int) -> str:
        for ms in steps_ms:
            steps = min(epoch, max(3, round(args.seconds / args.shrink / (ms / 1000))))
            for name in lib.both_ways(names, i):
                lib.progress(f"{row.name}, steps of {ms:g} ms, {name}")
                runs[f"{ms:g}"][name].append(one_run(row, name, ms, steps, i + 1, cold))
        return row.name

    lib.rounds(args.rounds, one_round, args.limit)
    return {ms: {n: {k: lib.summary([r[k] for r in each]) for k in each[0]}
                 for n, each in of.items()} for ms, of in runs.items()}


def best_only(row: formats.Row, of: dict[str, Any]) -> dict[str, Any]:
    """Of each loader the number of workers with which it waited least."""
    out: dict[str, Any] = {}
    for name, got in of.items():
        peer = row.contestants.get(name, (name, 0))[0]
        old = out.get(peer)
        if not old or got["waiting_share"]["median"] < old[1]["waiting_share"]["median"]:
            out[peer] = (name, got)
    return dict(out.values())


def show(row: formats.Row, step_ms: str, of: dict[str, Any]) -> None:
    rows = []
    for name, got in best_only(row, of).items():
        wait = got["waiting_share"]
        rows.append([name, f"{wait['median']:.1%}", f"{wait['min']:.1%}..{wait['max']:.1%}",
                     f"{got['samples_per_second']['median']:.0f}",
                     f"{got['cores']['median']:.2f}",
                     f"{got['memory_bytes']['median'] / 2**20:.0f}",
                     f"{got['resident_before']['median']:.1%}",
                     f"{got['load']['median']:.1f}"])
    print(f"\n{row.name}, steps of {step_ms} ms, batches of {row.kind.batch}\n" + lib.table(
        rows, ["program", "waiting", "of rounds", "samples/s", "processors", "MiB",
               "cached before", "load"]))


# -- an idle loader ------------------------------------------------------------------------------
class Group:
    """A control group of its own, so that neighbours' pressure is not ours; None where there is none."""

    def __init__(self) -> None:
        mounts = Path("/proc/mounts").read_text()
        found = re.search(r"^\S+ (\S+) cgroup2 ", mounts, re.M)
        self.path = None
        try:
            self.path = Path(tempfile.mkdtemp(prefix="headrace-", dir=found[1])) if found else None
        except OSError:
            pass

    def enter(self) -> None:
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def stalled_s(self) -> float:
        text = Path(self.path / "io.pressure" if self.path else "/proc/pressure/io").read_text()
        return int(re.search(r"^some .*total=(\d+)", text, re.M)[1]) / 1e6

    def close(self) -> None:
        if self.path:
            self.path.rmdir()


def cpu_s(pid: int) -> float:
    """In ns, as the scheduler counts it, of all threads."""
    return sum(int((task / "schedstat").read_text().split()[0])
               for task in Path(f"/proc/{pid}/task").iterdir()) / 1e9


def idle(row: formats.Row, threads: int) -> dict[str, Any]:
    """Its ring is full, the program computes: nothing is to be done for ten seconds."""
    row.prepare(cold=True)
    argv = row.stream_argv(2, 1, "--step-us", "60000000", "--threads", str(threads))
    group = Group()
    child = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                             stdin=subprocess.DEVNULL,
                             preexec_fn=group.enter if group.path else None)
    try:
        time.sleep(3)
        stalled, used = group.stalled_s(), cpu_s(child.pid)
        time.sleep(IDLE_SECONDS)
        out = {"stalled_s": group.stalled_s() - stalled, "cpu_s": cpu_s(child.pid) - used,
               "own_group": group.path is not None, "running": child.poll() is None}
    finally:
        child.send_signal(signal.SIGINT)
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        group.close()
    out["ok"] = (out["running"] and out["cpu_s"] < IDLE_CPU_S
                 and (out["stalled_s"] < IDLE_STALL_S or not out["own_group"]))
    print(f"{row.name}, idle for {IDLE_SECONDS:g} s with {threads} threads: "
          f"{out['cpu_s'] * 1000:.2f} ms of processors, {out['stalled_s'] * 1000:.2f} ms of pressure "
          f"on I/O {'of its own group' if out['own_group'] else 'of the whole machine'}: "
          f"{'ok' if out['ok'] else 'NOT IDLE'}")
    return out


def main() -> None:
    args = arguments()
    lib.need("numpy", "torch")
    lib.DATA.mkdir(parents=True, exist_ok=True)
    facts = lib.machine(lib.DATA)
    print(lib.describe(facts))
    result: dict[str, Any] = {"machine": facts, "options": vars(args), "stalls": {}, "idle": {}}
    for kind in args.kinds.split(","):
        loaders, steps_ms, size = ROWS[kind]
        folder, samples = formats.make_dataset(kind, size // args.shrink)
        row = formats.Row(args, kind, folder, samples, loaders)
        row.stream(2, 1)  # its side index is made
        got = measure(row, args, steps_ms)
        for ms, of in got.items():
            show(row, ms, of)
        result["stalls"][kind] = {"samples": samples, "mean_bytes": row.kind.mean,
                                  "batch": row.kind.batch, "steps_ms": got,
                                  "commands": row.commands}
        if not args.no_idle:
            result["idle"][kind] = [idle(row, threads) for threads in (0, 2)]
    for got in result["stalls"].values():
        for line in got["commands"].values():
            print(line)
    result["machine"]["load_after"] = os.getloadavg()[0]
    lib.save(args.name, result)
    if not all(each["ok"] for of in result["idle"].values() for each in of):
        raise SystemExit("a loader was not idle")


if __name__ == "__main__":
    main()
