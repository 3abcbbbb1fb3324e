# SPDX-License-Identifier: Apache-2.0
"""Shape: functions of at most 70 lines, .c files of 800, headers of 300, lines of 100 columns."""
from source import allowed, at, functions, is_c

FUNCTION_MAX = 70
FILE_MAX = {".c": 800, ".cu": 800, ".h": 300}
COLUMNS_MAX = 100


def columns(line):
    return len(line.expandtabs(8))


def check(tree, build=None):
    findings = []
    excused = allowed(tree, "length")
    for path, text in tree.items():
        if not is_c(path):
            continue
        lines = text.count("\n")
        limit = FILE_MAX["." + path.rsplit(".", 1)[1]]
        if lines > limit and path not in excused:
            findings.append(at(path, limit, f"{lines} lines, at most {limit}: one noun per file"))
        for name, first, last in functions(text):
            length = last - first + 1
            if length > FUNCTION_MAX and f"{path}:{name}" not in excused:
                findings.append(at(path, first, f"{name}() has {length} lines, at most {FUNCTION_MAX}"))
        for number, line in enumerate(text.split("\n"), 1):
            # A long string is never cut in two: it could not be found any more.
            if columns(line) > COLUMNS_MAX + 10 and '"' not in line:
                findings.append(at(path, number, f"{columns(line)} columns, at most {COLUMNS_MAX}"))
    return findings


def _function(lines):
    return "int f(int a,\n      int b)\n{\n" + "\ta++;\n" * (lines - 4) + "}\n"


CLEAN = {"src/base/a.c": _function(70), "src/base/a.h": "\n" * 300}
PLANTS = [
    {"src/base/a.c": _function(71)},
    {"src/base/a.c": "\n" * 801},
    {"src/base/a.h": "\n" * 301},
    {"src/base/a.c": "/* " + "x" * 120 + " */\n"},
]
