#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The measurements on a machine with a GPU, each bounded, all together within a budget of time.

Checks come first (batches on the device against plain reads, at even and odd offsets), then rates:
the disk against fio, streams against what users have, copies and bytes over the link per batch.
Writes gpu_suite.json and gpu_steps.txt to $OUT. Exit 1 if a check failed; 77 without a GPU.
"""
from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import files
import lib
import runners

HERE = Path(__file__).resolve().parent
LLMC_HEADER = b"".join(n.to_bytes(4, "little") for n in (20240520, 1, 0)).ljust(1024, b"\0")


@dataclass
class Step:
    name: str
    limit_s: float
    argv: list[str]
    check: bool = False            # a wrong answer fails the suite
    state: tuple[str, Path] | None = None  # ("hot" or "cold", file) before the step
    result: dict[str, Any] = field(default_factory=dict)


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--device", default="cuda:0", help="host to try the suite out (cuda:0)")
    p.add_argument("--out", type=Path, default=Path(os.environ.get("OUT") or lib.OUT),
                   help="folder for the results ($OUT, or build/bench)")
    p.add_argument("--data", type=Path, help="folder on the disk to measure (a temporary one)")
    p.add_argument("--size", type=lib.parse_size, default=4 << 30, help="of the token file (4G)")
    p.add_argument("--budget", type=float, default=450, help="seconds for everything (450)")
    p.add_argument("--pairs", type=int, default=15, help="rounds against fio (15)")
    p.add_argument("--only", default="", help="steps whose name contains this")
    p.add_argument("--list", action="store_true", help="show the steps and stop")
    p.add_argument("--headrace", help="the command")
    p.add_argument("--fio", help="a (static) fio")
    return p.parse_args()


def stream(hr: str, args: argparse.Namespace, file: Path, steps: int, *more: str) -> list[str]:
    return [hr, "stream", "--format", "tokens", "--device", args.device, "--steps", str(steps),
            "--json", *more, str(file)]


def checks(hr: str, args: argparse.Namespace, data: dict[str, Path]) -> list[Step]:
    """Every element of every batch against a plain read, at offsets of every alignment."""
    out = []
    for state in ("cold", "hot"):
        for seq_len, kind, dtype, to in ((4096, "plain", "u16", "i64"),
                                         (4095, "plain", "u16", "i64"),
                                         (4093, "plain", "u16", "same"),
                                         (1023, "plain", "u32", "i32"),
                                         (1021, "plain", "u32", "i64"),
                                         (4095, "header", None, "i64")):
            more = ["--seq-len", str(seq_len), "--out-dtype", to, "--seed", "3", "--verify"]
            more += ["--dtype", dtype] if dtype else []
            name = f"verify-{state}-{kind}-{dtype or 'u16'}-{to}-{seq_len}"
            out.append(Step(name, 40, stream(hr, args, data[kind], 96, *more), True,
                            (state, data[kind])))
    for bs in ("8191", "513", "65537"):
        argv = [hr, "bench", "--rw", "randread", "--bs", bs, "--device", args.device, "--seconds",
                "1", "--verify", "--json", str(data["plain"])]
        out.append(Step(f"verify-bytes-{bs}", 40, argv, True, ("cold", data["plain"])))
    return out


def rates(hr: str, args: argparse.Namespace, data: dict[str, Path]) -> list[Step]:
    py, plain = sys.executable, data["plain"]
    path = "host" if args.device == "host" else "bounce"
    common = ["--headrace", hr, "--device", args.device, "--file", str(plain)]
    fio = ["--fio", args.fio] if args.fio else []
    peers = [py, str(HERE / "stream_peers.py"), *common]
    out = []
    for batch in (32, 256, 1024):
        steps = max(64, 65536 // batch)
        out.append(Step(f"hot-stream-{batch}", 40, stream(
            hr, args, plain, steps, "--seq-len", "4096", "--batch-size", str(batch),
            "--out-dtype", "i64"), False, ("hot", plain)))
    for threads in (1, 4, 8):
        out.append(Step(f"hot-read-1M-{threads}", 30, [
            hr, "bench", "--rw", "read", "--bs", "1M", "--depth", "16", "--threads", str(threads),
            "--seconds", "3", "--buffered", "--device", args.device, "--json", str(plain)],
            False, ("hot", plain)))
    out.append(Step("fio-pairs", 170, [
        py, str(HERE / "fio_pairs.py"), *common, *fio, "--path", path, "--pairs", str(args.pairs),
        "--seconds", "2", "--no-strace", "--name", "fio-pairs"]))
    out.append(Step("stream-hot", 190, [
        *peers, "--state", "hot", "--rounds", "3", "--seconds", "1.5", "--workers", "0,8",
        "--peers", "dataloader,dataloader-batched,get-batch,numpy-window", "--name",
        "stream-hot"]))
    out.append(Step("stream-cold", 120, [
        *peers, "--state", "cold", "--rounds", "2", "--cold-samples", "32768", "--cold-seconds",
        "5", "--workers", "0,16", "--peers", "dataloader,get-batch,classic", "--no-verify",
        "--name", "stream-cold"]))
    out.append(Step("memory", 60, [py, str(HERE / "memory.py"), *common, "--name", "memory"]))
    return out


def run_step(step: Step, left_s: float, parts: Path, data: Path, log: Any) -> None:
    """Run one step; its outcome is 'ok', 'failed', 'timeout' or 'no time left'."""
    began = time.monotonic()
    if left_s < 5:
        step.result = {"outcome": "no time left"}
        return
    env = {"HEADRACE_BENCH_OUT": str(parts), "HEADRACE_BENCH_DATA": str(data),
           "PYTHONUNBUFFERED": "1"}
    text = ""
    try:
        if step.state:
            (files.heat if step.state[0] == "hot" else files.drop)(step.state[1])
        done = runners.run_child(step.argv, min(step.limit_s, left_s), env)
        text = done.out + done.err
        step.result = {"outcome": "ok" if done.code == 0 else "failed", "code": done.code}
        saved = parts / f"{step.name}.json"
        if saved.exists():
            step.result["json"] = json.loads(saved.read_text())
        elif done.code == 0:
            step.result["json"] = runners.json_of(done.out)
        if step.check and done.code == 0 and not step.result["json"].get("verified"):
            step.result["outcome"] = "failed"
    except TimeoutError as problem:
        step.result, text = {"outcome": "timeout"}, str(problem)
    except (RuntimeError, OSError, ValueError) as problem:
        step.result, text = {"outcome": "failed"}, str(problem)
    step.result["seconds"] = time.monotonic() - began
    log.write(f"== {step.name}: {step.result['outcome']}, {step.result['seconds']:.1f} s\n"
              f"{lib.command_line(step.argv)}\n{text}\n")
    log.flush()


def headline(step: Step) -> str:
    """The few numbers of a step that fit on its line."""
    got = step.result.get("json", {})
    words = []
    for key, scale, unit in (("samples_per_second", 1, "samples/s"), ("iops", 1, "requests/s"),
                             ("bytes_per_second", 1e9, "GB/s"), ("copies_per_batch", 1, "copies"),
                             ("waiting_share", 1, "waiting")):
        if isinstance(got.get(key), (int, float)):
            words.append(f"{got[key] / scale:.4g} {unit}")
    if got.get("bytes_moved") and got.get("samples") and got.get("bytes_per_second"):
        sample_bytes = got["bytes_per_second"] / got["samples_per_second"]
        ratio = got["bytes_moved"] / (got["samples"] * sample_bytes)
        words.append(f"{ratio:.3f} moved/sample byte")
    for state in ("hot", "cold"):
        for best in ("best_dataloader", "best_numpy"):
            if best in got.get(state, {}):
                words.append(f"{got[state][best]['ratio']:.1f}x {got[state][best]['name']}")
    if "ratios" in got:
        pairs = got["ratios"]["iops"]
        words.append(f"rate {pairs['headrace/fio']['median']:.3f} of fio's, fio/fio "
                     f"{pairs['fio/fio']['median']:.3f}, CPU {got['cpu_ratio']:.2f}x")
    if "beside_ring_at_most" in got:
        words.append(f"{got['beside_ring_at_most'] / 2**20:.1f} MiB")
    if step.check and "verified" in got:
        words.append(f"verified {got['verified']}")
    return ", ".join(words)


def main() -> int:
    args = arguments()
    began = time.monotonic()
    if args.device != "host" and not lib.gpu_model():
        print("no GPU here: nothing was measured")
        return 77
    hr = runners.find_headrace(args.headrace)
    args.out.mkdir(parents=True, exist_ok=True)
    data = args.data or Path(tempfile.mkdtemp(prefix="headrace-bench-", dir="/var/tmp"))
    parts = Path(tempfile.mkdtemp(prefix="headrace-parts-"))
    wanted = {"plain": (data / "tokens.bin", args.size, b""),
              "header": (data / "header.bin", 256 << 20, LLMC_HEADER)}
    try:
        names = {kind: path for kind, (path, _, _) in wanted.items()}
        steps = [s for s in checks(hr, args, names) + rates(hr, args, names) if args.only in s.name]
        if args.list:
            print("\n".join(f"{s.name:<32}{lib.command_line(s.argv)}" for s in steps))
            return 0
        for path, size, header in wanted.values():
            tokens = size // 2 if header else 0
            files.make(path, size, header[:8] + tokens.to_bytes(4, "little") + header[12:])
        with open(args.out / "gpu_steps.txt", "w", encoding="utf-8") as log:
            print(lib.describe(lib.machine(data)))
            print(f"files made in {time.monotonic() - began:.1f} s")
            for step in steps:
                left = args.budget - (time.monotonic() - began)
                run_step(step, left, parts, data, log)
                print(f"{step.name:<32}{step.result['outcome']:<9}"
                      f"{step.result.get('seconds', 0):6.1f} s  {headline(step)}", flush=True)
        bad = [s.name for s in steps if s.result["outcome"] != "ok"]
        (args.out / "gpu_suite.json").write_text(json.dumps({
            "machine": lib.machine(data), "seconds": time.monotonic() - began, "not_ok": bad,
            "steps": {s.name: {"command": lib.command_line(s.argv), **s.result} for s in steps}},
            indent=1, default=str) + "\n")
        print(f"{len(steps) - len(bad)} steps ok, {len(bad)} not ok ({', '.join(bad) or 'none'}); "
              f"{time.monotonic() - began:.0f} s")
        return 1 if bad else 0
    finally:
        shutil.rmtree(parts, ignore_errors=True)
        if args.data is None:
            shutil.rmtree(data, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
