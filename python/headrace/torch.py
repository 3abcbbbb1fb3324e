# SPDX-License-Identifier: Apache-2.0
"""safetensors for PyTorch: the calls of ``safetensors.torch``, at the speed of the drive or the link.

Tensors are allocated by PyTorch and filled in place; nothing is mapped and nothing is copied twice.
``tensors(batch)`` are those of a Loader's batch.
"""
import os

from . import _torch_distributed as _distributed
from ._torch_batch import tensors
from ._torch_model import load_model, save_model
from ._torch_open import check_backend, safe_open
from ._torch_save import save, save_file, save_file_async, save_sharded
from ._torch_types import check_alike, device_name, fill, memory_of, settle
from .checkpoint import Checkpoint

__all__ = ["iterate", "load", "load_file", "load_into", "load_model", "safe_open", "save", "save_file",
           "save_file_async", "save_model", "save_sharded", "tensors"]


def load_file(filename, device="cpu", *, backend="mmap", group=None):
    """All tensors of a file, or of the shards of an index. ``backend`` is accepted and not needed.

    ``group``: a process group of torch.distributed whose ranks all call this and want the same tensors;
    each reads its share of the bytes and the ranks exchange.
    """
    check_backend(backend)
    if group is not None:
        return _distributed.load_together(filename, device, group)
    checkpoint = Checkpoint(filename)
    return fill(checkpoint, {name: (name, -1, 0, 0) for name in checkpoint}, device)


def load(data):
    """All tensors out of the bytes of a file."""
    fd = os.memfd_create("headrace", os.MFD_CLOEXEC)
    try:
        with open(fd, "wb", closefd=False) as f:
            f.write(data)
        return load_file(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)


def load_into(state_dict, filename, *, strict=True, group=None):
    """Fill the tensors of a state_dict in place. Returns (missing, unexpected) names; with ``strict``
    either of them raises. Types and shapes must agree. Of a DTensor only the part that is local is
    read. ``group``: as for load_file(); what is no DTensor is then read together."""
    checkpoint = Checkpoint(filename)
    missing = [name for name in state_dict if name not in checkpoint]
    unexpected = [name for name in checkpoint if name not in state_dict]
    if strict and (missing or unexpected):
        raise RuntimeError(f"{filename}: missing {missing}, unexpected {unexpected}")
    whole, boxes = {}, []
    for name, tensor in state_dict.items():
        if name in missing:
            continue
        weight = checkpoint[name]
        check_alike(name, weight, tensor)
        box = _distributed.local_box(name, tensor)
        if box is None and tensor.is_contiguous():
            whole[name] = tensor
        elif box is None:
            raise ValueError(f"{name}: is not contiguous")
        else:
            boxes.append((checkpoint, name, *box))
    if group is not None:
        _distributed.fill_together(checkpoint, whole, group)
    else:
        _fill_in_place(checkpoint, whole)
    _distributed.fill_boxes(boxes)
    return missing, unexpected


def _fill_in_place(checkpoint, tensors):
    by_device = {}
    for name, tensor in tensors.items():
        device, name_of = device_name(tensor.device)
        if tensor.nelement():
            by_device.setdefault((device, name_of), []).append(
                (checkpoint._find(name)[0], -1, 0, 0, memory_of(tensor, name_of)))
    for (device, name_of), parts in by_device.items():
        settle(device)
        checkpoint._load(name_of, parts)


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
            yield from fill(checkpoint, group, device).items()
            group, size = {}, 0
        group[name] = (name, -1, 0, 0)
        size += nbytes
    yield from fill(checkpoint, group, device).items()
