/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli/cp.c - the verb that copies a file through device memory, or into it. A destination file appears
 * under its name only when it is whole and on the drive; until then it is a temporary file beside it.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"

#define COMPARE_BYTES (1u << 20)
#define REAP_NS 1000000000ull

struct settings {
	struct cli_common common;
	const char *path, *cache;
	uint64_t chunk, depth, threads;
	bool verify;
};

#define OPT(name, type, field, argument, help, ...)                                                \
	{                                                                                          \
		name, type, offsetof(struct settings, field), argument, help, __VA_ARGS__          \
	}

static const struct cli_option options[] = {
	OPT("chunk", CLI_SIZE, chunk, "SIZE", "bytes of one read and write (default 4M)", 4096,
	    1 << 30),
	OPT("depth", CLI_NUMBER, depth, "N", "chunks in flight (default 16)", 1, 1024),
	OPT("threads", CLI_NUMBER, threads, "N",
	    "threads that copy hot data, 0 for none (default: processors, up to 12)", 0, 256),
	OPT("path", CLI_CHOICE, path, "auto|host|bounce|p2p", "force one path (default auto)", 0,
	    0),
	OPT("cache", CLI_CHOICE, cache, "auto|keep|drop",
	    "what reading SRC leaves in the page cache (default auto)", 0, 0),
	OPT("verify", CLI_FLAG, verify, NULL, "read both files again and compare", 0, 0),
	CLI_COMMON_OPTIONS(struct settings),
};

static const struct cli_usage usage = {
	.verb = "cp",
	.operands = "SRC DST",
	.summary = "Copies a file through device memory, reads and writes overlapping.",
	.detail =
		"DST is written to a temporary file beside it, synced and renamed: it is replaced "
		"whole or not\ntouched at all. If DST is host or cuda:N, SRC is loaded into memory "
		"of "
		"that device and given up\nagain: how fast does it get there? (./host names a "
		"file.)",
	.options = options,
	.n_options = CLI_ARRAY_LEN(options),
	.min_operands = 2,
	.max_operands = 2,
};

/* One chunk on its way: first a read, then the write of what came, unless it is to stay. */
struct lane {
	struct hr_io io;
	uint64_t offset, len;
	uint64_t at; /* in the buffer */
};

struct job {
	const struct settings *set;
	const char *src_path;
	char dst_path[PATH_MAX], temp_path[PATH_MAX];
	struct cli_device device;
	struct hr_file *src, *dst;
	struct hr_buffer *buffer;
	struct hr_engine *engine;
	struct hr_queue_info queue;
	struct stat src_stat;
	struct lane *lanes;
	uint64_t n_lanes;
	bool load; /* DST is the device */
	uint64_t size, next, copied;
	uint64_t read_by_path[HR_PATH_MAX], written_by_path[HR_PATH_MAX];
	double setup_seconds, seconds, cpu_seconds;
	bool temp_exists, verified;
};

static bool names_device(const char *dst)
{
	return !strcmp(dst, "host") || !strncmp(dst, "cuda:", 5);
}

static double cpu_seconds(void)
{
	struct rusage now;

	getrusage(RUSAGE_SELF, &now);
	return (double)(now.ru_utime.tv_sec + now.ru_stime.tv_sec) +
	       (double)(now.ru_utime.tv_usec + now.ru_stime.tv_usec) / 1e6;
}

/* DST as it will be: a link is followed, so that the file behind it is replaced, not the link. */
static int name_destination(struct job *job, const char *dst)
{
	struct stat st;
	char *real;

	if (stat(job->src_path, &job->src_stat))
		return cli_fail("%s: cannot be read: %s; check the name", job->src_path,
				strerror(errno));
	snprintf(job->dst_path, sizeof(job->dst_path), "%s", dst);
	if (!stat(dst, &st)) {
		if (st.st_dev == job->src_stat.st_dev && st.st_ino == job->src_stat.st_ino)
			return cli_fail("%s and %s are the same file; name another destination",
					job->src_path, dst);
		if (S_ISDIR(st.st_mode))
			return cli_fail("%s: is a directory; name the file to write in it", dst);
		if (!S_ISREG(st.st_mode))
			return cli_fail("%s: is not a regular file; cp replaces files only", dst);
		real = realpath(dst, NULL);
		if (real)
			snprintf(job->dst_path, sizeof(job->dst_path), "%s", real);
		free(real);
	}
	if (snprintf(job->temp_path, sizeof(job->temp_path), "%s.%ld.tmp", job->dst_path,
		     (long)getpid()) >= (int)sizeof(job->temp_path))
		return cli_fail("%s: the name is too long; choose a shorter one", dst);
	return CLI_OK;
}

static int open_files(struct job *job)
{
	struct hr_file_info info;
	int err = hr_file_open(job->src_path, HR_FILE_READ, &job->src);

	if (err)
		return cli_fail_code(err, job->src_path);
	/* A size that is not known must not become 0 and an empty copy. */
	err = hr_file_info(job->src, &info);
	if (err)
		return cli_fail_code(err, job->src_path);
	job->size = info.size_bytes;
	if (job->load)
		return CLI_OK;
	err = hr_file_open(job->temp_path,
			   HR_FILE_READ | HR_FILE_WRITE | HR_FILE_CREATE | HR_FILE_EXCLUSIVE,
			   &job->dst);
	if (err)
		return cli_fail_code(err, job->temp_path);
	job->temp_exists = true;
	err = job->size ? hr_file_preallocate(job->dst, job->size) : 0;
	if (err && err != -EOPNOTSUPP)
		return cli_fail("%s: no room for %" PRIu64 " bytes: %s; free some space or choose "
				"another place",
				job->dst_path, job->size, hr_strerror(err));
	return CLI_OK;
}

static int open_engine(struct job *job)
{
	uint64_t chunks = (job->size + job->set->chunk - 1) / job->set->chunk;
	struct hr_engine_options opts = {.threads = (uint32_t)job->set->threads,
					 .cache = cli_cache(job->set->cache)};
	uint64_t start = cli_now_ns(), room;
	int err;

	job->n_lanes = cli_min(job->set->depth, chunks ? chunks : 1);
	room = job->load && job->size ? job->size : job->n_lanes * job->set->chunk;

	hr_path_parse(job->set->path, &opts.path);
	err = hr_engine_open(job->device.dev, &opts, &job->engine);
	if (err)
		return cli_fail_code(err, job->device.info.name);
	hr_engine_queue(job->engine, &job->queue);
	err = hr_buffer_alloc(job->device.dev, room, &job->buffer);
	if (err)
		return cli_fail_code(err, job->device.info.name);
	job->lanes = calloc(job->n_lanes, sizeof(*job->lanes));
	if (!job->lanes)
		return cli_fail("no memory for %" PRIu64 " chunks; use a smaller --depth",
				job->n_lanes);
	for (uint64_t i = 0; i < job->n_lanes; i++)
		job->lanes[i].at = i * job->set->chunk;
	job->setup_seconds = cli_seconds(cli_now_ns() - start);
	return CLI_OK;
}

static int submit(struct job *job, struct lane *lane, enum hr_op op)
{
	struct hr_io *io = &lane->io;
	int n;

	io->op = op;
	io->file = op == HR_READ ? job->src : job->dst;
	io->buffer = job->buffer;
	io->piece = (struct hr_piece){lane->offset, lane->len, lane->at};
	io->user = lane;
	n = hr_submit(job->engine, &io, 1);
	if (n == 1)
		return CLI_OK;
	return cli_fail_code(n, op == HR_READ ? job->src_path : job->temp_path);
}

/* The next chunk of the source, if there is one and nobody wants to stop. */
static int start_read(struct job *job, struct lane *lane)
{
	if (job->next >= job->size || cli_interrupted)
		return CLI_OK;
	lane->offset = job->next;
	lane->len = cli_min(job->set->chunk, job->size - job->next);
	job->next += lane->len;
	if (job->load)
		lane->at = lane->offset;
	return submit(job, lane, HR_READ);
}

static int finished(struct job *job, struct lane *lane)
{
	const struct hr_io *io = &lane->io;
	bool read = io->op == HR_READ;
	uint64_t *by_path = read ? job->read_by_path : job->written_by_path;

	if (io->res < 0)
		return cli_fail("%s: %s at byte %" PRIu64 ": %s; %s",
				read ? job->src_path : job->dst_path, read ? "read" : "write",
				lane->offset, hr_strerror((int)io->res), cli_remedy((int)io->res));
	if ((uint64_t)io->res != lane->len)
		return cli_fail("%s: ended at byte %" PRIu64 " while it was copied, %" PRIu64
				" expected; copy it when nobody changes it",
				read ? job->src_path : job->dst_path,
				lane->offset + (uint64_t)io->res, lane->offset + lane->len);
	for (uint32_t i = 0; i < HR_PATH_MAX; i++)
		by_path[i] += io->bytes_by_path[i];
	if (read && !job->load)
		return submit(job, lane, HR_WRITE);
	job->copied += lane->len;
	return start_read(job, lane);
}

static int pump(struct job *job)
{
	struct cli_progress progress;
	struct hr_io *done[64];
	int code = CLI_OK;

	cli_progress_begin(&progress, "cp", job->size);
	for (uint64_t i = 0; code == CLI_OK && i < job->n_lanes; i++)
		code = start_read(job, &job->lanes[i]);
	while (code == CLI_OK && hr_in_flight(job->engine)) {
		int n = hr_reap(job->engine, done, CLI_ARRAY_LEN(done), 1, REAP_NS);

		if (n < 0)
			code = cli_fail_code(n, job->src_path);
		for (int i = 0; i < n && code == CLI_OK; i++)
			code = finished(job, done[i]->user);
		cli_progress_bytes(&progress, job->copied);
	}
	cli_progress_end(&progress);
	return code;
}

/* The copy as it is now: a file, or what the device's memory holds. */
static int fetch_copy(struct job *job, int dst, uint8_t *buf, uint64_t len, uint64_t at)
{
	if (job->load)
		return hr_buffer_copy_out(job->buffer, at, buf, len);
	return cli_pread_full(dst, buf, len, at) == (int64_t)len ? 0 : -EIO;
}

static int compare(struct job *job, int src, int dst, uint8_t *a, uint8_t *b)
{
	struct cli_progress progress;

	cli_progress_begin(&progress, "verify", job->size);
	for (uint64_t at = 0; at < job->size && !cli_interrupted; at += COMPARE_BYTES) {
		uint64_t len = cli_min(COMPARE_BYTES, job->size - at), i = 0;

		if (cli_pread_full(src, a, len, at) != (int64_t)len ||
		    fetch_copy(job, dst, b, len, at)) {
			cli_progress_end(&progress);
			return cli_fail("%s: could not be read again at byte %" PRIu64
					" to verify the copy; leave it in place and whole",
					job->src_path, at);
		}
		while (i < len && a[i] == b[i])
			i++;
		if (i < len) {
			cli_progress_end(&progress);
			return cli_fail("%s: byte %" PRIu64
					" of the copy is 0x%02x, wanted 0x%02x; %s %s",
					job->src_path, at + i, b[i], a[i],
					job->load ? "check" : "nothing was done to", job->dst_path);
		}
		cli_progress_bytes(&progress, at + len);
	}
	cli_progress_end(&progress);
	return CLI_OK;
}

/* Both files again by plain reads; the copy from the drive, not from the page cache. */
static int verify(struct job *job)
{
	int src = open(job->src_path, O_RDONLY | O_CLOEXEC);
	int dst = job->load ? src : open(job->temp_path, O_RDONLY | O_CLOEXEC);
	uint8_t *a = malloc(2 * (size_t)COMPARE_BYTES);
	int code = CLI_FAILED;

	if (!job->load)
		hr_file_drop_cache(job->dst);
	if (src < 0 || dst < 0)
		cli_fail("%s: cannot be opened again to verify the copy: %s; leave it in place",
			 src < 0 ? job->src_path : job->temp_path, strerror(errno));
	else if (!a)
		cli_fail("--verify: no memory for %u bytes; close something", 2 * COMPARE_BYTES);
	else
		code = compare(job, src, dst, a, a + COMPARE_BYTES);
	if (src >= 0)
		close(src);
	if (dst >= 0 && dst != src)
		close(dst);
	free(a);
	job->verified = code == CLI_OK && !cli_interrupted;
	return code;
}

/* Make it durable under its own name. */
static int publish(struct job *job)
{
	int err;

	if (job->set->verify && verify(job) != CLI_OK)
		return CLI_FAILED;
	if (cli_interrupted || job->load)
		return CLI_OK;
	err = chmod(job->temp_path, job->src_stat.st_mode & 0777) ? -errno : 0;
	if (!err && rename(job->temp_path, job->dst_path))
		err = -errno;
	if (err)
		return cli_fail("%s: the copy cannot take this name: %s; check the directory",
				job->dst_path, strerror(-err));
	job->temp_exists = false;
	err = cli_sync_dir(job->dst_path);
	if (err)
		return cli_fail(
			"%s: is complete, but its directory could not be synced: %s; run sync",
			job->dst_path, strerror(-err));
	return CLI_OK;
}

static int report(struct job *job)
{
	double rate = cli_per((double)job->copied, job->seconds);
	char text[CLI_TEXT_BYTES], paths[96];
	struct hr_stats stats;
	json_t *out;

	hr_engine_stats(job->engine, &stats);

	if (!job->set->common.json) {
		cli_row("device", "%s  %s", job->device.info.name, job->device.info.model);
		cli_row("copied", "%" PRIu64 " of %" PRIu64 " bytes in %.2f s, %s", job->copied,
			job->size, job->seconds, cli_rate(text, rate));
		cli_row("processor", "%.2f cores", cli_per(job->cpu_seconds, job->seconds));
		cli_row("read path", "%s", cli_paths(paths, sizeof(paths), job->read_by_path));
		if (!job->load)
			cli_row("write path", "%s",
				cli_paths(paths, sizeof(paths), job->written_by_path));
		if (job->set->verify)
			cli_row("verified", "%s", job->verified ? "every byte" : "no");
		return CLI_OK;
	}
	out = json_pack("{s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:b, s:b}", "bytes",
			(json_int_t)job->copied, "size_bytes", (json_int_t)job->size,
			"bytes_cached", (json_int_t)stats.bytes_cached, "seconds", job->seconds,
			"setup_seconds", job->setup_seconds, "bytes_per_second", rate, "cpu_share",
			cli_per(job->cpu_seconds, job->seconds), "chunk_bytes",
			(json_int_t)job->set->chunk, "depth", (json_int_t)job->set->depth,
			"threads", (json_int_t)job->set->threads, "verified", job->verified,
			"interrupted", (int)cli_interrupted);
	cli_device_json(&job->device, out);
	json_object_set_new(out, "bytes_by_path", cli_json_paths(job->read_by_path));
	json_object_set_new(out, "written_by_path", cli_json_paths(job->written_by_path));
	json_object_set_new(out, "queue", cli_json_queue(&job->queue));
	return cli_print_json(out);
}

static int run(struct job *job, const char *dst)
{
	const char *device = job->load ? dst : job->set->common.device;
	int err, shown, code = job->load ? CLI_OK : name_destination(job, dst);
	double cpu;
	uint64_t start;

	if (code == CLI_OK)
		code = cli_device_open(device, &job->device);
	if (code == CLI_OK)
		code = open_files(job);
	if (code == CLI_OK)
		code = open_engine(job);
	if (code != CLI_OK)
		return code;
	start = cli_now_ns();
	cpu = cpu_seconds();
	code = pump(job);
	err = code == CLI_OK && !cli_interrupted && job->dst ? hr_file_sync(job->dst) : 0;
	job->seconds = cli_seconds(cli_now_ns() - start);
	job->cpu_seconds = cpu_seconds() - cpu;
	if (err)
		code = cli_fail("%s: could not be brought to the drive: %s; %s", job->dst_path,
				hr_strerror(err), cli_remedy(err));
	if (code == CLI_OK && !cli_interrupted)
		code = publish(job);
	shown = code == CLI_OK ? report(job) : code;
	if (code == CLI_OK && job->temp_exists)
		cli_note("interrupted; %s was left as it was", job->dst_path);
	if (code == CLI_OK && (job->temp_exists || (job->load && cli_interrupted)))
		return CLI_INTERRUPTED;
	return shown;
}

static int close_job(struct job *job, int code)
{
	/* Waits for what is in flight: before that neither memory nor file may go. */
	int err = hr_engine_close(job->engine);

	if (job->temp_exists)
		unlink(job->temp_path);
	if (err)
		return cli_fail("%s: requests are stuck in the kernel (%s); %s", job->src_path,
				hr_strerror(err), cli_remedy(-ETIMEDOUT));
	hr_buffer_free(job->buffer);
	hr_file_close(job->src);
	hr_file_close(job->dst);
	hr_device_close(job->device.dev);
	free(job->lanes);
	return code;
}

int cli_verb_cp(int argc, char **argv)
{
	struct settings set = {.path = "auto",
			       .cache = "auto",
			       .chunk = 4 << 20,
			       .depth = 16,
			       .threads = cli_min(cli_cpus(), CLI_COPYING_THREADS)};
	struct job *job;
	int first, code = cli_parse(&usage, argc, argv, &set, &first);

	if (code != -1)
		return code;
	if (set.chunk % 4096)
		return cli_usage_error("cp", "--chunk must be a multiple of 4096");
	if (set.common.device && names_device(argv[first + 1]))
		return cli_usage_error("cp", "--device and a device as DST exclude each other");
	job = calloc(1, sizeof(*job));
	if (!job)
		return cli_fail("no memory; close something");
	job->set = &set;
	job->src_path = argv[first];
	job->load = names_device(argv[first + 1]);
	if (job->load)
		snprintf(job->dst_path, sizeof(job->dst_path), "%s", argv[first + 1]);
	cli_catch_interrupt(NULL, NULL);
	code = close_job(job, run(job, argv[first + 1]));
	free(job);
	return code;
}
