#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The demo: stream shuffled, verified batches of a token file, then compare with the usual ways.

Everything in the closing table is measured in this run, each way for a few seconds, on the same
file, from the disk and from the page cache.
"""
import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HEADRACE = os.path.join(ROOT, "build/bin/headrace")
FOLDER = os.path.join(ROOT, "build/demo")
BLOCK_BYTES = 4 << 20
SEQ_LEN, BATCH_SIZE = 4096, 32
SAMPLE_BYTES = SEQ_LEN * 2
PART_SECONDS = 4


def make_tokens(path, size_bytes):
    """Tokens that differ everywhere and are the same on every machine: multiples of one number."""
    seed = int.from_bytes(hashlib.shake_128(b"headrace demo").digest(BLOCK_BYTES), "little") | 1
    mask = (1 << (8 * BLOCK_BYTES)) - 1
    blocks = size_bytes // BLOCK_BYTES
    with open(path + ".part", "wb") as file:
        for number in range(blocks):
            file.write((seed * (2 * number + 1) & mask).to_bytes(BLOCK_BYTES, "little"))
            if sys.stderr.isatty():
                print(f"\rmaking {path}: {100 * (number + 1) // blocks} %", end="", file=sys.stderr)
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + ".part", path)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)


def drop_cache(path):
    """Ask the kernel to forget the file; clean pages that nobody maps are forgotten."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def fill_cache(path):
    with open(path, "rb", buffering=0) as file:
        memory = bytearray(8 << 20)
        while file.readinto(memory):
            pass


class Failed(Exception):
    pass


def headrace(*arguments, live=False):
    """One call of the command; its progress line goes to the terminal when `live`."""
    command = [HEADRACE, *arguments, "--json"]
    done = subprocess.run(command, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=None if live else subprocess.PIPE, timeout=120)
    if done.returncode:
        raise Failed(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr or ''}".strip())
    return json.loads(done.stdout)


def stream(path, device, steps, *more, live=False):
    return headrace("stream", path, "--device", device, "--dtype", "u16", "--seq-len", str(SEQ_LEN),
                    "--batch-size", str(BATCH_SIZE), "--steps", str(steps), *more, live=live)


def steps_for(rate, seconds, path):
    """Batches that take about this long, at most once through the file."""
    once = os.path.getsize(path) // SAMPLE_BYTES // BATCH_SIZE - 1
    return max(1, min(once, int(rate * seconds / BATCH_SIZE)))


def fio(path, direct):
    """Samples a second of fio at depth, or None when it is not here or cannot."""
    if not shutil.which("fio"):
        return None
    command = ["fio", "--name=demo", f"--filename={path}", "--readonly", "--rw=randread", "--bs=8k",
               f"--direct={direct}", "--ioengine=io_uring", "--iodepth=128", "--time_based",
               f"--runtime={PART_SECONDS}", "--output-format=json"]
    try:
        done = subprocess.run(command, text=True, capture_output=True, timeout=60)
        return json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]["read"]["iops"] or None
    except (ValueError, KeyError, IndexError, subprocess.TimeoutExpired):
        return None


def bench(path, device, way, *more):
    got = headrace("bench", path, "--device", device, "--path", way, "--rw", "randread", "--bs", "8K",
                   "--seconds", str(PART_SECONDS), *more)
    return got["iops"]


def measured(function, *arguments):
    """A figure, or None with the reason said: one way that fails must not hide the others."""
    try:
        return function(*arguments)
    except (Failed, KeyError, ValueError, subprocess.TimeoutExpired) as problem:
        print(f"  not measured: {problem}", file=sys.stderr)
        return None


def disk_limit(path):
    """The drive without any of us: fio, or else our own deepest direct reads into host memory."""
    found = fio(path, direct=1)
    if found:
        return "the disk's own limit (fio, depth 128)", found
    return ("the disk's own limit (direct reads, depth 128)",
            measured(bench, path, "host", "host", "--depth", "128"))


def stream_timed(path, device, prepare):
    """A run of about PART_SECONDS: a short one tells how many batches that is."""
    prepare(path)
    first = stream(path, device, 64)
    prepare(path)
    return stream(path, device, steps_for(first["samples_per_second"], PART_SECONDS, path))


def compare(path, device):
    """Rows of the closing table: (name, from the disk, from the page cache)."""
    cold = measured(stream_timed, path, device, drop_cache)
    drop_cache(path)
    classic_cold = measured(bench, path, device, "classic")
    drop_cache(path)
    limit_name, limit = disk_limit(path)
    hot = measured(stream_timed, path, device, fill_cache)
    classic_hot = measured(bench, path, device, "classic")
    return [
        ("headrace stream (shuffled, to int64)", cold and cold["samples_per_second"],
         hot and hot["samples_per_second"]),
        ("classic loop: read, then copy (no conversion)", classic_cold, classic_hot),
        (limit_name, limit, None),
    ]


def figure(rate):
    if not rate:
        return f"{'-':>12} {'':>10}"
    return f"{rate:>12,.0f} {rate * SAMPLE_BYTES / 1e9:>10.2f}"


def print_table(rows):
    print()
    print(f"{'samples of 8 KiB':<48}{'from the disk':>23}  {'from the page cache':>23}")
    head = f"{'samples/s':>12} {'GB/s':>10}"
    print(f"{'':<48}{head}  {head}")
    for name, cold, hot in rows:
        print(f"{name:<48}{figure(cold)}  {figure(hot)}")


def print_path(path, device):
    """Which device and way were taken, and why none that might be better."""
    why = headrace("explain", path, "--device", device)
    device_name = f"{why['device']}  {why.get('device_model', '')}".rstrip()
    print(f"device   {device_name}")
    if why.get("device_reason"):
        print(f"         {why['device_reason']}")
    reason = why.get("reason") or why.get("taken_reason") or ""
    print(f"path     {why['path']}{': ' + reason if reason else ''}")
    queue = why.get("queue") or {}
    if queue:
        print(f"queue    {queue.get('name', '?')}{': ' + queue['reason'] if queue.get('reason') else ''}")
    for refused in why["refused"]:
        fix = f" ({refused['fix']})" if refused.get("fix") else ""
        print(f"not      {refused['path']}: {refused['reason']}{fix}")
    return why["device"]


def shares(bytes_by_path):
    """Which path carried how much, as "bounce 100 %"."""
    total = sum(bytes_by_path.values()) or 1
    return ", ".join(f"{name} {100 * count / total:.0f} %"
                     for name, count in bytes_by_path.items() if count) or "nothing"


def verified_run(path, device):
    """The main job: every byte of every batch is compared with a plain read of the file."""
    drop_cache(path)
    first = stream(path, device, 32, "--verify")
    steps = steps_for(first["samples_per_second"], 2 * PART_SECONDS, path)
    drop_cache(path)
    got = stream(path, device, steps, "--verify", live=True)
    if not got["verified"]:
        raise Failed("a batch differs from the file")
    samples = got.get("samples", steps * BATCH_SIZE)
    print(f"stream   {samples:,} shuffled samples in {steps:,} batches of {BATCH_SIZE} x {SEQ_LEN}: "
          f"every byte is right")
    print(f"         {got['samples_per_second']:,.0f} samples/s with the check, "
          f"{100 * got['waiting_share']:.0f} % of the time waiting for data")
    print(f"taken    {shares(got['bytes_by_path'])}; the tokens became int64 on the way")


def main():
    parser = argparse.ArgumentParser(prog="./dev demo", description=__doc__)
    parser.add_argument("--device", default="auto", help="host, cuda:N or auto")
    parser.add_argument("--size-mib", type=int, default=1024, help="of the token file")
    args = parser.parse_args()
    path = os.path.join(FOLDER, "tokens.bin")
    size_bytes = args.size_mib << 20
    os.makedirs(FOLDER, exist_ok=True)
    if not os.path.exists(path) or os.path.getsize(path) != size_bytes:
        make_tokens(path, size_bytes)
    print(f"data     {os.path.relpath(path)}, {args.size_mib} MiB of uint16 tokens")
    try:
        device = print_path(path, args.device)
        verified_run(path, device)
        print("compare  a few seconds each ...", flush=True)
        print_table(compare(path, device))
    except Failed as problem:
        print(f"demo: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
