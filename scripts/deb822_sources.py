#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Print the archives of a deb822 .sources file as one-line deb-src entries."""
import sys


def stanzas(text):
    fields, key = {}, None
    for line in text.splitlines() + [""]:
        if not line.strip():
            if fields:
                yield fields
            fields, key = {}, None
        elif line.startswith("#"):
            continue
        elif line[0].isspace() and key:
            fields[key] += " " + line.strip()
        else:
            key, _, value = line.partition(":")
            key = key.strip().lower()
            fields[key] = value.strip()


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        for fields in stanzas(file.read()):
            if fields.get("enabled", "yes").lower() == "no":
                continue
            key = fields.get("signed-by", "")
            option = f"[signed-by={key}] " if key.startswith("/") else ""
            for uri in fields.get("uris", "").split():
                for suite in fields.get("suites", "").split():
                    print(f"deb-src {option}{uri} {suite} {fields.get('components', '')}")


if __name__ == "__main__":
    main()
