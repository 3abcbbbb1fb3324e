/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fakecuda/fakecuda.h - how a test steers the pretended CUDA driver. The functions are found by
 * dlsym() in libcuda.so.1; the same settings can be given by the environment before it is loaded,
 * as FAKECUDA_<NAME IN CAPITALS>=number, and one fault as FAKECUDA_FAIL=function:k:result.
 *
 * Device memory is PROT_NONE to the CPU. Streams are threads. What a GPU would answer by reading
 * nonsense is counted as misuse and described.
 */
#ifndef FAKECUDA_H
#define FAKECUDA_H

#include <stdint.h>

/*
 * fakecuda_set() - a setting, as long as no reset:
 *   "devices"      GPUs to show (2)
 *   "version"      of the driver (13000)
 *   "delay_us"     before every operation of a stream (0)
 *   "lost_after"   operations of streams until the device is lost (0: never)
 *   "no_register"  host memory cannot be registered (0)
 *   "no_memops"    streams cannot write values (0)
 *   "export"       memory can become a dma-buf; costs a descriptor each (0)
 *   "peer_order"   what the device says of writes of peers: 0 they need a flush; below 0 it does not
 *                  know the question (100)
 *   "peer_flush"   ways to flush them, as bits: 1 by a call (1)
 *   "bar"          device memory is the BAR of /dev/headrace_vgpu0; by the environment only (0)
 *   "free_waits"   freeing device memory waits for all streams, as drivers do (0)
 *   "no_read_only" host memory cannot be registered read-only; 2: nor does the device say so (0)
 * Return: 0, -1 for an unknown name.
 */
int fakecuda_set(const char *name, long value);

/* fakecuda_fail() - let call @kth (1 = the next) of @function return @result. Up to 16 at a time. */
void fakecuda_fail(const char *function, long kth, int result);

/* fakecuda_reset() - all settings and faults as at first, the device found again. */
void fakecuda_reset(void);

/*
 * fakecuda_get() - a counter. Alive now: "allocs", "bytes", "host_allocs", "registered", "streams",
 * "events", "modules", "contexts" (references), "pushed" (contexts on the stacks of all threads).
 * Ever: "copies", "launches", "calls", "flushes", "misuse". Return: -1 for an unknown name.
 */
long fakecuda_get(const char *name);

/*
 * fakecuda_peer_wrote() - a peer has written device memory. Where "peer_order" is below 100, work that
 * is queued before the next flush is a misuse: it may see what was there before.
 * fakecuda_unflushed() - 1 between the two.
 */
void fakecuda_peer_wrote(void);
int fakecuda_unflushed(void);

/* fakecuda_misuse() - what the last misuse was; "" if there was none. */
const char *fakecuda_misuse(void);

#endif
