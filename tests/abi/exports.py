#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What libcufile.so.0 shows to the dynamic linker, held against the published list of cuFile 1.19.

exports.py LIBRARY [--header FILE]: names in both directions, SONAME, no symbol versions, -z nodelete,
and nothing needed beyond the C library and our own. Prints one line per finding; exit 1 if any.
--selftest: a library that is wrong in each of these ways is compiled, and has to be found out.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

NAMES = """
BatchIOCancel BatchIODestroy BatchIOGetStatus BatchIOSetUp BatchIOSubmit BufDeregister BufRegister
DriverClose DriverClose_v2 DriverGetP2PFlags DriverGetProperties DriverOpen DriverSetMaxCacheSize
DriverSetMaxDirectIOSize DriverSetMaxPinnedMemSize DriverSetP2PFlags DriverSetPollMode
ExportPCIeTopology GetBARSizeInKB GetParameterBool GetParameterGpuBounceBufferSlabArray
GetParameterMinMaxValue GetParameterPosixPoolSlabArray GetParameterSizeT GetParameterString
GetStatsL1 GetStatsL2 GetStatsL3 GetStatsLevel GetVersion HandleDeregister HandleRegister Read
ReadAsync Readv SetParameterBool SetParameterGpuBounceBufferSlabArray SetParameterPosixPoolSlabArray
SetParameterSizeT SetParameterString SetStatsLevel StatsReset StatsStart StatsStop StreamDeregister
StreamRegister UseCount Write WriteAsync Writev
""".split()
WANTED = {"cuFile" + name for name in NAMES}
SONAME = "libcufile.so.0"
# libcuda is found at run time: a machine without it loads the library all the same. The sanitizers
# and liburing, xxhash, jansson are the build's own affair.
FORBIDDEN = re.compile(r"^lib(cuda|cudart|nvidia|cufile)")
EXPECTED = re.compile(r"^(lib(c|m|dl|pthread|rt|gcc_s|headrace|uring|xxhash|jansson|asan|ubsan|tsan)|ld-linux"
                      r"[-\w]*)\.so")


def tool(*command):
    return subprocess.run(command, check=True, text=True, capture_output=True).stdout


def exported(library):
    """Names with a definition in the dynamic table, without the version that '@' may add."""
    lines = tool("nm", "-D", "--defined-only", library).splitlines()
    return [(line.split()[-2], line.split()[-1]) for line in lines if line.split()]


def check_names(library):
    seen = exported(library)
    names = {name.split("@")[0] for _, name in seen}
    for name in sorted(WANTED - names):
        yield f"{name} is not exported: programs of its level stop at it"
    for name in sorted(names - WANTED):
        yield f"{name} is exported and in no published header: it may shadow another library's"
    for kind, name in seen:
        if "@" in name:
            yield f"{name} has a symbol version: NVIDIA's have none"
        if kind not in "TW" and name.split("@")[0] in WANTED:
            yield f"{name} is no function but of kind {kind}"


def check_dynamic(library):
    text = tool("readelf", "-dW", library)
    soname = re.findall(r"\(SONAME\).*\[(.*)\]", text)
    if soname != [SONAME]:
        yield f"SONAME is {soname or 'missing'}, not {SONAME}"
    if not re.search(r"\(FLAGS_1\).*\bNODELETE\b", text):
        yield "no -z nodelete: after dlclose() its threads would run in unmapped code"
    for needed in re.findall(r"\(NEEDED\).*\[(.*)\]", text):
        if FORBIDDEN.search(needed):
            yield f"needs {needed}: it must load on machines without it"
        elif not EXPECTED.search(needed):
            yield f"needs {needed}, which no system has by itself"
    if re.search(r"\(TEXTREL\)", text):
        yield "text relocations: refused by hardened systems"
    if re.search(r"GNU_STACK\s.*\bRWE\b", tool("readelf", "-lW", library)):
        yield "asks for an executable stack"
    if "_nver" in text or "Version definition section" in tool("readelf", "-VW", library):
        yield "defines symbol versions: NVIDIA's library has none"


def read_header(path, seen=None):
    """The header with its own parts in place of the lines that include them."""
    seen = set() if seen is None else seen
    seen.add(path)
    with open(path, encoding="utf-8") as file:
        text = file.read()
    for part in re.findall(r'^\s*#\s*include\s*"([^"]+)"', text, re.M):
        part = os.path.join(os.path.dirname(path), part)
        if part not in seen:
            text += read_header(part, seen)
    return text


def check_header(header):
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", read_header(header), flags=re.S)
    text = re.sub(r"^[ \t]*#(?:.*\\\n)*.*$", "", text, flags=re.M)
    declared = set(re.findall(r"\b(cuFile\w+)\s*\(", text))
    # The old name has no prototype of its own: a macro stands in its place.
    for name in sorted(WANTED - declared - {"cuFileDriverClose"}):
        yield f"{name} has no prototype in {os.path.basename(header)}"
    for name in sorted(declared - WANTED):
        yield f"{name} is declared and was never published"


def findings(library, header=None):
    yield from check_names(library)
    yield from check_dynamic(library)
    if header:
        yield from check_header(header)


def compile_library(folder, names, *options):
    source = os.path.join(folder, "wrong.c")
    library = os.path.join(folder, "libwrong.so")
    with open(source, "w", encoding="utf-8") as file:
        file.writelines(f"void {name}(void) {{}}\n" for name in sorted(names))
    tool("gcc", "-shared", "-fPIC", "-o", library, source, *options)
    return library


def selftest():
    good = ["-Wl,-soname," + SONAME, "-Wl,-z,nodelete"]
    cases = [
        (WANTED - {"cuFileReadv"}, good, "cuFileReadv is not exported"),
        (WANTED | {"hr_inside"}, good, "hr_inside is exported"),
        (WANTED, good[1:], "SONAME is missing"),
        (WANTED, good[:1], "no -z nodelete"),
        (WANTED, good + ["-Wl,--no-as-needed", "-lstdc++"], "needs libstdc++"),
        (WANTED, good + ["-Wl,-z,execstack"], "executable stack"),
    ]
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        clean = list(findings(compile_library(folder, WANTED, *good)))
        if clean:
            print("accuses a good library:", *clean, sep="\n  ")
            missed += 1
        versions = os.path.join(folder, "versions")
        with open(versions, "w", encoding="utf-8") as file:
            file.write("CUFILE_1 { global: *; };\n")
        cases.append((WANTED, good + ["-Wl,--version-script=" + versions], "symbol version"))
        for names, options, words in cases:
            found = list(findings(compile_library(folder, names, *options)))
            if not any(words in finding for finding in found):
                print(f"misses: {words}; found {found}")
                missed += 1
    return missed


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", nargs="?")
    parser.add_argument("--header")
    parser.add_argument("--selftest", action="store_true")
    args = parser.parse_args()
    if args.selftest:
        return 1 if selftest() else 0
    found = list(findings(args.library, args.header))
    print(*found, sep="\n")
    print(f"{len(WANTED)} names, {len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
