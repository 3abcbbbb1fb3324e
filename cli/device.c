/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli/device.c - which device a verb uses. The library never guesses; the command may, and says so.
 */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

/* The first GPU, else the host with the reason. Return: 0 or a code of opening the host device. */
static int open_auto(struct cli_device *out)
{
	if (hr_device_open("cuda:0", &out->dev) == 0) {
		snprintf(out->reason, sizeof(out->reason), "the first GPU");
		return 0;
	}
	snprintf(out->reason, sizeof(out->reason), "no GPU can be used: %.290s", hr_error_detail());
	cli_forget_detail();
	return hr_device_open("host", &out->dev);
}

int cli_device_open(const char *name, struct cli_device *out)
{
	int err;

	memset(out, 0, sizeof(*out));
	out->chosen = !name || !strcmp(name, "auto");
	err = out->chosen ? open_auto(out) : hr_device_open(name, &out->dev);
	if (err)
		return cli_fail_code(err, name ? name : "auto");
	hr_device_info(out->dev, &out->info);
	if (out->chosen)
		cli_note("device %s (auto: %s)", out->info.name, out->reason);
	return CLI_OK;
}

void cli_device_json(const struct cli_device *device, json_t *object)
{
	json_object_set_new(object, "device", json_string(device->info.name));
	if (device->chosen)
		json_object_set_new(object, "device_reason", json_string(device->reason));
}
