/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cufile/transfer.c - reads and writes that wait: checks in the order that callers know, then one call
 * of the engine; and how results of Headrace are called here.
 */
#include <errno.h>
#include <limits.h>

#include "cufile/inside.h"

int cf_code(int64_t result)
{
	if (result >= 0)
		return 0;
	if (result > -1000 || result <= -CUFILEOP_BASE_ERR)
		return (int)result;
	switch (-result) {
	case HR_E_NO_DEVICE:
		return -CU_FILE_DEVICE_NOT_FOUND;
	case HR_E_NO_DRIVER:
	case HR_E_DRIVER_TOO_OLD:
	case HR_E_DEVICE_LOST:
		return -CU_FILE_CUDA_DRIVER_ERROR;
	case HR_E_BAD_POINTER:
		return -CU_FILE_CUDA_POINTER_INVALID;
	case HR_E_NOT_A_FILE:
		return -CU_FILE_INVALID_FILE_TYPE;
	case HR_E_BAD_RANGE:
		return -CU_FILE_INVALID_VALUE;
	case HR_E_FORKED:
		return -CU_FILE_DRIVER_NOT_INITIALIZED;
	case HR_E_NO_PATH:
	case HR_E_NO_DIRECT:
	case HR_E_PATH_REFUSED:
	case HR_E_REQUIRE_DIRECT:
		return -CU_FILE_IO_NOT_SUPPORTED;
	default:
		return -CU_FILE_INTERNAL_ERROR;
	}
}

CUfileError_t cf_result_of(CUfileOpError err, const char *call)
{
	CUfileError_t e = {.err = err};

	if (err)
		cf_log(CF_ERROR, "cufio", "%s: %s (%d)", call, cufileop_status_error(err), err);
	if (err == CU_FILE_CUDA_DRIVER_ERROR)
		e.cu_err = 999; /* CUDA_ERROR_UNKNOWN: the sentence is in the log */
	return e;
}

CUfileError_t cf_error_of(int code, const char *call)
{
	switch (code) {
	case 0:
		return cf_result_of(CU_FILE_SUCCESS, call);
	case -ENOMEM:
		return cf_result_of(CU_FILE_NOMEM_ERROR, call);
	case -EINVAL:
		return cf_result_of(CU_FILE_INVALID_VALUE, call);
	case -EIO:
		return cf_result_of(CU_FILE_IO_ERROR, call);
	default:
		return cf_result_of(code <= -CUFILEOP_BASE_ERR ? (CUfileOpError)-code
							       : CU_FILE_INTERNAL_ERROR,
				    call);
	}
}

uint64_t cf_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Bytes that @engine's drives have moved to and from a GPU themselves, if anybody wants to know. */
static uint64_t direct_bytes(const struct cf_engine *engine)
{
	struct hr_stats stats;

	if (!cf_stats_on() && !cf_log_wants(CF_TRACE))
		return 0;
	hr_engine_stats(engine->engine, &stats);
	return stats.bytes_by_path[HR_PATH_P2P];
}

static int64_t move_by_engine(struct cf_handle *handle, const struct cf_request *r,
			      struct cf_target *target, bool *direct)
{
	struct cf_engine *engine;
	uint64_t before;
	int64_t res;
	int ret = cf_engine_get(target->device, &engine);

	if (ret)
		return ret;
	before = direct_bytes(engine);
	res = (r->op == HR_READ ? hr_read : hr_write)(engine->engine, handle->file,
						      (uint64_t)r->file_offset, r->size,
						      target->buffer, target->offset);
	*direct = res > 0 && direct_bytes(engine) - before == (uint64_t)res;
	cf_engine_put(engine);
	if (res >= 0)
		return res;
	cf_log(CF_ERROR, "cufio", "%s", hr_error_detail());
	return cf_code(res);
}

static int64_t move(struct cf_handle *handle, const struct cf_request *r,
		    struct cf_outcome *outcome)
{
	struct cf_target target;
	int64_t res;
	int ret = cf_target_get(r->op, r->base, (uint64_t)r->buffer_offset, r->size, &target);

	if (ret)
		return ret;
	res = handle->file
		      ? move_by_engine(handle, r, &target, &outcome->direct)
		      : cf_userfs_move(handle, r->op, &target, (uint64_t)r->file_offset, r->size);
	outcome->gpu = target.device->gpu;
	cf_target_put(&target);
	return res;
}

static ssize_t transfer(struct cf_handle *handle, const struct cf_request *r,
			struct cf_outcome *outcome)
{
	int ret;

	if (!r->base)
		return -EINVAL;
	if (r->file_offset < 0)
		return -CU_FILE_INVALID_VALUE;
	if (r->buffer_offset < 0)
		return -CU_FILE_INTERNAL_ERROR;
	ret = cf_handle_allows(handle, r->op);
	if (ret || !r->size)
		return ret;
	if (r->size > SSIZE_MAX || (uint64_t)r->file_offset + r->size > INT64_MAX)
		return -EINVAL;
	return move(handle, r, outcome);
}

ssize_t cf_transfer(struct cf_handle *handle, const struct cf_request *r)
{
	uint64_t start = cf_stats_on() ? cf_now_ns() : 0;
	struct cf_outcome outcome = {.gpu = -1};
	ssize_t res = transfer(handle, r, &outcome);

	outcome.result = res;
	if (start)
		cf_stats_move(r->op, &outcome, cf_now_ns() - start);
	if (res < 0)
		cf_log(CF_ERROR, "cufio", "%s of %zu bytes at %lld, buffer %p + %lld: error %d",
		       r->op == HR_READ ? "read" : "write", r->size, (long long)r->file_offset,
		       r->base, (long long)r->buffer_offset, (int)-res);
	else
		cf_log(CF_TRACE, "cufio", "%s of %zu bytes at %lld: %zd, p2p mode: %d compat: %d",
		       r->op == HR_READ ? "read" : "write", r->size, (long long)r->file_offset, res,
		       outcome.direct, !outcome.direct);
	return res;
}

/* All known callers understand -1 with errno, whichever kind of code is in it. */
static ssize_t answer(ssize_t result)
{
	if (result >= 0)
		return result;
	errno = (int)-result;
	return -1;
}

static ssize_t with_handle(CUfileHandle_t fh, const struct cf_request *r)
{
	static const struct cf_outcome unknown = {-CU_FILE_HANDLE_NOT_REGISTERED, -1, false};
	struct cf_handle *handle;
	ssize_t res = cf_enter();

	if (res)
		return answer(res);
	handle = cf_handle_get(fh);
	if (!handle) {
		cf_leave();
		cf_stats_move(r->op, &unknown, 0);
		cf_log(CF_ERROR, "cufio", "%p is no handle", fh);
		return answer(-CU_FILE_HANDLE_NOT_REGISTERED);
	}
	res = cf_transfer(handle, r);
	cf_object_put(&handle->object);
	cf_leave();
	return answer(res);
}

CF_EXPORT ssize_t cuFileRead(CUfileHandle_t fh, void *bufPtr_base, size_t size, off_t file_offset,
			     off_t bufPtr_offset)
{
	const struct cf_request r = {HR_READ, bufPtr_base, size, file_offset, bufPtr_offset};

	return with_handle(fh, &r);
}

CF_EXPORT ssize_t cuFileWrite(CUfileHandle_t fh, const void *bufPtr_base, size_t size,
			      off_t file_offset, off_t bufPtr_offset)
{
	const struct cf_request r = {HR_WRITE, bufPtr_base, size, file_offset, bufPtr_offset};

	return with_handle(fh, &r);
}

/* -- vectors ------------------------------------------------------------------------------------ */

/* One piece after the other, as preadv(2): the sum up to the first that is short or fails. */
static ssize_t transfer_vector(struct cf_handle *handle, enum hr_op op, const CUfileIOVec_t *iov,
			       size_t n, off_t file_offset)
{
	ssize_t sum = 0;

	for (size_t i = 0; i < n; i++) {
		const struct cf_request r = {op, iov[i].base, iov[i].len, file_offset + sum, 0};
		ssize_t res = iov[i].len ? cf_transfer(handle, &r) : 0;

		if (res < 0)
			return sum ? sum : res;
		sum += res;
		if ((size_t)res < iov[i].len)
			break;
	}
	return sum;
}

static ssize_t check_vector(const CUfileIOVec_t *iov, size_t n, off_t file_offset,
			    unsigned int flags)
{
	uint64_t sum = 0;

	if (flags)
		return -CU_FILE_INVALID_VALUE;
	if (file_offset < 0)
		return -CU_FILE_INVALID_VALUE;
	if ((!iov && n) || n > IOV_MAX)
		return -EINVAL;
	for (size_t i = 0; i < n; i++) {
		if (!iov[i].base && iov[i].len)
			return -EINVAL;
		if (__builtin_add_overflow(sum, iov[i].len, &sum) || sum > SSIZE_MAX)
			return -EINVAL;
	}
	return 0;
}

static ssize_t vector(CUfileHandle_t fh, enum hr_op op, const CUfileIOVec_t *iov, size_t n,
		      off_t file_offset, unsigned int flags)
{
	struct cf_handle *handle;
	ssize_t res = cf_enter();

	if (res)
		return answer(res);
	handle = cf_handle_get(fh);
	if (handle) {
		res = check_vector(iov, n, file_offset, flags);
		if (!res)
			res = cf_handle_allows(handle, op);
		if (!res)
			res = transfer_vector(handle, op, iov, n, file_offset);
		cf_object_put(&handle->object);
	} else {
		res = -CU_FILE_HANDLE_NOT_REGISTERED;
	}
	cf_leave();
	return answer(res);
}

CF_EXPORT ssize_t cuFileReadv(CUfileHandle_t fh, const CUfileIOVec_t *iov, size_t iovcnt,
			      off_t file_offset, unsigned int flags)
{
	return vector(fh, HR_READ, iov, iovcnt, file_offset, flags);
}

CF_EXPORT ssize_t cuFileWritev(CUfileHandle_t fh, const CUfileIOVec_t *iov, size_t iovcnt,
			       off_t file_offset, unsigned int flags)
{
	return vector(fh, HR_WRITE, iov, iovcnt, file_offset, flags);
}
