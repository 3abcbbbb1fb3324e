/* SPDX-License-Identifier: Apache-2.0 */
/*
 * python/doctor.c - what the machine can do and which way a file takes, as dictionaries. Judges nothing.
 */
#include "python/core.h"

#include <stdlib.h>

/* Append @row, which may be NULL with an exception, to @list. Return: 0, -1 with an exception. */
static int append(PyObject *list, PyObject *row)
{
	int ret = row ? PyList_Append(list, row) : -1;

	Py_XDECREF(row);
	return ret;
}

static PyObject *refusals(const struct hr_explanation *e)
{
	PyObject *list = PyList_New(0);

	for (uint32_t i = 0; list && i < e->n_verdicts; i++) {
		const struct hr_path_verdict *v = &e->verdicts[i];

		if (!v->taken && append(list, Py_BuildValue("{s:s,s:s,s:s}", "path", v->name,
							    "reason", v->reason, "fix", v->fix))) {
			Py_DECREF(list);
			return NULL;
		}
	}
	return list;
}

/* explain(file, device) - {"path", "refused": [{"path", "reason", "fix"}]}. */
PyObject *headrace_explain(PyObject *self, PyObject *args)
{
	PyObject *file_capsule, *dev_capsule, *list, *out = NULL;
	struct hr_explanation *e;
	struct hr_device *dev;
	struct hr_file *file;
	int ret;

	if (!PyArg_ParseTuple(args, "OO", &file_capsule, &dev_capsule))
		return NULL;
	file = PyCapsule_GetPointer(file_capsule, "file");
	dev = file ? PyCapsule_GetPointer(dev_capsule, "device") : NULL;
	if (!dev)
		return NULL;
	e = calloc(1, sizeof(*e));
	if (!e)
		return PyErr_NoMemory();
	Py_BEGIN_ALLOW_THREADS;
	ret = hr_explain(file, dev, 0, 0, e);
	Py_END_ALLOW_THREADS;
	list = ret ? headrace_fail(ret) : refusals(e);
	if (list)
		out = Py_BuildValue("{s:s,s:N}", "path", hr_path_name(e->path), "refused", list);
	free(e);
	return out;
}

static const char *state_name(enum hr_check_state state)
{
	return state == HR_CHECK_OK ? "ok" : state == HR_CHECK_LIMITED ? "limited" : "no";
}

static PyObject *items_of(const struct hr_check_report *report)
{
	PyObject *list = PyList_New(0);

	for (uint32_t i = 0; list && i < report->n_items; i++) {
		const struct hr_check_item *item = &report->items[i];

		if (append(list, Py_BuildValue("(sssss)", item->group, item->name,
					       state_name(item->state), item->cause, item->fix))) {
			Py_DECREF(list);
			return NULL;
		}
	}
	return list;
}

/* check(device or None, [path as bytes]) - [(group, name, state, cause, fix)]. */
PyObject *headrace_check(PyObject *self, PyObject *args)
{
	struct hr_check_report report = {0};
	struct hr_check_options opts = {0};
	const char **paths;
	PyObject *list, *out;
	Py_ssize_t n;
	int ret = 0;

	if (!PyArg_ParseTuple(args, "zO!", &opts.device, &PyList_Type, &list))
		return NULL;
	n = PyList_Size(list);
	paths = calloc((size_t)n + 1, sizeof(*paths));
	if (!paths)
		return PyErr_NoMemory();
	for (Py_ssize_t i = 0; i < n; i++) {
		paths[i] = PyBytes_AsString(PyList_GetItem(list, i));
		if (!paths[i]) {
			free(paths);
			return NULL;
		}
	}
	opts.paths = paths;
	opts.n_paths = (uint32_t)n;
	Py_BEGIN_ALLOW_THREADS;
	ret = hr_check(&opts, &report);
	Py_END_ALLOW_THREADS;
	out = ret ? headrace_fail(ret) : items_of(&report);
	hr_check_free(&report);
	free(paths);
	return out;
}
