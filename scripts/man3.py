#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A manual page of section 3 for each public header, from its comments: man3.py VERSION HEADER OUT.

The header stays the only place where the interface is described; this knows how it is written: one
comment at the top, then comments above what they describe.
"""
import re
import sys

TOP = re.compile(r"/\*\n \* headrace/(\w+)\.h - (.*?)\n(?: \*\n(.*?))? \*/\n", re.S)


def roff(text):
    """Plain words: a backslash, and a dot or quote where a request would begin, are escaped."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"(?m)^(?=[.'])", r"\\&", text)


def words_of(comment):
    """The text of a comment, without its frame."""
    lines = comment.strip().splitlines()
    out = []
    for line in lines:
        line = re.sub(r"^\s*/\*+ ?", "", line)
        line = re.sub(r"\s*\*+/\s*$", "", line)
        out.append(re.sub(r"^\s*\*+ ?", "", line))
    return "\n".join(out).strip("\n")


def paragraphs(text):
    """An empty line is a new paragraph; lines of arguments and of the result begin anew."""
    out = []
    for part in re.split(r"\n\s*\n", text):
        lines = part.splitlines()
        if lines and all(line.startswith("   ") for line in lines):
            out.append(".PP\n.nf\n" + roff(part) + "\n.fi")
            continue
        part = re.sub(r"\n(?=@\w|Return:)", "\n.br\n", "\n".join(line.strip() for line in lines))
        part = "\n".join(line if line == ".br" else roff(line) for line in part.splitlines())
        out.append(".PP\n" + re.sub(r"@(\w+)", r"\\fI\1\\fR", part))
    return "\n".join(out)


def chunks(text):
    """Comment with declaration, as they are parted by empty lines outside of braces."""
    chunk, depth, comment = [], 0, False
    for line in text.splitlines():
        if not line.strip() and not depth and not comment:
            if chunk:
                yield "\n".join(chunk)
            chunk = []
            continue
        chunk.append(line)
        comment = ("/*" in line or comment) and "*/" not in line
        if not comment and not line.startswith("#"):
            depth += line.count("{") - line.count("}")
    if chunk:
        yield "\n".join(chunk)


def is_frame(code):
    lines = [line for line in code.splitlines() if line.strip()]
    return all(re.match(r'#(ifn?def|define HEADRACE_\w+_H|include|endif)|extern "C" \{|\}$|struct \w+;$', line)
               for line in lines)


def describe(chunk):
    """One part of the page, or nothing for guards and includes."""
    match = re.match(r"\s*(/\*.*?\*/)?(.*)", chunk, re.S)
    comment, code = match.group(1) or "", match.group(2).strip("\n")
    if is_frame(code):
        return ""
    words = words_of(comment)
    names = re.findall(r"\b(hr_\w+)\(", words.split("\n")[0]) or \
        re.findall(r"^(?:struct|enum) (hr_\w+)", code, re.M) or \
        re.findall(r"\b(hr_\w+)\(", code) or re.findall(r"\bHR_\w+", code)
    if not names:
        return ""
    words = re.sub(r"^hr_\w+\(\) - ", "", words)
    return f'.SS {roff(names[0])}\n.nf\n{roff(code.expandtabs(8))}\n.fi\n' + (
        paragraphs(words[:1].upper() + words[1:]) + "\n" if words else "")


def page(version, name, text):
    top = TOP.search(text)
    text = re.sub(r"(?ms)^#ifdef __cplusplus\n.*?^#endif\n", "", text)
    about = top.group(2).replace("\n * ", " ").rstrip(".")
    more = words_of("/*\n" + top.group(3) + "*/") if top.group(3) else ""
    body = "".join(map(describe, chunks(text[top.end():])))
    title = "LIBHEADRACE" if name == "headrace" else f"HEADRACE\\-{name.upper()}"
    includes = re.findall(r"^#include <headrace/(\w+)\.h>", text, re.M) if name == "headrace" else []
    also = ",\n".join(f".BR headrace\\-{n} (3)" for n in includes) + ",\n" if includes else ""
    return (f'.\\" SPDX-License-Identifier: Apache-2.0\n'
            f'.TH {title} 3 "" "headrace {version}" "Headrace"\n.SH NAME\n'
            f"{title.lower()} \\- {roff(about)}\n.SH SYNOPSIS\n.B #include <headrace/{name}.h>\n.PP\n"
            "Compile and link with what\n.B pkg\\-config \\-\\-cflags \\-\\-libs headrace\nprints.\n"
            + (f".SH DESCRIPTION\n{paragraphs(more)}\n" if more else "")
            + (f".SH INTERFACE\n{body}" if body else "")
            + f".SH SEE ALSO\n{also}.BR headrace (1)\n")


def main():
    version, header, target = sys.argv[1:]
    with open(header, encoding="utf-8") as f:
        text = f.read()
    name = re.search(r"(\w+)\.h$", header).group(1)
    with open(target, "w", encoding="utf-8") as f:
        f.write(page(version, name, text))


if __name__ == "__main__":
    main()
