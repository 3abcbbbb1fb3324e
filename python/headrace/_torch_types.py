# SPDX-License-Identifier: Apache-2.0
"""What PyTorch calls things: types, devices, memory; and tensors of its allocator filled from files."""
import torch

from . import _memory

# By name: a version of PyTorch may lack some.
_NAMES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64",
    "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool", "U64": "uint64",
    "U32": "uint32", "U16": "uint16", "C64": "complex64", "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2", "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E8M0": "float8_e8m0fnu", "F4": "float4_e2m1fn_x2",
}
TYPES = {word: getattr(torch, name) for word, name in _NAMES.items() if hasattr(torch, name)}
WORDS = {dtype: word for word, dtype in TYPES.items()}
PACKED = {"F4"}  # two elements in one of PyTorch's


def device_name(device):
    """A device of PyTorch, and what the library calls it."""
    device = torch.device(f"cuda:{device}" if isinstance(device, int) else device)
    if device.type == "cpu":
        return device, "host"
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        return torch.device("cuda", index), f"cuda:{index}"
    raise ValueError(f"device {device}: only cpu and cuda are supported")


def type_of(weight):
    if weight.dtype not in TYPES:
        raise TypeError(f"{weight.name}: this version of PyTorch has no type for {weight.dtype}")
    return TYPES[weight.dtype]


def shape_of(weight, shape=None):
    """As PyTorch has it."""
    shape = tuple(weight.shape if shape is None else shape)
    if weight.dtype in PACKED and shape:
        return (*shape[:-1], shape[-1] // 2)
    return shape


def memory_of(tensor, device):
    size = tensor.nelement() * tensor.element_size()
    return _memory.Memory(tensor.data_ptr(), size, device, tensor)


def settle(device):
    """Memory of the allocator may still be in use by what was queued before."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()


def empty(weight, shape, device):
    """A tensor for a weight, or for a part of it with this shape."""
    return torch.empty(shape_of(weight, shape), dtype=type_of(weight), device=device)


def fill(checkpoint, wanted, device):
    """{key: tensor} for {key: (name, dim, start, count)}, in one pass over the files."""
    device, name_of = device_name(device)
    tensors, parts = {}, []
    for key, (name, dim, start, count) in wanted.items():
        index, weight = checkpoint._find(name)
        shape = list(weight.shape)
        if dim >= 0:
            shape[dim] = count
        tensor = tensors[key] = empty(weight, shape, device)
        if tensor.nelement():
            parts.append((index, dim, start, count, memory_of(tensor, name_of)))
    settle(device)
    if parts:
        checkpoint._load(name_of, parts)
    return tensors


def check_alike(name, weight, tensor, what="here"):
    """The tensor is what the file has under this name, by type and shape."""
    if tensor.dtype != type_of(weight) or tuple(tensor.shape) != shape_of(weight):
        raise ValueError(f"{name}: is {weight.dtype} {list(weight.shape)} in the file, "
                         f"{tensor.dtype} {list(tensor.shape)} {what}")


def as_bytes(tensor):
    """The same memory, flat and without a type."""
    return tensor.detach().reshape(-1).view(torch.uint8)
