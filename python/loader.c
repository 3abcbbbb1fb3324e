/* SPDX-License-Identifier: Apache-2.0 */
/*
 * python/loader.c - loaders for the package headrace, and tensors that leave it by DLPack.
 * When a slot may be used again is decided in Python; here it is only passed on.
 */
#include "python/core.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define PATIENCE 300 /* turns of hr_loader_next() */
#define TURN_NS 200000000ull

/* Threads and rings are the process's that made them: a child must not wait for them. */
static void remember_process(PyObject *capsule)
{
	if (capsule)
		PyCapsule_SetContext(capsule, (void *)(intptr_t)getpid());
}

static bool is_ours(PyObject *capsule)
{
	return PyCapsule_GetContext(capsule) == (void *)(intptr_t)getpid();
}

static void drop_loader(PyObject *capsule)
{
	struct hr_loader *loader = PyCapsule_GetPointer(capsule, "loader");

	if (!is_ours(capsule))
		return;
	Py_BEGIN_ALLOW_THREADS;
	hr_loader_close(loader);
	Py_END_ALLOW_THREADS;
}

static void drop_lane(PyObject *capsule)
{
	if (is_ours(capsule))
		hr_lane_close(PyCapsule_GetPointer(capsule, "lane"));
}

static PyObject *refuse_child(void)
{
	PyErr_SetString(PyExc_RuntimeError, "the loader was opened before fork() and belongs to "
					    "the parent; open one in the child");
	return NULL;
}

static int to_loader(PyObject *object, void *out)
{
	*(struct hr_loader **)out = PyCapsule_GetPointer(object, "loader");
	if (*(struct hr_loader **)out && !is_ours(object))
		refuse_child();
	return !PyErr_Occurred();
}

/* [(field, dtype)] into the options. Return: the array, or NULL with an exception or when there are none. */
static struct hr_field_cast *casts_of(PyObject *list, uint32_t *n)
{
	struct hr_field_cast *casts = NULL;

	*n = (uint32_t)PyList_Size(list);
	if (*n)
		casts = calloc(*n, sizeof(*casts));
	if (*n && !casts)
		PyErr_NoMemory();
	for (uint32_t i = 0; i < *n && casts; i++) {
		const char *type;

		if (!PyArg_ParseTuple(PyList_GetItem(list, i), "ss", &casts[i].name, &type))
			break;
		if (hr_dtype_parse(type, &casts[i].to)) {
			PyErr_Format(PyExc_ValueError, "%s is no type of elements", type);
			break;
		}
	}
	return casts;
}

/*
 * loader_open(dataset, device, dtype or None, batch_size, seed, shuffle, window, pad, epochs, rank, ranks,
 *             slots, threads, [(field, dtype)], ragged, pad_to, pad_value, batch_bytes, packed)
 */
PyObject *headrace_loader_open(PyObject *self, PyObject *args)
{
	struct hr_loader_options opts = {.timeout_ns = TURN_NS};
	unsigned long long seed, epochs, pad_to, batch_bytes;
	PyObject *dataset, *device, *casts, *capsule;
	struct hr_field_cast *list;
	struct hr_loader *loader = NULL;
	long long pad_value;
	const char *dtype;
	int shuffle, pad, ragged, packed, ret = 0;

	if (!PyArg_ParseTuple(args, "OOzIKiIpKIIIIO!iKLKp", &dataset, &device, &dtype,
			      &opts.batch_size, &seed, &shuffle, &opts.window, &pad, &epochs,
			      &opts.dp_rank, &opts.dp_world_size, &opts.slots, &opts.threads,
			      &PyList_Type, &casts, &ragged, &pad_to, &pad_value, &batch_bytes,
			      &packed))
		return NULL;
	if (!PyCapsule_IsValid(dataset, "dataset") || !PyCapsule_IsValid(device, "device"))
		return PyErr_Format(PyExc_TypeError, "a dataset and a device are needed");
	if (dtype && hr_dtype_parse(dtype, &opts.out_dtype))
		return PyErr_Format(PyExc_ValueError, "%s is no type of elements", dtype);
	opts.seed = seed;
	opts.epochs = epochs;
	opts.shuffle = (enum hr_shuffle)shuffle;
	opts.last = pad ? HR_LAST_PAD : HR_LAST_DROP;
	opts.ragged = (enum hr_ragged)ragged;
	opts.pad_to = pad_to;
	opts.pad_value = pad_value;
	opts.batch_bytes_max = batch_bytes;
	opts.packed = packed;
	list = casts_of(casts, &opts.n_casts);
	opts.casts = list;
	if (!PyErr_Occurred()) {
		Py_BEGIN_ALLOW_THREADS;
		ret = hr_loader_open(PyCapsule_GetPointer(dataset, "dataset"),
				     PyCapsule_GetPointer(device, "device"), &opts, &loader);
		Py_END_ALLOW_THREADS;
	}
	free(list);
	if (PyErr_Occurred())
		return NULL;
	if (ret)
		return headrace_fail(ret);
	capsule = PyCapsule_New(loader, "loader", drop_loader);
	remember_process(capsule);
	return capsule;
}

PyObject *headrace_loader_info(PyObject *self, PyObject *args)
{
	struct hr_loader_stats stats;
	struct hr_loader_info info;
	struct hr_loader *loader;

	if (!PyArg_ParseTuple(args, "O&", to_loader, &loader))
		return NULL;
	hr_loader_info(loader, &info);
	hr_loader_stats(loader, &stats);
	return Py_BuildValue("{s:K,s:K,s:K,s:I,s:I,s:K,s:d,s:K,s:s}", "steps_per_epoch",
			     (unsigned long long)info.steps_per_epoch, "batch_bytes",
			     (unsigned long long)info.batch_bytes, "ring_bytes",
			     (unsigned long long)info.ring_bytes, "slots", info.slots, "threads",
			     info.threads, "batches", (unsigned long long)stats.batches,
			     "waited_seconds", (double)stats.wait_ns / 1e9, "reopened",
			     (unsigned long long)stats.io.reopened, "reopen_reason",
			     info.reopen_reason);
}

/* loader_next(loader, maker, ring) - the next batch, by the maker, or None after the last epoch. */
PyObject *headrace_loader_next(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
	const struct hr_batch *batch;
	struct hr_loader *loader;
	int ret = -ETIMEDOUT;

	if (n != 3 || !headrace_is_maker(args[1]))
		return PyErr_Format(PyExc_TypeError, "a loader, a maker and a ring are needed");
	loader = PyCapsule_GetPointer(args[0], "loader"); /* it knows its process itself */
	if (!loader)
		return NULL;
	for (int i = 0; i < PATIENCE && ret == -ETIMEDOUT; i++) {
		Py_BEGIN_ALLOW_THREADS;
		ret = hr_loader_next(loader, &batch);
		Py_END_ALLOW_THREADS;
		if (ret == -ETIMEDOUT && PyErr_CheckSignals())
			return NULL;
	}
	if (ret == -HR_E_END)
		Py_RETURN_NONE;
	if (ret == -HR_E_FORKED)
		return refuse_child();
	return ret ? headrace_fail(ret) : headrace_make_batch(args[1], args[2], batch);
}

/* loader_release(loader, batch, lane or None) */
PyObject *headrace_loader_release(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
	struct hr_loader *loader;
	struct hr_lane *lane = NULL;
	unsigned long long batch;
	int ret;

	if (n != 3)
		return PyErr_Format(PyExc_TypeError, "a loader, a batch and a lane are needed");
	loader = PyCapsule_GetPointer(args[0], "loader");
	if (!loader)
		return NULL;
	batch = PyLong_AsUnsignedLongLong(args[1]);
	if (PyErr_Occurred())
		return NULL;
	if (args[2] != Py_None) {
		lane = PyCapsule_GetPointer(args[2], "lane");
		if (!lane)
			return NULL;
	}
	ret = hr_loader_release(loader, (const struct hr_batch *)(uintptr_t)batch, lane);
	if (ret == -HR_E_FORKED)
		return refuse_child();
	if (ret)
		return headrace_fail(ret);
	Py_RETURN_NONE;
}

PyObject *headrace_loader_state(PyObject *self, PyObject *args)
{
	char state[HR_LOADER_STATE_BYTES];
	struct hr_loader *loader;
	int ret;

	if (!PyArg_ParseTuple(args, "O&", to_loader, &loader))
		return NULL;
	ret = hr_loader_state(loader, state, sizeof(state));
	return ret < 0 ? headrace_fail(ret) : PyBytes_FromStringAndSize(state, ret);
}

PyObject *headrace_loader_restore(PyObject *self, PyObject *args)
{
	struct hr_loader *loader;
	const char *state;
	Py_ssize_t len;
	int ret;

	if (!PyArg_ParseTuple(args, "O&y#", to_loader, &loader, &state, &len))
		return NULL;
	Py_BEGIN_ALLOW_THREADS; /* waits for what was begun before */
	ret = hr_loader_restore(loader, state, (size_t)len);
	Py_END_ALLOW_THREADS;
	if (ret)
		return headrace_fail(ret);
	Py_RETURN_NONE;
}

/* lane_open(device, stream) - a lane on a stream of the program. */
PyObject *headrace_lane_open(PyObject *self, PyObject *args)
{
	unsigned long long stream;
	struct hr_device *dev;
	struct hr_lane *lane;
	PyObject *device, *capsule;
	int ret;

	if (!PyArg_ParseTuple(args, "OK", &device, &stream))
		return NULL;
	dev = PyCapsule_GetPointer(device, "device");
	if (!dev)
		return NULL;
	ret = hr_lane_open(dev, (void *)(uintptr_t)stream, &lane);
	if (ret)
		return headrace_fail(ret);
	capsule = PyCapsule_New(lane, "lane", drop_lane);
	remember_process(capsule);
	return capsule;
}

/* -- tensors that leave ------------------------------------------------------------------------ */

/* What DLPack's consumer gets: the tensor, its numbers, and the owner of the memory. */
struct leaving {
	struct dl_managed managed;
	PyObject *owner;
	int64_t numbers[2 * HR_DIMS_MAX];
};

/* The consumer is done, on whichever thread. */
static void release_leaving(struct dl_managed *managed)
{
	struct leaving *l = managed->context;
	PyGILState_STATE state = PyGILState_Ensure();

	Py_DECREF(l->owner);
	PyGILState_Release(state);
	free(l);
}

/* Nobody took it: the name is still "dltensor". */
static void drop_leaving(PyObject *capsule)
{
	struct dl_managed *m;

	if (!PyCapsule_IsValid(capsule, "dltensor"))
		return;
	m = PyCapsule_GetPointer(capsule, "dltensor");
	m->deleter(m);
}

/* DLPack's number for a kind of element; types that it does not know leave as bytes. */
static uint8_t code_of(enum hr_dtype type)
{
	switch ((int)type) {
	case HR_DTYPE_I8:
	case HR_DTYPE_I16:
	case HR_DTYPE_I32:
	case HR_DTYPE_I64:
		return 0;
	case HR_DTYPE_F16:
	case HR_DTYPE_F32:
	case HR_DTYPE_F64:
		return 2;
	case HR_DTYPE_BF16:
		return 4;
	case HR_DTYPE_BOOL:
		return 6;
	default:
		return 1;
	}
}

PyObject *headrace_leave(PyObject *owner, uint64_t address, enum hr_dtype type, PyObject *shape,
			 PyObject *strides, int device_type, int device_id)
{
	Py_ssize_t ndim = PyTuple_Size(shape);
	struct leaving *l;
	PyObject *capsule;

	if (ndim > (Py_ssize_t)HR_DIMS_MAX || PyTuple_Size(strides) != ndim)
		return PyErr_Format(PyExc_ValueError, "%zd dimensions cannot leave", ndim);
	l = calloc(1, sizeof(*l));
	if (!l)
		return PyErr_NoMemory();
	for (Py_ssize_t i = 0; i < ndim; i++) {
		l->numbers[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
		l->numbers[HR_DIMS_MAX + i] = PyLong_AsLongLong(PyTuple_GetItem(strides, i));
	}
	l->managed = (struct dl_managed){
		.tensor = {.data = (void *)(uintptr_t)address,
			   .device_type = device_type,
			   .device_id = device_id,
			   .ndim = (int32_t)ndim,
			   .code = code_of(type),
			   .bits = (uint8_t)(8 * hr_dtype_size(type)),
			   .lanes = 1,
			   .shape = l->numbers,
			   .strides = l->numbers + HR_DIMS_MAX},
		.context = l,
		.deleter = release_leaving,
	};
	Py_INCREF(owner);
	l->owner = owner;
	capsule = PyErr_Occurred() ? NULL : PyCapsule_New(&l->managed, "dltensor", drop_leaving);
	if (!capsule)
		release_leaving(&l->managed);
	return capsule;
}
