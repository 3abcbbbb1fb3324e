# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.checkpoint on safetensors files: ``dcp.save(state, storage_writer=HeadraceWriter(folder))``
and ``dcp.load(state, storage_reader=HeadraceReader(folder))``.

Each rank writes one file; what is no tensor goes into it as bytes. The file ``.metadata`` names them; it is
written last and replaces an old one whole, so that a folder has the old checkpoint or the new one.
"""
import dataclasses
import io
import os
import pickle
import re
import uuid

import torch

try:
    from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
    from torch.distributed.checkpoint.planner import LoadItemType, WriteItemType
    from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
except ImportError as problem:
    raise ImportError("headrace.dcp needs torch.distributed.checkpoint of PyTorch 2.3 or newer; "
                      "headrace.torch works without") from problem
from torch.futures import Future

from ._torch_distributed import fill_boxes
from ._torch_save import rows
from .checkpoint import Checkpoint, replace_file, save as _save

__all__ = ["HeadraceReader", "HeadraceWriter"]

_METADATA = ".metadata"
_FILE = re.compile(r"__\d+_[0-9a-f]{12}\.safetensors")


def _done(value):
    future = Future()
    future.set_result(value)
    return future


class _Unpickler(pickle.Unpickler):
    """Metadata is made of a few plain things; nothing else is brought to life."""

    def find_class(self, module, name):
        if module == "torch" and (name == "Size" or isinstance(
                getattr(torch, name, None), (torch.dtype, torch.layout, torch.memory_format))):
            return getattr(torch, name)
        if module == "torch.serialization" and name == "_get_layout":
            return super().find_class(module, name)
        if module == "torch.distributed.checkpoint.metadata" and "." not in name:
            return super().find_class(module, name)
        if (module, name) in (("builtins", "set"), ("collections", "OrderedDict")):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} in {_METADATA}: not known; if you know where the "
                                     "checkpoint comes from, say trust=True")


def _read_metadata(folder, trust=False):
    with open(os.path.join(folder, _METADATA), "rb") as f:
        return (pickle.Unpickler if trust else _Unpickler)(f).load()


class _Unreadable(Metadata):
    """In the place of metadata that cannot be read: whoever looks into it hears why. PyTorch tries several
    ways to the metadata and drops what they raise; the last it would say is that there is none."""

    def __init__(self, error):
        self._error = error

    def __getattribute__(self, name):
        if name in _FIELDS:
            raise object.__getattribute__(self, "_error")
        return object.__getattribute__(self, name)


_FIELDS = {field.name for field in dataclasses.fields(Metadata)}


def _files(folder):
    """The files of ours that the metadata of a folder names."""
    try:
        places = _read_metadata(folder).storage_data.values()
        return {file for file, _ in places if _FILE.fullmatch(file)}
    except (OSError, ValueError, TypeError, AttributeError, pickle.UnpicklingError, EOFError):
        return set()


class _Folder:
    """What reader and writer have in common."""

    def __init__(self, path):
        super().__init__()
        self.path = None if path is None else os.fspath(path)

    def reset(self, checkpoint_id=None):
        if checkpoint_id:
            self.path = os.fspath(checkpoint_id)

    @property
    def checkpoint_id(self):
        return self.path

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id):
        return isinstance(checkpoint_id, (str, os.PathLike)) and "://" not in os.fspath(checkpoint_id)


class HeadraceWriter(_Folder, StorageWriter):
    """Writes to a folder, which dcp.save() may name as ``checkpoint_id`` instead."""

    def __init__(self, path=None):
        super().__init__(path)

    def set_up_storage_writer(self, is_coordinator, *args, **kwargs):
        pass

    def prepare_local_plan(self, plan):
        os.makedirs(self.path, exist_ok=True)
        return plan

    def prepare_global_plan(self, plans):
        # One name for this save on all ranks: files of an older one are never written to.
        save_id = uuid.uuid4().hex[:12]
        return [dataclasses.replace(plan, storage_data=f"__{rank}_{save_id}.safetensors")
                for rank, plan in enumerate(plans)]

    def write_data(self, plan, planner):
        file, tensors, blobs, indices = plan.storage_data, {}, {}, {}
        for item in plan.items:
            name = _name(item, indices)
            indices[name] = item.index
            data = planner.resolve_data(item)
            if item.type == WriteItemType.BYTE_IO:
                blobs[name] = data.getvalue()
            else:
                tensors[name] = data.detach().contiguous()
        out = rows(tensors, shared=True)
        # A few bytes beside tensors of a GPU go there, since all of a file comes from one device.
        device = next((t.device for t in tensors.values() if t.nelement() and t.is_cuda), None)
        for name, blob in blobs.items():
            out[name] = ("U8", (len(blob),), blob)
            if device is not None and any(hasattr(row[2], "__cuda_array_interface__") for row in out.values()):
                flat = torch.frombuffer(bytearray(blob), dtype=torch.uint8).to(device)
                out[name] = rows({name: flat})[name]
        if out:
            _save(out, os.path.join(self.path, file))
        return _done([WriteResult(index, _size(out[name]), (file, name))
                      for name, index in indices.items()])

    def finish(self, metadata, results):
        old = _files(self.path)
        metadata.storage_data = {r.index: r.storage_data for each in results for r in each}
        metadata.storage_meta = self.storage_meta()
        replace_file(os.path.join(self.path, _METADATA), pickle.dumps(metadata))
        for file in old - _files(self.path):
            path = os.path.join(self.path, file)
            if os.path.isfile(path):
                os.unlink(path)

    def storage_meta(self):
        return StorageMeta(checkpoint_id=self.path)


def _name(item, taken):
    """Of a tensor in the file; a part has its place behind it."""
    name = item.index.fqn
    if item.index.offset is not None and any(item.index.offset):
        name += "@" + ",".join(map(str, item.index.offset))
    while name in taken or name == "__metadata__":
        name += "'"
    return name


def _size(row):
    memory = row[2]
    if hasattr(memory, "__cuda_array_interface__"):
        return memory.__cuda_array_interface__["shape"][0]
    return memoryview(memory).nbytes


class HeadraceReader(_Folder, StorageReader):
    """Reads what HeadraceWriter has written, each rank just what it needs, into the tensors themselves.

    ``trust``: unpickle whatever the metadata holds, for planners that keep data of their own there.
    """

    def __init__(self, path=None, *, trust=False):
        super().__init__(path)
        self._trust, self._places = trust, {}

    def reset(self, checkpoint_id=None):
        super().reset(checkpoint_id)
        self._places = {}

    def read_metadata(self, *args, **kwargs):
        """What is wrong with it is raised when something of it is looked at."""
        try:
            metadata = _read_metadata(self.path, self._trust)
            if not isinstance(metadata, Metadata):
                raise ValueError(f"{self.path}/{_METADATA}: is no metadata of a checkpoint")
        except Exception as error:  # noqa: B902 - whatever unpickling comes to
            return _Unreadable(error)
        return metadata

    def set_up_storage_reader(self, metadata, is_coordinator, *args, **kwargs):
        self._places = metadata.storage_data

    def prepare_local_plan(self, plan):
        return plan

    def prepare_global_plan(self, plans):
        return plans

    def read_data(self, plan, planner):
        opened, boxes, targets = {}, [], []
        for item in plan.items:
            file, name = self._places[item.storage_index]
            if not _FILE.fullmatch(file):
                raise ValueError(f"{self.path}/{_METADATA}: {file!r} is no name of a file beside it")
            if file not in opened:
                opened[file] = Checkpoint(os.path.join(self.path, file))
            if item.type == LoadItemType.BYTE_IO:
                blob = bytearray(opened[file][name].nbytes)
                opened[file].load_into({name: blob})
                planner.load_bytes(item, io.BytesIO(blob))
                continue
            target = planner.resolve_tensor(item).detach()
            if tuple(target.shape) != tuple(item.lengths):
                raise ValueError(f"{name}: {list(item.lengths)} are to be read, its target is "
                                 f"{list(target.shape)}")
            boxes.append((opened[file], name, list(item.storage_offsets), list(item.lengths), target))
            targets.append((item, target))
        fill_boxes(boxes)
        for item, target in targets:
            planner.commit_tensor(item, target)
        return _done(None)
