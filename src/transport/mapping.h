/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport/mapping.h - one file as one device sees it in host memory: a shared read-only mapping, cut
 * into windows that are made ready one by one.
 *
 * A mapping belongs to its file and lives as long. Engines of all threads share it. For a GPU a
 * window is ready once its pages are registered; all mappings of the process together stay within
 * HEADRACE_PIN_BYTES, and the least recently used windows that no move needs are dropped. For "host"
 * every window is ready; making one ready fills the page tables.
 *
 * The data path takes no lock: hr__mapping_hold() and hr__mapping_release() are atomic counts.
 */
#ifndef HR_TRANSPORT_MAPPING_H
#define HR_TRANSPORT_MAPPING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>

#include "file/file.h"
#include "mem/mem.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14 */
#endif

#define HR__MAPPING_WINDOW (64ull << 20)

enum hr__window_state {
	HR__WINDOW_UNKNOWN = 0,
	HR__WINDOW_CHANGING, /* somebody registers or drops it */
	HR__WINDOW_READY,
};

struct hr__window {
	atomic_uint state;
	atomic_uint uses;             /* moves that may be reading it */
	atomic_uint_fast64_t touched; /* when it was used last, in ticks of the registry */
	/* written while CHANGING, read while READY */
	uint64_t len; /* ready bytes from its start */
	int64_t mtime_ns;
};

struct hr__mapping {
	struct hr__attachment attachment;
	struct hr__mapping *next; /* in the registry */
	struct hr_file *file;     /* not counted: it owns us */
	struct hr_device *dev;
	uint32_t fork_generation;
	bool one_layer;        /* a write to an overlay's lower file leaves the mapping behind */
	int64_t made_mtime_ns; /* of the file when it was mapped */
	bool pinned; /* windows must be registered; else the CPU reads the mapping under a guard */
	uint8_t *base;
	uint64_t len;                    /* whole windows, room for growth included */
	atomic_bool broken;              /* a page was replaced by zeros: see sigbus.h */
	atomic_bool refused;             /* registration failed: reason is set and final */
	atomic_uint ready;               /* windows, of a pinned mapping */
	atomic_uint changes;             /* times that the file was found changed */
	atomic_uint large_page;          /* bytes; 0: it is not prepared for bring.h */
	atomic_uint_fast64_t read_ahead; /* the kernel's, in bytes; set before large_page */
	char reason[192];
	uint32_t n_windows;
	struct hr__window windows[];
};

/* What making ready has cost. */
struct hr__mapping_work {
	uint64_t bytes, ns;
	bool full; /* HEADRACE_PIN_BYTES is used up */
	bool cold; /* something is not in the page cache and was left alone */
};

/*
 * One look at a file serves all moves that ended before. hr__mapping_doubtful() - was the file changed
 * since @mtime_ns, or does it end before @end now? What was moved out of the mapping then may be neither
 * the old nor the new bytes. @look: all zero at first. Too many changes end the mapping.
 */
struct hr__look {
	struct hr_file *file;
	struct hr__file_stamp stamp;
	bool failed, told;
};
bool hr__mapping_doubtful(struct hr__mapping *m, int64_t mtime_ns, uint64_t end,
			  struct hr__look *look);

/*
 * hr__mapping_check() - may files like this one be mapped for @dev? @map: the program allows the
 * handler of SIGBUS. Return: 0, or -HR_E_NO_PATH with @reason.
 */
int hr__mapping_check(const struct hr_file *file, const struct hr_device *dev, bool map,
		      char *reason, size_t reason_size);

/*
 * hr__mapping_get() - the mapping of @file for @dev, made if there is none. Valid as long as the
 * caller has the file. @plain: one that only the CPU reads, whatever the device.
 * Return: 0, or -HR_E_PATH_REFUSED, -HR_E_FORKED with a sentence.
 */
int hr__mapping_get(struct hr_file *file, struct hr_device *dev, bool plain,
		    struct hr__mapping **out);

/* hr__mapping_plain_ok() - may the CPU read files like this one through a mapping? */
bool hr__mapping_plain_ok(const struct hr_file *file);

/*
 * hr__mapping_hold() - keep [off, off + len) as it is until hr__mapping_release().
 * @mtime_ns: of the file as planned for; windows that were registered for another one do not count.
 * Return: false when not all of it is ready.
 */
bool hr__mapping_hold(struct hr__mapping *m, uint64_t off, uint64_t len, int64_t mtime_ns);
void hr__mapping_release(struct hr__mapping *m, uint64_t off, uint64_t len);

/* hr__mapping_worth() - could hr__mapping_hold() say yes at all? */
static inline bool hr__mapping_worth(const struct hr__mapping *m)
{
	return !m->pinned || atomic_load_explicit(&m->ready, memory_order_relaxed) > 0;
}

/*
 * hr__mapping_tick() - now, in ticks of the registry: every call and registration is one more.
 * hr__mapping_prepare() - make ready what lies in [off, off + len). Never on the data path.
 * @read_in: also what is not in the page cache. @evict_before: windows that were not used since this
 * tick may be dropped to make place. @end_ns: stop then. @work: is added to.
 * Return: bytes of the range that are ready, or -HR_E_PATH_REFUSED with a sentence.
 */
uint64_t hr__mapping_tick(void);
int64_t hr__mapping_prepare(struct hr__mapping *m, uint64_t off, uint64_t len, bool read_in,
			    uint64_t evict_before, uint64_t end_ns, struct hr__mapping_work *work);

/* hr__mapping_pinned() - bytes that are registered now, over all mappings. */
uint64_t hr__mapping_pinned(void);

#endif
