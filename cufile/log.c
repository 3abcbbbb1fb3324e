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

/*
 * Libc has a lock for what it knows of time zones, which it does not make new in a child of fork(): none of
 * our threads is to have it at that moment, and a child, as others may have had it, does not ask again.
 */
static pthread_mutex_t clock_lock = PTHREAD_MUTEX_INITIALIZER;
static long east; /* of Greenwich, in seconds, when somebody last asked */
static bool asked;

/* Days are counted from the 1st of March of the year 0, so that the odd day is a year's last. */
void cf_calendar(int64_t seconds, struct tm *out)
{
	int64_t days = seconds / 86400 + 719468, era = days / 146097;
	int left = (int)(seconds % 86400), day = (int)(days % 146097), year, month;

	year = (day - day / 1460 + day / 36524 - day / 146096) / 365;
	day -= 365 * year + year / 4 - year / 100;
	month = (5 * day + 2) / 153;
	memset(out, 0, sizeof(*out));
	out->tm_mday = day - (153 * month + 2) / 5 + 1;
	out->tm_mon = (month + 2) % 12;
	out->tm_year = (int)(year + 400 * era) + (month >= 10) - 1900;
	out->tm_hour = left / 3600;
	out->tm_min = left / 60 % 60;
	out->tm_sec = left % 60;
}

static void local_time(time_t at, struct tm *out)
{
	pthread_mutex_lock(&clock_lock);
	if (cf_forks() && asked) {
		cf_calendar((int64_t)at + east, out);
	} else if (localtime_r(&at, out)) {
		east = out->tm_gmtoff;
		asked = true;
	}
	pthread_mutex_unlock(&clock_lock);
}

void cf_clock_lock(void)
{
	pthread_mutex_lock(&clock_lock);
}

void cf_clock_unlock(void)
{
	pthread_mutex_unlock(&clock_lock);
}

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
	local_time(named_at, &tm);
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
	local_time(ts.tv_sec, &tm);
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

	lock = clock_lock = fresh;
}
