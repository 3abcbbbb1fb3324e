/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_lane - lanes on "host" and on "cuda:0" (tests/fakecuda) by one body: every direction, every
 * conversion, odd addresses, equal and unequal pieces, with guard bytes; tickets under delay; the
 * ring of lists; callbacks; several threads with lanes of their own.
 */
#include "fake_control.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>

#include <headrace/error.h>

#include "base/util.h"
#include "mem/cuda.h"
#include "mem/mem.h"

#define SECOND 1000000000ull

static const char *const names[] = {"host", "cuda:0"};

struct rig {
	struct hr_device *dev;
	struct hr_lane *lane;
	struct hr_buffer *buf;
	uint8_t *ring; /* pinned */
	uint64_t ring_len;
};

static void rig_open(struct rig *r, const char *name, uint64_t ring_len, uint64_t buf_len)
{
	void *seen;

	r->ring_len = ring_len;
	r->ring = mmap(NULL, ring_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(r->ring, MAP_FAILED);
	assert_int_equal(hr_device_open(name, &r->dev), 0);
	assert_int_equal(r->dev->ops->pin(r->dev, r->ring, ring_len, 0, &seen), 0);
	assert_int_equal(hr_buffer_alloc(r->dev, buf_len, &r->buf), 0);
	assert_int_equal(hr_lane_open(r->dev, NULL, &r->lane), 0);
}

static void rig_close(struct rig *r)
{
	hr_lane_close(r->lane);
	assert_int_equal(hr_buffer_free(r->buf), 0);
	r->dev->ops->unpin(r->dev, r->ring, r->ring_len);
	munmap(r->ring, r->ring_len);
	hr_device_close(r->dev);
}

static uint32_t next_random(uint32_t *x)
{
	*x ^= *x << 13;
	*x ^= *x >> 17;
	*x ^= *x << 5;
	return *x;
}

static void fill(uint8_t *p, uint64_t len, uint32_t seed)
{
	for (uint64_t i = 0; i < len; i++)
		p[i] = (uint8_t)next_random(&seed);
}

static int move_and_wait(struct rig *r, enum hr__where where, const struct hr__move *moves,
			 uint32_t n, enum hr_dtype from, enum hr_dtype to)
{
	uint64_t ticket, passed;
	int ret = r->lane->ops->move(r->lane, where, moves, n, from, to, &ticket);

	if (ret < 0)
		return ret;
	assert_int_equal(r->lane->ops->wait(r->lane, ticket, 30 * SECOND), 0);
	assert_int_equal(r->lane->ops->poll(r->lane, &passed), 0);
	assert_true(passed >= ticket);
	return ret;
}

struct shape {
	enum hr_dtype from, to;
	uint32_t pieces, elements;
	uint32_t src_off, dst_off; /* of the first piece */
	bool unequal;
};

/*
 * Pieces from scattered places of the ring to scattered places of the buffer, each @gap bytes from
 * the next so that guards lie in between; all of the buffer is compared.
 */
static void check_gather(struct rig *r, const struct shape *s)
{
	uint32_t from = hr_dtype_size(s->from), to = hr_dtype_size(s->to);
	uint64_t src_step = (uint64_t)s->elements * from + 5, dst_step = s->elements * to + 48;
	uint64_t len = hr_buffer_len(r->buf);
	struct hr__move *moves = calloc(s->pieces, sizeof(*moves));
	uint8_t *want = malloc(len), *got = malloc(len), *base = hr_buffer_address(r->buf);

	memset(want, 0xee, len);
	assert_int_equal(hr_buffer_copy_in(r->buf, 0, want, len), 0);
	for (uint32_t i = 0; i < s->pieces; i++) {
		uint64_t src = s->src_off + (uint64_t)(s->pieces - 1 - i) * src_step;
		uint64_t dst = s->dst_off + i * dst_step;
		uint64_t bytes =
			(uint64_t)(s->unequal ? i * 7 % (s->elements + 1) : s->elements) * from;

		assert_true(src + bytes <= r->ring_len && dst + bytes / from * to <= len);
		moves[i] = (struct hr__move){r->ring + src, base + dst, bytes};
		hr__cast(want + dst, r->ring + src, bytes, s->from, s->to);
	}
	assert_true(move_and_wait(r, HR__HOST_TO_DEVICE, moves, s->pieces, s->from, s->to) >= 0);
	assert_int_equal(hr_buffer_copy_out(r->buf, 0, got, len), 0);
	assert_memory_equal(got, want, len);
	free(moves);
	free(want);
	free(got);
}

static const struct {
	enum hr_dtype from, to;
} casts[] = {
	{HR_DTYPE_BYTES, HR_DTYPE_BYTES}, {HR_DTYPE_U16, HR_DTYPE_U16},
	{HR_DTYPE_U8, HR_DTYPE_I32},      {HR_DTYPE_U16, HR_DTYPE_I32},
	{HR_DTYPE_U32, HR_DTYPE_I32},     {HR_DTYPE_U8, HR_DTYPE_I64},
	{HR_DTYPE_U16, HR_DTYPE_I64},     {HR_DTYPE_U32, HR_DTYPE_I64},
	{HR_DTYPE_F16, HR_DTYPE_BF16},    {HR_DTYPE_F16, HR_DTYPE_F32},
	{HR_DTYPE_BF16, HR_DTYPE_F16},    {HR_DTYPE_BF16, HR_DTYPE_F32},
	{HR_DTYPE_F32, HR_DTYPE_F16},     {HR_DTYPE_F32, HR_DTYPE_BF16},
	{HR_DTYPE_F32, HR_DTYPE_F64},     {HR_DTYPE_F64, HR_DTYPE_F32},
	{HR_DTYPE_I8, HR_DTYPE_I32},      {HR_DTYPE_I16, HR_DTYPE_I32},
	{HR_DTYPE_I8, HR_DTYPE_I64},      {HR_DTYPE_I16, HR_DTYPE_I64},
	{HR_DTYPE_I32, HR_DTYPE_I64},
};

/* Every alignment of both ends (for the two main kernels; the others share their code, so a
 * sample), short pieces whose edges meet. */
static void test_gather_alignments(void **state)
{
	for (int d = 0; d < 2; d++) {
		struct rig r;

		rig_open(&r, names[d], 1 << 16, 4096);
		fill(r.ring, r.ring_len, 99);
		for (size_t c = 0; c < HR_ARRAY_LEN(casts); c++) {
			for (uint32_t at = 0; at < 256; at += c % 6 ? 7 : 1) {
				struct shape s = {casts[c].from, casts[c].to, 3,    at * 5 % 61,
						  at % 16,       at / 16,     false};

				check_gather(&r, &s);
			}
		}
		rig_close(&r);
	}
}

#define NUMBERS 65536u

/* What random bytes hardly ever are: all numbers of 16 bits, all exponents of the others. */
static void fill_numbers(uint8_t *p, uint32_t size)
{
	for (uint64_t i = 0; i < NUMBERS; i++) {
		uint64_t bits = i;

		if (size > 2)
			bits = i << (8 * size - 16) | i * 0x9e3779b97f4bull >> (64 - 8 * size + 16);
		memcpy(p + i * size, &bits, size);
	}
}

/* Up from an odd address, down to another. */
static void check_numbers(struct rig *r, enum hr_dtype from, enum hr_dtype to, uint8_t *want)
{
	uint64_t in = NUMBERS * hr_dtype_size(from), out = NUMBERS * hr_dtype_size(to);
	uint8_t *src = r->ring + 1, *down = r->ring + r->ring_len / 2;
	void *base = hr_buffer_address(r->buf);
	struct hr__move up = {src, base, in}, back = {base, down + 3, in};

	fill_numbers(src, hr_dtype_size(from));
	hr__cast(want, src, in, from, to);
	assert_true(move_and_wait(r, HR__HOST_TO_DEVICE, &up, 1, from, to) > 0);
	assert_int_equal(hr_buffer_copy_out(r->buf, 0, down, out), 0);
	assert_memory_equal(down, want, out);
	assert_int_equal(hr_buffer_copy_in(r->buf, 0, src, in), 0);
	memset(down, 0xee, out + 8);
	assert_true(move_and_wait(r, HR__DEVICE_TO_HOST, &back, 1, from, to) > 0);
	assert_memory_equal(down + 3, want, out);
	assert_int_equal(down[2], 0xee);
	assert_int_equal(down[3 + out], 0xee);
}

static void test_numbers(void **state)
{
	uint8_t *want = malloc(NUMBERS * 8);

	for (int d = 0; d < 2; d++) {
		struct rig r;

		rig_open(&r, names[d], 2 * NUMBERS * 8 + 8192, NUMBERS * 8);
		for (size_t c = 0; c < HR_ARRAY_LEN(casts); c++)
			check_numbers(&r, casts[c].from, casts[c].to, want);
		rig_close(&r);
	}
	free(want);
}

/* Sizes that fill one tile, many tiles, many warps; equal and unequal pieces. */
static void test_gather_sizes(void **state)
{
	static const struct {
		uint32_t pieces, elements;
	} sizes[] = {{1, 1}, {1, 30000}, {2, 4097}, {33, 513}, {300, 64}, {64, 1}};

	for (int d = 0; d < 2; d++) {
		struct rig r;

		rig_open(&r, names[d], 1 << 18, 1 << 18);
		fill(r.ring, r.ring_len, 5);
		for (size_t i = 0; i < HR_ARRAY_LEN(sizes) * HR_ARRAY_LEN(casts) * 2; i++) {
			size_t c = i / 2 % HR_ARRAY_LEN(casts), k = i / 2 / HR_ARRAY_LEN(casts);
			struct shape s = {
				casts[c].from, casts[c].to, sizes[k].pieces, sizes[k].elements, 3,
				(uint32_t)k,   i % 2};

			check_gather(&r, &s);
		}
		rig_close(&r);
	}
}

/* Down to host memory and inside the device, short pieces and one that is long enough for a
 * copy. */
static void test_directions(void **state)
{
	static const uint64_t lens[] = {700, 300 << 10};

	for (int i = 0; i < 4; i++) {
		uint64_t len = lens[i / 2];
		uint8_t *want = malloc(len);
		struct rig r;
		uint8_t *base;

		rig_open(&r, names[i % 2], 4 << 20, 4 << 20);
		base = hr_buffer_address(r.buf);
		fill(r.ring, r.ring_len, 11);
		memcpy(want, r.ring + 1, len);

		struct hr__move up[] = {
			{r.ring + 1, base + 7, len / 2 + 3},
			{r.ring + len / 2 + 4, base + 7 + len / 2 + 3, len - len / 2 - 3}};
		struct hr__move inside[] = {{base + 7, base + (1 << 20) + 5, len},
					    {base + 7, base + (2 << 20) + 2, len}};
		struct hr__move down[] = {{base + (1 << 20) + 5, r.ring + 9, len},
					  {base + (2 << 20) + 2, r.ring + (1 << 20), len}};

		assert_true(move_and_wait(&r, HR__HOST_TO_DEVICE, up, 2, 0, 0) >= 1);
		assert_true(move_and_wait(&r, HR__DEVICE_TO_DEVICE, inside, 2, 0, 0) >= 1);
		memset(r.ring, 0x11, r.ring_len);
		assert_true(move_and_wait(&r, HR__DEVICE_TO_HOST, down, 2, 0, 0) >= 1);
		assert_memory_equal(r.ring + 9, want, len);
		assert_memory_equal(r.ring + (1 << 20), want, len);
		assert_int_equal(r.ring[8], 0x11);
		assert_int_equal(r.ring[9 + len], 0x11);
		assert_int_equal(r.ring[(1 << 20) - 1], 0x11);
		assert_int_equal(r.ring[(1 << 20) + len], 0x11);
		rig_close(&r);
		free(want);
	}
}

static void test_refusals(void **state)
{
	for (int d = 0; d < 2; d++) {
		struct hr__move moves[2] = {{0}};
		uint64_t ticket;
		struct rig r;

		rig_open(&r, names[d], 4096, 4096);
		moves[0] = (struct hr__move){r.ring, hr_buffer_address(r.buf), 16};
		assert_int_equal(
			r.lane->ops->move(r.lane, HR__HOST_TO_DEVICE, moves, 0, 0, 0, &ticket),
			-EINVAL);
		assert_int_equal(r.lane->ops->move(r.lane, HR__HOST_TO_DEVICE, moves,
						   HR__LANE_MOVES_MAX + 1, 0, 0, &ticket),
				 -EINVAL);
		assert_int_equal(r.lane->ops->move(r.lane, HR__HOST_TO_DEVICE, moves, 1,
						   HR_DTYPE_I64, HR_DTYPE_U8, &ticket),
				 -HR_E_BAD_CAST);
		rig_close(&r);
	}
}

/* A kernel must never be given host memory that the device does not know. */
static void test_unpinned_source(void **state)
{
	uint8_t plain[64];
	struct rig r;

	rig_open(&r, "cuda:0", 4096, 4096);
	struct hr__move m = {plain, hr_buffer_address(r.buf), 64};
	struct hr__move over = {r.ring + 4090, hr_buffer_address(r.buf), 8};

	assert_int_equal(move_and_wait(&r, HR__HOST_TO_DEVICE, &m, 1, HR_DTYPE_U16, HR_DTYPE_I64),
			 -HR_E_BAD_POINTER);
	assert_int_equal(
		move_and_wait(&r, HR__HOST_TO_DEVICE, &over, 1, HR_DTYPE_U16, HR_DTYPE_I64),
		-HR_E_BAD_POINTER);
	rig_close(&r);
}

/* A batch is one launch, neighbours are one copy. */
static void test_counts(void **state)
{
	struct hr__move moves[64];
	struct rig r;
	long launches, copies;

	rig_open(&r, "cuda:0", 1 << 20, 1 << 20);
	fill(r.ring, r.ring_len, 3);
	for (uint32_t i = 0; i < 64; i++)
		moves[i] = (struct hr__move){r.ring + 8192 * i,
					     (char *)hr_buffer_address(r.buf) + 8192 * i, 8192};
	launches = fake.get("launches");
	copies = fake.get("copies");
	assert_int_equal(move_and_wait(&r, HR__HOST_TO_DEVICE, moves, 64, 0, 0), 1);
	assert_int_equal(fake.get("copies") - copies, 1);
	for (uint32_t i = 0; i < 64; i++)
		moves[i].src = r.ring + 8192 * (63 - i);
	assert_int_equal(move_and_wait(&r, HR__HOST_TO_DEVICE, moves, 64, 0, 0), 1);
	assert_int_equal(fake.get("launches") - launches, 1);
	rig_close(&r);
}

/* Far more lists than the ring and the tickets hold, on a slow device; all must arrive whole. */
static void test_ring_wraps(void **state)
{
	enum { ROUNDS = 150, PIECES = 500 };
	struct hr__move moves[PIECES];
	uint64_t ticket = 0, passed, before = 0;
	uint8_t *got;
	struct rig r;

	rig_open(&r, "cuda:0", 1 << 16, ROUNDS * PIECES * 8);
	fill(r.ring, r.ring_len, 21);
	fake.set("delay_us", 300);
	for (uint32_t round = 0; round < ROUNDS; round++) {
		uint32_t n = PIECES - round;

		for (uint32_t i = 0; i < n; i++)
			moves[i] = (struct hr__move){
				r.ring + (round * 97 + i * 13) % 60000,
				(char *)hr_buffer_address(r.buf) + (round * PIECES + i) * 8, 2};
		assert_int_equal(r.lane->ops->move(r.lane, HR__HOST_TO_DEVICE, moves, n,
						   HR_DTYPE_U16, HR_DTYPE_I64, &ticket),
				 1);
		assert_true(ticket > before);
		before = ticket;
		memset(moves, 0xff, sizeof(moves)); /* the list is ours again */
	}
	assert_int_equal(r.lane->ops->wait(r.lane, ticket, 0), -ETIMEDOUT);
	assert_int_equal(r.lane->ops->poll(r.lane, &passed), 0);
	assert_true(passed < ticket);
	assert_int_equal(r.lane->ops->wait(r.lane, ticket, 60 * SECOND), 0);
	got = malloc(hr_buffer_len(r.buf));
	assert_int_equal(hr_buffer_copy_out(r.buf, 0, got, hr_buffer_len(r.buf)), 0);
	for (uint32_t k = 0; k < ROUNDS * PIECES; k++) {
		uint32_t round = k / PIECES, i = k % PIECES;
		uint64_t value;
		uint16_t want;

		if (i >= PIECES - round)
			continue;
		memcpy(&value, got + k * 8, 8);
		memcpy(&want, r.ring + (round * 97 + i * 13) % 60000, 2);
		assert_int_equal(value, want);
	}
	free(got);
	rig_close(&r);
}

/* More marks than there are events: the lane holds its caller back instead of forgetting one. */
static void test_many_tickets(void **state)
{
	uint64_t ticket = 0, passed;
	struct rig r;

	rig_open(&r, "cuda:0", 4096, 4096);
	fake.set("delay_us", 200);
	for (int i = 0; i < 200; i++) {
		assert_int_equal(r.lane->ops->mark(r.lane, &ticket), 0);
		assert_int_equal(r.lane->ops->poll(r.lane, &passed), 0);
		assert_true(passed <= ticket && ticket - passed <= 64);
	}
	assert_int_equal(r.lane->ops->wait(r.lane, ticket, 30 * SECOND), 0);
	rig_close(&r);
}

/* A list that the driver refuses half-way: its memory is the caller's again when move() returns. */
static void test_refused_half_way(void **state)
{
	struct hr__move moves[3];
	uint64_t ticket;
	struct rig r;

	rig_open(&r, "cuda:0", 4 << 20, 4 << 20);
	for (uint32_t i = 0; i < 3; i++)
		moves[i] = (struct hr__move){r.ring + (i << 20),
					     (char *)hr_buffer_address(r.buf) + (i << 20) + 1,
					     512 << 10};
	fake.set("delay_us", 20000);
	fake.inject("cuMemcpyHtoDAsync_v2", 3, 1);
	assert_int_equal(r.lane->ops->move(r.lane, HR__HOST_TO_DEVICE, moves, 3, 0, 0, &ticket),
			 -EINVAL);
	assert_int_equal(hr_buffer_free(r.buf), 0); /* misuse if a copy still comes */
	r.buf = NULL;
	fake.set("delay_us", 0);
	assert_int_equal(r.lane->ops->mark(r.lane, &ticket), 0);
	assert_int_equal(r.lane->ops->wait(r.lane, ticket, 30 * SECOND), 0);
	rig_close(&r);
}

/* The longest list that move() takes, of unequal pieces. */
static void test_longest_list(void **state)
{
	struct shape s = {HR_DTYPE_U16, HR_DTYPE_I32, HR__LANE_MOVES_MAX, 11, 1, 4, true};
	struct rig r;

	rig_open(&r, "cuda:0", 1 << 18, 1 << 20);
	fill(r.ring, r.ring_len, 77);
	for (int i = 0; i < 4; i++)
		check_gather(&r, &s);
	rig_close(&r);
}

static void count_call(void *arg)
{
	__atomic_add_fetch((int *)arg, 1, __ATOMIC_RELEASE);
}

static void test_mark_and_call(void **state)
{
	for (int d = 0; d < 2; d++) {
		uint64_t ticket;
		struct rig r;
		int calls = 0;

		rig_open(&r, names[d], 4096, 4096);
		fake.set("delay_us", 500);
		assert_int_equal(r.lane->ops->call(r.lane, count_call, &calls), 0);
		assert_int_equal(r.lane->ops->call(r.lane, count_call, &calls), 0);
		assert_int_equal(r.lane->ops->mark(r.lane, &ticket), 0);
		assert_int_equal(r.lane->ops->wait(r.lane, ticket, 30 * SECOND), 0);
		assert_int_equal(__atomic_load_n(&calls, __ATOMIC_ACQUIRE), 2);
		rig_close(&r);
		fake.reset();
	}
}

/* A lane on a stream of the caller: ordered behind his work, and the stream stays his. */
static void test_caller_stream(void **state)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW), *symbol, *stream = NULL, *ctx;
	int (*create)(void **out, unsigned int flags, int priority);
	int (*destroy)(void *out);
	int (*push)(void *in);
	int (*pop)(void **out);
	struct hr_lane *lane;
	uint64_t ticket;
	struct rig r;

#define FIND(f, name) (symbol = fake_symbol(library, name), memcpy(&(f), &symbol, sizeof(symbol)))
	FIND(create, "cuStreamCreateWithPriority");
	FIND(destroy, "cuStreamDestroy_v2");
	FIND(push, "cuCtxPushCurrent_v2");
	FIND(pop, "cuCtxPopCurrent_v2");
	rig_open(&r, "cuda:0", 4096, 4096);
	ctx = ((struct hr__cuda_device *)r.dev)->ctx;
	assert_int_equal(push(ctx), 0);
	assert_int_equal(create(&stream, 0, 0), 0);
	assert_int_equal(pop(&ctx), 0);
	assert_int_equal(hr_lane_open(r.dev, stream, &lane), 0);
	assert_int_equal(lane->ops->mark(lane, &ticket), 0);
	assert_int_equal(lane->ops->wait(lane, ticket, 30 * SECOND), 0);
	hr_lane_close(lane);
	assert_int_equal(fake.get("streams"), 2);
	assert_int_equal(destroy(stream), 0);
	rig_close(&r);
}

static void *thread_main(void *arg)
{
	struct rig *shared = arg, own = *shared;
	uint64_t ticket;

	assert_int_equal(hr_lane_open(shared->dev, NULL, &own.lane), 0);
	assert_int_equal(hr_buffer_alloc(shared->dev, 1 << 16, &own.buf), 0);
	for (uint32_t i = 0; i < 20; i++) {
		struct shape s = {HR_DTYPE_U16, HR_DTYPE_I64, 20, 100 + i, i, 8 * i, i % 2};

		check_gather(&own, &s);
		assert_int_equal(own.lane->ops->mark(own.lane, &ticket), 0);
	}
	hr_lane_close(own.lane);
	assert_int_equal(hr_buffer_free(own.buf), 0);
	return NULL;
}

static void test_threads(void **state)
{
	for (int d = 0; d < 2; d++) {
		pthread_t threads[4];
		struct rig r;

		rig_open(&r, names[d], 1 << 16, 4096);
		fill(r.ring, r.ring_len, 31);
		fake.set("delay_us", 20);
		for (int i = 0; i < 4; i++)
			assert_int_equal(pthread_create(&threads[i], NULL, thread_main, &r), 0);
		for (int i = 0; i < 4; i++)
			pthread_join(threads[i], NULL);
		rig_close(&r);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_gather_alignments, fake_clean),
		cmocka_unit_test_teardown(test_numbers, fake_clean),
		cmocka_unit_test_teardown(test_gather_sizes, fake_clean),
		cmocka_unit_test_teardown(test_directions, fake_clean),
		cmocka_unit_test_teardown(test_refusals, fake_clean),
		cmocka_unit_test_teardown(test_unpinned_source, fake_clean),
		cmocka_unit_test_teardown(test_counts, fake_clean),
		cmocka_unit_test_teardown(test_ring_wraps, fake_clean),
		cmocka_unit_test_teardown(test_many_tickets, fake_clean),
		cmocka_unit_test_teardown(test_refused_half_way, fake_clean),
		cmocka_unit_test_teardown(test_longest_list, fake_clean),
		cmocka_unit_test_teardown(test_mark_and_call, fake_clean),
		cmocka_unit_test_teardown(test_caller_stream, fake_clean),
		cmocka_unit_test_teardown(test_threads, fake_clean),
	};

	return cmocka_run_group_tests(tests, fake_setup, NULL);
}
