#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A format's own loader (or Headrace in Python) over a dataset of _formats_make.py: prints one JSON object.

A batch is ready when its samples' bytes are in host memory, undecoded, as many as the loader hands out at
once. Shuffling is what training scripts use: a buffer of 1000 behind shuffled shards where a loader only
reads in order, a permutation elsewhere. The clock starts after the first batch, so that neither imports
nor workers' beginnings are in it. formats.py and stall.py run these, each in a process of its own.
"""
from __future__ import annotations

import argparse
import importlib
import itertools
import json
import multiprocessing
import os
import sys
import time
import types
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator

import _formats_make as make

BUFFER = 1000  # samples; webdataset's documentation has 1000
Batches = Iterator[Any]


def hollow(*names: str) -> None:
    """Packages that are folders and nothing else: what they import for clouds and training stays out."""
    for name in names:
        package = types.ModuleType(name)
        package.__path__ = [os.path.join(base, *name.split(".")) for base in sys.path
                            if os.path.isdir(os.path.join(base, *name.split(".")))]
        sys.modules[name] = package


def torch_data() -> Any:
    return importlib.import_module("torch.utils.data")


def workers_of(args: argparse.Namespace) -> dict[str, Any]:
    """Of a DataLoader: the workers outlive an epoch."""
    return {"num_workers": args.workers, "persistent_workers": args.workers > 0}


def again_and_again(loader: Iterable[Any]) -> Batches:
    while True:
        yield from loader


# -- Megatron ------------------------------------------------------------------------------------
class Tokenizer:
    """What GPTDataset asks of one; no token of the file is any of these."""
    vocab_size, eod, eos, pad, unique_identifiers = 65536, -1, -1, -1, {}


def gpt_dataset(args: argparse.Namespace) -> Any:
    hollow("megatron", "megatron.core", "megatron.core.datasets")
    importlib.import_module("megatron.core.parallel_state")
    gpt = importlib.import_module("megatron.core.datasets.gpt_dataset")
    indexed = importlib.import_module("megatron.core.datasets.indexed_dataset")
    split = importlib.import_module("megatron.core.datasets.utils").Split.train
    numpy = importlib.import_module("numpy")
    prefix = str(args.folder / "text")
    source = indexed.IndexedDataset(prefix)
    config = gpt.GPTDatasetConfig(
        random_seed=args.seed, sequence_length=make.T, blend=None, split="1",
        path_to_cache=str(args.folder / "cache"), tokenizer=Tokenizer(), reset_position_ids=False,
        reset_attention_mask=False, eod_mask_loss=False, create_attention_mask=False)
    return gpt.GPTDataset(source, prefix, numpy.arange(len(source), dtype=numpy.int32), None, split,
                          config)


class TokensOfGpt:
    """The reading of GPTDataset alone, without the masks and position ids that it makes beside."""

    def __init__(self, whole: Any) -> None:
        self.whole, self.torch = whole, importlib.import_module("torch")

    def __len__(self) -> int:
        return len(self.whole)

    def __getitem__(self, index: int) -> Any:
        return self.torch.from_numpy(self.whole._query_document_sample_shuffle_indices(index)[0])


def megatron(args: argparse.Namespace) -> Batches:
    """In order: the dataset is a shuffled one itself, and its sampler counts up."""
    return again_and_again(torch_data().DataLoader(gpt_dataset(args), args.batch_size,
                                                   drop_last=True, **workers_of(args)))


def megatron_tokens(args: argparse.Namespace) -> Batches:
    return again_and_again(torch_data().DataLoader(TokensOfGpt(gpt_dataset(args)), args.batch_size,
                                                   drop_last=True, **workers_of(args)))


class Windows:
    """Windows of a memory map, the text of all documents taken as one: what small trainers do."""

    def __init__(self, path: Path) -> None:
        self.numpy, self.torch = map(importlib.import_module, ("numpy", "torch"))
        self.text = self.numpy.memmap(path, "uint16", "r")

    def __len__(self) -> int:
        return (len(self.text) - 1) // make.T

    def __getitem__(self, index: int) -> Any:
        piece = self.text[index * make.T:(index + 1) * make.T + 1]
        return self.torch.from_numpy(piece.astype(self.numpy.int64))


def memmap_windows(args: argparse.Namespace) -> Batches:
    return again_and_again(torch_data().DataLoader(
        Windows(args.folder / "text.bin"), args.batch_size, shuffle=True, drop_last=True,
        **workers_of(args)))


# -- tar, TFRecord, MDS --------------------------------------------------------------------------
def webdataset(args: argparse.Namespace) -> Batches:
    wds = importlib.import_module("webdataset")
    urls = [str(p) for p in make.data_files(args.folder)]
    data = (wds.WebDataset(urls, shardshuffle=100, empty_check=False, seed=args.seed).repeat()
            .shuffle(BUFFER).to_tuple("jpg", "cls").batched(args.batch_size, partial=False))
    return iter(wds.WebLoader(data, batch_size=None, num_workers=args.workers))


def tfrecord(args: argparse.Namespace) -> Batches:
    torch_part = importlib.import_module("tfrecord.torch.dataset")
    splits = {p.name: 1.0 for p in make.data_files(args.folder)}
    data = torch_part.MultiTFRecordDataset(
        f"{args.folder}/{{}}", f"{args.folder}/{{}}.idx", splits, {"image": "byte", "label": "int"},
        shuffle_queue_size=BUFFER)
    return iter(torch_data().DataLoader(data, args.batch_size, **workers_of(args)))


def streaming(args: argparse.Namespace) -> Batches:
    hollow("streaming", "streaming.base")
    dataset = importlib.import_module("streaming.base.dataset").StreamingDataset
    importlib.import_module("streaming.base.util").clean_stale_shared_memory()
    data = dataset(local=str(args.folder), shuffle=True, batch_size=args.batch_size,
                   shuffle_seed=args.seed)
    return again_and_again(torch_data().DataLoader(data, args.batch_size, drop_last=True,
                                                   **workers_of(args)))


def streaming_local(args: argparse.Namespace) -> Batches:
    """The same library's dataset for files that are all there, in a random order."""
    hollow("streaming", "streaming.base")
    data = importlib.import_module("streaming.base.local").LocalDataset(str(args.folder))
    return again_and_again(torch_data().DataLoader(data, args.batch_size, shuffle=True,
                                                   drop_last=True, **workers_of(args)))


# -- arrays --------------------------------------------------------------------------------------
class Rows:
    """Rows of a memory map; as int16, because older PyTorch has no uint16."""

    def __init__(self, args: argparse.Namespace, many: bool) -> None:
        self.numpy, self.torch = map(importlib.import_module, ("numpy", "torch"))
        self.rows, self.many = self.numpy.load(make.data_files(args.folder)[0], mmap_mode="r"), many

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        piece = self.rows[index] if self.many else self.numpy.array(self.rows[index])
        return self.torch.from_numpy(piece.view(self.numpy.int16))


def numpy_rows(args: argparse.Namespace) -> Batches:
    return again_and_again(torch_data().DataLoader(Rows(args, False), args.batch_size, shuffle=True,
                                                   drop_last=True, **workers_of(args)))


def numpy_fancy(args: argparse.Namespace) -> Batches:
    """The whole batch by one index."""
    data, torch_part = Rows(args, True), torch_data()
    sampler = torch_part.BatchSampler(torch_part.RandomSampler(data), args.batch_size, True)
    return again_and_again(torch_part.DataLoader(data, batch_size=None, sampler=sampler,
                                                 **workers_of(args)))


class WholeFiles:
    """One array a file, read whole."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.numpy, self.torch = map(importlib.import_module, ("numpy", "torch"))
        self.paths = make.data_files(args.folder)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        return self.torch.from_numpy(self.numpy.load(self.paths[index]).view(self.numpy.int16))


def numpy_files(args: argparse.Namespace) -> Batches:
    return again_and_again(torch_data().DataLoader(WholeFiles(args), args.batch_size, shuffle=True,
                                                   drop_last=True, **workers_of(args)))


def pyarrow_take(args: argparse.Namespace) -> Batches:
    """A table over a memory map, rows taken by their numbers, as libraries of datasets do it."""
    pa, numpy = map(importlib.import_module, ("pyarrow", "numpy"))
    with pa.memory_map(str(make.data_files(args.folder)[0])) as file:
        table = pa.ipc.open_file(file).read_all()
        rng = numpy.random.default_rng(args.seed)
        while True:
            order = rng.permutation(len(table))
            for at in range(0, len(order) - args.batch_size + 1, args.batch_size):
                rows = table.take(order[at:at + args.batch_size])["tokens"].combine_chunks()
                yield rows.flatten().to_numpy().reshape(args.batch_size, -1)


# -- Headrace ------------------------------------------------------------------------------------
def headrace(args: argparse.Namespace) -> Batches:
    package = importlib.import_module("headrace")
    name, kind = args.kind, make.KINDS[args.kind]
    more = dict(itertools.pairwise(kind.stream))
    data = package.Dataset(
        make.paths(name, args.folder), kind.format, seq_len=int(more.get("--seq-len", 0)),
        fields=more["--fields"].split(",") if "--fields" in more else None,
        whole_files="--whole-files" in kind.stream)
    loader = package.Loader(data, args.batch_size, seed=args.seed, threads=os.cpu_count() or 1)
    args.loader = loader
    return iter(loader.next, None)


# -- are the bytes right? ------------------------------------------------------------------------
def _bytes(rows: Any) -> bytes:
    return rows.tobytes() if hasattr(rows, "tobytes") else rows.numpy().tobytes()


def check_pairs(args: argparse.Namespace, images: Any, labels: Any) -> int:
    """Bytes and numbers of one batch."""
    kind = make.KINDS[args.kind]
    for image, label in zip(images, labels, strict=True):
        if not make.is_sample(kind, _bytes(image) if not isinstance(image, bytes) else image,
                              None if label is None else int(label)):
            raise SystemExit(f"{args.peer}: a sample is wrong")
    return len(images)


def check_tuples(args: argparse.Namespace, batch: Any) -> int:
    return check_pairs(args, batch[0], batch[1])


def check_dicts(args: argparse.Namespace, batch: Any) -> int:
    return check_pairs(args, batch["image"], batch.get("label", [None] * len(batch["image"])))


def check_rows(args: argparse.Namespace, batch: Any) -> int:
    return check_pairs(args, batch, [None] * len(batch))


def check_windows(args: argparse.Namespace, batch: Any) -> int:
    """Windows of the text as it lies in the file: found by a search for the first tokens."""
    numpy = importlib.import_module("numpy")
    text = numpy.memmap(args.folder / "text.bin", "uint16", "r")
    rows = (batch if hasattr(batch, "numpy") else batch["tokens"]).numpy()
    begins = {text[i * make.T:i * make.T + 24].tobytes(): i
              for i in range((len(text) - 1) // make.T)}
    for row in rows:
        at = begins[row[:24].astype("uint16").tobytes()] * make.T
        if not numpy.array_equal(row, text[at:at + len(row)]):
            raise SystemExit(f"{args.peer}: a window is wrong")
    return len(rows)


def check_gpt(args: argparse.Namespace, batch: Any) -> int:
    """By the three arrays that are Megatron's order, read by pread; batches come in that order."""
    numpy = importlib.import_module("numpy")
    if not hasattr(args, "order"):
        stem = str(next((args.folder / "cache").glob("*document_index.npy")))
        args.order = [numpy.load(stem.replace("document_index", f"{part}_index"))
                      for part in ("document", "sample", "shuffle")]
        args.begins = numpy.cumsum([0, *_sizes(args.folder / "text.idx")])
        args.at = 0
    documents, samples, shuffled = args.order
    fd = os.open(args.folder / "text.bin", os.O_RDONLY)
    rows = (batch["tokens"] if isinstance(batch, dict) else batch).numpy()
    for row in rows:
        (first, begin), (last, end) = samples[shuffled[args.at]:shuffled[args.at] + 2]
        found = b""
        for place in range(first, last + 1):
            low, high = args.begins[documents[place]:documents[place] + 2]
            low, high = low + (begin if place == first else 0), (low + end + 1 if place == last
                                                                 else high)
            found += os.pread(fd, 2 * (high - low), 2 * low)
        if not numpy.array_equal(numpy.frombuffer(found, "uint16")[:len(row)], row):
            raise SystemExit(f"{args.peer}: window {args.at} is wrong")
        args.at += 1
    os.close(fd)
    return len(rows)


def _sizes(path: Path) -> Any:
    raw = path.read_bytes()
    count = int.from_bytes(raw[18:26], "little")
    return memoryview(raw)[34:34 + 4 * count].cast("i")


def check_headrace(args: argparse.Namespace, batch: Any) -> int:
    numpy = importlib.import_module("numpy")
    tensors = {name: numpy.from_dlpack(t.host) for name, t in batch.items()}
    if args.kind == "megatron":
        torch = importlib.import_module("torch")
        return check_windows(args, torch.from_numpy(tensors["tokens"].copy()))
    labels = next((t for n, t in tensors.items() if n.startswith(("label", "cls"))),
                  [None] * len(batch.ids))
    name = next(n for n in tensors if not n.startswith(("label", "cls")) and "." not in n)
    values, offsets = tensors[name], tensors.get(name + ".offsets")
    rows = values if offsets is None else [values[a:b] for a, b in itertools.pairwise(offsets)]
    return check_pairs(args, rows, [None if n is None else n.reshape(-1)[0] for n in labels])


Peer = tuple[Callable[[argparse.Namespace], Batches], Callable[[argparse.Namespace, Any], int], str]
PEERS: dict[str, Peer] = {  # how, the check, the group of tests/formats/peers.sh
    "headrace-python": (headrace, check_headrace, ""),
    "GPTDataset": (megatron, check_gpt, "megatron"),
    "GPTDataset-tokens": (megatron_tokens, check_gpt, "megatron"),
    "memmap-torch": (memmap_windows, check_windows, ""),
    "webdataset": (webdataset, check_tuples, "webdataset"),
    "tfrecord": (tfrecord, check_dicts, "tfrecord"),
    "StreamingDataset": (streaming, check_dicts, "mds"),
    "streaming-LocalDataset": (streaming_local, check_dicts, "mds"),
    "numpy-rows": (numpy_rows, check_rows, ""),
    "numpy-fancy": (numpy_fancy, check_rows, ""),
    "numpy-files": (numpy_files, check_rows, ""),
    "pyarrow-take": (pyarrow_take, check_rows, "arrow"),
}


# -- timing --------------------------------------------------------------------------------------
def family(first: int) -> list[int]:
    """This process and all below it."""
    out = [first]
    for pid in out:
        try:
            for task in os.listdir(f"/proc/{pid}/task"):
                out += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
        except OSError:
            continue
    return out


def cpu_seconds() -> float:
    ticks = 0
    for pid in family(os.getpid()):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def timed(args: argparse.Namespace, batches: Batches) -> dict[str, Any]:
    """Batches until a limit, with a pretended step after each."""
    next(batches)
    began, cpu, done, waited = time.monotonic(), cpu_seconds(), 0, 0.0
    while done < args.max_batches:
        before = time.monotonic()
        batch = next(batches)
        now = time.monotonic()
        waited += now - before
        done += 1
        if now - began > args.seconds:
            break
        if args.step_us:
            time.sleep(args.step_us / 1e6)
        del batch
    seconds, count = time.monotonic() - began, done * args.batch_size
    return {"samples": count, "seconds": seconds, "samples_per_second": count / seconds,
            "waiting_share": waited / seconds,
            "cpu_us_per_sample": (cpu_seconds() - cpu) * 1e6 / count}


def state_us(loader: Any) -> dict[str, float]:
    """What it costs to ask where the loader is, from Python."""
    times = []
    for _ in range(2000):
        before = time.perf_counter_ns()
        loader.state_dict()
        times.append((time.perf_counter_ns() - before) / 1000)
    times.sort()
    return {"median": times[1000], "p99": times[1980], "max": times[-1]}


def run(args: argparse.Namespace) -> dict[str, Any]:
    how, check, _ = PEERS[args.peer]
    batches = how(args)
    out: dict[str, Any] = {"peer": args.peer, "workers": args.workers}
    if args.verify:
        out["checked"] = sum(check(args, batch) for batch in
                             itertools.islice(batches, args.max_batches))
        return {**out, "verified": out["checked"] > 0}
    out.update(timed(args, batches))
    if args.peer == "headrace-python":
        out["state_us"] = state_us(args.loader)
    return out


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("peer", choices=sorted(PEERS))
    p.add_argument("kind", choices=sorted(make.KINDS))
    p.add_argument("folder", type=Path)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--workers", type=int, default=0)
    p.add_argument("--seconds", type=float, default=3.0, help="stop after (3)")
    p.add_argument("--max-batches", type=int, default=1 << 30, help="and after so many batches")
    p.add_argument("--step-us", type=int, default=0, help="pretended compute after a batch (0)")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--verify", action="store_true", help="check the bytes instead of timing")
    print(json.dumps(run(p.parse_args())), flush=True)
    for worker in multiprocessing.active_children():  # not seldom they are waited for in vain
        worker.kill()
    os._exit(0)


if __name__ == "__main__":
    main()
