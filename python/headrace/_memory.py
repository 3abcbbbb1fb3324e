# SPDX-License-Identifier: Apache-2.0
"""Whose memory is it, where, how long: tensors of any framework as (address, bytes, device)."""
from . import _core

_CPU, _CUDA, _CUDA_HOST = 1, 2, 3  # numbers of DLPack


class Memory:
    """A range of memory, with what keeps it alive."""

    __slots__ = ("address", "nbytes", "device", "held")

    def __init__(self, address, nbytes, device, held):
        self.address, self.nbytes, self.device, self.held = address, nbytes, device, held


def _from_cuda_array(obj):
    interface = obj.__cuda_array_interface__
    nbytes = int(interface["typestr"][2:])
    for size in interface["shape"]:
        nbytes *= size
    if interface.get("strides") is not None:
        expected = int(interface["typestr"][2:])
        for size, stride in zip(reversed(interface["shape"]), reversed(interface["strides"])):
            if size > 1 and stride != expected:
                raise BufferError("the array is not contiguous; make a contiguous copy of it first")
            expected *= size
    address, read_only = interface["data"]
    return address, nbytes, read_only


def _cuda_device(obj):
    device = getattr(obj, "device", None)  # CuPy: .id; torch: .index; others: by DLPack
    for name in ("id", "index"):
        if isinstance(getattr(device, name, None), int):
            return f"cuda:{getattr(device, name)}"
    if hasattr(obj, "__dlpack_device__"):
        return f"cuda:{obj.__dlpack_device__()[1]}"
    return "cuda:0"


def find(obj, writable):
    """Any tensor, array or buffer as Memory. Raises TypeError for what is none."""
    if hasattr(obj, "__cuda_array_interface__"):
        address, nbytes, read_only = _from_cuda_array(obj)
        if writable and read_only:
            raise BufferError("the array is read-only")
        return Memory(address, nbytes, _cuda_device(obj), obj)
    try:
        address, nbytes, held = _core.view(obj, writable)
        return Memory(address, nbytes, "host", held)
    except TypeError:
        pass
    if not hasattr(obj, "__dlpack__"):
        raise TypeError(f"{type(obj).__name__} has no DLPack, __cuda_array_interface__ or buffer protocol")
    address, nbytes, kind, index, held = _core.dlpack(obj.__dlpack__())
    if kind in (_CPU, _CUDA_HOST):
        return Memory(address, nbytes, "host", held)
    if kind == _CUDA:
        return Memory(address, nbytes, f"cuda:{index}", held)
    raise TypeError(f"memory of DLPack device type {kind} is not supported; move it to a GPU or the host")
