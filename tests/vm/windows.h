/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vm/windows.h - what the reading programs of the guests share: which parts of a file are read, what must
 * then be in memory, guard bytes included, and where in the BAR an address lies.
 */
#ifndef VM_WINDOWS_H
#define VM_WINDOWS_H

#include <stdint.h>

#define WINDOWS_GUARD 8192u
#define WINDOWS_GUARD_BYTE 0xa5

/*
 * windows_offset() - of the @i-th of windows of @len bytes in a file of @size: @how "whole" (one behind
 * the other), "aligned" or "odd" (at random places, the same ones each time). To be asked in order.
 */
uint64_t windows_offset(const char *how, uint64_t i, uint64_t len, uint64_t size);

/* windows_print() - what memory must hold, to standard output: guard, windows, guard. Return: 0 or -1. */
int windows_print(const char *path, const char *how, uint64_t count, uint64_t len);

/* windows_in_bar() - where in the BAR the device address @address lies; UINT64_MAX: nowhere. */
uint64_t windows_in_bar(const void *address);

#endif
