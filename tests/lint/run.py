#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run the project's own rules on the tree, or (--selftest) on planted violations.

Each rule is a module with check(tree, build) -> findings, a CLEAN tree that has none, and PLANTS,
trees that have one each: a rule that misses a plant has failed. Ends with "N passed, N failed".
"""
import argparse
import importlib
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True

from source import read_tree  # noqa: E402

RULES = ("layers", "headers", "shape", "spdx", "banned", "symbols", "dead", "twins", "tables",
         "leftovers", "snippets", "reports", "manual", "forks", "pipes")


def missed_plants(rule):
    """What the self-test found wrong with the rule itself."""
    run = getattr(rule, "selftest", rule.check)
    for finding in run(rule.CLEAN):
        yield f"accuses a clean tree: {finding}"
    for number, plant in enumerate(rule.PLANTS):
        if not run(plant):
            yield f"misses plant {number}: {plant}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", default=os.path.dirname(os.path.dirname(HERE)))
    parser.add_argument("--build", default=None, help="meson's build folder")
    parser.add_argument("--selftest", action="store_true", help="only the planted violations")
    parser.add_argument("--tree", action="store_true", help="only the tree")
    parser.add_argument("rules", nargs="*", default=RULES)
    args = parser.parse_args()
    passed = failed = 0
    for name in args.rules or RULES:
        rule = importlib.import_module(name)
        runs = []
        if not args.selftest:
            runs.append((name, rule.check(read_tree(args.root), args.build)))
        if not args.tree:
            runs.append((f"{name} self-test", list(missed_plants(rule))))
        for title, findings in runs:
            print(f"{title:<20} {'FAILED' if findings else 'ok'}")
            for finding in findings:
                print(f"  {finding}")
            passed, failed = passed + (not findings), failed + bool(findings)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
