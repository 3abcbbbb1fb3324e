# SPDX-License-Identifier: Apache-2.0
"""Ops tables: at most eight functions each, and every instance is const."""
import re

from source import at, code_only, is_c, line_of, under

FUNCTIONS_MAX = 8
TABLE = re.compile(r"^struct (hr__\w+_ops) \{(.*?)^\};", re.M | re.S)
MEMBER = re.compile(r"^\t[^\t(].*?\(\*\w+\)\s*\(", re.M)  # and not the functions that one is given
INSTANCE = re.compile(r"^(?!\s)(?:static |extern )*struct hr__\w+_ops [a-z]", re.M)


def check(tree, build=None):
    findings = []
    for path, text in tree.items():
        if not (is_c(path) and under(path, "src")):
            continue
        code = code_only(text)
        for match in TABLE.finditer(code):
            count = len(MEMBER.findall(match.group(2)))
            if count > FUNCTIONS_MAX:
                findings.append(at(path, line_of(code, match.start()),
                                   f"{match.group(1)} has {count} functions, at most {FUNCTIONS_MAX}"))
        for match in INSTANCE.finditer(code):
            findings.append(at(path, line_of(code, match.start()), "an ops table must be const"))
    return findings


def _table(count):
    return "struct hr__a_ops {\n" + "\tint (*f)(int a);\n" * count + "};\n"


CLEAN = {"src/a/a.h": _table(8).replace("int a", "int a,\n\t\t int (*g)(int b), int (*h)(int c)"), "src/a/a.c": "const struct hr__a_ops hr__a_one = {\n};\n"}
PLANTS = [{"src/a/a.h": _table(9)}, {"src/a/a.c": "static struct hr__a_ops one = {\n};\n"}]
