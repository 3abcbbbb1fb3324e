/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unit/test_numa.c - the machine's nodes as a made-up sysfs tells them: nodes of devices, processors of
 * nodes, and files that a broken or hostile system might show.
 */
#include <sched.h>

#include "base/numa.h"
#include "base/sys.h"
#include "support/support.h"

static struct hr__sys sys;
static const char *file_path, *file_text; /* the one file that exists */
static struct {
	unsigned int calls;
	int mode;
	unsigned long first_word;
} bound;

static int fake_open(const char *path, int flags, mode_t mode)
{
	return file_path && !strcmp(path, file_path) ? 1000000 : -ENOENT;
}

static ssize_t fake_pread(int fd, void *buf, size_t len, uint64_t offset)
{
	size_t n = strlen(file_text);

	assert_int_equal(fd, 1000000);
	n = n < len ? n : len;
	memcpy(buf, file_text, n);
	return (ssize_t)n;
}

static int fake_close(int fd)
{
	return 0;
}

static int fake_mbind(void *addr, size_t len, int mode, const unsigned long *nodes,
		      unsigned long nodes_max)
{
	bound.calls++;
	bound.mode = mode;
	bound.first_word = nodes[0];
	return 0;
}

static int set_up(void **state)
{
	sys = hr__sys_real;
	sys.open = fake_open;
	sys.pread = fake_pread;
	sys.close = fake_close;
	sys.mbind = fake_mbind;
	hr__sys = &sys;
	return 0;
}

static void test_node(void **state)
{
	static const struct {
		const char *text;
		int node;
	} cases[] = {{"1\n", 1}, {"0", 0},     {"-1\n", -1},    {"", -1},
		     {"x", -1},  {"7z\n", -1}, {"99999\n", -1}, {"18446744073709551617\n", -1}};

	file_path = "/sys/bus/pci/devices/0000:3b:00.0/numa_node";
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		file_text = cases[i].text;
		assert_int_equal(hr__numa_node_of_pci("0000:3b:00.0"), cases[i].node);
	}
	file_text = "1";
	assert_int_equal(hr__numa_node_of_pci(""), -1);
	assert_int_equal(hr__numa_node_of_pci("0000:3c:00.0"), -1);
	assert_int_equal(hr__numa_node_of_pci("../0000:3b:00.0"), -1);
}

static void test_prefer(void **state)
{
	char page;

	bound.calls = 0;
	hr__numa_prefer(&page, 1, -1);
	hr__numa_prefer(&page, 1, 5000);
	assert_int_equal(bound.calls, 0);
	hr__numa_prefer(&page, 1, 3);
	assert_int_equal(bound.calls, 1);
	assert_int_equal(bound.first_word, 1 << 3);
}

/* The thread never gets processors that it did not have, and keeps its own when nothing fits. */
static void test_run_on(void **state)
{
	static const char *const useless[] = {"", "\n", "x", "0-", "5-2", "0-99999", "0;1", "1023"};
	cpu_set_t before, after;
	char one[32];
	int cpu = 0;

	assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
	file_path = "/sys/devices/system/node/node1/cpulist";
	for (size_t i = 0; i < sizeof(useless) / sizeof(useless[0]); i++) {
		file_text = useless[i];
		assert_int_equal(hr__numa_run_on(1), 0);
	}
	file_text = "0-1023";
	assert_int_equal(hr__numa_run_on(1), 0); /* all that it has already */
	assert_int_equal(hr__numa_run_on(-1), 0);
	assert_int_equal(hr__numa_run_on(2), 0);
	assert_int_equal(sched_getaffinity(0, sizeof(after), &after), 0);
	assert_true(CPU_EQUAL(&before, &after));
	if (CPU_COUNT(&before) < 2)
		return;
	while (!CPU_ISSET(cpu, &before))
		cpu++;
	snprintf(one, sizeof(one), "%d,1000-1001\n", cpu);
	file_text = one;
	assert_int_equal(hr__numa_run_on(1), 1);
	assert_int_equal(sched_getaffinity(0, sizeof(after), &after), 0);
	assert_int_equal(CPU_COUNT(&after), 1);
	assert_true(CPU_ISSET(cpu, &after));
	sched_setaffinity(0, sizeof(before), &before);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_node),
		cmocka_unit_test(test_prefer),
		cmocka_unit_test(test_run_on),
	};

	return cmocka_run_group_tests(tests, set_up, NULL);
}
