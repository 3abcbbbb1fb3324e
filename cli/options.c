/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli/options.c - a verb's option table becomes its parser and its --help, so that the two cannot
 * disagree. Knows nothing of what the options mean.
 */
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

#define OPTIONS_MAX 40
#define HELP_COLUMN 30

int cli_parse_size(const char *text, uint64_t *out)
{
	static const char units[] = "KMGT";
	unsigned long long value;
	const char *unit;
	char *end;

	if (!isdigit((unsigned char)*text))
		return -EINVAL;
	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno)
		return -EINVAL;
	if (*end) {
		unit = strchr(units, toupper((unsigned char)*end));
		if (!unit ||
		    __builtin_mul_overflow(value, 1ull << (10 * (unit - units + 1)), &value))
			return -EINVAL;
		end++;
		if (*end == 'i')
			end++;
		if (*end == 'B')
			end++;
	}
	if (*end)
		return -EINVAL;
	*out = value;
	return 0;
}

/* Levenshtein distance, or a large number for words too long to be a slip of the finger. */
static uint32_t distance(const char *a, const char *b)
{
	uint32_t row[33];
	size_t n = strlen(b);

	if (n > 32 || strlen(a) > 32)
		return UINT32_MAX;
	for (uint32_t j = 0; j <= n; j++)
		row[j] = j;
	for (; *a; a++) {
		uint32_t diagonal = row[0]++;

		for (uint32_t j = 1; j <= n; j++) {
			uint32_t best = diagonal + (*a != b[j - 1]);

			diagonal = row[j];
			best = row[j] + 1 < best ? row[j] + 1 : best;
			row[j] = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
		}
	}
	return row[n];
}

const char *cli_closest(const char *word, const char *const *words, uint32_t n)
{
	const char *best = NULL;
	uint32_t least = strlen(word) <= 4 ? 2 : 3; /* what is as far as this is another word */

	for (uint32_t i = 0; i < n; i++) {
		uint32_t d = distance(word, words[i]);

		if (d < least) {
			least = d;
			best = words[i];
		}
	}
	return best;
}

static void print_option(const struct cli_option *opt)
{
	int used = printf("  --%s%s%s", opt->name, opt->argument ? " " : "",
			  opt->argument ? opt->argument : "");

	if (used > HELP_COLUMN - 2) {
		printf("\n");
		used = 0;
	}
	printf("%*s%s\n", HELP_COLUMN - used, "", opt->help);
}

static void print_help(const struct cli_usage *usage)
{
	printf("usage: headrace %s [OPTION...] %s\n\n%s\n", usage->verb, usage->operands,
	       usage->summary);
	if (usage->detail)
		printf("\n%s\n", usage->detail);
	printf("\noptions:\n");
	for (uint32_t i = 0; i < usage->n_options; i++)
		print_option(&usage->options[i]);
	printf("  --help%*sthis text\n", HELP_COLUMN - 8, "");
	printf("\nSizes are bytes, or 4K 1M 2G (powers of 1024). See headrace-%s(1).\n",
	       usage->verb);
}

static bool is_choice(const char *list, const char *word)
{
	size_t len = strlen(word);

	while (len) {
		size_t n = strcspn(list, "|");

		if (n == len && !memcmp(list, word, n))
			return true;
		if (!list[n])
			break;
		list += n + 1;
	}
	return false;
}

static int bad_value(const struct cli_usage *usage, const struct cli_option *opt, const char *value)
{
	if (opt->type == CLI_CHOICE)
		return cli_usage_error(usage->verb, "--%s %s: use one of %s", opt->name, value,
				       opt->argument);
	if (opt->max)
		return cli_usage_error(usage->verb, "--%s %s: use a number from %llu to %llu",
				       opt->name, value, (unsigned long long)opt->min,
				       (unsigned long long)opt->max);
	return cli_usage_error(usage->verb, "--%s %s: use a number from %llu", opt->name, value,
			       (unsigned long long)opt->min);
}

static int take_real(const struct cli_usage *usage, const struct cli_option *opt, const char *value,
		     void *target)
{
	char *end;
	double number = strtod(value, &end);

	/* The negation also refuses "nan". */
	if (end == value || *end ||
	    !(number >= (double)opt->min && (!opt->max || number <= (double)opt->max)))
		return bad_value(usage, opt, value);
	*(double *)target = number;
	return -1;
}

static int take_number(const struct cli_usage *usage, const struct cli_option *opt,
		       const char *value, void *target)
{
	bool suffix = value[strspn(value, "0123456789")] != '\0';
	uint64_t number;

	if (cli_parse_size(value, &number) || (suffix && opt->type == CLI_NUMBER) ||
	    number < opt->min || (opt->max && number > opt->max))
		return bad_value(usage, opt, value);
	*(uint64_t *)target = number;
	return -1;
}

/* Return: -1 to go on, or the exit code. */
static int take(const struct cli_usage *usage, const struct cli_option *opt, const char *value,
		void *settings)
{
	void *target = (char *)settings + opt->offset;

	switch (opt->type) {
	case CLI_FLAG:
		*(bool *)target = true;
		return -1;
	case CLI_CHOICE:
		if (!is_choice(opt->argument, value))
			return bad_value(usage, opt, value);
		*(const char **)target = value;
		return -1;
	case CLI_TEXT:
		*(const char **)target = value;
		return -1;
	case CLI_REAL:
		return take_real(usage, opt, value, target);
	default:
		return take_number(usage, opt, value, target);
	}
}

static int unknown_option(const struct cli_usage *usage, const char *word)
{
	const char *names[OPTIONS_MAX + 1] = {"help"};
	char name[40];
	const char *near;

	/* getopt names a bad letter in optopt, and has not always moved past its word */
	if (optopt && optopt != 'o')
		return cli_usage_error(usage->verb, "-%c is not an option here", optopt);
	if (optopt == 'o')
		return cli_usage_error(usage->verb, "%s: this option takes no value", word);
	snprintf(name, sizeof(name), "%.*s", (int)strcspn(word, "="), word);
	for (uint32_t i = 0; i < usage->n_options; i++)
		names[i + 1] = usage->options[i].name;
	near = cli_closest(name + strspn(name, "-"), names, usage->n_options + 1);
	if (near)
		return cli_usage_error(usage->verb, "%s is not an option here; did you mean --%s?",
				       name, near);
	return cli_usage_error(usage->verb, "%s is not an option here", name);
}

static int check_operands(const struct cli_usage *usage, uint32_t n)
{
	if (n < usage->min_operands)
		return cli_usage_error(usage->verb, "it needs %s", usage->operands);
	if (usage->max_operands && n > usage->max_operands)
		return cli_usage_error(usage->verb, "too many operands: it takes %s",
				       usage->operands);
	return -1;
}

int cli_parse(const struct cli_usage *usage, int argc, char **argv, void *settings, int *operands)
{
	struct option table[OPTIONS_MAX + 2] = {{"help", no_argument, NULL, 'h'}};
	int index = 0;

	for (uint32_t i = 0; i < usage->n_options && i < OPTIONS_MAX; i++) {
		table[i + 1].name = usage->options[i].name;
		table[i + 1].has_arg = usage->options[i].type != CLI_FLAG;
		table[i + 1].val = 'o';
	}
	opterr = 0;
	for (;;) {
		int found = getopt_long(argc, argv, ":h", table, &index);
		int code;

		if (found == -1)
			break;
		if (found == 'h') {
			print_help(usage);
			return CLI_OK;
		}
		if (found == ':')
			return cli_usage_error(usage->verb, "%s needs a value", argv[optind - 1]);
		if (found == '?')
			return unknown_option(usage, argv[optind - 1]);
		code = take(usage, &usage->options[index - 1], optarg, settings);
		if (code != -1)
			return code;
	}
	*operands = optind;
	return check_operands(usage, (uint32_t)(argc - optind));
}
