#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training formats into host memory: headrace stream beside each format's own loader, in turns.

Compared is the raw bytes of a shuffled batch ready in memory, undecoded; windows of tokens as int64. "hot":
the files are in the page cache; "cold": they are dropped from it before each run, shown by mincore. Every
loader is tried with each number of workers, and those that came within a fifth of its best go into the
rounds. Every program is checked byte by byte in a run of its own first. CPU time is that of the process and
its workers, for ours with start and end.
"""
from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable

import _formats_make as make
import _formats_peer as peers
import files
import lib
import runners

PEER = Path(__file__).resolve().parent / "_formats_peer.py"
CLOSE = 0.8       # of the best rate in the trials: those go into the rounds
BOUND = 300.0     # seconds for a run
# The loaders of each dataset, and how many times faster than the best of them we want to be.
ROWS: dict[str, tuple[list[str], float | None]] = {
    "megatron": (["GPTDataset", "GPTDataset-tokens", "memmap-torch"], 5.0),
    "tar-150k": (["webdataset"], 5.0),
    "tar-8k": (["webdataset"], 5.0),
    "tfrecord": (["tfrecord"], 3.0),
    "mds-150k": (["StreamingDataset", "streaming-LocalDataset"], 3.0),
    "mds-8k": (["StreamingDataset", "streaming-LocalDataset"], 3.0),
    "npy": (["numpy-rows", "numpy-fancy"], None),
    "arrow": (["pyarrow-take"], None),
}
NO_WORKERS = {"headrace-python", "pyarrow-take"}
# Shown, but not the format's own loader: it takes the text of all documents as one, at fixed places.
BESIDE = {"memmap-torch"}


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--kinds", default=",".join(ROWS), help="datasets, a list")
    p.add_argument("--size", type=lib.parse_size, default=1 << 30, help="of each (1G)")
    p.add_argument("--state", default="hot,cold", help="of hot and cold, a list (hot,cold)")
    p.add_argument("--workers", default="0,1,2,4", help="DataLoader workers, a list (0,1,2,4)")
    p.add_argument("--device", default="host", help="host, or cuda:N, which implies --alone")
    p.add_argument("--alone", action="store_true", help="without the other loaders")
    p.add_argument("--rounds", type=int, default=5, help="alternating rounds (5)")
    p.add_argument("--seconds", type=float, default=2.0, help="of a run at most (2)")
    p.add_argument("--limit", type=float, default=math.inf, help="seconds for the rounds of a state")
    p.add_argument("--headrace", help="the command (build/bin/headrace)")
    p.add_argument("--headrace-extra", default="", help="more options of headrace stream")
    p.add_argument("--no-verify", action="store_true", help="leave out the checked runs")
    p.add_argument("--name", default="formats", help="of the JSON file (formats)")
    return p.parse_args()


def package(headrace: str) -> str | None:
    """Where the Python package of this headrace is: in a build folder, or installed."""
    for place in (Path(headrace).resolve().parent.parent / "python",
                  lib.ROOT / "build/obj/python"):
        if list((place / "headrace").glob("_core*.so")):
            return str(place)
    return "" if lib.can_import("headrace") else None


def modules(group: str) -> str | None:
    """Where the modules of a group of tests/formats/peers.sh are; None, and said why, without them."""
    if not group:
        return ""
    script = lib.ROOT / "tests/formats/peers.sh"
    if not script.exists():
        print(f"without {group}: no {script.name} here")
        return None
    done = subprocess.run([str(script), group, sys.executable,
                           str(lib.ROOT / "build/cache/pypi")], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"without {done.stderr.strip()}")
        return None
    return done.stdout.strip()


def find_peers(headrace: str, names: list[str]) -> dict[str, dict[str, str]]:
    """The environment of every loader that can be had."""
    out = {}
    for name in names:
        where = package(headrace) if name == "headrace-python" else modules(peers.PEERS[name][2])
        if where is not None:
            out[name] = {"PYTHONPATH": where, "PYTHONDONTWRITEBYTECODE": "1",
                         "PYTHONWARNINGS": "ignore"}
    return out


def make_dataset(kind: str, size: int) -> tuple[Path, int]:
    """In a process of its own, as writing may need modules of a peer. None without those."""
    folder = lib.DATA / f"{kind}-{lib.format_size(size)}"
    where = modules(make.KINDS[kind].group)
    if where is None:
        return folder, 0
    argv = [sys.executable, str(PEER.with_name("_formats_make.py")), kind, str(folder), "--size",
            lib.format_size(size)]
    done = runners.checked(argv, 900, {"PYTHONPATH": where})
    return folder, int(runners.json_of(done.out)["samples"])


class Row:
    """All runs over one dataset."""

    def __init__(self, args: argparse.Namespace, kind: str, folder: Path, samples: int,
                 loaders: list[str]) -> None:
        self.args, self.name, self.kind = args, kind, make.KINDS[kind]
        self.device = getattr(args, "device", "host")
        self.folder, self.samples = folder, samples
        self.files = make.data_files(folder)
        self.headrace = runners.find_headrace(args.headrace)
        self.look: Callable[[int], None] | None = None  # at every process that is run
        others = [] if getattr(args, "alone", False) else ["headrace-python", *loaders]
        self.env = find_peers(self.headrace, others)
        self.commands: dict[str, str] = {}
        self.contestants: dict[str, tuple[str, int]] = {}
        for peer in self.env:
            for w in [0] if peer in NO_WORKERS else map(int, args.workers.split(",")):
                self.contestants[peer if peer in NO_WORKERS else f"{peer} w{w}"] = (peer, w)

    def stream_argv(self, steps: int, seed: int, *more: str) -> list[str]:
        return [self.headrace, "stream", "--format", self.kind.format, "--device", self.device,
                "--json", *self.kind.stream, "--batch-size", str(self.kind.batch), "--steps",
                str(steps), "--seed", str(seed), *more, *self.args.headrace_extra.split(),
                *map(str, make.paths(self.name, self.folder))]

    def stream(self, steps: int, seed: int, *more: str) -> dict[str, Any]:
        argv = self.stream_argv(steps, seed, *more)
        self.commands["headrace"] = lib.command_line(argv)
        done = runners.checked(argv, BOUND, look=self.look)
        got = runners.json_of(done.out)
        got["cpu_us_per_sample"] = (done.user_s + done.system_s) * 1e6 / got["samples"]
        got["peak_rss_bytes"] = done.peak_rss_bytes
        return got

    def peer(self, name: str, seed: int, *more: str) -> dict[str, Any]:
        peer, workers = self.contestants[name]
        argv = [sys.executable, str(PEER), peer, self.name, str(self.folder), "--batch-size",
                str(self.kind.batch), "--workers", str(workers), "--seed", str(seed), *more]
        self.commands[name] = lib.command_line(argv)
        return runners.json_of(runners.checked(argv, BOUND, self.env[peer], self.look).out)

    def index(self) -> dict[str, Any] | None:
        """What the side index costs, which is made once: a pass over hot files."""
        if self.kind.format not in ("tar", "tfrecord"):
            return None
        self.heat()
        argv = [self.headrace, "index", "--force", "--format", self.kind.format,
                *map(str, self.files)]
        began = time.monotonic()
        done = runners.checked(argv, BOUND)
        seconds, size = time.monotonic() - began, sum(p.stat().st_size for p in self.files)
        return {"seconds": seconds, "bytes_per_second": size / seconds,
                "cpu_s": done.user_s + done.system_s,
                "index_bytes": sum(p.stat().st_size for p in self.folder.glob("*.hrindex"))}

    def verify(self) -> dict[str, bool]:
        """Ours by its own plain reads and, in Python, by what must be in the samples; the others too."""
        out = {"headrace": bool(self.stream(32, 7, "--verify")["verified"])}
        first: dict[str, str] = {}
        for name, (peer, _) in self.contestants.items():
            first.setdefault(peer, name)
        for peer, name in first.items():
            lib.progress(f"checking {name}")
            out[peer] = bool(self.peer(name, 7, "--verify", "--max-batches", "16")["verified"])
        lib.progress("")
        return out

    def resident(self) -> float:
        counts = [files.pages_resident(path) for path in self.files]
        return sum(c[0] for c in counts) / sum(c[1] for c in counts)

    def heat(self) -> None:
        for path in self.files:
            files.heat(path)

    def prepare(self, cold: bool) -> float:
        """Before a run: the share of the files that is in the page cache."""
        for path in self.files if cold else []:
            files.drop(path)
        return self.resident()

    def trials(self, more: list[str], cold: bool) -> dict[str, float]:
        """One run of every contestant; those that are far from their best number of workers go."""
        rates = {}
        for name in self.contestants:
            lib.progress(f"trying {name}")
            self.prepare(cold)
            rates[name] = self.peer(name, 1, *more)["samples_per_second"]
        lib.progress("")
        return rates

    def measure(self, cold: bool) -> dict[str, Any]:
        if not cold:
            self.heat()
        for path in self.files if cold else []:
            files.drop(path, limit=1.0)
            files.preread_direct(path)
        epoch = self.samples // self.kind.batch
        more = ["--seconds", f"{self.args.seconds:g}"]
        if cold:  # nobody reads anything twice
            more += ["--max-batches", str(epoch - 1)]
        rates = self.trials(more, cold)
        best = {p: max(r for n, r in rates.items() if self.contestants[n][0] == p)
                for p in self.env}
        kept = [n for n, r in rates.items() if r >= CLOSE * best[self.contestants[n][0]]]
        self.prepare(cold)
        trial = self.stream(max(min(epoch, 64), 2), 1)
        steps = max(int(trial["samples_per_second"] * self.args.seconds / self.kind.batch), 2)
        steps = min(steps, epoch) if cold else steps
        return {"trials": rates, "runs": self._rounds(["headrace", *kept], steps, more, cold)}

    def _rounds(self, names: list[str], steps: int, more: list[str],
                cold: bool) -> dict[str, list[dict[str, Any]]]:
        runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}

        def one_round(i: int) -> str:
            for name in lib.both_ways(names, i):
                before, load = self.prepare(cold), os.getloadavg()[0]
                got = (self.stream(steps, i + 1) if name == "headrace" else
                       self.peer(name, i + 1, *more))
                got.update(resident_before=before, resident_after=self.resident(), load=load)
                runs[name].append(got)
            return ", ".join(f"{n} {r[-1]['samples_per_second']:.0f}" for n, r in runs.items())

        lib.rounds(self.args.rounds, one_round, self.args.limit)
        return runs


def judge(row: Row, measured: dict[str, Any], target: float | None) -> dict[str, Any]:
    runs = measured["runs"]
    out: dict[str, Any] = {"programs": {}, "trials": measured["trials"], "runs": runs}
    ours = {k: [r[k] for r in runs["headrace"]] for k in ("samples_per_second",
                                                          "cpu_us_per_sample")}
    for name, each in runs.items():
        rates, cpu = ([r[k] for r in each] for k in ours)
        out["programs"][name] = {
            "samples_per_second": lib.summary(rates), "cpu_us_per_sample": lib.summary(cpu),
            "bytes_per_second": lib.median(rates) * row.kind.mean,
            "resident_before": lib.median(r["resident_before"] for r in each),
            "resident_after": lib.median(r["resident_after"] for r in each),
            "times": lib.summary(lib.ratios(ours["samples_per_second"], rates)),
            "cpu_times": lib.summary(lib.ratios(cpu, ours["cpu_us_per_sample"]))}
    rivals = [n for n in runs if row.contestants.get(n, ("headrace",))[0] not in
              {"headrace", "headrace-python", *BESIDE}]
    if rivals:
        best = max(rivals, key=lambda n: out["programs"][n]["samples_per_second"]["median"])
        ratio = out["programs"][best]["times"]["median"]
        out["best"] = {"name": best, "times": ratio, "target": target,
                       "met": target is None or ratio >= target}
    states = [r["state_us"]["median"] for r in runs.get("headrace-python", [])]
    if states:
        out["state_us"] = lib.summary(states)
    out["load"] = lib.summary([r["load"] for each in runs.values() for r in each])
    return out


def show(name: str, state: str, row: Row, verdict: dict[str, Any]) -> None:
    rows = []
    for program, got in verdict["programs"].items():
        rate, times = got["samples_per_second"], got["times"]
        rows.append([program, f"{rate['median']:.0f}", f"{rate['q1']:.0f}..{rate['q3']:.0f}",
                     f"{got['bytes_per_second'] / 1e9:.2f}", f"{times['median']:.1f}x",
                     f"{times['median_low']:.1f}..{times['median_high']:.1f}",
                     f"{got['cpu_us_per_sample']['median']:.1f}",
                     f"{got['cpu_times']['median']:.1f}x",
                     f"{got['resident_before']:.1%}", f"{got['resident_after']:.1%}"])
    print(f"\n{name}, {state}: {row.samples} samples of {row.kind.mean} bytes, batches of "
          f"{row.kind.batch}, {len(row.files)} files, load {verdict['load']['median']:.1f}\n"
          + lib.table(rows, ["program", "samples/s", "quartiles", "GB/s", "headrace is", "95 %",
                             "CPU us", "CPU is", "cached before", "after"]))
    if "state_us" in verdict:
        state = verdict["state_us"]
        print(f"a state saved in Python: {state['median']:.2f} us "
              f"({state['min']:.2f}..{state['max']:.2f})")
    if "best" in verdict:
        best = verdict["best"]
        wanted = f", wanted {best['target']:g}x: {'met' if best['met'] else 'MISSED'}" \
            if best["target"] else ""
        print(f"headrace is {best['times']:.2f}x the best of the format's own, {best['name']}{wanted}")


def main() -> None:
    args = arguments()
    args.alone |= args.device != "host"
    if not args.alone:
        lib.need("numpy", "torch")
    lib.DATA.mkdir(parents=True, exist_ok=True)
    facts = lib.machine(lib.DATA)
    print(lib.describe(facts))
    result: dict[str, Any] = {"machine": facts, "options": vars(args), "kinds": {}}
    for kind in args.kinds.split(","):
        folder, samples = make_dataset(kind, args.size)
        if not samples:
            print(f"{kind}: skipped, it cannot be made here")
            continue
        row = Row(args, kind, folder, samples, ROWS[kind][0])
        got: dict[str, Any] = {"samples": samples, "mean_bytes": row.kind.mean,
                               "files": len(row.files), "index": row.index(), "states": {}}
        if not args.no_verify:
            got["verified"] = row.verify()
            print(f"\n{kind}: checked " + ", ".join(f"{n} {'ok' if ok else 'NO'}" for n, ok in
                                                    got["verified"].items()))
        if got["index"]:
            print(f"side index made in {got['index']['seconds']:.2f} s "
                  f"({got['index']['bytes_per_second'] / 1e9:.2f} GB/s of hot files), once")
        for state in args.state.split(","):
            verdict = judge(row, row.measure(state == "cold"), ROWS[kind][1])
            show(kind, state, row, verdict)
            got["states"][state] = verdict
        got["commands"] = row.commands
        result["kinds"][kind] = got
    print()
    for kind, got in result["kinds"].items():
        for line in got["commands"].values():
            print(line)
    result["machine"]["load_after"] = os.getloadavg()[0]
    lib.save(args.name, result)


if __name__ == "__main__":
    main()
