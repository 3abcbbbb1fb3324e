# SPDX-License-Identifier: Apache-2.0
"""Layers: includes point downward only, faces see the public headers only (docs/ARCHITECTURE.md)."""
import re

from source import allowed, at, is_c, under, without_comments

BELOW = {
    "base": set(),
    "mem": {"base"},
    "file": {"base"},
    "format": {"base"},
    "transport": {"base", "mem", "file"},
    "engine": {"base", "mem", "file", "transport"},
}
for top in ("loader", "checkpoint", "doctor"):
    BELOW[top] = {"base", "mem", "file", "format", "transport", "engine"}

FACES = ("cli", "examples", "cufile", "python")
# Libraries that one place alone may know.
OWNERS = {
    "liburing.h": ("src/base/sys.c", "src/transport/uring.c"),
    "jansson.h": ("cli/", "cufile/"),
}
PLAIN_C = {"assert.h", "errno.h", "limits.h", "stdarg.h", "stdbool.h", "stddef.h", "stdint.h"}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.M)


def includes(text):
    clean = without_comments(text)
    for match in INCLUDE.finditer(clean):
        yield clean.count("\n", 0, match.start()) + 1, match.group(1), match.group(2)


def judge_library(path, kind, name):
    """None, or why a file of src/ must not include this."""
    if kind == "<":
        return None
    own = path.split("/")[1]
    layer = name.split("/")[0]
    if "/" not in name:
        return f'"{name}" must be written with its folder, as "{own}/{name}"'
    if own not in BELOW:
        return f"src/{own} is no known layer: add it to tests/lint/layers.py"
    if layer != own and layer not in BELOW[own]:
        return f"{own} must not include {layer} ({name})"
    return None


def judge_face(path, kind, name, tree):
    if kind == "<":
        return None
    folder = path.rsplit("/", 1)[0]
    # Either beside the file or from the root of the project, as "cli/cli.h".
    if f"{folder}/{name}" in tree or name in tree and name.split("/")[0] == path.split("/")[0]:
        return None
    return f'a face includes <headrace/...> and its own headers only, not "{name}"'


def judge_public(kind, name):
    if kind == "<" and (name.startswith("headrace/") or name in PLAIN_C):
        return None
    return f"a public header includes <headrace/...> and plain C headers only, not {name}"


def judge_owner(path, name):
    owners = OWNERS.get(name)
    if owners and not path.startswith(owners):
        return f"<{name}> is known to {', '.join(owners)} alone"
    return None


def check(tree, build=None):
    findings = []
    excused = allowed(tree, "include")
    for path, text in tree.items():
        if not is_c(path):
            continue
        for line, kind, name in includes(text):
            why = None
            if under(path, "src"):
                why = judge_library(path, kind, name) or judge_owner(path, name)
            elif under(path, "include"):
                why = judge_public(kind, name)
            elif under(path, *FACES):
                why = judge_face(path, kind, name, tree) or judge_owner(path, name)
            if why and f"{path}:{name}" not in excused:
                findings.append(at(path, line, why))
    return findings


CLEAN = {
    "src/engine/a.c": '#include <stdio.h>\n#include "transport/t.h"\n/* #include "loader/x.h" */\n',
    "include/headrace/a.h": "#include <stdint.h>\n#include <headrace/b.h>\n",
    "cli/a.c": '#include <headrace/a.h>\n#include "cli.h"\n',
    "cli/cli.h": "\n",
    "cli/b.c": '#include "cli/cli.h"\n',
}
PLANTS = [
    {"src/mem/a.c": '#include "file/file.h"\n'},
    {"src/base/a.c": '#include "mem/mem.h"\n'},
    {"src/loader/a.c": '#include "doctor/d.h"\n'},
    {"src/mem/a.c": '#include "mem.h"\n'},
    {"src/engine/a.c": "#include <liburing.h>\n"},
    {"cli/a.c": '#include "mem/mem.h"\n'},
    {"include/headrace/a.h": "#include <linux/fs.h>\n"},
    {"include/headrace/a.h": '#include "b.h"\n'},
]
