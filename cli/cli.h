/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli/cli.h - what the verbs of the command share: options, sentences, output, progress, device.
 *
 * The command is a face: it knows the library only through <headrace/...>. A verb is one function in
 * one file; it returns the exit code: 0 done, 1 failed with a sentence on stderr, 2 bad usage, 3 a
 * requirement of `check` not met, 130 interrupted.
 */
#ifndef HR_CLI_CLI_H
#define HR_CLI_CLI_H

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <headrace/headrace.h>

#define CLI_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2, CLI_NOT_MET = 3, CLI_INTERRUPTED = 130 };

/* -- options.c: one table per verb gives the parser and the help ------------------------------- */

enum cli_type {
	CLI_FLAG,   /* bool */
	CLI_TEXT,   /* const char * */
	CLI_CHOICE, /* const char *, one of the words in .argument, separated by | */
	CLI_NUMBER, /* uint64_t, min..max */
	CLI_SIZE,   /* uint64_t, min..max, with K M G T */
	CLI_REAL,   /* double, min..max */
};

struct cli_option {
	const char *name;
	enum cli_type type;
	size_t offset;        /* of the target in the verb's settings */
	const char *argument; /* shown in the help; NULL for flags */
	const char *help;
	uint64_t min, max; /* max 0: no bound */
};

struct cli_usage {
	const char *verb;
	const char *operands; /* "SRC DST" */
	const char *summary;  /* one line */
	const char *detail;   /* a paragraph, or NULL */
	const struct cli_option *options;
	uint32_t n_options;
	uint32_t min_operands, max_operands;
};

struct cli_common {
	bool json;
	const char *device;
};

/* Lines that end every verb's table; @type: the settings struct, which has a member `common`. */
#define CLI_COMMON_OPTIONS(type)                                                                   \
	{"device",                                                                                 \
	 CLI_TEXT,                                                                                 \
	 offsetof(type, common.device),                                                            \
	 "NAME",                                                                                   \
	 "host, cuda:N or auto: the first GPU, else host (default auto)",                          \
	 0,                                                                                        \
	 0},                                                                                       \
	{                                                                                          \
		"json", CLI_FLAG, offsetof(type, common.json), NULL,                               \
			"print one JSON object instead of a table", 0, 0                           \
	}

/*
 * cli_parse() - fill @settings from the arguments after the verb.
 * @operands: receives the first operand's index in @argv; they end at @argc.
 * Return: -1 to go on, or the exit code (after --help, or after a sentence about bad usage).
 */
int cli_parse(const struct cli_usage *usage, int argc, char **argv, void *settings, int *operands);

/* cli_parse_size() - "4K", "1M", "2G", "123". Return: 0 or -EINVAL. */
int cli_parse_size(const char *text, uint64_t *out);

/* cli_closest() - the word most like @word, or NULL when none is near. */
const char *cli_closest(const char *word, const char *const *words, uint32_t n);

/* -- error.c ------------------------------------------------------------------------------------ */

/* cli_fail() - print a sentence. Return: CLI_FAILED. */
int cli_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* cli_fail_code() - the library's sentence for @code, else @object and the code's text. */
int cli_fail_code(int code, const char *object);

/* cli_remedy() - what to do about a negative code of a request that failed. */
const char *cli_remedy(int code);

/* cli_forget_detail() - the library's last sentence was dealt with and belongs to no later failure. */
void cli_forget_detail(void);

/* cli_usage_error() - print a sentence and where the help is. Return: CLI_USAGE. */
int cli_usage_error(const char *verb, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* cli_note() - one line on stderr that is no failure. */
void cli_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* -- signal.c ----------------------------------------------------------------------------------- */

extern atomic_int cli_interrupted;

/*
 * cli_catch_interrupt() - SIGINT and SIGTERM set cli_interrupted and call @fn(@arg), which must be
 * safe in a signal handler; a second signal kills. @fn: NULL for the flag alone.
 */
void cli_catch_interrupt(void (*fn)(void *arg), void *arg);

/* cli_release_interrupt() - no more calls of @fn: its argument is about to go. The flag still works. */
void cli_release_interrupt(void);

/* -- output.c ----------------------------------------------------------------------------------- */

#define CLI_TEXT_BYTES 32

/* cli_bytes() - "1.5 GiB" into @text of CLI_TEXT_BYTES. Return: @text. */
const char *cli_bytes(char *text, double bytes);

/* cli_rate() - "1.53 GB/s" (powers of 1000, as drives are sold). Return: @text. */
const char *cli_rate(char *text, double bytes_per_second);

/* cli_row() - one aligned line "label   value" on stdout. */
void cli_row(const char *label, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* cli_print_json() - print and free. Return: CLI_OK, or CLI_FAILED when stdout is broken. */
int cli_print_json(json_t *object);

/* cli_json_paths() - {"host": bytes, ...}, without the paths that carried nothing. */
json_t *cli_json_paths(const uint64_t bytes_by_path[HR_PATH_MAX]);

/* cli_paths() - "host 98 %, bounce 2 %" for people. Return: @text. */
const char *cli_paths(char *text, size_t size, const uint64_t bytes_by_path[HR_PATH_MAX]);

json_t *cli_json_queue(const struct hr_queue_info *queue);
json_t *cli_json_residency(const struct hr_residency_info *residency);

/* cli_colour() - start of a colour on a terminal, "" elsewhere; cli_colour(0) ends it. */
const char *cli_colour(int ansi);

/* -- progress.c --------------------------------------------------------------------------------- */

struct cli_progress {
	const char *label;
	uint64_t total; /* 0: unknown */
	uint64_t start_ns, last_ns;
	bool on, drawn;
};

void cli_progress_begin(struct cli_progress *p, const char *label, uint64_t total);

/* cli_progress_due() - is it time to draw? Cheap; false away from a terminal and in the first second. */
bool cli_progress_due(struct cli_progress *p, uint64_t now_ns);

/* cli_progress_bytes() - a bar with bytes, rate and time left, if due. */
void cli_progress_bytes(struct cli_progress *p, uint64_t done);

/* cli_progress_line() - a bar for @done of total and @text, now. */
void cli_progress_line(struct cli_progress *p, uint64_t done, const char *text);

/* cli_progress_end() - wipe the line. */
void cli_progress_end(struct cli_progress *p);

/* -- publish.c ---------------------------------------------------------------------------------- */

/* cli_publish() - let `headrace stat` see this process; where that is impossible, go on unseen. */
void cli_publish(bool on);

/* -- device.c ----------------------------------------------------------------------------------- */

struct cli_device {
	struct hr_device *dev;
	struct hr_device_info info;
	bool chosen;      /* by the auto rule */
	char reason[320]; /* then: why this one */
};

/* cli_device_open() - open --device; says on stderr what auto took. Return: CLI_OK or CLI_FAILED. */
int cli_device_open(const char *name, struct cli_device *out);

/* cli_device_json() - add "device" and, after auto, "device_reason". */
void cli_device_json(const struct cli_device *device, json_t *object);

/* -- small things ------------------------------------------------------------------------------- */

/* The word of --cache, which cli_parse() has checked. */
static inline enum hr_cache cli_cache(const char *word)
{
	return *word == 'k' ? HR_CACHE_KEEP : *word == 'd' ? HR_CACHE_DROP : HR_CACHE_AUTO;
}

static inline uint64_t cli_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static inline double cli_seconds(uint64_t ns)
{
	return (double)ns / 1e9;
}

static inline uint64_t cli_min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Per second, without dividing by nothing. */
static inline double cli_per(double amount, double unit)
{
	return unit > 0 ? amount / unit : 0;
}

/* Threads that copy out of the page cache: more do not fill a link of PCIe 5.0 any better. */
#define CLI_COPYING_THREADS 12u

/* cli_cpus() - processors this process may use, 1.. */
uint32_t cli_cpus(void);

/* cli_pread_full() - plain read(2)s until @len or the end. Return: bytes or -errno. */
int64_t cli_pread_full(int fd, void *buf, uint64_t len, uint64_t offset);

/* cli_sync_dir() - make a rename in the directory of @path durable. Return: 0 or -errno. */
int cli_sync_dir(const char *path);

/* -- the verbs ---------------------------------------------------------------------------------- */

struct cli_verb {
	const char *name;
	const char *summary;
	int (*run)(int argc, char **argv);
};

int cli_verb_bench(int argc, char **argv);
int cli_verb_check(int argc, char **argv);
int cli_verb_cp(int argc, char **argv);
int cli_verb_explain(int argc, char **argv);
int cli_verb_index(int argc, char **argv);
int cli_verb_load(int argc, char **argv);
int cli_verb_run(int argc, char **argv);
int cli_verb_stat(int argc, char **argv);
int cli_verb_stream(int argc, char **argv);

#endif
