/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cufile/settings.c - what is in force: what the program set, else the environment, else the file,
 * else what is built in; and the calls by which programs ask and set. Knows no file format.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "cufile/inside.h"

const struct cf_range cf_ranges[CF_NUM_COUNT] = {
	[CUFILE_PARAM_PROFILE_STATS] = {0, 3, 0},
	[CUFILE_PARAM_EXECUTION_MAX_IO_QUEUE_DEPTH] = {1, 256, 128},
	[CUFILE_PARAM_EXECUTION_MAX_IO_THREADS] = {0, 32, 4},
	[CUFILE_PARAM_EXECUTION_MIN_IO_THRESHOLD_SIZE_KB] = {4, 4294967295, 8192},
	[CUFILE_PARAM_EXECUTION_MAX_REQUEST_PARALLELISM] = {0, 8, 4},
	[CUFILE_PARAM_PROPERTIES_MAX_DIRECT_IO_SIZE_KB] = {64, 16384, 1024},
	[CUFILE_PARAM_PROPERTIES_MAX_DEVICE_CACHE_SIZE_KB] = {0, 0, 131072},
	[CUFILE_PARAM_PROPERTIES_PER_BUFFER_CACHE_SIZE_KB] = {64, 16384, 1024},
	[CUFILE_PARAM_PROPERTIES_MAX_DEVICE_PINNED_MEM_SIZE_KB] = {64, 0, 33554432},
	[CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE] = {1, 256, 128},
	[CUFILE_PARAM_POLLTHRESHOLD_SIZE_KB] = {4, 18014398509481980, 4},
	[CUFILE_PARAM_PROPERTIES_BATCH_IO_TIMEOUT_MS] = {1, 1000, 5},
};

/* What the program has set; it outlives a close. */
struct wish {
	struct cf_settings value;
	bool num[CF_NUM_COUNT], flag[CF_FLAG_COUNT], text[CF_TEXT_COUNT], posix_slabs, gpu_slabs;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct wish wish;
static struct cf_settings current; /* stable while frozen */
static bool loaded;
static atomic_bool frozen;

void cf_settings_builtin(struct cf_settings *s)
{
	static const size_t posix_kb[] = {4, 1024, 16384}, posix_count[] = {128, 64, 64};
	static const size_t gpu_kb[] = {1024, 8192, 16384, 65536}, gpu_count[] = {128, 8, 4, 2};

	memset(s, 0, sizeof(*s));
	for (int i = 0; i < CF_NUM_COUNT; i++)
		s->num[i] = cf_ranges[i].usual;
	s->flag[CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE] = true;
	s->flag[CUFILE_PARAM_EXECUTION_PARALLEL_IO] = true;
	s->flag[CUFILE_PARAM_PROPERTIES_ALLOW_SYSTEM_MEMORY] = true;
	memcpy(s->text[CUFILE_PARAM_LOGGING_LEVEL], "ERROR", 6);
	memcpy(s->text[CUFILE_PARAM_LOG_DIR], ".", 2);
	memcpy(s->text[CUFILE_PARAM_RDMA_TRANSPORT], "DC_V1", 6);
	s->posix_slabs.n = CF_ARRAY_LEN(posix_kb);
	memcpy(s->posix_slabs.size_kb, posix_kb, sizeof(posix_kb));
	memcpy(s->posix_slabs.count, posix_count, sizeof(posix_count));
	s->gpu_slabs.n = CF_ARRAY_LEN(gpu_kb);
	memcpy(s->gpu_slabs.size_kb, gpu_kb, sizeof(gpu_kb));
	memcpy(s->gpu_slabs.count, gpu_count, sizeof(gpu_count));
	s->log_max_mb = 32;
}

/* With the lock. */
static void load(void)
{
	if (loaded)
		return;
	/* Once in silence, to learn where messages go. */
	cf_log_configure(NULL);
	cf_settings_builtin(&current);
	cf_config_apply(&current);
	cf_log_configure(&current);
	cf_settings_builtin(&current);
	cf_config_apply(&current);
	loaded = true;
}

static void apply_wish(void)
{
	for (int i = 0; i < CF_NUM_COUNT; i++)
		current.num[i] = wish.num[i] ? wish.value.num[i] : current.num[i];
	for (int i = 0; i < CF_FLAG_COUNT; i++)
		current.flag[i] = wish.flag[i] ? wish.value.flag[i] : current.flag[i];
	for (int i = 0; i < CF_TEXT_COUNT; i++) {
		if (wish.text[i])
			memcpy(current.text[i], wish.value.text[i], CF_TEXT_BYTES);
	}
	current.has_logfile |= wish.text[CUFILE_PARAM_ENV_LOGFILE_PATH];
	if (wish.posix_slabs)
		current.posix_slabs = wish.value.posix_slabs;
	if (wish.gpu_slabs)
		current.gpu_slabs = wish.value.gpu_slabs;
	/* What is out of range is silently as if it had not been set. */
	for (int i = 0; i < CF_NUM_COUNT; i++) {
		const struct cf_range *r = &cf_ranges[i];

		if (current.num[i] < r->min || (r->max && current.num[i] > r->max))
			current.num[i] = r->usual;
	}
}

const struct cf_settings *cf_settings(void)
{
	return &current;
}

void cf_settings_freeze(void)
{
	pthread_mutex_lock(&lock);
	if (!atomic_load(&frozen)) {
		load();
		apply_wish();
		atomic_store(&frozen, true);
		cf_log_configure(&current);
		cf_stats_level_from(&current);
	}
	pthread_mutex_unlock(&lock);
}

void cf_settings_thaw(void)
{
	pthread_mutex_lock(&lock);
	atomic_store(&frozen, false);
	loaded = false;
	pthread_mutex_unlock(&lock);
}

void cf_settings_change(int index, size_t value)
{
	pthread_mutex_lock(&lock);
	current.num[index] = value;
	pthread_mutex_unlock(&lock);
}

void cf_settings_change_flag(int index, bool value)
{
	pthread_mutex_lock(&lock);
	current.flag[index] = value;
	pthread_mutex_unlock(&lock);
}

/* -- the calls ---------------------------------------------------------------------------------- */

/* begin() - of every call below. Return: 0, or the code to end with. */
static int begin(bool ok, bool sets)
{
	if (!ok)
		return CU_FILE_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	if (sets && atomic_load(&frozen)) {
		pthread_mutex_unlock(&lock);
		return CU_FILE_DRIVER_ALREADY_OPEN;
	}
	load();
	return 0;
}

static CUfileError_t end(void)
{
	pthread_mutex_unlock(&lock);
	return cf_result(CU_FILE_SUCCESS);
}

static bool known(unsigned int index, int count)
{
	return index < (unsigned int)count;
}

CF_EXPORT CUfileError_t cuFileGetParameterSizeT(CUFileSizeTConfigParameter_t param, size_t *value)
{
	int err = begin(value && known(param, CF_NUM_COUNT), false);

	if (err)
		return cf_result(err);
	*value = !atomic_load(&frozen) && wish.num[param] ? wish.value.num[param]
							  : current.num[param];
	return end();
}

CF_EXPORT CUfileError_t cuFileSetParameterSizeT(CUFileSizeTConfigParameter_t param, size_t value)
{
	int err = begin(known(param, CF_NUM_COUNT), true);

	if (err)
		return cf_result(err);
	wish.value.num[param] = value;
	wish.num[param] = true;
	return end();
}

CF_EXPORT CUfileError_t cuFileGetParameterMinMaxValue(CUFileSizeTConfigParameter_t param,
						      size_t *min_value, size_t *max_value)
{
	/* Statistics have levels, not a range. */
	bool ok = min_value && max_value && known(param, CF_NUM_COUNT) &&
		  param != CUFILE_PARAM_PROFILE_STATS;

	if (!ok)
		return cf_result(CU_FILE_INVALID_VALUE);
	*min_value = cf_ranges[param].min;
	*max_value = cf_ranges[param].max;
	if (!*max_value && cf_is_open()) /* no limit of ours: what a page of 4 KiB can count */
		*max_value = SIZE_MAX >> 10;
	return cf_result(CU_FILE_SUCCESS);
}

CF_EXPORT CUfileError_t cuFileGetParameterBool(CUFileBoolConfigParameter_t param, bool *value)
{
	int err = begin(value && known(param, CF_FLAG_COUNT), false);

	if (err)
		return cf_result(err);
	*value = !atomic_load(&frozen) && wish.flag[param] ? wish.value.flag[param]
							   : current.flag[param];
	return end();
}

CF_EXPORT CUfileError_t cuFileSetParameterBool(CUFileBoolConfigParameter_t param, bool value)
{
	int err = begin(known(param, CF_FLAG_COUNT), true);

	if (err)
		return cf_result(err);
	wish.value.flag[param] = value;
	wish.flag[param] = true;
	return end();
}

CF_EXPORT CUfileError_t cuFileGetParameterString(CUFileStringConfigParameter_t param,
						 char *desc_str, int len)
{
	int err = begin(desc_str && len > 0 && known(param, CF_TEXT_COUNT), false);
	const char *text;

	if (err)
		return cf_result(err);
	text = wish.text[param] ? wish.value.text[param] : current.text[param];
	if (strlen(text) >= (size_t)len ||
	    (param == CUFILE_PARAM_ENV_LOGFILE_PATH && !current.has_logfile && !wish.text[param])) {
		end();
		return cf_result(CU_FILE_INVALID_VALUE);
	}
	memcpy(desc_str, text, strlen(text) + 1);
	return end();
}

CF_EXPORT CUfileError_t cuFileSetParameterString(CUFileStringConfigParameter_t param,
						 const char *desc_str)
{
	bool ok = desc_str && *desc_str && known(param, CF_TEXT_COUNT) &&
		  strnlen(desc_str, CF_TEXT_BYTES) < CF_TEXT_BYTES &&
		  (param != CUFILE_PARAM_LOGGING_LEVEL || cf_level_parse(desc_str) >= 0);
	int err = begin(ok, true);

	if (err)
		return cf_result(err);
	memcpy(wish.value.text[param], desc_str, strlen(desc_str) + 1);
	wish.text[param] = true;
	return end();
}

static CUfileError_t get_slabs(const struct cf_slabs *wished, const struct cf_slabs *in_force,
			       const bool *set, size_t *sizes, size_t *counts, int len)
{
	int err = begin(sizes && counts && len > 0, false);
	const struct cf_slabs *from;

	if (err)
		return cf_result(err);
	from = !atomic_load(&frozen) && *set ? wished : in_force;
	if (len != from->n) {
		end();
		return cf_result(CU_FILE_INVALID_VALUE);
	}
	memcpy(sizes, from->size_kb, (size_t)len * sizeof(*sizes));
	memcpy(counts, from->count, (size_t)len * sizeof(*counts));
	return end();
}

static CUfileError_t set_slabs(struct cf_slabs *wished, bool *set, const size_t *sizes,
			       const size_t *counts, int len)
{
	int err = begin(sizes && counts && len > 0 && len <= CF_SLABS_MAX, true);

	if (err)
		return cf_result(err);
	for (int i = 0; i < len; i++)
		err |= !sizes[i] || !counts[i];
	if (err) {
		end();
		return cf_result(CU_FILE_INVALID_VALUE);
	}
	wished->n = len;
	memcpy(wished->size_kb, sizes, (size_t)len * sizeof(*sizes));
	memcpy(wished->count, counts, (size_t)len * sizeof(*counts));
	*set = true;
	return end();
}

CF_EXPORT CUfileError_t cuFileGetParameterPosixPoolSlabArray(size_t *size_values,
							     size_t *count_values, int len)
{
	return get_slabs(&wish.value.posix_slabs, &current.posix_slabs, &wish.posix_slabs,
			 size_values, count_values, len);
}

CF_EXPORT CUfileError_t cuFileSetParameterPosixPoolSlabArray(const size_t *size_values,
							     const size_t *count_values, int len)
{
	return set_slabs(&wish.value.posix_slabs, &wish.posix_slabs, size_values, count_values,
			 len);
}

CF_EXPORT CUfileError_t cuFileGetParameterGpuBounceBufferSlabArray(size_t *size_values,
								   size_t *count_values, int len)
{
	return get_slabs(&wish.value.gpu_slabs, &current.gpu_slabs, &wish.gpu_slabs, size_values,
			 count_values, len);
}

CF_EXPORT CUfileError_t cuFileSetParameterGpuBounceBufferSlabArray(const size_t *size_values,
								   const size_t *count_values,
								   int len)
{
	return set_slabs(&wish.value.gpu_slabs, &wish.gpu_slabs, size_values, count_values, len);
}

/* In a child: whoever had the lock is not here. */
void cf_settings_forked(void)
{
	static const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;

	lock = fresh;
	if (!atomic_load(&frozen))
		loaded = false; /* or half of it */
}
