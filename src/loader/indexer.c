/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loader/indexer.c - opens side indexes and makes them, one file at a time, see indexer.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/fail.h"
#include "base/log.h"
#include "base/sys.h"
#include "base/util.h"
#include "file/rest.h"
#include "loader/indexer.h"
#include "loader/spool.h"

#define NAMES_MAX 1000u /* of temporary files, left behind by processes that were killed */

/* An open index file: the source of a struct hr__index. */
struct side {
	struct hr__index_out out; /* must be first: while it is written */
	struct hr_source src;
	int fd;                     /* while it is made; the spool's, if it is there; else -1 */
	struct hr_file *file;       /* when it has its name: it rests, as data files do */
	struct hr__spooled spooled; /* all zero: it is not there */
	bool named;                 /* path is a file in the folder, to be renamed or unlinked */
	int (*progress)(void *ctx, uint64_t bytes, uint64_t samples);
	void *ctx;
	char path[]; /* of the index, even if it is in an unlinked file */
};

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

char *hr__indexer_path(const char *path, const struct hr_dataset_options *opts)
{
	const char *name = opts->index_dir ? base_name(path) : path;
	const char *folder = opts->index_dir ? opts->index_dir : "";
	size_t room = strlen(folder) + strlen(name) + sizeof(HR__INDEX_SUFFIX) + 1;
	char *out = malloc(room);

	if (out)
		snprintf(out, room, "%s%s%s" HR__INDEX_SUFFIX, folder, *folder ? "/" : "", name);
	else
		hr__fail(ENOMEM, "%s: no memory for the name of its side index", path);
	return out;
}

/* -- the bytes of an index --------------------------------------------------------------------- */

static int read_open(const struct hr_source *src, int fd, uint64_t offset, void *buf, size_t len)
{
	char *at = buf;

	while (len > 0) {
		ssize_t n = hr__sys->pread(fd, at, len, offset);

		if (n == -EINTR)
			continue;
		if (n < 0)
			return hr__fail((int)-n, "%s: cannot be read: %s; check the drive",
					src->name, hr_strerror((int)n));
		if (n == 0)
			return hr__fail(HR_E_FILE_CHANGED,
					"%s: has become shorter while it was used; start again",
					src->name);
		at += n;
		offset += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

/*
 * What has its name now: on a network file system the old one is gone when another machine has made the
 * index again, and whoever reads knows the checksums. Return: 0 or -code with a sentence.
 */
static int read_anew(const struct hr_source *src, const struct hr_file *file, uint64_t offset,
		     void *buf, size_t len)
{
	int fd = hr__file_open_fd(file->rest->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0), rc;

	if (fd < 0)
		return hr__fail(ESTALE,
				"%s: was replaced on the server, and cannot be opened again: %s; "
				"open the dataset again",
				src->name, hr_strerror(fd));
	rc = read_open(src, fd, offset, buf, len);
	hr__sys->close(fd);
	return rc;
}

static int read_side(const struct hr_source *src, uint64_t offset, void *buf, size_t len)
{
	const struct side *side = src->ctx;
	int rc;

	if (!side->file)
		return read_open(src, side->fd, side->spooled.place + offset, buf, len);
	rc = hr__file_hold(side->file, true);
	if (rc < 0)
		return rc;
	rc = read_open(src, side->file->fd, offset, buf, len);
	hr__file_release(side->file);
	return rc == -ESTALE ? read_anew(src, side->file, offset, buf, len) : rc;
}

static int write_side(struct hr__index_out *out, uint64_t offset, const void *bytes, size_t len)
{
	struct side *side = (struct side *)out;
	const char *at = bytes;

	while (len > 0) {
		ssize_t n = hr__sys->pwrite(side->fd, at, len, offset);

		if (n == -EINTR)
			continue;
		if (n <= 0)
			return hr__fail(
				n ? (int)-n : EIO,
				"%s: the side index cannot be written: %s; make room, or name "
				"another folder for it",
				side->path, hr_strerror(n ? (int)n : -EIO));
		at += n;
		offset += (uint64_t)n;
		len -= (size_t)n;
	}
	side->src.size = hr__max(side->src.size, offset);
	return 0;
}

static int tell_progress(struct hr__index_out *out, uint64_t bytes, uint64_t samples)
{
	struct side *side = (struct side *)out;

	return side->progress ? side->progress(side->ctx, bytes, samples) : 0;
}

static struct side *new_side(const char *path)
{
	struct side *side = calloc(1, sizeof(*side) + strlen(path) + 1);

	if (!side) {
		hr__fail(ENOMEM, "%s: no memory to open it", path);
		return NULL;
	}
	memcpy(side->path, path, strlen(path) + 1);
	side->fd = -1;
	side->out = (struct hr__index_out){write_side, tell_progress};
	side->src = (struct hr_source){side->path, 0, read_side, side};
	return side;
}

static void close_side(struct side *side)
{
	if (!side)
		return;
	if (side->spooled.spool)
		hr__spool_drop(&side->spooled);
	else if (side->fd >= 0)
		hr__sys->close(side->fd);
	hr_file_close(side->file);
	free(side);
}

/*
 * It is complete and will be read: a named one may be closed and opened again; one that has no name goes to
 * the others of its kind. Return: 0 or -code.
 */
static int settle_side(struct side *side, bool has_name)
{
	struct hr__spooled spooled;
	int fd = side->fd, rc;

	if (has_name) {
		side->fd = -1; /* also when it fails */
		return hr__rest_adopt(fd, side->path, &side->file);
	}
	rc = hr__spool_take(fd, side->src.size, &spooled);
	if (rc < 0)
		return hr__fail(-rc,
				"%s: cannot be kept in TMPDIR: %s; make room, or name a folder for "
				"side indexes",
				side->path, hr_strerror(rc));
	side->spooled = spooled;
	side->fd = spooled.fd;
	hr__sys->close(fd);
	return 0;
}

void hr__indexer_close(struct hr__index *index)
{
	struct side *side;

	if (!index)
		return;
	side = hr__index_source(index)->ctx;
	hr__index_close(index);
	close_side(side);
}

/* -- what is there ----------------------------------------------------------------------------- */

static int describe(const struct hr__opened *data, const struct hr__format_ops *ops,
		    struct hr__index_data *out)
{
	uint8_t head[HR__INDEX_HEAD_BYTES];
	size_t len = (size_t)hr__min(data->src.size, sizeof(head));
	struct hr__file_stamp stamp;
	int rc = hr__file_hold(data->file, true);

	if (rc < 0)
		return rc;
	rc = hr__file_stamp(data->file, &stamp);
	hr__file_release(data->file);
	if (rc < 0)
		return hr__fail(-rc, "%s: its size and time cannot be read: %s", data->path,
				hr_strerror(rc));
	rc = data->src.read(&data->src, 0, head, len);
	if (rc < 0)
		return rc;
	*out = (struct hr__index_data){data->path, stamp.size,      (uint64_t)stamp.mtime_ns,
				       ops->name,  ops->scan_rules, XXH3_64bits(head, len)};
	return 0;
}

static int open_side(struct side *side)
{
	struct stat st;
	int rc;

	side->fd = hr__rest_open_fd(side->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
	if (side->fd == -ENOENT)
		return hr__fail(HR_E_NO_INDEX,
				"%s: there is no such side index; make it with 'headrace index'",
				side->path);
	rc = side->fd < 0 ? side->fd : hr__sys->fstat(side->fd, &st);
	if (rc == 0 && !S_ISREG(st.st_mode))
		rc = -EISDIR;
	if (rc < 0)
		return hr__fail(HR_E_NO_INDEX,
				"%s: the side index cannot be opened: %s; check what has that name",
				side->path, hr_strerror(rc));
	side->src.size = (uint64_t)st.st_size;
	return 0;
}

int hr__indexer_find(const struct hr__opened *data, const struct hr__format_ops *ops,
		     const struct hr_dataset_options *opts, struct hr__index **out)
{
	char *path = hr__indexer_path(data->path, opts);
	struct side *side = path ? new_side(path) : NULL;
	struct hr__index_data about;
	int rc = side ? describe(data, ops, &about) : -ENOMEM;

	free(path);
	if (rc == 0)
		rc = open_side(side);
	if (rc == 0)
		rc = hr__index_open(&side->src, &about, out);
	if (rc == 0) {
		rc = settle_side(side, true);
		if (rc < 0)
			hr__index_close(*out);
	}
	if (rc < 0)
		close_side(side);
	/* An index that cannot be used for whatever reason can be made again. */
	if (rc < 0 && rc != -ENOMEM && rc != -HR_E_NO_INDEX)
		rc = hr__fail_set(HR_E_NO_INDEX, hr_error_detail());
	return rc;
}

/* -- a new one --------------------------------------------------------------------------------- */

/* A new file beside the place of the index. Return: 0 with @temp set and to be freed, or -errno. */
static int create_named(struct side *side, char **temp)
{
	size_t room = strlen(side->path) + 40;
	char *name = malloc(room);
	int fd = -EEXIST;

	if (!name)
		return -ENOMEM;
	for (uint32_t i = 0; i < NAMES_MAX && fd == -EEXIST; i++) {
		snprintf(name, room, "%s.%ld-%" PRIu32 ".tmp", side->path, (long)getpid(), i);
		fd = hr__rest_open_fd(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	}
	if (fd < 0) {
		free(name);
		return fd;
	}
	side->fd = fd;
	side->named = true;
	*temp = name;
	return 0;
}

/* A file without a name, for as long as it is open. */
static int create_unnamed(struct side *side)
{
	const char *folder = hr_config_get()->temp_dir;
	int fd = hr__spool_temp();

	if (fd < 0)
		return hr__fail(-fd,
				"%s: cannot be written, and neither can TMPDIR (%s): %s; name a "
				"folder for side indexes",
				side->path, folder, hr_strerror(fd));
	side->fd = fd;
	hr__log(HR_LOG_INFO,
		"%s: its folder cannot be written, so this side index is made in %s and lost when "
		"the program ends; name a folder for side indexes to keep it",
		side->path, folder);
	return 0;
}

static int create(struct side *side, const struct hr_dataset_options *opts, bool keep, char **temp)
{
	int rc = create_named(side, temp);

	if (rc == 0)
		return 0;
	if (!opts->index_dir && !keep &&
	    (rc == -EACCES || rc == -EROFS || rc == -EPERM || rc == -ENAMETOOLONG))
		return create_unnamed(side);
	return hr__fail(-rc, "%s: the side index cannot be written: %s; name another folder for it",
			side->path, hr_strerror(rc));
}

static int scan(struct side *side, const struct hr__opened *data, const struct hr__format_ops *ops,
		const struct hr__index_data *before)
{
	struct hr__index_data after = {.size = 0};
	struct hr_source src = data->src;
	struct hr__index_writer *w;
	int rc = hr__index_writer_open(&side->out, before, &w);

	if (rc < 0)
		return rc;
	src.onward = true;
	rc = ops->scan(&src, hr__index_writer_sink(w));
	if (rc == 0)
		rc = describe(data, ops, &after);
	if (rc == 0 && (after.size != before->size || after.mtime_ns != before->mtime_ns ||
			after.head != before->head || before->size != data->src.size))
		rc = hr__fail(HR_E_FILE_CHANGED,
			      "%s: changed while it was read for its side index; wait until it is "
			      "written",
			      data->path);
	if (rc == 0)
		rc = hr__index_writer_finish(w);
	hr__index_writer_close(w);
	return rc;
}

/* Give it its name: the old one is replaced as a whole. @must: or fail. *@done: it has it. */
static int publish(struct side *side, const char *temp, bool must, bool *done)
{
	int rc = hr__sys->rename(temp, side->path);

	/* Where all may write and the sticky bit is set, the old one may be somebody else's. */
	if (!must && (rc == -EACCES || rc == -EPERM)) {
		hr__log(HR_LOG_INFO,
			"%s: may not be replaced (%s), so the new side index is lost when the "
			"program "
			"ends; name a folder for side indexes to keep it",
			side->path, hr_strerror(rc));
		hr__sys->unlink(temp);
		side->named = false;
		return 0;
	}
	if (rc < 0)
		return hr__fail(-rc,
				"%s: the new side index cannot take this name: %s; remove what has "
				"it",
				side->path, hr_strerror(rc));
	side->named = false;
	*done = true;
	return 0;
}

static void tell(const struct hr__opened *data, const struct hr__index *index)
{
	const struct hr__index_info *info = hr__index_info(index);

	if (*info->notes)
		hr__log(HR_LOG_INFO, "%s: %s", data->path, info->notes);
	if (info->n_bad)
		hr__log(HR_LOG_WARN,
			"%s: %" PRIu64 " of %" PRIu64 " samples are damaged; the first: %s",
			data->path, info->n_bad, info->rows, info->bad_reason);
}

/* @keep: in its place or not at all. */
static int build(struct side *side, const struct hr__opened *data, const struct hr__format_ops *ops,
		 const struct hr_dataset_options *opts, bool keep, struct hr__index **out)
{
	struct hr__index_data about;
	struct hr__index *index = NULL;
	bool has_name = false;
	char *temp = NULL;
	int rc = describe(data, ops, &about);

	if (rc == 0)
		rc = create(side, opts, keep, &temp);
	if (rc == 0)
		rc = scan(side, data, ops, &about);
	if (rc == 0)
		rc = hr__index_open(&side->src, &about, &index);
	if (rc == 0 && temp)
		rc = publish(side, temp, keep || opts->index_dir, &has_name);
	if (rc == 0)
		rc = settle_side(side, has_name);
	if (rc < 0) {
		if (side->named)
			hr__sys->unlink(temp);
		hr__index_close(index);
	} else {
		tell(data, index);
		*out = index;
	}
	free(temp);
	return rc;
}

static int make(const struct hr__opened *data, const struct hr__format_ops *ops,
		const struct hr_dataset_options *opts, bool keep,
		int (*progress)(void *ctx, uint64_t bytes, uint64_t samples), void *ctx,
		struct hr__index **out)
{
	char *path = hr__indexer_path(data->path, opts);
	struct side *side = path ? new_side(path) : NULL;
	int rc = -ENOMEM;

	free(path);
	if (!side)
		return rc;
	side->progress = progress;
	side->ctx = ctx;
	rc = build(side, data, ops, opts, keep, out);
	if (rc < 0)
		close_side(side);
	else
		side->progress = NULL;
	return rc;
}

int hr__indexer_build(const struct hr__opened *data, const struct hr__format_ops *ops,
		      const struct hr_dataset_options *opts,
		      int (*progress)(void *ctx, uint64_t bytes, uint64_t samples), void *ctx,
		      struct hr__index **out)
{
	return make(data, ops, opts, true, progress, ctx, out);
}

int hr__indexer_open(const struct hr__opened *data, const struct hr__format_ops *ops,
		     const struct hr_dataset_options *opts, struct hr__index **out)
{
	int rc = hr__indexer_find(data, ops, opts, out);

	if (rc != -HR_E_NO_INDEX || opts->index_only)
		return rc;
	hr__log(HR_LOG_INFO, "%s; it is made now, which reads %s once", hr_error_detail(),
		data->path);
	return make(data, ops, opts, false, NULL, NULL, out);
}
