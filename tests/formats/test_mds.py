# SPDX-License-Identifier: Apache-2.0
"""MDS: datasets written by mosaicml-streaming's MDSWriter, every column of every sample compared with the
bytes that its MDSReader cuts out, and with the values that it decodes."""
import json
import os
import shutil

import common

common.need("mds")
common.hollow("streaming", "streaming.base")

import numpy as np  # noqa: E402

from streaming.base.format.mds import reader as mds_reader  # noqa: E402
from streaming.base.format.mds.encodings import mds_decode  # noqa: E402
from streaming.base.format.mds.writer import MDSWriter  # noqa: E402

NUMBERS = ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16",
           "float32", "float64"]


def write(folder, columns, samples, **options):
    with MDSWriter(columns=columns, out=folder, **options) as writer:
        for sample in samples:
            writer.write(sample)


def read(folder):
    """All samples as {column: bytes}, and the values of numbers and arrays."""
    mds_reader.mds_decode = lambda encoding, data: (encoding, data)
    with open(os.path.join(folder, "index.json"), encoding="utf-8") as file:
        shards = json.load(file)["shards"]
    samples = []
    for shard in shards:
        reader = mds_reader.MDSReader.from_json(folder, "", shard)
        for i in range(reader.samples):
            samples.append(reader.decode_sample(reader.get_sample_data(i)))
    mds_reader.mds_decode = mds_decode
    return samples


class Mds(common.FormatTest):
    def compare(self, folder, left_out=(), **options):
        dump = self.dump(folder, **options)
        want = read(folder)
        self.assertEqual(dump.format, "mds")
        self.assertEqual(dump.count, len(want))
        for got, sample in zip(dump.samples, want):
            self.assertEqual(set(got), set(sample) - set(left_out))
            for name, value in got.items():
                encoding, data = sample[name]
                self.assertEqual(value, data, name)
                self.values(dump.fields[name], encoding, value)
        return dump

    def values(self, field, encoding, data):
        """What Headrace says of type and shape gives the value that the library decodes."""
        if field["kind"] != "fixed":
            return
        dtype = {"u": "uint", "i": "int", "f": "float"}[field["dtype"][0]] + field["dtype"][1:]
        array = np.frombuffer(data, dtype).reshape(field["shape"])
        self.assertTrue(np.array_equal(array, mds_decode(encoding, data), equal_nan=True))

    def test_fixed(self):
        rng = np.random.default_rng(1)
        columns = {name: name for name in NUMBERS}
        columns.update({"int": "int", "x": "ndarray:float32:3,4,5", "t": "ndarray:uint16:33"})
        samples = []
        for i in range(100):
            sample = {name: np.frombuffer(rng.bytes(8), name)[0] for name in NUMBERS}
            sample["int"] = int(rng.integers(-2 ** 62, 2 ** 62))
            sample["x"] = rng.random((3, 4, 5), np.float32)
            sample["t"] = rng.integers(0, 2 ** 16, 33, np.uint16)
            samples.append(sample)
        write(self.path("out"), columns, samples, size_limit=4096)
        dump = self.compare(self.path("out"))
        self.assertGreater(len(os.listdir(self.path("out"))), 5)
        self.assertTrue(all(f["kind"] == "fixed" for f in dump.fields.values()))
        self.assertEqual(dump.fields["x"]["shape"], [3, 4, 5])

    def test_one_variable(self):
        rng = np.random.default_rng(2)
        samples = [{"id": i, "tokens": rng.bytes(int(rng.integers(0, 300))), "weight": 0.5 * i}
                   for i in range(200)]
        columns = {"id": "int", "tokens": "bytes", "weight": "float64"}
        write(self.path("out"), columns, samples, size_limit=5000)
        dump = self.compare(self.path("out"))
        self.assertEqual(dump.fields["tokens"]["bytes"], max(len(s["tokens"]) for s in samples))

    def test_several_variable(self):
        rng = np.random.default_rng(3)
        columns = {"a": "str", "b": "int32", "c": "ndarray", "d": "ndarray:int16", "e": "json",
                   "f": "jpeg", "g": "float32", "h": "str_int"}
        samples = [{"a": "ä" * int(rng.integers(0, 40)), "b": np.int32(i),
                    "c": rng.random((int(rng.integers(1, 4)), 3)),
                    "d": np.arange(int(rng.integers(1, 9)), dtype=np.int16),
                    "e": {"k": list(range(i % 7))}, "f": rng.bytes(i % 50),
                    "g": np.float32(i), "h": 10 ** (i % 30)} for i in range(150)]
        write(self.path("out"), columns, samples, size_limit=10000)
        self.compare(self.path("out"))

    def test_single_shard_alone(self):
        samples = [{"x": np.arange(i, i + 4, dtype=np.int32)} for i in range(30)]
        write(self.path("out"), {"x": "ndarray:int32:4"}, samples)
        shard = os.path.join(self.path("out"), "shard.00000.mds")
        self.assertEqual(self.dump(shard).samples, self.dump(self.path("out")).samples)
        manifest = os.path.join(self.path("out"), "index.json")
        self.assertEqual(self.dump(manifest).samples, self.dump(self.path("out")).samples)
        os.remove(manifest)  # then its files, by name
        self.compare_alone(self.path("out"), samples)

    def compare_alone(self, folder, samples):
        dump = self.dump(folder)
        self.assertEqual([s["x"] for s in dump.samples], [s["x"].tobytes() for s in samples])

    def test_chosen_fields(self):
        samples = [{"a": i, "b": b"x" * i, "c": i} for i in range(20)]
        write(self.path("out"), {"a": "int", "b": "bytes", "c": "uint8"}, samples)
        dump = self.dump(self.path("out"), field=["c", "b"])
        self.assertEqual(dump.samples, [{"b": b"x" * i, "c": bytes([i])} for i in range(20)])
        self.refused(["no field", "nix"], self.path("out"), field="nix")

    def test_pickle(self):
        samples = [{"a": i, "p": {1: i}} for i in range(20)]
        write(self.path("out"), {"a": "int", "p": "pkl"}, samples)
        self.compare(self.path("out"), left_out=["p"])
        self.refused(["pickle", "leave it out"], self.path("out"), field="p")

    def test_compressed(self):
        samples = [{"a": i} for i in range(100)]
        for how in ("zstd", "gz"):
            write(self.path(how), {"a": "int"}, samples, compression=how)
            self.refused(["only compressed", how, "compression=None"], self.path(how))
            shard = os.path.join(self.path(how), "shard.00000.mds." + how)
            self.refused(["compressed"], shard, format="mds")

    def test_swapped_and_missing(self):
        samples = [{"a": b"x" * i} for i in range(300)]
        write(self.path("out"), {"a": "bytes"}, samples, size_limit=8000)
        names = [os.path.join(self.path("out"), f"shard.{k:05}.mds") for k in range(2)]
        with open(names[1], "r+b") as file:
            file.truncate(os.path.getsize(names[1]) - 1)
        self.refused(["shard.00001.mds", "index.json says"], self.path("out"))
        shutil.copy(names[0], names[1])
        self.refused(["shard.00001.mds"], self.path("out"))
        os.remove(names[1])
        self.refused(["shard.00001.mds"], self.path("out"))

    def test_too_large(self):
        """Beyond 4 GiB the writer's offsets wrap: such a shard must not be read."""
        write(self.path("out"), {"a": "int"}, [{"a": i} for i in range(10)])
        shard = os.path.join(self.path("out"), "shard.00000.mds")
        with open(shard, "r+b") as file:
            file.truncate(2 ** 32 + 100)
        self.refused(["4 GiB", "size_limit"], shard, format="mds")

    def test_hashes(self):
        write(self.path("out"), {"a": "int"}, [{"a": i} for i in range(10)],
              hashes=["sha1", "xxh64"])
        self.compare(self.path("out"))


if __name__ == "__main__":
    common.main()
