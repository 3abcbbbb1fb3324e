#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Print the project's own C files of a compile_commands.json, each once, for clang-tidy."""
import json
import os
import sys


def main():
    root = os.getcwd()
    seen = set()
    with open(sys.argv[1], encoding="utf-8") as commands:
        for entry in json.load(commands):
            path = os.path.normpath(os.path.join(entry["directory"], entry["file"]))
            name = os.path.relpath(path, root)
            if name.endswith(".c") and not name.startswith(("build", "..")):
                seen.add(name)
    print("\n".join(sorted(seen)))


if __name__ == "__main__":
    main()
