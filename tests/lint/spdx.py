# SPDX-License-Identifier: Apache-2.0
"""Licence: the first line of every source file is its SPDX tag, the second says what it is for."""
from source import at, is_c, under

SOURCE_NAMES = (".c", ".h", ".cu", ".py", ".sh", ".build", ".options")
SCRIPTS = ("dev", ".ci/run")


def licence_of(path):
    if under(path, "kernel"):
        return "GPL-2.0"
    return "Apache-2.0"


def check(tree, build=None):
    findings = []
    for path, text in tree.items():
        if not path.endswith(SOURCE_NAMES) and path not in SCRIPTS:
            continue
        # A script's first line belongs to the kernel; some need a line for their checker.
        lines = [line for line in text.split("\n")[:4]
                 if not line.startswith(("#!", "# shellcheck "))]
        tag = "SPDX-License-Identifier: " + licence_of(path)
        if not lines or tag not in lines[0]:
            findings.append(at(path, 1, f"the first line must be {tag}"))
        elif is_c(path) and (len(lines) < 2 or not lines[1].startswith("/*")):
            findings.append(at(path, 2, "a comment must say what this file is for"))
    return findings


CLEAN = {
    "src/a.c": "/* SPDX-License-Identifier: Apache-2.0 */\n/* a.c - x. */\n",
    "kernel/a.c": "// SPDX-License-Identifier: GPL-2.0-only\n/* a.c - x. */\n",
    "a.sh": "#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0\n",
    "README.md": "Headrace\n",
}
PLANTS = [
    {"src/a.c": "/* a.c - x. */\n"},
    {"src/a.c": "/* SPDX-License-Identifier: Apache-2.0 */\n#include <a.h>\n"},
    {"src/a.h": "/* SPDX-License-Identifier: GPL-2.0-only */\n/* a.h - x. */\n"},
    {"x/meson.build": "project('x')\n"},
]
