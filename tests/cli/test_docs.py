#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Documents: every block of commands in README and docs is run, in a folder with the files that it names and
with a pretended GPU, or says why it is not. Options that the text names exist. What is installed can be
compiled against, and its manual pages are without a warning."""
import io
import os
import re
import shutil
import struct
import subprocess
import tarfile

import common

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
BLOCK = re.compile(r"(?m)^(?:<!-- (.*?) -->\n)?```(\w*)\n((?:.*\n)*?)```")
INLINE = re.compile(r"`headrace ([^`\n]+)`")
NEWCOMER = os.path.join(ROOT, "tests", "newcomer")


def documents():
    for folder in (".", "docs", "bench"):
        for name in sorted(os.listdir(os.path.join(ROOT, folder))):
            if name.endswith(".md") and name != "CHANGELOG.md":
                with open(os.path.join(ROOT, folder, name), encoding="utf-8") as f:
                    yield os.path.normpath(os.path.join(folder, name)), f.read()


def commands(block):
    """Lines without their comments."""
    for line in block.splitlines():
        line = re.sub(r"\s+#.*$", "", line).strip()
        if line and not line.startswith("#"):
            yield line


def safetensors():
    head = b'{"w":{"dtype":"F32","shape":[256],"data_offsets":[0,1024]}}'
    head += b" " * (-len(head) % 8)
    return struct.pack("<Q", len(head)) + head + os.urandom(1024)


def archive(path):
    """A shard of images and their classes."""
    with tarfile.open(path, "w") as tar:
        for i in range(100):
            for ext, data in (("jpg", os.urandom(100 + 7 * i)), ("cls", b"%d" % i)):
                member = tarfile.TarInfo(f"{i:04}.{ext}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))


def corpus(path):
    """Documents of 1000 tokens each, as Megatron-Core keeps them."""
    n, length = 300, 1000
    with open(path + ".bin", "wb") as f:
        f.write(os.urandom(n * length * 2))
    with open(path + ".idx", "wb") as f:
        f.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, n, n + 1))
        f.write(struct.pack(f"<{n}i", *[length] * n))
        f.write(struct.pack(f"<{n}q", *[i * length * 2 for i in range(n)]))
        f.write(struct.pack(f"<{n + 1}q", *range(n + 1)))


class Docs(common.CliTest):
    def setUp(self):
        super().setUp()
        os.mkdir(self.path("images"))
        for name in ("images/0.tar", "images/1.tar", "a.tar", "b.tar"):
            archive(self.path(name))
        corpus(self.path("corpus"))
        self.tokens("tokens.bin", 4 << 20)
        self.raw("model.bin", os.urandom(100000))
        self.raw("model.safetensors", safetensors())
        self.raw("train.py", b"print('trained')\n")
        os.mkdir(self.path("data"))
        shutil.copy(self.path("tokens.bin"), self.path("data"))
        self.env = {**os.environ, "LD_LIBRARY_PATH": os.environ["FAKECUDA"],
                    "PATH": os.path.dirname(common.HEADRACE) + ":" + os.environ["PATH"]}

    def shell(self, line, **more):
        return subprocess.run(["bash", "-c", line], cwd=self.dir, env={**self.env, **more}, text=True,
                              capture_output=True, timeout=common.BOUND_SECONDS, check=False)

    def test_every_block_is_run_or_marked(self):
        run, marked = 0, 0
        for name, text in documents():
            for mark, language, block in BLOCK.findall(text):
                if language == "python":
                    compile(block, name, "exec")
                if language not in ("sh", "bash", "console", "shell"):
                    self.assertFalse(re.search(r"(?m)^(\$ |headrace |\./dev )", block),
                                     f"{name}: commands in a block that is not called sh:\n{block}")
                    continue
                if mark == "run by tests/newcomer":
                    self.newcomer(name, block)
                    continue
                if mark:
                    self.assertRegex(mark, r"^not run: \S.{8,}", f"{name}: {mark}")
                    marked += 1
                    continue
                for line in commands(block):
                    if line.startswith("headrace run") and common.SANITIZED:
                        continue  # a sanitizer must be the first library of a process
                    done = self.shell(re.sub(r"(?<![\w./])/data\b", self.path("data"), line))
                    self.assertEqual(done.returncode, 0, f"{name}: {line}\n{done.stdout}{done.stderr}")
                    run += 1
        self.assertGreaterEqual(run, 18)
        self.assertLessEqual(marked, 8)

    def newcomer(self, name, block):
        """Those that build are run there, by the same words."""
        with open(NEWCOMER, encoding="utf-8") as f:
            script = f.read()
        for line in commands(block):
            self.assertIn(line, script, f"{name}: not in tests/newcomer")

    def test_options_in_the_text_exist(self):
        helps, seen = {}, 0
        for name, text in documents():
            for words in INLINE.findall(text):
                verb, *rest = words.split()
                if not re.fullmatch(r"[a-z]+", verb):
                    continue
                if verb not in helps:
                    helps[verb] = self.ok(verb, "--help").out
                for option in re.findall(r"--[a-z0-9-]+", " ".join(rest)):
                    self.assertRegex(helps[verb], rf"(?m)^  {option}( |$)", f"{name}: `headrace {words}`")
                    seen += 1
        self.assertGreater(seen, 4)

    def test_links_lead_somewhere(self):
        for name, text in documents():
            for target in re.findall(r"\]\(([^)#\s]+)", text):
                if "://" not in target:
                    full = os.path.join(ROOT, os.path.dirname(name), target)
                    self.assertTrue(os.path.exists(full), f"{name}: {target}")

    def test_installed(self):
        """Installed below a folder, README's program is compiled by pkg-config, and runs; then all goes."""
        build = os.environ["BUILD"]
        if common.SANITIZED or not shutil.which("pkg-config"):
            self.skipTest("needs pkg-config, and a library without sanitizers")
        env = {**os.environ, "DESTDIR": self.path("dest")}
        subprocess.run(["meson", "install", "-C", build, "--no-rebuild", "--quiet"], env=env, check=True,
                       capture_output=True, timeout=common.BOUND_SECONDS)
        have = {n: os.path.join(d, n) for d, _, names in os.walk(self.path("dest")) for n in names}
        for name in ("headrace.pc", "headrace", "libheadrace.so.0.1.0", "libcufile.so.0", "doctor.h",
                     "headrace-check.1", "headrace-io.3", "libheadrace.3"):
            self.assertIn(name, have)
        self.pages([path for name, path in have.items() if re.search(r"\.[13]$", name)])
        with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as f:
            program = next(b for _, language, b in BLOCK.findall(f.read()) if language == "c")
        self.raw("hello.c", program.encode())
        libs = os.path.dirname(have["libheadrace.so.0.1.0"])
        done = self.shell("cc hello.c $(pkg-config --cflags --libs headrace) -o hello && ./hello tokens.bin host",
                          PKG_CONFIG_LIBDIR=os.path.dirname(have["headrace.pc"]), LD_LIBRARY_PATH=libs,
                          PKG_CONFIG_SYSROOT_DIR=self.path("dest"))
        self.assertEqual((done.returncode, done.stdout), (0, "5096 bytes are in device memory\n"), done.stderr)
        subprocess.run(["meson", "--internal", "uninstall"], cwd=build, env=env, check=True,
                       capture_output=True, timeout=common.BOUND_SECONDS)
        left = [os.path.join(d, n) for d, _, names in os.walk(self.path("dest")) for n in names
                if not n.endswith((".pyc", ".pyi", ".py"))]
        self.assertEqual(left, [])

    def pages(self, paths):
        if not shutil.which("groff"):
            return
        self.assertGreater(len(paths), 20)
        for path in paths:
            done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", path], capture_output=True, text=True,
                                  check=False, timeout=common.BOUND_SECONDS)
            self.assertEqual((done.returncode, done.stderr), (0, ""), path)

    def test_completion(self):
        done = self.shell(f'. "{ROOT}/scripts/completion.bash"; COMP_WORDS=(headrace ex); COMP_CWORD=1; '
                          '_headrace; echo "${COMPREPLY[@]}"; COMP_WORDS=(headrace bench --ver); COMP_CWORD=2; '
                          '_headrace; echo "${COMPREPLY[@]}"; COMP_WORDS=(headrace bench --rw rand); '
                          'COMP_CWORD=3; _headrace; echo "${COMPREPLY[@]}"')
        self.assertEqual(done.stdout.splitlines(), ["explain", "--verify", "randread randwrite"], done.stderr)


if __name__ == "__main__":
    common.main()
