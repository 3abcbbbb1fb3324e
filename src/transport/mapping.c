/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport/mapping.c - mappings of files, their windows, and the one limit on what is pinned; moves
 * no bytes and knows no engine.
 *
 * Who changes a window takes it from UNKNOWN or READY to CHANGING first and then looks at its uses;
 * who uses it counts itself first and then looks at its state. One of the two sees the other.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <headrace/config.h>

#include "base/fail.h"
#include "base/fork.h"
#include "base/sys.h"
#include "base/util.h"
#include "transport/mapping.h"

/* A file that is written all the time is better read: each change costs a second reading. */
#define CHANGES_MAX 64u

/* A process has 65530 mappings, unless vm.max_map_count says otherwise, and needs some for its memory. */
#define MAPPINGS_MAX 16384u

/* Of 64 parts of a window, how many must be resident for it to be worth registering. */
#define HOT_PARTS 63u

static struct {
	pthread_mutex_t lock; /* of the list and the sum; never taken on the data path */
	struct hr__mapping *head;
	uint64_t pinned;
	atomic_uint mappings; /* written under the lock */
	atomic_uint_fast64_t tick;
} registry = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* What is mapped is there, but registrations are the parent's, and so are the mappings that have them. */
static void in_child(void)
{
	registry.head = NULL;
	registry.pinned = 0;
}

HR__FORK_HOOK(.lock = &registry.lock, .child = in_child);

uint64_t hr__mapping_tick(void)
{
	return atomic_fetch_add(&registry.tick, 1) + 1;
}

uint64_t hr__mapping_pinned(void)
{
	uint64_t bytes;

	pthread_mutex_lock(&registry.lock);
	bytes = registry.pinned;
	pthread_mutex_unlock(&registry.lock);
	return bytes;
}

/* -- may it be -------------------------------------------------------------------------------- */

/*
 * Of a remote file read(2) asks the server for what is new; a mapped page does not, while fstat(2) tells
 * of the change: the old bytes would pass for the new ones.
 */
static bool changes_unseen(const struct hr_file *file)
{
	return atomic_load_explicit(&file->residency, memory_order_relaxed) == HR__RESIDENCY_NONE ||
	       !strcmp(file->fs_name, "nfs") || !strcmp(file->fs_name, "cifs") ||
	       !strcmp(file->fs_name, "smb2");
}

/* As many files are mapped as may be, and this one is not among them. */
static bool too_many(const struct hr_file *file)
{
	return atomic_load_explicit(&registry.mappings, memory_order_relaxed) >= MAPPINGS_MAX &&
	       !atomic_load_explicit(&file->attached, memory_order_relaxed);
}

int hr__mapping_check(const struct hr_file *file, const struct hr_device *dev, bool map,
		      char *reason, size_t reason_size)
{
	const char *why = NULL;

	if (!(file->flags & HR_FILE_READ))
		why = "the file is not open for reading";
	else if (changes_unseen(file))
		why = "a server below this file system may change the file unseen";
	else if (dev->caps & HR__MEM_CAP_HOST_VISIBLE)
		why = map ? NULL
			  : "reading a mapped file needs a handler of SIGBUS; allow it with "
			    "hr_engine_options.map";
	else if (!dev->info.registers_read_only_host)
		why = "the device cannot register read-only host memory (an old driver, or a "
		      "guest with confidential computing)";
	else if (file->is_block_device) /* its pages leave the cache under the pin */
		why = "a block device does not tell when it was changed";
	else if (!hr_config_get()->pin_bytes)
		why = "HEADRACE_PIN_BYTES is 0: nothing may be pinned";
	if (!why && too_many(file))
		why = "16384 files are mapped already, which is as many as may be";
	if (!why)
		return 0;
	snprintf(reason, reason_size, "%s", why);
	return -HR_E_NO_PATH;
}

bool hr__mapping_plain_ok(const struct hr_file *file)
{
	return (file->flags & HR_FILE_READ) && !changes_unseen(file) && !too_many(file);
}

/* -- life ------------------------------------------------------------------------------------- */

static void unpin_window(struct hr__mapping *m, struct hr__window *w)
{
	uint64_t off = (uint64_t)(w - m->windows) * HR__MAPPING_WINDOW;

	m->dev->ops->unpin(m->dev, m->base + off, w->len);
	registry.pinned -= w->len;
	atomic_fetch_sub(&m->ready, 1);
	w->len = 0;
}

/* Nobody has the file any more, so nobody reads the mapping. */
static void mapping_drop(struct hr__attachment *attachment)
{
	struct hr__mapping *m = (struct hr__mapping *)attachment, **at = &registry.head;

	if (m->fork_generation != hr__fork_generation()) {
		/* In a child: registrations are the parent's, and the list does not have it. */
		atomic_fetch_sub(&registry.mappings, 1);
		hr__sys->munmap(m->base, m->len);
		free(m);
		return;
	}
	pthread_mutex_lock(&registry.lock);
	while (*at != m)
		at = &(*at)->next;
	*at = m->next;
	atomic_fetch_sub(&registry.mappings, 1);
	for (uint32_t i = 0; i < m->n_windows && m->pinned; i++) {
		if (atomic_load(&m->windows[i].state) == HR__WINDOW_READY)
			unpin_window(m, &m->windows[i]);
	}
	pthread_mutex_unlock(&registry.lock);
	hr__sys->munmap(m->base, m->len);
	hr__device_put(m->dev);
	free(m);
}

static bool is_pinned(const struct hr_device *dev, bool plain)
{
	return !plain && !(dev->caps & HR__MEM_CAP_HOST_VISIBLE);
}

static struct hr__mapping *find(struct hr_file *file, const struct hr_device *dev, bool plain)
{
	struct hr__attachment *at = atomic_load_explicit(&file->attached, memory_order_acquire);

	for (; at; at = at->next) {
		struct hr__mapping *m = (struct hr__mapping *)at;

		if (at->drop == mapping_drop && m->dev == dev && m->pinned == is_pinned(dev, plain))
			return m;
	}
	return NULL;
}

/* The lock is held. */
static int mapping_new(struct hr_file *file, struct hr_device *dev, bool plain,
		       struct hr__mapping **out)
{
	struct hr__mapping *m;
	struct hr__file_stamp stamp; /* before it is mapped */
	uint64_t windows;
	int ret = hr__file_stamp(file, &stamp);

	if (ret)
		return ret;
	if (stamp.size > INT64_MAX - 2 * HR__MAPPING_WINDOW)
		return -EFBIG;
	windows = hr__align_up(stamp.size, HR__MAPPING_WINDOW) / HR__MAPPING_WINDOW + 1;
	if (windows > UINT32_MAX)
		return -EFBIG;
	m = calloc(1, sizeof(*m) + windows * sizeof(m->windows[0]));
	if (!m)
		return -ENOMEM;
	m->n_windows = (uint32_t)windows;
	m->len = windows * HR__MAPPING_WINDOW;
	m->base = hr__sys->mmap(m->len, PROT_READ, MAP_SHARED, file->fd, 0);
	if (!m->base) {
		free(m);
		return -ENODEV;
	}
	m->one_layer = !strcmp(file->fs_name, "overlay");
	m->made_mtime_ns = stamp.mtime_ns;
	m->attachment.drop = mapping_drop;
	m->file = file;
	m->dev = dev;
	m->fork_generation = hr__fork_generation();
	m->pinned = is_pinned(dev, plain);
	hr__device_get(dev);
	m->next = registry.head;
	registry.head = m;
	atomic_fetch_add(&registry.mappings, 1);
	hr__file_attach(file, &m->attachment);
	*out = m;
	return 0;
}

int hr__mapping_get(struct hr_file *file, struct hr_device *dev, bool plain,
		    struct hr__mapping **out)
{
	int ret = 0;

	*out = find(file, dev, plain);
	if (*out && (*out)->pinned && (*out)->fork_generation != hr__fork_generation())
		return hr__fail(HR_E_FORKED,
				"%s: was registered for %s before fork(); that is the parent's",
				file->path, dev->info.name);
	if (*out)
		return 0;
	pthread_mutex_lock(&registry.lock);
	*out = find(file, dev, plain);
	if (!*out)
		ret = mapping_new(file, dev, plain, out);
	pthread_mutex_unlock(&registry.lock);
	if (!ret)
		return 0;
	return hr__fail(HR_E_PATH_REFUSED,
			"%s: cannot be mapped (%s); use another path, or a file system with mmap",
			file->path, hr_strerror(ret));
}

/* -- the data path ---------------------------------------------------------------------------- */

static void touch(struct hr__window *w)
{
	uint64_t tick = atomic_load_explicit(&registry.tick, memory_order_relaxed);

	if (atomic_load_explicit(&w->touched, memory_order_relaxed) != tick)
		atomic_store_explicit(&w->touched, tick, memory_order_relaxed);
}

static bool hold_window(struct hr__window *w, uint64_t end, int64_t mtime_ns)
{
	if (atomic_load_explicit(&w->state, memory_order_relaxed) != HR__WINDOW_READY)
		return false;
	atomic_fetch_add(&w->uses, 1);
	if (atomic_load(&w->state) == HR__WINDOW_READY && w->len >= end &&
	    w->mtime_ns == mtime_ns) {
		touch(w);
		return true;
	}
	atomic_fetch_sub(&w->uses, 1);
	return false;
}

bool hr__mapping_hold(struct hr__mapping *m, uint64_t off, uint64_t len, int64_t mtime_ns)
{
	uint64_t end = off + len, at = off;

	if (atomic_load_explicit(&m->broken, memory_order_relaxed) ||
	    atomic_load_explicit(&m->refused, memory_order_relaxed) || end > m->len ||
	    (m->one_layer && mtime_ns != m->made_mtime_ns))
		return false;
	if (!m->pinned)
		return true;
	while (at < end) {
		uint64_t k = at / HR__MAPPING_WINDOW, first = k * HR__MAPPING_WINDOW;
		uint64_t to = hr__min(end, first + HR__MAPPING_WINDOW);

		if (!hold_window(&m->windows[k], to - first, mtime_ns)) {
			hr__mapping_release(m, off, at - off);
			return false;
		}
		at = to;
	}
	return true;
}

void hr__mapping_release(struct hr__mapping *m, uint64_t off, uint64_t len)
{
	if (!m->pinned || !len)
		return;
	for (uint64_t k = off / HR__MAPPING_WINDOW; k <= (off + len - 1) / HR__MAPPING_WINDOW; k++)
		atomic_fetch_sub(&m->windows[k].uses, 1);
}

/* For good. The first reason stays. */
static void refuse(struct hr__mapping *m, const char *reason)
{
	pthread_mutex_lock(&registry.lock);
	if (!m->reason[0])
		snprintf(m->reason, sizeof(m->reason), "%s", reason);
	pthread_mutex_unlock(&registry.lock);
	atomic_store(&m->refused, true);
}

static void count_change(struct hr__mapping *m)
{
	if (atomic_load(&m->broken))
		refuse(m, "the file was truncated while it was mapped; open it again");
	else if (atomic_fetch_add(&m->changes, 1) + 1 == CHANGES_MAX)
		refuse(m, "the file is written all the time; it is read instead");
}

bool hr__mapping_doubtful(struct hr__mapping *m, int64_t mtime_ns, uint64_t end,
			  struct hr__look *look)
{
	if (look->file != m->file) {
		look->file = m->file;
		look->failed = hr__file_stamp(m->file, &look->stamp) != 0;
		look->told = false;
	}
	if (!atomic_load(&m->broken) && !look->failed && look->stamp.mtime_ns == mtime_ns &&
	    look->stamp.size >= end)
		return false;
	if (!look->told)
		count_change(m);
	look->told = true;
	return true;
}

/* -- making ready ----------------------------------------------------------------------------- */

/* From @state to CHANGING, if nobody uses the window. */
static bool claim(struct hr__window *w, unsigned int state)
{
	if (!atomic_compare_exchange_strong(&w->state, &state, HR__WINDOW_CHANGING))
		return false;
	if (!atomic_load(&w->uses))
		return true;
	atomic_store(&w->state, state);
	return false;
}

/* The lock is held. The window that has not been used for longest goes, if any may. */
static bool drop_oldest(uint64_t before)
{
	struct hr__mapping *owner = NULL;
	struct hr__window *oldest = NULL;

	for (struct hr__mapping *m = registry.head; m; m = m->next) {
		for (uint32_t i = 0; i < m->n_windows && m->pinned; i++) {
			struct hr__window *w = &m->windows[i];

			if (atomic_load(&w->state) == HR__WINDOW_READY &&
			    atomic_load(&w->touched) < before) {
				before = atomic_load(&w->touched);
				oldest = w;
				owner = m;
			}
		}
	}
	if (!oldest)
		return false;
	if (claim(oldest, HR__WINDOW_READY)) {
		unpin_window(owner, oldest);
		atomic_store(&oldest->state, HR__WINDOW_UNKNOWN);
	} else {
		touch(oldest); /* in use: the next round finds another one */
	}
	return true;
}

static bool reserve(uint64_t bytes, uint64_t evict_before)
{
	uint64_t limit = hr_config_get()->pin_bytes;
	bool fits;

	pthread_mutex_lock(&registry.lock);
	while (registry.pinned + bytes > limit && drop_oldest(evict_before))
		;
	fits = registry.pinned + bytes <= limit;
	if (fits)
		registry.pinned += bytes;
	pthread_mutex_unlock(&registry.lock);
	return fits;
}

static void unreserve(uint64_t bytes)
{
	pthread_mutex_lock(&registry.lock);
	registry.pinned -= bytes;
	pthread_mutex_unlock(&registry.lock);
}

static bool is_hot(struct hr__mapping *m, uint64_t off, uint64_t len)
{
	struct hr_residency_info info;

	return hr_file_residency(m->file, off, len, &info) == 0 &&
	       info.state != HR_RESIDENCY_UNKNOWN &&
	       info.pages_resident * 64 >= info.pages * HOT_PARTS;
}

/* Claimed. Return: 0, -ENOSPC at the limit, or -code with a sentence. */
static int pin_window(struct hr__mapping *m, uint64_t off, uint64_t len, uint64_t evict_before)
{
	void *device_ptr;
	int ret;

	if (!reserve(len, evict_before))
		return -ENOSPC;
	ret = m->dev->ops->pin(m->dev, m->base + off, len, HR__PIN_READ_ONLY, &device_ptr);
	if (ret)
		unreserve(len);
	return ret;
}

/* As pin_window(). The kernel fills the page tables; an old one leaves it to the first readers. */
static int make_ready(struct hr__mapping *m, uint64_t off, uint64_t len, bool read_in,
		      uint64_t evict_before, struct hr__mapping_work *work)
{
	uint64_t start = hr__now_ns();
	int ret = 0;

	if (read_in || !m->pinned)
		madvise(m->base + off, len, MADV_POPULATE_READ);
	if (m->pinned)
		ret = pin_window(m, off, len, evict_before);
	work->ns += hr__now_ns() - start;
	if (!ret)
		work->bytes += len;
	return ret;
}

/* A failure is final unless the file has just been changed. Return: 0 or -code. */
static int judge_failure(struct hr__mapping *m, const struct hr__file_stamp *seen, int code)
{
	struct hr__file_stamp now;

	if (hr__file_stamp(m->file, &now) == 0 &&
	    (now.size != seen->size || now.mtime_ns != seen->mtime_ns))
		return 0;
	refuse(m, hr_error_detail());
	return code;
}

/*
 * Make window @k ready as far as the file goes. *ready: bytes from its start that are.
 * Return: 0 (also when it is left alone, see @work), or -code.
 */
static int prepare_window(struct hr__mapping *m, uint64_t k, bool read_in, uint64_t evict_before,
			  struct hr__mapping_work *work, uint64_t *ready)
{
	uint64_t off = k * HR__MAPPING_WINDOW, page = (uint64_t)sysconf(_SC_PAGESIZE), len;
	struct hr__window *w = &m->windows[k];
	unsigned int state = atomic_load(&w->state);
	struct hr__file_stamp stamp;
	int ret = hr__file_stamp(m->file, &stamp);

	*ready = 0;
	if (ret || stamp.size <= off)
		return ret;
	len = hr__min(HR__MAPPING_WINDOW, hr__align_up(stamp.size - off, page));
	/* In this order: somebody else may make it ready between the two. */
	if (state == HR__WINDOW_READY && hr__mapping_hold(m, off, len, stamp.mtime_ns)) {
		*ready = hr__min(len, stamp.size - off);
		hr__mapping_release(m, off, len);
		return 0;
	}
	if (!read_in && !is_hot(m, off, len)) {
		work->cold = true;
		return 0;
	}
	if (state == HR__WINDOW_CHANGING || !claim(w, state))
		return 0;
	if (state == HR__WINDOW_READY && m->pinned) { /* for a file that is no more */
		pthread_mutex_lock(&registry.lock);
		unpin_window(m, w);
		pthread_mutex_unlock(&registry.lock);
	}
	ret = make_ready(m, off, len, read_in, evict_before, work);
	w->len = ret ? 0 : len;
	w->mtime_ns = stamp.mtime_ns;
	atomic_store(&w->touched, hr__mapping_tick());
	if (!ret && m->pinned)
		atomic_fetch_add(&m->ready, 1);
	atomic_store(&w->state, ret ? HR__WINDOW_UNKNOWN : HR__WINDOW_READY);
	if (ret == -ENOSPC)
		work->full = true;
	else if (ret)
		return judge_failure(m, &stamp, ret);
	else
		*ready = hr__min(len, stamp.size - off);
	return 0;
}

static int fail_refused(const struct hr__mapping *m)
{
	return hr__fail(HR_E_PATH_REFUSED, "%s: the path pagecache to %s is refused: %s",
			m->file->path, m->dev->info.name, m->reason);
}

int64_t hr__mapping_prepare(struct hr__mapping *m, uint64_t off, uint64_t len, bool read_in,
			    uint64_t evict_before, uint64_t end_ns, struct hr__mapping_work *work)
{
	uint64_t end = hr__min(off + len, m->len), sum = 0;

	for (uint64_t at = off; at < end && !work->full;) {
		uint64_t k = at / HR__MAPPING_WINDOW, first = k * HR__MAPPING_WINDOW, ready;
		uint64_t to = hr__min(end, first + HR__MAPPING_WINDOW);

		if (atomic_load(&m->refused) ||
		    prepare_window(m, k, read_in, evict_before, work, &ready))
			return fail_refused(m);
		if (first + ready > at)
			sum += hr__min(first + ready, to) - at;
		at = to;
		if (hr__now_ns() >= end_ns)
			break;
	}
	return (int64_t)sum;
}

int64_t hr_file_register(struct hr_file *file, struct hr_device *dev, uint64_t offset, uint64_t len,
			 uint64_t timeout_ns)
{
	struct hr__mapping_work work = {0};
	struct hr__mapping *m;
	uint64_t size, end, now = hr__now_ns();
	char reason[160];
	int64_t ready;
	int ret;

	if (!file || !dev)
		return hr__fail(EINVAL, "hr_file_register: needs a file and a device");
	if (hr__mapping_check(file, dev, true, reason, sizeof(reason)))
		return hr__fail(HR_E_PATH_REFUSED, "%s: the path pagecache to %s is refused: %s",
				file->path, dev->info.name, reason);
	if (hr__add_overflows(now, timeout_ns, &end))
		end = UINT64_MAX;
	ret = hr__file_hold(file, true);
	if (ret < 0)
		return ret;
	ret = hr__file_size(file, &size);
	if (!ret)
		ret = hr__mapping_get(file, dev, false, &m);
	ready = ret;
	if (!ret && offset < size)
		ready = hr__mapping_prepare(m, offset, hr__min(len ? len : size, size - offset),
					    true, hr__mapping_tick(), end, &work);
	hr__file_release(file);
	return ready;
}
