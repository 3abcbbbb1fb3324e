#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Count the results of one `meson test`: prints "PASSED FAILED SKIPPED", failures to stderr."""
import json
import sys

GOOD = {"OK", "EXPECTEDFAIL"}
SKIPPED = {"SKIP"}


def records(path):
    with open(path, encoding="utf-8", errors="replace") as log:
        for line in log:
            if line.strip():
                yield json.loads(line)


def show(record, lines=60):
    """What a failed test said, its end if it said much."""
    print(f"--- {record['name']}: {record['result']}", file=sys.stderr)
    for stream in ("stdout", "stderr"):
        text = (record.get(stream) or "").rstrip().splitlines()
        for line in text[-lines:]:
            print("    " + line, file=sys.stderr)


def main():
    testlog, output = sys.argv[1:3]
    passed = failed = skipped = 0
    try:
        for record in records(testlog):
            if record["result"] in GOOD:
                passed += 1
            elif record["result"] in SKIPPED:
                skipped += 1
            else:
                failed += 1
                show(record)
    except (OSError, ValueError, KeyError) as error:
        # No log is fine only when meson says that there was nothing to run.
        with open(output, encoding="utf-8", errors="replace") as text:
            said = text.read()
        if isinstance(error, OSError) and "No tests defined" in said or "No suitable tests" in said:
            pass
        else:
            print(f"{testlog}: {error}\n{said[-4000:]}", file=sys.stderr)
            failed += 1
    print(passed, failed, skipped)


if __name__ == "__main__":
    main()
