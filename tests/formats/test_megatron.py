# SPDX-License-Identifier: Apache-2.0
"""Datasets that Megatron-Core wrote: documents against its IndexedDataset, windows against the tokens one
behind the other, and its own order against the samples of its GPTDataset."""
import random
import sys

import common

common.need("megatron")
try:
    import numpy
    import torch
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(common.EXIT_SKIP)
common.hollow("megatron", "megatron.core", "megatron.core.datasets")
# These two import each other; this is the order in which that works.
import megatron.core.parallel_state  # noqa: E402 pylint: disable=unused-import
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig  # noqa: E402
from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder  # noqa: E402
from megatron.core.datasets.utils import Split  # noqa: E402

TYPES = {"uint8": "u8", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
         "float64": "f64", "float32": "f32", "uint16": "u16"}


class Tokenizer:
    vocab_size = 100
    eod, eos, pad = 99, 98, 97
    unique_identifiers = {}


def config(folder, seq_len, **more):
    return GPTDatasetConfig(random_seed=7, sequence_length=seq_len, blend=None, split="1",
                            path_to_cache=folder, tokenizer=Tokenizer(), reset_position_ids=False,
                            reset_attention_mask=False, eod_mask_loss=False, **more)


class MegatronTest(common.FormatTest):
    def write(self, name, documents, dtype="int32", multimodal=False):
        """@documents: each a list of sequences, each a list of tokens. Returns the prefix."""
        prefix = self.path(name)
        builder = IndexedDatasetBuilder(prefix + ".bin", dtype=getattr(numpy, dtype),
                                        multimodal=multimodal)
        for document in documents:
            for sequence in document:
                builder.add_item(torch.tensor(sequence, dtype=torch.int64))
            builder.end_document()
        builder.finalize(prefix + ".idx")
        return prefix

    def corpus(self, seed, documents, most_tokens, most_sequences=1, least_tokens=1):
        rng = random.Random(seed)
        return [[[rng.randrange(90) for _ in range(rng.randint(least_tokens, most_tokens))]
                 for _ in range(rng.randint(1, most_sequences))] for _ in range(documents)]

    def check_documents(self, prefix, multimodal=False, path=None):
        theirs = IndexedDataset(prefix, multimodal=multimodal)
        dump = self.dump(path or prefix + ".idx", format="megatron")
        marks = theirs.document_indices
        self.assertEqual(dump.count, len(marks) - 1)
        for d, sample in enumerate(dump.samples):
            parts = [theirs[s][0] if multimodal else theirs[s]
                     for s in range(marks[d], marks[d + 1])]
            expected = b"".join(part.tobytes() for part in parts)
            self.assertEqual(sample["tokens"], expected)
        return dump

    def check_windows(self, prefix, seq_len, stride=None):
        theirs = IndexedDataset(prefix)
        tokens = numpy.concatenate([theirs[s] for s in range(len(theirs))])
        starts = numpy.concatenate([[0], numpy.cumsum(theirs.sequence_lengths)])
        starts = sorted({int(starts[s]) for s in theirs.document_indices[:-1]})
        more = {"stride": stride} if stride else {}
        dump = self.dump(prefix + ".bin", format="megatron", seq_len=seq_len, **more)
        stride = stride or seq_len
        self.assertEqual(dump.count, (len(tokens) - seq_len - 1) // stride + 1)
        self.assertEqual(dump.fields["tokens"]["shape"], [seq_len + 1])
        for i, sample in enumerate(dump.samples):
            at = i * stride
            self.assertEqual(sample["tokens"], tokens[at:at + seq_len + 1].tobytes())
            self.assertEqual(sample["starts"], [s - at for s in starts
                                                if at <= s < at + seq_len + 1 and s < len(tokens)])

    def test_documents_of_every_type(self):
        for dtype, name in TYPES.items():
            prefix = self.write(dtype, self.corpus(1, 20, 30), dtype)
            dump = self.check_documents(prefix)
            self.assertEqual(dump.format, "megatron")
            self.assertEqual(dump.fields["tokens"]["kind"], "ragged")
            self.assertEqual(dump.fields["tokens"]["dtype"], name)

    def test_either_file(self):
        prefix = self.write("x", self.corpus(2, 20, 30))
        self.check_documents(prefix, path=prefix + ".idx")
        self.check_documents(prefix, path=prefix + ".bin")
        self.assertEqual(self.dump(prefix + ".idx").format, "megatron")
        # a .bin is known by its .idx, and a folder holds each pair once
        self.assertEqual(self.dump(prefix + ".bin").format, "megatron")
        self.write("y", self.corpus(3, 15, 30))
        folder = self.dump(self.dir)
        self.assertEqual((folder.format, folder.count), ("megatron", 35))

    def test_documents_of_sequences(self):
        prefix = self.write("x", self.corpus(3, 40, 9, 5, 0) + [[]] + self.corpus(4, 3, 3, 4))
        self.check_documents(prefix)
        self.check_windows(prefix, 16)

    def test_modes(self):
        prefix = self.write("x", self.corpus(4, 20, 30), multimodal=True)
        self.check_documents(prefix, multimodal=True)

    def test_windows(self):
        prefix = self.write("x", self.corpus(5, 1500, 12))
        for seq_len, stride in [(8, None), (64, None), (31, 7), (4096, None)]:
            self.check_windows(prefix, seq_len, stride)
        prefix = self.write("y", self.corpus(6, 700, 5, 3, 0), "uint16")
        for seq_len, stride in [(1, None), (8, None), (50, 3)]:
            self.check_windows(prefix, seq_len, stride)

    def test_merged(self):
        parts = [self.write(f"part{k}", self.corpus(k, 30, 20)) for k in range(3)]
        builder = IndexedDatasetBuilder(self.path("all.bin"))
        for part in parts:
            builder.add_index(part)
        builder.finalize(self.path("all.idx"))
        self.check_documents(self.path("all"))
        self.check_windows(self.path("all"), 32)

    def order(self, prefix, seq_len, samples, split=Split.train, indices=None, **more):
        """The dataset as Megatron shuffles it, and what the names of its files begin with."""
        theirs = IndexedDataset(prefix)
        indices = numpy.arange(len(theirs), dtype=numpy.int32) if indices is None else indices
        cache = self.path("cache")
        made = GPTDataset(theirs, prefix, indices, samples, split, config(cache, seq_len, **more))
        return made, f"{cache}/{made.unique_description_hash}-GPTDataset-{split.name}-"

    def check_order(self, made, order, prefix, seq_len, skip=(), **options):
        dump = self.dump(prefix + ".bin", format="megatron", seq_len=seq_len, order=order, **options)
        numbers = [k for k in range(len(made)) if k not in skip]
        self.assertEqual(dump.count, len(numbers))
        for k, sample in zip(numbers, dump.samples):
            text, _ = made._query_document_sample_shuffle_indices(k)
            self.assertEqual(len(text), seq_len + 1)
            self.assertEqual(sample["tokens"], text.astype(made.dataset.index.dtype).tobytes())
            self.check_starts(made, k, sample["starts"])
        return dump

    def check_starts(self, made, k, starts):
        j = made.shuffle_index[k]
        (first, offset), (last, end) = made.sample_index[j], made.sample_index[j + 1]
        at, expected = 0, []
        for i in range(first, last + 1):
            length = int(made.dataset.sequence_lengths[made.document_index[i]])
            begin = int(offset) if i == first else 0
            count = (int(end) + 1 if i == last else length) - begin
            if begin == 0 and count:
                expected.append(at)
            at += count
        self.assertEqual(starts, expected)

    def test_order(self):
        prefix = self.write("x", self.corpus(8, 300, 40))
        for seq_len in 8, 50, 513:
            for samples in None, 10, 700:
                made, order = self.order(prefix, seq_len, samples)
                self.check_order(made, order, prefix, seq_len)

    def test_order_of_sequences(self):
        prefix = self.write("x", self.corpus(9, 100, 20, 4, 0), "uint16")
        for samples in None, 400:
            made, order = self.order(prefix, 24, samples)
            self.check_order(made, order, prefix, 24)

    def test_order_of_a_split(self):
        prefix = self.write("x", self.corpus(10, 200, 30))
        made, order = self.order(prefix, 16, 50, Split.test,
                                 numpy.arange(150, 200, dtype=numpy.int32))
        self.check_order(made, order, prefix, 16)

    def test_order_with_a_short_sample(self):
        prefix = self.write("x", self.corpus(11, 50, 30))
        made, order = self.order(prefix, 64, None, Split.valid,
                                 drop_last_partial_validation_sequence=False)
        short = int(numpy.flatnonzero(made.shuffle_index == len(made) - 1)[0])
        self.refused([f"sample {short},", "fills it up"], prefix + ".bin", format="megatron",
                     seq_len=64, order=order)
        dump = self.check_order(made, order, prefix, 64, skip=[short], corrupt="skip")
        self.assertEqual(dump.head["corrupt"], 1)

    def test_order_refused(self):
        prefix = self.write("x", self.corpus(12, 100, 30))
        _, order = self.order(prefix, 16, None)
        options = {"format": "megatron", "order": order}
        self.refused(["seq_len"], prefix + ".bin", seq_len=17, **options)
        self.refused(["seq_len"], prefix + ".bin", seq_len=15, **options)
        other = self.write("other", self.corpus(13, 100, 30))
        self.refused(["other data"], other + ".bin", seq_len=16, **options)
        self.refused(["no such file"], prefix + ".bin", format="megatron", seq_len=16,
                     order=order + "x")
        # made to be read without a token more: 10 documents of 8 tokens end where samples do
        prefix = self.write("even", [[list(range(8))]] * 10)
        _, order = self.order(prefix, 4, None, add_extra_token_to_sequence=False)
        self.refused(["add_extra_token_to_sequence"], prefix + ".bin", format="megatron",
                     seq_len=4, order=order)

    def test_pairs_refused(self):
        one, two = [self.write(str(k), self.corpus(k, 50, 30)) for k in (14, 15)]
        with open(two + ".idx", "rb") as f:
            other = f.read()
        with open(one + ".idx", "wb") as f:
            f.write(other)
        self.refused([".bin", "together"], one + ".bin", format="megatron")


if __name__ == "__main__":
    common.main()
