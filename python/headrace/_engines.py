# SPDX-License-Identifier: Apache-2.0
"""Devices and engines, opened when they are first needed and kept: one engine a thread and device.

A child of fork() has none of them: its first call opens its own.
"""
import os
import threading

from . import _core

_THREADS_MAX = 12  # more do not fill a link of PCIe 5.0 any better
_local = threading.local()
_devices: dict = {}
_devices_lock = threading.Lock()
# What a drive may still write to although its request was given up.
quarantine: list = []


def _in_child():
    """Another thread of the parent may have had the lock, and is not here to give it back."""
    global _devices_lock
    _devices_lock = threading.Lock()


os.register_at_fork(after_in_child=_in_child)


def threads():
    """Threads of an engine: processors that this process may use, at most 12."""
    return min(len(os.sched_getaffinity(0)), _THREADS_MAX)


def device(name):
    """The device of this name, in this process."""
    with _devices_lock:
        key = (os.getpid(), name)
        if key not in _devices:
            for old in [k for k in _devices if k[0] != key[0]]:
                # The parent's: to close it here would pull it from under the parent.
                quarantine.append(_devices.pop(old))
            _devices[key] = _core.device_open(name)
        return _devices[key]


def engine(name):
    """This thread's engine for a device."""
    pid = os.getpid()
    if getattr(_local, "pid", pid) != pid:
        quarantine.append(_local.engines)
        _local.engines = {}
    _local.pid = pid
    engines = _local.__dict__.setdefault("engines", {})
    if name not in engines:
        engines[name] = _core.engine_open(device(name), threads(), 0, 0)
    return engines[name]


def keep(held):
    """A request of this thread never came back: its memory and its engine stay until the end."""
    quarantine.append((held, getattr(_local, "engines", {})))
    _local.engines = {}
