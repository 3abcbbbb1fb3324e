# SPDX-License-Identifier: Apache-2.0
"""A lock of a file: a thread of the parent may hold it at fork(), and the child must not wait for it."""
import re

from source import at, code_only, is_c, line_of, under

# At the start of a line: not a lock on a stack, and not the fresh one that takes its place.
LOCK = re.compile(r"^\S.*\bPTHREAD_(?:MUTEX|RWLOCK|COND)_INITIALIZER\b", re.M)
WAYS = {
    "src": (re.compile(r"^HR__FORK_HOOK\(", re.M), "HR__FORK_HOOK() (base/fork.h)"),
    "cufile": (re.compile(r"\bcf_\w+_forked\(void\)\n\{|\bstatic void in_child\(void\)\n\{"),
               "a function that in_child() of driver.c calls"),
}


def check(tree, build=None):
    findings = []
    for path, text in tree.items():
        for folder, (way, words) in WAYS.items():
            if not (is_c(path) and under(path, folder)):
                continue
            code = code_only(text)
            match = LOCK.search(code)
            if match and not way.search(code):
                findings.append(at(path, line_of(code, match.start()),
                                   f"a lock that a child of fork() may find locked for ever: {words}"))
            match = re.search(r"(?<!\w)pthread_atfork\s*\(", code)
            if match and path not in ("src/base/fork.c", "cufile/driver.c"):
                findings.append(at(path, line_of(code, match.start()), f"pthread_atfork(): {words}"))
    return findings


_MUTEX = "static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;\n"
CLEAN = {
    "src/a/a.c": _MUTEX + "HR__FORK_HOOK(.lock = &lock);\n",
    "src/a/b.c": "void f(void)\n{\n\tstruct b b = {.lock = PTHREAD_MUTEX_INITIALIZER};\n}\n",
    "cufile/a.c": _MUTEX + "void cf_a_forked(void)\n{\n}\n",
    "cufile/driver.c": _MUTEX + "static void in_child(void)\n{\n}\nx = pthread_atfork(a, b, c);\n",
    "tests/a.c": _MUTEX,
}
PLANTS = [
    {"src/a/a.c": _MUTEX},
    {"src/a/a.c": "static struct {\n\tint a;\n} a = {.lock = PTHREAD_MUTEX_INITIALIZER};\n"},
    {"cufile/a.c": "static pthread_cond_t c = PTHREAD_COND_INITIALIZER;\n"},
    {"src/a/a.c": "\tpthread_atfork(NULL, NULL, f);\n"},
]
