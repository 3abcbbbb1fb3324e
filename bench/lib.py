# SPDX-License-Identifier: Apache-2.0
"""What every measurement shares: statistics of pairs, the machine's description, output.

It knows nothing about fio, headrace or torch: see runners.py for the programs under test and
files.py for the files they read.
"""
from __future__ import annotations

import importlib.util
import json
import os
import platform
import random
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Iterable, Sequence

ROOT = Path(__file__).resolve().parent.parent
OUT = Path(os.environ.get("HEADRACE_BENCH_OUT") or ROOT / "build" / "bench")
DATA = Path(os.environ.get("HEADRACE_BENCH_DATA") or OUT / "data")
RESAMPLES = 2000
SUFFIXES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


# -- the interpreter ---------------------------------------------------------------------------
def can_import(*modules: str) -> bool:
    return all(importlib.util.find_spec(m) for m in modules)


def need(*modules: str, optional: bool = False) -> bool:
    """Re-execute under a python that can import `modules`, if the current one cannot.

    A python from a version manager rarely sees the distribution's packages. Return: True; False
    where there is no such python and `optional` says that this is bearable.
    """
    if can_import(*modules):
        return True
    tried = os.environ.get("HEADRACE_BENCH_PYTHONS", "").split(":")
    for candidate in ("/usr/bin/python3", "/usr/local/bin/python3", "python3"):
        path = shutil.which(candidate)
        if not path or path in tried or os.path.realpath(path) == os.path.realpath(sys.executable):
            continue
        probe = "import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, sys.argv[1:])))"
        if subprocess.run([path, "-c", probe, *modules], check=False).returncode == 0:
            os.environ["HEADRACE_BENCH_PYTHONS"] = ":".join([*tried, path])
            os.execv(path, [path, *sys.argv])
    if optional:
        return False
    raise SystemExit(f"no python here can import {', '.join(modules)}; "
                     f"install {' '.join('python3-' + m for m in modules)}")


# -- numbers -----------------------------------------------------------------------------------
def quantile(values: Iterable[float], q: float) -> float:
    """Linear interpolation between the two nearest order statistics."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("quantile of nothing")
    place = q * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def median(values: Iterable[float]) -> float:
    return quantile(values, 0.5)


def bootstrap_median(values: Sequence[float], level: float = 0.95, seed: int = 1,
                     resamples: int = RESAMPLES) -> tuple[float, float]:
    """Interval of the median by resampling; the seed is fixed so that a report can be redone."""
    if len(values) < 2:
        return values[0], values[0]
    rng = random.Random(seed)
    medians = [median(rng.choices(values, k=len(values))) for _ in range(resamples)]
    edge = (1 - level) / 2
    return quantile(medians, edge), quantile(medians, 1 - edge)


def summary(values: Sequence[float]) -> dict[str, Any]:
    """Median, quartiles, extremes and the 95 % interval of the median."""
    low, high = bootstrap_median(values)
    return {"n": len(values), "median": median(values), "q1": quantile(values, 0.25),
            "q3": quantile(values, 0.75), "min": min(values), "max": max(values),
            "median_low": low, "median_high": high}


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Pair by pair: what the machine's neighbours do to one pair, they do to both of it."""
    if len(ours) != len(theirs):
        raise ValueError(f"{len(ours)} values cannot be paired with {len(theirs)}")
    return [a / b for a, b in zip(ours, theirs)]


def inside(ours: dict[str, Any], noise: dict[str, Any]) -> bool:
    """Is the median of `ours` within (or above) what a program shows against itself?

    The spread is from the lower quartile of the self-pairs; being faster is no failure.
    """
    return ours["median"] >= noise["q1"]


# -- text --------------------------------------------------------------------------------------
def parse_size(text: str) -> int:
    """4K, 1M, 2G: powers of 1024."""
    match = re.fullmatch(r"(\d+)\s*([kmgt]?)(i?b)?", text.strip().lower())
    if not match:
        raise ValueError(f"not a size: {text!r} (write 4K, 1M, 2G)")
    return int(match.group(1)) * SUFFIXES[match.group(2)]


def format_size(count: int) -> str:
    for suffix in "tgmk":
        if count and count % SUFFIXES[suffix] == 0:
            return f"{count // SUFFIXES[suffix]}{suffix.upper()}"
    return str(count)


def command_line(argv: Sequence[str]) -> str:
    """A line to paste into a shell; relative to the project where possible."""
    return shlex.join([str(a).replace(str(ROOT) + "/", "") for a in argv])


def progress(text: str) -> None:
    """One line that is overwritten, on terminals only."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def table(rows: Sequence[Sequence[str]], head: Sequence[str]) -> str:
    """Aligned columns: the first to the left, numbers to the right."""
    widths = [max(len(r[i]) for r in [head, *rows]) for i in range(len(head))]
    lines = []
    for row in [head, *rows]:
        cells = [c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


# -- the machine -------------------------------------------------------------------------------
def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""


def cpu_model() -> str:
    match = re.search(r"^model name\s*:\s*(.+)$", _read("/proc/cpuinfo"), re.M)
    return match.group(1) if match else platform.machine()


def disk(path: str | Path) -> dict[str, Any]:
    """The block device and file system below `path`."""
    number = os.stat(path).st_dev
    dev = f"{os.major(number)}:{os.minor(number)}"
    out: dict[str, Any] = {"device": dev, "name": "", "fs": "", "model": "", "scheduler": ""}
    for line in _read("/proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        if left.split()[2] == dev:
            out["fs"] = right.split()[0]
            out["options"] = left.split()[5]
    block = Path("/sys/dev/block") / dev
    if block.exists():
        block = block.resolve()
        out["name"] = block.name
        if (block / "partition").exists():
            block = block.parent
        out["model"] = _read(block / "device" / "model")
        chosen = re.search(r"\[(\S+)\]", _read(block / "queue" / "scheduler"))
        out["scheduler"] = chosen.group(1) if chosen else ""
    return out


def gpu_model() -> str:
    smi = shutil.which("nvidia-smi")
    if not smi:
        return ""
    got = subprocess.run([smi, "--query-gpu=name,driver_version", "--format=csv,noheader"],
                         capture_output=True, text=True, check=False, timeout=30)
    return got.stdout.strip().splitlines()[0] if got.returncode == 0 and got.stdout else ""


def machine(path: str | Path | None = None) -> dict[str, Any]:
    memory = re.search(r"MemTotal:\s+(\d+)", _read("/proc/meminfo"))
    out = {"cpu": cpu_model(), "cpus": len(os.sched_getaffinity(0)),
           "memory_bytes": int(memory.group(1)) * 1024 if memory else 0,
           "kernel": platform.release(), "system": platform.version(), "gpu": gpu_model(),
           "load_before": os.getloadavg()[0]}
    if path is not None:
        out["disk"] = disk(path)
    return out


def describe(facts: dict[str, Any]) -> str:
    """The machine in two lines, for the head of a report."""
    lines = [f"machine  {facts['cpu']}, {facts['cpus']} CPUs, {facts['memory_bytes'] >> 30} GiB, "
             f"Linux {facts['kernel']}" + (f", {facts['gpu']}" if facts["gpu"] else "")]
    if "disk" in facts:
        d = facts["disk"]
        lines.append(f"disk     {d['name'] or d['device']} {d['model']} {d['fs']}, "
                     f"scheduler {d['scheduler'] or 'none'}")
    return "\n".join(lines)


# -- output ------------------------------------------------------------------------------------
def save(name: str, result: dict[str, Any]) -> Path:
    """Write build/bench/NAME.json."""
    OUT.mkdir(parents=True, exist_ok=True)
    path = OUT / f"{name}.json"
    result = {"benchmark": name, "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
              "benchmark_command": own_command(), **result}
    path.write_text(json.dumps(result, indent=1, default=str) + "\n")
    progress("")
    print(f"command  {own_command()}\nwritten  {command_line([str(path)])}")
    return path


def rounds(count: int, work: Callable[[int], str], limit_s: float = float("inf"),
           least: int = 1) -> int:
    """Call `work` for each round and show what it says as a progress line.

    No round is begun that would probably end after `limit_s`, except the first `least`.
    Return: how many were made.
    """
    began, made = time.monotonic(), 0
    for i in range(count):
        told = work(i)
        made += 1
        spent = time.monotonic() - began
        each = spent / made
        progress(f"round {made}/{count}  {told}  {each * (count - made):.0f} s left")
        if made >= least and spent + each > limit_s:
            break
    progress("")
    return made


def own_command() -> str:
    """The line that starts the running benchmark again."""
    return command_line(["python3", *sys.argv])


def both_ways(names: Sequence[str], number: int) -> list[str]:
    """The order of a round: every second one is reversed, so that nobody is always the first."""
    return list(names) if number % 2 == 0 else list(reversed(names))
