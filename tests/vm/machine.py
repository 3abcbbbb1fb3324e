# SPDX-License-Identifier: Apache-2.0
"""Boots one guest under QEMU and listens to it: results of its tests, and its questions about what
the host sees. Knows how a machine is put together, not what is tested in it.
"""
import os
import re
import select
import socket
import subprocess
import tempfile
import time

SWITCH = ["-device", "pcie-root-port,id=rp0,chassis=1,slot=1",
          "-device", "x3130-upstream,id=up,bus=rp0"]
# What a kernel says when something went wrong inside it.
SPLAT = re.compile(r"BUG[: ]|Oops|WARNING:|Call Trace|general protection|refcount_t|UBSAN|KASAN|"
                   r"kernel BUG|soft lockup|blocked for more than|detected stall|list_(add|del) corr")
BOOT_TRIES = 3


def switch_port(number):
    """A downstream port of the switch, as a bus for one device."""
    return ["-device", f"xio3130-downstream,id=port{number},bus=up,chassis={10 + number},"
            f"slot={10 + number}"], f"port{number}"


class Machine:
    """One guest. `questions` answers what its tests ask: {verb: function(words) -> text}."""

    def __init__(self, name, folder, accelerator, tests, args, cpu="max", append="",
                 timeout=600, memory="640M"):
        self.name, self.folder, self.accelerator = name, folder, accelerator
        self.tests, self.args, self.cpu, self.append = tests, args, cpu, append
        self.timeout, self.memory = timeout, memory
        self.questions = {}
        self.results = []
        self.console = f"{folder}/{name}.console"

    def command(self, line):
        release = open(f"{self.folder}/release", encoding="ascii").read().strip()
        append = (f"console=ttyS0 panic=-1 oops=panic quiet loglevel=6 "
                  f"headrace.tests={','.join(self.tests)} {self.append}")
        return ["qemu-system-x86_64", "-M", "q35", "-cpu", self.cpu, *self.accelerator,
                # With one processor or one thread the emulated NVMe loses interrupts.
                "-smp", "2,sockets=2", "-m", self.memory, "-display", "none", "-nodefaults", "-no-reboot",
                "-serial", f"file:{self.console}", "-chardev", f"socket,id=line,path={line}",
                "-serial", "chardev:line", *self.args,
                "-kernel", f"{self.folder}/kernel/usr/lib/modules/{release}/vmlinuz",
                "-initrd", f"{self.folder}/initramfs", "-append", append]

    def answer(self, line):
        words = line.split()
        try:
            return str(self.questions[words[1]](words[2:]))
        except (KeyError, IndexError, ValueError, OSError) as error:
            return f"error {error!r}"

    def hear(self, line):
        """One line of the guest. Return: what to answer, or None."""
        if line.startswith("? "):
            return self.answer(line)
        if line.startswith("# "):
            self.started = True
        for word, kind in (("ok ", "passed"), ("FAIL ", "failed"), ("SKIP ", "skipped")):
            if line.startswith(word):
                self.results.append((kind, line[len(word):]))
                print(f"  {line}", flush=True)
        self.ended = self.ended or line == "END"
        return None

    def talk(self, process, listener):
        """Until the guest is gone or its time is over."""
        end, pending, line = time.monotonic() + self.timeout, b"", None
        while time.monotonic() < end and process.poll() is None:
            ready, _, _ = select.select([line or listener], [], [], 0.2)
            if not ready:
                continue
            if line is None:
                line, _ = listener.accept()
                continue
            data = line.recv(65536)
            if not data:
                break
            *lines, pending = (pending + data).split(b"\n")
            for text in lines:
                reply = self.hear(text.decode(errors="replace").strip())
                if reply is not None:
                    line.sendall(reply.encode() + b"\n")
        if line:
            line.close()

    def boot(self):
        self.results, self.started, self.ended = [], False, False
        with tempfile.TemporaryDirectory(prefix="headrace-vm.") as scratch:
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(f"{scratch}/line")
                listener.listen(1)
                with open(f"{self.folder}/{self.name}.qemu", "wb") as log:
                    process = subprocess.Popen(self.command(f"{scratch}/line"), stdout=log,
                                               stderr=log, stdin=subprocess.DEVNULL)
                try:
                    self.talk(process, listener)
                    if self.ended:
                        process.wait(timeout=20)
                except subprocess.TimeoutExpired:
                    pass
                finally:
                    process.kill()
                    process.wait()

    def judge(self):
        """Results beyond those that the guest reports."""
        if not self.ended:
            self.results.append(("failed", "the guest did not reach its end"))
        text = open(self.console, encoding="utf-8", errors="replace").read()
        splats = [line for line in text.splitlines() if SPLAT.search(line)]
        kind = "failed" if splats else "passed"
        self.results.append((kind, f"the kernel's log is clean{': ' if splats else ''}"
                             f"{splats[0].strip() if splats else ''}"))

    def run(self):
        """Boot, again if it died before the tests began. Return: results."""
        start = time.monotonic()
        open(self.console, "wb").close()
        for _ in range(BOOT_TRIES):
            self.boot()
            if self.started:
                break
            print(f"  {self.name}: the guest died before its tests; once more", flush=True)
        self.judge()
        counts = {kind: sum(1 for k, _ in self.results if k == kind)
                  for kind in ("passed", "failed", "skipped")}
        print(f"{self.name}: {counts['passed']} passed, {counts['failed']} failed, "
              f"{counts['skipped']} skipped ({time.monotonic() - start:.0f} s)", flush=True)
        if counts["failed"]:
            self.show_console()
        return counts

    def show_console(self):
        for path in (self.console, f"{self.folder}/{self.name}.qemu"):
            text = open(path, encoding="utf-8", errors="replace").read().splitlines()
            print(f"--- end of {os.path.relpath(path)}")
            for line in text[-60:]:
                print("    " + line.rstrip())
