/* SPDX-License-Identifier: Apache-2.0 */
/*
 * python/loader.c - datasets and loaders for the package headrace, and tensors that leave it by DLPack.
 * When a slot may be used again is decided in Python; here it is only passed on.
 */
#include "python/core.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
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

static void drop_dataset(PyObject *capsule)
{
	hr_dataset_close(PyCapsule_GetPointer(capsule, "dataset"));
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

static int to_loader(PyObject *object, void *out)
{
	*(struct hr_loader **)out = PyCapsule_GetPointer(object, "loader");
	if (*(struct hr_loader **)out && !is_ours(object)) {
		PyErr_SetString(PyExc_RuntimeError,
				"the loader was opened before fork() and belongs "
				"to the parent; open one in the child");
		return 0;
	}
	return *(struct hr_loader **)out != NULL;
}

/* dataset_open([path], format, dtype or None, seq_len, stride) */
PyObject *headrace_dataset_open(PyObject *self, PyObject *args)
{
	struct hr_dataset_options opts = {0};
	unsigned long long stride;
	const char *format, *dtype;
	struct hr_dataset *ds = NULL;
	PyObject *list;
	const char **paths;
	Py_ssize_t n;
	int ret = 0;

	if (!PyArg_ParseTuple(args, "O!szIK", &PyList_Type, &list, &format, &dtype, &opts.seq_len,
			      &stride))
		return NULL;
	opts.format = format;
	opts.stride = stride;
	if (dtype && hr_dtype_parse(dtype, &opts.dtype))
		return PyErr_Format(PyExc_ValueError, "%s is no type of elements", dtype);
	n = PyList_Size(list);
	paths = calloc((size_t)n + 1, sizeof(*paths));
	if (!paths)
		return PyErr_NoMemory();
	/* Encoded by the caller, who holds the list. */
	for (Py_ssize_t i = 0; i < n && !PyErr_Occurred(); i++)
		paths[i] = PyBytes_AsString(PyList_GetItem(list, i));
	if (!PyErr_Occurred()) {
		Py_BEGIN_ALLOW_THREADS;
		ret = hr_dataset_open(paths, (uint32_t)n, &opts, &ds);
		Py_END_ALLOW_THREADS;
	}
	free(paths);
	if (PyErr_Occurred())
		return NULL;
	return ret ? headrace_fail(ret) : PyCapsule_New(ds, "dataset", drop_dataset);
}

PyObject *headrace_dataset_info(PyObject *self, PyObject *args)
{
	struct hr_dataset_info info;
	struct hr_dataset *ds;
	PyObject *capsule;

	if (!PyArg_ParseTuple(args, "O", &capsule))
		return NULL;
	ds = PyCapsule_GetPointer(capsule, "dataset");
	if (!ds)
		return NULL;
	hr_dataset_info(ds, &info);
	return Py_BuildValue("{s:s,s:K,s:I,s:s,s:K,s:I,s:K}", "format", info.format, "samples",
			     (unsigned long long)info.samples, "elements", info.elements, "dtype",
			     hr_dtype_name(info.dtype), "sample_bytes",
			     (unsigned long long)info.sample_bytes, "files", info.files, "bytes",
			     (unsigned long long)info.bytes);
}

/*
 * loader_open(dataset, device, dtype or None, batch_size, seed, shuffle, pad, epochs, rank, ranks, slots,
 * threads)
 */
PyObject *headrace_loader_open(PyObject *self, PyObject *args)
{
	struct hr_loader_options opts = {.timeout_ns = TURN_NS};
	unsigned long long seed, epochs;
	struct hr_loader *loader;
	PyObject *dataset, *device, *capsule;
	struct hr_dataset *ds;
	struct hr_device *dev;
	const char *dtype;
	int shuffle, pad, ret;

	if (!PyArg_ParseTuple(args, "OOzIKppKIIII", &dataset, &device, &dtype, &opts.batch_size,
			      &seed, &shuffle, &pad, &epochs, &opts.dp_rank, &opts.dp_world_size,
			      &opts.slots, &opts.threads))
		return NULL;
	ds = PyCapsule_GetPointer(dataset, "dataset");
	dev = ds ? PyCapsule_GetPointer(device, "device") : NULL;
	if (!dev)
		return NULL;
	if (dtype && hr_dtype_parse(dtype, &opts.out_dtype))
		return PyErr_Format(PyExc_ValueError, "%s is no type of elements", dtype);
	opts.seed = seed;
	opts.epochs = epochs;
	opts.shuffle = shuffle ? HR_SHUFFLE_FULL : HR_SHUFFLE_NONE;
	opts.last = pad ? HR_LAST_PAD : HR_LAST_DROP;
	Py_BEGIN_ALLOW_THREADS;
	ret = hr_loader_open(ds, dev, &opts, &loader);
	Py_END_ALLOW_THREADS;
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
	return Py_BuildValue("{s:K,s:K,s:K,s:I,s:I,s:K,s:d}", "steps_per_epoch",
			     (unsigned long long)info.steps_per_epoch, "batch_bytes",
			     (unsigned long long)info.batch_bytes, "ring_bytes",
			     (unsigned long long)info.ring_bytes, "slots", info.slots, "threads",
			     info.threads, "batches", (unsigned long long)stats.batches,
			     "waited_seconds", (double)stats.wait_ns / 1e9);
}

static PyObject *numbers(const uint64_t *values, uint32_t n)
{
	PyObject *tuple = PyTuple_New(n);

	for (uint32_t i = 0; tuple && i < n; i++)
		PyTuple_SetItem(tuple, i, PyLong_FromUnsignedLongLong(values[i]));
	return tuple;
}

/* (batch, epoch, step, valid, ids, [(name, dtype, shape, strides, address)]) */
static PyObject *describe(const struct hr_batch *batch)
{
	PyObject *list = PyList_New(0);

	for (uint32_t i = 0; list && i < batch->n_tensors; i++) {
		const struct hr_tensor *t = &batch->tensors[i];
		PyObject *row = Py_BuildValue(
			"ssNNK", t->name, hr_dtype_name(t->dtype), numbers(t->shape, t->ndim),
			numbers(t->stride, t->ndim), (unsigned long long)(uintptr_t)t->data);

		if (!row || PyList_Append(list, row)) {
			Py_XDECREF(row);
			Py_DECREF(list);
			return NULL;
		}
		Py_DECREF(row);
	}
	return Py_BuildValue("KKKINN", (unsigned long long)(uintptr_t)batch,
			     (unsigned long long)batch->epoch, (unsigned long long)batch->step,
			     batch->valid, numbers(batch->ids, batch->samples), list);
}

/* loader_next(loader) - the next batch, or None after the last epoch. */
PyObject *headrace_loader_next(PyObject *self, PyObject *args)
{
	const struct hr_batch *batch;
	struct hr_loader *loader;
	int ret = -ETIMEDOUT;

	if (!PyArg_ParseTuple(args, "O&", to_loader, &loader))
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
	return ret ? headrace_fail(ret) : describe(batch);
}

/* loader_release(loader, batch, lane or None) */
PyObject *headrace_loader_release(PyObject *self, PyObject *args)
{
	struct hr_loader *loader;
	struct hr_lane *lane = NULL;
	unsigned long long batch;
	PyObject *capsule;
	int ret;

	if (!PyArg_ParseTuple(args, "O&KO", to_loader, &loader, &batch, &capsule))
		return NULL;
	if (capsule != Py_None) {
		lane = PyCapsule_GetPointer(capsule, "lane");
		if (!lane)
			return NULL;
	}
	ret = hr_loader_release(loader, (const struct hr_batch *)(uintptr_t)batch, lane);
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
	ret = hr_loader_restore(loader, state, (size_t)len);
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
	int64_t numbers[8];
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

/* to_dlpack(owner, address, dtype, shape, strides, device type, device id) - a capsule "dltensor". */
PyObject *headrace_to_dlpack(PyObject *self, PyObject *args)
{
	PyObject *owner, *shape, *strides, *capsule;
	unsigned long long address;
	struct leaving *l;
	const char *dtype;
	enum hr_dtype type;
	int device_type, device_id;
	Py_ssize_t ndim;

	if (!PyArg_ParseTuple(args, "OKsO!O!ii", &owner, &address, &dtype, &PyTuple_Type, &shape,
			      &PyTuple_Type, &strides, &device_type, &device_id))
		return NULL;
	ndim = PyTuple_Size(shape);
	if (hr_dtype_parse(dtype, &type) || ndim > 4 || PyTuple_Size(strides) != ndim)
		return PyErr_Format(PyExc_ValueError, "%s of %zd dimensions cannot leave", dtype,
				    ndim);
	l = calloc(1, sizeof(*l));
	if (!l)
		return PyErr_NoMemory();
	for (Py_ssize_t i = 0; i < ndim; i++) {
		l->numbers[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
		l->numbers[4 + i] = PyLong_AsLongLong(PyTuple_GetItem(strides, i));
	}
	l->managed = (struct dl_managed){
		.tensor = {.data = (void *)(uintptr_t)address,
			   .device_type = device_type,
			   .device_id = device_id,
			   .ndim = (int32_t)ndim,
			   .code = dtype[0] == 'i' ? 0 : 1,
			   .bits = (uint8_t)(8 * hr_dtype_size(type)),
			   .lanes = 1,
			   .shape = l->numbers,
			   .strides = l->numbers + 4},
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
