/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli/run.c - the verb that runs a program with the drop-in libcufile.so.0 first in line. By LD_PRELOAD,
 * since Python's wheels carry a DT_RPATH, which beats LD_LIBRARY_PATH.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

#define NAME "cufile/libcufile.so.0"

struct settings {
	const char *library;
	bool json;
};

static const struct cli_option options[] = {
	{"library", CLI_TEXT, offsetof(struct settings, library), "FILE",
	 "the library to use (default: the one that came with this command)", 0, 0},
	{"json", CLI_FLAG, offsetof(struct settings, json), NULL,
	 "run nothing: print which library it would be", 0, 0},
};

static const struct cli_usage usage = {
	.verb = "run",
	.operands = "[--] COMMAND [ARGUMENT...]",
	.summary = "Runs a program that speaks cuFile on this library.",
	.detail = "The program itself stays as it is: libcufile.so.0 of this project is loaded "
		  "before it, and is\nthe one that it then finds. Its children inherit that.",
	.options = options,
	.n_options = CLI_ARRAY_LEN(options),
};

/* Where the words of the command begin: after "--", or at the first that is no option. */
static int command_at(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--library"))
			i++;
		else if (argv[i][0] != '-')
			return i;
		else if (!strcmp(argv[i], "--"))
			return i;
	}
	return argc;
}

/* Beside this command: installed, in a tree that runs where it lies, or as it was compiled. */
static bool find_library(char *path, size_t size)
{
	static const char *const places[] = {"../" CLI_LIBDIR "/" NAME, "../lib/" NAME, "../" NAME};
	char self[PATH_MAX], candidate[2 * PATH_MAX], real[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	if (n <= 0)
		return false;
	self[n] = '\0';
	slash = strrchr(self, '/');
	if (!slash)
		return false;
	*slash = '\0';
	for (uint32_t i = 0; i < CLI_ARRAY_LEN(places); i++) {
		snprintf(candidate, sizeof(candidate), "%s/%s", self, places[i]);
		if (realpath(candidate, real) && strlen(real) < size) {
			memcpy(path, real, strlen(real) + 1);
			return true;
		}
	}
	return false;
}

static int preload(const char *library)
{
	const char *old = getenv("LD_PRELOAD");
	size_t size = strlen(library) + (old ? strlen(old) : 0) + 2;
	char *all;
	int ret;

	if (strpbrk(library, ": "))
		return cli_fail("%s: the loader takes no path with a colon or a space in it; "
				"move the library or make a link to it",
				library);
	all = malloc(size);
	if (!all)
		return cli_fail("no memory for the environment");
	snprintf(all, size, "%s%s%s", library, old && *old ? ":" : "", old ? old : "");
	ret = setenv("LD_PRELOAD", all, 1);
	free(all);
	return ret ? cli_fail("the environment cannot be changed: %s", strerror(errno)) : CLI_OK;
}

int cli_verb_run(int argc, char **argv)
{
	struct settings s = {0};
	char library[PATH_MAX];
	int at = command_at(argc, argv), operands, code;

	code = cli_parse(&usage, at, argv, &s, &operands);
	if (code != -1)
		return code;
	if (at < argc && !strcmp(argv[at], "--"))
		at++;
	if (at >= argc && !s.json)
		return cli_usage_error("run", "it needs a command to run");
	if (s.library ? !realpath(s.library, library) : !find_library(library, sizeof(library)))
		return cli_fail("%s: no such library; name it with --library",
				s.library ? s.library : NAME);
	if (s.json)
		return cli_print_json(json_pack("{s:s}", "library", library));
	code = preload(library);
	if (code)
		return code;
	execvp(argv[at], &argv[at]);
	return cli_fail("%s: cannot be run: %s; check the name and PATH", argv[at],
			strerror(errno));
}
