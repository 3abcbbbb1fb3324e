# SPDX-License-Identifier: Apache-2.0
"""Datasets: where samples lie in files. Nothing is read here but headers and side indexes.

All of them take one path or several, or folders; ``len()`` is the number of samples, ``info()`` tells
their fields. They pickle by their arguments. ``select`` and ``Mixture`` make datasets of datasets.
"""
import array

from . import _arguments, _core

_CORRUPT = {"error": 0, "skip": 1, "substitute": 2}


class Dataset:
    """Files of samples; what they are is recognised, or said by ``format``.

    ``fields``: names of those that are wanted, all by default. ``corrupt``: "error", or "skip" or
    "substitute" samples that are known to be damaged. ``index_dir``: where side indexes are, beside the
    data by default; ``index_only``: never make one. ``info()["corrupt"]`` counts what was damaged.
    """

    def __init__(self, paths, format=None, *, fields=None, corrupt="error", index_dir=None,
                 index_only=False, index_threads=1, dtype=None, seq_len=0, stride=0, whole_files=False,
                 order=None):
        if corrupt not in _CORRUPT:
            raise ValueError(f"corrupt {corrupt!r}: must be one of {', '.join(_CORRUPT)}")
        _arguments.u32(seq_len=seq_len, index_threads=index_threads)
        if isinstance(fields, str):
            fields = [fields]
        self._args = (_arguments.paths(paths), format or "auto", _arguments.dtype(dtype), int(seq_len),
                      int(stride), None if fields is None else [f.encode() for f in fields],
                      _CORRUPT[corrupt], bool(whole_files), _arguments.maybe(order),
                      _arguments.maybe(index_dir), bool(index_only), int(index_threads))
        self._handle = _core.dataset_open(*self._args)

    def __len__(self):
        return self.info()["samples"]

    def __getitem__(self, index):
        raise TypeError("samples are read in batches: headrace.Loader(dataset, batch_size); "
                        "dataset.select(ids) is a dataset of some of them")

    def info(self):
        """Format, samples, fields as (name, kind, dtype, shape), files, bytes, corrupt samples."""
        return _core.dataset_info(self._handle)

    @property
    def fields(self):
        return [field[0] for field in self.info()["fields"]]

    def select(self, ids):
        """The samples with these numbers, in this order: a filter, or any other subset."""
        return Selection(self, ids)

    def __reduce__(self):
        return (_again, (self._args,))

    def __repr__(self):
        info = self.info()
        return f"<headrace.{type(self).__name__} {info['format']}, {info['samples']} samples>"


def _again(args):
    dataset = Dataset.__new__(Dataset)
    dataset._args = args
    dataset._handle = _core.dataset_open(*args)
    return dataset


class TokenDataset(Dataset):
    """Files of token numbers; a sample is a window of ``seq_len`` + 1 of them. ``dtype``: "u16" or
    "u32", for files without a header."""

    def __init__(self, paths, dtype=None, seq_len=1024, stride=0):
        super().__init__(paths, "tokens", dtype=dtype, seq_len=seq_len, stride=stride)


class MegatronDataset(Dataset):
    """Megatron-Core's .bin and .idx. A sample is a window of ``seq_len`` + 1 tokens over all documents,
    or with ``seq_len`` 0 one document. ``order``: what the paths of Megatron's three cached index files
    begin with; the samples are then its own, in its own order."""

    def __init__(self, paths, seq_len=1024, *, order=None):
        super().__init__(paths, "megatron", seq_len=seq_len, order=order)


class NpyDataset(Dataset):
    """Rows of .npy arrays, or with ``whole_files`` one array a sample."""

    def __init__(self, paths, *, whole_files=False):
        super().__init__(paths, "npy", whole_files=whole_files)


class NpzDataset(Dataset):
    """Rows of the arrays in uncompressed .npz files."""

    def __init__(self, paths, *, fields=None):
        super().__init__(paths, "npy", fields=fields)


class TarDataset(Dataset):
    """WebDataset's .tar shards; a field per extension, encoded as it is in the file."""

    def __init__(self, paths, *, fields=None, corrupt="error", index_dir=None, index_only=False,
                 index_threads=1):
        super().__init__(paths, "tar", fields=fields, corrupt=corrupt, index_dir=index_dir,
                         index_only=index_only, index_threads=index_threads)


class TFRecordDataset(Dataset):
    """TFRecord files; a field per feature of their Examples, or "record"."""

    def __init__(self, paths, *, fields=None, corrupt="error", index_dir=None, index_only=False,
                 index_threads=1):
        super().__init__(paths, "tfrecord", fields=fields, corrupt=corrupt, index_dir=index_dir,
                         index_only=index_only, index_threads=index_threads)


class MDSDataset(Dataset):
    """Folders of MosaicML's streaming format, uncompressed; a field per column."""

    def __init__(self, paths, *, fields=None):
        super().__init__(paths, "mds", fields=fields)


class ArrowDataset(Dataset):
    """Arrow IPC files and streams, as Hugging Face datasets keeps them; a field per column."""

    def __init__(self, paths, *, fields=None):
        super().__init__(paths, "arrow", fields=fields)


class SafetensorsDataset(Dataset):
    """Rows of the tensors of safetensors files that have the same first dimension."""

    def __init__(self, paths, *, fields=None):
        super().__init__(paths, "safetensors", fields=fields)


class Selection(Dataset):
    """Some samples of a dataset, by number and in order."""

    def __init__(self, dataset, ids):
        self._parent, self._ids = dataset, array.array("Q", ids)
        self._handle = _core.dataset_select(dataset._handle, self._ids.tobytes())

    def __reduce__(self):
        return (Selection, (self._parent, self._ids))


class Mixture(Dataset):
    """Several datasets with the same fields, drawn from by weight. An epoch has ``samples``, by default as
    many as all of them together."""

    def __init__(self, datasets, weights, samples=0):
        self._kids, self._weights, self._samples = list(datasets), [float(w) for w in weights], int(samples)
        self._handle = _core.dataset_mix([d._handle for d in self._kids], self._weights, self._samples)

    def __reduce__(self):
        return (Mixture, (self._kids, self._weights, self._samples))


def build_index(paths, format=None, *, index_dir=None, threads=1, force=False, progress=None):
    """Make the side indexes that files need, where they are absent or stale. ``progress(bytes, total,
    samples)`` is called now and then. Returns how many were made."""
    return _core.index_build(_arguments.paths(paths), format or "auto", _arguments.maybe(index_dir),
                             int(threads), bool(force),
                             progress)
