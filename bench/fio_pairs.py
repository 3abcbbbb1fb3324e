#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""headrace bench beside fio: the same file, request size, depth and engine, in alternating pairs.

One round is three runs in a row, with fio in the middle: headrace, fio, fio in even rounds and the
reverse in odd ones. So headrace/fio and fio/fio are both ratios of neighbours in time, share their
denominator, and take the first and the last place equally often. What is claimed about headrace
is judged against what fio shows about itself in the same minutes. Writes go past the page cache
into blocks that the file has already, and the time of a final fdatasync or fsync is counted. One run
more of headrace, not timed, is checked: reads against plain reads, writes by a pattern.
"""
from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any, Sequence

import files
import lib
import runners
from runners import Rate, Shape

COUNTED = "io_uring_enter,pread64,preadv,preadv2,pwrite64,?cachestat,mincore,futex,read,write"


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--file", type=Path, help="file to use; default: one made in build/bench/data")
    p.add_argument("--size", type=lib.parse_size, default=2 << 30, help="of the file made (2G)")
    p.add_argument("--rw", default="randread", choices=["read", "write", "randread", "randwrite"],
                   help="writes destroy the contents of --file")
    p.add_argument("--bs", "--block", type=lib.parse_size, default=8192, help="request size (8K)")
    p.add_argument("--depth", type=int, default=64, help="requests in flight (64)")
    p.add_argument("--threads", type=int, default=1, help="threads of both (1)")
    p.add_argument("--seconds", type=float, default=3.0, help="per run, whole seconds (3)")
    p.add_argument("--pairs", type=int, default=16, help="rounds of three runs (16)")
    p.add_argument("--device", default="host", help="headrace's device (host)")
    p.add_argument("--path", default="host", help="headrace's path (host)")
    p.add_argument("--fio", help="another fio, such as a static one")
    p.add_argument("--fio-extra", default="", help="more fio options, separated by spaces, such as "
                   "'--fixedbufs --registerfiles --iodepth_batch_submit=16'")
    p.add_argument("--headrace", help="the command (build/bin/headrace)")
    p.add_argument("--headrace-extra", default="", help="more options of headrace bench")
    p.add_argument("--limit", type=float, default=math.inf, help="seconds for the timed rounds")
    p.add_argument("--no-verify", action="store_true", help="leave out the checked run")
    p.add_argument("--no-strace", action="store_true", help="leave out the counted system calls")
    p.add_argument("--name", help="of the JSON file (fio_RW_BS)")
    return p.parse_args()


def count_syscalls(argv: Sequence[str], shape: Shape, rate: Any) -> dict[str, Any] | None:
    """Counted from outside, once. Tracing slows both programs, so only the counts are used."""
    got = runners.strace_counts(argv, COUNTED, shape.seconds * 4 + 120)
    if got is None:
        return None
    done, counts = got
    report = runners.json_of(done.out)
    if rate == "fio":
        job = report["jobs"][0]
        requests = job["read"]["total_ios"] + job["write"]["total_ios"]
    else:
        requests = int(report.get("requests") or report["iops"] * report.get("seconds",
                                                                             shape.seconds))
    return {"requests": requests, "counts": counts,
            "per_request": sum(counts.values()) / max(requests, 1)}


def measure(args: argparse.Namespace, shape: Shape, ours: list[str],
            theirs: list[str]) -> dict[str, list[Rate]]:
    """{'headrace', 'fio', 'fio_again'} -> one Rate a round."""
    runs: dict[str, list[Rate]] = {"headrace": [], "fio": [], "fio_again": []}

    def one_round(i: int) -> str:
        order = ["headrace", "fio", "fio_again"]
        for who in order if i % 2 == 0 else reversed(order):
            if who == "headrace":
                runs[who].append(runners.headrace_rate(ours, shape))
            else:
                runs[who].append(runners.fio_rate(theirs, shape))
        return (f"headrace {runs['headrace'][-1].iops:.0f}, fio {runs['fio'][-1].iops:.0f} "
                f"and {runs['fio_again'][-1].iops:.0f} requests/s")

    lib.rounds(args.pairs, one_round, args.limit)
    return runs


def verify(argv: Sequence[str], shape: Shape) -> dict[str, Any]:
    """One run more with its data checked; wrong bytes end the benchmark."""
    got = runners.json_of(runners.checked([*argv[:-1], "--verify", argv[-1]],
                                          shape.seconds * 4 + 120).out)
    if not got["verified"]:
        raise SystemExit(f"wrong bytes: {lib.command_line(argv)}")
    return {"verified": True, "blocks": got["blocks_verified"]}


def judge(runs: dict[str, list[Rate]]) -> dict[str, Any]:
    def column(who: str, field: str) -> list[float]:
        return [float(getattr(r, field)) for r in runs[who]]

    out: dict[str, Any] = {"programs": {}, "ratios": {}}
    for who in runs:
        out["programs"][who] = {f: lib.summary(column(who, f)) for f in (
            "iops", "bytes_per_second", "cpu_us", "cpu_us_process", "p99_us", "user_share")}
        out["programs"][who]["cpu_ns_per_byte"] = lib.median(
            1e3 * r.cpu_us * r.iops / r.bytes_per_second for r in runs[who])
    for field in ("iops", "cpu_us", "cpu_us_process"):
        base = column("fio", field)
        out["ratios"][field] = {
            "headrace/fio": lib.summary(lib.ratios(column("headrace", field), base)),
            "fio/fio": lib.summary(lib.ratios(column("fio_again", field), base))}
    rate = out["ratios"]["iops"]
    out["rate_inside_fio_spread"] = lib.inside(rate["headrace/fio"], rate["fio/fio"])
    out["cpu_ratio"] = out["ratios"]["cpu_us"]["headrace/fio"]["median"]
    counted = [r.syscalls for r in runs["headrace"] if r.syscalls is not None]
    out["headrace_syscalls_per_request"] = lib.median(counted) if counted else None
    return out


def show(result: dict[str, Any]) -> None:
    rows = []
    for who, s in result["programs"].items():
        rows.append([who.replace("_", " "), f"{s['iops']['median']:.0f}",
                     f"{s['iops']['q1']:.0f}..{s['iops']['q3']:.0f}",
                     f"{s['bytes_per_second']['median'] / 1e6:.0f}", f"{s['cpu_us']['median']:.2f}",
                     f"{s['cpu_us_process']['median']:.2f}", f"{s['p99_us']['median']:.0f}"])
    print(lib.table(rows, ["program", "requests/s", "quartiles", "MB/s", "CPU us/req",
                           "with start", "p99 us"]))
    rows = []
    for field, pairs in result["ratios"].items():
        for pair, s in pairs.items():
            rows.append([f"{field} {pair}", f"{s['median']:.3f}",
                         f"{s['median_low']:.3f}..{s['median_high']:.3f}",
                         f"{s['q1']:.3f}..{s['q3']:.3f}", f"{s['min']:.3f}..{s['max']:.3f}"])
    print("\n" + lib.table(rows, ["ratio, pair by pair", "median", "95 % interval", "quartiles",
                                  "all"]))
    for who, got in result["system_calls"].items():
        if got:
            each = ", ".join(f"{k} {v}" for k, v in sorted(got["counts"].items()))
            print(f"system calls per request, {who}: {got['per_request']:.3f} by strace ({each}; "
                  f"{got['requests']} requests)")
    if result["headrace_syscalls_per_request"] is not None:
        print(f"system calls per request, headrace: {result['headrace_syscalls_per_request']:.3f} "
              "by its own count")
    print(f"rate inside fio's own spread: {'yes' if result['rate_inside_fio_spread'] else 'NO'}; "
          f"CPU per request {result['cpu_ratio']:.2f}x fio's")


def main() -> None:
    args = arguments()
    shape = Shape(args.rw, args.bs, args.depth, args.threads, max(1, round(args.seconds)))
    headrace, fio = runners.find_headrace(args.headrace), runners.find_fio(args.fio)
    kind = "scratch" if "write" in shape.rw else "bytes"
    file = args.file or files.make(lib.DATA / f"{kind}-{lib.format_size(args.size)}.bin", args.size)
    ours = runners.headrace_argv(headrace, shape, file, args.device, args.path,
                                 args.headrace_extra.split())
    theirs = runners.fio_argv(fio, shape, file, args.fio_extra.split())
    facts = lib.machine(file)
    print(lib.describe(facts))
    print(f"file     {lib.format_size(file.stat().st_size)}, {shape.text()}, {args.pairs} pairs")
    print(f"ours     {lib.command_line(ours)}\ntheirs   {lib.command_line(theirs)}")
    files.drop(file, limit=1.0)
    files.preread_direct(file)
    before = files.residency(file)
    checked = None if args.no_verify else verify(ours, shape)
    runs = measure(args, shape, ours, theirs)
    result = {**judge(runs), "verified": checked}
    after = files.residency(file)
    result["system_calls"] = {} if args.no_strace else {
        "headrace": count_syscalls(ours, shape, "headrace"),
        "fio": count_syscalls(theirs, shape, "fio")}
    print(f"checked  {checked['blocks'] if checked else 0} blocks of a run that is not timed")
    print(f"cached   {before:.2%} of the file before, {after:.2%} after\n")
    show(result)
    lib.save(args.name or f"fio_{args.rw}_{lib.format_size(args.bs)}", {
        "machine": facts, "file_bytes": file.stat().st_size, "shape": vars(shape),
        "commands": {"headrace": lib.command_line(ours), "fio": lib.command_line(theirs)},
        "resident_before": before, "resident_after": after, **result,
        "explain": runners.explain(headrace, file, args.device),
        "runs": {who: [r.asdict() for r in each] for who, each in runs.items()}})


if __name__ == "__main__":
    main()
