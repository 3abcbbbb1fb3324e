# SPDX-License-Identifier: Apache-2.0
"""Dead code: every hr__ function and object has a user outside the file that defines it."""
import re

from source import allowed, at, code_only, is_c, line_of, under, without_preprocessor

# A prototype, an inline function, or an extern object of a header in src/.
FUNCTION = re.compile(r"^(?!\s|typedef|struct \w+ \{)[^\n;{}()]*?\b(hr__\w+)\s*\(", re.M)
OBJECT = re.compile(r"^extern\b([^;(]*);", re.M)


def declared(text):
    code = without_preprocessor(code_only(text))
    for match in FUNCTION.finditer(code):
        yield match.group(1), line_of(code, match.start(1))
    for match in OBJECT.finditer(code):
        for part in match.group(1).split(","):
            name = re.search(r"\b(hr__\w+)\s*(?:\[\w*\])?\s*$", part)
            if name:
                yield name.group(1), line_of(code, match.start())


def defines(code, name):
    """Is this the .c file that the name lives in?"""
    return re.search(rf"^(?!extern)\w[^\n;=]*\b{name}\s*(?:\(|\[|=|;)", code, re.M) is not None


def check(tree, build=None):
    findings = []
    excused = allowed(tree, "unused")
    sources = {p: code_only(t) for p, t in tree.items() if is_c(p) and under(p, "src")}
    words = {p: re.findall(r"\bhr__\w+\b", code) for p, code in sources.items()}
    for path, text in tree.items():
        if not (path.endswith(".h") and under(path, "src")):
            continue
        for name, line in declared(text):
            used = sum(1 for p in words if p != path and name in words[p]
                       and not (p.endswith((".c", ".cu")) and defines(sources[p], name)))
            # An inline function of the same header counts as a user.
            if not used and words[path].count(name) < 2 and name not in excused:
                findings.append(at(path, line, f"{name} has no user outside its own file"))
    return findings


CLEAN = {
    "src/base/a.h": "int hr__a(void);\nextern const struct hr__t hr__x, hr__y;\n"
                    "static inline int hr__i(void)\n{\n\treturn hr__a();\n}\n",
    "src/base/a.c": "const struct hr__t hr__x = {0}, hr__y;\nint hr__a(void)\n{\n\treturn 1;\n}\n",
    "src/mem/b.c": "int f(void)\n{\n\treturn hr__i() + hr__x + hr__y;\n}\n",
}
PLANTS = [
    {"src/base/a.h": "int hr__a(void);\n", "src/base/a.c": "int hr__a(void)\n{\n}\n"},
    {"src/base/a.h": "int hr__a(void);\n", "src/base/a.c": "int hr__a(void)\n{\n}\n",
     "src/base/b.c": "/* hr__a() */\n"},
    {"src/base/a.h": "extern int hr__v;\n", "src/base/a.c": "int hr__v;\n"},
    {"src/base/a.h": "static inline int hr__i(void)\n{\n\treturn 1;\n}\n"},
]
