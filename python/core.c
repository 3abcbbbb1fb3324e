/* SPDX-License-Identifier: Apache-2.0 */
/*
 * python/core.c - the thin C part of the package headrace: every function is one call of the library, or
 * a loop of one, with the GIL released. What is sensible is decided in Python; objects are capsules.
 */
#include "python/core.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STEP_NS 200000000ull

/* -- errors and capsules ----------------------------------------------------------------------- */

PyObject *headrace_fail(int64_t code)
{
	PyObject *module = PyImport_ImportModule("headrace._errors");
	PyObject *error = NULL;

	if (module)
		error = PyObject_CallMethod(
			module, "make", "iss", (int)-code, hr_error_name((int)code),
			*hr_error_detail() ? hr_error_detail() : hr_strerror((int)code));
	if (error)
		PyErr_SetObject((PyObject *)Py_TYPE(error), error);
	Py_XDECREF(error);
	Py_XDECREF(module);
	return NULL;
}

static void drop_device(PyObject *capsule)
{
	hr_device_close(PyCapsule_GetPointer(capsule, "device"));
}

static void drop_file(PyObject *capsule)
{
	hr_file_close(PyCapsule_GetPointer(capsule, "file"));
}

static void drop_buffer(PyObject *capsule)
{
	/* A drive may still write there: then the few bytes of the handle stay. */
	hr_buffer_free(PyCapsule_GetPointer(capsule, "buffer"));
}

static void drop_engine(PyObject *capsule)
{
	struct hr_engine *engine = PyCapsule_GetPointer(capsule, "engine");

	/* A child of fork() must not wait for what its parent has in flight. */
	if (PyCapsule_GetContext(capsule) != (void *)(intptr_t)getpid())
		return;
	Py_BEGIN_ALLOW_THREADS;
	hr_engine_close(engine);
	Py_END_ALLOW_THREADS;
}

static void drop_checkpoint(PyObject *capsule)
{
	hr_checkpoint_close(PyCapsule_GetPointer(capsule, "checkpoint"));
}

/* A converter of PyArg_ParseTuple for each kind. */
#define CONVERTER(kind)                                                                            \
	static int to_##kind(PyObject *object, void *out)                                          \
	{                                                                                          \
		struct hr_##kind **to = out;                                                       \
                                                                                                   \
		*to = PyCapsule_GetPointer(object, #kind);                                         \
		return *to != NULL;                                                                \
	}
CONVERTER(device)
CONVERTER(file)
CONVERTER(buffer)
CONVERTER(engine)
CONVERTER(checkpoint)
#undef CONVERTER

/* -- devices, files, buffers, engines ---------------------------------------------------------- */

static PyObject *device_open(PyObject *self, PyObject *args)
{
	struct hr_device *dev;
	const char *name;
	int ret;

	if (!PyArg_ParseTuple(args, "s", &name))
		return NULL;
	Py_BEGIN_ALLOW_THREADS;
	ret = hr_device_open(name, &dev);
	Py_END_ALLOW_THREADS;
	return ret ? headrace_fail(ret) : PyCapsule_New(dev, "device", drop_device);
}

static PyObject *device_info(PyObject *self, PyObject *args)
{
	struct hr_device *dev;
	struct hr_device_info info;

	if (!PyArg_ParseTuple(args, "O&", to_device, &dev))
		return NULL;
	hr_device_info(dev, &info);
	return Py_BuildValue("{s:s,s:s,s:s,s:K}", "name", info.name, "model", info.model, "pci",
			     info.pci, "memory_bytes", (unsigned long long)info.memory_bytes);
}

static PyObject *file_open(PyObject *self, PyObject *args)
{
	struct hr_file *file;
	PyObject *path;
	unsigned int flags;
	int ret;

	if (!PyArg_ParseTuple(args, "O&I", PyUnicode_FSConverter, &path, &flags))
		return NULL;
	Py_BEGIN_ALLOW_THREADS;
	ret = hr_file_open(PyBytes_AsString(path), flags, &file);
	Py_END_ALLOW_THREADS;
	Py_DECREF(path);
	return ret ? headrace_fail(ret) : PyCapsule_New(file, "file", drop_file);
}

static PyObject *file_info(PyObject *self, PyObject *args)
{
	struct hr_file *file;
	struct hr_file_info info;
	int ret;

	if (!PyArg_ParseTuple(args, "O&", to_file, &file))
		return NULL;
	ret = hr_file_info(file, &info);
	if (ret)
		return headrace_fail(ret);
	return Py_BuildValue("{s:K,s:N,s:s,s:s,s:s}", "size_bytes",
			     (unsigned long long)info.size_bytes, "direct",
			     PyBool_FromLong(info.direct), "direct_reason", info.direct_reason,
			     "fs_name", info.fs_name, "block_device", info.block_device);
}

static PyObject *file_sync(PyObject *self, PyObject *args)
{
	struct hr_file *file;
	int ret;

	if (!PyArg_ParseTuple(args, "O&", to_file, &file))
		return NULL;
	Py_BEGIN_ALLOW_THREADS;
	ret = hr_file_sync(file);
	Py_END_ALLOW_THREADS;
	if (ret)
		return headrace_fail(ret);
	Py_RETURN_NONE;
}

static PyObject *buffer_register(PyObject *self, PyObject *args)
{
	struct hr_device *dev;
	struct hr_buffer *buf;
	unsigned long long address, len;
	int ret;

	if (!PyArg_ParseTuple(args, "O&KK", to_device, &dev, &address, &len))
		return NULL;
	ret = hr_buffer_register(dev, (void *)(uintptr_t)address, len, &buf);
	return ret ? headrace_fail(ret) : PyCapsule_New(buf, "buffer", drop_buffer);
}

static PyObject *engine_open(PyObject *self, PyObject *args)
{
	struct hr_engine_options opts = {0};
	struct hr_engine *engine;
	struct hr_device *dev;
	unsigned int cache;
	PyObject *capsule;
	int ret;

	if (!PyArg_ParseTuple(args, "O&III", to_device, &dev, &opts.threads, &opts.depth, &cache))
		return NULL;
	opts.cache = (enum hr_cache)cache;
	Py_BEGIN_ALLOW_THREADS;
	ret = hr_engine_open(dev, &opts, &engine);
	Py_END_ALLOW_THREADS;
	if (ret)
		return headrace_fail(ret);
	capsule = PyCapsule_New(engine, "engine", drop_engine);
	if (capsule)
		PyCapsule_SetContext(capsule, (void *)(intptr_t)getpid());
	return capsule;
}

static PyObject *transfer(PyObject *self, PyObject *args)
{
	struct hr_engine *engine;
	struct hr_file *file;
	struct hr_buffer *buf;
	unsigned long long file_offset, len, buffer_offset;
	int64_t n;
	int write;

	if (!PyArg_ParseTuple(args, "O&pO&KKO&K", to_engine, &engine, &write, to_file, &file,
			      &file_offset, &len, to_buffer, &buf, &buffer_offset))
		return NULL;
	Py_BEGIN_ALLOW_THREADS;
	n = write ? hr_write(engine, file, file_offset, len, buf, buffer_offset)
		  : hr_read(engine, file, file_offset, len, buf, buffer_offset);
	Py_END_ALLOW_THREADS;
	return n < 0 ? headrace_fail(n) : PyLong_FromLongLong(n);
}

/* -- memory of others -------------------------------------------------------------------------- */

static void drop_dlpack(PyObject *capsule)
{
	struct dl_managed *m = PyCapsule_GetPointer(capsule, "held_dltensor");

	if (m && m->deleter)
		m->deleter(m);
}

/* Bytes of a dense tensor, or -1. */
static int64_t dense_bytes(const struct dl_tensor *t)
{
	int64_t elements = 1;

	for (int32_t i = t->ndim; i-- > 0;) {
		if (t->strides && t->shape[i] > 1 && t->strides[i] != elements)
			return -1;
		if (__builtin_mul_overflow(elements, t->shape[i], &elements))
			return -1;
	}
	return (elements * t->bits * t->lanes + 7) / 8;
}

/* dlpack(capsule) - (address, bytes, device type, device id, what keeps it alive). */
static PyObject *dlpack(PyObject *self, PyObject *args)
{
	struct dl_managed *m;
	PyObject *capsule, *held;
	int64_t bytes;

	if (!PyArg_ParseTuple(args, "O", &capsule))
		return NULL;
	m = PyCapsule_GetPointer(capsule, "dltensor");
	if (!m)
		return NULL;
	bytes = dense_bytes(&m->tensor);
	if (bytes < 0) {
		PyErr_SetString(PyExc_BufferError, "the tensor is not contiguous; make a "
						   "contiguous copy of it first");
		return NULL;
	}
	/* From here on it is ours, not the producer's. */
	if (PyCapsule_SetName(capsule, "used_dltensor"))
		return NULL;
	held = PyCapsule_New(m, "held_dltensor", drop_dlpack);
	if (!held)
		return NULL;
	return Py_BuildValue(
		"KLiiN", (unsigned long long)((uintptr_t)m->tensor.data + m->tensor.byte_offset),
		(long long)bytes, m->tensor.device_type, m->tensor.device_id, held);
}

static void drop_view(PyObject *capsule)
{
	Py_buffer *view = PyCapsule_GetPointer(capsule, "view");

	PyBuffer_Release(view);
	free(view);
}

/* view(object, writable) - (address, bytes, what keeps it alive), by the buffer protocol. */
static PyObject *view(PyObject *self, PyObject *args)
{
	PyObject *object, *held;
	Py_buffer *buf;
	int writable;

	if (!PyArg_ParseTuple(args, "Op", &object, &writable))
		return NULL;
	buf = calloc(1, sizeof(*buf));
	if (!buf)
		return PyErr_NoMemory();
	if (PyObject_GetBuffer(object, buf, PyBUF_C_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0))) {
		free(buf);
		return NULL;
	}
	held = PyCapsule_New(buf, "view", drop_view);
	if (!held) {
		PyBuffer_Release(buf);
		free(buf);
		return NULL;
	}
	return Py_BuildValue("KnN", (unsigned long long)(uintptr_t)buf->buf, buf->len, held);
}

/* -- checkpoints ------------------------------------------------------------------------------- */

static PyObject *checkpoint_open(PyObject *self, PyObject *args)
{
	struct hr_checkpoint_options opts = {0};
	struct hr_checkpoint *ck;
	PyObject *path;
	const char *paths[1];
	int lenient, ret;

	if (!PyArg_ParseTuple(args, "O&p", PyUnicode_FSConverter, &path, &lenient))
		return NULL;
	opts.lenient = lenient;
	paths[0] = PyBytes_AsString(path);
	Py_BEGIN_ALLOW_THREADS;
	ret = hr_checkpoint_open(paths, 1, &opts, &ck);
	Py_END_ALLOW_THREADS;
	Py_DECREF(path);
	return ret ? headrace_fail(ret) : PyCapsule_New(ck, "checkpoint", drop_checkpoint);
}

static PyObject *shape_tuple(const struct hr_weight *w)
{
	PyObject *shape = PyTuple_New(w->ndim);

	for (uint32_t i = 0; shape && i < w->ndim; i++) {
		PyObject *size = PyLong_FromUnsignedLongLong(w->shape[i]);

		if (!size || PyTuple_SetItem(shape, i, size)) {
			Py_DECREF(shape);
			return NULL;
		}
	}
	return shape;
}

/* checkpoint_weights(ck) - a list of (name, dtype, shape, bytes, path). */
static PyObject *checkpoint_weights(PyObject *self, PyObject *args)
{
	struct hr_checkpoint_info info;
	struct hr_checkpoint *ck;
	PyObject *list;

	if (!PyArg_ParseTuple(args, "O&", to_checkpoint, &ck))
		return NULL;
	hr_checkpoint_info(ck, &info);
	list = PyList_New(0);
	for (uint64_t i = 0; list && i < info.weights; i++) {
		struct hr_weight w;
		PyObject *row;

		hr_checkpoint_weight(ck, i, &w);
		row = Py_BuildValue("ssNKs", w.name, hr_weight_type_name(w.type), shape_tuple(&w),
				    (unsigned long long)w.len, hr_checkpoint_path(ck, w.file));
		if (!row || PyList_Append(list, row)) {
			Py_XDECREF(row);
			Py_DECREF(list);
			return NULL;
		}
		Py_DECREF(row);
	}
	return list;
}

static PyObject *checkpoint_metadata(PyObject *self, PyObject *args)
{
	struct hr_checkpoint_info info;
	struct hr_checkpoint *ck;
	PyObject *dict;

	if (!PyArg_ParseTuple(args, "O&", to_checkpoint, &ck))
		return NULL;
	hr_checkpoint_info(ck, &info);
	dict = PyDict_New();
	for (uint64_t i = 0; dict && i < info.metadata; i++) {
		const char *key, *value;
		PyObject *text;

		hr_checkpoint_metadata(ck, i, &key, &value);
		text = PyUnicode_FromString(value);
		if (!text || PyDict_SetItemString(dict, key, text)) {
			Py_XDECREF(text);
			Py_DECREF(dict);
			return NULL;
		}
		Py_DECREF(text);
	}
	return dict;
}

/* A list of (weight, dtype or None, dim or -1, start, count, buffer or None, offset). */
static struct hr_part *to_parts(PyObject *list, Py_ssize_t *n)
{
	struct hr_part *parts;

	*n = PyList_Size(list);
	if (*n < 0)
		return NULL;
	parts = calloc((size_t)*n + 1, sizeof(*parts));
	for (Py_ssize_t i = 0; parts && i < *n; i++) {
		unsigned long long weight, start, count, offset;
		PyObject *buffer;
		const char *to;
		int dim;

		if (!PyArg_ParseTuple(PyList_GetItem(list, i), "KziKKOK", &weight, &to, &dim,
				      &start, &count, &buffer, &offset))
			goto err_free;
		parts[i] = (struct hr_part){
			.weight = weight,
			.sliced = dim >= 0,
			.dim = dim >= 0 ? (uint32_t)dim : 0,
			.start = start,
			.count = count,
			.buffer_offset = offset,
		};
		if (to && hr_weight_type_parse(to, &parts[i].to)) {
			PyErr_Format(PyExc_ValueError, "%s is no type of a tensor", to);
			goto err_free;
		}
		if (buffer != Py_None && !to_buffer(buffer, &parts[i].buffer))
			goto err_free;
	}
	if (!parts)
		PyErr_NoMemory();
	return parts;

err_free:
	free(parts);
	return NULL;
}

/* Step to the end with the GIL released, and look for signals. Return: 1, -code, 0: an exception. */
static int run(int (*step)(void *what, uint64_t timeout_ns), void *what)
{
	uint32_t idle = 0;
	int ret;

	for (;;) {
		Py_BEGIN_ALLOW_THREADS;
		ret = step(what, STEP_NS);
		Py_END_ALLOW_THREADS;
		if (PyErr_CheckSignals())
			return 0;
		if (ret == -ETIMEDOUT && ++idle < 300)
			continue;
		if (ret)
			return ret;
		idle = 0;
	}
}

/* Requests have not come back: what they may still write to must outlive everything. */
static void keep(PyObject *held)
{
	PyObject *type, *value, *trace, *module, *none = NULL;

	PyErr_Fetch(&type, &value, &trace);
	module = PyImport_ImportModule("headrace._engines");
	if (module)
		none = PyObject_CallMethod(module, "keep", "O", held);
	Py_XDECREF(none);
	Py_XDECREF(module);
	PyErr_Restore(type, value, trace);
}

static int step_load(void *what, uint64_t timeout_ns)
{
	return hr_load_step(what, timeout_ns);
}

static int step_save(void *what, uint64_t timeout_ns)
{
	return hr_save_step(what, timeout_ns);
}

static PyObject *checkpoint_load(PyObject *self, PyObject *args)
{
	struct hr_load_info info;
	struct hr_checkpoint *ck;
	struct hr_engine *engine;
	struct hr_part *parts;
	struct hr_load *load;
	PyObject *list, *held, *out = NULL;
	Py_ssize_t n;
	int ret;

	if (!PyArg_ParseTuple(args, "O&O&OO", to_engine, &engine, to_checkpoint, &ck, &list, &held))
		return NULL;
	parts = to_parts(list, &n);
	if (!parts)
		return NULL;
	Py_BEGIN_ALLOW_THREADS;
	ret = hr_load_open(ck, engine, parts, (uint64_t)n, NULL, &load);
	Py_END_ALLOW_THREADS;
	free(parts);
	if (ret)
		return headrace_fail(ret);
	ret = run(step_load, load);
	if (ret < 0)
		headrace_fail(ret);
	hr_load_info(load, &info);
	if (ret == 1)
		out = Py_BuildValue("KK", (unsigned long long)info.delivered,
				    (unsigned long long)info.bytes_cached);
	Py_BEGIN_ALLOW_THREADS;
	ret = hr_load_close(load);
	Py_END_ALLOW_THREADS;
	if (ret)
		keep(held);
	return out;
}

/* Names and shapes point into Python objects of @list, which the caller holds. */
static struct hr_save_weight *to_weights(PyObject *list, Py_ssize_t n, uint64_t **dims)
{
	struct hr_save_weight *w = calloc((size_t)n + 1, sizeof(*w));
	Py_ssize_t room = 0, used = 0;

	for (Py_ssize_t i = 0; i < n; i++) {
		PyObject *shape = PyTuple_GetItem(PyList_GetItem(list, i), 2);

		room += shape ? PyTuple_Size(shape) : 0;
	}
	*dims = calloc((size_t)room + 1, sizeof(**dims));
	if (!w || !*dims) {
		free(w);
		PyErr_NoMemory();
		return NULL;
	}
	for (Py_ssize_t i = 0; !PyErr_Occurred() && i < n; i++) {
		PyObject *shape, *buffer;
		unsigned long long offset;
		const char *type;

		if (!PyArg_ParseTuple(PyList_GetItem(list, i), "ssO!OK", &w[i].name, &type,
				      &PyTuple_Type, &shape, &buffer, &offset))
			break;
		w[i].shape = *dims + used;
		w[i].ndim = (uint32_t)PyTuple_Size(shape);
		w[i].buffer_offset = offset;
		for (uint32_t d = 0; d < w[i].ndim; d++)
			(*dims)[used++] = PyLong_AsUnsignedLongLong(PyTuple_GetItem(shape, d));
		if (hr_weight_type_parse(type, &w[i].type))
			PyErr_Format(PyExc_ValueError, "%s is no type of a tensor", type);
		else if (buffer != Py_None)
			to_buffer(buffer, &w[i].buffer);
	}
	if (!PyErr_Occurred())
		return w;
	free(w);
	return NULL;
}

/* A list of (key, value). Return: the array, or NULL with an exception. */
static struct hr_save_pair *to_pairs(PyObject *list, Py_ssize_t n)
{
	struct hr_save_pair *pairs = calloc((size_t)n + 1, sizeof(*pairs));

	for (Py_ssize_t i = 0; pairs && i < n; i++) {
		if (!PyArg_ParseTuple(PyList_GetItem(list, i), "ss", &pairs[i].key,
				      &pairs[i].value)) {
			free(pairs);
			return NULL;
		}
	}
	if (!pairs)
		PyErr_NoMemory();
	return pairs;
}

/* A save that is under way; save is NULL once it has been closed. */
struct saving {
	struct hr_save *save;
	pid_t process;
};

static void drop_saving(PyObject *capsule)
{
	struct saving *s = PyCapsule_GetPointer(capsule, "saving");

	if (s->save && s->process == getpid())
		hr_save_close(s->save);
	free(s);
}

static PyObject *start_saving(struct hr_engine *engine, const char *path,
			      const struct hr_save_weight *weights, uint64_t n,
			      const struct hr_save_options *opts)
{
	struct saving *s = calloc(1, sizeof(*s));
	PyObject *capsule;
	int ret;

	if (!s)
		return PyErr_NoMemory();
	s->process = getpid();
	capsule = PyCapsule_New(s, "saving", drop_saving);
	if (!capsule) {
		free(s);
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	ret = hr_save_open(engine, path, weights, n, opts, &s->save);
	Py_END_ALLOW_THREADS;
	if (!ret)
		return capsule;
	Py_DECREF(capsule);
	return headrace_fail(ret);
}

/* save_run(saving, held) - to the end, on whichever thread; @held is kept if it gets stuck. */
static PyObject *save_run(PyObject *self, PyObject *args)
{
	PyObject *capsule, *held;
	struct saving *s;
	int ret, closed;

	if (!PyArg_ParseTuple(args, "OO", &capsule, &held))
		return NULL;
	s = PyCapsule_GetPointer(capsule, "saving");
	if (!s)
		return NULL;
	if (!s->save || s->process != getpid()) {
		PyErr_SetString(PyExc_ValueError, "the save is over, or its parent's");
		return NULL;
	}
	ret = run(step_save, s->save);
	if (ret < 0)
		headrace_fail(ret);
	Py_BEGIN_ALLOW_THREADS;
	closed = hr_save_close(s->save);
	Py_END_ALLOW_THREADS;
	s->save = NULL; /* stuck or not, nobody looks at it again */
	if (closed)
		keep(held);
	if (ret != 1)
		return NULL;
	Py_RETURN_NONE;
}

/*
 * save_open(engine, path, [(name, dtype, shape, buffer or None, offset)], [(key, value)] or None,
 * snapshot) - for save_run().
 */
static PyObject *save_open(PyObject *self, PyObject *args)
{
	struct hr_save_options opts = {0};
	struct hr_save_weight *weights;
	struct hr_save_pair *pairs = NULL;
	struct hr_engine *engine;
	PyObject *path, *list, *metadata, *out = NULL;
	uint64_t *dims = NULL;
	int snapshot;

	if (!PyArg_ParseTuple(args, "O&O&O!Op", to_engine, &engine, PyUnicode_FSConverter, &path,
			      &PyList_Type, &list, &metadata, &snapshot))
		return NULL;
	opts.snapshot = snapshot;
	weights = to_weights(list, PyList_Size(list), &dims);
	if (weights && metadata != Py_None) {
		opts.n_metadata = (uint64_t)PyList_Size(metadata);
		opts.metadata = pairs = to_pairs(metadata, PyList_Size(metadata));
	}
	if (weights && (pairs || metadata == Py_None))
		out = start_saving(engine, PyBytes_AsString(path), weights,
				   (uint64_t)PyList_Size(list), &opts);
	free(pairs);
	free(weights);
	free(dims);
	Py_DECREF(path);
	return out;
}

/* -- the module -------------------------------------------------------------------------------- */

static PyObject *version(PyObject *self, PyObject *args)
{
	return PyUnicode_FromString(hr_version());
}

/* dtypes() -> (name, ...): the types of elements that there are */
static PyObject *dtypes(PyObject *self, PyObject *args)
{
	PyObject *names = PyTuple_New(HR_DTYPE_COUNT_);

	for (Py_ssize_t i = 0; names && i < HR_DTYPE_COUNT_; i++) {
		PyObject *name = PyUnicode_FromString(hr_dtype_name((enum hr_dtype)i));

		if (!name || PyTuple_SetItem(names, i, name)) {
			Py_DECREF(names);
			return NULL;
		}
	}
	return names;
}

static PyMethodDef methods[] = {
	{"device_open", device_open, METH_VARARGS, NULL},
	{"device_info", device_info, METH_VARARGS, NULL},
	{"file_open", file_open, METH_VARARGS, NULL},
	{"file_info", file_info, METH_VARARGS, NULL},
	{"file_sync", file_sync, METH_VARARGS, NULL},
	{"buffer_register", buffer_register, METH_VARARGS, NULL},
	{"engine_open", engine_open, METH_VARARGS, NULL},
	{"transfer", transfer, METH_VARARGS, NULL},
	{"explain", headrace_explain, METH_VARARGS, NULL},
	{"check", headrace_check, METH_VARARGS, NULL},
	{"dlpack", dlpack, METH_VARARGS, NULL},
	{"view", view, METH_VARARGS, NULL},
	{"checkpoint_open", checkpoint_open, METH_VARARGS, NULL},
	{"checkpoint_weights", checkpoint_weights, METH_VARARGS, NULL},
	{"checkpoint_metadata", checkpoint_metadata, METH_VARARGS, NULL},
	{"checkpoint_load", checkpoint_load, METH_VARARGS, NULL},
	{"save_open", save_open, METH_VARARGS, NULL},
	{"save_run", save_run, METH_VARARGS, NULL},
	{"dataset_open", headrace_dataset_open, METH_VARARGS, NULL},
	{"dataset_info", headrace_dataset_info, METH_VARARGS, NULL},
	{"dataset_select", headrace_dataset_select, METH_VARARGS, NULL},
	{"dataset_mix", headrace_dataset_mix, METH_VARARGS, NULL},
	{"index_build", headrace_index_build, METH_VARARGS, NULL},
	{"loader_open", headrace_loader_open, METH_VARARGS, NULL},
	{"loader_info", headrace_loader_info, METH_VARARGS, NULL},
	{"loader_next", (PyCFunction)(void (*)(void))headrace_loader_next, METH_FASTCALL, NULL},
	{"loader_release", (PyCFunction)(void (*)(void))headrace_loader_release, METH_FASTCALL,
	 NULL},
	{"loader_state", headrace_loader_state, METH_VARARGS, NULL},
	{"loader_restore", headrace_loader_restore, METH_VARARGS, NULL},
	{"lane_open", headrace_lane_open, METH_VARARGS, NULL},
	{"version", version, METH_NOARGS, NULL},
	{"dtypes", dtypes, METH_NOARGS, NULL},
	{NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
	{Py_mod_exec, headrace_add_types},
	{0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "headrace._core",
					.m_size = 0, .m_methods = methods, .m_slots = slots};

PyMODINIT_FUNC PyInit__core(void);

PyMODINIT_FUNC PyInit__core(void)
{
	return PyModuleDef_Init(&definition);
}
