# SPDX-License-Identifier: Apache-2.0
"""Manual: docs list every error code with its number, every environment variable that is read, and a page
for every verb; and list nothing that is not there."""
import re

from source import at, is_c, under

ERRORS, ENV, MAIN, MAN = "docs/errors.md", "docs/env.md", "cli/main.c", "docs/man/headrace.1"
CODE = re.compile(r"^\s*X\((HR_E_\w+), (\d+),", re.M)
CODE_ROW = re.compile(r"^\| `(HR_E_\w+)` \| (\d+) \|", re.M)
# Read by name, or by a table of names whose values are asked for.
READ = re.compile(r'(?:getenv\(|\{)"((?:HEADRACE|CUFILE|XDG)_\w+|LD_\w+)"')
VARIABLE_ROW = re.compile(r"^\| `((?:HEADRACE|CUFILE)_\w+)` \|", re.M)
VERB = re.compile(r'^\t\{"(\w+)", "[^"]*", cli_verb_\w+\},', re.M)
INSTALLED = re.compile(r"docs/man/([\w-]+\.1)'")


def check_errors(tree):
    header, table = tree.get("include/headrace/error.h", ""), tree.get(ERRORS, "")
    codes, rows = set(CODE.findall(header)), set(CODE_ROW.findall(table))
    yield from (at(ERRORS, 1, f"{name} ({number}) is missing") for name, number in codes - rows)
    yield from (at(ERRORS, 1, f"{name} ({number}) is not in error.h") for name, number in rows - codes)


def variables(tree):
    for path, text in tree.items():
        if is_c(path) and under(path, "src", "cli", "cufile"):
            for name in READ.findall(text):
                yield path, name


def check_variables(tree):
    text = tree.get(ENV, "")
    named, rows = set(re.findall(r"`([A-Z][A-Z0-9_]+)[`=]", text)), set(VARIABLE_ROW.findall(text))
    read = list(variables(tree))
    yield from (at(path, 1, f"reads {name}, which {ENV} does not list") for path, name in read
                if name not in named)
    yield from (at(ENV, 1, f"{name} is read nowhere") for name in rows - {name for _, name in read})


def check_pages(tree):
    verbs = VERB.findall(tree.get(MAIN, ""))
    if not verbs:
        return
    overview = tree.get(MAN, "")
    installed = set(INSTALLED.findall(tree.get("cli/meson.build", "")))
    for verb in verbs:
        page = f"headrace-{verb}.1"
        if "docs/man/" + page not in tree:
            yield at(MAIN, 1, f"the verb {verb} has no docs/man/{page}")
        elif page not in installed:
            yield at("cli/meson.build", 1, f"{page} is not installed")
        if f"headrace\\-{verb}" not in overview:
            yield at(MAN, 1, f"the verb {verb} is not named")


def check(tree, build=None):
    return [*check_errors(tree), *check_variables(tree), *check_pages(tree)]


_TREE = {
    "include/headrace/error.h": "#define M(X) \\\n\tX(HR_E_A, 1000, \"a\") \\\n\tX(HR_E_B, 1001, \"b\")\n",
    ERRORS: "| `HR_E_A` | 1000 | x | y |\n| `HR_E_B` | 1001 | x | y |\n",
    "src/base/config.c": 'static t x[] = {\n\t{"HEADRACE_PATH", f},\n};\n',
    "cli/run.c": 'char *old = getenv("LD_PRELOAD");\n',
    ENV: "| `HEADRACE_PATH` | x |\n\nand `LD_PRELOAD`\n",
    MAIN: 'static v x[] = {\n\t{"cp", "copy", cli_verb_cp},\n};\n',
    "cli/meson.build": "install_man(\n  '../docs/man/headrace-cp.1')\n",
    MAN: ".BR headrace\\-cp (1)\n",
    "docs/man/headrace-cp.1": ".TH x\n",
}
CLEAN = _TREE
PLANTS = [
    {**_TREE, ERRORS: "| `HR_E_A` | 1000 | x | y |\n"},
    {**_TREE, ERRORS: _TREE[ERRORS].replace("1001", "1002")},
    {**_TREE, ERRORS: _TREE[ERRORS] + "| `HR_E_C` | 1003 | x | y |\n"},
    {**_TREE, ENV: "| `HEADRACE_PATH` | x |\n"},
    {**_TREE, ENV: _TREE[ENV] + "| `HEADRACE_GONE` | x |\n"},
    {**_TREE, "cufile/c.c": 'x = getenv("CUFILE_NEW");\n'},
    {path: text for path, text in _TREE.items() if path != "docs/man/headrace-cp.1"},
    {**_TREE, "cli/meson.build": ""},
    {**_TREE, MAN: ""},
]
