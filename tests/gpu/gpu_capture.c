/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_capture - beside CUDA graphs: lanes on a stream that is being captured refuse and leave the
 * capture whole; all other work goes on, in the capturing thread and in another, and the graph gets
 * the caller's nodes alone. For each mode of capture. On a real GPU and on tests/fakecuda.
 * usage: gpu_capture [DEVICE]; exit 0, 1, or 77 without a device.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <headrace/error.h>

#include "base/util.h"
#include "mem/cuda.h"

#define RING_BYTES (1u << 20)
#define HALF (RING_BYTES / 2)
#define TIMEOUT_NS 30000000000ull
#define POLLS 5000 /* enough that a lane asks its stream */
#define SPOILED 901

struct hr__cu_graph;

/* What the library has no use for. */
static struct {
	int (*begin)(struct hr__cu_stream *stream, int mode);
	int (*end)(struct hr__cu_stream *stream, struct hr__cu_graph **graph);
	int (*nodes)(struct hr__cu_graph *graph, void **nodes, size_t *count);
	int (*graph_destroy)(struct hr__cu_graph *graph);
} driver;

struct rig {
	struct hr_device *dev;
	const struct hr__cuda_device *cd;
	struct hr_buffer *buf;
	uint8_t *ring;
	struct hr__cu_stream *stream; /* the caller's */
	struct hr_lane *on_it, *own;
	const char *name;
};

static const char *const modes[] = {"global", "thread", "relaxed"};
static int bad;

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #condition,                \
				hr_error_detail());                                                \
			bad++;                                                                     \
		}                                                                                  \
	} while (0)

static bool find(void *library, const char *name, void *member)
{
	void *symbol = dlsym(library, name);

	memcpy(member, &symbol, sizeof(symbol));
	return symbol;
}

static bool find_driver(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	return library && find(library, "cuStreamBeginCapture_v2", &driver.begin) &&
	       find(library, "cuStreamEndCapture", &driver.end) &&
	       find(library, "cuGraphGetNodes", &driver.nodes) &&
	       find(library, "cuGraphDestroy", &driver.graph_destroy);
}

/* Half the ring up, converted, and down again: the lane's own launches and copies. */
static void check_moves(struct rig *r, struct hr_lane *lane, uint64_t at)
{
	uint8_t *base = (uint8_t *)hr_buffer_address(r->buf) + at, want[512];
	uint8_t *down = r->ring + HALF + at;
	struct hr__move up[2] = {{r->ring + 1, base, 128}, {r->ring + 333, base + 256, 128}};
	struct hr__move back = {base, down, 512};
	uint64_t ticket;

	hr__cast(want, up[0].src, 128, HR_DTYPE_BF16, HR_DTYPE_F32);
	hr__cast(want + 256, up[1].src, 128, HR_DTYPE_BF16, HR_DTYPE_F32);
	CHECK(lane->ops->move(lane, HR__HOST_TO_DEVICE, up, 2, HR_DTYPE_BF16, HR_DTYPE_F32,
			      &ticket) > 0);
	CHECK(lane->ops->move(lane, HR__DEVICE_TO_HOST, &back, 1, HR_DTYPE_BYTES, HR_DTYPE_BYTES,
			      &ticket) > 0);
	CHECK(lane->ops->wait(lane, ticket, TIMEOUT_NS) == 0);
	CHECK(!memcmp(down, want, sizeof(want)));
}

/* Everything that allocates, registers, loads or asks. */
static void check_others(struct rig *r, uint64_t at)
{
	void *seen, *page = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				 -1, 0);
	struct hr_device *dev = NULL;
	struct hr_buffer *buf = NULL;
	struct hr_lane *lane = NULL;
	char text[16] = "";

	CHECK(hr_device_open(r->name, &dev) == 0);
	CHECK(hr_lane_open(r->dev, NULL, &lane) == 0);
	CHECK(dev && hr_buffer_alloc(dev, 1 << 20, &buf) == 0);
	if (!dev || !lane || !buf)
		goto out;
	check_moves(r, lane, at);
	CHECK(dev->ops->pin(dev, page, 65536, 0, &seen) == 0);
	CHECK(hr_buffer_copy_in(buf, 7, "a graph", 8) == 0);
	CHECK(hr_buffer_copy_out(buf, 7, text, 8) == 0);
	CHECK(!strcmp(text, "a graph"));
	dev->ops->unpin(dev, page, 65536);
out:
	hr_lane_close(lane);
	CHECK(hr_buffer_free(buf) == 0);
	hr_device_close(dev);
	munmap(page, 65536);
}

static void *other_thread(void *arg)
{
	check_others(arg, 4096);
	return NULL;
}

static void nothing(void *arg)
{
}

static void check_refusals(struct rig *r)
{
	struct hr__move m = {r->ring, hr_buffer_address(r->buf), 100};
	struct hr_lane *lane = NULL, *on_it = r->on_it;
	uint64_t ticket = 0, passed;

	CHECK(hr_lane_open(r->dev, r->stream, &lane) == -HR_E_CAPTURING && !lane);
	CHECK(strstr(hr_error_detail(), "being captured") != NULL);
	CHECK(on_it->ops->mark(on_it, &ticket) == -HR_E_CAPTURING);
	CHECK(on_it->ops->move(on_it, HR__HOST_TO_DEVICE, &m, 1, HR_DTYPE_BYTES, HR_DTYPE_BYTES,
			       &ticket) == -HR_E_CAPTURING);
	CHECK(on_it->ops->call(on_it, nothing, NULL) == -HR_E_CAPTURING);
	for (int i = 0; i < POLLS; i++) {
		if (on_it->ops->poll(on_it, &passed)) {
			CHECK(i == POLLS);
			return;
		}
	}
}

/* Work that has been marked before the capture began may be waited for while it lasts. */
static void check_mark_before(struct rig *r, uint64_t ticket)
{
	CHECK(r->on_it->ops->wait(r->on_it, ticket, TIMEOUT_NS) == 0);
}

/* Set the mode of this thread. Return: what it was. */
static int exchange(struct rig *r, int mode)
{
	CHECK(r->cd->cu->exchange_capture_mode(&mode) == 0);
	return mode;
}

static void check_mode(struct rig *r, int mode)
{
	uint64_t base = (uintptr_t)hr_buffer_address(r->buf), ticket = 0;
	struct hr__cu_graph *graph = NULL;
	int before = bad;
	pthread_t thread;
	size_t nodes = 0;

	CHECK(r->on_it->ops->mark(r->on_it, &ticket) == 0);
	CHECK(driver.begin(r->stream, mode) == 0);
	exchange(r, mode); /* it is the thread's own and must be left alone */
	CHECK(r->cd->cu->copy_on_device(base + HALF, base, 4096, r->stream) == 0);
	check_refusals(r);
	check_mark_before(r, ticket);
	check_moves(r, r->own, 0);
	check_others(r, 0);
	CHECK(pthread_create(&thread, NULL, other_thread, r) == 0);
	pthread_join(thread, NULL);
	CHECK(exchange(r, 0) == mode);
	CHECK(driver.end(r->stream, &graph) == 0);
	CHECK(graph && driver.nodes(graph, NULL, &nodes) == 0 && nodes == 1);
	if (graph)
		driver.graph_destroy(graph);
	check_moves(r, r->on_it, 0);
	printf("capture_%s %s\n", modes[mode], bad == before ? "ok" : "bad");
}

/* A capture that the caller has spoiled is one still; once it is ended the lane works. */
static void check_spoiled(struct rig *r)
{
	struct hr__cu_graph *graph = NULL;
	uint64_t ticket;
	int before = bad;

	CHECK(driver.begin(r->stream, 0) == 0);
	CHECK(r->cd->cu->stream_query(r->stream) != 0);
	CHECK(r->on_it->ops->mark(r->on_it, &ticket) == -HR_E_CAPTURING);
	CHECK(driver.end(r->stream, &graph) == SPOILED && !graph);
	check_moves(r, r->on_it, 0);
	printf("capture_spoiled %s\n", bad == before ? "ok" : "bad");
}

/* A lane may be closed while its stream is captured. */
static void check_close(struct rig *r)
{
	struct hr__cu_graph *graph = NULL;
	struct hr_lane *lane = NULL;
	uint64_t ticket;
	int before = bad;

	CHECK(hr_lane_open(r->dev, r->stream, &lane) == 0);
	CHECK(lane && lane->ops->mark(lane, &ticket) == 0);
	CHECK(driver.begin(r->stream, 0) == 0);
	hr_lane_close(lane);
	CHECK(driver.end(r->stream, &graph) == 0 && graph);
	if (graph)
		driver.graph_destroy(graph);
	printf("capture_close %s\n", bad == before ? "ok" : "bad");
}

static int rig_open(struct rig *r)
{
	void *seen;
	int ret;

	r->ring =
		mmap(NULL, RING_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (r->ring == MAP_FAILED)
		return -ENOMEM;
	for (uint32_t i = 0; i < RING_BYTES; i++)
		r->ring[i] = (uint8_t)(i * 37 ^ i >> 8);
	r->cd = (const struct hr__cuda_device *)r->dev;
	ret = r->dev->ops->pin(r->dev, r->ring, RING_BYTES, 0, &seen);
	if (!ret)
		ret = hr_buffer_alloc(r->dev, RING_BYTES, &r->buf);
	/* As a framework does it: the context stays current on this thread. */
	if (!ret && (r->cd->cu->ctx_push(r->cd->ctx) ||
		     r->cd->cu->stream_create(&r->stream, HR__CU_STREAM_NON_BLOCKING, 0)))
		ret = -EIO;
	if (!ret)
		ret = hr_lane_open(r->dev, r->stream, &r->on_it);
	if (!ret)
		ret = hr_lane_open(r->dev, NULL, &r->own);
	return ret;
}

static void rig_close(struct rig *r)
{
	struct hr__cu_ctx *ctx;

	hr_lane_close(r->on_it);
	hr_lane_close(r->own);
	r->cd->cu->stream_destroy(r->stream);
	CHECK(r->cd->cu->ctx_pop(&ctx) == 0 && ctx == r->cd->ctx);
	CHECK(hr_buffer_free(r->buf) == 0);
	r->dev->ops->unpin(r->dev, r->ring, RING_BYTES);
	hr_device_close(r->dev);
	munmap(r->ring, RING_BYTES);
}

int main(int argc, char **argv)
{
	struct rig r = {.name = argc > 1 ? argv[1] : "cuda:0"};
	int ret = hr_device_open(r.name, &r.dev);

	if (ret || r.dev->info.kind != HR_DEVICE_CUDA || !find_driver()) {
		fprintf(stderr, "skipped: %s\n", ret ? hr_error_detail() : "no GPU that captures");
		hr_device_close(ret ? NULL : r.dev);
		return 77;
	}
	ret = rig_open(&r);
	if (ret) {
		fprintf(stderr, "%s: %s\n", hr_error_name(ret), hr_error_detail());
		return 1;
	}
	for (int mode = 0; mode < 3; mode++)
		check_mode(&r, mode);
	check_spoiled(&r);
	check_close(&r);
	rig_close(&r);
	printf("capture_bad %d count\n", bad);
	return bad != 0;
}
