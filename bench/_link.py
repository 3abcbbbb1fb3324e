#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the bus to a GPU carries: large copies of pinned memory by the driver's copy engine.

The yardstick for every rate into GPU memory. Asks the driver library itself, so that neither a
toolkit nor PyTorch is needed; prints one JSON object.
"""
from __future__ import annotations

import argparse
import ctypes
import json

import lib

POINTER, BYTES, NUMBER = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint


class Driver:
    """The few calls of libcuda that a copy needs; every result is looked at."""

    def __init__(self, device: int) -> None:
        self.cu = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", NUMBER(0))
        handle, context = ctypes.c_int(), POINTER()
        self.call("cuDeviceGet", ctypes.byref(handle), ctypes.c_int(device))
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), handle)
        self.call("cuCtxSetCurrent", context)

    def call(self, name: str, *arguments: object) -> None:
        code = getattr(self.cu, name)(*arguments)
        if code:
            raise SystemExit(f"{name}: CUDA error {code}")

    def copies(self, size: int, repeats: int, to_device: bool) -> list[float]:
        """Bytes a second of `repeats` copies, timed by events of the GPU."""
        host, device, begin, end = POINTER(), ctypes.c_uint64(), POINTER(), POINTER()
        self.call("cuMemHostAlloc", ctypes.byref(host), BYTES(size), NUMBER(0))
        self.call("cuMemAlloc_v2", ctypes.byref(device), BYTES(size))
        for event in (begin, end):
            self.call("cuEventCreate", ctypes.byref(event), NUMBER(0))
        ctypes.memset(host, 0x5a, size)
        rates = []
        for _ in range(repeats + 1):
            ms = ctypes.c_float()
            self.call("cuEventRecord", begin, POINTER())
            if to_device:
                self.call("cuMemcpyHtoDAsync_v2", device, host, BYTES(size), POINTER())
            else:
                self.call("cuMemcpyDtoHAsync_v2", host, device, BYTES(size), POINTER())
            self.call("cuEventRecord", end, POINTER())
            self.call("cuEventSynchronize", end)
            self.call("cuEventElapsedTime", ctypes.byref(ms), begin, end)
            rates.append(size / ms.value * 1e3)
        self.call("cuMemFree_v2", device)
        self.call("cuMemFreeHost", host)
        return rates[1:]


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--device", type=int, default=0, help="number of the GPU (0)")
    p.add_argument("--size", type=lib.parse_size, default=1 << 30, help="of a copy (1G)")
    p.add_argument("--repeats", type=int, default=7)
    args = p.parse_args()
    driver = Driver(args.device)
    print(json.dumps({"size": args.size, "command": lib.own_command(),
                      "to_device": lib.summary(driver.copies(args.size, args.repeats, True)),
                      "to_host": lib.summary(driver.copies(args.size, args.repeats, False))}))


if __name__ == "__main__":
    main()
