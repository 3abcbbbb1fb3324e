# SPDX-License-Identifier: Apache-2.0
"""Symbols: what libheadrace.so exports is what include/headrace declares, no more and no less."""
import glob
import os
import re
import subprocess

from source import code_only, under, without_preprocessor

# Versions of the symbol map are symbols too.
VERSION = re.compile(r"^HR_|^HEADRACE_")


def prototypes(tree):
    names = set()
    for path, text in tree.items():
        if under(path, "include/headrace"):
            code = without_preprocessor(code_only(text))
            code = re.sub(r"\btypedef\b[^;]*;", "", code)
            names.update(re.findall(r"\b(hr_\w+)\s*\(", code))
    return names


def exports(build):
    """Names in the dynamic symbol table, or None when there is no library to look at."""
    found = sorted(glob.glob(os.path.join(build, "libheadrace.so.*.*"))) if build else []
    found = [path for path in found if not os.path.isdir(path) and not path.endswith(".symbols")]
    if not found:
        return None
    out = subprocess.run(["nm", "-D", "--defined-only", found[0]], check=True, text=True,
                         capture_output=True).stdout
    names = {line.split()[-1].split("@")[0] for line in out.splitlines()}
    return {name for name in names if not VERSION.match(name)}


def check(tree, build=None, have=None):
    have = exports(build) if have is None else have
    if have is None:
        return ["no libheadrace.so in the build folder: build it first"]
    want = prototypes(tree)
    findings = [f"{name}() is declared in include/headrace and not exported" for name in want - have]
    findings += [f"{name} is exported and not declared in include/headrace" for name in have - want]
    return sorted(findings)


_HEADER = {"include/headrace/a.h": "/* hr_old() */\n#define F(x) hr_z(x)\nint hr_a(void);\n"
                                   "typedef void (*hr_fn)(int a);\nint\nhr_b(int (*f)(int));\n"}
CLEAN = {**_HEADER, "exports": "hr_a hr_b"}
PLANTS = [
    {**_HEADER, "exports": "hr_a"},
    {**_HEADER, "exports": "hr_a hr_b hr_c"},
    {**_HEADER, "exports": "hr_a hr_b hr__inside"},
]


def selftest(plant):
    files = dict(plant)
    return check(files, have=set(files.pop("exports").split()))
