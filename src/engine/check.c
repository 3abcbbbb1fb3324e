/* SPDX-License-Identifier: Apache-2.0 */
/* engine/check.c - refuses requests that cannot be carried out, before anything is touched. */
#include <errno.h>

#include "base/fail.h"
#include "base/util.h"
#include "engine/engine.h"

static int check_cast(const struct hr_io *io)
{
	if (io->from == io->to)
		return hr_dtype_size(io->from)
			       ? 0
			       : hr__fail(EINVAL, "unknown element type %d", io->from);
	if (io->op == HR_WRITE)
		return hr__fail(HR_E_BAD_CAST,
				"%s: a write converts nothing; set from and to alike",
				hr_file_path(io->file));
	if (!hr_cast_ok(io->from, io->to))
		return hr__fail(HR_E_BAD_CAST,
				"%s: no conversion from %s to %s; %s can become: itself%s%s",
				hr_file_path(io->file), hr_dtype_name(io->from),
				hr_dtype_name(io->to), hr_dtype_name(io->from),
				*hr_cast_names(io->from) ? ", " : "", hr_cast_names(io->from));
	return 0;
}

/* One piece against the buffer. With a conversion both ends must hold whole elements. */
static int check_piece(const struct hr_io *io, const struct hr_piece *p, uint64_t k)
{
	uint32_t from = hr_dtype_size(io->from), to = hr_dtype_size(io->to);
	uint64_t bytes = p->len, end;

	if (io->from != io->to) {
		if (p->len % from || p->buffer_offset % to)
			return hr__fail(EINVAL,
					"%s: piece %llu: length %llu or buffer offset %llu is no "
					"multiple of its element (%u and %u bytes)",
					hr_file_path(io->file), (unsigned long long)k,
					(unsigned long long)p->len,
					(unsigned long long)p->buffer_offset, from, to);
		if (hr__mul_overflows(p->len / from, to, &bytes))
			goto bad;
	}
	if (hr__add_overflows(p->buffer_offset, bytes, &end) || end > io->buffer->len)
		goto bad;
	if (hr__add_overflows(p->file_offset, p->len, &end) || end > INT64_MAX)
		goto bad;
	return 0;

bad:
	return hr__fail(
		HR_E_BAD_RANGE,
		"%s: piece %llu: %llu bytes from file offset %llu to buffer offset %llu do not "
		"fit (the buffer has %llu bytes)",
		hr_file_path(io->file), (unsigned long long)k, (unsigned long long)bytes,
		(unsigned long long)p->file_offset, (unsigned long long)p->buffer_offset,
		(unsigned long long)io->buffer->len);
}

/* Repetitions grow steadily, so the first and the last bound them all. */
static int check_strided(const struct hr_io *io)
{
	uint64_t n = hr__io_pieces(io), file_span, buffer_span, sum;
	struct hr_piece last;
	int ret = check_piece(io, &io->piece, 0);

	if (ret || n == 1)
		return ret;
	if (io->from != io->to && io->buffer_stride % hr_dtype_size(io->to))
		return hr__fail(EINVAL, "%s: buffer_stride is no multiple of the element",
				hr_file_path(io->file));
	if (hr__mul_overflows(n - 1, io->file_stride, &file_span) ||
	    hr__mul_overflows(n - 1, io->buffer_stride, &buffer_span) ||
	    hr__add_overflows(io->piece.file_offset, file_span, &sum) ||
	    hr__add_overflows(io->piece.buffer_offset, buffer_span, &sum))
		return hr__fail(HR_E_BAD_RANGE, "%s: %llu strided pieces overflow",
				hr_file_path(io->file), (unsigned long long)n);
	last = hr__io_piece(io, n - 1);
	return check_piece(io, &last, n - 1);
}

/*
 * One piece of plain bytes, as most requests are: in range by a few comparisons. What they do not
 * settle is looked at again below, with a sentence for each fault.
 */
static bool is_simple(const struct hr_engine *e, const struct hr_io *io)
{
	uint32_t right = io->op == HR_READ ? HR_FILE_READ : HR_FILE_WRITE;

	return !io->flags && (uint32_t)io->op <= HR_WRITE && HR__IO_STATE(io) == HR__IO_IDLE &&
	       io->from == HR_DTYPE_BYTES && io->to == HR_DTYPE_BYTES && !io->pieces &&
	       io->count <= 1 && io->buffer->dev == e->dev && (io->file->flags & right) &&
	       io->piece.len <= io->buffer->len &&
	       io->piece.buffer_offset <= io->buffer->len - io->piece.len &&
	       io->piece.file_offset <= INT64_MAX - io->buffer->len;
}

static int check_all(struct hr_engine *e, const struct hr_io *io)
{
	int ret;

	if (!io || !io->file || !io->buffer || io->flags || (uint32_t)io->op > HR_WRITE)
		return hr__fail(EINVAL, "a request needs a file, a buffer, a known op and flags 0");
	if (HR__IO_STATE(io) != HR__IO_IDLE)
		return hr__fail(EBUSY, "%s: the request is in flight already",
				hr_file_path(io->file));
	if (io->buffer->dev != e->dev)
		return hr__fail(
			HR_E_WRONG_DEVICE, "%s: the buffer is memory of %s, the engine serves %s",
			hr_file_path(io->file), io->buffer->dev->info.name, e->dev->info.name);
	if (!(io->file->flags & (io->op == HR_READ ? HR_FILE_READ : HR_FILE_WRITE)))
		return hr__fail(EBADF, "%s: not opened for %s", hr_file_path(io->file),
				io->op == HR_READ ? "reading" : "writing");
	ret = check_cast(io);
	if (ret || !io->pieces)
		return ret ? ret : check_strided(io);
	for (uint64_t k = 0; k < io->count && !ret; k++)
		ret = check_piece(io, &io->pieces[k], k);
	return ret;
}

int hr__io_check(struct hr_engine *e, const struct hr_io *io)
{
	if (io && io->file && io->buffer && is_simple(e, io))
		return 0;
	return check_all(e, io);
}
