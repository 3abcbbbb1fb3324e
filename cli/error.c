/* SPDX-License-Identifier: Apache-2.0 */
/* cli/error.c - sentences on stderr; the exit codes that go with them are returned, never taken. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

static void say(const char *format, va_list args, const char *after)
{
	char text[1024];

	vsnprintf(text, sizeof(text), format, args);
	/* one write, so that lines of several processes on one terminal do not mix */
	fprintf(stderr, "headrace: %s\n%s", text, after);
}

int cli_fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	say(format, args, "");
	va_end(args);
	return CLI_FAILED;
}

static char old_sentence[640];

void cli_forget_detail(void)
{
	snprintf(old_sentence, sizeof(old_sentence), "%s", hr_error_detail());
}

int cli_fail_code(int code, const char *object)
{
	const char *detail = hr_error_detail();

	if (detail[0] && strcmp(detail, old_sentence) != 0)
		return cli_fail("%s", detail);
	return cli_fail("%s: %s (%s)", object, hr_strerror(code), hr_error_name(code));
}

const char *cli_remedy(int code)
{
	switch (-code) {
	case ENOSPC:
	case EDQUOT:
		return "free some space";
	case ENOMEM:
		return "use smaller or fewer buffers";
	case ETIMEDOUT:
		return "look for a stuck drive or network mount (dmesg)";
	case HR_E_DEVICE_LOST:
		return "start again, and look for the device's messages (dmesg)";
	default:
		return "look for the drive's messages (dmesg)";
	}
}

int cli_usage_error(const char *verb, const char *format, ...)
{
	char after[80];
	va_list args;

	snprintf(after, sizeof(after), "Try 'headrace %s%s--help'.\n", verb ? verb : "",
		 verb ? " " : "");
	va_start(args, format);
	say(format, args, after);
	va_end(args);
	return CLI_USAGE;
}

void cli_note(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	say(format, args, "");
	va_end(args);
}
