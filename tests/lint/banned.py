# SPDX-License-Identifier: Apache-2.0
"""Banned calls: a library that prints, exits, sleeps, reads the environment or goes round hr__sys."""
import re

from source import allowed, at, code_only, is_c, line_of, under

# Not for the library: (names, files that may, why).
LIBRARY = [
    (r"v?printf|v?fprintf|puts|fputs|putchar|putc|fputc|perror|dprintf", (),
     "the library prints nothing: hr__fail() or hr__log()"),
    (r"_?exit|_Exit|abort|quick_exit|errx?|warnx?", (),
     "the library never ends its program: return a code"),
    (r"(?:secure_)?getenv|setenv|putenv|unsetenv", ("src/base/config.c",),
     "the environment is read in src/base/config.c alone"),
    (r"sleep|usleep|nanosleep", (), "nothing sleeps: wait for an event with a bound"),
    (r"system|popen|fork|vfork|execv\w*|execl\w*", (), "the library starts no process"),
]
# Nowhere in what is shipped.
SHIPPED = [
    (r"strcpy|strcat|sprintf|vsprintf|gets|strtok|atoi|atol|atoll|alloca|tmpnam|mktemp", (),
     "unbounded or unchecked: use the sized or checked form"),
]
# System calls that tests must be able to make fail.
SYSTEM = [
    (r"open|openat|close|read|write|pread|pwrite|preadv2?|pwritev2?|fstat|stat|statx|fstatfs|statfs"
     r"|ftruncate|fallocate|fsync|fdatasync|posix_fadvise|ioctl|mmap|munmap|mincore|syscall", (),
     "system calls go through hr__sys (base/sys.h)"),
    (r"io_uring_queue_init\w*|io_uring_queue_exit|io_uring_register_\w+|io_uring_submit\w*"
     r"|io_uring_enter\w*|io_uring_wait_\w+", (),
     "the ring is entered through hr__sys (base/sys.h)"),
]
SYSTEM_LAYERS = ("src/file", "src/transport", "src/engine", "src/loader", "src/format")


def rules_for(path):
    rules = [] if under(path, "tests") else list(SHIPPED)
    if under(path, "src"):
        rules += LIBRARY
    if under(path, *SYSTEM_LAYERS):
        rules += SYSTEM
    return [(names, why) for names, files, why in rules if path not in files]


def check(tree, build=None):
    findings = []
    excused = allowed(tree, "banned")
    for path, text in tree.items():
        if not is_c(path):
            continue
        code = code_only(text)
        for names, why in rules_for(path):
            # Not a member (x->open(...)), not part of a longer name, not a declaration's type.
            for match in re.finditer(rf"(?<![\w.>])({names})\s*\(", code):
                name = match.group(1)
                if f"{path}:{name}" not in excused:
                    findings.append(at(path, line_of(code, match.start()), f"{name}(): {why}"))
    return findings


CLEAN = {
    "src/base/config.c": "\tx = getenv(name);\n",
    "src/file/a.c": '\thr__sys->open(p);\n\tsnprintf(a, 1, "exit(1)"); /* abort() */\n\treopen(x);\n',
    "src/base/sys.c": "\treturn open(path);\n",
    "src/mem/c.c": "\tusleep(1);\n",
    "tests/lint/allow.txt": "banned src/mem/c.c:usleep because of this\n",
    "cli/a.c": "\tprintf(x);\n\texit(1);\n",
}
PLANTS = [
    {"src/mem/c.c": "\tusleep(1);\n", "tests/lint/allow.txt": "banned src/mem/c.c:usleep\n"},
    {"src/mem/a.c": "\tprintf(x);\n"},
    {"src/mem/a.c": "\tfprintf(stderr, x);\n"},
    {"src/mem/a.c": "\tabort();\n"},
    {"src/mem/a.c": "\tgetenv(x);\n"},
    {"src/engine/a.c": "\tusleep(1);\n"},
    {"cli/a.c": "\tstrcpy(a, b);\n"},
    {"src/file/a.c": "\tfd = open(p, 0);\n"},
    {"src/transport/a.c": "\tio_uring_submit(r);\n"},
]
