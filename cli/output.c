/* SPDX-License-Identifier: Apache-2.0 */
/* cli/output.c - JSON objects and aligned lines; which figures a verb reports is the verb's matter. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

#define LABEL_COLUMNS 16

const char *cli_bytes(char *text, double bytes)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
	uint32_t unit = 0;

	while (bytes >= 1024 && unit + 1 < CLI_ARRAY_LEN(units)) {
		bytes /= 1024;
		unit++;
	}
	snprintf(text, CLI_TEXT_BYTES, unit ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
	return text;
}

const char *cli_rate(char *text, double bytes_per_second)
{
	static const char *const units[] = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};
	uint32_t unit = 0;

	while (bytes_per_second >= 1000 && unit + 1 < CLI_ARRAY_LEN(units)) {
		bytes_per_second /= 1000;
		unit++;
	}
	snprintf(text, CLI_TEXT_BYTES, "%.2f %s", bytes_per_second, units[unit]);
	return text;
}

void cli_row(const char *label, const char *format, ...)
{
	va_list args;

	printf("%-*s ", LABEL_COLUMNS, label);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
}

int cli_print_json(json_t *object)
{
	int bad = object ? json_dumpf(object, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : -1;

	json_decref(object);
	if (bad || putchar('\n') == EOF || fflush(stdout) == EOF)
		return cli_fail("stdout: the JSON could not be written; check where it goes");
	return CLI_OK;
}

json_t *cli_json_paths(const uint64_t bytes_by_path[HR_PATH_MAX])
{
	json_t *object = json_object();

	for (uint32_t i = 0; i < HR_PATH_MAX; i++) {
		if (bytes_by_path[i])
			json_object_set_new(object, hr_path_name((enum hr_path)i),
					    json_integer((json_int_t)bytes_by_path[i]));
	}
	return object;
}

const char *cli_paths(char *text, size_t size, const uint64_t bytes_by_path[HR_PATH_MAX])
{
	uint64_t total = 0;
	size_t used = 0;

	for (uint32_t i = 0; i < HR_PATH_MAX; i++)
		total += bytes_by_path[i];
	snprintf(text, size, "none");
	for (uint32_t i = 0; i < HR_PATH_MAX && used < size; i++) {
		if (!bytes_by_path[i])
			continue;
		used += (size_t)snprintf(text + used, size - used, "%s%s %.4g %%", used ? ", " : "",
					 hr_path_name((enum hr_path)i),
					 100.0 * (double)bytes_by_path[i] / (double)total);
	}
	return text;
}

json_t *cli_json_queue(const struct hr_queue_info *queue)
{
	return json_pack("{s:s, s:s, s:I, s:I}", "name", queue->name, "reason", queue->reason,
			 "depth", (json_int_t)queue->depth, "staging_bytes",
			 (json_int_t)queue->staging_bytes);
}

json_t *cli_json_residency(const struct hr_residency_info *residency)
{
	static const char *const states[] = {"unknown", "hot", "cold", "mixed"};
	bool known = residency->state != HR_RESIDENCY_UNKNOWN && residency->pages;
	json_t *percent = known ? json_real(100.0 * (double)residency->pages_resident /
					    (double)residency->pages)
				: json_null();

	return json_pack("{s:s, s:o, s:I, s:I, s:s, s:s}", "state", states[residency->state & 3],
			 "percent", percent, "pages", (json_int_t)residency->pages,
			 "pages_resident", (json_int_t)residency->pages_resident, "method",
			 residency->method ? residency->method : "none", "reason",
			 residency->reason ? residency->reason : "");
}

const char *cli_colour(int ansi)
{
	static const char *const codes[] = {"\033[0m", "\033[31m", "\033[32m", "\033[33m"};

	if (!isatty(STDOUT_FILENO) || ansi < 0 || ansi >= (int)CLI_ARRAY_LEN(codes))
		return "";
	return codes[ansi];
}
