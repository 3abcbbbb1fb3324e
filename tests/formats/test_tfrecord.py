#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""TFRecords as the tfrecord package writes them, record by record as it reads them."""
import os
import random
import struct

import common

common.need("tfrecord")
import numpy  # noqa: E402
import tfrecord  # noqa: E402
from tfrecord.reader import tfrecord_iterator  # noqa: E402
from tfrecord.writer import TFRecordWriter  # noqa: E402


class Records(common.FormatTest):
    def write(self, name, records, sequences=None):
        writer = TFRecordWriter(self.path(name))
        for i, record in enumerate(records):
            writer.write(record, sequences[i] if sequences else None)
        writer.close()
        return self.path(name)

    def raw(self, name, payloads):
        with open(self.path(name), "wb") as f:
            for payload in payloads:
                length = struct.pack("<Q", len(payload))
                f.write(length + TFRecordWriter.masked_crc(length) + payload +
                        TFRecordWriter.masked_crc(payload))
        return self.path(name)

    def examples(self, count, seed=1):
        draw = random.Random(seed)
        for i in range(count):
            yield {"image/encoded": (draw.randbytes(draw.randrange(5000)), "byte"),
                   "image/height": (draw.randrange(4000), "int"),
                   "label": (draw.randrange(-(1 << 62), 1 << 62), "int"),
                   "box": ([draw.random() for _ in range(4)], "float"),
                   "score": (draw.random(), "float"),
                   "points": ([draw.random() for _ in range(draw.randrange(20))], "float"),
                   "name": (f"sample {i:05d}".encode(), "byte")}

    def compare(self, path, **options):
        dump = self.dump(path, **options)
        count = 0
        for got, want in zip(dump.samples, tfrecord.tfrecord_loader(path, None)):
            count += 1
            self.assertEqual(set(got), set(want))
            for name, value in want.items():
                field = dump.fields[name]
                if field["kind"] == "scalar":
                    self.assertEqual([got[name]], list(numpy.atleast_1d(value)))
                elif field["dtype"] == "f32":
                    numpy.testing.assert_array_equal(
                        numpy.frombuffer(got[name], "<f4"), numpy.atleast_1d(value).astype("<f4"))
                else:
                    self.assertEqual(got[name], bytes(value))
        self.assertEqual(count, dump.count)
        return dump

    def test_examples(self):
        path = self.write("a.tfrecord", self.examples(60))
        dump = self.compare(path)
        self.assertEqual(dump.count, 60)
        kinds = {name: (f["kind"], f["dtype"], f["shape"]) for name, f in dump.fields.items()}
        self.assertEqual(kinds, {"image/encoded": ("ragged", "u8", [0]),
                                 "image/height": ("scalar", "i64", []), "label": ("scalar", "i64", []),
                                 "box": ("fixed", "f32", [4]), "score": ("fixed", "f32", [1]),
                                 "points": ("ragged", "f32", [0]), "name": ("fixed", "u8", [12])})

    def test_several_files(self):
        for i in range(3):
            self.write(f"{i}.tfrecord", self.examples(10, seed=i))
        dump = self.dump(self.dir, format="tfrecord")
        self.assertEqual(dump.count, 30)
        self.assertEqual(dump.samples[10:20], self.dump(self.path("1.tfrecord")).samples)

    def test_whole_records(self):
        path = self.write("a.tfrecord", self.examples(20))
        want = [bytes(view) for view in tfrecord_iterator(path)]
        dump = self.dump(path, field="record")
        self.assertEqual([s["record"] for s in dump.samples], want)

    def test_payloads_of_other_kinds(self):
        payloads = [b"", b"any", os.urandom(3000), b"\x0a", bytes(range(256)) * 9000]
        path = self.raw("a.tfrecord", payloads)
        self.assertEqual([s["record"] for s in self.dump(path).samples], payloads)
        sequence = self.write("b.tfrecord", [{"length": (2, "int")}] * 3,
                              [{"tokens": ([[1], [2]], "int")}] * 3)
        want = [bytes(view) for view in tfrecord_iterator(sequence)]
        self.assertEqual([s["record"] for s in self.dump(sequence).samples], want)

    def test_lists_that_are_left_out(self):
        path = self.write("a.tfrecord", ({"ids": ([1, 2, 300], "int"), "names": ([b"a", b"b"], "byte"),
                                          "label": (i, "int")} for i in range(5)))
        dump = self.dump(path)
        self.assertEqual(dump.samples, [{"label": i} for i in range(5)])
        self.refused(["\"ids\"", "several integers", "there are: record, label"], path, field="ids")
        self.refused(["\"names\"", "several byte strings"], path, field="names")

    def test_damage(self):
        path = self.write("a.tfrecord", self.examples(4))
        with open(path, "r+b") as f:
            first = struct.unpack("<Q", f.read(8))[0]
            f.seek(16 + first + 100)
            byte = f.read(1)[0]
            f.seek(-1, os.SEEK_CUR)
            f.write(bytes([byte ^ 4]))
        self.refused(["a.tfrecord", f"byte {16 + first + 12}", "record 1", "checksum"], path)
        whole = list(tfrecord.tfrecord_loader(self.write("b.tfrecord", self.examples(4)), None))
        dump = self.dump(path, corrupt="skip")
        self.assertEqual([s["name"] for s in dump.samples],
                         [bytes(whole[i]["name"]) for i in (0, 2, 3)])
        os.truncate(self.path("b.tfrecord"), os.path.getsize(path) - 5)
        self.refused(["b.tfrecord", "cut short"], self.path("b.tfrecord"))
        self.assertEqual(self.dump(self.path("b.tfrecord"), corrupt="skip").count, 3)

    def test_compressed_as_a_whole(self):
        import gzip
        import zlib
        with open(self.write("a.tfrecord", self.examples(4)), "rb") as f:
            data = f.read()
        for name, packed, word in (("gz", gzip.compress(data), "gzip"), ("zz", zlib.compress(data), "zlib")):
            with open(self.path(name), "wb") as f:
                f.write(packed)
            self.refused([name, word], self.path(name), format="tfrecord")


if __name__ == "__main__":
    common.main()
