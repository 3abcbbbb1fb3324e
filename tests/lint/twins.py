# SPDX-License-Identifier: Apache-2.0
"""Twins: docs/env.md lists the variables of config.c, docs/errors.md the codes of error.h."""
import re

from source import at, without_comments

CONFIG, ENV = "src/base/config.c", "docs/env.md"
ERROR, ERRORS = "include/headrace/error.h", "docs/errors.md"


def differ(findings, source, document, have, told):
    for name in sorted(have - told):
        findings.append(at(document, 1, f"{name} of {source} is not described"))
    for name in sorted(told - have):
        findings.append(at(document, 1, f"{name} is described and not in {source}"))


def check(tree, build=None):
    findings = []
    # A row of the table begins with the name: the text around it may speak of plans.
    variables = set(re.findall(r'"(HEADRACE_[A-Z_]+)"', without_comments(tree.get(CONFIG, ""))))
    rows = set(re.findall(r"^\| `(HEADRACE_[A-Z_]+)", tree.get(ENV, ""), re.M))
    differ(findings, CONFIG, ENV, variables, rows)
    codes = {f"{n} {v}" for n, v in
             re.findall(r"X\((HR_E_\w+),\s*(\d+),", without_comments(tree.get(ERROR, "")))}
    rows = {f"{n} {v}" for n, v in
            re.findall(r"^\| `(HR_E_\w+)` \| (\d+) \|", tree.get(ERRORS, ""), re.M)}
    differ(findings, ERROR, ERRORS, codes, rows)
    return findings


CLEAN = {
    CONFIG: 'x = {"HEADRACE_LOG"};\n', ENV: "| `HEADRACE_LOG` | x |\n",
    ERROR: '\tX(HR_E_A, 1000, "a")\n', ERRORS: "| `HR_E_A` | 1000 | x |\n",
}
PLANTS = [
    {**CLEAN, ENV: ""},
    {**CLEAN, ENV: CLEAN[ENV] + "| `HEADRACE_OLD` | x |\n"},
    {**CLEAN, ERRORS: ""},
    {**CLEAN, ERRORS: "| `HR_E_A` | 1001 | x |\n"},
]
