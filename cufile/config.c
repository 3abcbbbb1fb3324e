/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cufile/config.c - cufile.json (JSON with comments) and the environment. Whatever they hold, the
 * program goes on: what is not understood is logged and left out. Unknown keys mean nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cufile/inside.h"

#define FILE_DEFAULT "/etc/cufile.json"
#define FILE_MAX (1u << 20)

enum what { NUM, FLAG, TEXT, LOG_MB };

static const struct {
	const char *path;
	enum what what;
	int index;
} keys[] = {
	{"logging.dir", TEXT, CUFILE_PARAM_LOG_DIR},
	{"logging.level", TEXT, CUFILE_PARAM_LOGGING_LEVEL},
	{"logging.max_file_size_mb", LOG_MB, 0},
	{"profile.nvtx", FLAG, CUFILE_PARAM_PROFILE_NVTX},
	{"profile.cufile_stats", NUM, CUFILE_PARAM_PROFILE_STATS},
	{"profile.io_batchsize", NUM, CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE},
	{"execution.max_io_queue_depth", NUM, CUFILE_PARAM_EXECUTION_MAX_IO_QUEUE_DEPTH},
	{"execution.max_io_threads", NUM, CUFILE_PARAM_EXECUTION_MAX_IO_THREADS},
	{"execution.parallel_io", FLAG, CUFILE_PARAM_EXECUTION_PARALLEL_IO},
	{"execution.min_io_threshold_size_kb", NUM,
	 CUFILE_PARAM_EXECUTION_MIN_IO_THRESHOLD_SIZE_KB},
	{"execution.max_request_parallelism", NUM, CUFILE_PARAM_EXECUTION_MAX_REQUEST_PARALLELISM},
	{"properties.max_direct_io_size_kb", NUM, CUFILE_PARAM_PROPERTIES_MAX_DIRECT_IO_SIZE_KB},
	{"properties.max_device_cache_size_kb", NUM,
	 CUFILE_PARAM_PROPERTIES_MAX_DEVICE_CACHE_SIZE_KB},
	{"properties.per_buffer_cache_size_kb", NUM,
	 CUFILE_PARAM_PROPERTIES_PER_BUFFER_CACHE_SIZE_KB},
	{"properties.max_device_pinned_mem_size_kb", NUM,
	 CUFILE_PARAM_PROPERTIES_MAX_DEVICE_PINNED_MEM_SIZE_KB},
	{"properties.max_batch_io_size", NUM, CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE},
	{"properties.io_batchsize", NUM, CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE},
	{"properties.max_batch_io_timeout_msecs", NUM, CUFILE_PARAM_PROPERTIES_BATCH_IO_TIMEOUT_MS},
	{"properties.poll_mode_max_size_kb", NUM, CUFILE_PARAM_POLLTHRESHOLD_SIZE_KB},
	{"properties.use_poll_mode", FLAG, CUFILE_PARAM_PROPERTIES_USE_POLL_MODE},
	{"properties.use_compat_mode", FLAG, CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE},
	{"properties.allow_compat_mode", FLAG, CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE},
	{"properties.force_compat_mode", FLAG, CUFILE_PARAM_FORCE_COMPAT_MODE},
	{"properties.allow_system_memory", FLAG, CUFILE_PARAM_PROPERTIES_ALLOW_SYSTEM_MEMORY},
	{"properties.use_pci_p2pdma", FLAG, CUFILE_PARAM_USE_PCIP2PDMA},
	{"properties.prefer_iouring", FLAG, CUFILE_PARAM_PREFER_IO_URING},
	{"properties.force_odirect_mode", FLAG, CUFILE_PARAM_FORCE_ODIRECT_MODE},
	{"properties.vanilla_posix_io_mode", FLAG, CUFILE_PARAM_PROPERTIES_POSIX_IO_MODE},
	{"properties.gds_fallback_io", FLAG, CUFILE_PARAM_GDS_FALLBACK_IO},
	{"properties.rdma_transport_type", TEXT, CUFILE_PARAM_RDMA_TRANSPORT},
	{"miscellaneous.api_check_aggressive", FLAG, CUFILE_PARAM_FS_MISC_API_CHECK_AGGRESSIVE},
	{"miscellaneous.skip_topology_detection", FLAG, CUFILE_PARAM_SKIP_TOPOLOGY_DETECTION},
	{"miscellaneous.stream_memops_bypass", FLAG, CUFILE_PARAM_STREAM_MEMOPS_BYPASS},
};

static const struct {
	const char *name;
	int index;
} switches[] = {
	{"CUFILE_ALLOW_COMPAT_MODE", CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE},
	{"CUFILE_FORCE_COMPAT_MODE", CUFILE_PARAM_FORCE_COMPAT_MODE},
	{"CUFILE_USE_PCIP2PDMA", CUFILE_PARAM_USE_PCIP2PDMA},
	{"CUFILE_SKIP_TOPOLOGY_DETECTION", CUFILE_PARAM_SKIP_TOPOLOGY_DETECTION},
	{"CUFILE_NVTX", CUFILE_PARAM_PROFILE_NVTX},
};

/* -- the file ----------------------------------------------------------------------------------- */

/* Spaces in the place of comments, so that positions in messages stay true. */
static void blank_comments(char *text, size_t len)
{
	enum { CODE, STRING, LINE, BLOCK } in = CODE;

	for (size_t i = 0; i < len; i++) {
		char c = text[i], next = i + 1 < len ? text[i + 1] : '\0';

		if (in == STRING) {
			if (c == '\\')
				i++;
			else if (c == '"')
				in = CODE;
		} else if (in == LINE) {
			if (c == '\n')
				in = CODE;
			else
				text[i] = ' ';
		} else if (in == BLOCK) {
			if (c == '*' && next == '/') {
				text[i] = text[i + 1] = ' ';
				i++;
				in = CODE;
			} else if (c != '\n') {
				text[i] = ' ';
			}
		} else if (c == '"') {
			in = STRING;
		} else if (c == '/' && (next == '/' || next == '*')) {
			in = next == '/' ? LINE : BLOCK;
			text[i] = text[i + 1] = ' ';
			i++;
		}
	}
}

/* "a.b" in @root, NULL if it is not there. */
static json_t *find(json_t *root, const char *path)
{
	const char *dot = strchr(path, '.');
	char group[32];
	size_t len = (size_t)(dot - path);

	memcpy(group, path, len);
	group[len] = '\0';
	return json_object_get(json_object_get(root, group), dot + 1);
}

static void apply_text(struct cf_settings *s, int index, const char *text, const char *where)
{
	if (strlen(text) >= CF_TEXT_BYTES || !*text ||
	    (index == CUFILE_PARAM_LOGGING_LEVEL && cf_level_parse(text) < 0)) {
		cf_log(CF_ERROR, "cufio", "%s: \"%.64s\" is not understood and left out", where,
		       text);
		return;
	}
	memcpy(s->text[index], text, strlen(text) + 1);
}

static void apply_value(struct cf_settings *s, size_t k, const json_t *value)
{
	int i = keys[k].index;
	bool ok = true;

	switch (keys[k].what) {
	case NUM:
		ok = json_is_integer(value) && json_integer_value(value) >= 0;
		if (ok)
			s->num[i] = (size_t)json_integer_value(value);
		break;
	case FLAG:
		ok = json_is_boolean(value);
		if (ok)
			s->flag[i] = json_is_true(value);
		break;
	case TEXT:
		ok = json_is_string(value);
		if (ok)
			apply_text(s, i, json_string_value(value), keys[k].path);
		break;
	case LOG_MB:
		ok = json_is_integer(value) && json_integer_value(value) >= -1;
		if (ok)
			s->log_max_mb = json_integer_value(value);
		break;
	}
	if (!ok)
		cf_log(CF_ERROR, "cufio", "%s: a value of the wrong type is left out",
		       keys[k].path);
}

/* Two lists of one length, as positive numbers. */
static void apply_slabs(struct cf_slabs *slabs, const json_t *sizes, const json_t *counts)
{
	size_t n = json_array_size(sizes);
	struct cf_slabs got = {.n = (int)n};

	if (!sizes && !counts)
		return;
	if (!n || n > CF_SLABS_MAX || n != json_array_size(counts))
		goto bad;
	for (size_t i = 0; i < n; i++) {
		json_int_t size = json_integer_value(json_array_get(sizes, i));
		json_int_t count = json_integer_value(json_array_get(counts, i));

		if (size <= 0 || count <= 0)
			goto bad;
		got.size_kb[i] = (size_t)size;
		got.count[i] = (size_t)count;
	}
	*slabs = got;
	return;

bad:
	cf_log(CF_ERROR, "cufio", "sizes and counts of slabs do not fit and are left out");
}

int cf_config_parse(char *text, size_t len, struct cf_settings *s)
{
	json_error_t error;
	json_t *root, *gpu;

	blank_comments(text, len);
	root = json_loadb(text, len, 0, &error);
	if (!root || !json_is_object(root)) {
		cf_log(CF_ERROR, "cufio", "cufile.json: line %d: %s; defaults are used",
		       root ? 1 : error.line, root ? "no object" : error.text);
		json_decref(root);
		return -EINVAL;
	}
	for (size_t k = 0; k < CF_ARRAY_LEN(keys); k++) {
		const json_t *value = find(root, keys[k].path);

		if (value)
			apply_value(s, k, value);
	}
	apply_slabs(&s->posix_slabs, find(root, "properties.posix_pool_slab_size_kb"),
		    find(root, "properties.posix_pool_slab_count"));
	gpu = find(root, "properties.gpu_bounce_buffer_slab_config");
	apply_slabs(&s->gpu_slabs, json_object_get(gpu, "slab_size_kb"),
		    json_object_get(gpu, "slab_count"));
	json_decref(root);
	return 0;
}

/* Only a regular file of a sane size: a pipe would wait for ever. Return: its text, or NULL. */
static char *read_file(const char *path, size_t *len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;
	char *text = NULL;
	ssize_t n;

	if (fd < 0)
		return NULL;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0 && st.st_size <= FILE_MAX)
		text = malloc((size_t)st.st_size);
	*len = 0;
	while (text && *len < (size_t)st.st_size) {
		n = read(fd, text + *len, (size_t)st.st_size - *len);
		if (n <= 0 && !(n < 0 && errno == EINTR))
			break;
		*len += n > 0 ? (size_t)n : 0;
	}
	close(fd);
	return text;
}

static void apply_file(struct cf_settings *s)
{
	const char *path = getenv("CUFILE_ENV_PATH_JSON");
	size_t len = 0;
	char *text = path && *path ? read_file(path, &len) : NULL;

	if (path && *path && !text)
		cf_log(CF_WARN, "cufio", "%s: cannot be read; going on without", path);
	if (!text)
		text = read_file(FILE_DEFAULT, &len);
	if (text)
		cf_config_parse(text, len, s);
	free(text);
}

/* -- the environment ---------------------------------------------------------------------------- */

/* Return: 1, 0, or -EINVAL. */
static int parse_switch(const char *text)
{
	static const char *const yes[] = {"1", "true", "yes", "on"};
	static const char *const no[] = {"0", "false", "no", "off"};

	for (size_t i = 0; i < CF_ARRAY_LEN(yes); i++) {
		if (!strcasecmp(text, yes[i]))
			return 1;
		if (!strcasecmp(text, no[i]))
			return 0;
	}
	return -EINVAL;
}

static void apply_switches(struct cf_settings *s)
{
	for (size_t i = 0; i < CF_ARRAY_LEN(switches); i++) {
		const char *text = getenv(switches[i].name);
		int on = text ? parse_switch(text) : -ENOENT;

		if (on >= 0)
			s->flag[switches[i].index] = on;
		else if (on == -EINVAL)
			cf_log(CF_ERROR, "cufio", "%s: neither true nor false; left out",
			       switches[i].name);
	}
}

void cf_config_apply(struct cf_settings *s)
{
	const char *text;
	char *end;
	long mb;

	apply_file(s);
	apply_switches(s);
	text = getenv("CUFILE_LOGGING_LEVEL");
	if (text)
		apply_text(s, CUFILE_PARAM_LOGGING_LEVEL, text, "CUFILE_LOGGING_LEVEL");
	text = getenv("CUFILE_LOGFILE_PATH");
	s->has_logfile = text != NULL;
	if (text && *text)
		apply_text(s, CUFILE_PARAM_ENV_LOGFILE_PATH, text, "CUFILE_LOGFILE_PATH");
	text = getenv("CUFILE_LOGFILE_MAX_SIZE_MB");
	if (text) {
		mb = strtol(text, &end, 10);
		if (*text && !*end && mb >= -1)
			s->log_max_mb = mb;
	}
}
