/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What: hr_check() on machines made of files below a root, and hr_explain() on real files.
 * How: each test writes the few files of proc/ and sys/ that matter and looks for the judged item; no
 * machine is asked, so the answers are the same everywhere.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <headrace/headrace.h>

#include "base/util.h"

struct machine {
	char root[256];
	struct hr_check_report report;
};

static int setup(void **state)
{
	struct machine *m = calloc(1, sizeof(*m));
	const char *tmp = getenv("TMPDIR");

	assert_non_null(m);
	snprintf(m->root, sizeof(m->root), "%.200s/headrace-doctor-XXXXXX", tmp ? tmp : "/tmp");
	assert_non_null(mkdtemp(m->root));
	*state = m;
	return 0;
}

static int teardown(void **state)
{
	struct machine *m = *state;
	char command[300];

	hr_check_free(&m->report);
	snprintf(command, sizeof(command), "rm -rf '%s'", m->root);
	assert_int_equal(system(command), 0);
	free(m);
	return 0;
}

/* A file of the machine, with the folders above it. */
static void put(struct machine *m, const char *path, const char *text)
{
	char full[600];
	FILE *f;

	snprintf(full, sizeof(full), "%s/%s", m->root, path);
	for (char *slash = full + strlen(m->root) + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		mkdir(full, 0755);
		*slash = '/';
	}
	f = fopen(full, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static const struct hr_check_item *judge(struct machine *m, const char *name)
{
	const struct hr_check_options opts = {.root = m->root};

	hr_check_free(&m->report);
	assert_int_equal(hr_check(&opts, &m->report), 0);
	for (uint32_t i = 0; i < m->report.n_items; i++) {
		if (!strcmp(m->report.items[i].name, name))
			return &m->report.items[i];
	}
	return NULL;
}

static void expect(struct machine *m, const char *name, enum hr_check_state state,
		   const char *cause)
{
	const struct hr_check_item *item = judge(m, name);

	assert_non_null(item);
	if (item->state != state || !strstr(item->cause, cause))
		fail_msg("%s: state %d, cause \"%s\"", name, (int)item->state, item->cause);
	/* what is not ok and can be changed says how */
	assert_true(state == HR_CHECK_OK || item->fix[0]);
}

static void test_empty_machine(void **state)
{
	struct machine *m = *state;

	/* nothing can be read: everything is an item, nothing an error */
	expect(m, "version", HR_CHECK_LIMITED, "unknown");
	expect(m, "PCI_P2PDMA", HR_CHECK_LIMITED, "unknown");
	expect(m, "RLIMIT_MEMLOCK", HR_CHECK_LIMITED, "unknown");
	assert_null(judge(m, "cgroup memory"));
}

static void test_version(void **state)
{
	struct machine *m = *state;

	put(m, "proc/sys/kernel/osrelease", "6.5.0-generic\n");
	expect(m, "version", HR_CHECK_OK, "6.5.0");
	put(m, "proc/sys/kernel/osrelease", "6.2.0\n");
	expect(m, "version", HR_CHECK_LIMITED, "cachestat");
	put(m, "proc/sys/kernel/osrelease", "5.15.0\n");
	expect(m, "version", HR_CHECK_LIMITED, "5.15");
	put(m, "proc/sys/kernel/osrelease", "4.18.0-500.el8\n");
	expect(m, "version", HR_CHECK_NO, "4.18");
	put(m, "proc/sys/kernel/osrelease", "nonsense\n");
	expect(m, "version", HR_CHECK_LIMITED, "unknown");
}

static void test_io_uring_sysctl(void **state)
{
	struct machine *m = *state;

	put(m, "proc/sys/kernel/io_uring_disabled", "0\n");
	expect(m, "io_uring", HR_CHECK_OK, "allowed");
	put(m, "proc/sys/kernel/io_uring_disabled", "1\n");
	expect(m, "io_uring", HR_CHECK_NO, "io_uring_group");
	put(m, "proc/sys/kernel/io_uring_disabled", "2\n");
	expect(m, "io_uring", HR_CHECK_NO, "denied to all");
	put(m, "proc/sys/kernel/io_uring_disabled", "77\n");
	expect(m, "io_uring", HR_CHECK_NO, "denied");
}

static void test_p2pdma(void **state)
{
	struct machine *m = *state;

	put(m, "proc/sys/kernel/osrelease", "6.8.0\n");
	put(m, "proc/kallsyms",
	    "0000000000000000 T pci_enable_device\n"
	    "0000000000000000 T pci_p2pdma_add_resource_more\n");
	expect(m, "PCI_P2PDMA", HR_CHECK_NO, "not built in");
	put(m, "proc/kallsyms",
	    "0000000000000000 T pci_enable_device\n"
	    "0000000000000000 T pci_p2pdma_add_resource\t[mod]\n");
	expect(m, "PCI_P2PDMA", HR_CHECK_OK, "built in");
	/* the configuration of this very kernel wins over the symbols */
	put(m, "boot/config-6.8.0", "CONFIG_PCI=y\n# CONFIG_PCI_P2PDMA is not set\n");
	expect(m, "PCI_P2PDMA", HR_CHECK_NO, "not built in");
	put(m, "boot/config-6.8.0", "CONFIG_PCI=y\nCONFIG_PCI_P2PDMA=y\n");
	expect(m, "PCI_P2PDMA", HR_CHECK_OK, "built in");
}

static void test_memlock(void **state)
{
	struct machine *m = *state;

	put(m, "proc/self/limits",
	    "Limit                     Soft Limit           Hard Limit\n"
	    "Max locked memory         65536                65536     bytes\n"
	    "Max open files            256                  4096      files\n");
	put(m, "proc/self/status", "Name:\tx\nCapEff:\t0000000000000000\nSeccomp:\t0\n");
	expect(m, "RLIMIT_MEMLOCK", HR_CHECK_LIMITED, "64 KiB");
	expect(m, "RLIMIT_NOFILE", HR_CHECK_LIMITED, "256");
	put(m, "proc/self/status", "Name:\tx\nCapEff:\t0000000000004000\nSeccomp:\t2\n");
	expect(m, "RLIMIT_MEMLOCK", HR_CHECK_OK, "CAP_IPC_LOCK");
	expect(m, "seccomp", HR_CHECK_LIMITED, "filter");
	put(m, "proc/self/limits",
	    "Max locked memory         unlimited            unlimited bytes\n");
	put(m, "proc/self/status", "CapEff:\t0000000000000000\n");
	expect(m, "RLIMIT_MEMLOCK", HR_CHECK_OK, "unlimited");
}

static void test_cgroup(void **state)
{
	struct machine *m = *state;

	put(m, "proc/self/cgroup", "0::/a/b\n");
	put(m, "sys/fs/cgroup/a/b/memory.max", "max\n");
	expect(m, "cgroup memory", HR_CHECK_OK, "no limit");
	/* a limit of a group above binds too */
	put(m, "sys/fs/cgroup/a/memory.max", "536870912\n");
	put(m, "sys/fs/cgroup/memory.max", "1073741824\n");
	expect(m, "cgroup memory", HR_CHECK_LIMITED, "512 MiB");
	put(m, "proc/self/cgroup", "3:memory:/x\n0::/a/b\n");
	put(m, "sys/fs/cgroup/memory/x/memory.limit_in_bytes", "8589934592\n");
	expect(m, "cgroup memory", HR_CHECK_OK, "8192 MiB");
}

static void test_container(void **state)
{
	struct machine *m = *state;

	assert_null(judge(m, "container"));
	put(m, "proc/self/cgroup", "0::/kubepods/pod1\n");
	expect(m, "container", HR_CHECK_OK, "Kubernetes");
	put(m, ".dockerenv", "");
	expect(m, "container", HR_CHECK_OK, "Docker");
}

static void test_drives(void **state)
{
	struct machine *m = *state;

	put(m, "sys/class/block/nvme0n1/queue/scheduler", "[none] mq-deadline\n");
	put(m, "sys/class/block/nvme0n1/device/model", "Fast Drive 9000\n");
	put(m, "sys/class/block/nvme1n1/queue/scheduler", "none [mq-deadline]\n");
	put(m, "sys/class/block/vda/queue/scheduler", "[none]\n");
	put(m, "sys/class/block/loop0/queue/scheduler", "[none]\n");
	expect(m, "nvme0n1", HR_CHECK_OK, "Fast Drive 9000");
	expect(m, "nvme1n1", HR_CHECK_LIMITED, "mq-deadline");
	expect(m, "vda", HR_CHECK_LIMITED, "virtio");
	assert_null(judge(m, "loop0"));
}

static void test_iommu_and_modules(void **state)
{
	struct machine *m = *state;

	expect(m, "IOMMU", HR_CHECK_OK, "off");
	expect(m, "NVIDIA kernel module", HR_CHECK_NO, "not loaded");
	put(m, "sys/kernel/iommu_groups/0/type", "DMA\n");
	put(m, "sys/kernel/iommu_groups/1/type", "DMA\n");
	put(m, "sys/module/nvidia/version", "580\n");
	put(m, "sys/module/nvidia_fs/version", "2\n");
	put(m, "run/udev/data/b8:0", "");
	expect(m, "IOMMU", HR_CHECK_LIMITED, "translates");
	expect(m, "NVIDIA kernel module", HR_CHECK_OK, "loaded");
	expect(m, "nvidia-fs", HR_CHECK_LIMITED, "hidden");
	expect(m, "udev", HR_CHECK_OK, "there");
}

/* Lines without end and endless lines must not hurt. */
static void test_hostile_files(void **state)
{
	struct machine *m = *state;
	char *text = malloc(100001);

	assert_non_null(text);
	memset(text, 'x', 100000);
	text[100000] = '\0';
	put(m, "proc/sys/kernel/osrelease", text);
	put(m, "proc/kallsyms", text);
	put(m, "proc/self/limits", text);
	put(m, "proc/self/status", text);
	memcpy(text, "0::/", 4);
	put(m, "proc/self/cgroup", text);
	put(m, "sys/class/block/nvme0n1/queue/scheduler", "[");
	put(m, "sys/class/block/nvme0n1/device/model", text);
	expect(m, "version", HR_CHECK_LIMITED, "unknown");
	expect(m, "RLIMIT_MEMLOCK", HR_CHECK_LIMITED, "unknown");
	assert_non_null(judge(m, "nvme0n1"));
	free(text);
}

static void test_explain(void **state)
{
	struct machine *m = *state;
	struct hr_explanation *e = calloc(1, sizeof(*e));
	struct hr_device *dev;
	struct hr_file *file;
	char path[300];
	uint32_t taken = 0;

	assert_non_null(e);
	put(m, "data", "some bytes of a small file");
	snprintf(path, sizeof(path), "%s/data", m->root);
	assert_int_equal(hr_device_open("host", &dev), 0);
	assert_int_equal(hr_file_open(path, HR_FILE_READ, &file), 0);
	assert_int_equal(hr_explain(file, dev, 0, 0, e), 0);
	assert_int_equal(e->path, HR_PATH_HOST);
	assert_int_equal(e->file.size_bytes, 26);
	assert_string_equal(e->device.name, "host");
	assert_true(e->queue.name[0]);
	assert_int_equal(e->n_verdicts, 4);
	for (uint32_t i = 0; i < e->n_verdicts; i++) {
		taken += (uint32_t)e->verdicts[i].taken;
		assert_true(e->verdicts[i].reason[0]);
	}
	assert_int_equal(taken, 1);
	assert_string_equal(e->verdicts[1].name, "pagecache");
	assert_string_equal(e->verdicts[3].name, "p2p");
	assert_true(e->n_extents || e->extents_reason[0]);
	/* the end of the file is still in range, what lies behind it is not */
	assert_int_equal(hr_explain(file, dev, 26, 0, e), 0);
	assert_int_equal(hr_explain(file, dev, 27, 0, e), -EINVAL);
	assert_non_null(strstr(hr_error_detail(), path));
	hr_file_close(file);
	hr_device_close(dev);
	free(e);
}

/* What is foreseen is what an engine then does, counted by its own statistics. */
static void test_foresight(void **state)
{
	static const uint64_t ranges[][2] = {{0, 0},        {0, 1},       {77, 5000000},
					     {4096, 65536}, {511, 70001}, {8000000, 1000000},
					     {8388607, 1}};
	struct machine *m = *state;
	struct hr_explanation *e = calloc(1, sizeof(*e));
	const struct hr_engine_options opts = {.direct = true};
	const uint64_t size = 8u << 20;
	struct hr_engine *engine;
	struct hr_buffer *buffer;
	struct hr_device *dev;
	struct hr_file *file;
	char path[300];

	assert_non_null(e);
	snprintf(path, sizeof(path), "%s/data", m->root);
	assert_int_equal(hr_device_open("host", &dev), 0);
	assert_int_equal(hr_buffer_alloc(dev, size, &buffer), 0);
	assert_int_equal(hr_engine_open(dev, &opts, &engine), 0);
	assert_int_equal(hr_file_open(path, HR_FILE_READ | HR_FILE_WRITE | HR_FILE_CREATE, &file),
			 0);
	memset(hr_buffer_address(buffer), 7, size);
	assert_int_equal(hr_write(engine, file, 0, size, buffer, 0), size);
	assert_int_equal(hr_file_sync(file), 0);
	hr_file_close(file);
	assert_int_equal(hr_file_open(path, HR_FILE_READ, &file), 0);
	for (size_t i = 0; i < HR_ARRAY_LEN(ranges); i++) {
		uint64_t len = ranges[i][1] ? ranges[i][1] : size;
		struct hr_stats before, after;
		int64_t want = (int64_t)(len < size - ranges[i][0] ? len : size - ranges[i][0]);

		assert_int_equal(hr_explain(file, dev, ranges[i][0], ranges[i][1], e), 0);
		hr_engine_stats(engine, &before);
		assert_int_equal(hr_read(engine, file, ranges[i][0], len, buffer, 0), want);
		hr_engine_stats(engine, &after);
		assert_int_equal(e->foresight.reads, after.segments - before.segments);
		assert_int_equal(e->foresight.read_bytes, after.bytes_read - before.bytes_read);
		assert_int_equal(e->foresight.in_place + e->foresight.staged, e->foresight.reads);
		assert_true(e->foresight.calls_min <=
			    after.enters + after.preads - before.enters - before.preads);
	}
	assert_true(e->n_layers >= 1);
	assert_true(strlen(e->map) <= HR_MAP_CELLS && e->map[0]);
	hr_file_close(file);
	assert_int_equal(hr_engine_close(engine), 0);
	hr_buffer_free(buffer);
	hr_device_close(dev);
	free(e);
}

static void test_this_machine(void **state)
{
	struct machine *m = *state;
	const char *paths[] = {m->root, "/no/such/place"};
	const struct hr_check_options opts = {.device = "host", .paths = paths, .n_paths = 2};
	bool refused = false;

	assert_int_equal(hr_check(&opts, &m->report), 0);
	for (uint32_t i = 0; i < m->report.n_items; i++) {
		const struct hr_check_item *item = &m->report.items[i];

		assert_true(item->name[0] && item->cause[0]);
		refused |=
			!strcmp(item->name, "direct /no/such/place") && item->state == HR_CHECK_NO;
	}
	assert_true(refused);
	/* a directory is judged without leaving anything in it */
	assert_int_equal(rmdir(m->root), 0);
	assert_int_equal(mkdir(m->root, 0755), 0);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		CASE(test_empty_machine), CASE(test_version), CASE(test_io_uring_sysctl),
		CASE(test_p2pdma),        CASE(test_memlock), CASE(test_cgroup),
		CASE(test_container),     CASE(test_drives),  CASE(test_iommu_and_modules),
		CASE(test_hostile_files), CASE(test_explain), CASE(test_foresight),
		CASE(test_this_machine),
	};
#undef CASE

	return cmocka_run_group_tests(tests, NULL, NULL);
}
