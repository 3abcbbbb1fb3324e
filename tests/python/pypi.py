# SPDX-License-Identifier: Apache-2.0
"""Packages that tests need beside the machine's own, by pip into a folder of the build, once. Nothing is
installed anywhere else. Skips, with pip's reason, where the index cannot be reached."""
import fcntl
import glob
import os
import shutil
import subprocess
import sys

# A build asks for one place for all checkouts of a machine, or it is the checkout's own.
HERE = os.path.dirname(os.path.abspath(__file__))
CACHE = os.environ.get("HEADRACE_TEST_CACHE") or os.path.join(HERE, "..", "..", "build", "cache")


def skip(reason):
    print(reason)
    sys.exit(77)


def _pip(arguments, **more):
    env = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"}
    try:
        return subprocess.run([sys.executable, "-m", "pip", *arguments], capture_output=True, text=True,
                              timeout=600, env={**env, **more})
    except subprocess.TimeoutExpired:
        skip("pip got no answer in ten minutes")


def _last_line(done):
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return lines[-1] if lines else "pip says nothing"


def once(name, make):
    """The folder of this name in the cache, made by make(folder) if it is not there yet."""
    os.makedirs(CACHE, exist_ok=True)
    folder = os.path.abspath(os.path.join(CACHE, name))
    with open(folder + ".lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.isdir(folder):
            shutil.rmtree(folder + ".part", ignore_errors=True)
            os.mkdir(folder + ".part")
            make(folder + ".part")
            os.rename(folder + ".part", folder)
    return folder


def packages(name, *requirements, any_python=False, alone=False):
    """A folder for sys.path with these packages, for this interpreter, or for any (the limited API).
    ``alone``: without what they need, which is there already."""
    def make(folder):
        if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True).returncode:
            skip("no pip for this Python (python3-pip)")
        more = ["--no-deps"] if alone else []
        done = _pip(["install", "--quiet", "--target", folder, *more, *requirements])
        if done.returncode:
            skip(f"no {', '.join(requirements)} from PyPI: {_last_line(done)}")
    kind = "" if any_python else f"{sys.version_info[0]}.{sys.version_info[1]}"
    return once(f"python{kind}-{name}", make)


def source(requirement):
    """The unpacked source of a package, which is not built: pip is stopped by what that would need."""
    def make(folder):
        temp = os.path.join(folder, "temp")
        os.mkdir(temp)
        done = _pip(["download", "--quiet", "--no-deps", "--no-clean", "--no-build-isolation", "--no-binary",
                     ":all:", "--dest", folder, requirement], TMPDIR=temp)
        unpacked = glob.glob(os.path.join(temp, "pip-*", "*", "PKG-INFO"))
        if not unpacked:
            skip(f"no source of {requirement} from PyPI: {_last_line(done)}")
        os.rename(os.path.dirname(unpacked[0]), os.path.join(folder, "source"))
        shutil.rmtree(temp)
    return os.path.join(once(f"source-{requirement}", make), "source")
