/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_mem - the memory layer on a real GPU: every conversion at odd addresses compared byte by byte
 * with the CPU, both directions, all numbers of 16 bits, 2^24 of 32 and of 64 bits, then rates. Prints "name value unit" lines; exit 0, 1, or 77
 * without a device. usage: gpu_mem [DEVICE] [check|rates|all [BLOCKS]], BLOCKS of a kernel's grid.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <headrace/error.h>

#include "base/util.h"
#include "mem/cuda.h"

#define RING_BYTES (1ull << 30)
#define SAMPLE_BYTES 8192u
#define TIMEOUT_NS 60000000000ull
#define ROUNDS 9
#define BAD_MAX 20u /* mismatches, then it is enough */

struct bench {
	struct hr_device *dev;
	struct hr_lane *lane;
	struct hr_buffer *buf;
	uint8_t *ring;
	struct hr__move *moves;
	uint8_t *want, *got;
};

static const struct {
	enum hr_dtype from, to;
} casts[] = {
	{HR_DTYPE_BYTES, HR_DTYPE_BYTES}, {HR_DTYPE_U8, HR_DTYPE_I32},
	{HR_DTYPE_U16, HR_DTYPE_I32},     {HR_DTYPE_U32, HR_DTYPE_I32},
	{HR_DTYPE_U8, HR_DTYPE_I64},      {HR_DTYPE_U16, HR_DTYPE_I64},
	{HR_DTYPE_U32, HR_DTYPE_I64},     {HR_DTYPE_F16, HR_DTYPE_BF16},
	{HR_DTYPE_F16, HR_DTYPE_F32},     {HR_DTYPE_BF16, HR_DTYPE_F16},
	{HR_DTYPE_BF16, HR_DTYPE_F32},    {HR_DTYPE_F32, HR_DTYPE_F16},
	{HR_DTYPE_F32, HR_DTYPE_BF16},    {HR_DTYPE_F32, HR_DTYPE_F64},
	{HR_DTYPE_F64, HR_DTYPE_F32},     {HR_DTYPE_I8, HR_DTYPE_I32},
	{HR_DTYPE_I16, HR_DTYPE_I32},     {HR_DTYPE_I8, HR_DTYPE_I64},
	{HR_DTYPE_I16, HR_DTYPE_I64},     {HR_DTYPE_I32, HR_DTYPE_I64},
};

static int failed(const char *what, int ret)
{
	fprintf(stderr, "%s: %s: %s\n", what, hr_error_name(ret), hr_error_detail());
	return 1;
}

static int move(struct bench *b, enum hr__where where, uint32_t n, enum hr_dtype from,
		enum hr_dtype to)
{
	uint64_t ticket;
	int ret = b->lane->ops->move(b->lane, where, b->moves, n, from, to, &ticket);

	return ret < 0 ? ret : b->lane->ops->wait(b->lane, ticket, TIMEOUT_NS);
}

static uint64_t next_random(uint64_t *x)
{
	*x ^= *x << 13;
	*x ^= *x >> 7;
	*x ^= *x << 17;
	return *x;
}

/*
 * One cell of the cross: @n pieces up from odd places, all of the span compared, guards included;
 * then, for bytes, down again to odd places of the ring's upper half.
 */
static int check_cell(struct bench *b, size_t cast, uint32_t n, uint32_t elements, uint32_t src_off,
		      uint32_t dst_off, bool unequal)
{
	uint32_t from = hr_dtype_size(casts[cast].from), to = hr_dtype_size(casts[cast].to);
	uint64_t src_step = (uint64_t)elements * from + 7;
	uint64_t dst_step = (uint64_t)elements * to + 48, span = dst_off + n * dst_step + 64;
	uint8_t *base = hr_buffer_address(b->buf), *up = b->ring + RING_BYTES / 2;
	int ret;

	memset(b->want, 0xee, span);
	ret = hr_buffer_copy_in(b->buf, 0, b->want, span);
	for (uint32_t i = 0; i < n; i++) {
		uint8_t *src = b->ring + src_off + (n - 1 - i) * src_step;
		uint64_t dst = dst_off + i * dst_step;
		uint64_t len = (uint64_t)(unequal ? i * 7 % (elements + 1) : elements) * from;

		b->moves[i] = (struct hr__move){src, base + dst, len};
		hr__cast(b->want + dst, src, len, casts[cast].from, casts[cast].to);
	}
	if (!ret)
		ret = move(b, HR__HOST_TO_DEVICE, n, casts[cast].from, casts[cast].to);
	if (!ret)
		ret = hr_buffer_copy_out(b->buf, 0, b->got, span);
	if (ret)
		return failed("check", ret);
	if (memcmp(b->want, b->got, span))
		goto mismatch;
	if (casts[cast].from != casts[cast].to)
		return 0;
	for (uint32_t i = 0; i < n; i++) {
		b->moves[i].src = base + dst_off + i * dst_step;
		b->moves[i].dst = up + src_off + (uint64_t)i * src_step;
	}
	memset(up, 0x33, src_off + n * src_step + 64);
	memset(b->want, 0x33, src_off + n * src_step + 64);
	for (uint32_t i = 0; i < n; i++)
		memcpy(b->want + src_off + i * src_step, b->ring + src_off + (n - 1 - i) * src_step,
		       b->moves[i].len);
	ret = move(b, HR__DEVICE_TO_HOST, n, HR_DTYPE_BYTES, HR_DTYPE_BYTES);
	if (ret)
		return failed("check down", ret);
	if (!memcmp(up, b->want, src_off + n * src_step + 64))
		return 0;
mismatch:
	fprintf(stderr, "mismatch: %s -> %s, %u pieces of %u elements, offsets %u and %u%s\n",
		hr_dtype_name(casts[cast].from), hr_dtype_name(casts[cast].to), n, elements,
		src_off, dst_off, unequal ? ", unequal" : "");
	return 1;
}

#define NUMBERS (1u << 22) /* at once: eight bytes of each fit into what is compared */

/* All signs and exponents, and the leading bits of fractions; then bits from nowhere. */
static void fill_numbers(uint8_t *p, uint32_t size, uint32_t first)
{
	for (uint32_t i = 0; i < NUMBERS; i++) {
		uint64_t n = first + i, bits = n;

		if (size == 4)
			bits = n << 8 | (uint32_t)(n * 2654435761u) >> 24;
		if (size == 8)
			bits = n << 40 | (n * 0x9e3779b97f4a7c15u) >> 24;
		memcpy(p + (uint64_t)i * size, &bits, size);
	}
}

static int check_numbers(struct bench *b, size_t cast, uint32_t first)
{
	enum hr_dtype from = casts[cast].from, to = casts[cast].to;
	uint64_t in = (uint64_t)NUMBERS * hr_dtype_size(from);
	uint64_t out = (uint64_t)NUMBERS * hr_dtype_size(to), i = 0;
	int ret;

	fill_numbers(b->ring + 1, hr_dtype_size(from), first);
	hr__cast(b->want, b->ring + 1, in, from, to);
	b->moves[0] = (struct hr__move){b->ring + 1, hr_buffer_address(b->buf), in};
	ret = move(b, HR__HOST_TO_DEVICE, 1, from, to);
	if (!ret)
		ret = hr_buffer_copy_out(b->buf, 0, b->got, out);
	if (ret)
		return failed("check numbers", ret);
	if (!memcmp(b->want, b->got, out))
		return 0;
	while (!memcmp(b->want + i, b->got + i, hr_dtype_size(to)))
		i += hr_dtype_size(to);
	fprintf(stderr, "mismatch: %s -> %s, number %llu\n", hr_dtype_name(from), hr_dtype_name(to),
		(unsigned long long)(first + i / hr_dtype_size(to)));
	return 1;
}

static int check_all(struct bench *b)
{
	static const struct {
		uint32_t n, elements;
	} sizes[] = {{2, 1}, {3, 61}, {40, 1000}, {1000, 333}, {7, 50000}, {8192, 40}};
	uint32_t cells = 0, bad = 0;

	for (size_t c = 0; c < HR_ARRAY_LEN(casts) && bad < BAD_MAX; c++) {
		for (uint32_t at = 0; at < 256 && bad < BAD_MAX; at++, cells++)
			bad += (uint32_t)check_cell(b, c, 5, 200 + at, at % 16, at / 16, at & 1);
		for (size_t s = 0; s < HR_ARRAY_LEN(sizes); s++) {
			for (uint32_t k = 0; k < 6; k++, cells++)
				bad += (uint32_t)check_cell(b, c, sizes[s].n, sizes[s].elements,
							    k * 37 % 131, k * 5 % 16, k & 1);
		}
		for (uint32_t k = 0; k < (hr_dtype_size(casts[c].from) > 2 ? 4 : 1); k++, cells++)
			bad += (uint32_t)check_numbers(b, c, k * NUMBERS);
	}
	printf("check_cells %u count\ncheck_bad %u count\n", cells, bad);
	return bad ? 1 : 0;
}

static int by_value(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* Median time of @depth moves in a row, each of the same pieces, in nanoseconds a move. */
static int time_moves(struct bench *b, uint32_t n, enum hr_dtype from, enum hr_dtype to,
		      uint32_t depth, uint64_t *ns)
{
	uint64_t times[ROUNDS], ticket = 0;

	for (int r = -1; r < ROUNDS; r++) { /* the first warms up */
		uint64_t start = hr__now_ns();
		int ret = 0;

		for (uint32_t i = 0; i < depth && ret >= 0; i++)
			ret = b->lane->ops->move(b->lane, HR__HOST_TO_DEVICE, b->moves, n, from, to,
						 &ticket);
		if (ret >= 0)
			ret = b->lane->ops->wait(b->lane, ticket, TIMEOUT_NS);
		if (ret)
			return ret;
		if (r >= 0)
			times[r] = (hr__now_ns() - start) / depth;
	}
	qsort(times, ROUNDS, sizeof(times[0]), by_value);
	*ns = times[ROUNDS / 2];
	return 0;
}

static int rate(struct bench *b, uint32_t n, bool odd, enum hr_dtype from, enum hr_dtype to,
		uint32_t depth)
{
	uint64_t seed = 88172645463325252ull, ns = 0;
	uint64_t out = SAMPLE_BYTES / hr_dtype_size(from) * hr_dtype_size(to);
	uint8_t *base = hr_buffer_address(b->buf);
	char kind[32];
	int ret;

	for (uint32_t i = 0; i < n; i++) {
		uint64_t at = next_random(&seed) % (RING_BYTES / SAMPLE_BYTES - 1) * SAMPLE_BYTES;

		b->moves[i] =
			(struct hr__move){b->ring + at + (odd ? next_random(&seed) % 4096 | 1 : 0),
					  base + i * out, SAMPLE_BYTES};
	}
	ret = time_moves(b, n, from, to, depth, &ns);
	if (ret)
		return failed("rate", ret);
	snprintf(kind, sizeof(kind), from == to ? "%s" : "%s_%s", hr_dtype_name(from),
		 hr_dtype_name(to));
	printf("gather_%u_%s_%s_depth%u %.2f us\n", n, odd ? "odd" : "even", kind, depth,
	       (double)ns / 1e3);
	printf("gather_%u_%s_%s_depth%u %.2f GB/s\n", n, odd ? "odd" : "even", kind, depth,
	       (double)n * SAMPLE_BYTES / (double)ns);
	return 0;
}

static int rates(struct bench *b)
{
	static const uint32_t counts[] = {32, 128, 1024, 4096};
	uint64_t ns = 0;
	int bad = 0, ret;

	for (uint32_t k = 0; k < HR_ARRAY_LEN(counts) * 8; k++)
		bad |= rate(b, counts[k / 8], k & 1, k & 2 ? HR_DTYPE_U16 : HR_DTYPE_BYTES,
			    k & 2 ? HR_DTYPE_I64 : HR_DTYPE_BYTES, k & 4 ? 16 : 1);
	for (uint32_t c = 0; c < HR_ARRAY_LEN(casts); c++) {
		if (casts[c].from >= HR_DTYPE_F16)
			bad |= rate(b, 1024, false, casts[c].from, casts[c].to, 16);
	}
	b->moves[0] = (struct hr__move){b->ring, hr_buffer_address(b->buf), RING_BYTES};
	ret = time_moves(b, 1, HR_DTYPE_BYTES, HR_DTYPE_BYTES, 1, &ns);
	if (ret)
		return failed("copy", ret);
	printf("copy_1GiB %.2f GB/s\n", (double)RING_BYTES / (double)ns);
	return bad;
}

static int bench_open(struct bench *b)
{
	void *seen;
	int ret;

	b->ring =
		mmap(NULL, RING_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	b->moves = calloc(HR__LANE_MOVES_MAX, sizeof(*b->moves));
	b->want = malloc(64 << 20);
	b->got = malloc(64 << 20);
	if (b->ring == MAP_FAILED || !b->moves || !b->want || !b->got)
		return failed("memory", -ENOMEM);
	madvise(b->ring, RING_BYTES, MADV_HUGEPAGE);
	for (uint64_t i = 0, x = 1; i < RING_BYTES / 8; i++)
		((uint64_t *)b->ring)[i] = next_random(&x);
	ret = b->dev->ops->pin(b->dev, b->ring, RING_BYTES, 0, &seen);
	if (!ret)
		ret = hr_buffer_alloc(b->dev, RING_BYTES, &b->buf);
	if (!ret)
		ret = hr_lane_open(b->dev, NULL, &b->lane);
	return ret ? failed("open", ret) : 0;
}

static void bench_close(struct bench *b)
{
	hr_lane_close(b->lane);
	hr_buffer_free(b->buf);
	b->dev->ops->unpin(b->dev, b->ring, RING_BYTES);
	hr_device_close(b->dev);
	munmap(b->ring, RING_BYTES);
	free(b->moves);
	free(b->want);
	free(b->got);
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "cuda:0", *what = argc > 2 ? argv[2] : "";
	struct bench b = {0};
	struct hr_device_info info;
	uint64_t start = hr__now_ns();
	int bad = 0, ret = hr_device_open(name, &b.dev);

	if (ret) {
		fprintf(stderr, "skipped: %s\n", hr_error_detail());
		return 77;
	}
	printf("open %.1f ms\n", (double)(hr__now_ns() - start) / 1e6);
	hr_device_info(b.dev, &info);
	printf("# %s, %s, driver %s, pci %s, kernels %d %s\n", info.name, info.model, info.driver,
	       info.pci, info.kernels, info.kernels_reason);
	if (argc > 3 && info.kind == HR_DEVICE_CUDA)
		((struct hr__cuda_device *)b.dev)->blocks_max =
			(uint32_t)strtoul(argv[3], NULL, 10);
	if (bench_open(&b))
		return 1;
	if (strcmp(what, "rates"))
		bad |= check_all(&b);
	if (strcmp(what, "check"))
		bad |= rates(&b);
	bench_close(&b);
	return bad;
}
