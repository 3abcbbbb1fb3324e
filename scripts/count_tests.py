#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Count the results of one `meson test`: prints "PASSED FAILED SKIPPED"; failures, and why anything
was skipped, to stderr; failures are added to the file FAILURES as well.
Usage: count_tests.py TESTLOG OUTPUT STATUS-OF-MESON FAILURES
"""
import json
import re
import sys

GOOD = {"OK", "EXPECTEDFAIL"}
SKIPPED = {"SKIP"}
# Python: test (class) ... skipped 'why'; shell and C: SKIP what: why
PART_SKIPPED = re.compile(r"^(?:(.*?) \.\.\. skipped (['\"])(.*)\2|(SKIP(?:PED)?\b.*|skipped: .*))$", re.I)


def records(path):
    with open(path, encoding="utf-8", errors="replace") as log:
        for line in log:
            if line.strip():
                yield json.loads(line)


def tell(text, failures):
    """Here, and where whoever runs several verbs collects what failed."""
    print(text, file=sys.stderr)
    with open(failures, "a", encoding="utf-8") as log:
        log.write(text + "\n")


def told(record, lines=60):
    """What a failed test said, its end if it said much."""
    text = [f"--- {record['name']}: {record['result']}"]
    for stream in ("stdout", "stderr"):
        said = (record.get(stream) or "").rstrip().splitlines()
        text += ["    " + line for line in said[-lines:]]
    return "\n".join(text)


def show_skips(record):
    """Why the test or a part of it was skipped: a test that passed may have left something out."""
    reasons = []
    for stream in ("stdout", "stderr"):
        for line in (record.get(stream) or "").splitlines():
            match = PART_SKIPPED.match(line.strip())
            if match and match.group(4):
                reasons.append(match.group(4))
            elif match:
                reasons.append(f"skipped {match.group(1).split(' (')[0]}: {match.group(3)}")
    if not reasons and record["result"] in SKIPPED:
        reasons = ["skipped, and does not say why"]
    for reason in dict.fromkeys(reasons):
        print(f"    {record['name'].split(' / ')[-1]}: {reason}", file=sys.stderr)


def main():
    testlog, output, status, failures = sys.argv[1:5]
    passed = failed = skipped = 0
    try:
        for record in records(testlog):
            show_skips(record)
            if record["result"] in GOOD:
                passed += 1
            elif record["result"] in SKIPPED:
                skipped += 1
            else:
                failed += 1
                tell(told(record), failures)
    except (OSError, ValueError, KeyError) as error:
        # No log is fine only when meson says that there was nothing to run.
        with open(output, encoding="utf-8", errors="replace") as text:
            said = text.read()
        if isinstance(error, OSError) and "No tests defined" in said or "No suitable tests" in said:
            pass
        else:
            tell(f"{testlog}: {error}\n{said[-4000:]}", failures)
            failed += 1
    if status != "0" and not failed:
        with open(output, encoding="utf-8", errors="replace") as text:
            tell(f"meson test ended with {status}:\n{text.read()[-4000:]}", failures)
        failed += 1
    print(passed, failed, skipped)


if __name__ == "__main__":
    main()
