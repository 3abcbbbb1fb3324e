# SPDX-License-Identifier: Apache-2.0
"""Batches of a Loader as PyTorch's tensors."""
import torch
from torch.utils.dlpack import from_dlpack

from .loader import Tensor

_CUDA = 2  # of DLPack


def _stream(device):
    """The current one, as DLPack numbers it: the default stream is 1."""
    kind, index = device
    return (torch.cuda.current_stream(index).cuda_stream or 1) if kind == _CUDA else None


def tensors(batch, *names):
    """{name: tensor of PyTorch} of a batch, or of those ``names``: nothing is copied. The batch is taken on
    the current stream, as by torch.from_dlpack() of each, which costs more, since it asks for the stream
    of each. What is PyTorch's already, as after ``next(out=...)``, stays what it is."""
    out, stream, asked = {}, None, False
    for name in names or batch:
        tensor = batch[name]
        if isinstance(tensor, Tensor):
            if not asked:
                stream, asked = _stream(tensor.__dlpack_device__()), True
            tensor = from_dlpack(tensor.__dlpack__(stream))
        elif not isinstance(tensor, torch.Tensor):
            tensor = from_dlpack(tensor)
        out[name] = tensor
    return out
