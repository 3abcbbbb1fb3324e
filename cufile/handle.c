/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cufile/handle.c - descriptors, and file systems in user space, as handles.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cufile/inside.h"

/* Open flags that cuFile refuses; the kernel keeps the others to itself. O_TMPFILE has several bits. */
#define FLAGS_REFUSED (O_APPEND | O_NONBLOCK | O_DIRECTORY | O_NOFOLLOW | O_NOATIME)

_Static_assert(sizeof(CUfileDescr_t) == 24 && sizeof(CUfileFSOps_t) == 40, "as callers have them");

static void destroy(struct cf_object *object)
{
	struct cf_handle *handle = (struct cf_handle *)object;

	hr_file_close(handle->file);
	free(handle);
}

static bool same_descriptor(struct cf_object *object, const void *arg)
{
	const struct cf_handle *handle = (struct cf_handle *)object, *other = arg;

	return handle->file && handle->fd == other->fd && handle->dev == other->dev &&
	       handle->ino == other->ino;
}

/* What the descriptor is. Return: 0 or -code. */
static int examine(struct cf_handle *handle)
{
	int flags = fcntl(handle->fd, F_GETFL);
	struct stat st;

	if (flags < 0 || fstat(handle->fd, &st))
		return -CU_FILE_INVALID_VALUE;
	if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode))
		return -CU_FILE_INVALID_FILE_TYPE;
	if (flags & FLAGS_REFUSED || (flags & O_TMPFILE) == O_TMPFILE || flags & O_PATH)
		return -CU_FILE_INVALID_FILE_OPEN_FLAG;
	handle->readable = (flags & O_ACCMODE) != O_WRONLY;
	handle->writable = (flags & O_ACCMODE) != O_RDONLY;
	handle->dev = st.st_dev;
	handle->ino = st.st_ino;
	return 0;
}

static int import_fd(struct cf_handle *handle)
{
	int ret = examine(handle);

	if (ret)
		return ret;
	if (cf_table_find(CF_FILE, same_descriptor, handle))
		return -CU_FILE_HANDLE_ALREADY_REGISTERED;
	ret = hr_file_import(handle->fd, NULL, &handle->file);
	if (!ret)
		return 0;
	cf_log(CF_ERROR, "cufio-fs", "%s", hr_error_detail());
	if (ret == -EMFILE || ret == -ENFILE)
		return -CU_FILE_GETNEWFD_FAILED;
	if (ret == -EACCES || ret == -EPERM)
		return -CU_FILE_PERMISSION_DENIED;
	return ret == -ENOMEM ? -CU_FILE_NOMEM_ERROR : -CU_FILE_INTERNAL_ERROR;
}

static int fill(struct cf_handle *handle, const CUfileDescr_t *descr)
{
	switch (descr->type) {
	case CU_FILE_HANDLE_TYPE_OPAQUE_FD:
		handle->fd = descr->handle.fd;
		return import_fd(handle);
	case CU_FILE_HANDLE_TYPE_USERSPACE_FS:
		if (!descr->fs_ops)
			return -CU_FILE_IO_NOT_SUPPORTED;
		handle->ops = *descr->fs_ops;
		handle->user = descr->handle.handle;
		handle->readable = handle->writable = true;
		return 0;
	default:
		return -CU_FILE_IO_NOT_SUPPORTED;
	}
}

static int register_entered(CUfileHandle_t *fh, const CUfileDescr_t *descr)
{
	struct cf_handle *handle = calloc(1, sizeof(*handle));
	int ret;

	if (!handle)
		return -CU_FILE_NOMEM_ERROR;
	cf_object_init(&handle->object, destroy);
	ret = fill(handle, descr);
	if (!ret)
		ret = cf_table_add(CF_FILE, &handle->object, fh) ? -CU_FILE_NOMEM_ERROR : 0;
	if (ret)
		cf_object_put(&handle->object);
	return ret;
}

CF_EXPORT CUfileError_t cuFileHandleRegister(CUfileHandle_t *fh, CUfileDescr_t *descr)
{
	int ret;

	if (!fh || !descr)
		return cf_result(CU_FILE_INVALID_VALUE);
	ret = cf_open_enter();
	if (ret)
		return cf_error(ret);
	ret = register_entered(fh, descr);
	cf_leave();
	cf_count(CF_COUNT_HANDLE_REGISTER, !ret);
	return cf_error(ret);
}

CF_EXPORT void cuFileHandleDeregister(CUfileHandle_t fh)
{
	struct cf_object *object = cf_table_take(CF_FILE, fh);

	cf_object_put(object);
	cf_count(CF_COUNT_HANDLE_DEREGISTER, object != NULL);
}

int cf_handle_allows(const struct cf_handle *handle, enum hr_op op)
{
	if (op == HR_READ && !handle->readable)
		return -CU_FILE_INVALID_FILE_OPEN_FLAG;
	return op == HR_WRITE && !handle->writable ? -EIO : 0;
}
