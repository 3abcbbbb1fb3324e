# SPDX-License-Identifier: Apache-2.0
"""Public headers: each compiles alone, as C11 and as C++17, twice in a row, without a warning."""
import os
import shlex
import subprocess
import tempfile

from source import under

WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wundef", "-Werror"]
LANGUAGES = [
    ("CC", "cc", ["-x", "c", "-std=c11", "-Wstrict-prototypes"]),
    ("CXX", "c++", ["-x", "c++", "-std=c++17"]),
]


def compile_alone(root, name):
    """Messages of the compilers for a file that includes this header only, and twice."""
    text = f"#include <{name}>\n#include <{name}>\nint hr_header_alone;\n"
    for variable, default, options in LANGUAGES:
        compiler = shlex.split(os.environ.get(variable, default))
        command = compiler + options + WARNINGS + ["-fsyntax-only", "-I", root, "-"]
        done = subprocess.run(command, input=text, text=True, capture_output=True)
        if done.returncode:
            yield f"<{name}> does not compile alone ({' '.join(options[:2])}):\n{done.stderr[:2000]}"


def check(tree, build=None):
    findings = []
    with tempfile.TemporaryDirectory() as root:
        headers = [path for path in tree if under(path, "include") and path.endswith(".h")]
        for path in headers:
            full = os.path.join(root, os.path.relpath(path, "include"))
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w", encoding="utf-8") as file:
                file.write(tree[path])
        for path in headers:
            findings += compile_alone(root, os.path.relpath(path, "include"))
    return findings


_GOOD = "#ifndef A_H\n#define A_H\n#include <stdint.h>\nstruct a {\n\tuint32_t x;\n};\n#endif\n"
CLEAN = {"include/headrace/a.h": _GOOD}
PLANTS = [
    {"include/headrace/a.h": _GOOD.replace("#include <stdint.h>\n", "")},
    {"include/headrace/a.h": _GOOD.replace(" x;", " class;")},
    {"include/headrace/a.h": "struct a {\n\tint x;\n};\n"},
]
