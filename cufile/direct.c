/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cufile/direct.c - may drives write to the memory of GPUs themselves? What is asked of the machine and
 * of the settings; which transfers really go that way the engine decides and counts.
 */
#include <fcntl.h>
#include <unistd.h>

#include "cufile/inside.h"

/* Of the kernel module; who can open it may use it. */
#define MODULE_DEVICE "/dev/headrace_peer"

bool cf_direct_possible(void)
{
	enum hr_path path = hr_config_get()->path;
	int fd;

	if (cf_settings()->flag[CUFILE_PARAM_FORCE_COMPAT_MODE])
		return false;
	if (path != HR_PATH_AUTO && path != HR_PATH_P2P)
		return false;
	fd = open(MODULE_DEVICE, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return false;
	close(fd);
	return true;
}

enum hr_path cf_direct_wish(const struct cf_device *device)
{
	const bool *flag = cf_settings()->flag;

	if (device->gpu < 0)
		return HR_PATH_AUTO;
	if (flag[CUFILE_PARAM_FORCE_COMPAT_MODE])
		return HR_PATH_BOUNCE;
	return flag[CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE] ? HR_PATH_AUTO : HR_PATH_P2P;
}
