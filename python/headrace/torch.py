# SPDX-License-Identifier: Apache-2.0
"""safetensors for PyTorch: the calls of ``safetensors.torch``, at the speed of the drive or the link.

Tensors are allocated by PyTorch and filled in place; nothing is mapped and nothing is copied twice.
"""
import os

import torch

from . import _memory
from .checkpoint import Checkpoint, save as _save, save_async as _save_async

# By name: a version of PyTorch may lack some.
_NAMES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64",
    "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool", "U64": "uint64",
    "U32": "uint32", "U16": "uint16", "C64": "complex64", "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2", "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E8M0": "float8_e8m0fnu", "F4": "float4_e2m1fn_x2",
}
_TYPES = {word: getattr(torch, name) for word, name in _NAMES.items() if hasattr(torch, name)}
_WORDS = {dtype: word for word, dtype in _TYPES.items()}
_PACKED = {"F4"}  # two elements in one of PyTorch's


def _device_name(device):
    device = torch.device(f"cuda:{device}" if isinstance(device, int) else device)
    if device.type == "cpu":
        return device, "host"
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        return torch.device("cuda", index), f"cuda:{index}"
    raise ValueError(f"device {device}: only cpu and cuda are supported")


def _type_of(weight):
    if weight.dtype not in _TYPES:
        raise TypeError(f"{weight.name}: this version of PyTorch has no type for {weight.dtype}")
    return _TYPES[weight.dtype]


def _shape_of(weight, shape):
    if weight.dtype in _PACKED and shape:
        return (*shape[:-1], shape[-1] // 2)
    return shape


def _memory_of(tensor, device):
    size = tensor.nelement() * tensor.element_size()
    return _memory.Memory(tensor.data_ptr(), size, device, tensor)


def _fill(checkpoint, wanted, device):
    """{key: tensor} for {key: (name, dim, start, count)}, in one pass over the files."""
    device, name_of = _device_name(device)
    tensors, parts = {}, []
    for key, (name, dim, start, count) in wanted.items():
        index, weight = checkpoint._find(name)
        shape = list(weight.shape)
        if dim >= 0:
            shape[dim] = count
        tensor = torch.empty(_shape_of(weight, shape), dtype=_type_of(weight), device=device)
        tensors[key] = tensor
        if tensor.nelement():
            parts.append((index, dim, start, count, _memory_of(tensor, name_of)))
    if device.type == "cuda":
        # Memory of the allocator may still be in use by what was queued before.
        torch.cuda.current_stream(device).synchronize()
    if parts:
        checkpoint._load(name_of, parts)
    return tensors


def load_file(filename, device="cpu", *, backend="mmap"):
    """All tensors of a file, or of the shards of an index. ``backend`` is accepted and not needed."""
    checkpoint = Checkpoint(filename)
    return _fill(checkpoint, {name: (name, -1, 0, 0) for name in checkpoint}, device)


def load_into(state_dict, filename, *, strict=True):
    """Fill the tensors of a state_dict in place. Returns (missing, unexpected) names; with ``strict``
    either of them raises. Types and shapes must agree."""
    checkpoint = Checkpoint(filename)
    missing = [name for name in state_dict if name not in checkpoint]
    unexpected = [name for name in checkpoint if name not in state_dict]
    if strict and (missing or unexpected):
        raise RuntimeError(f"{filename}: missing {missing}, unexpected {unexpected}")
    by_device = {}
    for name, tensor in state_dict.items():
        if name in missing:
            continue
        index, weight = checkpoint._find(name)
        if tensor.dtype != _type_of(weight) or tuple(tensor.shape) != tuple(
                _shape_of(weight, weight.shape)):
            raise ValueError(f"{name}: is {weight.dtype} {list(weight.shape)} in the file, "
                             f"{tensor.dtype} {list(tensor.shape)} here")
        if not tensor.is_contiguous():
            raise ValueError(f"{name}: is not contiguous")
        device, name_of = _device_name(tensor.device)
        if tensor.nelement():
            by_device.setdefault((device, name_of), []).append(
                (index, -1, 0, 0, _memory_of(tensor, name_of)))
    for (device, name_of), parts in by_device.items():
        if device.type == "cuda":
            torch.cuda.current_stream(device).synchronize()
        checkpoint._load(name_of, parts)
    return missing, unexpected


def iterate(filename, device="cpu", *, name_filter=None, bytes_at_once=1 << 30):
    """Pairs (name, tensor) in the order of the files. ``name_filter(name)`` says what is read at all.
    At most ``bytes_at_once`` are read ahead of what was handed out, or one tensor."""
    checkpoint = Checkpoint(filename)
    group, size = {}, 0
    for name in checkpoint:
        if name_filter is not None and not name_filter(name):
            continue
        nbytes = checkpoint[name].nbytes
        if group and size + nbytes > bytes_at_once:
            yield from _fill(checkpoint, group, device).items()
            group, size = {}, 0
        group[name] = (name, -1, 0, 0)
        size += nbytes
    yield from _fill(checkpoint, group, device).items()


class _Slice:
    """A tensor of an open file, read when it is indexed: only the part of one dimension that is
    wanted is read, the rest is indexed in memory."""

    def __init__(self, checkpoint, name, device):
        self._checkpoint, self._name, self._device = checkpoint, name, device

    def get_shape(self):
        return list(self._checkpoint[self._name].shape)

    def get_dtype(self):
        return self._checkpoint[self._name].dtype

    def __getitem__(self, index):
        weight = self._checkpoint[self._name]
        items = list(index) if isinstance(index, tuple) else [index]
        if items.count(Ellipsis) > 1:
            raise IndexError("more than one Ellipsis")
        if Ellipsis in items:
            at = items.index(Ellipsis)
            items[at:at + 1] = [slice(None)] * (len(weight.shape) - len(items) + 1)
        if len(items) > len(weight.shape):
            raise IndexError(f"too many indices for {self._name} of {len(weight.shape)} dimensions")
        dim, start, count = -1, 0, 0
        for d, item in enumerate(items):
            first, last = _range(item, weight.shape[d])
            if dim < 0 and last - first < weight.shape[d] and weight.dtype not in _PACKED:
                dim, start, count = d, first, last - first
                items[d] = _shift(item, first, weight.shape[d])
        tensor = _fill(self._checkpoint, {0: (self._name, dim, start, count)}, self._device)[0]
        return tensor[tuple(items)] if items else tensor


def _range(item, size):
    """The least range of a dimension that an index needs."""
    if isinstance(item, slice):
        picked = range(*item.indices(size))
        if not picked:
            return 0, 0
        return min(picked[0], picked[-1]), max(picked[0], picked[-1]) + 1
    if isinstance(item, int) and not isinstance(item, bool):
        if not -size <= item < size:
            raise IndexError(f"index {item} is out of bounds for a dimension of {size}")
        return item % size, item % size + 1
    return 0, size  # tensors, lists, None: PyTorch's business


def _shift(item, first, size):
    """The same index within a range that begins at @first."""
    if isinstance(item, int):
        return item % size - first
    picked = range(*item.indices(size))
    if not picked:
        return slice(0, 0)
    if item.step is not None and item.step < 0:
        raise ValueError("a step must be greater than zero")
    return slice(picked[0] - first, picked[-1] - first + 1, item.step)


class safe_open:  # noqa: N801 - the name is the interface
    """Opens a file lazily, as ``safetensors.safe_open`` for framework "pt"."""

    def __init__(self, filename, framework="pt", device="cpu", *, backend="mmap"):
        if framework not in ("pt", "torch", "pytorch"):
            raise ValueError(f"framework {framework!r}: this is headrace.torch, say \"pt\"")
        self._checkpoint = Checkpoint(filename)
        self._device = device

    def __enter__(self):
        self._open()
        return self

    def __exit__(self, _exc_type, _exc_value, _traceback):
        self._checkpoint = None

    def _open(self):
        if self._checkpoint is None:
            raise RuntimeError("the file is closed")
        return self._checkpoint

    def keys(self):
        """Names, sorted."""
        return sorted(self._open())

    def offset_keys(self):
        """Names, in the order of the file."""
        return self._open().keys()

    def metadata(self):
        """Pairs of text, or None."""
        return self._open().metadata or None

    def get_tensor(self, name):
        return _fill(self._open(), {name: (name, -1, 0, 0)}, self._device)[name]

    def get_tensors(self):
        return _fill(self._open(), {n: (n, -1, 0, 0) for n in self._open()}, self._device)

    def get_slice(self, name):
        self._open()._find(name)
        return _Slice(self._open(), name, self._device)


def _check(tensors):
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
        if tensor.dtype not in _WORDS:
            raise ValueError(f"`{name}`: the format has no type for {tensor.dtype}")
        if tensor.nelement():
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
        return tensor.detach().reshape(-1).view(torch.uint8).numpy() if tensor.nelement() else b""
    return _Raw(tensor.detach())


def _rows(tensors):
    """What there is to save, its memory ready to be read."""
    _check(tensors)
    devices = {t.device for t in tensors.values() if t.nelement()}
    rows = {}
    for name, tensor in tensors.items():
        if len(devices) > 1 or tensor.device.type not in ("cpu", "cuda"):
            tensor = tensor.cpu()
        word = _WORDS[tensor.dtype]
        shape = tuple(tensor.shape)
        if word in _PACKED:
            shape = (*shape[:-1], shape[-1] * 2)
        rows[name] = (word, shape, _flat(tensor))
    for device in devices:
        if device.type == "cuda":
            torch.cuda.current_stream(device).synchronize()
    return rows


def save_file(tensors, filename, metadata=None):
    """Write tensors to a file, which is replaced when the new one is whole and on the drive. The bytes
    are those that ``safetensors.torch.save_file`` writes."""
    _save(_rows(tensors), os.fspath(filename), metadata)


def save_file_async(tensors, filename, metadata=None):
    """As save_file(), but return when the tensors have been copied within their device, so that
    training may go on; takes as much memory as they have until it is done. Returns a Future."""
    return _save_async(_rows(tensors), os.fspath(filename), metadata)
