#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The stubs: mypy reads them and a program that uses them, strictly, and stubtest compares every name and
argument with the package as it is."""
import os
import subprocess
import sys
import tempfile
import unittest

import pypi

TOOLS = pypi.packages("mypy", "mypy")
HERE = os.path.dirname(os.path.abspath(__file__))
# This interpreter's PyTorch may be older than a module needs.
ALLOWED = "headrace\\.dcp\n"
CONFIG = "[mypy]\nignore_missing_imports = True\nstrict = True\n\n[mypy-torch.*]\nignore_errors = True\n" \
    "follow_imports = silent\n"


class Types(unittest.TestCase):
    def run_tool(self, module, *arguments):
        import headrace

        package = os.path.dirname(os.path.dirname(headrace.__file__))
        with tempfile.TemporaryDirectory(prefix="headrace-python-") as folder:
            for name, text in (("mypy.ini", CONFIG), ("allowed", ALLOWED)):
                with open(os.path.join(folder, name), "w", encoding="ascii") as f:
                    f.write(text)
            done = subprocess.run([sys.executable, "-m", module, *arguments], cwd=folder, text=True,
                                  capture_output=True, timeout=900, env={
                                      **os.environ, "PYTHONPATH": f"{TOOLS}:{package}", "MYPYPATH": package})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_stubs(self):
        self.run_tool("mypy.stubtest", "headrace", "--mypy-config-file", "mypy.ini", "--allowlist", "allowed",
                      "--ignore-unused-allowlist")

    def test_program(self):
        try:
            import torch  # noqa: F401
        except ImportError:
            self.skipTest("no PyTorch")
        self.run_tool("mypy", "--config-file", "mypy.ini", os.path.join(HERE, "typed_program.py"))


if __name__ == "__main__":
    unittest.main()
