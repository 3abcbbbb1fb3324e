/* SPDX-License-Identifier: Apache-2.0 */
/* python/dataset.c - datasets of the package headrace, and their side indexes. */
#include "python/core.h"

#include <errno.h>
#include <stdlib.h>

static void drop_dataset(PyObject *capsule)
{
	hr_dataset_close(PyCapsule_GetPointer(capsule, "dataset"));
}

PyObject *headrace_numbers(const uint64_t *values, uint32_t n)
{
	PyObject *tuple = PyTuple_New(n);

	for (uint32_t i = 0; tuple && i < n; i++)
		PyTuple_SetItem(tuple, i, PyLong_FromUnsignedLongLong(values[i]));
	return tuple;
}

/* A list of bytes as an array that ends with NULL; the texts stay the list's. */
static const char **texts_of(PyObject *list, uint32_t *n)
{
	const char **texts;
	Py_ssize_t len = PyList_Size(list);

	texts = calloc((size_t)len + 1, sizeof(*texts));
	if (!texts) {
		PyErr_NoMemory();
		return NULL;
	}
	for (Py_ssize_t i = 0; i < len && !PyErr_Occurred(); i++)
		texts[i] = PyBytes_AsString(PyList_GetItem(list, i));
	*n = (uint32_t)len;
	if (!PyErr_Occurred())
		return texts;
	free(texts);
	return NULL;
}

/*
 * dataset_open([path], format, dtype or None, seq_len, stride, [field] or None, corrupt, whole_files,
 *              order or None, index_dir or None, index_only, index_threads)
 */
PyObject *headrace_dataset_open(PyObject *self, PyObject *args)
{
	struct hr_dataset_options opts = {0};
	const char *dtype, **paths, **fields = NULL;
	PyObject *path_list, *field_list;
	struct hr_dataset *ds = NULL;
	unsigned long long stride;
	int corrupt, whole_files, index_only, ret = 0;
	uint32_t n;

	if (!PyArg_ParseTuple(args, "O!szIKOipzzpI", &PyList_Type, &path_list, &opts.format, &dtype,
			      &opts.seq_len, &stride, &field_list, &corrupt, &whole_files,
			      &opts.order, &opts.index_dir, &index_only, &opts.index_threads))
		return NULL;
	opts.stride = stride;
	opts.corrupt = (enum hr_corrupt)corrupt;
	opts.whole_files = whole_files;
	opts.index_only = index_only;
	if (dtype && hr_dtype_parse(dtype, &opts.dtype))
		return PyErr_Format(PyExc_ValueError, "%s is no type of elements", dtype);
	paths = texts_of(path_list, &n);
	if (paths && field_list != Py_None)
		fields = texts_of(field_list, &opts.n_fields);
	if (!PyErr_Occurred()) {
		opts.fields = fields;
		Py_BEGIN_ALLOW_THREADS;
		ret = hr_dataset_open(paths, n, &opts, &ds);
		Py_END_ALLOW_THREADS;
	}
	free(paths);
	free(fields);
	if (PyErr_Occurred())
		return NULL;
	return ret ? headrace_fail(ret) : PyCapsule_New(ds, "dataset", drop_dataset);
}

/* dataset_select(dataset, buffer of uint64) */
PyObject *headrace_dataset_select(PyObject *self, PyObject *args)
{
	struct hr_dataset *ds, *out;
	PyObject *capsule;
	const char *ids;
	Py_ssize_t len;
	int ret;

	if (!PyArg_ParseTuple(args, "Oy#", &capsule, &ids, &len))
		return NULL;
	ds = PyCapsule_GetPointer(capsule, "dataset");
	if (!ds)
		return NULL;
	Py_BEGIN_ALLOW_THREADS;
	ret = hr_dataset_select(ds, (const uint64_t *)(const void *)ids, (uint64_t)len / 8, &out);
	Py_END_ALLOW_THREADS;
	return ret ? headrace_fail(ret) : PyCapsule_New(out, "dataset", drop_dataset);
}

/* dataset_mix([dataset], [weight], samples) */
PyObject *headrace_dataset_mix(PyObject *self, PyObject *args)
{
	struct hr_dataset *kids[1024], *out;
	PyObject *datasets, *numbers;
	unsigned long long samples;
	double weights[1024];
	Py_ssize_t n;
	int ret;

	if (!PyArg_ParseTuple(args, "O!O!K", &PyList_Type, &datasets, &PyList_Type, &numbers,
			      &samples))
		return NULL;
	n = PyList_Size(datasets);
	if (n > 1024 || PyList_Size(numbers) != n)
		return PyErr_Format(PyExc_ValueError,
				    "a mixture has at most 1024 datasets, each with a weight");
	for (Py_ssize_t i = 0; i < n && !PyErr_Occurred(); i++) {
		kids[i] = PyCapsule_GetPointer(PyList_GetItem(datasets, i), "dataset");
		weights[i] = PyFloat_AsDouble(PyList_GetItem(numbers, i));
	}
	if (PyErr_Occurred())
		return NULL;
	ret = hr_dataset_mix(kids, weights, (uint32_t)n, samples, &out);
	return ret ? headrace_fail(ret) : PyCapsule_New(out, "dataset", drop_dataset);
}

/* [(name, kind, dtype, shape)] */
static PyObject *describe_fields(const struct hr_dataset_info *info)
{
	static const char *const kinds[] = {"fixed", "ragged", "scalar"};
	PyObject *list = PyList_New(0);

	for (uint32_t i = 0; list && i < info->n_fields; i++) {
		const struct hr_field *f = &info->fields[i];
		PyObject *row =
			Py_BuildValue("sssN", f->name, kinds[f->kind], hr_dtype_name(f->dtype),
				      headrace_numbers(f->shape, f->ndim));

		if (!row || PyList_Append(list, row)) {
			Py_XDECREF(row);
			Py_DECREF(list);
			return NULL;
		}
		Py_DECREF(row);
	}
	return list;
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
	return Py_BuildValue(
		"{s:s,s:K,s:I,s:s,s:K,s:I,s:K,s:N,s:O,s:K,s:s,s:K}", "format", info.format,
		"samples", (unsigned long long)info.samples, "elements", info.elements, "dtype",
		hr_dtype_name(info.dtype), "sample_bytes", (unsigned long long)info.sample_bytes,
		"files", info.files, "bytes", (unsigned long long)info.bytes, "fields",
		describe_fields(&info), "windows", info.windows ? Py_True : Py_False, "corrupt",
		(unsigned long long)info.corrupt, "corrupt_reason", info.corrupt_reason,
		"fingerprint", (unsigned long long)info.fingerprint);
}

/* Whom progress is told, and what the first call that failed has raised: perhaps on another thread. */
struct reporter {
	PyObject *function;
	PyObject *type, *value, *trace;
};

static int report_progress(void *ctx, const struct hr_index_progress *p)
{
	PyGILState_STATE state = PyGILState_Ensure();
	struct reporter *r = ctx;
	PyObject *done = PyObject_CallFunction(r->function, "KKK", (unsigned long long)p->bytes,
					       (unsigned long long)p->bytes_total,
					       (unsigned long long)p->samples);
	int ret = 0;

	Py_XDECREF(done);
	if (!done || PyErr_CheckSignals()) {
		ret = -ECANCELED;
		if (r->type)
			PyErr_Clear();
		else
			PyErr_Fetch(&r->type, &r->value, &r->trace);
	}
	PyGILState_Release(state);
	return ret;
}

/* index_build([path], format, index_dir or None, threads, force, function(bytes, total, samples) or None) */
PyObject *headrace_index_build(PyObject *self, PyObject *args)
{
	struct hr_index_options opts = {.progress = NULL};
	struct reporter reporter = {0};
	const char **paths;
	PyObject *list;
	int force, ret;
	uint32_t n;

	if (!PyArg_ParseTuple(args, "O!szIpO", &PyList_Type, &list, &opts.dataset.format,
			      &opts.dataset.index_dir, &opts.dataset.index_threads, &force,
			      &reporter.function))
		return NULL;
	opts.force = force;
	if (reporter.function != Py_None) {
		opts.progress = report_progress;
		opts.ctx = &reporter;
	}
	paths = texts_of(list, &n);
	if (!paths)
		return NULL;
	Py_BEGIN_ALLOW_THREADS;
	ret = hr_index_build(paths, n, &opts, NULL);
	Py_END_ALLOW_THREADS;
	free(paths);
	if (reporter.type) {
		PyErr_Restore(reporter.type, reporter.value, reporter.trace);
		return NULL;
	}
	return ret < 0 ? headrace_fail(ret) : PyLong_FromLong(ret);
}
