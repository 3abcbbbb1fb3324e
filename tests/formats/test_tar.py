#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""WebDataset archives as webdataset and tarfile write them, sample by sample as webdataset reads them."""
import io
import os
import random
import tarfile

import common

common.need("webdataset")
import numpy  # noqa: E402
import webdataset  # noqa: E402


class Tar(common.FormatTest):
    def read(self, *paths):
        """By webdataset, without decoding; without what it adds itself."""
        return [{name: value for name, value in sample.items() if not name.startswith("__")}
                for path in paths
                for sample in webdataset.WebDataset(path, shardshuffle=False, empty_check=False)]

    def compare(self, *paths, **options):
        """Every sample, byte by byte. Return: the dump."""
        dump = self.dump(*paths, format="tar", **options)
        want = self.read(*paths)
        self.assertEqual(dump.count, len(want))
        for got, sample in zip(dump.samples, want):
            derived = {name for name in got if name.endswith((".int", ".array"))}
            self.assertEqual({n: v for n, v in got.items() if n not in derived}, sample)
            for name in derived:
                if name.endswith(".int"):
                    self.assertEqual(got[name], int(sample[name[:-4]]))
                else:
                    self.assertEqual(got[name], numpy.load(io.BytesIO(sample[name[:-6]])).tobytes())
        return dump

    def write(self, name, samples):
        with webdataset.TarWriter(self.path(name)) as writer:
            for sample in samples:
                writer.write(sample)
        return self.path(name)

    def samples(self, count, seed=1):
        draw = random.Random(seed)
        for i in range(count):
            yield {"__key__": f"part/{i:06d}", "jpg": draw.randbytes(draw.randrange(3000)),
                   "cls": str(draw.randrange(1000)).encode(), "seg.png": draw.randbytes(64),
                   "txt": b"" if i % 7 == 0 else f"caption {i}".encode()}

    def test_its_own_writer(self):
        paths = [self.write(f"{i}.tar", self.samples(40, seed=i)) for i in range(3)]
        dump = self.compare(*paths)
        self.assertEqual(dump.fields["jpg"]["kind"], "ragged")
        self.assertEqual((dump.fields["seg.png"]["kind"], dump.fields["seg.png"]["shape"]),
                         ("fixed", [64]))
        self.assertEqual((dump.fields["cls.int"]["kind"], dump.fields["cls.int"]["dtype"]),
                         ("scalar", "i64"))
        self.assertEqual(dump.samples, self.dump(self.dir, index_dir=self.dir).samples)

    def test_python_objects(self):
        """What its encoders make of numbers, texts and JSON."""
        path = self.write("a.tar", ({"__key__": str(i), "cls": i, "txt": f"t{i}", "json": {"i": i}}
                                    for i in range(20)))
        self.compare(path)

    def test_arrays(self):
        """Typed where all are alike; rows of any length; as bytes in any case."""
        draw = numpy.random.default_rng(3)
        path = self.write("a.tar", (
            {"__key__": str(i), "image.npy": draw.standard_normal((3, 5)).astype("<f4"),
             "tokens.npy": numpy.arange(draw.integers(50), dtype="<u2"),
             "other.npy": numpy.zeros((2, i + 1)), "number.npy": numpy.float64(i),
             "big.npy": numpy.zeros((2, 2), ">f4")} for i in range(20)))
        dump = self.compare(path)
        kinds = {name: (f["kind"], f["dtype"], f["shape"]) for name, f in dump.fields.items()
                 if name.endswith(".array")}
        self.assertEqual(kinds, {"image.npy.array": ("fixed", "f32", [3, 5]),
                                 "tokens.npy.array": ("ragged", "u16", [0])})

    def archive(self, name, tar_format, members):
        with tarfile.open(self.path(name), "w", format=tar_format) as archive:
            for member, data in members:
                info = tarfile.TarInfo(member)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
        return self.path(name)

    def test_formats_of_tar(self):
        """Short and long names, with other letters, in every format that can have them."""
        draw = random.Random(5)
        short = [(f"{i:03d}.{e}", draw.randbytes(draw.randrange(2000)))
                 for i in range(30) for e in ("bin", "TXT", "a.b")]
        middle = [(f"{'folder.d/' * 9}{'n' * 60}{i:03d}.{e}", draw.randbytes(draw.randrange(2000)))
                  for i in range(10) for e in ("bin", "txt")]
        long = [(f"{'ordner-ü/' * 30}{'n' * 120}{i:03d}.{e}", draw.randbytes(draw.randrange(2000)))
                for i in range(10) for e in ("bin", "txt")]
        for number, (tar_format, members) in enumerate([
                (tarfile.USTAR_FORMAT, short), (tarfile.USTAR_FORMAT, middle),
                (tarfile.GNU_FORMAT, short), (tarfile.GNU_FORMAT, middle), (tarfile.GNU_FORMAT, long),
                (tarfile.PAX_FORMAT, short), (tarfile.PAX_FORMAT, middle), (tarfile.PAX_FORMAT, long)]):
            with self.subTest(number):
                self.compare(self.archive(f"{number}.tar", tar_format, members))

    def test_what_is_skipped(self):
        path = self.path("a.tar")
        with tarfile.open(path, "w") as archive:
            for name, kind in (("folder", tarfile.DIRTYPE), ("a.lnk", tarfile.SYMTYPE),
                               ("0.txt", tarfile.REGTYPE), ("README", tarfile.REGTYPE),
                               ("0.bin", tarfile.REGTYPE), ("__meta__", tarfile.REGTYPE),
                               ("__x__/0.txt", tarfile.REGTYPE), (".hidden.txt", tarfile.REGTYPE),
                               ("1.fifo", tarfile.FIFOTYPE), ("1.txt", tarfile.REGTYPE),
                               ("1.bin", tarfile.REGTYPE)):
                info = tarfile.TarInfo(name)
                info.type = kind
                info.size = 3 if kind == tarfile.REGTYPE else 0
                archive.addfile(info, io.BytesIO(b"abc"))
        self.assertEqual(self.compare(path).count, 2)

    def test_keys_that_come_again(self):
        path = self.archive("a.tar", tarfile.USTAR_FORMAT, [("0.txt", b"a"), ("1.txt", b"b"),
                                                            ("0.txt", b"c")])
        self.assertEqual(self.compare(path).count, 3)

    def test_damage(self):
        """What webdataset raises at is one damaged sample here, with its place."""
        path = self.archive("a.tar", tarfile.USTAR_FORMAT, [("0.txt", b"a"), ("1.txt", b"b"),
                                                            ("1.txt", b"c"), ("2.txt", b"d")])
        with self.assertRaises(ValueError):
            self.read(path)
        self.refused(["a.tar", "byte 2048", "second member"], path, format="tar")
        dump = self.dump(path, corrupt="skip")
        self.assertEqual([s["txt"] for s in dump.samples], [b"a", b"d"])
        self.assertEqual(dump.head["corrupt"], 1)
        dump = self.dump(path, corrupt="substitute")
        self.assertEqual([s["txt"] for s in dump.samples], [b"a", b"d", b"d"])
        whole = self.write("b.tar", self.samples(5))
        os.truncate(whole, os.path.getsize(whole) // 2 - 700)
        self.refused(["b.tar", "byte", "cut short"], whole)

    def test_fields(self):
        path = self.archive("a.tar", tarfile.USTAR_FORMAT, [("0.txt", b"a"), ("0.jpg", b"A"),
                                                            ("1.jpg", b"B")])
        self.assertEqual(list(self.dump(path).fields), ["jpg"])
        self.refused(["sample 1 has no field \"txt\""], path, field=["jpg", "txt"])
        dump = self.dump(path, field=["jpg", "txt"], corrupt="skip")
        self.assertEqual(dump.samples, [{"jpg": b"A", "txt": b"a"}])

    def test_mistakes(self):
        path = self.write("a.tar", self.samples(3))
        import gzip
        with open(path, "rb") as f, open(self.path("a.tar.gz"), "wb") as out:
            out.write(gzip.compress(f.read()))
        self.refused(["gzip", "decompress"], self.path("a.tar.gz"), format="tar")


if __name__ == "__main__":
    common.main()
