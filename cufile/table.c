/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cufile/table.c - handles are numbers: a place, how often it was used, and a kind. So a stale or an
 * invented handle is found out without touching memory. Knows nothing of what the objects are.
 */
#include <errno.h>
#include <stdlib.h>

#include "cufile/inside.h"

#define PLACE_BITS 20
#define PLACES_MAX (1u << PLACE_BITS)
#define KIND_BITS 4
#define USE_SHIFT (PLACE_BITS + KIND_BITS)

struct place {
	struct cf_object *object; /* NULL: free */
	enum cf_kind kind;
	uint32_t use; /* never 0 once it was taken */
	uint32_t next_free;
};

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static struct place *places;
static uint32_t n_places, first_free = UINT32_MAX;

void cf_object_init(struct cf_object *object, void (*destroy)(struct cf_object *object))
{
	atomic_init(&object->refs, 1);
	object->destroy = destroy;
}

void cf_object_get(struct cf_object *object)
{
	atomic_fetch_add_explicit(&object->refs, 1, memory_order_relaxed);
}

void cf_object_put(struct cf_object *object)
{
	if (object && atomic_fetch_sub_explicit(&object->refs, 1, memory_order_acq_rel) == 1)
		object->destroy(object);
}

static void *id_of(uint32_t i)
{
	uint64_t id = ((uint64_t)places[i].use << USE_SHIFT) | ((uint64_t)i << KIND_BITS) |
		      (uint64_t)places[i].kind;

	return (void *)(uintptr_t)id;
}

/* With the lock held. NULL: no such handle now. */
static struct place *place_of(enum cf_kind kind, const void *id)
{
	uint64_t n = (uintptr_t)id;
	uint32_t i = (uint32_t)(n >> KIND_BITS) & (PLACES_MAX - 1);

	if (i >= n_places || !places[i].object || places[i].kind != kind || id_of(i) != id)
		return NULL;
	return &places[i];
}

static int grow(void)
{
	uint32_t n = n_places ? 2 * n_places : 64;
	struct place *more;

	if (n > PLACES_MAX)
		return -ENOMEM;
	more = realloc(places, n * sizeof(*more));
	if (!more)
		return -ENOMEM;
	places = more;
	for (uint32_t i = n; i-- > n_places;) {
		places[i] = (struct place){.next_free = first_free};
		first_free = i;
	}
	n_places = n;
	return 0;
}

int cf_table_add(enum cf_kind kind, struct cf_object *object, void **id)
{
	struct place *place;
	int ret = 0;

	pthread_rwlock_wrlock(&lock);
	if (first_free == UINT32_MAX)
		ret = grow();
	if (!ret) {
		place = &places[first_free];
		first_free = place->next_free;
		place->object = object;
		place->kind = kind;
		place->use++;
		if (!place->use) /* after 2^32 handles */
			place->use = 1;
		*id = id_of((uint32_t)(place - places));
	}
	pthread_rwlock_unlock(&lock);
	return ret;
}

struct cf_object *cf_table_get(enum cf_kind kind, const void *id)
{
	struct cf_object *object = NULL;
	struct place *place;

	pthread_rwlock_rdlock(&lock);
	place = place_of(kind, id);
	if (place) {
		object = place->object;
		cf_object_get(object);
	}
	pthread_rwlock_unlock(&lock);
	return object;
}

static struct cf_object *vacate(struct place *place)
{
	struct cf_object *object = place->object;

	place->object = NULL;
	place->next_free = first_free;
	first_free = (uint32_t)(place - places);
	return object;
}

struct cf_object *cf_table_take(enum cf_kind kind, const void *id)
{
	struct cf_object *object = NULL;
	struct place *place;

	pthread_rwlock_wrlock(&lock);
	place = place_of(kind, id);
	if (place)
		object = vacate(place);
	pthread_rwlock_unlock(&lock);
	return object;
}

bool cf_table_find(enum cf_kind kind, bool (*match)(struct cf_object *object, const void *arg),
		   const void *arg)
{
	bool found = false;

	pthread_rwlock_rdlock(&lock);
	for (uint32_t i = 0; i < n_places && !found; i++)
		found = places[i].object && places[i].kind == kind && match(places[i].object, arg);
	pthread_rwlock_unlock(&lock);
	return found;
}

/* One at a time: what an object does when it goes may take a while. */
void cf_table_clear(enum cf_kind kind)
{
	for (;;) {
		struct cf_object *object = NULL;

		pthread_rwlock_wrlock(&lock);
		for (uint32_t i = 0; i < n_places && !object; i++) {
			if (places[i].object && places[i].kind == kind)
				object = vacate(&places[i]);
		}
		pthread_rwlock_unlock(&lock);
		if (!object)
			return;
		cf_object_put(object);
	}
}

void cf_table_lock(void)
{
	pthread_rwlock_wrlock(&lock);
}

void cf_table_unlock(void)
{
	pthread_rwlock_unlock(&lock);
}

void cf_table_forked(void)
{
	static const pthread_rwlock_t fresh = PTHREAD_RWLOCK_INITIALIZER;

	lock = fresh;
}
