#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The verb load: bytes, subsets, slices, what it refuses, and what it writes with --save.

Files are made by a writer of a few lines that follows the description of the format; where the
reference implementation is installed (Python package safetensors), --save is compared with it, and
it must refuse every malformed header that the verb refuses for a reason of the format.
"""
import ctypes
import hashlib
import json
import os
import random
import struct
import unittest

import common

try:
    import safetensors
except ImportError:
    safetensors = None

ORDER = ["BOOL", "F4", "F6_E2M3", "F6_E3M2", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0",
         "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I16", "U16", "F16", "BF16", "I32", "U32", "F32", "C64",
         "F64", "I64", "U64"]
BITS = {"BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "C64": 64}
GIB = 1 << 30


def bits(dtype):
    return BITS.get(dtype) or int("".join(c for c in dtype.split("_")[0] if c.isdigit()))  # F8 -> 8


def dtype_bits(dtype):
    return 16 if dtype == "BF16" else bits(dtype)


def product(shape):
    n = 1
    for d in shape:
        n *= d
    return n


def pack(tensors, metadata=None, sort=True, pad=8):
    """{name: (dtype, shape, bytes)} as a file, in the order of the reference implementation."""
    items = list(tensors.items())
    if sort:
        items.sort(key=lambda i: (-ORDER.index(i[1][0]), i[0].encode()))
    head, data = {}, b""
    if metadata is not None:
        head["__metadata__"] = metadata
    for name, (dtype, shape, raw) in items:
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(head, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % pad)
    return struct.pack("<Q", len(text)) + text + data


def raw(header, data=b""):
    header = header if isinstance(header, bytes) else header.encode()
    return struct.pack("<Q", len(header)) + header + data


def entry(dtype="U8", shape="[1]", offsets="[0,1]"):
    return f'{{"a":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}}}'


# header and data, what the sentence must say; every one of these breaks a rule of the format
MALFORMED = {
    "cut length": (b"\2\0\0", "at least 8"),
    "empty file": (b"", "at least 8"),
    "huge length": (b"\xff" * 8 + b"{}", "the format allows 100000000"),
    "length over the limit": (struct.pack("<Q", 100000001) + b"{}", "the format allows 100000000"),
    "length past the end": (struct.pack("<Q", 3) + b"{}", "does not fit"),
    "length zero": (struct.pack("<Q", 0), "the shortest is {}"),
    "no brace": (raw("[]"), "must begin with '{'"),
    "blank first": (raw(" {}"), "must begin with '{'"),
    "cut header": (raw('{"a":'), "found the end"),
    "two objects": (raw("{}{}"), "something follows"),
    "not utf-8": (raw(b'{"\xff":1}'), "not valid UTF-8"),
    "lone surrogate": (raw('{"\\ud800":{}}'), "lone surrogate"),
    "trailing comma": (raw('{"__metadata__":{},}'), "comma with nothing behind it"),
    "negative shape": (raw(entry(shape="[-1]"), b"a"), "is negative"),
    "float shape": (raw(entry(shape="[1.0]"), b"a"), "digits alone"),
    "exponent": (raw(entry(shape="[1e0]"), b"a"), "digits alone"),
    "NaN": (raw(entry(shape="[NaN]"), b"a"), "must be a number"),
    "shape too large": (raw(entry(shape="[18446744073709551616]"), b"a"), "more than 2^64 - 1"),
    "elements overflow": (raw(entry(shape="[9223372036854775808,2]"), b"a"), "2^64 elements"),
    "bits overflow": (raw(entry("F64", "[9223372036854775807]"), b"a"), "2^64 bits"),
    "half a byte": (raw(entry("F4", "[3]", "[0,1]"), b"a"), "do not fill whole bytes"),
    "size": (raw(entry(shape="[2]"), b"a"), "make 2 bytes, its data_offsets 1"),
    "one offset": (raw(entry(offsets="[0]"), b"a"), "two are needed"),
    "three offsets": (raw(entry(offsets="[0,1,1]"), b"a"), "more than two"),
    "offsets backwards": (raw(entry(offsets="[1,0]"), b"a"), "end before they begin"),
    "hole at the start": (raw(entry(offsets="[1,2]"), b"aa"), "belong to no tensor"),
    "truncated": (raw(entry(shape="[9]", offsets="[0,9]"), b"a"), "it was truncated"),
    "trailing bytes": (raw(entry(), b"aa"), "follow behind the last tensor"),
    "unknown dtype": (raw(entry("F128"), b"a"), "the dtype F128"),
    "no dtype": (raw('{"a":{"shape":[1],"data_offsets":[0,1]}}', b"a"), "has no dtype"),
    "no shape": (raw('{"a":{"dtype":"U8","data_offsets":[0,1]}}', b"a"), "has no shape"),
    "no offsets": (raw('{"a":{"dtype":"U8","shape":[1]}}', b"a"), "has no data_offsets"),
    "field twice": (raw('{"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"a"),
                    "a field twice"),
    "metadata number": (raw('{"__metadata__":{"a":1}}'), "must be a string"),
    "overlap": (raw('{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},'
                    '"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}', b"abc"), "overlap at byte 1"),
    "hole": (raw('{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
                 '"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}}', b"abc"), "bytes 1 to 2"),
    "deep": (raw('{"a":{"x":' + "[" * 100000), "inside each other"),
}
# the format forbids these too, but the reference implementation lets them through
STRICTER = {
    "name twice": (raw('{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
                       '"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}', b"ab"), "tensor a twice"),
    "metadata twice": (raw('{"__metadata__":{"a":"","a":""}}'), "the key a twice"),
    "NUL in a name": (raw('{"\\u0000":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"a"), "NUL"),
}


class Load(common.CliTest):
    def model(self, seed=1, odd=0):
        rnd = random.Random(seed)
        tensors = {}
        for i, dtype in enumerate(ORDER):
            shape = [8 * (1 + i % 3), 4, 4 * (1 + i)]
            tensors[f"layer.{i}.{dtype}"] = (dtype, shape,
                                             rnd.randbytes(product(shape) * dtype_bits(dtype) // 8))
        tensors["big"] = ("BF16", [600, 1001], rnd.randbytes(600 * 1001 * 2))
        tensors["empty"] = ("F32", [0, 3], b"")
        tensors["scalar \"\\\n\u00e9\U0001f600"] = ("F64", [], rnd.randbytes(8))
        return tensors

    def load(self, *args, **kw):
        return self.ok("load", "--device", "host", "--json", "--verify", *args, **kw).json

    def test_all_types(self):
        tensors = self.model()
        path = self.raw("m.safetensors", pack(tensors, {"format": "pt"}))
        size = sum(len(t[2]) for t in tensors.values())
        for extra in ([], ["--direct"], ["--path", "bounce"], ["--request", "64K"],
                      ["--cache", "drop"], ["--cache", "keep"]):
            got = self.load(path, *extra)
            self.assertIs(got["verified"], True)
            self.assertEqual(got["tensors"], len(tensors))
            self.assertEqual(got["bytes"], size)
            self.assertEqual(sum(got["bytes_by_path"].values()), size)
            self.assertGreater(got["seconds"], 0)
        self.no_leftovers("m.safetensors")

    def test_any_start(self):
        """Data that begins at an odd byte, as files of others have it."""
        for pad in (1, 509, 4096, 4099):
            path = self.raw("m.safetensors", pack(self.model(pad), sort=False, pad=pad))
            self.assertIs(self.load(path)["verified"], True)

    def test_subset_and_slices(self):
        tensors = self.model()
        path = self.raw("m.safetensors", pack(tensors))
        got = self.load(path, "--tensors", "layer.1?.*")
        self.assertEqual(got["tensors"], 10)
        self.assertEqual(got["bytes"], sum(len(t[2]) for n, t in tensors.items()
                                           if n.startswith("layer.1") and n[7] != "."))
        self.fails(1, ["no tensor matches 'x*'", "--list"], "load", "--device", "host", path,
                   "--tensors", "x*")
        for dim, count in ((0, 2), (1, 4), (0, 4), (2, 1), (7, 3)):
            whole = 0
            for index in range(count):
                got = self.load(path, "--slice", f"{dim}:{index}/{count}")
                self.assertIs(got["verified"], True)
                whole += got["bytes"]
            if dim == 0:
                self.assertEqual(whole, sum(len(t[2]) for t in tensors.values())
                                 + 8 * (count - 1))  # the scalar comes whole
        got = self.load(path, "--tensors", "big", "--slice", "1:0/4")
        self.assertEqual(got["bytes"], 600 * 251 * 2)
        self.fails(1, ["layer.1.F4", "inside of a byte"], "load", "--device", "host", path,
                   "--slice", "2:0/8", "--tensors", "*.F4")

    def test_reads_only_what_it_needs(self):
        data = random.Random(3).randbytes(64 << 20)
        path = self.raw("m.safetensors", pack({"w": ("U8", [64, 1 << 20], data)}))
        got = self.load(path, "--slice", "0:3/8")
        self.assertEqual(got["bytes"], 8 << 20)
        self.assertLess(got["bytes_read"], 9 << 20)
        got = self.load(path, "--slice", "1:3/8")
        self.assertEqual(got["bytes"], 8 << 20)
        self.assertLess(got["bytes_read"], 9 << 20)
        self.assertLess(got["reads"], 200)

    def test_list(self):
        path = self.raw("m.safetensors", pack(self.model()))
        got = self.ok("load", "--list", "--json", path).json["weights"]
        self.assertEqual(len(got), len(self.model()))
        self.assertEqual([w["dtype"] for w in got if w["name"] == "big"], ["BF16"])
        done = self.ok("load", "--list", path, "--tensors", "big")
        self.assertRegex(done.out, r"^BF16 +1201200  big  \[600, 1001\]\n$")
        path = self.raw("evil.safetensors", pack({"\x1b[2J": ("U8", [1], b"a")}))
        self.assertNotIn("\x1b", self.ok("load", "--list", path).out)

    def test_sha256(self):
        data = pack(self.model())
        path = self.raw("m.safetensors", data)
        digest = hashlib.sha256(data).hexdigest()
        self.assertIs(self.load(path, "--sha256", digest.upper())["verified"], True)
        self.fails(1, [path, digest, "not " + "0" * 64], "load", "--device", "host", path,
                   "--sha256", "0" * 64)
        for size in (0, 55, 56, 63, 64, 119):
            data = pack({"x": ("U8", [size], b"a" * size)}, pad=1)
            path = self.raw("m.safetensors", data)
            self.load(path, "--sha256", hashlib.sha256(data).hexdigest())

    def test_shards(self):
        one, two = self.model(1), {f"two.{n}": t for n, t in self.model(2).items()}
        self.raw("model-1.safetensors", pack(one))
        self.raw("model-2.safetensors", pack(two))
        places = {**{n: "model-1.safetensors" for n in one}, **{n: "model-2.safetensors" for n in two}}
        index = self.raw("model.safetensors.index.json", json.dumps({
            "metadata": {"total_size": 1}, "weight_map": places}, indent=2).encode())
        for model in ([index], [self.dir], [self.path("model-1.safetensors"),
                                            self.path("model-2.safetensors")]):
            got = self.load(*model)
            self.assertEqual((got["files"], got["tensors"]), (2, len(one) + len(two)))
            self.assertIs(got["verified"], True)
        del places["big"]
        self.raw("model.safetensors.index.json", json.dumps({"weight_map": places}).encode())
        self.fails(1, ["model-1.safetensors", "does not list its tensor big"], "load", "--device",
                   "host", index)
        self.assertEqual(self.load(index, "--lenient")["tensors"], len(one) + len(two) - 1)
        places["more"] = "model-3.safetensors"
        self.raw("model.safetensors.index.json", json.dumps({"weight_map": places}).encode())
        self.fails(1, ["model-3.safetensors", "missing"], "load", "--device", "host", index,
                   "--lenient")

    def test_malformed(self):
        for name, (data, words) in {**MALFORMED, **STRICTER}.items():
            with self.subTest(name):
                path = self.raw("m.safetensors", data)
                self.fails(1, [path, words], "load", "--device", "host", path)
        path = self.raw("m.safetensors", MALFORMED["trailing bytes"][0])
        self.assertEqual(self.load(path, "--lenient")["bytes"], 1)
        path = self.raw("m.safetensors", b"version https://git-lfs.github.com/spec/v1\n")
        self.fails(1, [path, "git lfs pull"], "load", "--device", "host", path)

    @unittest.skipUnless(safetensors, "the Python package safetensors is not installed")
    def test_malformed_for_the_reference(self):
        for name, (data, _) in MALFORMED.items():
            if name == "blank first":
                continue  # against the description of the format, and let through
            with self.subTest(name), self.assertRaises(Exception):
                safetensors.deserialize(data)

    def test_save(self):
        """What is written is what the writer above writes, whatever the order of the source."""
        for sort in (True, False):
            tensors = self.model(5)
            path = self.raw("m.safetensors", pack(tensors, {"format": "pt"}, sort, 3))
            got = self.load(path, "--save", self.path("out"))
            with open(self.path("out"), "rb") as f:
                self.assertEqual(f.read(), pack(tensors, {"format": "pt"}))
            self.assertEqual(got["bytes_written"], os.path.getsize(self.path("out")))
        self.load(path, "--tensors", "big", "--slice", "1:1/4", "--save", self.path("out"))
        rows = tensors["big"][2]
        part = b"".join(rows[r * 2002 + 502:r * 2002 + 1004] for r in range(600))
        with open(self.path("out"), "rb") as f:
            self.assertEqual(f.read(), pack({"big": ("BF16", [600, 251], part)}, {"format": "pt"}))
        self.no_leftovers("m.safetensors", "out")

    @unittest.skipUnless(safetensors, "the Python package safetensors is not installed")
    def test_save_like_the_reference(self):
        # that package wants names of frameworks
        names = {"BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "U16": "uint16",
                 "F16": "float16", "BF16": "bfloat16", "I32": "int32", "U32": "uint32",
                 "F32": "float32", "F64": "float64", "I64": "int64", "U64": "uint64",
                 "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "C64": "complex64"}
        tensors = {n: t for n, t in self.model(9).items() if t[0] in names}
        held = {n: ctypes.create_string_buffer(t[2], len(t[2])) for n, t in tensors.items()}
        want = safetensors.serialize({n: safetensors.TensorSpec(
            dtype=names[t[0]], shape=t[1], data_ptr=ctypes.addressof(held[n]), data_len=len(t[2]))
                                      for n, t in tensors.items()}, {"format": "pt"})
        path = self.raw("m.safetensors", pack(tensors, {"format": "pt"}, sort=False))
        self.load(path, "--save", self.path("out"))
        with open(self.path("out"), "rb") as f:
            self.assertEqual(f.read(), bytes(want))

    def test_conversion(self):
        data = struct.pack("<5H", 0, 1, 2, 40000, 65535)
        path = self.raw("m.safetensors", pack({"ids": ("U16", [5], data), "w": ("BOOL", [1], b"\1")}))
        self.ok("load", "--device", "host", path, "--out-dtype", "I64", "--save", self.path("out"))
        with open(self.path("out"), "rb") as f:
            self.assertEqual(f.read(), pack({
                "ids": ("I64", [5], struct.pack("<5q", 0, 1, 2, 40000, 65535)),
                "w": ("BOOL", [1], b"\1")}))

    def test_gpu(self):
        path = self.raw("m.safetensors", pack(self.model()))
        env = {"LD_LIBRARY_PATH": os.environ["FAKECUDA"]}
        got = self.ok("load", "--device", "cuda:0", "--json", "--verify", path, "--save",
                      self.path("out"), env=env).json
        self.assertIs(got["verified"], True)
        self.assertEqual(list(got["bytes_by_path"]), ["bounce"])
        with open(self.path("out"), "rb") as f:
            self.assertEqual(f.read(), pack(self.model()))

    def test_five_gib(self):
        """Offsets behind 4 GiB: a file that is a hole with something in it."""
        head = raw(json.dumps({"t": {"dtype": "U8", "shape": [5, GIB], "data_offsets": [0, 5 * GIB]}}))
        with open(self.path("m.safetensors"), "wb") as f:
            f.write(head)
            f.truncate(len(head) + 5 * GIB)
            f.seek(len(head) + 5 * GIB - 12345)
            f.write(b"behind")
        got = self.load(self.path("m.safetensors"), "--slice", "1:63/64", "--direct")
        self.assertEqual(got["bytes"], 5 * GIB // 64)
        self.assertIs(got["verified"], True)

    def test_usage(self):
        path = self.raw("m.safetensors", pack(self.model()))
        for words, args in ((["DIM:INDEX/COUNT"], ["--slice", "1"]),
                            (["DIM:INDEX/COUNT"], ["--slice", "0:1/4x"]),
                            (["DIM:INDEX/COUNT"], ["--slice", "-1:0/4"]),
                            (["counts from 0"], ["--slice", "0:4/4"]),
                            (["counts from 0"], ["--slice", "0:0/0"]),
                            (["no such type"], ["--out-dtype", "bf17"]),
                            (["64 hexadecimal"], ["--sha256", "abc"]),
                            (["exclude each other"], ["--strict", "--lenient"]),
                            (["exclude each other"], ["--direct", "--cache", "keep"]),
                            (["leave --out-dtype out"], ["--verify", "--out-dtype", "F32"])):
            self.fails(2, words, "load", path, *args)
        self.fails(2, ["for one file"], "load", path, path, "--sha256", "0" * 64)
        self.fails(1, ["both have the tensor"], "load", "--device", "host", path, path)
        self.fails(1, [self.path("none"), "no such file"], "load", "--device", "host",
                   self.path("none"))
        self.fails(1, [self.path("no/out")], "load", "--device", "host", path, "--save",
                   self.path("no/out"))


if __name__ == "__main__":
    common.main()
