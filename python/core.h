/* SPDX-License-Identifier: Apache-2.0 */
/*
 * python/core.h - what the C files of the package share. Python.h must come first.
 */
#ifndef HR_PYTHON_CORE_H
#define HR_PYTHON_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>

#include <headrace/headrace.h>

/* The layout of DLPack's managed tensor, version 0.x, as its specification has it. */
struct dl_tensor {
	void *data;
	int32_t device_type, device_id;
	int32_t ndim;
	uint8_t code, bits;
	uint16_t lanes;
	int64_t *shape, *strides;
	uint64_t byte_offset;
};

enum { DL_HOST = 1, DL_CUDA = 2 };

struct dl_managed {
	struct dl_tensor tensor;
	void *context;
	void (*deleter)(struct dl_managed *self);
};

/* headrace_fail() - raise what headrace._errors makes of a code and the library's sentence. Return: NULL. */
PyObject *headrace_fail(int64_t code);

/* headrace_numbers() - a tuple. */
PyObject *headrace_numbers(const uint64_t *values, uint32_t n);

/* loader.c: a tensor for DLPack's consumer, a capsule "dltensor" that holds @owner. */
PyObject *headrace_leave(PyObject *owner, uint64_t address, enum hr_dtype type, PyObject *shape,
			 PyObject *strides, int device_type, int device_id);

/*
 * batch.c: a batch as the program sees it, by a Maker; it goes back to @ring's when it is let go, also if it
 * could not be made.
 */
PyObject *headrace_make_batch(PyObject *maker, PyObject *ring, const struct hr_batch *batch);
bool headrace_is_maker(PyObject *object);
int headrace_add_types(PyObject *module);

/* doctor.c: functions of the module. */
PyObject *headrace_explain(PyObject *self, PyObject *args);
PyObject *headrace_check(PyObject *self, PyObject *args);

/* dataset.c and loader.c: functions of the module. */
PyObject *headrace_dataset_open(PyObject *self, PyObject *args);
PyObject *headrace_dataset_select(PyObject *self, PyObject *args);
PyObject *headrace_dataset_mix(PyObject *self, PyObject *args);
PyObject *headrace_index_build(PyObject *self, PyObject *args);
PyObject *headrace_dataset_info(PyObject *self, PyObject *args);
PyObject *headrace_loader_open(PyObject *self, PyObject *args);
PyObject *headrace_loader_info(PyObject *self, PyObject *args);
PyObject *headrace_loader_next(PyObject *self, PyObject *const *args, Py_ssize_t n);
PyObject *headrace_loader_release(PyObject *self, PyObject *const *args, Py_ssize_t n);
PyObject *headrace_loader_state(PyObject *self, PyObject *args);
PyObject *headrace_loader_restore(PyObject *self, PyObject *args);
PyObject *headrace_lane_open(PyObject *self, PyObject *args);

#endif
