#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tight places: a drive that is full, a /dev/shm without room, eight processes on one file at once."""
import os
import shutil
import subprocess

import common

# In a mount namespace of its own: the first argument is a script that mounts, the rest is run.
PRIVATE = ["-m", "--propagation", "private", "sh", "-c",
           f'{{ eval "$1"; }} >&2 || exit {common.EXIT_SKIP}; shift; exec "$@"', "sh"]


class Tight(common.CliTest):
    def inside(self, script, *argv, env=None):
        """Runs @argv after @script, or skips where nothing can be mounted."""
        if not shutil.which("unshare"):
            self.skipTest("there is no unshare")
        done = common.run(*PRIVATE, script, *argv, program="unshare", env=env)
        if done.code == common.EXIT_SKIP or "unshare failed" in done.err:
            self.skipTest(f"nothing can be mounted here: {done.err.strip()}")
        return done

    def check_full(self, mount):
        """cp into a full file system: a sentence, the old destination, and nothing beside it."""
        src = self.raw("src", common.random.Random(1).randbytes(6 << 20))
        full = self.path("full")
        os.mkdir(full)
        done = self.inside(f"{mount} '{full}' && echo precious >'{full}/dst'", "sh", "-c",
                           '"$1" cp --device host "$2" "$3/dst"; echo "exit $?"; rmdir "$3/lost+found" 2>/dev/null; ls "$3"; '
                           'cat "$3/dst"', "sh", common.HEADRACE, src, full)
        self.assertEqual(done.out.split(), ["exit", "1", "dst", "precious"], str(done))
        self.assertEqual(len(done.err.strip().splitlines()), 1, str(done))
        self.assertIn("No space left on device", done.err)
        self.assertIn(f"{full}/dst", done.err)

    def test_full_before_it_begins(self):
        self.check_full("mount -t tmpfs -o size=1m none")

    def test_full_in_the_middle(self):
        """ext4 without extents reserves nothing ahead, so that a write finds the drive full."""
        if not shutil.which("mkfs.ext4"):
            self.skipTest("mkfs.ext4 is not installed")
        image = self.path("image")
        self.check_full(f"truncate -s 4M '{image}' && mkfs.ext4 -q -O ^extent,^64bit '{image}' && "
                        f"mount -o loop '{image}'")

    def test_small_shared_memory(self):
        """Statistics go elsewhere, or are not published: no signal, no failure, nothing left."""
        data = self.tokens("a.bin", 64 * 500 + 1)
        for size in ("4k", "64m"):
            done = self.inside(f"mount -t tmpfs -o size={size} none /dev/shm", common.HEADRACE,
                               "stream", "--device", "host", "--seq-len", 64, "--batch-size", 8,
                               "--threads", 2, "--json", "--verify", data,
                               env={"XDG_RUNTIME_DIR": "", "HEADRACE_STATS": "1"})
            self.assertEqual(done.code, 0, str(done))
            self.assertIs(done.json["verified"], True)

    def test_eight_ranks_at_once(self):
        """Their samples are the dataset: each of them once, none twice."""
        samples, world = 64 * 16, 8
        data = self.tokens("a.bin", 64 * samples + 1)
        ranks = [subprocess.Popen(
            [common.HEADRACE, "stream", "--device", "host", "--seq-len", "64", "--batch-size", "8",
             "--epochs", "1", "--dp-rank", str(r), "--dp-world-size", str(world), "--verify", "--ids",
             self.path(f"ids{r}"), data], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            for r in range(world)]
        for rank in ranks:
            out, _ = rank.communicate(timeout=common.BOUND_SECONDS)
            self.assertEqual(rank.returncode, 0, out)
        seen = []
        for r in range(world):
            with open(self.path(f"ids{r}"), encoding="ascii") as f:
                seen += map(int, f.read().split())
        self.assertEqual(sorted(seen), list(range(samples)))


if __name__ == "__main__":
    common.main()
