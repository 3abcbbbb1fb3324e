/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loader/state.c - encodes and checks the saved state; pure.
 *
 * Layout, little-endian: magic[8], version u32, shuffle u32, fingerprint u64, samples u64, seed u64,
 * epoch u64, position u64, window u32, zero[28], XXH64 of all before it u64. Version 1 had zeros for the
 * window and knew no shuffle that needs one; all else means the same.
 */
#include <inttypes.h>
#include <string.h>
#include <xxhash.h>

#include "base/fail.h"
#include "loader/state.h"

#define VERSION 2u
#define EPOCH_MAX (1ull << 62)

enum {
	AT_VERSION = 8,
	AT_SHUFFLE = 12,
	AT_FINGERPRINT = 16,
	AT_SAMPLES = 24,
	AT_SEED = 32,
	AT_EPOCH = 40,
	AT_POSITION = 48,
	AT_WINDOW = 56,
	AT_ZERO = 60,
	AT_CHECKSUM = 88,
};

_Static_assert(AT_CHECKSUM + 8 == HR_LOADER_STATE_BYTES, "the record is what the header says");

static const char magic[8] = {'H', 'R', 'S', 'T', 'A', 'T', 'E', '\n'};

static void put(unsigned char *p, uint64_t value, int bytes)
{
	for (int i = 0; i < bytes; i++)
		p[i] = (unsigned char)(value >> (8 * i));
}

static uint64_t get(const unsigned char *p, int bytes)
{
	uint64_t value = 0;

	for (int i = 0; i < bytes; i++)
		value |= (uint64_t)p[i] << (8 * i);
	return value;
}

void hr__state_encode(const struct hr__state *state, void *buf)
{
	unsigned char *p = buf;

	memset(p, 0, HR_LOADER_STATE_BYTES);
	memcpy(p, magic, sizeof(magic));
	put(p + AT_VERSION, VERSION, 4);
	put(p + AT_SHUFFLE, state->shuffle, 4);
	put(p + AT_FINGERPRINT, state->fingerprint, 8);
	put(p + AT_SAMPLES, state->samples, 8);
	put(p + AT_SEED, state->seed, 8);
	put(p + AT_EPOCH, state->epoch, 8);
	put(p + AT_POSITION, state->position, 8);
	put(p + AT_WINDOW, state->window, 4);
	put(p + AT_CHECKSUM, XXH64(p, AT_CHECKSUM, 0), 8);
}

static int check_version(const unsigned char *p)
{
	uint64_t version = get(p + AT_VERSION, 4);

	if (version < 1 || version > VERSION)
		return hr__fail(
			HR_E_BAD_STATE,
			"saved state: version %" PRIu64
			", this library reads versions 1 to %u; use the release that wrote it",
			version, VERSION);
	for (int i = version == 1 ? AT_WINDOW : AT_ZERO; i < AT_CHECKSUM; i++) {
		if (p[i])
			return hr__fail(HR_E_BAD_STATE, "saved state: its reserved bytes are used; "
							"a later release wrote it");
	}
	return 0;
}

static int check_frame(const unsigned char *p, size_t size)
{
	if (size != HR_LOADER_STATE_BYTES)
		return hr__fail(
			HR_E_BAD_STATE,
			"saved state: has %zu bytes, a state has %d; was it written in full?", size,
			HR_LOADER_STATE_BYTES);
	if (memcmp(p, magic, sizeof(magic)) != 0)
		return hr__fail(HR_E_BAD_STATE,
				"saved state: does not begin as one; is it another file?");
	if (get(p + AT_CHECKSUM, 8) != XXH64(p, AT_CHECKSUM, 0))
		return hr__fail(
			HR_E_BAD_STATE,
			"saved state: its checksum is wrong; it is damaged, take an older one");
	return check_version(p);
}

int hr__state_decode(const void *buf, size_t size, struct hr__state *out)
{
	const unsigned char *p = buf;
	struct hr__state state;
	uint64_t shuffle;
	int rc = check_frame(p, size);

	if (rc < 0)
		return rc;
	shuffle = get(p + AT_SHUFFLE, 4);
	state.fingerprint = get(p + AT_FINGERPRINT, 8);
	state.samples = get(p + AT_SAMPLES, 8);
	state.seed = get(p + AT_SEED, 8);
	state.epoch = get(p + AT_EPOCH, 8);
	state.position = get(p + AT_POSITION, 8);
	state.window = (uint32_t)get(p + AT_WINDOW, 4);
	if (shuffle > HR_SHUFFLE_WINDOW || (shuffle == HR_SHUFFLE_WINDOW) != (state.window > 0) ||
	    state.position > state.samples || state.epoch > EPOCH_MAX)
		return hr__fail(HR_E_BAD_STATE,
				"saved state: shuffle %" PRIu64 ", window %" PRIu32
				", epoch %" PRIu64 ", position %" PRIu64 " of %" PRIu64
				" samples make no sense",
				shuffle, state.window, state.epoch, state.position, state.samples);
	state.shuffle = (enum hr_shuffle)shuffle;
	*out = state;
	return 0;
}

static const char *shuffle_name(enum hr_shuffle shuffle)
{
	static const char *const names[] = {[HR_SHUFFLE_FULL] = "full",
					    [HR_SHUFFLE_NONE] = "none",
					    [HR_SHUFFLE_WINDOW] = "window"};

	return names[shuffle];
}

int hr__state_match(const struct hr__state *saved, const struct hr__state *own)
{
	if (saved->samples != own->samples)
		return hr__fail(HR_E_BAD_STATE,
				"saved state: belongs to a dataset of %" PRIu64
				" samples, this one has %" PRIu64
				"; open the same files with the same seq_len and stride",
				saved->samples, own->samples);
	if (saved->fingerprint != own->fingerprint)
		return hr__fail(HR_E_BAD_STATE,
				"saved state: belongs to a dataset with fingerprint %016" PRIx64
				", this one has %016" PRIx64
				"; open the same files, in the same order, with the same options",
				saved->fingerprint, own->fingerprint);
	if (saved->seed != own->seed)
		return hr__fail(HR_E_BAD_STATE,
				"saved state: was made with seed %" PRIu64
				", this loader has seed %" PRIu64 "; open it with the saved one",
				saved->seed, own->seed);
	if (saved->shuffle != own->shuffle)
		return hr__fail(
			HR_E_BAD_STATE,
			"saved state: was made with shuffle %s, this loader has %s; open it "
			"with the saved one",
			shuffle_name(saved->shuffle), shuffle_name(own->shuffle));
	if (saved->window != own->window)
		return hr__fail(HR_E_BAD_STATE,
				"saved state: was made with windows of %" PRIu32
				" shards, this loader has windows of %" PRIu32
				"; open it with the saved size",
				saved->window, own->window);
	return 0;
}
