# SPDX-License-Identifier: Apache-2.0
"""Arguments as the C library takes them, or a sentence that says what would be right."""
import os
import sys

from . import _core

# What NumPy and PyTorch call them.
_FOREIGN = {"uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64", "int8": "i8", "int16": "i16",
            "int32": "i32", "int64": "i64", "float16": "f16", "bfloat16": "bf16", "float32": "f32",
            "float64": "f64", "bool_": "bool", "float8_e4m3fn": "f8_e4m3", "float8_e5m2": "f8_e5m2",
            "float8_e8m0fnu": "f8_e8m0", "float4_e2m1fn_x2": "f4x2"}


def paths(paths):
    if isinstance(paths, (str, bytes, os.PathLike)):
        paths = [paths]
    return [os.fsencode(p) for p in paths]


def maybe(path):
    return None if path is None else os.fsdecode(path)


def u32(**numbers):
    """The C library has 32 bits for these, and what is beyond would become another number."""
    for name, value in numbers.items():
        if not 0 <= int(value) < 1 << 32:
            raise ValueError(f"{name} {value}: must be 0 to {(1 << 32) - 1}")


def dtype(dtype):
    """A type of elements: ours, "uint16", numpy.uint16, torch.uint16. Ours come first: "u8" has one byte."""
    if dtype is None:
        return None
    word = dtype.__name__ if isinstance(dtype, type) else str(dtype)
    word = word.removeprefix("torch.")
    word = _FOREIGN.get(word, word)
    if word not in _core.dtypes():
        raise ValueError(f"dtype {dtype!r}: must be one of {', '.join(_core.dtypes())}, "
                         "or what NumPy or PyTorch call it")
    return word


def _current_gpu():
    """Of PyTorch, where the program has it with GPUs; the first one otherwise."""
    torch = sys.modules.get("torch")
    return torch.cuda.current_device() if torch and torch.cuda.is_available() else 0


def device(device):
    """"host" or "cuda:N" for what PyTorch, JAX and CuPy call a device; "cuda" is the present one."""
    if getattr(device, "platform", None) == "cpu":  # JAX numbers the devices of each platform
        return "host"
    # On several hosts JAX's id is one of all of them, the other one this machine's.
    numbers = (getattr(device, "local_hardware_id", None), getattr(device, "id", None), device)
    number = next((n for n in numbers if type(n) is int), None)
    if number is not None:
        return f"cuda:{number}"
    name = str(device)
    if name in ("cpu", "cpu:0"):
        return "host"
    return f"cuda:{_current_gpu()}" if name == "cuda" else name


def natural(**numbers):
    """The C library has 64 bits without a sign for these."""
    for name, value in numbers.items():
        if not 0 <= int(value) < 1 << 64:
            raise ValueError(f"{name} {value}: must be 0 or more, below 2^64")
