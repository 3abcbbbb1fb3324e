# SPDX-License-Identifier: Apache-2.0
"""How the programs under test are called: fio, `headrace bench`, `headrace stream`, strace.

Every run gives rate, requests and CPU time both as the program itself reports them and as the
kernel charged them to the finished process (start and end included).
"""
from __future__ import annotations

import ctypes
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Callable, Sequence

import lib

PR_SET_PDEATHSIG = 1  # linux/prctl.h
_libc = ctypes.CDLL(None)


@dataclass
class Finished:
    """A child that came to its end, with what the kernel charged it."""
    out: str
    err: str
    code: int
    wall_s: float
    user_s: float
    system_s: float
    peak_rss_bytes: int


@dataclass
class Rate:
    """One run of a load generator."""
    program: str
    iops: float
    bytes_per_second: float
    requests: int
    cpu_us: float            # per request, by the program's own account of its loop
    cpu_us_process: float    # per request, of the whole process, start included
    user_share: float        # of that, in user space
    p99_us: float
    syscalls: float | None   # per request, where the program counts them
    extra: dict[str, Any]

    def asdict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class Shape:
    """What is asked of the disk."""
    rw: str = "randread"
    bs: int = 8192
    depth: int = 64
    threads: int = 1
    seconds: float = 3.0

    def text(self) -> str:
        return (f"{self.rw} {lib.format_size(self.bs)} depth {self.depth} "
                f"threads {self.threads} {self.seconds:g} s")


def _die_with_parent(parent: int) -> None:
    """In the child: a benchmark that is stopped must not leave its own children behind."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the line above: no signal will come
        os._exit(1)


def run_child(argv: Sequence[str], timeout: float, env: dict[str, str] | None = None,
              look: Callable[[int], None] | None = None) -> Finished:
    """Run to the end with a bound; wait4 charges exactly this child and what it waited for.

    `look` is called with its number now and then while it runs.
    """
    full = dict(os.environ, **(env or {}))
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        began = time.monotonic()
        child = subprocess.Popen([str(a) for a in argv], stdout=out, stderr=err, env=full,
                                 stdin=subprocess.DEVNULL,
                                 preexec_fn=functools.partial(_die_with_parent, os.getpid()))
        deadline, pause = began + timeout, 0.0005
        while True:
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            if pid:
                break
            if look:
                look(child.pid)
            if time.monotonic() > deadline:
                child.kill()
                os.wait4(child.pid, 0)
                child.returncode = -9
                out.seek(0)
                said = out.read().decode(errors="replace")[-4000:]
                raise TimeoutError(f"{lib.command_line(argv)}: no end after {timeout:.0f} s"
                                   + (f"; before it said:\n{said}" if said else ""))
            time.sleep(pause)
            pause = min(pause * 2, 0.05)
        wall = time.monotonic() - began
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        return Finished(out.read().decode(errors="replace"), err.read().decode(errors="replace"),
                        child.returncode, wall, usage.ru_utime, usage.ru_stime,
                        usage.ru_maxrss * 1024)


def checked(argv: Sequence[str], timeout: float, env: dict[str, str] | None = None,
            look: Callable[[int], None] | None = None) -> Finished:
    done = run_child(argv, timeout, env, look)
    if done.code != 0:
        raise RuntimeError(f"{lib.command_line(argv)}: exit {done.code}: "
                           f"{(done.err or done.out).strip()[-600:]}")
    return done


def json_of(text: str) -> dict[str, Any]:
    """The JSON object in an output that may have lines around it."""
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start:
        raise RuntimeError(f"no JSON in: {text[-300:]!r}")
    return json.loads(text[start:end + 1])


# -- headrace ----------------------------------------------------------------------------------
def find_headrace(given: str | None = None) -> str:
    """The command: as given, from HEADRACE, from the build folders, or from PATH."""
    places = [given, os.environ.get("HEADRACE"), lib.ROOT / "build/bin/headrace",
              lib.ROOT / "build/obj/cli/headrace", shutil.which("headrace")]
    for place in places:
        if place and os.access(place, os.X_OK):
            return str(place)
        if place and place == given:
            break
    raise SystemExit(f"headrace not found{f' at {given}' if given else ''}: "
                     "build it with ./dev build or name it with --headrace")


def find_program(name: str) -> str | None:
    """A helper of the benchmarks: in the bundle beside headrace, or in the build folders."""
    for place in (lib.ROOT / "bin", lib.ROOT / "build/bin", lib.ROOT / "build/obj/bench"):
        if os.access(place / name, os.X_OK):
            return str(place / name)
    return None


def headrace_argv(headrace: str, shape: Shape, file: Path, device: str = "host",
                  path: str = "host", more: Sequence[str] = ()) -> list[str]:
    more = [*more, "--overwrite"] if "write" in shape.rw else more
    return [headrace, "bench", "--rw", shape.rw, "--bs", lib.format_size(shape.bs),
            "--depth", str(shape.depth), "--threads", str(shape.threads),
            "--seconds", f"{shape.seconds:g}", "--device", device, "--path", path, "--json",
            *more, str(file)]


def headrace_rate(argv: Sequence[str], shape: Shape) -> Rate:
    done = checked(argv, shape.seconds * 4 + 60)
    got = json_of(done.out)
    requests = int(got.get("requests") or got["iops"] * got.get("seconds", shape.seconds))
    cpu = done.user_s + done.system_s
    # Written data counts when it is on the drive, as with fio's end_fsync.
    longer = 1 + (got["sync_seconds"] / got["seconds"] if "write" in shape.rw else 0)
    return Rate("headrace", got["iops"] / longer, got["bytes_per_second"] / longer, requests,
                got["cpu_share"] / got["iops"] * 1e6 if got["iops"] else 0.0,
                cpu / max(requests, 1) * 1e6, done.user_s / cpu if cpu else 0.0,
                got.get("latency_us", {}).get("p99", 0.0), got.get("syscalls_per_request"), got)


def stream_argv(headrace: str, file: Path, device: str, *, batch: int, seq_len: int,
                more: Sequence[str] = ()) -> list[str]:
    """Batches of uint16 windows as int64; in a random order, unless `more` says otherwise."""
    return [headrace, "stream", "--format", "tokens", "--dtype", "u16", "--out-dtype", "i64",
            "--seq-len", str(seq_len), "--batch-size", str(batch), "--device", device, "--json",
            *more, str(file)]


def link(device: str) -> dict[str, Any] | None:
    """What the bus of a GPU carries (_link.py), None for "host"."""
    if not device.startswith("cuda"):
        return None
    number = device.partition(":")[2] or "0"
    script = Path(__file__).resolve().parent / "_link.py"
    try:
        return json_of(checked([sys.executable, str(script), "--device", number], 120).out)
    except (RuntimeError, TimeoutError) as problem:  # the yardstick, not what is measured
        print(f"the bus was not measured: {problem}")
        return None


def show_link(got: dict[str, Any] | None) -> None:
    if got:
        print(f"bus      {got['to_device']['median'] / 1e9:.1f} GB/s to the GPU, "
              f"{got['to_host']['median'] / 1e9:.1f} back (pinned, {got['size'] >> 20} MiB)  "
              f"{got['command']}")


def explain(headrace: str, file: Path, device: str = "host") -> dict[str, Any]:
    """`headrace explain --json`, or the reason why it gave nothing: never fatal for a report."""
    try:
        return json_of(checked([headrace, "explain", "--device", device, "--json", str(file)],
                               60).out)
    except (RuntimeError, TimeoutError, ValueError, OSError) as problem:
        return {"problem": str(problem)}


# -- fio ---------------------------------------------------------------------------------------
def find_fio(given: str | None = None) -> str:
    path = shutil.which(given or "fio")
    if not path:
        raise SystemExit(f"fio not found{f' at {given}' if given else ''}: install fio "
                         "or name a (static) one with --fio")
    return path


def fio_argv(fio: str, shape: Shape, file: Path, more: Sequence[str] = ()) -> list[str]:
    argv = [fio, "--name=pair", "--ioengine=io_uring", "--direct=1", f"--rw={shape.rw}".replace(
        "=seq", "="), f"--bs={shape.bs}", f"--iodepth={shape.depth}", f"--numjobs={shape.threads}",
        f"--filename={file}", f"--size={file.stat().st_size // shape.bs * shape.bs}",
        "--time_based", f"--runtime={max(1, round(shape.seconds))}", "--group_reporting",
        "--randrepeat=0", "--output-format=json", *more]
    argv.insert(2, "--readonly" if "read" in shape.rw else "--end_fsync=1")
    return argv


def fio_rate(argv: Sequence[str], shape: Shape) -> Rate:
    done = checked(argv, shape.seconds * 4 + 60)
    job = json_of(done.out)["jobs"][0]
    side = job["read" if "read" in shape.rw else "write"]
    requests = side["total_ios"]
    runtime_s = job["job_runtime"] / 1000  # summed over the jobs, as the CPU shares are relative
    cpu_s = (job["usr_cpu"] + job["sys_cpu"]) / 100 * runtime_s
    cpu_process = done.user_s + done.system_s
    p99 = side.get("clat_ns", {}).get("percentile", {}).get("99.000000", 0) / 1000
    return Rate("fio", side["iops"], side["bw_bytes"], requests,
                cpu_s / max(requests, 1) * 1e6, cpu_process / max(requests, 1) * 1e6,
                done.user_s / cpu_process if cpu_process else 0.0, p99, None,
                {"usr_cpu": job["usr_cpu"], "sys_cpu": job["sys_cpu"], "ctx": job["ctx"],
                 "runtime_ms": side["runtime"]})


# -- system calls ------------------------------------------------------------------------------
def strace_counts(argv: Sequence[str], calls: str, timeout: float,
                  env: dict[str, str] | None = None) -> tuple[Finished, dict[str, int]] | None:
    """Run under strace -f -c; {system call: count}. None where strace is missing or forbidden.

    A name with a question mark is left out where this strace does not know the call.
    """
    strace = shutil.which("strace")
    if not strace:
        return None
    with tempfile.NamedTemporaryFile(mode="r", suffix=".strace") as sums:
        try:
            done = checked([strace, "-f", "-c", "-e", f"trace={calls}", "-o", sums.name, *argv],
                           timeout, env)
        except RuntimeError as problem:
            print(f"strace gave nothing: {problem}")
            return None
        counts = {}
        for line in sums.read().splitlines():
            match = re.match(r"\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$", line)
            if match and match.group(2) != "total":
                counts[match.group(2)] = int(match.group(1))
        return done, counts
