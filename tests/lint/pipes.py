# SPDX-License-Identifier: Apache-2.0
"""Pipes into grep -q under pipefail: it stops reading at the first match, whoever still writes ends by
SIGPIPE, and what was found counts as a failure, now and then or always."""
import re

from source import at, line_of

QUIET = re.compile(r"\|\s*grep\s+(?:-\w+\s+)*-\w*q")


def check(tree, build=None):
    findings = []
    for path, text in tree.items():
        if not re.match(r"#!.*\b(?:ba)?sh\b", text) and not path.endswith(".sh"):
            continue
        if "pipefail" not in text and not path.startswith("scripts/"):
            continue
        for match in QUIET.finditer(text):
            findings.append(at(path, line_of(text, match.start()),
                               "grep -q ends the program before it by SIGPIPE, which pipefail takes for a "
                               "failure: look into a variable"))
    return findings


CLEAN = {
    "a.sh": "#!/bin/bash\nset -euo pipefail\ngrep -q x file\n[[ $(b) == *x* ]]\nb | grep x | c\n",
    "b.sh": "#!/bin/sh\nset -eu\nb | grep -q x\n",
    "c.py": "# pipefail b | grep -q x\n",
}
PLANTS = [
    {"a.sh": "#!/bin/bash\nset -euo pipefail\nif b | grep -q x; then c; fi\n"},
    {"dev": "#!/usr/bin/env bash\nset -euo pipefail\nb |\n\tgrep -iq x\n"},
    {"scripts/a.sh": "b | grep -F -q x\n"},
]
