/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_loader_faults - what a loader does when things go wrong: files that shrink, drives that fail,
 * callers that hold every slot, stop in the middle, lanes that lag, states of other runs, options
 * that make no sense, fork. Each with 0, 1 and 3 threads where threads matter.
 */
#include <liburing.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "base/fail.h"
#include "base/sys.h"
#include "loader_fixture.h"
#include "mem/mem.h"
#include "support/fork.h"

static const uint32_t thread_counts[] = {0, 1, 3};
#define N_COUNTS 3

static struct hr__sys sys;
static struct fixture f;

static int set_up(void **state)
{
	sys = hr__sys_real;
	hr__sys = &sys;
	f = (struct fixture){
		.n_files = 2, .seq_len = 15, .dtype = HR_DTYPE_U16, .tokens = {40000, 30000}};
	fixture_open(&f);
	return 0;
}

static int tear_down(void **state)
{
	fixture_close(&f);
	hr__sys = &hr__sys_real;
	return 0;
}

static struct hr_loader *open_with(uint32_t threads, uint32_t slots)
{
	return open_loader(&f, (struct hr_loader_options){
				       .batch_size = 4, .threads = threads, .slots = slots});
}

/* Batches that come before the failure must be right; the failure is final. */
static void expect_failure(struct hr_loader *loader, int code, const char *word)
{
	const struct hr_batch *batch = NULL;
	int rc;

	for (int i = 0; (rc = hr_loader_next(loader, &batch)) == 0; i++) {
		assert_true(i < 20000);
		check_batch(&f, loader, batch, false);
		expect_ok(hr_loader_release(loader, batch, NULL));
	}
	expect_code(rc, code, word);
	expect_code(hr_loader_next(loader, &batch), code, word);
}

static void file_shrinks(void **state)
{
	for (int i = 0; i < N_COUNTS; i++) {
		struct hr_loader *loader = open_with(thread_counts[i], 0);

		expect_ok(hr_loader_release(loader, next_batch(loader), NULL));
		assert_int_equal(truncate(f.paths[1], 30001), 0);
		expect_failure(loader, HR_E_FILE_CHANGED, f.paths[1]);
		expect_failure(loader, HR_E_FILE_CHANGED, "has 30001 now");
		expect_failure(loader, HR_E_FILE_CHANGED, "had 60000 bytes");
		expect_failure(loader, HR_E_FILE_CHANGED, "truncated while being read");
		hr_loader_close(loader);
		free(f.paths[1]);
		f.paths[1] = test_file(f.dir, "part1", 60000);
	}
}

static void file_is_emptied(void **state)
{
	for (int i = 0; i < N_COUNTS; i++) {
		struct hr_loader *loader;

		assert_int_equal(truncate(f.paths[0], 0), 0);
		loader = open_with(thread_counts[i], 0);
		expect_failure(loader, HR_E_FILE_CHANGED, "has 0 now");
		hr_loader_close(loader);
		free(f.paths[0]);
		f.paths[0] = test_file(f.dir, "part0", 80000);
	}
}

static atomic_int reads_until_error;

static ssize_t failing_pread(int fd, void *buf, size_t len, uint64_t offset)
{
	if (atomic_fetch_sub(&reads_until_error, 1) <= 0)
		return -EIO;
	return hr__sys_real.pread(fd, buf, len, offset);
}

static ssize_t failing_pread_flags(int fd, void *buf, size_t len, uint64_t offset, int flags)
{
	if (atomic_fetch_sub(&reads_until_error, 1) <= 0)
		return -EIO;
	return hr__sys_real.pread_flags(fd, buf, len, offset, flags);
}

static atomic_int enters_until_broken;

static int break_submit(struct io_uring *ring, unsigned int wait, uint64_t timeout_ns)
{
	if (atomic_fetch_sub(&enters_until_broken, 1) <= 0)
		return -ENOMEM;
	return hr__sys_real.ring_submit(ring, wait, timeout_ns);
}

static int failing_result(const struct io_uring_cqe *cqe)
{
	return -EIO;
}

/* Some requests of a batch have failed when the queue breaks: the failure is told, at once. */
static void queue_breaks_behind_a_failure(void **state)
{
	for (int k = 1; k < 12; k++) {
		struct hr_loader_options o = {.batch_size = 64,
					      .timeout_ns = 20000000000ull,
					      .engine = {.direct = true, .depth = 1}};
		const struct hr_batch *batch = NULL;
		struct hr_loader *loader;
		int rc;

		atomic_store(&enters_until_broken, k);
		sys.ring_submit = break_submit;
		sys.ring_result = failing_result;
		loader = open_loader(&f, o);
		rc = hr_loader_next(loader, &batch);
		assert_true(rc == -EIO || rc == -ENOMEM);
		assert_int_equal(hr_loader_next(loader, &batch), rc);
		sys.ring_submit = hr__sys_real.ring_submit;
		hr_loader_close(loader);
	}
}

static void endless_timeout(void **state)
{
	uint8_t record[HR_LOADER_STATE_BYTES];

	for (int i = 0; i < N_COUNTS; i++) {
		struct hr_loader_options o = {.batch_size = 4,
					      .threads = thread_counts[i],
					      .timeout_ns = UINT64_MAX,
					      .engine = {.timeout_ns = UINT64_MAX}};
		struct hr_loader *loader = open_loader(&f, o);

		assert_int_equal(hr_loader_state(loader, record, sizeof(record)), sizeof(record));
		expect_ok(hr_loader_restore(loader, record, sizeof(record)));
		check_batch(&f, loader, next_batch(loader), false);
		hr_loader_close(loader);
	}
}

static void drive_fails(void **state)
{
	for (int i = 0; i < N_COUNTS; i++) {
		struct hr_loader_options o = {.batch_size = 4,
					      .threads = thread_counts[i],
					      .engine = {.no_uring = true, .path = HR_PATH_BOUNCE}};
		struct hr_loader *loader;

		atomic_store(&reads_until_error, 100);
		sys.pread = failing_pread;
		sys.pread_flags = failing_pread_flags;
		loader = open_loader(&f, o);
		expect_failure(loader, EIO, f.dir);
		expect_failure(loader, EIO, "kernel log");
		hr_loader_close(loader);
		sys = hr__sys_real;
	}
}

static void every_slot_held(void **state)
{
	for (int i = 0; i < N_COUNTS; i++) {
		struct hr_loader *loader = open_with(thread_counts[i], 5);
		const struct hr_batch *held[5], *batch;

		for (int k = 0; k < 5; k++)
			held[k] = next_batch(loader);
		for (int k = 0; k < 3; k++)
			expect_code(hr_loader_next(loader, &batch), HR_E_NO_SLOT, "5 batches");
		/* no error for good: one goes back, one comes */
		for (int k = 0; k < 5; k++)
			check_batch(&f, loader, held[k], false);
		expect_ok(hr_loader_release(loader, held[3], NULL));
		expect_code(hr_loader_release(loader, held[3], NULL), EINVAL, "not held");
		held[3] = next_batch(loader);
		assert_int_equal(held[3]->step, 5);
		expect_code(hr_loader_next(loader, &batch), HR_E_NO_SLOT, "more slots");
		hr_loader_close(loader); /* all five are still held */
	}
}

/* One batch that is kept for long must not stop the others. */
static void one_held_for_long(void **state)
{
	for (int i = 0; i < N_COUNTS; i++) {
		struct hr_loader *loader = open_with(thread_counts[i], 4);
		const struct hr_batch *kept = next_batch(loader);
		uint64_t id = kept->ids[3];

		for (uint64_t step = 1; step < 100; step++) {
			const struct hr_batch *batch = next_batch(loader);

			assert_int_equal(batch->step, step);
			check_batch(&f, loader, batch, false);
			expect_ok(hr_loader_release(loader, batch, NULL));
		}
		assert_true(kept->ids[3] == id);
		check_batch(&f, loader, kept, false);
		expect_ok(hr_loader_release(loader, kept, NULL));
		hr_loader_close(loader);
	}
}

/* However many are held and in whichever order they go back, the next one comes. */
static void held_at_random(void **state)
{
	static const uint32_t slots[] = {2, 5, 10, 17};

	for (int i = 0; i < N_COUNTS * 4; i++) {
		uint32_t n = slots[i / N_COUNTS], n_held = 0;
		struct hr_loader *loader = open_with(thread_counts[i % N_COUNTS], n);
		const struct hr_batch *held[17];
		uint64_t random = (uint64_t)i;

		for (uint64_t step = 0; step < 400; step++) {
			uint64_t back = n_held == n ? 1 : test_random(&random) % (n_held + 1);

			for (; back; back--) {
				uint64_t k = test_random(&random) % n_held;

				expect_ok(hr_loader_release(loader, held[k], NULL));
				held[k] = held[--n_held];
			}
			held[n_held++] = next_batch(loader);
			check_batch(&f, loader, held[n_held - 1], false);
		}
		hr_loader_close(loader);
	}
}

static void release_of_strangers(void **state)
{
	struct hr_loader *loader = open_with(0, 0);
	struct hr_batch copy = *next_batch(loader);

	expect_code(hr_loader_release(loader, &copy, NULL), EINVAL, "not held");
	expect_code(hr_loader_release(loader, NULL, NULL), EINVAL, "not held");
	hr_loader_close(loader);
}

static void close_at_any_time(void **state)
{
	for (int i = 0; i < N_COUNTS; i++) {
		for (uint32_t taken = 0; taken < 6; taken++) {
			struct hr_loader *loader = open_with(thread_counts[i], 6);

			for (uint32_t k = 0; k < taken; k++)
				next_batch(loader);
			hr_loader_close(loader);
		}
	}
	hr_loader_close(NULL);
}

/* -- stop ------------------------------------------------------------------------------------ */

static void *stop_loader(void *arg)
{
	hr_loader_stop(arg);
	return NULL;
}

/* The consumer runs until it is told; whichever call is under way, the next one says closed. */
static void stopped_by_another_thread(void **state)
{
	for (int i = 0; i < N_COUNTS; i++) {
		struct hr_loader *loader = open_with(thread_counts[i], 0);
		const struct hr_batch *batch = NULL;
		pthread_t thread;
		int rc;

		expect_ok(hr_loader_release(loader, next_batch(loader), NULL));
		assert_int_equal(pthread_create(&thread, NULL, stop_loader, loader), 0);
		while ((rc = hr_loader_next(loader, &batch)) == 0)
			expect_ok(hr_loader_release(loader, batch, NULL));
		expect_code(rc, HR_E_CLOSED, "stopped");
		assert_int_equal(pthread_join(thread, NULL), 0);
		expect_code(hr_loader_next(loader, &batch), HR_E_CLOSED, "stopped");
		hr_loader_close(loader);
	}
}

/* A lane that never gets there: what a consumer waits for when its device is far behind. */
struct slow_lane {
	struct hr_lane lane;
	uint64_t marks;
	atomic_uint_fast64_t passed;
	atomic_int waits;
	struct hr_loader *stop_on_wait;
};

static int slow_mark(struct hr_lane *lane, uint64_t *ticket)
{
	*ticket = ++((struct slow_lane *)lane)->marks;
	return 0;
}

static int slow_poll(struct hr_lane *lane, uint64_t *passed)
{
	*passed = atomic_load(&((struct slow_lane *)lane)->passed);
	return 0;
}

static int slow_wait(struct hr_lane *lane, uint64_t ticket, uint64_t timeout_ns)
{
	struct slow_lane *slow = (struct slow_lane *)lane;

	atomic_fetch_add(&slow->waits, 1);
	if (slow->stop_on_wait)
		hr_loader_stop(slow->stop_on_wait);
	return atomic_load(&slow->passed) >= ticket ? 0 : -ETIMEDOUT;
}

static const struct hr__lane_ops slow_ops = {
	.name = "slow", .poll = slow_poll, .mark = slow_mark, .wait = slow_wait};

static double seconds_in(const char *sentence, const char *behind)
{
	const char *found = strstr(sentence, behind);

	assert_non_null(found);
	return strtod(found + strlen(behind), NULL);
}

static void lanes_that_lag(void **state)
{
	for (int i = 0; i < N_COUNTS; i++) {
		struct slow_lane slow = {.lane = {.ops = &slow_ops, .dev = f.dev}};
		struct hr_loader *loader = open_with(thread_counts[i], 3);
		const struct hr_batch *batch, *a = next_batch(loader), *b = next_batch(loader),
					      *c = next_batch(loader);
		struct hr_loader_stats before, after;

		expect_ok(hr_loader_release(loader, a, &slow.lane));
		expect_ok(hr_loader_release(loader, b, &slow.lane));
		expect_code(hr_loader_release(loader, a, NULL), EINVAL, "not held");
		/* its work is on the lane: nothing may be written to the slots yet */
		loader->opts.timeout_ns = 1000000;
		hr_loader_stats(loader, &before);
		expect_code(hr_loader_next(loader, &batch), ETIMEDOUT, "no batch within");
		assert_true(atomic_load(&slow.waits) > 0);
		/* waiting in vain is waiting */
		hr_loader_stats(loader, &after);
		assert_true(after.wait_ns - before.wait_ns >= 1000000);
		/* the sentence tells of all the time that this batch has been missing */
		for (int again = 2; again <= 60; again++)
			expect_code(hr_loader_next(loader, &batch), ETIMEDOUT, "no batch within");
		assert_true(seconds_in(hr_error_detail(), "within ") >= 0.06);
		check_batch(&f, loader, a, false);
		check_batch(&f, loader, b, false);
		check_batch(&f, loader, c, false);
		/* a timeout is not final */
		atomic_store(&slow.passed, 1);
		loader->opts.timeout_ns = 60000000000;
		batch = next_batch(loader);
		assert_ptr_equal(batch, a);
		assert_int_equal(batch->step, 3);
		check_batch(&f, loader, batch, false);
		check_batch(&f, loader, b, false);
		atomic_store(&slow.passed, 2);
		assert_ptr_equal(next_batch(loader), b);
		assert_int_equal(atomic_load(&loader->missed_ns), 0); /* the next one is not late */
		hr_loader_close(loader);
	}
}

static void stopped_while_a_lane_lags(void **state)
{
	for (int i = 0; i < N_COUNTS; i++) {
		struct slow_lane slow = {.lane = {.ops = &slow_ops, .dev = f.dev}};
		struct hr_loader *loader = open_with(thread_counts[i], 2);
		const struct hr_batch *batch, *a = next_batch(loader), *b = next_batch(loader);

		expect_ok(hr_loader_release(loader, a, &slow.lane));
		expect_ok(hr_loader_release(loader, b, &slow.lane));
		slow.stop_on_wait = loader;
		expect_code(hr_loader_next(loader, &batch), HR_E_CLOSED, "stopped");
		slow.stop_on_wait = NULL;
		atomic_store(&slow.passed, 2);
		hr_loader_close(loader);
	}
}

static int patient_wait(struct hr_lane *lane, uint64_t ticket, uint64_t timeout_ns)
{
	if (timeout_ns < 1000000000)
		return -ETIMEDOUT;
	atomic_store(&((struct slow_lane *)lane)->passed, ticket);
	return 0;
}

static const struct hr__lane_ops patient_ops = {
	.name = "patient", .poll = slow_poll, .mark = slow_mark, .wait = patient_wait};

/*
 * Who wants to look around all the time has a short timeout. That a restore and a close wait for what is
 * under way is no matter of taste.
 */
static void short_looks(void **state)
{
	uint8_t record[HR_LOADER_STATE_BYTES];

	for (int i = 0; i < N_COUNTS; i++) {
		struct slow_lane slow = {.lane = {.ops = &patient_ops, .dev = f.dev}};
		struct hr_loader *loader = open_loader(
			&f, (struct hr_loader_options){
				    .batch_size = 4, .threads = thread_counts[i], .timeout_ns = 1});
		const struct hr_batch *batch;
		int rc;

		assert_int_equal(hr_loader_state(loader, record, sizeof(record)), sizeof(record));
		expect_ok(hr_loader_restore(loader, record, sizeof(record)));
		do
			rc = hr_loader_next(loader, &batch);
		while (rc == -ETIMEDOUT);
		expect_ok(rc);
		check_batch(&f, loader, batch, false);
		expect_ok(hr_loader_release(loader, batch, &slow.lane));
		hr_loader_close(loader);
		assert_int_equal(atomic_load(&slow.passed), 1); /* else its memory was given up */
	}
}

static void lanes_of_the_device(void **state)
{
	struct hr_device *other = NULL;
	struct hr_lane *lane = NULL, *foreign = NULL;

	expect_ok(hr_device_open("host", &other));
	expect_ok(hr_lane_open(other, NULL, &foreign));
	expect_ok(hr_lane_open(f.dev, NULL, &lane));
	for (int i = 0; i < N_COUNTS; i++) {
		struct hr_loader *loader = open_with(thread_counts[i], 2);

		for (int k = 0; k < 50; k++) {
			const struct hr_batch *batch = next_batch(loader);

			check_batch(&f, loader, batch, false);
			if (k == 0)
				expect_code(hr_loader_release(loader, batch, foreign),
					    HR_E_WRONG_DEVICE, "lane");
			expect_ok(hr_loader_release(loader, batch, lane));
		}
		hr_loader_close(loader);
	}
	hr_lane_close(foreign);
	hr_lane_close(lane);
	hr_device_close(other);
}

static struct hr_loader *signalled;

static void on_signal(int number)
{
	hr_loader_stop(signalled);
}

/* Threads of the loader must leave signals to the program, and stop must be safe in a handler. */
static void stopped_by_a_signal(void **state)
{
	struct sigaction action = {.sa_handler = on_signal}, before;

	assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
	for (int i = 0; i < N_COUNTS; i++) {
		const struct hr_batch *batch = NULL;
		int rc;

		signalled = open_with(thread_counts[i], 0);
		expect_ok(hr_loader_release(signalled, next_batch(signalled), NULL));
		assert_int_equal(kill(getpid(), SIGUSR1), 0);
		while ((rc = hr_loader_next(signalled, &batch)) == 0)
			expect_ok(hr_loader_release(signalled, batch, NULL));
		expect_code(rc, HR_E_CLOSED, "stopped");
		hr_loader_close(signalled);
	}
	sigaction(SIGUSR1, &before, NULL);
}

/* -- states and options ---------------------------------------------------------------------- */

static void states_of_other_runs(void **state)
{
	unsigned char saved[HR_LOADER_STATE_BYTES];
	struct hr_dataset_options longer = {.seq_len = 16};
	struct hr_loader_options o = {.batch_size = 4, .seed = 1};
	struct hr_dataset *other = NULL, *own = f.ds;
	struct hr_loader *loader = open_loader(&f, o);

	next_batch(loader);
	assert_int_equal(hr_loader_state(loader, saved, sizeof(saved)), sizeof(saved));
	expect_code(hr_loader_restore(loader, saved, sizeof(saved)), EBUSY, "right after open");
	hr_loader_close(loader);

	o.seed = 2;
	loader = open_loader(&f, o);
	expect_code(hr_loader_restore(loader, saved, sizeof(saved)), HR_E_BAD_STATE, "seed 1");
	hr_loader_close(loader);
	o.seed = 1;
	o.shuffle = HR_SHUFFLE_NONE;
	loader = open_loader(&f, o);
	expect_code(hr_loader_restore(loader, saved, sizeof(saved)), HR_E_BAD_STATE, "shuffle");
	expect_code(hr_loader_restore(loader, saved, 10), HR_E_BAD_STATE, "10 bytes");
	/* a refused state changes nothing */
	assert_int_equal(next_batch(loader)->ids[0], 0);
	hr_loader_close(loader);
	o.shuffle = HR_SHUFFLE_FULL;
	expect_ok(hr_dataset_open((const char *const *)f.paths, 2, &longer, &other));
	f.ds = other;
	loader = open_loader(&f, o);
	f.ds = own;
	expect_code(hr_loader_restore(loader, saved, sizeof(saved)), HR_E_BAD_STATE, "dataset");
	hr_loader_close(loader);
	hr_dataset_close(other);
}

static void restore_at_the_end(void **state)
{
	for (int i = 0; i < N_COUNTS; i++) {
		struct hr_loader_options o = {
			.batch_size = 1000, .epochs = 2, .threads = thread_counts[i]};
		unsigned char saved[HR_LOADER_STATE_BYTES];
		struct hr_loader *loader = open_loader(&f, o);
		const struct hr_batch *batch;
		int rc;

		while ((rc = hr_loader_next(loader, &batch)) == 0)
			expect_ok(hr_loader_release(loader, batch, NULL));
		assert_int_equal(rc, -HR_E_END);
		hr_loader_state(loader, saved, sizeof(saved));
		hr_loader_close(loader);
		loader = open_loader(&f, o);
		expect_ok(hr_loader_restore(loader, saved, sizeof(saved)));
		expect_ok(hr_loader_restore(loader, saved, sizeof(saved)));
		expect_code(hr_loader_next(loader, &batch), HR_E_END, "ended");
		hr_loader_close(loader);
		o.epochs = 3;
		loader = open_loader(&f, o);
		expect_ok(hr_loader_restore(loader, saved, sizeof(saved)));
		batch = next_batch(loader);
		assert_int_equal(batch->epoch, 2);
		assert_int_equal(batch->step, 0);
		hr_loader_close(loader);
	}
}

static void expect_refused(struct hr_loader_options o, int code, const char *word)
{
	struct hr_loader *loader = (void *)0x1;
	int rc;

	hr__fail_set(EIO, "");
	rc = hr_loader_open(f.ds, f.dev, &o, &loader);
	expect_code(rc, code, word);
	assert_ptr_equal(loader, (void *)0x1);
}

static void options_refused(void **state)
{
	struct hr_loader_options ok = {.batch_size = 4}, o;

	expect_refused((struct hr_loader_options){0}, EINVAL, "batch_size 0");
	expect_refused((struct hr_loader_options){.batch_size = (1 << 20) + 1}, EINVAL, "1048577");
	o = ok, o.dp_rank = 1;
	expect_refused(o, EINVAL, "dp_rank 1");
	o = ok, o.dp_rank = 3, o.dp_world_size = 3;
	expect_refused(o, EINVAL, "dp_world_size 3");
	o = ok, o.slots = 1;
	expect_refused(o, EINVAL, "slots 1");
	o = ok, o.slots = 1025;
	expect_refused(o, EINVAL, "slots 1025");
	o = ok, o.threads = 257;
	expect_refused(o, EINVAL, "threads 257");
	o = ok, o.shuffle = 7;
	expect_refused(o, EINVAL, "shuffle 7");
	o = ok, o.last = 7;
	expect_refused(o, EINVAL, "last 7");
	o = ok, o.out_dtype = HR_DTYPE_U32;
	expect_refused(o, HR_E_BAD_CAST, "u32");
	o = ok, o.batch_size = 5000;
	expect_refused(o, HR_E_TOO_SHORT, "needs 5000");
	o = ok, o.dp_world_size = 2000;
	expect_refused(o, HR_E_TOO_SHORT, "2000 ranks");
	/* from a thread's engine to the caller */
	o = ok, o.engine.depth = 5000;
	expect_refused(o, EINVAL, "depth");
	o.threads = 3;
	expect_refused(o, EINVAL, "depth");
}

/* A child of fork() has neither the threads nor the rings; it is told so and leaves unharmed. */
static void forked(void **state)
{
	bool threads = strcmp(device_name, "host") != 0; /* a pretended GPU's streams */

	for (int i = 0; i < N_COUNTS; i++) {
		struct hr_loader *loader;
		const struct hr_batch *batch, *held;
		int status;
		pid_t pid;

		if (!TEST_FORK_BESIDE_THREADS && (threads || thread_counts[i])) {
			print_message(TEST_FORK_SKIP);
			continue;
		}
		loader = open_with(thread_counts[i], 0);
		held = next_batch(loader);
		pid = fork();

		assert_true(pid >= 0);
		if (pid == 0) {
			int rc = hr_loader_next(loader, &batch);

			if (rc == -HR_E_FORKED)
				rc = hr_loader_release(loader, held, NULL);
			hr_loader_close(loader);
			_exit(rc == -HR_E_FORKED ? 0 : 1);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
		check_batch(&f, loader, next_batch(loader), false);
		hr_loader_close(loader);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(file_shrinks),
		cmocka_unit_test(file_is_emptied),
		cmocka_unit_test(queue_breaks_behind_a_failure),
		cmocka_unit_test(endless_timeout),
		cmocka_unit_test(drive_fails),
		cmocka_unit_test(every_slot_held),
		cmocka_unit_test(one_held_for_long),
		cmocka_unit_test(held_at_random),
		cmocka_unit_test(release_of_strangers),
		cmocka_unit_test(close_at_any_time),
		cmocka_unit_test(stopped_by_another_thread),
		cmocka_unit_test(lanes_that_lag),
		cmocka_unit_test(stopped_while_a_lane_lags),
		cmocka_unit_test(short_looks),
		cmocka_unit_test(lanes_of_the_device),
		cmocka_unit_test(stopped_by_a_signal),
		cmocka_unit_test(states_of_other_runs),
		cmocka_unit_test(restore_at_the_end),
		cmocka_unit_test(options_refused),
		cmocka_unit_test(forked),
	};

	if (argc > 1)
		device_name = argv[1];
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
