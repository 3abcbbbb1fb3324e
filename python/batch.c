/* SPDX-License-Identifier: Apache-2.0 */
/*
 * python/batch.c - a batch for the program: its memory (Slot), tensors (Tensor), sample numbers (Ids), and
 * who makes all of them (Maker). A training loop pays for this at every step and finds its caches cold, so
 * it is C and makes no object twice; what is rare is in Python, as is when a slot may be used again.
 */
#include "python/core.h"

#include <stdlib.h>
#include <string.h>
#include <structmember.h>

/* The sample numbers of a batch: those of its slot while that lives, a copy if somebody wants them after. */
struct ids {
	PyObject_HEAD const uint64_t *values; /* NULL: there was no memory for the copy */
	uint64_t *own;
	uint32_t n;
};

/* The memory of one batch, shared by everything that was made of it. */
struct slot {
	PyObject_HEAD PyObject *ring; /* lives as long as any of its batches */
	PyObject *gone; /* called with (batch, stream or None) when the last one lets go */
	PyObject *device;
	struct ids *ids;
	const struct hr_batch *batch;
	int device_type, device_id;
	bool taken;
	long long stream;
};

struct tensor {
	PyObject_HEAD struct slot *slot;
	PyObject *name, *dtype, *shape, *strides;
	PyObject *weak;
	unsigned long long address, host;
	enum hr_dtype type;
};

/* What a tensor looked like in the batch before: mostly it still does, and the objects serve again. */
struct look {
	struct hr_tensor as;
	PyObject *name, *dtype, *shape, *strides;
};

enum { EPOCH, STEP, VALID, MAX_SEQLEN, IDS, LAST, N_NAMES };
static const char *const name_texts[N_NAMES] = {"epoch",      "step", "valid",
						"max_seqlen", "_ids", "_last"};

struct maker {
	PyObject_HEAD PyTypeObject *slot_type, *ids_type, *tensor_type;
	PyObject *batch_type, *gone, *device;
	int device_type, device_id;
	PyObject *names[N_NAMES];
	struct look *looks;
	uint32_t n_looks;
};

/* References to what starts with PyObject_HEAD. */
static void *get(void *object)
{
	return Py_NewRef((PyObject *)object);
}

static void put(void *object)
{
	Py_XDECREF((PyObject *)object);
}

static void free_object(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);
	freefunc free_it = (freefunc)PyType_GetSlot(type, Py_tp_free);

	free_it(self);
	put(type);
}

/* -- Ids --------------------------------------------------------------------------------------- */

static struct ids *new_ids(PyTypeObject *type, const struct hr_batch *batch)
{
	struct ids *self = (struct ids *)PyType_GenericAlloc(type, 0);

	if (self) {
		self->values = batch->ids;
		self->n = batch->samples;
	}
	return self;
}

/* The slot is given back. */
static void part_ids(struct ids *self)
{
	if (Py_REFCNT((PyObject *)self) > 1 && self->n) {
		self->own = malloc(self->n * sizeof(*self->own));
		if (self->own)
			memcpy(self->own, self->values, self->n * sizeof(*self->own));
	}
	self->values = self->own;
	put(self);
}

static PyObject *tuple_of(struct ids *self)
{
	PyObject *out = PyTuple_New(self->n);

	/* To make the tuple may have run the collector, which may have parted the slot from here. */
	if (out && self->n && !self->values) {
		put(out);
		return PyErr_NoMemory();
	}
	for (uint32_t i = 0; out && i < self->n; i++) {
		PyObject *id = PyLong_FromUnsignedLongLong(self->values[i]);

		if (!id || PyTuple_SetItem(out, i, id)) {
			put(out);
			return NULL;
		}
	}
	return out;
}

static PyObject *iterate_ids(PyObject *self)
{
	PyObject *tuple = tuple_of((struct ids *)self), *out;

	if (!tuple)
		return NULL;
	out = PyObject_GetIter(tuple);
	put(tuple);
	return out;
}

/* Pickles and copies are plain tuples. */
static PyObject *reduce_ids(PyObject *self, PyObject *args)
{
	PyObject *tuple = tuple_of((struct ids *)self);

	return tuple ? Py_BuildValue("O(N)", (PyObject *)&PyTuple_Type, tuple) : NULL;
}

static void drop_ids(PyObject *self)
{
	free(((struct ids *)self)->own);
	free_object(self);
}

static PyMethodDef ids_methods[] = {
	{"__reduce__", reduce_ids, METH_NOARGS, NULL},
	{NULL, NULL, 0, NULL},
};

static PyType_Slot ids_slots[] = {
	{Py_tp_dealloc, drop_ids},
	{Py_tp_iter, iterate_ids},
	{Py_tp_methods, ids_methods},
	{0, NULL},
};

static PyType_Spec ids_spec = {
	.name = "headrace._core.Ids",
	.basicsize = sizeof(struct ids),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = ids_slots,
};

/* -- Slot -------------------------------------------------------------------------------------- */

/* Perhaps on another thread, in the middle of anything: the loader's own thread does the rest. */
static void give_back(PyObject *gone, const struct hr_batch *batch, const long long *stream)
{
	PyObject *type, *value, *trace, *entry, *none = NULL;

	PyErr_Fetch(&type, &value, &trace);
	entry = stream ? Py_BuildValue("KL", (unsigned long long)(uintptr_t)batch, *stream)
		       : Py_BuildValue("KO", (unsigned long long)(uintptr_t)batch, Py_None);
	if (entry)
		none = PyObject_CallFunctionObjArgs(gone, entry, NULL);
	if (!none)
		PyErr_WriteUnraisable(gone);
	put(none);
	put(entry);
	PyErr_Restore(type, value, trace);
}

static void drop_slot(PyObject *object)
{
	struct slot *self = (struct slot *)object;

	part_ids(self->ids);
	give_back(self->gone, self->batch, self->taken ? &self->stream : NULL);
	put(self->gone);
	put(self->device);
	put(self->ring);
	free_object(object);
}

static struct slot *new_slot(struct maker *m, PyObject *ring, const struct hr_batch *batch)
{
	struct ids *ids = new_ids(m->ids_type, batch);
	struct slot *self = ids ? (struct slot *)PyType_GenericAlloc(m->slot_type, 0) : NULL;

	if (!self) {
		put(ids);
		give_back(m->gone, batch, NULL);
		return NULL;
	}
	self->ids = ids;
	self->ring = get(ring);
	self->gone = get(m->gone);
	self->device = get(m->device);
	self->batch = batch;
	self->device_type = m->device_type;
	self->device_id = m->device_id;
	return self;
}

/* DLPack: None and 1 are the default stream, 2 that of each thread, -1 none at all. Return: false, raised. */
static bool take_on(struct slot *self, PyObject *stream)
{
	long long number = 0;

	if (self->device_type != DL_CUDA)
		return true;
	if (stream != Py_None) {
		number = PyLong_AsLongLong(stream);
		if (number == -1)
			return !PyErr_Occurred();
		if (number == 1)
			number = 0;
	}
	if (self->taken && self->stream != number) {
		PyErr_SetString(PyExc_ValueError,
				"the batch was taken on another stream already; take it on one, "
				"and let the others wait for that");
		return false;
	}
	self->taken = true;
	self->stream = number;
	return true;
}

static PyObject *taken_on(PyObject *self, PyObject *stream)
{
	if (!take_on((struct slot *)self, stream))
		return NULL;
	Py_RETURN_NONE;
}

static PyMethodDef slot_methods[] = {
	{"taken_on", taken_on, METH_O, "taken_on($self, stream, /)\n--\n\n"},
	{NULL, NULL, 0, NULL},
};

static PyMemberDef slot_members[] = {
	{"dlpack_device", T_OBJECT_EX, offsetof(struct slot, device), READONLY, NULL},
	{NULL, 0, 0, 0, NULL},
};

static PyType_Slot slot_slots[] = {
	{Py_tp_dealloc, drop_slot},
	{Py_tp_methods, slot_methods},
	{Py_tp_members, slot_members},
	{0, NULL},
};

static PyType_Spec slot_spec = {
	.name = "headrace._core.Slot",
	.basicsize = sizeof(struct slot),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = slot_slots,
};

/* -- Tensor ------------------------------------------------------------------------------------ */

static void drop_tensor(PyObject *object)
{
	struct tensor *self = (struct tensor *)object;

	if (self->weak)
		PyObject_ClearWeakRefs(object);
	put(self->name);
	put(self->dtype);
	put(self->shape);
	put(self->strides);
	put(self->slot);
	free_object(object);
}

static struct tensor *new_tensor(PyTypeObject *type, struct slot *slot, const struct look *look)
{
	struct tensor *self = (struct tensor *)PyType_GenericAlloc(type, 0);

	if (!self)
		return NULL;
	self->slot = get(slot);
	self->name = get(look->name);
	self->dtype = get(look->dtype);
	self->shape = get(look->shape);
	self->strides = get(look->strides);
	return self;
}

static bool is_slot(PyObject *object)
{
	return (destructor)PyType_GetSlot(Py_TYPE(object), Py_tp_dealloc) == drop_slot;
}

/* Tensor(slot, name, dtype, shape, strides, address, host=0): in tp_new, so that none is half made. */
static PyObject *make_tensor(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	static char *keys[] = {"slot",    "name",    "dtype", "shape",
			       "strides", "address", "host",  NULL};
	unsigned long long address, host = 0;
	struct look look;
	struct tensor *self;
	enum hr_dtype dtype;
	const char *text;
	PyObject *slot;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OUUO!O!K|K", keys, &slot, &look.name,
					 &look.dtype, &PyTuple_Type, &look.shape, &PyTuple_Type,
					 &look.strides, &address, &host))
		return NULL;
	if (!is_slot(slot))
		return PyErr_Format(PyExc_TypeError, "a slot of a loader is needed");
	text = PyUnicode_AsUTF8AndSize(look.dtype, NULL);
	if (!text || hr_dtype_parse(text, &dtype))
		return PyErr_Format(PyExc_ValueError, "%S is no type of elements", look.dtype);
	self = new_tensor(type, (struct slot *)slot, &look);
	if (!self)
		return NULL;
	self->type = dtype;
	self->address = address;
	self->host = host;
	return (PyObject *)self;
}

/* __dlpack__(stream=None, **what newer consumers ask for): what is there, they look at themselves. */
static PyObject *dlpack_of(PyObject *object, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
	struct tensor *self = (struct tensor *)object;
	Py_ssize_t n_names = names ? PyTuple_Size(names) : 0;
	PyObject *stream = n > 0 ? args[0] : Py_None;

	if (n > 1) {
		PyErr_SetString(PyExc_TypeError, "__dlpack__() takes a stream and keywords");
		return NULL;
	}
	for (Py_ssize_t i = 0; i < n_names; i++) {
		if (!PyUnicode_CompareWithASCIIString(PyTuple_GetItem(names, i), "stream"))
			stream = args[n + i];
	}
	if (!take_on(self->slot, stream))
		return NULL;
	return headrace_leave((PyObject *)self->slot, self->address, self->type, self->shape,
			      self->strides, self->slot->device_type, self->slot->device_id);
}

/* The same where the CPU can read it. */
static PyObject *host_dlpack_of(PyObject *object, PyObject *args)
{
	struct tensor *self = (struct tensor *)object;

	return headrace_leave((PyObject *)self->slot, self->host, self->type, self->shape,
			      self->strides, DL_HOST, 0);
}

static PyObject *device_of(PyObject *object, PyObject *args)
{
	PyObject *device = ((struct tensor *)object)->slot->device;

	Py_INCREF(device);
	return device;
}

static PyMethodDef tensor_methods[] = {
	{"__dlpack__", (PyCFunction)(void (*)(void))dlpack_of, METH_FASTCALL | METH_KEYWORDS,
	 "__dlpack__($self, stream=None, **_newer)\n--\n\n"},
	{"__dlpack_device__", device_of, METH_NOARGS, "__dlpack_device__($self)\n--\n\n"},
	{"_host_dlpack", host_dlpack_of, METH_NOARGS, "_host_dlpack($self)\n--\n\n"},
	{NULL, NULL, 0, NULL},
};

static PyMemberDef tensor_members[] = {
	{"name", T_OBJECT_EX, offsetof(struct tensor, name), READONLY, NULL},
	{"dtype", T_OBJECT_EX, offsetof(struct tensor, dtype), READONLY, NULL},
	{"shape", T_OBJECT_EX, offsetof(struct tensor, shape), READONLY, NULL},
	{"strides", T_OBJECT_EX, offsetof(struct tensor, strides), READONLY, NULL},
	{"_slot", T_OBJECT_EX, offsetof(struct tensor, slot), READONLY, NULL},
	{"_address", T_ULONGLONG, offsetof(struct tensor, address), READONLY, NULL},
	{"_host", T_ULONGLONG, offsetof(struct tensor, host), READONLY, NULL},
	{"__weaklistoffset__", T_PYSSIZET, offsetof(struct tensor, weak), READONLY, NULL},
	{NULL, 0, 0, 0, NULL},
};

static PyType_Slot tensor_slots[] = {
	{Py_tp_new, make_tensor},
	{Py_tp_dealloc, drop_tensor},
	{Py_tp_methods, tensor_methods},
	{Py_tp_members, tensor_members},
	{0, NULL},
};

static PyType_Spec tensor_spec = {
	.name = "headrace._core.Tensor",
	.basicsize = sizeof(struct tensor),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
	.slots = tensor_slots,
};

/* -- Maker ------------------------------------------------------------------------------------- */

static void forget_look(struct look *look)
{
	put(look->name);
	put(look->dtype);
	put(look->shape);
	put(look->strides);
	*look = (struct look){0};
}

static void forget_looks(struct maker *m)
{
	for (uint32_t i = 0; i < m->n_looks; i++)
		forget_look(&m->looks[i]);
	free(m->looks);
	m->looks = NULL;
	m->n_looks = 0;
}

static void drop_maker(PyObject *object)
{
	struct maker *self = (struct maker *)object;

	forget_looks(self);
	for (int i = 0; i < N_NAMES; i++)
		put(self->names[i]);
	put(self->slot_type);
	put(self->ids_type);
	put(self->tensor_type);
	put(self->batch_type);
	put(self->gone);
	put(self->device);
	free_object(object);
}

/*
 * Maker(Tensor, Batch, gone, (device type, device id)): classes of Python, and what is called with (batch,
 * stream) of a batch that nobody has any more.
 */
static PyObject *make_maker(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	PyObject *module = PyType_GetModule(type);
	PyObject *tensor, *batch, *gone, *device;
	int device_type, device_id;
	struct maker *self;

	if (!module || !PyArg_ParseTuple(args, "O!O!OO!", &PyType_Type, &tensor, &PyType_Type,
					 &batch, &gone, &PyTuple_Type, &device))
		return NULL;
	if (!PyArg_ParseTuple(device, "ii", &device_type, &device_id))
		return NULL;
	if ((newfunc)PyType_GetSlot((PyTypeObject *)tensor, Py_tp_new) != make_tensor)
		return PyErr_Format(PyExc_TypeError, "a class made of _core.Tensor is needed");
	self = (struct maker *)PyType_GenericAlloc(type, 0);
	if (!self)
		return NULL;
	self->slot_type = (PyTypeObject *)PyObject_GetAttrString(module, "Slot");
	self->ids_type = (PyTypeObject *)PyObject_GetAttrString(module, "Ids");
	self->tensor_type = get(tensor);
	self->batch_type = get(batch);
	self->gone = get(gone);
	self->device = get(device);
	self->device_type = device_type;
	self->device_id = device_id;
	for (int i = 0; i < N_NAMES; i++)
		self->names[i] = PyUnicode_InternFromString(name_texts[i]);
	if (!PyErr_Occurred())
		return (PyObject *)self;
	put(self);
	return NULL;
}

static PyType_Slot maker_slots[] = {
	{Py_tp_new, make_maker},
	{Py_tp_dealloc, drop_maker},
	{0, NULL},
};

static PyType_Spec maker_spec = {
	.name = "headrace._core.Maker",
	.basicsize = sizeof(struct maker),
	.flags = Py_TPFLAGS_DEFAULT,
	.slots = maker_slots,
};

static bool looks_alike(const struct look *look, const struct hr_tensor *t)
{
	const struct hr_tensor *as = &look->as;

	return look->strides && as->name == t->name && as->dtype == t->dtype &&
	       as->ndim == t->ndim && !memcmp(as->shape, t->shape, t->ndim * sizeof(*t->shape)) &&
	       !memcmp(as->stride, t->stride, t->ndim * sizeof(*t->stride));
}

static bool refresh_look(struct look *look, const struct hr_tensor *t)
{
	if (looks_alike(look, t))
		return true;
	forget_look(look);
	look->as = *t;
	look->name = PyUnicode_InternFromString(t->name);
	look->dtype = PyUnicode_InternFromString(hr_dtype_name(t->dtype));
	look->shape = headrace_numbers(t->shape, t->ndim);
	look->strides = headrace_numbers(t->stride, t->ndim);
	if (look->name && look->dtype && look->shape && look->strides)
		return true;
	forget_look(look);
	return false;
}

static bool make_looks(struct maker *m, uint32_t n)
{
	if (m->n_looks == n)
		return true;
	forget_looks(m);
	m->looks = calloc(n, sizeof(*m->looks));
	if (m->looks)
		m->n_looks = n;
	else
		PyErr_NoMemory();
	return m->looks != NULL;
}

static bool add_tensors(struct maker *m, PyObject *out, struct slot *slot)
{
	const struct hr_batch *batch = slot->batch;

	if (!make_looks(m, batch->n_tensors))
		return false;
	for (uint32_t i = 0; i < batch->n_tensors; i++) {
		const struct hr_tensor *t = &batch->tensors[i];
		struct tensor *tensor;
		int ret;

		if (!refresh_look(&m->looks[i], t))
			return false;
		tensor = new_tensor(m->tensor_type, slot, &m->looks[i]);
		if (!tensor)
			return false;
		tensor->type = t->dtype;
		tensor->address = (uintptr_t)t->data;
		tensor->host = (uintptr_t)t->host;
		ret = PyDict_SetItem(out, m->looks[i].name, (PyObject *)tensor);
		put(tensor);
		if (ret)
			return false;
	}
	return true;
}

/* Takes over a reference to @value, or an exception if it is NULL. */
static bool set(struct maker *m, PyObject *out, int name, PyObject *value)
{
	int ret = value ? PyObject_SetAttr(out, m->names[name], value) : -1;

	put(value);
	return !ret;
}

PyObject *headrace_make_batch(PyObject *maker, PyObject *ring, const struct hr_batch *batch)
{
	struct maker *m = (struct maker *)maker;
	struct slot *slot = new_slot(m, ring, batch);
	PyObject *out = slot ? PyObject_CallNoArgs(m->batch_type) : NULL;
	bool whole = out && add_tensors(m, out, slot) &&
		     set(m, out, EPOCH, PyLong_FromUnsignedLongLong(batch->epoch)) &&
		     set(m, out, STEP, PyLong_FromUnsignedLongLong(batch->step)) &&
		     set(m, out, VALID, PyLong_FromUnsignedLong(batch->valid)) &&
		     set(m, out, IDS, get(slot->ids));

	/* The others are mostly what the class says. */
	if (whole && batch->max_seqlen)
		whole = set(m, out, MAX_SEQLEN, PyLong_FromUnsignedLong(batch->max_seqlen));
	if (whole && batch->last)
		whole = set(m, out, LAST, PyBool_FromLong(1));
	put(slot);
	if (whole)
		return out;
	put(out);
	return NULL;
}

bool headrace_is_maker(PyObject *object)
{
	return (newfunc)PyType_GetSlot(Py_TYPE(object), Py_tp_new) == make_maker;
}

/* -- the types --------------------------------------------------------------------------------- */

int headrace_add_types(PyObject *module)
{
	PyType_Spec *specs[] = {&ids_spec, &slot_spec, &tensor_spec, &maker_spec};
	int ret = 0;

	for (size_t i = 0; !ret && i < sizeof(specs) / sizeof(specs[0]); i++) {
		PyObject *type = PyType_FromModuleAndSpec(module, specs[i], NULL);

		ret = type ? PyModule_AddType(module, (PyTypeObject *)type) : -1;
		put(type);
	}
	return ret;
}
