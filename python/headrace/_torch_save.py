# SPDX-License-Identifier: Apache-2.0
"""Tensors of PyTorch into files: what may be saved, and its memory."""
import os
import tempfile

import torch

from ._torch_types import PACKED, WORDS, as_bytes, settle
from .checkpoint import save as _save, save_async as _save_async, save_sharded as _save_sharded


def _check(tensors, shared):
    if not isinstance(tensors, dict):
        raise ValueError(f"Expected a dict of [str, torch.Tensor] but received {type(tensors)}")
    ranges = {}
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"Key `{name}` is invalid, expected torch.Tensor but received {type(tensor)}")
        if tensor.layout != torch.strided:
            raise ValueError(f"`{name}` is sparse, which the format does not know: make it dense with "
                             "`.to_dense()`")
        if not tensor.is_contiguous():
            raise ValueError(f"`{name}` is not contiguous: pack it with `.contiguous()` before saving")
        if tensor.dtype not in WORDS:
            raise ValueError(f"`{name}`: the format has no type for {tensor.dtype}")
        if tensor.nelement() and tensor.device.type != "meta" and not shared:
            start = tensor.data_ptr()
            ranges.setdefault(tensor.device, []).append(
                (start, start + tensor.nelement() * tensor.element_size(), name))
    for spans in ranges.values():
        spans.sort()
        for (_, end, a), (start, _, b) in zip(spans, spans[1:]):
            if start < end:
                raise RuntimeError(f"`{a}` and `{b}` share memory, which would be saved twice: save one "
                                   "of them, or a copy")


class _Raw:
    """A tensor's memory, whatever its type: not all types travel by DLPack."""

    def __init__(self, tensor):
        self._tensor = tensor
        self.device = tensor.device
        self.__cuda_array_interface__ = {
            "shape": (tensor.nelement() * tensor.element_size(),), "typestr": "|u1", "strides": None,
            "data": (tensor.data_ptr(), False), "version": 3}


def _flat(tensor):
    if tensor.device.type == "cpu":
        return as_bytes(tensor).numpy() if tensor.nelement() else b""
    return _Raw(tensor.detach())


def rows(tensors, shared=False):
    """What there is to save, its memory ready to be read. ``shared``: some may lie in the same memory."""
    _check(tensors, shared)
    devices = {t.device for t in tensors.values() if t.nelement()}
    out = {}
    for name, tensor in tensors.items():
        if len(devices) > 1 or tensor.device.type not in ("cpu", "cuda"):
            tensor = tensor.cpu()
        word = WORDS[tensor.dtype]
        shape = tuple(tensor.shape)
        if word in PACKED:
            shape = (*shape[:-1], shape[-1] * 2)
        out[name] = (word, shape, _flat(tensor))
    for device in devices:
        settle(device)
    return out


def save_file(tensors, filename, metadata=None):
    """Write tensors to a file, which is replaced when the new one is whole and on the drive. The bytes
    are those that ``safetensors.torch.save_file`` writes."""
    _save(rows(tensors), os.fspath(filename), metadata)


def save_file_async(tensors, filename, metadata=None):
    """As save_file(), but return when the tensors have been copied within their device, so that
    training may go on; takes as much memory as they have until it is done. Returns a Future."""
    return _save_async(rows(tensors), os.fspath(filename), metadata)


def save_sharded(tensors, folder, metadata=None, *, max_shard_bytes=5_000_000_000, name="model"):
    """Write tensors to several files of a folder, and the index that names them. The index comes last:
    until then a reader of the folder gets the old checkpoint whole. Returns the path of the index."""
    return _save_sharded(rows(tensors), folder, metadata, max_shard_bytes=max_shard_bytes, name=name)


def save(tensors, metadata=None):
    """The bytes of the file that save_file() writes."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="headrace-", dir=memory) as folder:
        path = os.path.join(folder, "tensors")
        save_file(tensors, path, metadata)
        with open(path, "rb") as f:
            return f.read()
