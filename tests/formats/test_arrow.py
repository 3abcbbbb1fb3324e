# SPDX-License-Identifier: Apache-2.0
"""Arrow IPC: files and streams written by pyarrow, every value of every row compared with what pyarrow reads
from them."""
import os

import common

common.need("arrow")

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.feather  # noqa: E402

RNG = np.random.default_rng(6)
NUMBERS = ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16",
           "float32", "float64"]


def numbers(name, n):
    return pa.array(RNG.integers(0, 100, n).astype(name))


def blobs(n, kind):
    return pa.array([RNG.bytes(int(RNG.integers(0, 90))) for _ in range(n)], kind)


def lists(n, kind, element):
    return pa.array([RNG.integers(0, 99, int(RNG.integers(0, 9))).astype(element).tolist()
                     for _ in range(n)], kind)


def fixed_lists(n, *dims):
    values, kind = pa.array(RNG.random(n * int(np.prod(dims)), np.float32)), pa.float32()
    for dim in reversed(dims):
        values, kind = pa.FixedSizeListArray.from_arrays(values, dim), None
    return values


def table_of_all(n):
    """Every type that is read."""
    columns = {name: numbers(name, n) for name in NUMBERS}
    columns.update({
        "hash": pa.array([RNG.bytes(20) for _ in range(n)], pa.binary(20)),
        "vector": fixed_lists(n, 3), "matrix": fixed_lists(n, 2, 5), "cube": fixed_lists(n, 2, 2, 3),
        "bytes": blobs(n, pa.binary()), "large_bytes": blobs(n, pa.large_binary()),
        "text": pa.array(["ä" * (i % 13) for i in range(n)]),
        "large_text": pa.array([str(i) * (i % 5) for i in range(n)], pa.large_string()),
        "tokens": lists(n, pa.list_(pa.int32()), np.int32),
        "large_list": lists(n, pa.large_list(pa.float64()), np.float64),
        "window": pa.array([list(range(i, i + 7)) for i in range(n)], pa.list_(pa.uint16())),
    })
    return pa.table(columns)


def element(kind):
    while pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        kind = kind.value_type
    return kind.to_pandas_dtype()


def as_bytes(kind, value):
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    return np.array(value, dtype=element(kind)).tobytes()


def write_file(path, table, rows=None, **options):
    with pa.ipc.new_file(path, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=rows)


def write_stream(path, table, rows=None, **options):
    with pa.ipc.new_stream(path, table.schema,
                           options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=rows)


class Arrow(common.FormatTest):
    def compare(self, path, left_out=(), **options):
        dump = self.dump(path, **options)
        with pa.memory_map(path) as file:
            try:
                table = pa.ipc.open_file(file).read_all()
            except pa.ArrowInvalid:
                file.seek(0)
                table = pa.ipc.open_stream(file).read_all()
            self.assertEqual(dump.format, "arrow")
            self.assertEqual(dump.count, table.num_rows)
            self.assertEqual(set(dump.fields), set(table.column_names) - set(left_out))
            for name in dump.fields:
                kind = table.schema.field(name).type
                for got, value in zip(dump.samples, table.column(name).to_pylist()):
                    self.assertEqual(got[name], as_bytes(kind, value), name)
        return dump

    def both(self, table, left_out=(), **options):
        for write in (write_file, write_stream):
            path = self.path(write.__name__ + ".arrow")
            write(path, table, **options)
            dump = self.compare(path, left_out)
        return dump

    def test_every_type(self):
        dump = self.both(table_of_all(100), rows=33)
        self.assertEqual(dump.fields["cube"]["shape"], [2, 2, 3])
        self.assertEqual(dump.fields["cube"]["dtype"], "f32")
        self.assertEqual(dump.fields["hash"]["shape"], [20])
        self.assertEqual(dump.fields["uint64"]["shape"], [])
        self.assertEqual(dump.fields["tokens"]["kind"], "ragged")
        self.assertEqual(dump.fields["tokens"]["dtype"], "i32")
        self.assertEqual(dump.fields["window"]["kind"], "fixed")
        self.assertEqual(dump.fields["window"]["shape"], [7])

    def test_many_batches(self):
        self.both(table_of_all(500), rows=1)
        self.both(table_of_all(7000).select(["int32", "bytes", "tokens"]), rows=6999)

    def test_long_offsets(self):
        """More offsets than are read at once."""
        table = pa.table({"x": pa.array([b"ab" * (i % 3) for i in range(40000)], pa.large_binary())})
        dump = self.both(table)
        self.assertEqual(dump.fields["x"]["bytes"], 4)

    def test_empty_batches(self):
        table = table_of_all(10)
        for write in (pa.ipc.new_file, pa.ipc.new_stream):
            path = self.path("x.arrow")
            with write(path, table.schema) as writer:
                for part in (table.slice(0, 0), table.slice(0, 4), table.slice(4, 0), table.slice(4)):
                    for batch in part.to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]:
                        writer.write_batch(batch)
            self.compare(path)

    def test_no_rows(self):
        write_stream(self.path("x.arrow"), table_of_all(0))
        self.refused(["no sample"], self.path("x.arrow"))

    def test_slices(self):
        """Parts of arrays: pyarrow writes their offsets anew or as they are."""
        table = table_of_all(200)
        self.both(table.slice(13, 150), rows=37)

    def test_old_framing(self):
        table = table_of_all(50)
        self.both(table, rows=20, use_legacy_format=True)
        self.both(table, rows=20, metadata_version=pa.ipc.MetadataVersion.V4)

    def test_no_end_mark(self):
        path = self.path("x.arrow")
        write_stream(path, table_of_all(20), rows=7)
        with open(path, "r+b") as file:
            file.truncate(os.path.getsize(path) - 8)
        self.compare(path)
        with open(path, "r+b") as file:
            file.truncate(os.path.getsize(path) - 8)
        self.refused(["truncated"], path, format="arrow")

    def test_two_streams(self):
        for name in "ab":
            write_stream(self.path(name), table_of_all(5))
        with open(self.path("c"), "wb") as file:
            for name in "ab":
                with open(self.path(name), "rb") as part:
                    file.write(part.read())
        self.refused(["several streams"], self.path("c"))

    def test_columns_left_out(self):
        n = 40
        table = pa.table({
            "first": numbers("int32", n),
            "bits": pa.array([i % 2 == 0 for i in range(n)]),
            "nothing": pa.nulls(n),
            "struct": pa.array([{"a": i, "b": str(i), "c": [i]} for i in range(n)]),
            "dict": pa.array(["x", "y"] * (n // 2)).dictionary_encode(),
            "dicts": pa.array([["x"]] * n, pa.list_(pa.dictionary(pa.int8(), pa.string()))),
            "map": pa.array([[("k", i)] for i in range(n)], pa.map_(pa.string(), pa.int32())),
            "time": pa.array(range(n), pa.timestamp("us")), "day": pa.array(range(n), pa.date32()),
            "decimal": pa.array(range(n), pa.decimal128(9)),
            "texts": pa.array([["a", "b"]] * n), "nested": pa.array([[[i]] for i in range(n)]),
            "holes": pa.array([None if i == 30 else i for i in range(n)]),
            "inner": pa.array([[None, i] for i in range(n)]),
            "union": pa.UnionArray.from_dense(
                pa.array([0] * n, pa.int8()), pa.array(range(n), pa.int32()), [numbers("int8", n)]),
            "sparse": pa.UnionArray.from_sparse(pa.array([0] * n, pa.int8()), [numbers("int8", n)]),
            "view": pa.array(["a long text that is not kept in the view itself"] * n,
                             pa.string_view()),
            "runs": pa.RunEndEncodedArray.from_arrays(pa.array([n], pa.int32()), pa.array([7])),
            "list_view": pa.array([[i] for i in range(n)], pa.list_view(pa.int16())),
            "": numbers("int8", n),
            "last": blobs(n, pa.binary()),
            "end": fixed_lists(n, 2),
        })
        odd = [name for name in table.column_names if name not in ("first", "last", "end")]
        for write in (write_file, write_stream):
            path = self.path(write.__name__)
            write(path, table, rows=n)
            dump = self.dump(path)
            self.assertEqual(list(dump.fields), ["first", "last", "end"])
            for name in dump.fields:
                kind = table.schema.field(name).type
                for got, value in zip(dump.samples, table.column(name).to_pylist()):
                    self.assertEqual(got[name], as_bytes(kind, value), name)
            for name in odd:
                if name:
                    self.refused([name, "leave it out"], path, field=name)
            write(path, table.select(odd), rows=n)
            self.refused(["no column that can be read", "bits is of bits"], path)

    def test_nulls_in_one_batch(self):
        table = pa.table({"a": pa.array(range(30)), "b": pa.array([*range(29), None])})
        self.both(table, left_out=["b"], rows=10)
        self.refused(["b has nulls"], self.path("write_file.arrow"), field="b")
        self.assertEqual(self.dump(self.path("write_file.arrow"), field="a").count, 30)

    def test_refused(self):
        table = table_of_all(30)
        for how in ("lz4", "zstd"):
            write_stream(self.path("x.arrow"), table, compression=how)
            self.refused(["compressed", "compression=None"], self.path("x.arrow"))
        pyarrow.feather.write_feather(table.select(["int32"]), self.path("x.feather"))
        self.refused(["compressed"], self.path("x.feather"))
        pyarrow.feather.write_feather(table.select(["int32"]), self.path("x.feather"),
                                      compression="uncompressed")
        self.compare(self.path("x.feather"))
        with open(self.path("x.feather"), "wb") as file:
            file.write(b"FEA1" + bytes(100) + b"FEA1")
        self.refused(["version 1"], self.path("x.feather"), format="arrow")
        swapped = pa.table([table.column("int32")] * 2, names=["a", "a"])
        write_file(self.path("x.arrow"), swapped)
        self.refused(["two columns a"], self.path("x.arrow"))

    def test_several_files(self):
        """Parts are joined by the names of their fields; lists of other lengths make a field ragged."""
        one = pa.table({"a": numbers("int32", 10), "b": pa.array([[1, 2]] * 10)})
        two = pa.table({"b": pa.array([[3, 4, 5]] * 5), "a": numbers("int32", 5)})
        write_file(self.path("1.arrow"), one)
        write_stream(self.path("2.arrow"), two)
        dump = self.dump(self.dir)
        self.assertEqual(dump.count, 15)
        self.assertEqual(dump.fields["b"]["kind"], "ragged")
        for k, row in enumerate(one.to_pylist() + two.to_pylist()):
            self.assertEqual(dump.samples[k]["a"], np.int32(row["a"]).tobytes())
            self.assertEqual(dump.samples[k]["b"], np.array(row["b"], np.int64).tobytes())

    def test_truncated(self):
        for write in (write_file, write_stream):
            path = self.path("x.arrow")
            write(path, table_of_all(10), rows=5)
            size = os.path.getsize(path)
            for cut in (1, 9, 200, size // 2, size - 10):
                write(path, table_of_all(10), rows=5)
                with open(path, "r+b") as file:
                    file.truncate(size - cut)
                self.refused(["byte"], path, format="arrow")


if __name__ == "__main__":
    common.main()
