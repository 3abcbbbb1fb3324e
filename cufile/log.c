/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cufile/log.c - the log file, made by the first message that is wanted. A file that cannot be made
 * or grows too long is no trouble of the program's: messages are lost then.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cufile/inside.h"

#define LINE_MAX_BYTES 1024
#define FD_WISHED 201
#define FD_LEAST 3

static const char *const names[CF_LEVELS] = {"NOTICE", "ERROR", "WARN", "INFO", "DEBUG", "TRACE"};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int wanted = CF_ERROR;
static char path[CF_TEXT_BYTES + 64]; /* "": no place yet */
static int64_t bytes_max = 32ll << 20;
static int fd = -1;
static pid_t named_for; /* the process has one file, however often it is configured */
static time_t named_at;

int cf_level_parse(const char *text)
{
	for (int i = 0; i < CF_LEVELS; i++) {
		if (!strcasecmp(text, names[i]))
			return i;
	}
	return -EINVAL;
}

bool cf_log_wants(enum cf_level level)
{
	return (int)level <= atomic_load_explicit(&wanted, memory_order_relaxed);
}

void cf_log_configure(const struct cf_settings *s)
{
	const char *file = s ? s->text[CUFILE_PARAM_ENV_LOGFILE_PATH] : "";
	char name[64];
	struct tm tm;
	size_t n;

	pthread_mutex_lock(&lock);
	if (named_for != getpid()) {
		named_for = getpid();
		named_at = time(NULL);
	}
	n = (size_t)snprintf(name, sizeof(name), "cufile_%d_", (int)getpid());
	localtime_r(&named_at, &tm);
	strftime(name + n, sizeof(name) - n, "%Y-%m-%d_%H-%M-%S.log", &tm);
	if (!s)
		path[0] = '\0';
	else if (*file)
		snprintf(path, sizeof(path), "%s", file);
	else
		snprintf(path, sizeof(path), "%s/%s", s->text[CUFILE_PARAM_LOG_DIR], name);
	if (fd >= 0)
		close(fd);
	fd = -1;
	if (s) {
		bytes_max = s->log_max_mb < 0 || s->log_max_mb > INT32_MAX ? INT64_MAX
									   : s->log_max_mb << 20;
		atomic_store(&wanted, cf_level_parse(s->text[CUFILE_PARAM_LOGGING_LEVEL]));
	}
	pthread_mutex_unlock(&lock);
}

/* With the lock. Never a low descriptor: programs count on those that they have closed themselves. */
static void open_file(void)
{
	int low =
		open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0644);

	for (int least = FD_WISHED; low >= 0 && fd < 0 && least >= FD_LEAST; least -= 66)
		fd = fcntl(low, F_DUPFD_CLOEXEC, least);
	if (low >= 0)
		close(low);
	if (fd < 0)
		path[0] = '\0'; /* one try */
}

void cf_log_write(enum cf_level level, const char *module, int line, const char *format, ...)
{
	char text[LINE_MAX_BYTES];
	struct timespec ts;
	struct stat st;
	struct tm tm;
	va_list args;
	size_t n;
	int saved = errno;

	clock_gettime(CLOCK_REALTIME, &ts);
	localtime_r(&ts.tv_sec, &tm);
	n = strftime(text, sizeof(text), " %d-%m-%Y %H:%M:%S", &tm);
	n += (size_t)snprintf(text + n, sizeof(text) - n, ":%03d [pid=%d tid=%ld] %s  %s:%d ",
			      (int)(ts.tv_nsec / 1000000), (int)getpid(), syscall(SYS_gettid),
			      names[level], module, line);
	va_start(args, format);
	n += (size_t)vsnprintf(text + n, sizeof(text) - n, format, args);
	va_end(args);
	if (n > sizeof(text) - 2)
		n = sizeof(text) - 2;
	text[n++] = '\n';
	pthread_mutex_lock(&lock);
	if (fd < 0 && path[0])
		open_file();
	if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size + (int64_t)n <= bytes_max &&
	    write(fd, text, n) < 0)
		path[0] = '\0'; /* nobody to tell */
	pthread_mutex_unlock(&lock);
	errno = saved;
}

/* In a child: whoever had the lock is not here. */
void cf_log_forked(void)
{
	static const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;

	lock = fresh;
}
