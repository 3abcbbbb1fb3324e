#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Datasets of every format for the measurements, made once; plain Python, so that they can be made anywhere.

A sample's bytes follow from its number: 8 bytes of the number, then a run of one random block that begins
at a place made from the number. So everybody who reads a sample can be checked without the files. TFRecord
needs the module crc32c and Arrow pyarrow; all others nothing.
"""
from __future__ import annotations

import argparse
import array
import functools
import importlib
import json
import os
import random
import shutil
import struct
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Iterator

import files
import lib

BLOCK = 8 << 20
T = 4096           # tokens of a window
TFRECORD_CLASSES = 1000
EMPTY = bytes(1024)


@dataclass(frozen=True)
class Kind:
    """One dataset: its format, the sizes of its samples, and how it is asked for."""
    format: str
    least: int                 # bytes of a sample, and
    most: int
    shard: int = 64 << 20      # bytes of a file
    stream: tuple[str, ...] = ()   # options of headrace stream
    batch: int = 32
    group: str = ""            # of tests/formats/peers.sh, what is needed to write it

    @property
    def mean(self) -> int:
        return (self.least + self.most) // 2


KINDS = {
    "megatron": Kind("megatron", 2 * (T + 1), 2 * (T + 1), 0, ("--seq-len", str(T))),
    "tar-150k": Kind("tar", 50_000, 250_000, stream=("--fields", "jpg,cls.int")),
    "tar-8k": Kind("tar", 4_000, 12_000, stream=("--fields", "jpg,cls.int"), batch=256),
    "tfrecord": Kind("tfrecord", 4 << 10, 64 << 10, stream=("--fields", "image,label"), batch=64,
                     group="tfrecord"),
    "mds-150k": Kind("mds", 50_000, 250_000, stream=("--fields", "image,label")),
    "mds-8k": Kind("mds", 4_000, 12_000, stream=("--fields", "image,label"), batch=256),
    "npy": Kind("npy", 16384, 16384, 1 << 40, batch=64),
    "arrow": Kind("arrow", 8192, 8192, 1 << 40, stream=("--fields", "tokens"), batch=64,
                  group="arrow"),
    "volumes-npy": Kind("npy", 140_000_000, 140_000_000, 1, ("--whole-files",), batch=1),
    "volumes-mds": Kind("mds", 140_000_000, 140_000_000, 600 << 20, ("--fields", "image"), 1),
}


# -- contents ------------------------------------------------------------------------------------
@functools.lru_cache(maxsize=1)
def _block() -> bytes:
    once = random.Random(7).randbytes(BLOCK)
    return once + once


def _mixed(number: int) -> int:
    x = (number + 1) * 0x9E3779B97F4A7C15 & (1 << 64) - 1
    return (x ^ x >> 29) * 0xBF58476D1CE4E5B9 & (1 << 64) - 1


def length(kind: Kind, number: int) -> int:
    return kind.least + (_mixed(number) >> 20) % (kind.most - kind.least + 1)


def payload(kind: Kind, number: int) -> bytes:
    """The bytes of sample `number`; its first 8 bytes are the number."""
    left, out, at = length(kind, number) - 8, [number.to_bytes(8, "little")], _mixed(number) % BLOCK
    while left > BLOCK:
        out.append(_block()[at:at + BLOCK])
        left -= BLOCK
    out.append(_block()[at:at + left])
    return b"".join(out)


def label(number: int) -> int:
    return _mixed(number) % TFRECORD_CLASSES


def is_sample(kind: Kind, data: Any, labelled: int | None = None) -> bool:
    """Are these the bytes (and is this the label) of some sample?"""
    number = int.from_bytes(bytes(data[:8]), "little")
    return bytes(data) == payload(kind, number) and labelled in (None, label(number))


# -- formats -------------------------------------------------------------------------------------
def _shards(kind: Kind, samples: int) -> Iterator[range]:
    """Runs of sample numbers, one for each file."""
    each = max(1, kind.shard // kind.mean)
    for first in range(0, samples, each):
        yield range(first, min(first + each, samples))
        lib.progress(f"writing {kind.format}: {first * 100 // samples} %")


def _tar_header(name: str, size: int) -> bytes:
    head = bytearray(struct.pack("100s8s8s8s12s12s8sc100s8s32s32s8s8s155s12x", name.encode(),
                                 b"0000644\0", b"0000000\0", b"0000000\0", b"%011o\0" % size,
                                 b"00000000000\0", b" " * 8, b"0", b"", b"ustar\x0000", b"", b"",
                                 b"", b"", b""))
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head)


def _tar(kind: Kind, folder: Path, samples: int) -> None:
    for shard, numbers in enumerate(_shards(kind, samples)):
        with open(folder / f"shard-{shard:05}.tar", "wb", 1 << 20) as out:
            for number in numbers:
                for extension, data in (("cls", b"%d" % label(number)),
                                        ("jpg", payload(kind, number))):
                    out.write(_tar_header(f"{number:09}.{extension}", len(data)))
                    out.write(data + bytes(-len(data) % 512))
            out.write(EMPTY)


def _mds_shard(kind: Kind, out: BinaryIO, numbers: range, head: dict[str, Any],
               columns: list[str]) -> int:
    """Bytes of the shard: count, where each sample begins, what the columns are, samples."""
    text = json.dumps(head, sort_keys=True).encode()
    at = 4 + 4 * (len(numbers) + 1) + len(text)
    fixed = 8 * ("label" in columns)
    starts = array.array("I", [at])
    for number in numbers:
        at += 4 + length(kind, number) + fixed
        starts.append(at)
    out.write(struct.pack("<I", len(numbers)) + starts.tobytes() + text)
    for number in numbers:
        data = payload(kind, number)
        out.write(struct.pack("<I", len(data)) + data)
        out.write(struct.pack("<q", label(number)) if fixed else b"")
    return at


def _mds(kind: Kind, folder: Path, samples: int) -> None:
    columns = {"image": ("bytes", None), "label": ("int", 8)}
    if "label" not in kind.stream[1]:
        del columns["label"]
    head = {"column_encodings": [e for e, _ in columns.values()], "column_names": list(columns),
            "column_sizes": [size for _, size in columns.values()], "compression": None,
            "format": "mds", "hashes": [], "size_limit": kind.shard * 2, "version": 2}
    shards = []
    for shard, numbers in enumerate(_shards(kind, samples)):
        name = f"shard.{shard:05}.mds"
        with open(folder / name, "wb", 1 << 20) as out:
            size = _mds_shard(kind, out, numbers, head, list(columns))
        shards.append({**head, "samples": len(numbers), "zip_data": None,
                       "raw_data": {"basename": name, "bytes": size, "hashes": {}}})
    (folder / "index.json").write_text(json.dumps({"version": 2, "shards": shards}))


def _npy(kind: Kind, folder: Path, samples: int) -> None:
    """One array of rows, or one array a file."""
    width = kind.least // 2
    for shard, numbers in enumerate(_shards(kind, samples)):
        shape = (width,) if len(numbers) == 1 else (len(numbers), width)
        text = f"{{'descr': '<u2', 'fortran_order': False, 'shape': {shape}, }}".encode()
        text += b" " * (-(10 + len(text) + 1) % 64) + b"\n"
        with open(folder / f"array-{shard:05}.npy", "wb", 1 << 20) as out:
            out.write(b"\x93NUMPY\x01\0" + struct.pack("<H", len(text)) + text)
            for number in numbers:
                out.write(payload(kind, number))


def _megatron(_: Kind, folder: Path, samples: int) -> None:
    """Documents of 500 to 1500 tokens of two bytes."""
    tokens = samples * T + 1
    files.make(folder / "text.bin", 2 * tokens)
    sizes, begins, at = array.array("i"), array.array("q"), 0
    while at < tokens:
        size = min(500 + (_mixed(len(sizes)) >> 20) % 1001, tokens - at)
        sizes.append(size)
        begins.append(2 * at)
        at += size
    with open(folder / "text.idx", "wb") as out:
        out.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(sizes), len(sizes) + 1))
        out.write(sizes.tobytes() + begins.tobytes())
        out.write(array.array("q", range(len(sizes) + 1)).tobytes())


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _part(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _example(data: bytes, number: int) -> bytes:
    image = _part(1, _part(1, b"image") + _part(2, _part(1, _part(1, data))))
    of_class = _part(1, _part(1, b"label") + _part(2, _part(3, _part(1, _varint(label(number))))))
    return _part(1, image + of_class)


def _tfrecord(kind: Kind, folder: Path, samples: int) -> None:
    crc32c = importlib.import_module("crc32c").crc32c

    def masked(data: bytes) -> bytes:
        crc = crc32c(data)
        return struct.pack("<I", (crc >> 15 | crc << 17) + 0xA282EAD8 & 0xFFFFFFFF)

    for shard, numbers in enumerate(_shards(kind, samples)):
        name = folder / f"shard-{shard:05}.tfrecord"
        with open(name, "wb", 1 << 20) as out, open(f"{name}.idx", "w") as index:
            for number in numbers:  # the index as the package's own tool tfrecord2idx writes it
                record = _example(payload(kind, number), number)
                head = struct.pack("<Q", len(record))
                index.write(f"{out.tell()} {len(record) + 16}\n")
                out.write(head + masked(head) + record + masked(record))


def _arrow(kind: Kind, folder: Path, samples: int) -> None:
    """Batches of 1000 rows, as libraries of datasets write them."""
    pa = importlib.import_module("pyarrow")
    tokens = pa.list_(pa.uint16(), kind.least // 2)
    schema = pa.schema([("tokens", tokens)])
    with pa.OSFile(str(folder / "data.arrow"), "wb") as out, pa.ipc.new_file(out, schema) as writer:
        for first in range(0, samples, 1000):
            rows = b"".join(payload(kind, i) for i in range(first, min(first + 1000, samples)))
            flat = pa.Array.from_buffers(pa.uint16(), len(rows) // 2, [None, pa.py_buffer(rows)])
            writer.write_batch(pa.record_batch(
                [pa.FixedSizeListArray.from_arrays(flat, type=tokens)], schema=schema))


WRITERS = {"megatron": _megatron, "tar": _tar, "mds": _mds, "npy": _npy, "tfrecord": _tfrecord,
           "arrow": _arrow}


def paths(name: str, folder: Path) -> list[Path]:
    """What is given to headrace stream: the folder, or its one file."""
    return [folder / "text.bin"] if name == "megatron" else [folder]


def data_files(folder: Path) -> list[Path]:
    """All files that hold samples."""
    return sorted(p for p in folder.iterdir() if p.suffix in (
        ".bin", ".tar", ".mds", ".npy", ".tfrecord", ".arrow"))


def make(name: str, folder: Path, size: int) -> int:
    """Write dataset `name` of about `size` bytes into `folder`, unless it is there; its samples."""
    kind, stamp = KINDS[name], folder / "made.json"
    wanted = {"kind": name, "size": size, "rules": 3}
    if stamp.exists():
        told = json.loads(stamp.read_text())
        if {k: told.get(k) for k in wanted} == wanted:
            return told["samples"]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    samples = max(size // kind.mean, 4)
    WRITERS[kind.format](kind, folder, samples)
    for path in data_files(folder):
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
    lib.progress("")
    stamp.write_text(json.dumps({**wanted, "samples": samples}) + "\n")
    return samples


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("kind", choices=sorted(KINDS))
    p.add_argument("folder", type=Path)
    p.add_argument("--size", type=lib.parse_size, default=1 << 30, help="of all samples (1G)")
    args = p.parse_args()
    print(json.dumps({"samples": make(args.kind, args.folder, args.size)}))


if __name__ == "__main__":
    sys.exit(main())
