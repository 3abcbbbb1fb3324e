# SPDX-License-Identifier: Apache-2.0
"""Snippets: every complete C program in a document compiles against the public headers."""
import os
import re
import shlex
import subprocess
import tempfile

from source import at, under

BLOCK = re.compile(r"^```c\n(.*?)^```", re.M | re.S)


def compile_program(root, program):
    command = shlex.split(os.environ.get("CC", "cc")) + [
        "-x", "c", "-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I", root, "-"]
    return subprocess.run(command, input=program, text=True, capture_output=True)


def check(tree, build=None):
    findings = []
    with tempfile.TemporaryDirectory() as root:
        for path, text in tree.items():
            if under(path, "include"):
                full = os.path.join(root, os.path.relpath(path, "include"))
                os.makedirs(os.path.dirname(full), exist_ok=True)
                with open(full, "w", encoding="utf-8") as file:
                    file.write(text)
        for path, text in tree.items():
            for match in BLOCK.finditer(text) if path.endswith(".md") else ():
                if "int main(" not in match.group(1):
                    continue
                done = compile_program(root, match.group(1))
                if done.returncode:
                    line = text.count("\n", 0, match.start()) + 1
                    findings.append(at(path, line, done.stderr[:2000]))
    return findings


_HEADER = {"include/headrace/a.h": "int hr_a(void);\n"}
_PROGRAM = "```c\n#include <headrace/a.h>\nint main(void)\n{\n\treturn hr_%s();\n}\n```\n"
CLEAN = {**_HEADER, "README.md": _PROGRAM % "a" + "```c\nhr_part(x)\n```\n"}
PLANTS = [{**_HEADER, "README.md": _PROGRAM % "b"}]
