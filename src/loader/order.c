/* SPDX-License-Identifier: Apache-2.0 */
/* loader/order.c - plans, windows and mixtures on top of keyed permutations; pure, see order.h. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/fail.h"
#include "base/util.h"
#include "loader/mixture.h"
#include "loader/order.h"
#include "loader/perm.h"
#include "loader/shards.h"

/* Numbers of positions over all epochs of a mixture. */
typedef unsigned __int128 wide_t;

/* What a key is for goes into it: any constants, but never others. */
enum salt {
	SALT_SHARDS = 0x73686172,
	SALT_WINDOW = 0x77696e64,
	SALT_STRIPE = 0x73747269,
	SALT_KID = 0x6b696473,
};

/* A dataset that is walked through in an order of its own: all, or a kid of a mixture. */
struct track {
	uint64_t seed;
	uint64_t first; /* number of its first sample */
	uint64_t samples;
	struct hr__shards shards; /* empty without windows */
};

struct hr__order_plan {
	uint64_t samples; /* of an epoch */
	uint64_t seed;
	enum hr_shuffle shuffle;
	uint32_t window;
	struct hr__mixture *mix; /* or NULL */
	uint32_t n_tracks;
	struct track tracks[];
};

/* Where on a track one is. */
struct walk {
	bool set;
	uint64_t epoch;
	struct hr__perm perm; /* of all samples, or of those of a window */
	/* windows: */
	uint64_t key; /* of the epoch's windows */
	uint64_t *
		starts; /* per shard in the epoch's order: its first position; one more at the end */
	uint32_t *shards;   /* which one it is */
	uint32_t low, high; /* shards of the window that perm is of; none if equal */
};

struct hr__order {
	const struct hr__order_plan *plan;
	bool set;
	uint64_t epoch;
	wide_t base; /* mixtures: number of the epoch's first position */
	bool stripe_set;
	wide_t stripe_at;
	struct hr__stripe stripe;
	struct walk walks[]; /* one a track */
};

/* -- plan ------------------------------------------------------------------------------------ */

static int set_track(struct track *track, const struct hr_dataset *ds, uint64_t first,
		     uint64_t seed, bool windows)
{
	track->seed = seed;
	track->first = first;
	track->samples = ds->info.samples;
	return windows ? hr__shards_find(ds, &track->shards) : 0;
}

static int set_tracks(struct hr__order_plan *plan, const struct hr_dataset *ds)
{
	bool windows = plan->shuffle == HR_SHUFFLE_WINDOW;
	uint64_t seed = hr__perm_key(plan->seed, SALT_KID);
	int rc = 0;

	if (!ds->weights)
		return set_track(&plan->tracks[0], ds, 0, plan->seed, windows);
	plan->mix = malloc(sizeof(*plan->mix));
	if (!plan->mix)
		return -ENOMEM;
	hr__mixture_init(plan->mix, ds->weights, ds->n_kids);
	for (uint32_t i = 0; i < ds->n_kids && rc == 0; i++)
		rc = set_track(&plan->tracks[i], ds->kids[i], ds->kid_first[i],
			       hr__perm_key(seed, i), windows);
	return rc;
}

static int check_options(const struct hr_loader_options *opts)
{
	if ((unsigned int)opts->shuffle > HR_SHUFFLE_WINDOW)
		return hr__fail(EINVAL, "shuffle %d: not a known choice", (int)opts->shuffle);
	if (opts->window && opts->shuffle != HR_SHUFFLE_WINDOW)
		return hr__fail(EINVAL,
				"window %" PRIu32 ": only where samples are shuffled within "
				"windows; set shuffle so, or window to 0",
				opts->window);
	return 0;
}

int hr__order_plan_new(const struct hr_dataset *ds, const struct hr_loader_options *opts,
		       struct hr__order_plan **out)
{
	uint32_t n = ds->weights ? ds->n_kids : 1;
	struct hr__order_plan *plan;
	int rc = check_options(opts);

	if (rc < 0)
		return rc;
	plan = calloc(1, sizeof(*plan) + n * sizeof(plan->tracks[0]));
	if (plan) {
		plan->samples = ds->weights ? ds->epoch : ds->info.samples;
		plan->seed = opts->seed;
		plan->shuffle = opts->shuffle;
		if (plan->shuffle == HR_SHUFFLE_WINDOW)
			plan->window = opts->window ? opts->window : HR__WINDOW_DEFAULT;
		plan->n_tracks = n;
		rc = set_tracks(plan, ds);
	}
	if (!plan || rc < 0) {
		hr__order_plan_free(plan);
		return hr__fail(ENOMEM, "order: no memory for the shards of %" PRIu64 " samples",
				ds->info.samples);
	}
	*out = plan;
	return 0;
}

void hr__order_plan_free(struct hr__order_plan *plan)
{
	if (!plan)
		return;
	for (uint32_t i = 0; i < plan->n_tracks; i++)
		free(plan->tracks[i].shards.first);
	free(plan->mix);
	free(plan);
}

uint64_t hr__order_plan_samples(const struct hr__order_plan *plan)
{
	return plan->samples;
}

uint32_t hr__order_plan_window(const struct hr__order_plan *plan)
{
	return plan->window;
}

/* -- scratch --------------------------------------------------------------------------------- */

struct hr__order *hr__order_new(const struct hr__order_plan *plan)
{
	struct hr__order *order =
		calloc(1, sizeof(*order) + plan->n_tracks * sizeof(order->walks[0]));

	if (!order)
		return NULL;
	order->plan = plan;
	for (uint32_t i = 0; i < plan->n_tracks && plan->window; i++) {
		struct walk *walk = &order->walks[i];
		size_t n = plan->tracks[i].shards.n;

		walk->starts = malloc((n + 1) * sizeof(*walk->starts));
		walk->shards = malloc(n * sizeof(*walk->shards));
		if (!walk->starts || !walk->shards) {
			hr__order_free(order);
			return NULL;
		}
	}
	return order;
}

void hr__order_free(struct hr__order *order)
{
	if (!order)
		return;
	for (uint32_t i = 0; i < order->plan->n_tracks; i++) {
		free(order->walks[i].starts);
		free(order->walks[i].shards);
	}
	free(order);
}

/* -- one track ------------------------------------------------------------------------------- */

/* The epoch's order of the shards, and where each of them begins in it. */
static void lay_shards(const struct track *track, struct walk *walk)
{
	const struct hr__shards *shards = &track->shards;
	uint64_t key = hr__perm_key(hr__perm_key(track->seed, SALT_SHARDS), walk->epoch), at = 0;
	struct hr__perm perm;

	hr__perm_init(&perm, shards->n, key);
	hr__perm_run(&perm, 0, shards->n, walk->starts);
	for (uint32_t i = 0; i < shards->n; i++) {
		uint32_t shard = (uint32_t)walk->starts[i];

		walk->shards[i] = shard;
		walk->starts[i] = at;
		at += shards->first[shard + 1] - shards->first[shard];
	}
	walk->starts[shards->n] = at;
	walk->key = hr__perm_key(hr__perm_key(track->seed, SALT_WINDOW), walk->epoch);
	walk->low = walk->high = 0;
}

static void walk_begin(const struct hr__order_plan *plan, const struct track *track,
		       struct walk *walk, uint64_t epoch)
{
	if (walk->set && walk->epoch == epoch)
		return;
	walk->set = true;
	walk->epoch = epoch;
	if (plan->shuffle == HR_SHUFFLE_FULL)
		hr__perm_init(&walk->perm, track->samples, hr__perm_key(track->seed, epoch));
	if (plan->shuffle == HR_SHUFFLE_WINDOW)
		lay_shards(track, walk);
}

/* Go to the window that @position is in. */
static void find_window(const struct hr__order_plan *plan, const struct track *track,
			struct walk *walk, uint64_t position)
{
	uint32_t n = track->shards.n, number;

	if (walk->low < walk->high && walk->starts[walk->low] <= position &&
	    position < walk->starts[walk->high])
		return;
	number = hr__last_from(walk->starts, n, position) / plan->window;
	walk->low = number * plan->window;
	walk->high = n - walk->low < plan->window ? n : walk->low + plan->window;
	hr__perm_init(&walk->perm, walk->starts[walk->high] - walk->starts[walk->low],
		      hr__perm_key(walk->key, number));
}

static void run_windows(const struct hr__order_plan *plan, const struct track *track,
			struct walk *walk, uint64_t first, uint32_t n, uint64_t *out)
{
	while (n > 0) {
		uint64_t begin, end;
		uint32_t count;

		find_window(plan, track, walk, first);
		begin = walk->starts[walk->low];
		end = walk->starts[walk->high];
		count = (uint32_t)hr__min(n, end - first);
		hr__perm_run(&walk->perm, first - begin, count, out);
		for (uint32_t i = 0; i < count; i++) {
			uint64_t at = begin + out[i];
			uint32_t k = walk->low + hr__last_from(walk->starts + walk->low,
							       walk->high - walk->low, at);

			out[i] = track->shards.first[walk->shards[k]] + at - walk->starts[k];
		}
		first += count;
		out += count;
		n -= count;
	}
}

static void run_track(const struct hr__order_plan *plan, const struct track *track,
		      struct walk *walk, uint64_t first, uint32_t n, uint64_t *out)
{
	switch (plan->shuffle) {
	case HR_SHUFFLE_FULL:
		hr__perm_run(&walk->perm, first, n, out);
		break;
	case HR_SHUFFLE_WINDOW:
		run_windows(plan, track, walk, first, n, out);
		break;
	case HR_SHUFFLE_NONE:
		for (uint32_t i = 0; i < n; i++)
			out[i] = first + i;
		break;
	}
}

/* -- mixtures -------------------------------------------------------------------------------- */

/* Beyond 2^64, numbers of stripes and of kids' epochs give the keys of smaller ones again. */
static void find_stripe(struct hr__order *order, wide_t number)
{
	const struct hr__order_plan *plan = order->plan;
	uint32_t in_block = (uint32_t)number % (HR__MIX_BLOCK / HR__MIX_STRIPE);

	if (order->stripe_set && order->stripe_at == number)
		return;
	order->stripe_set = true;
	order->stripe_at = number;
	hr__mixture_stripe(plan->mix, in_block, plan->shuffle == HR_SHUFFLE_NONE,
			   hr__perm_key(hr__perm_key(plan->seed, SALT_STRIPE), (uint64_t)number),
			   &order->stripe);
}

static uint64_t mixed_sample(struct hr__order *order, wide_t number)
{
	const struct hr__order_plan *plan = order->plan;
	uint32_t at = (uint32_t)number % HR__MIX_STRIPE, kid;
	const struct track *track;
	uint64_t id;
	wide_t rank, epoch;

	find_stripe(order, number / HR__MIX_STRIPE);
	kid = order->stripe.kid[at];
	track = &plan->tracks[kid];
	rank = number / HR__MIX_BLOCK * plan->mix->shares[kid] + order->stripe.rank[at];
	epoch = rank / track->samples;
	walk_begin(plan, track, &order->walks[kid], (uint64_t)epoch);
	run_track(plan, track, &order->walks[kid], (uint64_t)(rank - epoch * track->samples), 1,
		  &id);
	return track->first + id;
}

void hr__order_begin(struct hr__order *order, uint64_t epoch)
{
	const struct hr__order_plan *plan = order->plan;

	if (order->set && order->epoch == epoch)
		return;
	order->set = true;
	order->epoch = epoch;
	order->base = (wide_t)epoch * plan->samples;
	if (!plan->mix)
		walk_begin(plan, &plan->tracks[0], &order->walks[0], epoch);
}

void hr__order_run(struct hr__order *order, uint64_t first, uint32_t n, uint64_t *out)
{
	const struct hr__order_plan *plan = order->plan;

	assert(order->set && n <= plan->samples && first <= plan->samples - n);
	if (!plan->mix) {
		run_track(plan, &plan->tracks[0], &order->walks[0], first, n, out);
		return;
	}
	for (uint32_t i = 0; i < n; i++)
		out[i] = mixed_sample(order, order->base + first + i);
}
