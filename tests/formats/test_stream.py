# SPDX-License-Identifier: Apache-2.0
"""Every format through the loader, as a user calls it: `headrace stream --verify` compares each element of
each batch with a plain read of its file, on the host and on the device of tests/fakecuda; ragged rows as
values and padded, conversions, several files, threads and none. Files are written here, without libraries
of the formats."""
import io
import json
import os
import struct
import subprocess
import tarfile

import numpy

import common

HEADRACE = os.environ["HEADRACE"]
FAKECUDA = os.environ["FAKECUDA"]


def crc32c(data):
    """Bit by bit: Castagnoli's polynomial, reflected."""
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def masked(data):
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff)


def field(number, data):
    """A length-delimited field of a protobuf message, shorter than 2^14 bytes."""
    size = len(data)
    length = bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])
    return bytes([number << 3 | 2]) + length + data


class Stream(common.FormatTest):
    def setUp(self):
        super().setUp()
        self.rng = numpy.random.default_rng(11)

    def stream(self, *paths, device="host", **options):
        argv = [HEADRACE, "stream", "--json", "--verify", "--device", device, "--epochs", "2"]
        for name, value in options.items():
            argv += ["--" + name.replace("_", "-")] + ([] if value is True else [str(value)])
        env = dict(os.environ, LD_LIBRARY_PATH=FAKECUDA)
        done = subprocess.run(argv + [str(p) for p in paths], stdin=subprocess.DEVNULL, env=env,
                              capture_output=True, text=True, timeout=common.BOUND_SECONDS, check=False)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        result = json.loads(done.stdout)
        self.assertTrue(result["verified"])
        self.assertEqual(result["device"], device)
        return result

    def both(self, *paths, samples, **options):
        """On both devices, in one order; nearly all samples are seen twice."""
        for device in ("host", "cuda:0"):
            batch = options.get("batch_size", 8)
            result = self.stream(*paths, device=device, **{"batch_size": batch, **options})
            self.assertEqual(result["samples"], 2 * (samples // batch) * batch)

    def blob(self, limit=3000):
        return self.rng.bytes(int(self.rng.integers(0, limit)))

    def test_npy(self):
        for k, n in enumerate((40, 30)):
            numpy.save(self.path(f"{k}.npy"), self.rng.random((n, 5, 7), numpy.float32))
        self.both(self.path("0.npy"), self.path("1.npy"), samples=70)
        self.both(self.dir, samples=70, out_dtype="bf16", threads=0)
        self.both(self.path("0.npy"), self.path("1.npy"), samples=70, out_dtype="f64", batch_size=3)
        numpy.save(self.path("2.npy"), self.rng.integers(-100, 100, (50, 9), numpy.int16))
        self.both(self.path("2.npy"), samples=50, out_dtype="i64")

    def test_npz(self):
        numpy.savez(self.path("a.npz"), x=self.rng.random((33, 3)), y=self.rng.integers(0, 9, 33, numpy.uint8))
        self.both(self.path("a.npz"), samples=33, casts="x=f32,y=i32")
        self.both(self.path("a.npz"), samples=33, fields="y", out_dtype="i64")

    def test_megatron(self):
        lengths = self.rng.integers(0, 200, 120).astype(numpy.int32)
        tokens = self.rng.integers(0, 65536, int(lengths.sum()), numpy.uint16)
        tokens.tofile(self.path("d.bin"))
        starts = (numpy.cumsum(lengths, dtype=numpy.int64) - lengths) * 2
        with open(self.path("d.idx"), "wb") as out:
            out.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(lengths), len(lengths) + 1))
            out.write(lengths.tobytes() + starts.tobytes())
            out.write(numpy.arange(len(lengths) + 1, dtype=numpy.int64).tobytes())
        windows = (len(tokens) - 1) // 64
        self.both(self.path("d.idx"), samples=windows, seq_len=64)
        self.both(self.path("d.bin"), samples=windows, seq_len=64, packed=True, format="megatron")
        documents = {"seq_len": 0, "format": "megatron", "out_dtype": "i64"}
        self.both(self.path("d.bin"), samples=120, **documents)
        self.both(self.path("d.bin"), samples=120, ragged="pad", pad_value=-100, pad_to=50, **documents)

    def test_tar(self):
        for k in range(3):
            with tarfile.open(self.path(f"{k}.tar"), "w") as tar:
                for i in range(20):
                    for ext, data in (("jpg", self.blob()), ("cls", b"%d" % i), ("json", self.blob(90))):
                        member = tarfile.TarInfo(f"{k}-{i:04}.{ext}")
                        member.size = len(data)
                        tar.addfile(member, io.BytesIO(data))
        self.both(self.dir, samples=60)
        self.both(self.path("0.tar"), self.path("2.tar"), samples=40, ragged="pad", pad_value=7, fields="jpg,cls")
        self.both(self.dir, samples=60, shuffle="window", window=2, no_index=True)

    def test_tfrecord(self):
        with open(self.path("a.tfrecord"), "wb") as out:
            for i in range(60):
                floats = self.rng.random(4, numpy.float32).tobytes()
                features = {b"image": field(1, field(1, self.blob())), b"vector": field(2, field(1, floats)),
                            b"label": field(3, field(1, bytes([i])))}
                data = field(1, b"".join(field(1, field(1, name) + field(2, value))
                                         for name, value in features.items()))
                length = struct.pack("<Q", len(data))
                out.write(length + masked(length) + data + masked(data))
        self.both(self.path("a.tfrecord"), samples=60, casts="vector=f64")
        with open(self.path("a.idx"), "w", encoding="utf-8") as out:  # as tfrecord2idx makes it
            out.write("0 1234\n")
        self.both(self.dir, samples=60)
        with open(self.path("a.tfrecord"), "r+b") as file:  # a byte of the first record
            file.seek(30)
            byte = file.read(1)
            file.seek(30)
            file.write(bytes([byte[0] ^ 1]))
        done = subprocess.run([HEADRACE, "stream", "--device", "host", self.path("a.tfrecord")],
                              capture_output=True, text=True, timeout=common.BOUND_SECONDS, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("damaged", done.stderr)
        self.both(self.path("a.tfrecord"), samples=59, corrupt="skip")
        self.both(self.path("a.tfrecord"), samples=60, corrupt="substitute")

    def test_mds(self):
        shards = []
        for k in range(2):
            samples = []
            for i in range(25):
                one, two = self.blob(), self.blob(50)
                samples.append(struct.pack("<II", len(one), len(two)) + struct.pack("<q", i) + one + two)
            config = json.dumps({"column_names": ["id", "img", "txt"],
                                 "column_encodings": ["int", "bytes", "str"],
                                 "column_sizes": [8, None, None], "compression": None, "format": "mds",
                                 "hashes": [], "size_limit": 1 << 26, "version": 2}).encode()
            at = 4 + 4 * (len(samples) + 1) + len(config)
            offsets = numpy.cumsum([at] + [len(s) for s in samples]).astype(numpy.uint32)
            data = struct.pack("<I", len(samples)) + offsets.tobytes() + config + b"".join(samples)
            with open(self.path(f"shard.{k:05}.mds"), "wb") as out:
                out.write(data)
            shards.append({**json.loads(config), "samples": len(samples), "zip_data": None,
                           "raw_data": {"basename": f"shard.{k:05}.mds", "bytes": len(data), "hashes": {}}})
        with open(self.path("index.json"), "w", encoding="utf-8") as out:
            json.dump({"version": 2, "shards": shards}, out)
        self.both(self.dir, samples=50)
        self.both(self.dir, samples=50, ragged="pad", threads=0)

    def test_safetensors(self):
        parts = {"x": ("F16", [44, 6], 44 * 12), "y": ("I64", [44], 44 * 8)}
        head, at = {}, 0
        for name, (dtype, shape, size) in parts.items():
            head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
            at += size
        text = json.dumps(head).encode()
        text += b" " * (-len(text) % 8)
        with open(self.path("rows.safetensors"), "wb") as out:
            out.write(struct.pack("<Q", len(text)) + text + self.rng.bytes(at))
        self.both(self.path("rows.safetensors"), samples=44, format="safetensors", casts="x=f32")

    def test_mixture(self):
        for k, n in enumerate((40, 90)):
            numpy.save(self.path(f"{k}.npy"), self.rng.random((n, 5), numpy.float32))
        self.both(self.path("0.npy"), self.path("1.npy"), samples=130, weights="2,1")
        with open(self.path("ids"), "w", encoding="utf-8") as out:
            out.write("\n".join(str(i) for i in range(0, 130, 3)))
        self.both(self.path("0.npy"), self.path("1.npy"), samples=44, select=self.path("ids"))


if __name__ == "__main__":
    common.main()
