/* SPDX-License-Identifier: Apache-2.0 */
/* cli/main.c - the verb table and nothing else; what a verb does is in its own file. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

static const struct cli_verb verbs[] = {
	{"stream", "feed shuffled training batches into device memory", cli_verb_stream},
	{"index", "make the side indexes of tar and TFRecord datasets", cli_verb_index},
	{"load", "load the weights of a model into device memory", cli_verb_load},
	{"cp", "copy a file through device memory", cli_verb_cp},
	{"bench", "load a file with reads or writes and report rates", cli_verb_bench},
	{"explain", "which path a file takes to a device, and why not another", cli_verb_explain},
	{"run", "run a program that speaks cuFile on this library", cli_verb_run},
	{"stat", "watch what running programs do with this library", cli_verb_stat},
	{"check", "examine this machine: what works, what does not, what to do", cli_verb_check},
};

static void print_help(FILE *to)
{
	fprintf(to, "usage: headrace VERB [OPTION...] [OPERAND...]\n\n"
		    "Brings bytes from files straight into device memory.\n\nverbs:\n");
	for (uint32_t i = 0; i < CLI_ARRAY_LEN(verbs); i++)
		fprintf(to, "  %-10s %s\n", verbs[i].name, verbs[i].summary);
	fprintf(to, "\n"
		    "  headrace VERB --help    options of a verb\n"
		    "  headrace --version      version of the library in use\n\n"
		    "exit status: 0 done, 1 failed (with a sentence on stderr), 2 bad usage,\n"
		    "3 a requirement of check is not met, 130 interrupted\n");
}

static int unknown_verb(const char *word)
{
	const char *names[CLI_ARRAY_LEN(verbs)];
	const char *near;

	for (uint32_t i = 0; i < CLI_ARRAY_LEN(verbs); i++)
		names[i] = verbs[i].name;
	near = cli_closest(word, names, CLI_ARRAY_LEN(verbs));
	if (near)
		return cli_usage_error(NULL, "there is no verb '%s'; did you mean '%s'?", word,
				       near);
	return cli_usage_error(NULL, "there is no verb '%s'", word);
}

static void log_line(enum hr_log_level level, const char *line, void *user)
{
	static const char *const names[] = {"", "error", "warning", "info", "debug"};

	(void)user;
	cli_note("%s: %s", names[level % CLI_ARRAY_LEN(names)], line);
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		print_help(stderr);
		return CLI_USAGE;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
		print_help(stdout);
		return CLI_OK;
	}
	if (!strcmp(argv[1], "--version")) {
		printf("headrace %s\n", hr_version());
		return CLI_OK;
	}
	hr_log_set(log_line, NULL);
	if (hr_config_get()->problem[0])
		cli_note("%s", hr_config_get()->problem);
	for (uint32_t i = 0; i < CLI_ARRAY_LEN(verbs); i++) {
		if (!strcmp(verbs[i].name, argv[1]))
			return verbs[i].run(argc - 1, argv + 1);
	}
	return unknown_verb(argv[1]);
}
