# SPDX-License-Identifier: Apache-2.0
"""Tensors of safetensors files, for any framework: names and shapes out, bytes into memory."""
import concurrent.futures
import os
import threading
from typing import NamedTuple

from . import _core, _engines, _memory
from ._errors import Error


class Weight(NamedTuple):
    """A tensor of a checkpoint."""

    name: str
    dtype: str  # "BF16"
    shape: tuple
    nbytes: int  # in the file
    path: str  # of the file


class Checkpoint:
    """A safetensors file, an index of shards, or a folder with one of them; headers only.

    ``lenient`` lets bytes behind the last tensor pass, and tensors that an index does not list.
    """

    def __init__(self, path, lenient=False):
        self._path, self._lenient = os.fspath(path), bool(lenient)
        self._handle = _core.checkpoint_open(self._path, self._lenient)
        self._weights = {w[0]: (i, Weight(*w))
                         for i, w in enumerate(_core.checkpoint_weights(self._handle))}

    def keys(self):
        """Names, in the order of the file."""
        return list(self._weights)

    def __len__(self):
        return len(self._weights)

    def __contains__(self, name):
        return name in self._weights

    def __iter__(self):
        return iter(self._weights)

    def __getitem__(self, name):
        """The Weight of this name."""
        return self._find(name)[1]

    @property
    def metadata(self):
        """Pairs of text, {} if there are none."""
        return _core.checkpoint_metadata(self._handle)

    def load_into(self, targets):
        """Fill memory of the caller, everything in one pass over the files.

        ``targets``: {name: tensor}, or {name: (tensor, dim, start, count)} for a slice of one
        dimension. Each tensor is dense and exactly as long as what goes into it; all are on one
        device. Returns the bytes read from the files.
        """
        parts, devices = [], set()
        for name, target in targets.items():
            tensor, dim, start, count = target if isinstance(target, tuple) else (target, -1, 0, 0)
            index, weight = self._find(name)
            memory = _memory.find(tensor, True)
            expected = _slice_bytes(weight, dim, count)
            if memory.nbytes != expected:
                raise ValueError(f"{name}: its target has {memory.nbytes} bytes, {expected} are needed")
            if not memory.nbytes:
                continue
            devices.add(memory.device)
            parts.append((index, dim, start, count, memory))
        if not parts:
            return 0
        if len(devices) > 1:
            raise ValueError(f"targets are on {', '.join(sorted(devices))}; load each device by itself")
        return self._load(devices.pop(), parts)

    def _load(self, device, parts):
        """Parts are (index, dim or -1, start, count, Memory)."""
        handle = _engines.device(device)
        buffers = [_core.buffer_register(handle, m.address, m.nbytes) for _, _, _, _, m in parts]
        rows = [(index, None, dim, start, count, buffer, 0)
                for (index, dim, start, count, _), buffer in zip(parts, buffers)]
        engine = _engines.engine(device, _core.checkpoint_cache(self._handle))
        try:
            return _core.checkpoint_load(engine, self._handle, rows, (parts, buffers))[0]
        except Error as error:
            error.filename = self._path
            raise

    def _find(self, name):
        try:
            return self._weights[name]
        except KeyError:
            raise KeyError(f"{self._path} has no tensor {name!r}") from None

    def __reduce__(self):
        return (Checkpoint, (self._path, self._lenient))

    def __repr__(self):
        return f"headrace.Checkpoint({self._path!r}): {len(self)} tensors"


def _slice_bytes(weight, dim, count):
    if dim < 0:
        return weight.nbytes
    size = weight.shape[dim]
    return weight.nbytes // size * count if size else 0


def _collect(tensors):
    """Rows for the C part, what keeps them alive, and their device."""
    held, devices = [], set()
    for name, (dtype, shape, tensor) in tensors.items():
        memory = _memory.find(tensor, False)
        held.append((name, dtype, tuple(int(n) for n in shape), memory))
        if memory.nbytes:
            devices.add(memory.device)
    if len(devices) > 1:
        raise ValueError(f"tensors are on {', '.join(sorted(devices))}; copy them to one of them first")
    device = devices.pop() if devices else "host"
    rows = []
    for name, dtype, shape, memory in held:
        buffer = None
        if memory.nbytes:
            buffer = _core.buffer_register(_engines.device(device), memory.address, memory.nbytes)
        rows.append((name, dtype, shape, buffer, 0))
    return rows, (held, rows), device


def _pairs(metadata):
    return None if metadata is None else [(str(k), str(v)) for k, v in metadata.items()]


def _run(saving, held, path):
    try:
        _core.save_run(saving, held)
    except Error as error:
        error.filename = path
        raise


def _open_save(engine, path, rows, metadata, snapshot):
    try:
        return _core.save_open(engine, path, rows, _pairs(metadata), snapshot)
    except Error as error:
        error.filename = path
        raise


def save(tensors, path, metadata=None):
    """Write {name: (dtype, shape, tensor)} to a safetensors file, which is replaced when the new one
    is whole and on the drive. dtype is the format's word, such as "BF16"; all are on one device."""
    rows, held, device = _collect(tensors)
    path = os.fspath(path)
    _run(_open_save(_engines.engine(device), path, rows, metadata, False), held, path)


def save_async(tensors, path, metadata=None):
    """As save(), but return when the tensors have been copied within device memory: they may change
    from then on. That takes as much memory as they have until the save is over. Returns a Future;
    the interpreter does not exit before the file is there."""
    rows, held, device = _collect(tensors)
    path = os.fspath(path)
    # An engine belongs to the thread that uses it: this one is the save's alone.
    engine = _core.engine_open(_engines.device(device), _engines.threads(), 0, 0)
    saving = _open_save(engine, path, rows, metadata, True)
    future = concurrent.futures.Future()
    future.set_running_or_notify_cancel()

    def work():
        try:
            _run(saving, (held, engine), path)
        except BaseException as error:  # noqa: B902 - it belongs to whoever waits
            future.set_exception(error)
        else:
            future.set_result(None)

    threading.Thread(target=work, name="headrace save").start()
    return future
