/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/cli/confine.c - runs a program with less than it is used to: no io_uring, no cachestat (Linux
 * before 6.5, and containers that do not know it), little locked memory, little address space, few
 * descriptors, another user. Usage: confine [--deny-uring ERRNO] [--deny-cachestat ERRNO]
 * [--memlock BYTES] [--as BYTES] [--nofile N] [--uid N] PROGRAM ARGUMENT...
 * Exits 77 when it cannot confine.
 */
#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static void fail(const char *what)
{
	fprintf(stderr, "confine: %s: %s\n", what, strerror(errno));
	exit(77);
}

#define CACHESTAT 451 /* on every architecture; the headers of Debian 12 do not know it */

static void deny(unsigned int call, int error)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned int)error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = sizeof(code) / sizeof(code[0]), .filter = code};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		fail("seccomp");
}

static void limit(int resource, const char *bytes)
{
	struct rlimit r = {strtoull(bytes, NULL, 10), strtoull(bytes, NULL, 10)};

	if (setrlimit(resource, &r))
		fail("setrlimit");
}

/* Locked memory is not limited for those with CAP_IPC_LOCK: give it up, also for the program. */
static void drop_ipc_lock(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];

	if (geteuid() == 0 && prctl(PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0))
		fail("capability bounding set");
	if (syscall(SYS_capget, &header, data))
		fail("capget");
	data[0].effective &= ~(1u << CAP_IPC_LOCK);
	data[0].permitted &= ~(1u << CAP_IPC_LOCK);
	data[0].inheritable &= ~(1u << CAP_IPC_LOCK);
	if (syscall(SYS_capset, &header, data))
		fail("capset");
}

static void become(const char *uid)
{
	uid_t id = (uid_t)strtoul(uid, NULL, 10);

	if (setgroups(0, NULL) || setresgid(id, id, id) || setresuid(id, id, id))
		fail("setuid");
}

int main(int argc, char **argv)
{
	int i = 1, uring = 0, cachestat = 0;

	for (; i + 1 < argc && !strncmp(argv[i], "--", 2); i += 2) {
		if (!strcmp(argv[i], "--deny-uring"))
			uring = (int)strtol(argv[i + 1], NULL, 10);
		else if (!strcmp(argv[i], "--deny-cachestat"))
			cachestat = (int)strtol(argv[i + 1], NULL, 10);
		else if (!strcmp(argv[i], "--memlock")) {
			drop_ipc_lock();
			limit(RLIMIT_MEMLOCK, argv[i + 1]);
		} else if (!strcmp(argv[i], "--as"))
			limit(RLIMIT_AS, argv[i + 1]);
		else if (!strcmp(argv[i], "--nofile"))
			limit(RLIMIT_NOFILE, argv[i + 1]);
		else if (!strcmp(argv[i], "--uid"))
			become(argv[i + 1]);
		else
			break;
	}
	if (i >= argc)
		return 77;
	if (uring)
		deny(SYS_io_uring_setup, uring);
	if (cachestat)
		deny(CACHESTAT, cachestat);
	execv(argv[i], argv + i);
	fail(argv[i]);
}
