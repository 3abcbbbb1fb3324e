#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs that were written for cuFile, unmodified, on this project's libcufile.so.0 and on NVIDIA's.

Each client is a process of its own with one library first in line: torch.cuda.gds (save and load a
storage, compare bytes), cuda.bindings.cufile (every function of its level resolves, then all are
called), and fio's libcufile engine, where they are installed. Which library was really used is read
from /proc/self/maps. Prints a table of what each did with each library and the differences; exit 1
when a client fails with ours that does not fail with NVIDIA's, 77 where there is nothing to run.
"""
from __future__ import annotations

import argparse
import contextlib
import ctypes
import glob
import importlib.util
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Iterator

HERE = Path(__file__).resolve().parent
MARK = "RESULT "


# -- clients: run in a process of their own ----------------------------------------------------
def loaded() -> str:
    """The libcufile that this process has mapped."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        found = {line.split(maxsplit=5)[-1].strip() for line in maps if "libcufile.so" in line}
    return " ".join(sorted(found))


def tell(**facts: Any) -> None:
    print(MARK + json.dumps({"library": loaded(), **facts}), flush=True)


def client_torch(folder: str) -> None:
    """A storage there and back through torch.cuda.gds, at more than one offset, byte by byte."""
    import torch

    path = os.path.join(folder, "storage.bin")
    moved = 0
    for count in (1 << 20, (1 << 22) + 12345):
        src = torch.randint(0, 256, (count,), dtype=torch.uint8, device="cuda")
        dst = torch.zeros_like(src)
        file = torch.cuda.gds.GdsFile(path, os.O_CREAT | os.O_RDWR)
        for offset in (0, 4096):
            dst.zero_()
            torch.cuda.gds.gds_register_buffer(src.untyped_storage())
            file.save_storage(src.untyped_storage(), offset)
            torch.cuda.gds.gds_deregister_buffer(src.untyped_storage())
            file.load_storage(dst.untyped_storage(), offset)
            torch.cuda.synchronize()
            if not torch.equal(src, dst):
                raise SystemExit(f"{count} bytes at {offset} came back different")
            with open(path, "rb") as plain:
                plain.seek(offset)
                if plain.read(count) != src.cpu().numpy().tobytes():
                    raise SystemExit(f"the file does not hold the storage at {offset}")
            moved += 2 * count
        del file
        os.unlink(path)
    tell(bytes=moved, torch=torch.__version__)


class Memory:
    """Device memory by the few driver calls that are needed, so that no other binding is."""

    def __init__(self, size: int) -> None:
        self.lib, self.size = ctypes.CDLL("libcuda.so.1"), size
        context, self.stream, address = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxPushCurrent_v2", context)
        self.call("cuStreamCreateWithPriority", ctypes.byref(self.stream), 1, 0)
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        self.address = address.value

    def call(self, name: str, *args: Any) -> None:
        code = getattr(self.lib, name)(*args)
        if code:
            raise SystemExit(f"{name}: {code}")

    def finish(self) -> None:
        while self.lib.cuStreamQuery(self.stream) == 600:
            time.sleep(0.0005)

    def fetch(self, size: int) -> bytes:
        back = ctypes.create_string_buffer(size)
        self.call("cuMemcpyDtoHAsync_v2", back, ctypes.c_uint64(self.address), ctypes.c_size_t(size),
                  self.stream)
        self.finish()
        return back.raw

    def free(self) -> None:
        self.call("cuMemFree_v2", ctypes.c_uint64(self.address))


class Walk:
    """Calls by name; each result, or the name of its error, is kept to be compared."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.answers: dict[str, Any] = {}
        self.walked: set[str] = set()

    def __call__(self, name: str, *args: Any, label: str = "") -> Any:
        self.walked.add(name)
        label = label or " ".join([name, *(str(a) for a in args if isinstance(a, int) and a < 100)])
        call = getattr(self.module, name, None)
        if call is None:
            self.answers[label] = "not in these bindings"
            return None
        try:
            result = call(*args)
        except Exception as problem:  # pylint: disable=broad-except # the error is the answer
            self.answers[label] = f"{type(problem).__name__}: {str(problem)[:80]}"
            return None
        result = result.rstrip("\0") if isinstance(result, str) else result
        # Addresses differ from run to run.
        small = isinstance(result, (str, bool, tuple)) or isinstance(result, int) and result < 1 << 40
        self.answers[label] = result if small and "handle" not in name and "set_up" not in name else "ok"
        return result


def client_bindings(folder: str) -> None:
    """cuda.bindings.cufile: every function of its level is found, and each of them is called."""
    from cuda.bindings import cufile
    from cuda.bindings._internal import cufile as inside

    pointers = inside._inspect_function_pointers()
    missing = sorted(name.removeprefix("__") for name, value in pointers.items() if not value)
    memory, walk = Memory(1 << 20), Walk(cufile)
    walk_parameters(walk, cufile)
    walk("driver_open")
    walk("use_count")
    walk_driver(walk)
    walk_io(walk, memory, folder)
    walk_stats(walk)
    walk("driver_close")
    walk("use_count", label="use_count after the close")
    memory.free()
    callable_names = {name for name in dir(cufile) if re.match(
        r"(batch_io|buf|driver|get|set|handle|read|write|stats|stream|use)(_|$)(?!.*dtype)", name)}
    tell(functions=len(pointers), missing=missing, answers=walk.answers, walked=len(walk.walked),
         never_called=sorted(callable_names - walk.walked))


def walk_parameters(walk: Walk, cufile: Any) -> None:
    """While closed: every parameter is read; those of NVIDIA's own test are written and read back."""
    sizes, flags, texts = (cufile.SizeTConfigParameter, cufile.BoolConfigParameter,
                           cufile.StringConfigParameter)
    for which in sizes:
        walk("get_parameter_size_t", int(which))
        walk("get_parameter_min_max_value", int(which))
    for which in flags:
        walk("get_parameter_bool", int(which))
    walk("set_parameter_size_t", int(sizes.PROPERTIES_IO_BATCHSIZE), 64)
    walk("get_parameter_size_t", int(sizes.PROPERTIES_IO_BATCHSIZE), label="batch size of 64")
    walk("set_parameter_bool", int(flags.FORCE_COMPAT_MODE), False)
    text = ctypes.create_string_buffer(b"ERROR")
    walk("set_parameter_string", int(texts.LOGGING_LEVEL), ctypes.addressof(text))
    walk("get_parameter_string", int(texts.LOGGING_LEVEL), 256)
    kb, counts = (ctypes.c_size_t * 3)(4, 1024, 16384), (ctypes.c_size_t * 3)(64, 32, 16)
    walk("set_parameter_posix_pool_slab_array", ctypes.addressof(kb), ctypes.addressof(counts), 3)
    walk("get_parameter_posix_pool_slab_array", ctypes.addressof(kb), ctypes.addressof(counts), 3)
    walk.answers["slabs"] = [list(kb), list(counts)]


def walk_driver(walk: Walk) -> None:
    walk("get_version")
    room = ctypes.create_string_buffer(b"\xa5" * 512, 512)
    walk("driver_get_properties", ctypes.addressof(room))
    walk.answers["properties"] = list(struct.unpack_from("<IIQQIIIIIIII", room.raw))
    walk.answers["bytes behind the properties"] = (
        "equal" if set(room.raw[56:]) == {0xA5} else "different")
    walk("driver_set_poll_mode", True, 64)
    walk("driver_set_max_direct_io_size", 1024)
    walk("driver_set_max_cache_size", 65536)
    walk("driver_set_max_pinned_mem_size", 65536)
    walk("get_bar_size_in_kb", 0)


def walk_io(walk: Walk, memory: Memory, folder: str) -> None:
    path, size = os.path.join(folder, "bindings.bin"), memory.size
    data = os.urandom(size)
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    fd = os.open(path, os.O_RDWR | os.O_DIRECT)
    descr = ctypes.create_string_buffer(struct.pack("<iiiiQ", 1, 0, fd, 0, 0), 24)
    walk("buf_register", memory.address, size, 0, label="buf_register")
    handle = walk("handle_register", ctypes.addressof(descr))
    if handle:
        walk("read", handle, memory.address, size, 0, 0, label="read")
        walk.answers["bytes of read"] = "equal" if memory.fetch(size) == data else "different"
        walk("write", handle, memory.address, 65536, 65536, 0, label="write")
        with open(path, "rb") as file:
            again = file.read()
        walk.answers["bytes of write"] = (
            "equal" if again == data[:65536] * 2 + data[131072:] else "different")
        walk_batch(walk, handle, memory, again)
        walk_stream(walk, handle, memory, again)
        walk("handle_deregister", handle, label="handle_deregister")
    walk("buf_deregister", memory.address, label="buf_deregister")
    os.close(fd)
    os.unlink(path)


def walk_batch(walk: Walk, handle: int, memory: Memory, data: bytes) -> None:
    count, each = 4, 8192
    batch = walk("batch_io_set_up", count)
    if not batch:
        return
    params = ctypes.create_string_buffer(64 * count)
    events = ctypes.create_string_buffer(24 * count)
    for i in range(count):
        struct.pack_into("<iiqqqQqiiq", params, 64 * i, 1, 0, memory.address, 262144 + i * each,
                         i * each, each, handle, 0, 0, i + 1)
    walk("batch_io_submit", batch, count, ctypes.addressof(params), 0, label="batch_io_submit")
    number = ctypes.c_uint(count)
    # The binding's own test passes the address of a 4-byte number as the time-out: so does this.
    timeout = ctypes.c_int(5000)
    walk("batch_io_get_status", batch, count, ctypes.addressof(number), ctypes.addressof(events),
         ctypes.addressof(timeout), label="batch_io_get_status")
    got = [struct.unpack_from("<qiiq", events, 24 * i) for i in range(number.value)]
    walk.answers["events of the batch"] = sorted((cookie, status, ret) for cookie, status, _, ret in got)
    walk.answers["bytes of the batch"] = (
        "equal" if memory.fetch(count * each) == data[262144:262144 + count * each] else "different")
    walk("batch_io_cancel", batch, label="batch_io_cancel")
    walk("batch_io_destroy", batch, label="batch_io_destroy")


def walk_stream(walk: Walk, handle: int, memory: Memory, data: bytes) -> None:
    stream = memory.stream.value or 0
    length, place, offset = ctypes.c_size_t(100000), ctypes.c_int64(4096), ctypes.c_int64(512)
    moved = ctypes.c_int64(-9999)
    numbers = [ctypes.addressof(n) for n in (length, place, offset, moved)]
    walk("stream_register", stream, 0, label="stream_register")
    walk("read_async", handle, memory.address, *numbers, stream, label="read_async")
    memory.finish()
    walk.answers["moved by read_async"] = moved.value
    walk.answers["bytes of read_async"] = (
        "equal" if memory.fetch(100512)[512:] == data[4096:104096] else "different")
    walk("write_async", handle, memory.address, *numbers, stream, label="write_async")
    memory.finish()
    walk.answers["moved by write_async"] = moved.value
    walk("stream_deregister", stream, label="stream_deregister")


def walk_stats(walk: Walk) -> None:
    walk("set_stats_level", 3)
    walk("get_stats_level")
    for name in ("stats_start", "stats_reset"):
        walk(name)
    for level, size in ((1, 512), (2, 1024), (3, 5000)):
        room = ctypes.create_string_buffer(b"\xa5" * 8192, 8192)
        walk(f"get_stats_l{level}", ctypes.addressof(room), label=f"get_stats_l{level}")
        walk.answers[f"bytes behind level {level}"] = (
            "equal" if set(room.raw[size:]) == {0xA5} else "different")
    walk("stats_stop")


CLIENTS = {"torch": client_torch, "bindings": client_bindings}


# -- what there is on this machine -------------------------------------------------------------
def has(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def first_file(*places: Any) -> Path | None:
    for place in places:
        if place and Path(place).is_file():
            return Path(place).resolve()
    return None


def find_ours(given: str | None) -> Path | None:
    root, up = HERE.parent, HERE.parent.parent
    return first_file(given, root / "lib/cufile/libcufile.so.0",
                      up / "build/lib/cufile/libcufile.so.0", up / "build/obj/cufile/libcufile.so.0")


def find_theirs(given: str | None) -> Path | None:
    places = [given]
    for folder in sys.path:
        places += sorted(glob.glob(folder + "/nvidia/*/lib/libcufile.so.0"), reverse=True)
    places += sorted(glob.glob("/usr/local/cuda*/targets/*/lib/libcufile.so.0"), reverse=True)
    places += sorted(glob.glob("/usr/lib/*/libcufile.so.0"))
    return first_file(*places)


def folder_of(*patterns: str) -> Path | None:
    found = first_file(*(p for pattern in patterns for p in sorted(glob.glob(pattern), reverse=True)))
    return found.parent if found else None


def build_fio(source: Path, folder: Path, ours: Path) -> Path | None:
    """fio with the engine, from the source that the bundle brings; None where CUDA's headers are not."""
    headers = folder_of("/usr/local/cuda*/include/cuda_runtime.h", *(
        p + "/nvidia/cu13/include/cuda_runtime.h" for p in sys.path))
    runtime = folder_of("/usr/local/cuda*/lib64/libcudart.so", "/usr/local/cuda*/targets/*/lib/libcudart.so")
    driver = first_file(*re.findall(r"libcuda\.so\.1 .*=> (\S+)", subprocess.run(
        ["ldconfig", "-p"], capture_output=True, text=True, check=False).stdout),
        *(p + "/libcuda.so.1" for p in os.environ.get("LD_LIBRARY_PATH", "").split(":")))
    cufile = first_file(HERE.parent / "include/cufile.h", HERE.parent.parent / "cufile/cufile.h")
    if not (headers and runtime and driver and cufile and shutil.which("make")):
        return None
    links = folder / "links"
    links.mkdir()
    (links / "libcufile.so").symlink_to(ours)
    (links / "libcuda.so").symlink_to(driver)
    env = dict(os.environ, C_INCLUDE_PATH=f"{headers}:{cufile.parent}",
               LIBRARY_PATH=f"{links}:{runtime}",
               LD_LIBRARY_PATH=f"{runtime}:{os.environ.get('LD_LIBRARY_PATH', '')}")
    jobs = str(os.cpu_count() or 1)
    steps = [["tar", "-xf", source, "--strip-components=1"],
             ["./configure", "--enable-libcufile", "--disable-native", "--disable-numa",
              "--disable-rdma", "--disable-http", "--disable-xnvme", "--disable-pmem"],
             ["make", "-j", jobs, "fio"]]
    for step in steps:
        try:
            done = bounded(step, 90, cwd=folder, env=env)
        except subprocess.TimeoutExpired:
            print(f"fio: {step[0]}: no end after 90 s")
            return None
        if done.returncode:
            print(f"fio: {step[0]}: {(done.stderr or done.stdout).strip()[-300:]}")
            return None
    os.environ["LD_LIBRARY_PATH"] = env["LD_LIBRARY_PATH"]
    return folder / "fio"


def find_fio(folder: Path, ours: Path) -> str | None:
    """A fio that was built with the engine, or can be; the static one of the bundle cannot have it."""
    source = first_file(*glob.glob(f"{HERE.parent}/src/fio_*.orig.tar.gz"),
                        *glob.glob(f"{HERE.parent.parent}/build/cache/fio_*.orig.tar.gz"))
    for fio in filter(None, (os.environ.get("CUFILE_FIO"), shutil.which("fio"))):
        listed = subprocess.run([fio, "--enghelp"], capture_output=True, text=True, check=False)
        if "libcufile" in listed.stdout:
            return fio
    built = build_fio(source, folder, ours) if source else None
    return str(built) if built else None


@contextlib.contextmanager
def udev_record(folder: str) -> Iterator[None]:
    """NVIDIA's library refuses disks that udev does not know; where none runs, tell it for the while."""
    number = os.stat(folder).st_dev
    record = Path(f"/run/udev/data/b{os.major(number)}:{os.minor(number)}")
    made: list[Path] = []
    if not record.exists():
        with contextlib.suppress(OSError):
            for part in (record.parent.parent, record.parent):
                if not part.exists():
                    part.mkdir()
                    made.append(part)
            record.write_text("E:ID_FS_TYPE=ext4\nE:ID_FS_USAGE=filesystem\n")
            made.append(record)
    try:
        yield
    finally:
        for what in reversed(made):
            with contextlib.suppress(OSError):
                what.rmdir() if what.is_dir() else what.unlink()


# -- running -----------------------------------------------------------------------------------
def environment(library: Path, folder: str) -> dict[str, str]:
    """First in line: wheels carry their own search path, which only a preloaded library precedes."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("CUFILE_")}
    env["LD_PRELOAD"] = str(library)
    env["LD_LIBRARY_PATH"] = f"{library.parent}:{env.get('LD_LIBRARY_PATH', '')}".rstrip(":")
    env["CUFILE_LOGFILE_PATH"] = os.path.join(folder, "cufile.log")
    return env


def bounded(argv: list[Any], limit: float, **more: Any) -> subprocess.CompletedProcess[str]:
    """To its end, or until @limit: then it and all that it started are gone."""
    with subprocess.Popen(argv, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, start_new_session=True, **more) as child:
        try:
            out, err = child.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
            raise
    return subprocess.CompletedProcess(argv, child.returncode, out, err)


def run(argv: list[str], env: dict[str, str], limit: float) -> dict[str, Any]:
    began = time.monotonic()
    try:
        done = bounded(argv, limit, env=env)
    except subprocess.TimeoutExpired:
        return {"outcome": f"no end after {limit:.0f} s", "seconds": limit}
    out = {"outcome": "ok", "seconds": round(time.monotonic() - began, 1)}
    for line in done.stdout.splitlines():
        if line.startswith(MARK):
            out.update(json.loads(line[len(MARK):]))
    if done.returncode:
        out["outcome"] = f"exit {done.returncode}: {(done.stderr or done.stdout).strip()[-400:]}"
    return out


def run_fio(fio: str, library: Path, folder: str, limit: float) -> dict[str, Any]:
    """Writes with a pattern, then reads and checks it, as fio does with any engine."""
    argv = [fio, "--name=job", f"--filename={folder}/fio.bin", "--size=64M", "--bs=1M",
            "--ioengine=libcufile", "--cuda_io=cufile", "--gpu_dev_ids=0", "--direct=1",
            "--rw=write", "--verify=crc32c", "--do_verify=1", "--output-format=json"]
    out = run(argv, environment(library, folder), limit)
    with contextlib.suppress(OSError):
        os.unlink(f"{folder}/fio.bin")
    return out


def run_client(name: str, library: Path, folder: str, limit: float) -> dict[str, Any]:
    argv = [sys.executable, str(Path(__file__).resolve()), "--client", name, "--folder", folder]
    return run(argv, environment(library, folder), limit)


def differences(ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    a, b = ours.get("answers", {}), theirs.get("answers", {})
    return [f"{name}: ours {a.get(name, '-')!r}, theirs {b.get(name, '-')!r}"
            for name in sorted(set(a) | set(b)) if a.get(name) != b.get(name)]


def judge(client: str, results: dict[str, dict[str, Any]], libraries: dict[str, Path]) -> bool:
    """Print what came out; False: ours failed where theirs did not, or was not even used."""
    good = True
    for who, result in results.items():
        print(f"{client:<10}{who:<8}{result['outcome']:<8} {result.get('seconds', 0):5.1f} s  "
              + " ".join(f"{k}={v}" for k, v in result.items()
                         if k in ("bytes", "functions", "missing", "torch", "walked", "never_called")))
        used = result.get("library")
        if used is not None and str(libraries[who]) not in used:
            print(f"  {client}: {who}: {libraries[who]} was not the one in use, but {used}")
            good = good and who != "ours"
    ours, theirs = results["ours"], results.get("theirs")
    if theirs:
        for line in differences(ours, theirs):
            print(f"  differs: {line}")
    wrong = [k for k, v in ours.get("answers", {}).items() if v == "different"]
    if wrong or ours.get("missing"):
        print(f"  wrong with ours: {wrong} {ours.get('missing')}")
        good = False
    return good and (ours["outcome"] == "ok" or theirs is not None and theirs["outcome"] != "ok")


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--ours")
    p.add_argument("--theirs")
    p.add_argument("--data", default="/var/tmp", help="folder on the disk (/var/tmp)")
    p.add_argument("--limit", type=float, default=40, help="seconds for each run (40)")
    p.add_argument("--only", default="")
    p.add_argument("--client", choices=sorted(CLIENTS), help=argparse.SUPPRESS)
    p.add_argument("--folder", help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.client:
        CLIENTS[args.client](args.folder)
        return 0
    ours, theirs = find_ours(args.ours), find_theirs(args.theirs)
    if not ours:
        print("no libcufile.so.0 of ours: build it with ./dev build or name it with --ours")
        return 1
    libraries = {"ours": ours, **({"theirs": theirs} if theirs and theirs != ours else {})}
    print("\n".join(f"{who:<8}{path}" for who, path in libraries.items()))
    with tempfile.TemporaryDirectory(prefix="cufile-fio-") as tools:
        fio = find_fio(Path(tools), ours) if args.only in "fio" else None
        todo = [name for name, module in (("torch", "torch"), ("bindings", "cuda.bindings.cufile"))
                if args.only in name and has(module)] + (["fio"] if fio else [])
        if not todo:
            print("neither torch nor cuda.bindings nor a fio with the engine libcufile is here")
            return 77
        bad, everything = [], {}
        with tempfile.TemporaryDirectory(prefix="cufile-clients-", dir=args.data) as folder, \
                udev_record(folder):
            for client in todo:
                results = {who: run_fio(str(fio), library, folder, args.limit) if client == "fio"
                           else run_client(client, library, folder, args.limit)
                           for who, library in libraries.items()}
                everything[client] = results
                if not judge(client, results, libraries):
                    bad.append(client)
    out = Path(os.environ.get("OUT") or ".") / "cufile_clients.json"
    if os.environ.get("OUT"):
        out.write_text(json.dumps(everything, indent=1, default=str) + "\n", encoding="utf-8")
    print(f"{len(todo) - len(bad)} of {len(todo)} clients work" + (f"; not {', '.join(bad)}" if bad else ""))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
