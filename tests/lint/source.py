# SPDX-License-Identifier: Apache-2.0
"""What every checker needs: the tree as text, C without comments, findings.

A tree is a dictionary {path: text}, so that a checker runs on the real project and on a planted
violation in the same way. Nothing here knows a rule.
"""
import os
import re

C_NAMES = (".c", ".h", ".cu")
SKIPPED_FOLDERS = {".git", "build", "__pycache__", "LICENSES"}


def read_tree(root):
    """All text files of the project, symbolic links and build output left out."""
    tree = {}
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(f for f in folders if f not in SKIPPED_FOLDERS)
        for name in sorted(names):
            if name == ".git":  # a work tree's pointer
                continue
            full = os.path.join(folder, name)
            if os.path.islink(full) or os.path.getsize(full) > 1 << 20:
                continue
            try:
                with open(full, encoding="utf-8") as file:
                    tree[os.path.relpath(full, root)] = file.read()
            except UnicodeDecodeError:
                continue
    return tree


def is_c(path):
    return path.endswith(C_NAMES)


def under(path, *folders):
    return any(path.startswith(folder + "/") for folder in folders)


def blank(match):
    """Spaces instead of text, lines kept, so that line numbers stay true."""
    return re.sub(r"[^\n]", " ", match.group(0))


_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)


def without_comments(text):
    """C without comments; strings and characters stay."""
    return _COMMENT.sub(lambda m: m.group(0) if m.group(0)[0] in "\"'" else blank(m), text)


def code_only(text):
    """C without comments, strings and characters."""
    return _COMMENT.sub(blank, text)


def without_preprocessor(text):
    """C without directives and their continued lines."""
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", blank, text, flags=re.M)


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def at(path, line, message):
    return f"{path}:{line}: {message}"


def allowed(tree, rule):
    """Names that tests/lint/allow.txt excuses from a rule: lines of `rule name reason`."""
    names = set()
    for line in tree.get("tests/lint/allow.txt", "").splitlines():
        words = line.split("#")[0].split(None, 2)
        if len(words) == 3 and words[0] == rule:
            names.add(words[1])
    return names


def functions(text):
    """(name, first line, last line) of each function: kernel style puts its braces in column 0."""
    lines = without_preprocessor(code_only(text)).split("\n")
    start = None
    for number, line in enumerate(lines, 1):
        if line == "{":
            start = number
        elif line == "}" and start is not None:
            first = _signature_line(lines, start)
            signature = " ".join(lines[first - 1:start - 1])
            name = re.search(r"(\w+)\s*\(", signature)
            yield (name.group(1) if name else "?", first, number)
            start = None


def _signature_line(lines, brace):
    first = brace - 1
    while first > 1 and lines[first - 2].strip() and lines[first - 2][-1] not in ";}":
        first -= 1
    return first
