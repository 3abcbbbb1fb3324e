#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""clang-tidy on every C file that the build compiles, in parallel; what passed and has not changed
since is not looked at again. Usage: tidy.py BUILD_FOLDER
"""
import concurrent.futures
import glob
import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODEL = "tests/lint/analyzer.h"
# These define what the model redefines.
MODEL_AUTHORS = ("src/base/error.c", "cli/error.c")
TIDY = ["clang-tidy", "--quiet", "--extra-arg=-Wno-unknown-warning-option"]


def compiled_files(build):
    names = set()
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as commands:
        for entry in json.load(commands):
            path = os.path.normpath(os.path.join(entry["directory"], entry["file"]))
            name = os.path.relpath(path, ROOT)
            if name.endswith(".c") and not name.startswith(("build", "..")):
                names.add(name)
    return sorted(names)


def newest_common():
    """The time of whatever may change the verdict on any file: headers and settings."""
    common = [".clang-tidy", "meson.build", MODEL]
    for folder in ("src", "include", "cli", "tests"):
        common += glob.glob(f"{folder}/**/*.h", recursive=True)
    return max(os.path.getmtime(path) for path in common)


def stamp_of(build, name):
    return os.path.join(build, "tidy", name.replace("/", "+"))


def is_fresh(build, name, common):
    stamp = stamp_of(build, name)
    return os.path.exists(stamp) and os.path.getmtime(stamp) > max(os.path.getmtime(name), common)


def options_for(name):
    """cmocka's assertions do not look as if they ended a test, so values seem to be unset."""
    if name.startswith("tests/"):
        return ["--checks=-clang-analyzer-core.*"]
    return model_for(name)


def model_for(name):
    if name in MODEL_AUTHORS:
        return []
    kind = {"src": "HR_LINT_LIBRARY", "cli": "HR_LINT_COMMAND"}.get(name.split("/")[0])
    if not kind:
        return []
    return [f"--extra-arg=-include{os.path.join(ROOT, MODEL)}", f"--extra-arg=-D{kind}"]


def judge(build, name):
    """(name, what clang-tidy says), nothing when the file is clean."""
    done = subprocess.run(TIDY + ["-p", build] + options_for(name) + [name], text=True,
                          capture_output=True)
    if done.returncode == 0:
        with open(stamp_of(build, name), "w", encoding="utf-8"):
            pass
        return name, ""
    return name, done.stdout + done.stderr


def main():
    build = sys.argv[1]
    os.chdir(ROOT)
    os.makedirs(os.path.join(build, "tidy"), exist_ok=True)
    common = newest_common()
    names = [name for name in compiled_files(build) if not is_fresh(build, name, common)]
    bad = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, said in pool.map(lambda name: judge(build, name), names):
            if said:
                bad += 1
                lines = [line for line in said.splitlines() if " error: " in line] or [said]
                print("\n".join(lines).replace(ROOT + "/", "").replace("build/obj/", "").replace("../../", ""))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
