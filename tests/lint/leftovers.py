# SPDX-License-Identifier: Apache-2.0
"""Leftovers: marks of unfinished work, paths of one machine, dead links between documents."""
import os
import re

from source import at, under

# Written apart so that this file does not accuse itself.
WORDS = re.compile(r"\b(?:TO" r"DO(?!\(#\d+\))|FIX" r"ME|X" r"XX|HA" r"CK)\b")
PATHS = re.compile(r"(?<![\w.])/(?:wo" r"rk|r" r"oot|home/\w+)/")
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")


def dead_links(path, text, tree):
    folder = os.path.dirname(path)
    for match in LINK.finditer(text):
        target = match.group(1)
        if "://" in target or target.startswith("mailto:"):
            continue
        full = os.path.normpath(os.path.join(folder, target))
        known = full in tree or any(name.startswith(full + "/") for name in tree)
        if not known and not under(full, "LICENSES") and full != "LICENSES":
            yield text.count("\n", 0, match.start()) + 1, target


def check(tree, build=None):
    findings = []
    for path, text in tree.items():
        for number, line in enumerate(text.split("\n"), 1):
            for pattern, why in ((WORDS, "unfinished work needs an issue number"),
                                 (PATHS, "a path of one machine")):
                match = pattern.search(line)
                if match:
                    findings.append(at(path, number, f"{match.group(0)}: {why}"))
        if path.endswith(".md"):
            findings += [at(path, line, f"no such file: {target}")
                         for line, target in dead_links(path, text, tree)]
    return findings


CLEAN = {
    "src/a.c": "/* TO" "DO(#12): later */\n",
    "README.md": "[a](src/a.c) [b](https://example.org/x) [c](src)\n",
}
PLANTS = [
    {"src/a.c": "/* TO" "DO: later */\n"},
    {"src/a.c": "/* FIX" "ME */\n"},
    {"a.py": 'open("/wo" "rk/x")\n'.replace('" "', "")},
    {"README.md": "[a](docs/none.md)\n"},
]
