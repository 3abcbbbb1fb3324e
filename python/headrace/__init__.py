# SPDX-License-Identifier: Apache-2.0
"""Bytes from files straight into device memory.

``open(path)`` gives a File with ``read_into`` and ``write_from`` for any tensor or buffer;
``Checkpoint(path)`` the tensors of safetensors files, ``headrace.torch`` the same for PyTorch;
``Loader(TokenDataset(path), batch_size)`` shuffled batches in device memory.
Importing this needs no framework.
"""
import os
from typing import NamedTuple

from . import _arguments, _core, _engines, _memory
from ._errors import Error, NotFound, Timeout
from .checkpoint import Checkpoint, Weight, save, save_async, save_sharded
from .dataset import (ArrowDataset, Dataset, MDSDataset, MegatronDataset, Mixture, NpyDataset, NpzDataset,
                      SafetensorsDataset, Selection, TarDataset, TFRecordDataset, TokenDataset, build_index)
from .loader import Batch, Loader, Tensor

__all__ = ["ArrowDataset", "Batch", "CheckItem", "Checkpoint", "Dataset", "Error", "File", "Loader",
           "MDSDataset", "MegatronDataset", "Mixture", "NotFound", "NpyDataset", "NpzDataset",
           "SafetensorsDataset", "Selection", "TFRecordDataset", "TarDataset", "Tensor", "Timeout",
           "TokenDataset", "Weight", "build_index", "check", "device_info", "open", "save", "save_async",
           "save_sharded"]
__version__ = _core.version()

_READ, _WRITE, _CREATE, _TRUNCATE, _EXCLUSIVE = 1, 2, 4, 8, 16
_MODES = {"r": _READ, "r+": _READ | _WRITE, "w": _READ | _WRITE | _CREATE | _TRUNCATE,
          "a": _READ | _WRITE | _CREATE, "x": _READ | _WRITE | _CREATE | _EXCLUSIVE}


class File:
    """An open file. Pickles by path and mode; a child of fork() may go on using it."""

    def __init__(self, path, mode="r"):
        if mode not in _MODES:
            raise ValueError(f"mode {mode!r}: must be one of {', '.join(_MODES)}")
        self._path, self._mode = os.fspath(path), mode
        self._handle = _core.file_open(self._path, _MODES[mode])

    @property
    def path(self):
        return self._path

    @property
    def size(self):
        """Bytes, as of now."""
        return self.info()["size_bytes"]

    def info(self):
        """Size, file system, whether direct I/O works and why not."""
        return _core.file_info(self._open())

    def read_into(self, tensor, file_offset=0):
        """Fill ``tensor`` from the file. Returns the bytes read: fewer than its size only at the
        end of the file; what lies behind them is undefined."""
        return self._transfer(False, tensor, file_offset)

    def write_from(self, tensor, file_offset=0):
        """Write all of ``tensor`` to the file. Returns the bytes written."""
        return self._transfer(True, tensor, file_offset)

    def sync(self):
        """Return when what was written is on the drive."""
        _core.file_sync(self._open())

    def explain(self, device="host"):
        """Which path the file takes to a device, and why each other one was refused."""
        return _core.explain(self._open(), _engines.device(_arguments.device(device)))

    def close(self):
        self._handle = None

    @property
    def closed(self):
        return self._handle is None

    def _open(self):
        if self._handle is None:
            raise ValueError(f"{self._path}: the file is closed")
        return self._handle

    def _transfer(self, write, tensor, file_offset):
        handle = self._open()
        memory = _memory.find(tensor, not write)
        if not memory.nbytes:
            return 0
        buffer = _core.buffer_register(_engines.device(memory.device), memory.address, memory.nbytes)
        try:
            return _core.transfer(_engines.engine(memory.device), write, handle, file_offset,
                                  memory.nbytes, buffer, 0)
        except Error as error:
            error.filename, error.file_offset = self._path, file_offset
            if isinstance(error, Timeout):
                # The drive may still write there.
                _engines.keep((memory, buffer))
            raise

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def __reduce__(self):
        mode = {"w": "r+", "x": "r+"}.get(self._mode, self._mode)  # never to be emptied again
        return (File, (self._path, mode))

    def __repr__(self):
        return f"headrace.File({self._path!r}, {self._mode!r})"


def open(path, mode="r"):  # noqa: A001 - the name is the interface
    """Open a file: "r", "r+", "w" (emptied), "a" (created if absent), "x" (must be new)."""
    return File(path, mode)


def device_info(name="host"):
    """Name, model, PCI address and memory of a device: "host" or "cuda:N"."""
    return _core.device_info(_engines.device(_arguments.device(name)))


class CheckItem(NamedTuple):
    """One thing that was looked at."""

    group: str  # "kernel", "gpu", "storage", "limits", "libraries"
    name: str
    state: str  # "ok", "limited" (works, more slowly) or "no"
    cause: str
    fix: str  # what would change that, "" if nothing


def check(device=None, paths=()):
    """What this machine can do, as ``headrace check`` shows it: a list of CheckItem. ``device``: all
    GPUs if None. ``paths``: files or folders whose drives and file systems are judged as well."""
    device = None if device is None else _arguments.device(device)
    return [CheckItem(*row) for row in _core.check(device, _arguments.paths(paths))]
