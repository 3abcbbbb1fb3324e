# SPDX-License-Identifier: Apache-2.0
"""A program that uses the package as its stubs describe it: never run, mypy reads it strictly."""
from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import Any, Optional

import torch
from torch.utils.dlpack import from_dlpack

import headrace
import headrace.torch as ht


def files(path: Path, tensor: torch.Tensor) -> int:
    with headrace.open(path, "r+") as f:
        size: int = f.size
        refused: list[dict[str, str]] = f.explain("cuda:0")["refused"]
        f.write_from(tensor, file_offset=4096)
        return f.read_into(bytearray(16)) + size + len(refused)


def weights(path: str, model: torch.nn.Module) -> dict[str, torch.Tensor]:
    ck = headrace.Checkpoint(path, lenient=True)
    names: list[str] = ck.keys()
    ck.load_into({names[0]: bytearray(ck[names[0]].nbytes)})
    saving: Future[None] = ht.save_file_async(model.state_dict(), "out", {"format": "pt"})
    saving.result()
    index: str = ht.save_sharded(ht.load_file(path, device=0), "folder", max_shard_bytes=1 << 30)
    with ht.safe_open(index, framework="pt", device="cuda:0", copy=False) as f:
        f.prefetch({names[0]: (slice(0, 2), 1)})
        part: torch.Tensor = f.get_slice(names[0])[0:2, 1]
        note: Optional[dict[str, str]] = f.metadata()
    for name, tensor in ht.iterate(path, name_filter=lambda n: n.startswith("layer")):
        print(name, tensor.shape, part.shape, note)
    missing, unexpected = ht.load_into(model.state_dict(), path, strict=False)
    print(missing + unexpected, ht.load(ht.save({"a": part})))
    return ht.load_file(path, group=torch.distributed.group.WORLD)


def batches(path: str, state: dict[str, str]) -> list[Any]:
    loader = headrace.Loader(headrace.TokenDataset(path, "u16", seq_len=128), 32, "cuda:0", seed=1)
    loader.load_state_dict(state)
    for batch in loader:
        first: int = batch.ids[0]
        x, y = ht.tensors(batch, "input_ids", "labels").values()
        print(first, x.shape, y.shape, [t.dtype for t in ht.tensors(batch).values()])
    return [from_dlpack(batch["input_ids"]) for batch in loader]


def doctor() -> list[str]:
    return [f"{item.group} {item.name}: {item.cause}; {item.fix}" for item in headrace.check(paths="/")
            if item.state != "ok"]
