#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`headrace stream` over a file in the page cache, in all the ways it can go: random windows of
uint16 as int64, small and large batches, with pages registered with the GPU and without.

Registering goes on beside the first epochs, so runs of one, a few and many epochs are timed. From
them come the rate of the whole run (start of the loader and registering included), the rate of the
later epochs alone, and the epoch at whose end the run with registering is ahead of the one without.

Windows of --seq-len T are T + 1 tokens that start every T tokens: with 4095 a sample is 8 KiB, and
all but a few start at addresses that are no multiple of anything. Ways: "auto" registers, "off" is
HEADRACE_PIN_BYTES=0, "bounce" is --path bounce. Every kind of run is checked element by element
against plain reads first.
"""
from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterable

import files
import lib
import runners

CHECKED_BYTES = 192 << 20
WAYS: dict[str, tuple[dict[str, str], list[str]]] = {
    "auto": ({}, []),
    "off": ({"HEADRACE_PIN_BYTES": "0"}, []),
    "bounce": ({}, ["--path", "bounce"]),
    "pagecache": ({}, ["--path", "pagecache"]),
    "host": ({}, ["--path", "host"]),
}


@dataclass(frozen=True)
class Kind:
    """One row of the table."""
    way: str
    batch: int
    seq_len: int
    threads: int | None

    def text(self) -> str:
        threads = "" if self.threads is None else f", {self.threads} threads"
        return f"{self.way}, {self.batch} x {self.seq_len + 1}{threads}"


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--file", type=Path, help="token file without header; default: one made")
    p.add_argument("--size", type=lib.parse_size, default=2 << 30, help="of the file made (2G)")
    p.add_argument("--device", default="host", help="host or cuda:N (host)")
    p.add_argument("--ways", default="auto,off", help=f"of {','.join(WAYS)}, a list (auto,off)")
    p.add_argument("--batches", type=numbers, default=[32, 1024], help="samples, a list (32,1024)")
    p.add_argument("--seq-lens", type=numbers, default=[4095], help="a list (4095)")
    p.add_argument("--threads", type=numbers, default=[], help="a list; default: the command's own")
    p.add_argument("--epochs", type=numbers, default=[1, 4, 16], help="a list (1,4,16)")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--limit", type=float, default=math.inf, help="seconds for the timed rounds")
    p.add_argument("--headrace", help="the command (build/bin/headrace)")
    p.add_argument("--headrace-extra", default="", help="more options of headrace stream")
    p.add_argument("--no-verify", action="store_true", help="leave out the checked runs")
    p.add_argument("--name", default="hot_stream", help="of the JSON file (hot_stream)")
    return p.parse_args()


class Bench:
    def __init__(self, args: argparse.Namespace, file: Path) -> None:
        self.args, self.file = args, file
        self.headrace = runners.find_headrace(args.headrace)
        self.commands: dict[str, str] = {}
        self.kinds = [Kind(way, batch, seq_len, threads) for seq_len in args.seq_lens
                      for batch in args.batches for way in args.ways.split(",")
                      for threads in args.threads or [None]]

    def run(self, kind: Kind, seed: int, more: list[str]) -> dict[str, Any]:
        env, path = WAYS[kind.way]
        threads = [] if kind.threads is None else ["--threads", str(kind.threads)]
        argv = runners.stream_argv(
            self.headrace, self.file, self.args.device, batch=kind.batch, seq_len=kind.seq_len,
            more=[*path, *threads, "--seed", str(seed), *self.args.headrace_extra.split(), *more])
        shown = " ".join(f"{k}={v}" for k, v in env.items())
        self.commands[kind.text()] = f"{shown} {lib.command_line(argv)}".strip()
        done = runners.checked(argv, 120, env)
        got = runners.json_of(done.out)
        got["cpu_us_per_sample"] = (done.user_s + done.system_s) * 1e6 / max(got["samples"], 1)
        got["wall_seconds"] = done.wall_s
        return got

    def verify(self) -> dict[str, Any]:
        """One run of each kind with every element compared, and which paths its bytes took."""
        out: dict[str, Any] = {}
        kinds = self.kinds
        if self.args.device != "host":  # what is registered from the first batch on
            kinds = kinds + [Kind("pagecache", k.batch, k.seq_len, k.threads)
                             for k in kinds if k.way == "auto"]
        for kind in kinds:
            lib.progress(f"checking {kind.text()}")
            steps = max(2, CHECKED_BYTES // (kind.batch * kind.seq_len * 2))
            got = self.run(kind, 7, ["--steps", str(steps), "--verify"])
            out[kind.text()] = {"verified": bool(got.get("verified")), "samples": got["samples"],
                                "bytes_by_path": got["bytes_by_path"]}
        lib.progress("")
        return out

    def measure(self) -> dict[str, dict[int, list[dict[str, Any]]]]:
        """kind -> number of epochs -> one result a round."""
        runs = {k.text(): {e: [] for e in self.args.epochs} for k in self.kinds}
        pairs = [(kind, epochs) for kind in self.kinds for epochs in self.args.epochs]

        def one_round(i: int) -> str:
            for kind, epochs in pairs if i % 2 == 0 else reversed(pairs):
                got = self.run(kind, i + 1, ["--epochs", str(epochs)])
                runs[kind.text()][epochs].append(got)
            return f"{got['bytes_per_second'] / 1e9:.1f} GB/s"

        lib.rounds(self.args.rounds, one_round, self.args.limit, least=1)
        return runs


def median_of(runs: Iterable[dict[str, Any]], field: str) -> float:
    return lib.median(r[field] for r in runs)


def judge(by_epochs: dict[int, list[dict[str, Any]]]) -> dict[str, Any]:
    """Rates of one kind; the later epochs are the difference of the two longest runs."""
    most = max(by_epochs)
    longest = by_epochs[most]
    seconds = {e: median_of(r, "seconds") for e, r in by_epochs.items()}
    out = {"whole": lib.summary([r["bytes_per_second"] for r in longest]), "epochs": most,
           "seconds": seconds, "cpu_us_per_sample": median_of(longest, "cpu_us_per_sample"),
           "samples_per_second": lib.summary([r["samples_per_second"] for r in longest]),
           "register_seconds": median_of(longest, "register_seconds"),
           "registered_bytes": median_of(longest, "registered_bytes"),
           "register_reason": longest[-1]["register_reason"],
           "bytes_by_path": longest[-1]["bytes_by_path"], "threads": longest[-1]["threads"]}
    shorter = sorted(by_epochs)[-2:-1]
    if shorter:
        few = by_epochs[shorter[0]]
        out["later"] = lib.summary([
            (a["bytes_per_second"] * a["seconds"] - b["bytes_per_second"] * b["seconds"])
            / max(a["seconds"] - b["seconds"], 1e-9) for a, b in zip(longest, few)])
    return out


def at(seconds: dict[int, float], epoch: float) -> float:
    """Time at the end of an epoch: between the measured ones on a straight line."""
    known = sorted(seconds)
    low = max([e for e in known if e <= epoch] or known[:1])
    high = min([e for e in known if e >= epoch] or known[-1:])
    if low == high:
        return seconds[low]
    return seconds[low] + (seconds[high] - seconds[low]) * (epoch - low) / (high - low)


def pays_after(on: dict[int, float], off: dict[int, float]) -> int | None:
    """The first epoch at whose end the run that registers is ahead; None within those measured."""
    for epoch in range(min(on), max(on) + 1):
        if at(on, epoch) < at(off, epoch):
            return epoch
    return None


def show(verdict: dict[str, Any], gets: dict[str, Any]) -> None:
    rows = []
    for name, got in verdict.items():
        whole, later = got["whole"], got.get("later")
        rows.append([name, f"{whole['median'] / 1e9:.1f}",
                     f"{whole['q1'] / 1e9:.1f}..{whole['q3'] / 1e9:.1f}",
                     f"{later['median'] / 1e9:.1f}" if later else "",
                     f"{got['samples_per_second']['median'] / 1e3:.0f}k",
                     f"{got['cpu_us_per_sample']:.2f}",
                     f"{got['registered_bytes'] / 2**30:.1f} in {got['register_seconds']:.2f} s",
                     str(gets.get(name, ""))])
    print(lib.table(rows, ["way, batch x tokens", "GB/s in", "quartiles", "later epochs",
                           "samples/s", "CPU us each", "registered GiB", "pays after epoch"]))


def main() -> None:
    args = arguments()
    file = args.file or files.make(lib.DATA / f"tokens-{lib.format_size(args.size)}.bin",
                                   args.size)
    bench = Bench(args, file)
    facts = lib.machine(file)
    print(lib.describe(facts))
    bus = runners.link(args.device)
    runners.show_link(bus)
    resident = files.heat(file)
    print(f"file     {lib.format_size(file.stat().st_size)} of uint16, {resident:.1%} resident, "
          f"int64 out to {args.device}, epochs {args.epochs}, {args.rounds} rounds")
    result: dict[str, Any] = {"machine": facts, "file_bytes": file.stat().st_size, "bus": bus,
                              "resident_before": resident, "options": vars(args)}
    if not args.no_verify:
        result["verified"] = bench.verify()
        wrong = [n for n, got in result["verified"].items() if not got["verified"]]
        print(f"checked  {len(result['verified'])} kinds, " + (", ".join(wrong) or "all right"))
        if wrong:
            raise SystemExit("wrong bytes: nothing was timed")
    runs = bench.measure()
    result["kinds"] = {name: judge(got) for name, got in runs.items()}
    result["pays_after_epoch"] = {
        name: pays_after(got["seconds"], result["kinds"][name.replace("auto,", "off,", 1)]
                         ["seconds"])
        for name, got in result["kinds"].items()
        if name.startswith("auto,") and name.replace("auto,", "off,", 1) in result["kinds"]}
    show(result["kinds"], result["pays_after_epoch"])
    result["resident_after"] = files.residency(file)
    result["commands"] = bench.commands
    for name, line in bench.commands.items():
        print(f"{name}: {line}")
    lib.save(args.name, {**result, "runs": runs})


if __name__ == "__main__":
    main()
