# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterable
from os import PathLike
from types import TracebackType
from typing import Any, NamedTuple, Optional, Union

from ._errors import Error as Error, NotFound as NotFound, Timeout as Timeout
from .checkpoint import (Checkpoint as Checkpoint, Weight as Weight, save as save,
                         save_async as save_async, save_sharded as save_sharded)
from .dataset import (ArrowDataset as ArrowDataset, Dataset as Dataset, MDSDataset as MDSDataset,
                      MegatronDataset as MegatronDataset, Mixture as Mixture, NpyDataset as NpyDataset,
                      NpzDataset as NpzDataset, SafetensorsDataset as SafetensorsDataset,
                      Selection as Selection, TarDataset as TarDataset, TFRecordDataset as TFRecordDataset,
                      TokenDataset as TokenDataset, build_index as build_index)
from .loader import Batch as Batch, Loader as Loader, Tensor as Tensor

__all__ = ["ArrowDataset", "Batch", "CheckItem", "Checkpoint", "Dataset", "Error", "File", "Loader",
           "MDSDataset", "MegatronDataset", "Mixture", "NotFound", "NpyDataset", "NpzDataset",
           "SafetensorsDataset", "Selection", "TFRecordDataset", "TarDataset", "Tensor", "Timeout",
           "TokenDataset", "Weight", "build_index", "check", "device_info", "open", "save", "save_async",
           "save_sharded"]

_Path = Union[str, PathLike[str]]
__version__: str

class File:
    def __init__(self, path: _Path, mode: str = ...) -> None: ...
    @property
    def path(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    def info(self) -> dict[str, Any]: ...
    def read_into(self, tensor: Any, file_offset: int = ...) -> int: ...
    def write_from(self, tensor: Any, file_offset: int = ...) -> int: ...
    def sync(self) -> None: ...
    def explain(self, device: Any = ...) -> dict[str, Any]: ...
    def close(self) -> None: ...
    def __enter__(self) -> File: ...
    def __exit__(self, kind: Optional[type[BaseException]], value: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None: ...

def open(path: _Path, mode: str = ...) -> File: ...
def device_info(name: Any = ...) -> dict[str, Any]: ...

class CheckItem(NamedTuple):
    group: str
    name: str
    state: str
    cause: str
    fix: str

def check(device: Any = ..., paths: Union[_Path, Iterable[_Path]] = ...) -> list[CheckItem]: ...
