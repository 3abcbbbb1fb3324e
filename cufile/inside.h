/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cufile/inside.h - what the parts of the drop-in share. They are built on <headrace/...> alone.
 *
 * Results inside are ints: 0 or a count, -errno, or -code of cuFile (from 5001 on).
 */
#ifndef CUFILE_INSIDE_H
#define CUFILE_INSIDE_H

#define CUFILE_NO_CUDA_H
#define CUFILE_NO_RENAME
#include "cufile/cufile.h"

#include <headrace/headrace.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#define CF_EXPORT __attribute__((visibility("default")))
#define CF_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define CF_VERSION 1180 /* from 1190 on callers would expect longer statistics */

/* cf_result() - what a call returns; a failure is logged with its name. */
#define cf_result(err) cf_result_of((CUfileOpError)(err), __func__)
CUfileError_t cf_result_of(CUfileOpError err, const char *call);
/* cf_error() - the same for -errno or -code. */
#define cf_error(code) cf_error_of(code, __func__)
CUfileError_t cf_error_of(int code, const char *call);

/* -- settings.c, config.c: what the file, the environment and the program want ------------------- */

enum { CF_NUM_COUNT = 12, CF_FLAG_COUNT = 14, CF_TEXT_COUNT = 4 };
#define CF_TEXT_BYTES 1024
#define CF_SLABS_MAX 64

struct cf_slabs {
	int n;
	size_t size_kb[CF_SLABS_MAX], count[CF_SLABS_MAX];
};

struct cf_settings {
	size_t num[CF_NUM_COUNT]; /* CUFileSizeTConfigParameter_t */
	bool flag[CF_FLAG_COUNT]; /* CUFileBoolConfigParameter_t */
	char text[CF_TEXT_COUNT][CF_TEXT_BYTES];
	bool has_logfile; /* CUFILE_LOGFILE_PATH exists, perhaps empty */
	struct cf_slabs posix_slabs, gpu_slabs;
	int64_t log_max_mb; /* -1: no limit */
};

struct cf_range {
	size_t min, max, usual; /* max 0: none */
};
extern const struct cf_range cf_ranges[CF_NUM_COUNT];

/* cf_settings_builtin() - as if there were neither file nor environment nor program. */
void cf_settings_builtin(struct cf_settings *s);
/* cf_config_apply() - the file, then the environment. Trouble is logged and goes no further. */
void cf_config_apply(struct cf_settings *s);
/* cf_config_parse() - JSON with comments in @text; what is in it goes to @s. Return: 0 or -EINVAL. */
int cf_config_parse(char *text, size_t len, struct cf_settings *s);

/* cf_settings() - those in force. cf_settings_freeze() - they are from now on, until thaw. */
const struct cf_settings *cf_settings(void);
void cf_settings_freeze(void);
void cf_settings_thaw(void);
/* cf_settings_change() - of a running driver, by the old setters. */
void cf_settings_change(int index, size_t value);
void cf_settings_change_flag(int index, bool value);

/* -- log.c --------------------------------------------------------------------------------------- */

enum cf_level { CF_NOTICE, CF_ERROR, CF_WARN, CF_INFO, CF_DEBUG, CF_TRACE, CF_LEVELS };

/* cf_level_parse() - "ERROR" and its kin, in any case. Return: level or -EINVAL. */
int cf_level_parse(const char *text);
void cf_log_configure(const struct cf_settings *s); /* NULL: silence, until the next one */
void cf_log_write(enum cf_level level, const char *module, int line, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
bool cf_log_wants(enum cf_level level);
/* cf_calendar() - seconds since 1970 as a date, without asking libc. From 1970 on. */
void cf_calendar(int64_t seconds, struct tm *out);
#define cf_log(level, module, ...)                                                                 \
	do {                                                                                       \
		if (cf_log_wants(level))                                                           \
			cf_log_write(level, module, __LINE__, __VA_ARGS__);                        \
	} while (0)

/* -- table.c: handles that are numbers, so that stale and invented ones are told apart ------------ */

struct cf_object {
	atomic_uint refs;
	void (*destroy)(struct cf_object *object);
};

enum cf_kind { CF_FILE = 5, CF_BATCH = 9 };

void cf_object_init(struct cf_object *object, void (*destroy)(struct cf_object *object));
void cf_object_get(struct cf_object *object);
void cf_object_put(struct cf_object *object);

/* cf_table_add() - gives the first reference to the table. Return: 0 or -ENOMEM. */
int cf_table_add(enum cf_kind kind, struct cf_object *object, void **id);
/* cf_table_get() - one more reference, or NULL. */
struct cf_object *cf_table_get(enum cf_kind kind, const void *id);
/* cf_table_take() - out of the table, with the table's reference; NULL if it is not there. */
struct cf_object *cf_table_take(enum cf_kind kind, const void *id);
/* cf_table_find() - the first for which @match says so. The lock is held meanwhile. */
bool cf_table_find(enum cf_kind kind, bool (*match)(struct cf_object *object, const void *arg),
		   const void *arg);
void cf_table_clear(enum cf_kind kind);
void cf_table_lock(void); /* around fork() */
void cf_table_unlock(void);
void cf_table_forked(void);

/* -- driver.c ------------------------------------------------------------------------------------ */

/* cf_open() - the implicit open. Return: 0 or -code. */
int cf_open(void);
bool cf_is_open(void);
bool cf_was_closed(void); /* it is closed now and has been open before */

/*
 * cf_enter() - I/O begins: the driver stays until cf_leave(). Return: 0, -CU_FILE_DRIVER_CLOSING.
 * cf_closing() - somebody waits for the end of it.
 */
int cf_enter(void);
void cf_leave(void);
bool cf_closing(void);
/* cf_open_enter() - both; for calls that open by themselves. Return: 0 or -code. */
int cf_open_enter(void);
/* cf_epoch() - grows with each close: what is older belongs to a driver that is gone. */
unsigned int cf_epoch(void);
/* cf_forks() - grows in each child of fork(). */
unsigned int cf_forks(void);

/* -- device.c, pool.c: devices and engines, opened when somebody needs them ----------------------- */

struct cf_device {
	char name[32];
	int gpu; /* -1: host */
	_Atomic(struct hr_device *) dev;
};

/* cf_device_find() - by name. Return: 0 or -code. */
int cf_device_find(const char *name, struct cf_device **out);
void cf_devices_close(void);

struct cf_engine {
	struct hr_engine *engine;
	struct cf_device *device;
	struct cf_engine *next;
	unsigned int slot;
};

/* cf_engine_get() - one for a call that waits, from the pool of @device. Return: 0 or -code. */
int cf_engine_get(struct cf_device *device, struct cf_engine **out);
void cf_engine_put(struct cf_engine *engine);
/*
 * cf_device_warm() - make all that workers will need for memory at @base, once a device, and for @op on
 * @handle. While a stream is held up for a transfer the driver must not be made to load code, pin or
 * free memory: it may wait for the same stream.
 * cf_engines_made_only() - the calling thread takes engines that are there already.
 */
struct cf_handle;
int cf_device_warm(const void *base, struct cf_handle *handle, enum hr_op op);
void cf_engines_made_only(void);
/* cf_engine_get_batch() - one for a batch in flight: never waits for another to come back. */
int cf_engine_get_batch(struct cf_device *device, struct cf_engine **out);
void cf_engine_put_batch(struct cf_engine *engine);
/* cf_engines_close() - of all devices, once nothing uses them. */
void cf_engines_close(void);
void cf_pool_forked(void);

/* -- direct.c: drives that write to memory of GPUs themselves -------------------------------------- */

/* cf_direct_possible() - is that set up, and allowed? A file or a GPU may still not be made for it. */
bool cf_direct_possible(void);
/* cf_direct_wish() - the path for engines of @device. */
enum hr_path cf_direct_wish(const struct cf_device *device);

/* -- buffer.c ------------------------------------------------------------------------------------ */

/* Memory for one transfer: a part of a registered buffer, or a buffer for this once. */
struct cf_target {
	struct cf_object *registered;
	struct hr_buffer *buffer;
	struct cf_device *device;
	uint64_t offset;
};

/* cf_target_get() - @base + @offset, @len bytes. Return: 0, -errno or -code. */
int cf_target_get(enum hr_op op, const void *base, uint64_t offset, uint64_t len,
		  struct cf_target *out);
void cf_target_put(struct cf_target *target);
void cf_buffers_clear(void);
void cf_buffers_lock(void);
void cf_buffers_unlock(void);
void cf_buffers_forked(void);

/* -- handle.c, userfs.c ---------------------------------------------------------------------------- */

struct cf_handle {
	struct cf_object object;
	struct hr_file *file; /* NULL: a file system in user space */
	bool readable, writable;
	int fd; /* the caller's, and what it was then */
	uint64_t dev, ino;
	CUfileFSOps_t ops;
	void *user;
	atomic_uint warm[2]; /* by hr_op: GPUs (bits) for which workers know the way */
};

static inline struct cf_handle *cf_handle_get(const void *id)
{
	return (struct cf_handle *)cf_table_get(CF_FILE, id);
}

/* cf_handle_allows() - may it be used for that? Return: 0 or -code. */
int cf_handle_allows(const struct cf_handle *handle, enum hr_op op);
/* cf_userfs_move() - by the callbacks. Return: bytes, -errno or -code. */
ssize_t cf_userfs_move(struct cf_handle *handle, enum hr_op op, struct cf_target *target,
		       uint64_t file_offset, uint64_t len);

/* -- transfer.c ------------------------------------------------------------------------------------ */

/* cf_code() - what a result of Headrace is called here: -errno or -code. */
int cf_code(int64_t result);

struct cf_request {
	enum hr_op op;
	const void *base;
	size_t size;
	off_t file_offset, buffer_offset;
};
/* cf_transfer() - one read or write, waiting. Return: bytes, -errno or -code. */
ssize_t cf_transfer(struct cf_handle *handle, const struct cf_request *request);

/* -- async.c --------------------------------------------------------------------------------------- */

/* cf_async_close() - no more workers; streams are forgotten. */
void cf_async_close(void);
void cf_async_forked(void);
void cf_log_forked(void);
void cf_clock_lock(void); /* around fork() */
void cf_clock_unlock(void);
void cf_settings_forked(void);
void cf_stats_forked(void);

/* -- stats.c --------------------------------------------------------------------------------------- */

/* X(member): counters of level 1 that single calls raise. */
enum cf_count {
	CF_COUNT_HANDLE_REGISTER,
	CF_COUNT_HANDLE_DEREGISTER,
	CF_COUNT_BUFFER_REGISTER,
	CF_COUNT_BUFFER_DEREGISTER,
	CF_COUNT_BATCH_SETUP,
	CF_COUNT_BATCH_SUBMIT,
	CF_COUNT_BATCH_COMPLETE,
	CF_COUNT_BATCH_CANCEL,
	CF_COUNT_BATCH_DESTROY,
	CF_COUNTS
};

bool cf_stats_on(void);
void cf_stats_level_from(const struct cf_settings *s);
void cf_count(enum cf_count what, bool ok);
/* A transfer that has ended. */
struct cf_outcome {
	int64_t result; /* bytes or -code */
	int gpu;        /* -1: host */
	bool direct;    /* the drive itself moved all of it to or from the GPU */
};
void cf_stats_move(enum hr_op op, const struct cf_outcome *outcome, uint64_t ns);
/* cf_stats_batch() - a batch of @n requests was submitted in @ns; an entry has ended after @ns. */
void cf_stats_batch_submit(uint32_t n, uint64_t ns);
void cf_stats_batch_entry(enum hr_op op, const struct cf_outcome *outcome, uint64_t ns);
void cf_stats_registered(int gpu, int64_t bytes);

uint64_t cf_now_ns(void);

#endif
