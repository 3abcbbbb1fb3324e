# SPDX-License-Identifier: Apache-2.0
"""Models: state_dicts whose names may share memory, which the format does not know."""
from ._torch_save import save_file


def _extent(tensor):
    """Which memory a tensor lives in, and its first and last byte there; None for what has none."""
    if tensor.device.type == "meta" or not tensor.nelement():
        return None
    storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()
    last = sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride()))
    begin = tensor.data_ptr()
    return (tensor.device, storage.data_ptr()), begin, begin + (last + 1) * tensor.element_size()


def twins(state_dict, preferred=()):
    """{name: the name that is kept for it} for tensors whose memory lies within that of another one.
    Of equals the first name is kept, or one that ``preferred`` has."""
    groups = {}
    for name, tensor in state_dict.items():
        extent = _extent(tensor)
        if extent is not None:
            groups.setdefault(extent[0], []).append((*extent[1:], name))
    out = {}
    for spans in groups.values():
        kept = []
        for begin, end, name in sorted(spans, key=lambda s: (s[0] - s[1], s[2] not in preferred, s[2])):
            around = next((k for b, e, k in kept if b <= begin and end <= e), None)
            if around is None:
                kept.append((begin, end, name))
            else:
                out[name] = around
    return out


def save_model(model, filename, metadata=None, force_contiguous=True):
    """Save a model's state_dict. Of several names for one memory one is saved; which name each of the
    others stands for is kept in the metadata."""
    state = model.state_dict()
    aliases = twins(state)
    if aliases:
        metadata = {**aliases, **(metadata or {})}
    state = {name: tensor for name, tensor in state.items() if name not in aliases}
    if force_contiguous:
        state = {name: tensor.contiguous() for name, tensor in state.items()}
    try:
        save_file(state, filename, metadata)
    except ValueError as error:
        raise ValueError(f"{error}. Or use save_model(..., force_contiguous=True)") from error


def load_model(model, filename, strict=True, device="cpu", *, backend="mmap"):
    """Load a file into a model. Returns (missing, unexpected) names; with ``strict`` either of them
    raises."""
    from .torch import load_file

    loaded = load_file(filename, device=device, backend=backend)
    aliases = twins(model.state_dict(), loaded.keys())
    missing, unexpected = model.load_state_dict(loaded, strict=False)
    extra = [name for name in aliases if name not in missing]
    missing = {name for name in missing if name not in aliases}
    unexpected = [*unexpected, *extra]
    if strict and (missing or unexpected):
        lines = [f"{kind} key(s) in state_dict: " + ", ".join(f'"{n}"' for n in sorted(names))
                 for kind, names in (("Missing", missing), ("Unexpected", unexpected)) if names]
        raise RuntimeError(f"{filename} does not fit {type(model).__name__}:\n    " + "\n    ".join(lines))
    return missing, unexpected
