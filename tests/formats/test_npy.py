# SPDX-License-Identifier: Apache-2.0
"""Arrays that numpy saved, row by row and as whole files, against numpy's own reading."""
import sys

import common

try:
    import numpy
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(common.EXIT_SKIP)

TYPES = {"bool": "bool", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
         "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64",
         "float16": "f16", "float32": "f32", "float64": "f64"}


def make(dtype, shape, seed=1):
    size = numpy.dtype(dtype).itemsize * int(numpy.prod(shape, dtype=numpy.int64))
    data = numpy.random.default_rng(seed).bytes(size)
    if dtype == "bool":
        data = bytes(b & 1 for b in data)
    return numpy.frombuffer(data, dtype=dtype).reshape(shape)


class NpyTest(common.FormatTest):
    def check_rows(self, dump, arrays):
        self.assertEqual(dump.format, "npy")
        self.assertEqual(list(dump.fields), list(arrays))
        for name, array in arrays.items():
            self.assertEqual(dump.count, len(array))
            self.assertEqual(dump.fields[name]["dtype"], TYPES[array.dtype.name])
            self.assertEqual(dump.fields[name]["shape"], list(array.shape[1:]))
            for row, sample in zip(array, dump.samples):
                self.assertEqual(sample[name], row.tobytes())

    def test_rows_of_every_type(self):
        for dtype in TYPES:
            for shape in (1,), (7,), (5, 3), (3, 2, 1, 4), (2, 1, 1, 1, 1, 1, 1, 3):
                path = self.path("x.npy")
                numpy.save(path, make(dtype, shape))
                self.check_rows(self.dump(path), {"data": numpy.load(path)})

    def test_versions(self):
        for version in (1, 0), (2, 0), (3, 0):
            path = self.path("x.npy")
            with open(path, "wb") as f:
                numpy.lib.format.write_array(f, make("float32", (6, 5)), version=version)
            self.check_rows(self.dump(path), {"data": numpy.load(path)})

    def test_fortran_order(self):
        path = self.path("x.npy")
        numpy.save(path, numpy.asfortranarray(make("float32", (6, 5))))
        self.refused(["ascontiguousarray"], path)
        numpy.save(path, numpy.asfortranarray(make("float32", (6,))))
        self.check_rows(self.dump(path), {"data": numpy.load(path)})

    def test_whole_files(self):
        arrays = [make("int16", (4, 3), seed) for seed in range(3)]
        paths = [self.path(f"{k}.npy") for k in range(3)]
        for path, array in zip(paths, arrays):
            numpy.save(path, array)
        dump = self.dump(*paths, whole_files=True)
        self.assertEqual(dump.count, 3)
        self.assertEqual(dump.fields["data"]["shape"], [4, 3])
        for path, sample in zip(paths, dump.samples):
            self.assertEqual(sample["data"], numpy.load(path).tobytes())
        numpy.save(self.path("number.npy"), numpy.float64(3.5))
        dump = self.dump(self.path("number.npy"), whole_files=True)
        self.assertEqual(dump.samples[0]["data"], numpy.float64(3.5).tobytes())

    def test_archives(self):
        path = self.path("x.npz")
        arrays = {name: make(dtype, (9,) + rest) for name, dtype, rest in
                  [("ids", "uint32", (4,)), ("label", "int64", ()), ("deep/mask", "bool", (2, 2))]}
        numpy.savez(path, **arrays)
        with numpy.load(path) as loaded:
            self.check_rows(self.dump(path), {name: loaded[name] for name in arrays})
            self.check_rows(self.dump(path, field=["label", "ids"]),
                            {name: loaded[name] for name in ("label", "ids")})

    def test_archive_to_a_pipe(self):
        """zipfile writes lengths behind the bytes when it cannot seek."""
        array = make("float32", (5, 2))

        class Pipe:
            def __init__(self, f):
                self.read, self.write, self.flush = f.read, f.write, f.flush

        path = self.path("x.npz")
        with open(path, "wb") as f:
            numpy.savez(Pipe(f), x=array)
        self.check_rows(self.dump(path), {"x": numpy.load(path)["x"]})

    def test_refusals(self):
        path = self.path("x.npz")
        numpy.savez_compressed(path, x=make("float32", (5, 2)))
        self.refused(["compressed", "savez()"], path)
        numpy.savez(path, x=make("float32", (5, 2)), y=numpy.array([None] * 5))
        self.refused(["y.npy", "pickle", "name the fields"], path)
        self.check_rows(self.dump(path, field="x"), {"x": make("float32", (5, 2))})
        path = self.path("x.npy")
        for array, word in [(make("float32", (5,)).astype(">f4"), "newbyteorder"),
                            (numpy.zeros(3, [("a", "<f4"), ("b", "<i4")]), "structures"),
                            (numpy.zeros(3, "complex64"), "complex"),
                            (numpy.array(["a", "b"]), "texts"),
                            (numpy.zeros(3, "datetime64[s]"), "int64"),
                            (numpy.zeros(3, "V2"), "bfloat16"),
                            (numpy.zeros((0, 3)), "no rows")]:
            numpy.save(path, array)
            self.refused([path, word], path)
        with open(path, "wb") as f:
            numpy.save(f, make("uint8", (3,)))
            numpy.save(f, make("uint8", (3,)))
        self.refused(["follow behind"], path)


if __name__ == "__main__":
    common.main()
