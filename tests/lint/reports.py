# SPDX-License-Identifier: Apache-2.0
"""docs/reports.md names tests by file and function: each of them exists."""
import re

from source import at

TABLE = "docs/reports.md"
NAMED = re.compile(r"`([\w./-]*):([^`\n]+)`")


def check(tree, build=None):
    findings, file = [], ""
    for number, line in enumerate(tree.get(TABLE, "").splitlines(), 1):
        for match in NAMED.finditer(line):
            file = match.group(1) or file
            text = tree.get("tests/" + file, "")
            if not re.search(rf"(?<!\w){re.escape(match.group(2))}(?!\w)", text):
                findings.append(at(TABLE, number, f"no {match.group(2)} in tests/{file}"))
    return findings


CLEAN = {
    TABLE: "| a | b#1 | `unit/test_a.c:test_one`, `:test_two` |\n| c | d | `cli/x:no /sys` |\n",
    "tests/unit/test_a.c": "static void test_one(void **state)\nstatic void test_two(void **state)\n",
    "tests/cli/x": 'inside "no /sys" true\n',
}
PLANTS = [
    {TABLE: "| a | b#1 | `unit/test_a.c:test_one` |\n"},
    {TABLE: "| a | b#1 | `unit/test_a.c:test_one` |\n", "tests/unit/test_a.c": "test_one_more\n"},
]
