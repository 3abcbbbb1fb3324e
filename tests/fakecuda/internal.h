/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fakecuda/internal.h - what the parts of the pretended driver share: state.c (settings, faults,
 * counters), memory.c, bar.c, stream.c, driver.c (everything else) and kernels.cpp.
 */
#ifndef FAKECUDA_INTERNAL_H
#define FAKECUDA_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum fake_counter {
	FAKE_ALLOCS,
	FAKE_BYTES,
	FAKE_HOST_ALLOCS,
	FAKE_REGISTERED,
	FAKE_STREAMS,
	FAKE_EVENTS,
	FAKE_MODULES,
	FAKE_CONTEXTS,
	FAKE_PUSHED,
	FAKE_ALIVE_COUNT, /* those before it must be 0 in the end */
	FAKE_COPIES = FAKE_ALIVE_COUNT,
	FAKE_LAUNCHES,
	FAKE_CALLS,
	FAKE_FLUSHES,
	FAKE_MISUSE,
	FAKE_COUNTER_COUNT,
};

enum fake_setting {
	FAKE_DEVICES,
	FAKE_VERSION,
	FAKE_DELAY_US,
	FAKE_LOST_AFTER,
	FAKE_NO_REGISTER,
	FAKE_NO_READ_ONLY,
	FAKE_NO_MEMOPS,
	FAKE_EXPORT,
	FAKE_PEER_ORDER,
	FAKE_PEER_FLUSH,
	FAKE_BAR,
	FAKE_FREE_WAITS,
	FAKE_SETTING_COUNT,
};

void fake_count(enum fake_counter counter, long by);
long fake_setting(enum fake_setting setting);
void fake_misuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The result that this call must return at once, 0 to go on: injected faults, a lost device. */
int fake_enter(const char *function);

/* As fake_enter(), for calls that need a current context. */
int fake_enter_context(const char *function);
int fake_context_current(void); /* ordinal of its device, -1 if there is none */

bool fake_lost(void);
void fake_lose(void);
/* Work is queued that reads device memory: a misuse between a peer's write and a flush. */
void fake_reads_device(const char *what);
/* One operation of a stream is about to run; false: the device is lost. */
bool fake_step(void);

/*
 * What the device sees at @address, as the CPU may touch it: the alias of device memory, or
 * registered host memory. NULL and a misuse if [address, address + len) is neither.
 */
void *fake_translate(uint64_t address, uint64_t len, const char *what);
bool fake_is_pinned(const void *host, uint64_t len);
/* Where a copy finds the host memory at @host: itself, or fetched if it is a registered file. */
void *fake_host_source(uint64_t host, uint64_t len);

/*
 * bar.c: memory in a BAR. Return: where streams find it, NULL if there is no room; @map: the program's
 * addresses. A dma-buf of [@alias, +@len), or -1. Its size, and the PCI function as a number.
 */
char *fake_bar_alloc(uint64_t len, char **map);
void fake_bar_free(const char *alias);
int fake_bar_export(const char *alias, uint64_t len);
uint64_t fake_bar_size(uint32_t *pci);

/*
 * Around fork() (state.c): each part begins with new locks in the child, as its threads are not there. A
 * driver that was started by then answers nothing but HR__CU_NOT_INITIALIZED.
 */
bool fake_started(void);
void fake_driver_forked(void);
void fake_memory_forked(void);
void fake_stream_forked(void);
void fake_capture_forked(void);

/* stream.c: wait until no stream has anything to do. */
void fake_streams_idle(void);

/* mapped.c: registered files, which may shrink at any time; per thread and operation. */
void *fake_mapped_read(const void *host, uint64_t len);
void fake_mapped_forget(void); /* a new operation begins: fetch again */
void fake_mapped_free(void);
bool fake_mapped_writable(const void *host);
bool fake_mapped_there(const void *host, uint64_t len);

/*
 * capture.c: what a call that may be unsafe beside a capture returns at once; is @s captured, so that
 * what would be queued became a node; what asking a captured stream returns, spoiling the capture.
 */
struct fake_stream;
int fake_capture_check(const char *function);
bool fake_capture_take(const struct fake_stream *s);
int fake_capture_spoil(const struct fake_stream *s);

/* kernels.cpp: run a kernel on the CPU; false when it touched memory that it must not. */
int fake_kernel_find(const char *name);
bool fake_kernel_run(int kernel, const void *args, unsigned int blocks, unsigned int threads);

#ifdef __cplusplus
}
#endif
#endif
