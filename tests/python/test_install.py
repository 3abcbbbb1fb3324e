#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`pip install .` as on a fresh machine: into an environment of its own that sees no other packages, and
into one that sees this machine's PyTorch; then the first scripts of the documents run in them. Skips
where pip finds nothing to build with."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import pypi

ROOT = os.path.join(pypi.HERE, "..", "..")


def scripts(*names):
    """The first blocks of Python in the documents: without a framework, and with PyTorch."""
    out = []
    for name in names:
        with open(os.path.join(ROOT, name), encoding="utf-8") as f:
            out += re.findall(r"^```python\n(.*?)^```", f.read(), re.M | re.S)
    plain = [s for s in out if "torch" not in s]
    return plain[0], next((s for s in out if "headrace.torch" in s), None)


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="headrace-python-")
        cls.addClassCleanup(shutil.rmtree, cls.dir)

    def run_ok(self, *argv):
        env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        done = subprocess.run(argv, capture_output=True, text=True, env=env, cwd=self.dir, timeout=900)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def environment(self, name, *options):
        folder = os.path.join(self.dir, name)
        # venv may lack ensurepip: another pip installs into it as well.
        self.run_ok(sys.executable, "-m", "venv", "--without-pip", *options, folder)
        return os.path.join(folder, "bin", "python")

    def test_install(self):
        source = os.path.join(self.dir, "source")
        os.mkdir(source)
        for name in os.listdir(ROOT):
            if name not in ("build", ".git"):
                place = os.path.join(ROOT, name)
                (shutil.copytree if os.path.isdir(place) else shutil.copy)(place, os.path.join(source, name))
        done = subprocess.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", self.dir, source],
                              capture_output=True, text=True, timeout=900,
                              env={k: v for k, v in os.environ.items() if not k.startswith("PYTHON")})
        if done.returncode and re.search("No matching distribution|Connection|No module named pip",
                                         done.stdout + done.stderr):
            self.skipTest("pip finds no meson-python: " + (done.stderr.strip().splitlines() or ["?"])[-1])
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        wheel, = (n for n in os.listdir(self.dir) if n.endswith(".whl"))
        self.assertIn("-abi3-", wheel)
        plain, with_torch = scripts("README.md", "docs/python.md")
        self.assertLessEqual(len(plain.strip().splitlines()), 8)
        for name, options in (("bare", ()), ("machine", ("--system-site-packages",))):
            python = self.environment(name, *options)
            self.run_ok(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps",
                        os.path.join(self.dir, wheel))
            print(f"\n{name}: {self.run_ok(python, '-c', plain)}", end="")
        try:
            import torch  # noqa: F401
        except ImportError:
            return
        print(self.run_ok(python, "-c", with_torch), end="")


if __name__ == "__main__":
    unittest.main()
