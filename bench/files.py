# SPDX-License-Identifier: Apache-2.0
"""Files for the measurements: made once with known contents, hot or cold on demand and shown so."""
from __future__ import annotations

import ctypes
import mmap
import os
import random
from pathlib import Path

import lib

PAGE = mmap.PAGESIZE
CHUNK = 8 << 20
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                       ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
_MAP_FAILED = ctypes.c_void_p(-1).value


def make(path: Path, size: int, header: bytes = b"", seed: int = 1) -> Path:
    """A file of `size` pseudo-random bytes after `header`; kept if it is there already.

    Written blocks, no holes: every 8 MiB chunk is the same random block with its number put in
    each page, so that a misplaced read shows and making it is limited by the disk.
    """
    total = size + len(header)
    if path.exists() and path.stat().st_size == total:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    block = bytearray(random.Random(seed).randbytes(CHUNK))
    part = path.with_suffix(path.suffix + ".part")
    with open(part, "wb", buffering=0) as out:
        if header:
            out.write(header)
        for start in range(0, size, CHUNK):
            number = (start // CHUNK).to_bytes(8, "little")
            for page in range(0, CHUNK, PAGE):
                block[page:page + 8] = number
            out.write(memoryview(block)[:min(CHUNK, size - start)])
            if start % (256 << 20) == 0:
                lib.progress(f"writing {path.name}: {start * 100 // size} %")
        os.fsync(out.fileno())
    lib.progress("")
    part.rename(path)
    return path


def under(path: Path) -> list[Path]:
    """A file, or all those in a folder."""
    return sorted(p for p in path.iterdir() if p.is_file()) if path.is_dir() else [path]


def pages_resident(path: Path) -> tuple[int, int]:
    """(resident pages, all pages) by mincore(2), which answers truly for files that one owns."""
    size = path.stat().st_size
    if size == 0:
        return 0, 0
    pages = (size + PAGE - 1) // PAGE
    fd = os.open(path, os.O_RDONLY)
    try:
        address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
        if address == _MAP_FAILED:
            raise OSError(ctypes.get_errno(), f"mmap {path}")
        marks = ctypes.create_string_buffer(pages)
        failed = _libc.mincore(address, size, marks)
        code = ctypes.get_errno()
        _libc.munmap(address, size)
        if failed:
            raise OSError(code, f"mincore {path}")
        return sum(mark & 1 for mark in marks.raw), pages
    finally:
        os.close(fd)


def residency(path: Path) -> float:
    """Share of the file in the page cache, 0..1."""
    resident, pages = pages_resident(path)
    return resident / pages if pages else 0.0


def drop(path: Path, limit: float = 0.001) -> float:
    """Forget the file's pages; the share that stayed. Raises if the file cannot be made cold."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)
    stayed = residency(path)
    if stayed > limit:
        raise RuntimeError(f"{path}: {stayed:.1%} stays in the page cache; "
                           "is another program mapping it, or is this tmpfs?")
    return stayed


def heat(path: Path) -> float:
    """Read the whole file into the page cache; the share that is there afterwards."""
    with open(path, "rb", buffering=0) as file:
        buffer = bytearray(CHUNK)
        while file.readinto(buffer):
            pass
    return residency(path)


def preread_direct(path: Path) -> None:
    """Read the whole file past the page cache, once.

    The first pass over old blocks of a virtual disk is slower than all later ones; after this,
    every contestant sees the same disk, and the page cache stays as it was.
    """
    buffer = mmap.mmap(-1, CHUNK)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError:
        return
    try:
        offset, size = 0, path.stat().st_size
        while offset < size:
            got = os.preadv(fd, [buffer], offset)
            if got <= 0:
                break
            offset += got
            lib.progress(f"reading {path.name} once: {offset * 100 // size} %")
            if offset % PAGE:
                break
    finally:
        os.close(fd)
        lib.progress("")
