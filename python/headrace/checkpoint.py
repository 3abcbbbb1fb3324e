# SPDX-License-Identifier: Apache-2.0
"""Tensors of safetensors files, for any framework: names and shapes out, bytes into memory."""
import concurrent.futures
import errno
import fcntl
import json
import os
import re
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
        engine = _engines.engine(device)
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


class _Saving(concurrent.futures.Future):
    """The thread that saves is its process's: in a child of fork() nobody would ever be done."""

    def __init__(self):
        super().__init__()
        self._pid = os.getpid()
        self.over = False

    def _refuse_child(self):
        if not self.over and os.getpid() != self._pid:
            raise RuntimeError("the save was begun before fork() and belongs to the parent")

    def result(self, timeout=None):
        self._refuse_child()
        return super().result(timeout)

    def exception(self, timeout=None):
        self._refuse_child()
        return super().exception(timeout)


def save_async(tensors, path, metadata=None):
    """As save(), but return when the tensors have been copied within device memory: they may change
    from then on. That takes as much memory as they have until the save is over. Returns a Future;
    the interpreter does not exit before the file is there."""
    rows, held, device = _collect(tensors)
    path = os.fspath(path)
    # An engine belongs to the thread that uses it: this one is the save's alone.
    engine = _core.engine_open(_engines.device(device), _engines.threads(), 0, 0)
    saving = _open_save(engine, path, rows, metadata, True)
    future = _Saving()
    future.set_running_or_notify_cancel()

    def work():
        try:
            _run(saving, (held, engine), path)
        except BaseException as error:  # noqa: B902 - it belongs to whoever waits
            future.set_exception(error)
        else:
            future.set_result(None)
        future.over = True

    threading.Thread(target=work, name="headrace save").start()
    return future


_SHARD = "{}-{:05d}-of-{:05d}.safetensors"


def _shards(tensors, max_bytes):
    """Cut the tensors, in their order, into files of at most max_bytes, or of one tensor."""
    shards, size = [{}], 0
    for name, row in tensors.items():
        nbytes = _memory.find(row[2], False).nbytes
        if shards[-1] and size + nbytes > max_bytes:
            shards.append({})
            size = 0
        shards[-1][name] = row
        size += nbytes
    return shards


def _sync_folder(path):
    fd = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def replace_file(path, data):
    """Write a small file: the old one stays whole until the new one is, on the drive as well."""
    temp = path + ".tmp"
    with open(temp, "wb") as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())
    os.replace(temp, path)
    _sync_folder(os.path.dirname(path))


def _named_by(path):
    """The files that an index names, and those that its save was to remove; none if there is no index
    that can be read."""
    try:
        with open(path, encoding="utf-8") as f:
            index = json.load(f)
        return set(index["weight_map"].values()), set(index["metadata"].get("replaces", ()))
    except (OSError, ValueError, LookupError, AttributeError, TypeError):
        return set(), set()


def _free_names(folder, name, count):
    """Names for shards that no file has: a checkpoint that is there is not to be overwritten by halves."""
    stem, k = name, 0
    while True:
        names = [_SHARD.format(stem, i + 1, count) for i in range(count)]
        if not any(os.path.lexists(os.path.join(folder, n)) for n in names):
            return names
        k += 1
        stem = f"{name}.{k}"


class _Index:
    """The index of a folder while its checkpoint is replaced. The new index lies beside the old one from
    the start, locked, and says which shards a save that was cut off has left."""

    def __init__(self, folder, name):
        self._folder, self._name = folder, name
        self.path = os.path.join(folder, f"{name}.safetensors.index.json")
        self._temp = self.path + ".tmp"
        self._fd = os.open(self._temp, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(self._fd).st_ino != os.stat(self._temp, follow_symlinks=False).st_ino:
                raise BlockingIOError
        except (BlockingIOError, FileNotFoundError):
            os.close(self._fd)
            raise BlockingIOError(errno.EBUSY, f"{self.path}: another save is writing it; wait for it") from None
        self._old, doomed = _named_by(self.path)
        self._remove((_named_by(self._temp)[0] | doomed) - self._old)

    def plan(self, places, total):
        about = {"total_size": total, **({"replaces": sorted(self._old)} if self._old else {})}
        text = json.dumps({"metadata": about, "weight_map": places}, indent=2).encode()
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, text, 0)
        os.fsync(self._fd)

    def commit(self):
        os.replace(self._temp, self.path)
        _sync_folder(self._folder)
        self._remove(self._old - _named_by(self.path)[0])

    def abandon(self):
        self._remove(_named_by(self._temp)[0] - self._old)
        os.unlink(self._temp)

    def close(self):
        os.close(self._fd)

    def _remove(self, files):
        """Files of ours, and no others whatever an index says."""
        ours = re.compile(rf"{re.escape(self._name)}(\.\d+)?-\d{{5}}-of-\d{{5}}\.safetensors")
        for file in files:
            path = os.path.join(self._folder, str(file))
            if ours.fullmatch(str(file)) and os.path.isfile(path):
                os.unlink(path)


def save_sharded(tensors, folder, metadata=None, *, max_shard_bytes=5_000_000_000, name="model"):
    """Write {name: (dtype, shape, tensor)} to several safetensors files and their index.

    The files are ``model-00001-of-00003.safetensors`` and so on, each of ``max_shard_bytes`` at most or
    of one tensor; the index is ``model.safetensors.index.json``. It gets its name last and replaces the
    old one whole: until then the folder has the old checkpoint, from then on the new one. The shards
    that only the old index named are removed afterwards. Returns the path of the index.
    """
    folder = os.path.join(os.fspath(folder), "")
    if max_shard_bytes < 1:
        raise ValueError("max_shard_bytes: must be at least 1")
    if os.sep in name or name in ("", ".", ".."):
        raise ValueError(f"name {name!r}: must be a plain name, for files of {folder}")
    os.makedirs(folder, exist_ok=True)
    shards = _shards(tensors, max_shard_bytes)
    total = sum(_memory.find(row[2], False).nbytes for row in tensors.values())
    index = _Index(folder, name)
    try:
        names = _free_names(folder, name, len(shards))
        index.plan({n: file for shard, file in zip(shards, names) for n in sorted(shard)}, total)
        for shard, file in zip(shards, names):
            save(shard, os.path.join(folder, file), metadata)
        index.commit()
    except BaseException:
        if os.path.exists(index.path + ".tmp"):
            index.abandon()
        raise
    finally:
        index.close()
    return index.path
