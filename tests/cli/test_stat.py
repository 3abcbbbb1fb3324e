#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The verb stat beside a stream or bench that runs: list, lines, JSON, Prometheus text checked by a
parser of its own; and that no file is left, also after a kill and not without being asked."""
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import time

import common

KEYS = {"pid", "name", "age_seconds", "bytes_by_path", "bytes_per_second", "cached_share",
        "copies_per_request", "syscalls_per_request", "requests_per_second", "waiting_share",
        "latency_us", "queue_depth", "in_flight", "refusals", "engines", "requests", "seconds"}
SAMPLE = re.compile(r'([a-z_][a-z0-9_]*)\{((?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*)\} (\S+)')
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')
TYPES = {"counter", "gauge", "histogram"}


def parse_exposition(text):
    """{(name, labels): value}; fails where the text breaks a rule of the format."""
    assert text.endswith("\n")
    samples, kinds, helped, current, ended = {}, {}, set(), None, set()
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name, words = line[7:].split(" ", 1)
            assert name not in helped and words.strip(), line
            helped.add(name)
            continue
        if line.startswith("# TYPE "):
            name, kind = line[7:].split(" ")
            assert name in helped and name not in kinds and kind in TYPES, line
            if current:
                ended.add(current)
            kinds[name], current = kind, name
            continue
        match = SAMPLE.fullmatch(line)
        assert match, line
        name, labels = match.group(1), tuple(LABEL.findall(match.group(2)))
        family = re.sub(r"_(bucket|sum|count)$", "", name)
        family = family if kinds.get(family) == "histogram" else name
        assert family == current and family not in ended, line
        assert (kinds[family] == "counter") == family.endswith("_total"), line
        assert (name, labels) not in samples, line
        samples[name, labels] = float(match.group(3))
    for name, kind in kinds.items():
        if kind == "histogram":
            check_histogram(samples, name)
    return samples


def check_histogram(samples, name):
    rows = {}
    for (sample, labels), value in samples.items():
        if sample == name + "_bucket":
            rest = tuple(l for l in labels if l[0] != "le")
            rows.setdefault(rest, []).append((float(dict(labels)["le"]), value))
    for rest, buckets in rows.items():
        limits, counts = zip(*buckets)
        assert list(limits) == sorted(set(limits)) and limits[-1] == float("inf"), limits
        assert list(counts) == sorted(counts), counts
        assert samples[name + "_count", rest] == counts[-1]
        assert samples[name + "_sum", rest] >= 0


class Stat(common.CliTest):
    def setUp(self):
        super().setUp()
        self.run_dir = self.path("run")
        os.mkdir(self.run_dir, 0o700)
        self.env = {"XDG_RUNTIME_DIR": self.run_dir}
        self.data = self.tokens("a.bin", 64 * 5000 + 1)

    def start(self, *args):
        """A stream in the background that has read something and is listed."""
        child = subprocess.Popen(
            [common.HEADRACE, "stream", "--device", "host", "--seq-len", "64", "--batch-size", "8",
             "--epochs", "0", "--json", *args, self.data], stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env={**os.environ, **self.env})
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        for _ in range(2000):
            done = common.run("stat", "--json", env=self.env)
            mine = [p for p in done.json["processes"] if p["pid"] == child.pid]
            if mine and mine[0]["batches"] > 3 and mine[0]["requests"]:
                return child
            assert child.poll() is None
        raise AssertionError("the stream was never seen")

    def stop(self, child):
        child.send_signal(signal.SIGTERM)
        self.assertEqual(child.wait(common.BOUND_SECONDS), 130)

    def look(self, child, *args):
        return self.ok("stat", child.pid, "--interval", "0.05", *args, env=self.env)

    def test_json(self):
        child = self.start("--threads", "2")
        name = f"headrace-{os.geteuid()}-{child.pid}.stats"
        self.assertEqual(os.listdir(self.run_dir), [name])
        self.assertEqual(stat.S_IMODE(os.stat(os.path.join(self.run_dir, name)).st_mode), 0o600)
        first = self.look(child, "--json").json
        self.assertLessEqual(KEYS, set(first))
        self.assertEqual(first["pid"], child.pid)
        self.assertEqual(len(first["engines"]), 2)
        self.assertEqual(first["loaders"], 1)
        self.assertTrue(0 <= first["waiting_share"] <= 1 and 0 <= first["cached_share"] <= 1)
        self.assertLessEqual(first["latency_us"]["p50"], first["latency_us"]["p99_9"])
        self.assertTrue(first["latency_histogram"])
        for row in first["latency_histogram"]:
            self.assertTrue(row["requests"] > 0 and (row["below_us"] is None or row["below_us"] > 0))
        self.assertEqual(sum(e["requests"] for e in first["engines"]), first["requests"])
        paths = set(first["bytes_by_path"])
        self.assertTrue(paths and paths <= {"bounce", "pagecache"}, str(paths))
        self.assertTrue(any("host" in r["reason"] and r["count"] for r in first["refusals"]))
        lines = self.look(child, "--json", "--count", "3").out.splitlines()
        seen = [json.loads(line) for line in lines]
        self.assertEqual(len(seen), 3)
        for before, after in zip([first, *seen], seen):
            self.assertGreaterEqual(after["requests"], before["requests"])
        self.stop(child)
        self.assertEqual(os.listdir(self.run_dir), [])

    def test_lines(self):
        child = self.start("--threads", "0")
        lines = self.look(child, "--count", "2").out.splitlines()
        self.assertEqual(len(lines), 3)
        self.assertIn("waiting%", lines[0])
        self.assertNotIn("\033", "".join(lines))
        listing = self.ok("stat", env=self.env).out
        self.assertRegex(listing, rf"(?m)^ *{child.pid}  headrace ")
        self.stop(child)

    def on_terminal(self, *args):
        """What a terminal of its own shows, to the end."""
        leader, follower = os.openpty()
        watch = subprocess.Popen([common.HEADRACE, "stat", *args], stdout=follower, stdin=follower,
                                 stderr=subprocess.PIPE, env={**os.environ, **self.env})
        os.close(follower)
        self.addCleanup(watch.stderr.close)
        seen = b""
        while True:
            try:
                part = os.read(leader, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            seen += part
        os.close(leader)
        self.assertEqual(watch.wait(common.BOUND_SECONDS), 0, watch.stderr.read())
        return seen.decode()

    def test_live_table(self):
        """Per path, per reason, the histogram and the share of waiting; drawn over itself."""
        child = self.start()
        shown = self.on_terminal(str(child.pid), "--interval", "0.05", "--count", "3")
        self.assertEqual(len(re.findall(r"process +%d" % child.pid, shown)), 3)
        self.assertEqual(len(re.findall(r"\x1b\[\d+A", shown)), 2)
        for line in (r"path (bounce|pagecache) +\S+ \S+ +\S+ .B/s", r"requests +[\d.]+/s",
                     r"latency +p50 [\d.]+ us", r"1 us \[[ .:=+*#-]{20}\] 0.5 s", r"waiting +[\d.]+ %",
                     r"refused \d+ +\S+", r"queue +\d+ requests open"):
            self.assertRegex(shown, line)
        shown = self.on_terminal("--interval", "0.05", "--count", "2")
        self.assertEqual(shown.count("\x1b[H"), 2)
        self.assertEqual(len(re.findall(rf"{child.pid}  headrace ", shown)), 2)
        self.stop(child)

    def test_prometheus(self):
        child = self.start()
        texts = [self.look(child, "--prometheus").out, self.ok("stat", "--prometheus",
                                                               env=self.env).out]
        both = [parse_exposition(t) for t in texts]
        mine = [{k: v for k, v in s.items() if ("pid", str(child.pid)) in k[1]} for s in both]
        self.assertEqual(set(mine[0]), set(both[0]))
        for key, value in mine[0].items():
            if key[0].endswith(("_total", "_bucket", "_count", "_sum")):
                self.assertGreaterEqual(mine[1][key], value, key)
        got = {name: value for (name, labels), value in mine[0].items()}
        self.assertGreater(got["headrace_requests_total"], 0)
        self.assertGreater(got["headrace_request_duration_seconds_count"], 0)
        self.assertGreater(max(v for (n, _), v in mine[0].items() if n == "headrace_bytes_total"), 0)
        self.stop(child)

    def test_killed(self):
        child = self.start()
        child.kill()
        child.wait()
        self.assertEqual(len(os.listdir(self.run_dir)), 1)
        self.fails(1, [str(child.pid), "gone"], "stat", child.pid, env=self.env)
        self.ok("stat", env=self.env)
        self.assertEqual(os.listdir(self.run_dir), [])
        self.fails(1, [str(child.pid), "HEADRACE_STATS=1"], "stat", child.pid, env=self.env)

    def test_ends_with_the_process(self):
        child = self.start()
        watch = subprocess.Popen([common.HEADRACE, "stat", str(child.pid), "--interval", "0.02"],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                 env={**os.environ, **self.env})
        watch.stdout.readline()
        self.stop(child)
        _, err = watch.communicate(timeout=common.BOUND_SECONDS)
        self.assertEqual(watch.returncode, 0, err)
        self.assertIn("has ended", err)

    def test_bench_shows_itself(self):
        child = subprocess.Popen(
            [common.HEADRACE, "bench", self.data, "--device", "host", "--seconds", "60"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **self.env})
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        deadline = time.monotonic() + common.BOUND_SECONDS
        while time.monotonic() < deadline:
            got = common.run("stat", child.pid, "--json", "--interval", "0.01", env=self.env)
            if got.code == 0 and got.json["latency_us"]["p50"]:
                break
        self.assertGreater(got.json["requests"], 0, str(got))
        self.assertGreater(got.json["latency_us"]["p50"], 0)
        self.stop(child)
        self.assertEqual(os.listdir(self.run_dir), [])

    def test_only_when_asked(self):
        """A copy publishes nothing, unless the environment says so; either way nothing is left."""
        if common.SANITIZED or not shutil.which("strace"):
            self.skipTest("needs strace, and a program without sanitizers")
        seen = {}
        for asked in ("0", "1"):
            trace = subprocess.run(
                ["strace", "-f", "-e", "trace=openat,open,unlink", "-o", self.path("trace"),
                 common.HEADRACE, "cp", "--device", "host", self.data, self.path("copy" + asked)],
                env={**os.environ, **self.env, "HEADRACE_STATS": asked}, check=False,
                capture_output=True, text=True)
            if trace.returncode:
                self.skipTest("strace cannot be used here")
            with open(self.path("trace"), encoding="utf-8", errors="replace") as f:
                seen[asked] = ".stats" in f.read()
            self.assertEqual(os.listdir(self.run_dir), [])
        self.assertEqual(seen, {"0": False, "1": True})

    def test_usage(self):
        self.fails(2, ["exclude each other"], "stat", "--json", "--prometheus")
        for word in ("0", "x", "99999999999", "4K "):
            self.fails(2, ["not the number of a process"], "stat", word)
        self.fails(2, ["too many operands"], "stat", "1", "2")
        self.fails(1, ["publishes no statistics"], "stat", str(os.getpid()), env=self.env)


if __name__ == "__main__":
    common.main()
