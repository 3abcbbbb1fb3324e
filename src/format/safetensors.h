/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format/safetensors.h - the header of a safetensors file, read and written, and the index of a set of
 * them. Bytes in, bytes out: no I/O.
 *
 * A file is u64 N, little-endian; N bytes of JSON; the tensors, one after the other without holes.
 */
#ifndef HR_FORMAT_SAFETENSORS_H
#define HR_FORMAT_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <headrace/checkpoint.h>

#define HR__ST_LENGTH_BYTES 8u
#define HR__ST_HEADER_MAX 100000000u /* bytes of JSON, as the reference implementation has it */

struct hr__st_tensor {
	const char *name;
	const uint64_t *shape;
	uint64_t begin, end; /* bytes, from the first one behind the header */
	uint32_t ndim;
	enum hr_weight_type type;
	uint32_t number; /* passed through by hr__st_build(): the caller's */
};

/* A parsed header. Pointers lead into its own memory. */
struct hr__st {
	struct hr__st_tensor *tensors; /* by offset */
	uint32_t n_tensors;
	uint32_t *by_name; /* numbers of tensors in the order of their names */
	struct hr_save_pair *metadata;
	uint32_t n_metadata;
	uint64_t data_off, data_len; /* bytes of the file */
	uint64_t *dims;
	char *text;
};

/*
 * hr__st_length() - the length of the header out of a file's first bytes.
 * @head: the first @len bytes of the file, as many as there are up to 64 or more.
 * Return: 0 and *@out, or -HR_E_BAD_FORMAT with a sentence.
 */
int hr__st_length(const char *name, const void *head, size_t len, uint64_t file_size,
		  uint64_t *out);

/*
 * hr__st_parse() - read and check a header: every rule of the format, each with its own sentence.
 * @json: its @len bytes, without the length before it. @lenient: bytes behind the last tensor are
 * allowed. Takes memory in proportion to @len.
 * Return: 0, -HR_E_BAD_FORMAT, -HR_E_BAD_DTYPE, -ENOMEM; *out is zeroed on failure.
 */
int hr__st_parse(const char *name, const void *json, size_t len, uint64_t file_size, bool lenient,
		 struct hr__st *out);

/* hr__st_free() - accepts a zeroed header. */
void hr__st_free(struct hr__st *st);

/* hr__st_bytes() - bytes of a tensor. Return: 0, or a clause that says what is wrong; static. */
const char *hr__st_bytes(enum hr_weight_type type, const uint64_t *shape, uint32_t ndim,
			 uint64_t *out);

/*
 * hr__st_build() - the header that the reference implementation writes, its length before it.
 * @tensors: name, type and shape are given; they are sorted into the order of the file, and begin and
 *           end are set. @name: of the file, for sentences.
 * Return: 0, -EINVAL, -EOVERFLOW, -ENOMEM; the caller frees *@out.
 */
int hr__st_build(const char *name, struct hr__st_tensor *tensors, uint32_t n,
		 const struct hr_save_pair *metadata, uint64_t n_metadata, char **out, size_t *len);

/* One line of an index: the tensor @name lies in @file, a name without folders. */
struct hr__st_place {
	const char *name, *file;
};

struct hr__st_index {
	struct hr__st_place *places; /* by name */
	uint32_t n_places;
	char *text;
};

/*
 * hr__st_index_parse() - model.safetensors.index.json.
 * Return: 0, -HR_E_BAD_FORMAT, -ENOMEM; *out is zeroed on failure.
 */
int hr__st_index_parse(const char *name, const void *json, size_t len, struct hr__st_index *out);

/* hr__st_index_find() - the file of a tensor, or NULL. */
const char *hr__st_index_find(const struct hr__st_index *index, const char *name);

void hr__st_index_free(struct hr__st_index *index);

/* Room for @need elements of @size bytes. Return: 0 or -ENOMEM with a sentence. */
int hr__st_grow(const char *name, void **array, uint64_t *room, uint64_t need, size_t size);

/*
 * hr__st_twice() - a text that appears twice, or NULL. @array: @n structs of @size bytes whose first
 * member is the text. Return: 0 and *@twice, or -ENOMEM with a sentence.
 */
int hr__st_twice(const char *name, const void *array, uint64_t n, size_t size, const char **twice);

#endif
