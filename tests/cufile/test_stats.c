/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_stats - counters of the three levels: their layout in memory, what moves them, and when they can be
 * asked for. How: guard bytes behind the shorter layout of 1.15 to 1.18, which is the one that a library
 * may write, and known numbers of known operations.
 */
#include "batch.h"

static int closed(void **state)
{
	while (cuFileUseCount() > 0)
		assert_ok(cuFileDriverClose_v2());
	cuFileSetStatsLevel(0);
	return 0;
}

static void levels(void **state)
{
	int level = -1;

	assert_ok(cuFileDriverOpen());
	for (int i = 0; i <= 3; i++) {
		assert_ok(cuFileSetStatsLevel(i));
		assert_ok(cuFileGetStatsLevel(&level));
		assert_int_equal(level, i);
	}
	assert_err(cuFileSetStatsLevel(4), CU_FILE_INVALID_VALUE);
	assert_err(cuFileSetStatsLevel(-1), CU_FILE_INVALID_VALUE);
	assert_err(cuFileGetStatsLevel(NULL), CU_FILE_INVALID_VALUE);
	assert_ok(cuFileGetStatsLevel(&level));
	assert_int_equal(level, 3);
}

static void closed_driver(void **state)
{
	static CUfileStatsLevel3_t s;

	assert_int_equal(cuFileUseCount(), 0);
	assert_err(cuFileGetStatsL1(&s.detailed.basic), CU_FILE_DRIVER_NOT_INITIALIZED);
	assert_err(cuFileGetStatsL2(&s.detailed), CU_FILE_DRIVER_NOT_INITIALIZED);
	assert_err(cuFileGetStatsL3(&s), CU_FILE_DRIVER_NOT_INITIALIZED);
}

static void level_too_low(void **state)
{
	static CUfileStatsLevel3_t s;

	for (int level = 0; level <= 3; level++) {
		assert_ok(cuFileSetStatsLevel(level));
		assert_ok(cuFileDriverOpen());
		cuFileStatsStart();
		assert_err(cuFileGetStatsL1(&s.detailed.basic),
			   level >= 1 ? CU_FILE_SUCCESS : CU_FILE_INVALID_VALUE);
		assert_err(cuFileGetStatsL2(&s.detailed),
			   level >= 2 ? CU_FILE_SUCCESS : CU_FILE_INVALID_VALUE);
		assert_err(cuFileGetStatsL3(&s),
			   level >= 3 ? CU_FILE_SUCCESS : CU_FILE_INVALID_VALUE);
		assert_err(cuFileGetStatsL1(NULL), CU_FILE_INVALID_VALUE);
		cuFileStatsStop();
		closed(state);
	}
}

static void begin(int level)
{
	assert_ok(cuFileSetStatsLevel(level));
	assert_ok(cuFileDriverOpen());
	assert_ok(cuFileStatsStart());
	assert_ok(cuFileStatsReset());
}

/* Callers of 1.15 to 1.18 pass this much and no more. */
static void writes_no_more(void **state)
{
	static const size_t sizes[] = {512, 1024, 5000};
	uint8_t *room = malloc(8192);

	begin(3);
	for (int i = 0; i < 3; i++) {
		memset(room, TEST_GUARD, 8192);
		if (i == 0)
			assert_ok(cuFileGetStatsL1((void *)room));
		else if (i == 1)
			assert_ok(cuFileGetStatsL2((void *)room));
		else
			assert_ok(cuFileGetStatsL3((void *)room));
		for (size_t k = sizes[i]; k < 8192; k++)
			assert_int_equal(room[k], TEST_GUARD);
		/* And all of that: nothing of the caller's rubbish is left in the counters. */
		for (size_t k = 0; k < 96; k++)
			assert_int_not_equal(room[k], TEST_GUARD);
	}
	free(room);
}

/* Ten reads, three writes, some of which fail. */
static void work(void)
{
	struct target t, r;
	char *p = mem_alloc(MIB);

	target_open(&t, MIB, O_RDWR);
	target_open(&r, PAGE, O_RDONLY);
	assert_ok(cuFileBufRegister(p, MIB, 0));
	for (int i = 0; i < 8; i++)
		assert_int_equal(cuFileRead(t.handle, p, 8192, i * 1000, 0), 8192);
	assert_int_equal(cuFileRead(t.handle, p, 2 * MIB, 0, 0), -1);
	assert_int_equal(cuFileRead(t.handle, p, PAGE, -1, 0), -1);
	for (int i = 0; i < 2; i++)
		assert_int_equal(cuFileWrite(t.handle, p, 65536, 0, 0), 65536);
	assert_int_equal(cuFileWrite(r.handle, p, PAGE, 0, 0), -1);
	assert_ok(cuFileBufDeregister(p));
	target_close(&t);
	target_close(&r);
	mem_free(p);
}

static void counts_operations(void **state)
{
	static CUfileStatsLevel3_t s;
	CUfileStatsLevel1_t *b = &s.detailed.basic;
	uint64_t reads = 0, writes = 0;

	begin(3);
	work();
	memset(&s, TEST_GUARD, sizeof(s));
	assert_ok(cuFileGetStatsL3(&s));
	assert_int_equal(b->read_ops.ok, 8);
	assert_int_equal(b->write_ops.ok, 2);
	assert_in_range(b->read_ops.err, 1, 2);
	assert_in_range(b->write_ops.err, 0, 1);
	assert_int_equal(b->hdl_register_ops.ok, 2);
	assert_int_equal(b->hdl_deregister_ops.ok, 2);
	assert_int_equal(b->buf_register_ops.ok, 1);
	assert_int_equal(b->buf_deregister_ops.ok, 1);
	assert_int_equal(b->read_bytes, 8 * 8192);
	assert_int_equal(b->write_bytes, 2 * 65536);
	assert_true(b->read_lat_avg_us <= b->read_lat_sum_us);
	for (int i = 0; i < 32; i++) {
		reads += s.detailed.read_size_kb_hist[i];
		writes += s.detailed.write_size_kb_hist[i];
	}
	assert_int_equal(reads, 8);
	assert_int_equal(writes, 2);
	assert_in_range(s.num_gpus, 0, 16);
	if (on_gpu) {
		assert_true(s.num_gpus >= 1);
		assert_int_equal(s.per_gpu_stats[0].n_total_reads, 8);
		assert_int_equal(s.per_gpu_stats[0].read_bytes, 8 * 8192);
		assert_int_equal(s.per_gpu_stats[0].n_total_writes, 2);
		assert_int_equal(s.per_gpu_stats[0].writes_bytes, 2 * 65536);
		assert_int_equal(s.per_gpu_stats[0].n_p2p_reads + s.per_gpu_stats[0].n_nvfs_reads,
				 0);
	}
	assert_ok(cuFileStatsReset());
	assert_ok(cuFileGetStatsL3(&s));
	assert_int_equal(b->read_ops.ok, 0);
	assert_int_equal(b->read_bytes, 0);
	assert_ok(cuFileStatsStop());
}

static void counts_batches(void **state)
{
	static CUfileStatsLevel1_t s;
	struct target t;
	struct batch b;

	begin(1);
	target_open(&t, 3 * MIB, O_RDWR | O_DIRECT);
	batch_open(&b, 32, 3 * MIB);
	for (int round = 0; round < 3; round++) {
		batch_prepare(&b, 32, t.handle);
		assert_ok(cuFileBatchIOSubmit(b.handle, 32, b.io, 0));
		batch_collect(&b, 32, 32);
	}
	assert_ok(cuFileBatchIOCancel(b.handle));
	batch_close(&b);
	assert_ok(cuFileGetStatsL1(&s));
	assert_int_equal(s.batch_setup_ops.ok, 1);
	assert_int_equal(s.batch_destroy_ops.ok, 1);
	assert_int_equal(s.batch_submit_ops.ok, 3);
	assert_int_equal(s.batch_cancel_ops.ok, 1);
	assert_true(s.batch_read_bytes > 0);
	assert_int_equal(s.batch_write_bytes, 0);
	assert_true(s.batch_complete_ops.ok > 0);
	target_close(&t);
}

/* Nothing moves before Start and after Stop. */
static void stands_still(void **state)
{
	static CUfileStatsLevel1_t s;

	begin(1);
	assert_ok(cuFileStatsStop());
	work();
	assert_ok(cuFileGetStatsL1(&s));
	assert_int_equal(s.read_ops.ok, 0);
	assert_ok(cuFileStatsStart());
	work();
	assert_ok(cuFileGetStatsL1(&s));
	assert_int_equal(s.read_ops.ok, 8);
	assert_ok(cuFileStatsStop());
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(levels, closed),
		cmocka_unit_test_setup(closed_driver, closed),
		cmocka_unit_test_setup(level_too_low, closed),
		cmocka_unit_test_setup(writes_no_more, closed),
		cmocka_unit_test_setup(counts_operations, closed),
		cmocka_unit_test_setup(counts_batches, closed),
		cmocka_unit_test_setup(stands_still, closed),
	};

	if (!fixture_init(argc, argv))
		return 2;
	return fixture_fini(cmocka_run_group_tests(tests, NULL, closed));
}
