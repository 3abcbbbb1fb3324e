# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from typing import Any, Optional, Union

_Path = Union[str, bytes, PathLike[str]]
_Paths = Union[_Path, Sequence[_Path]]

class Dataset:
    def __init__(self, paths: _Paths, format: Optional[str] = ..., *,
                 fields: Union[None, str, Sequence[str]] = ..., corrupt: str = ...,
                 index_dir: Optional[_Path] = ..., index_only: bool = ..., index_threads: int = ...,
                 dtype: Any = ..., seq_len: int = ..., stride: int = ..., whole_files: bool = ...,
                 order: Optional[_Path] = ...) -> None: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: Any) -> Any: ...
    def info(self) -> dict[str, Any]: ...
    @property
    def fields(self) -> list[str]: ...
    def select(self, ids: Iterable[int]) -> Selection: ...

class TokenDataset(Dataset):
    def __init__(self, paths: _Paths, dtype: Any = ..., seq_len: int = ...,
                 stride: int = ...) -> None: ...

class MegatronDataset(Dataset):
    def __init__(self, paths: _Paths, seq_len: int = ..., *, order: Optional[_Path] = ...) -> None: ...

class NpyDataset(Dataset):
    def __init__(self, paths: _Paths, *, whole_files: bool = ...) -> None: ...

class NpzDataset(Dataset):
    def __init__(self, paths: _Paths, *, fields: Union[None, str, Sequence[str]] = ...) -> None: ...

class TarDataset(Dataset):
    def __init__(self, paths: _Paths, *, fields: Union[None, str, Sequence[str]] = ..., corrupt: str = ...,
                 index_dir: Optional[_Path] = ..., index_only: bool = ...,
                 index_threads: int = ...) -> None: ...

class TFRecordDataset(Dataset):
    def __init__(self, paths: _Paths, *, fields: Union[None, str, Sequence[str]] = ..., corrupt: str = ...,
                 index_dir: Optional[_Path] = ..., index_only: bool = ...,
                 index_threads: int = ...) -> None: ...

class MDSDataset(Dataset):
    def __init__(self, paths: _Paths, *, fields: Union[None, str, Sequence[str]] = ...) -> None: ...

class ArrowDataset(Dataset):
    def __init__(self, paths: _Paths, *, fields: Union[None, str, Sequence[str]] = ...) -> None: ...

class SafetensorsDataset(Dataset):
    def __init__(self, paths: _Paths, *, fields: Union[None, str, Sequence[str]] = ...) -> None: ...

class Selection(Dataset):
    def __init__(self, dataset: Dataset, ids: Iterable[int]) -> None: ...

class Mixture(Dataset):
    def __init__(self, datasets: Iterable[Dataset], weights: Iterable[float], samples: int = ...) -> None: ...

def build_index(paths: _Paths, format: Optional[str] = ..., *, index_dir: Optional[_Path] = ...,
                threads: int = ..., force: bool = ...,
                progress: Optional[Callable[[int, int, int], Any]] = ...) -> int: ...
