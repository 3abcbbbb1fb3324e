/* SPDX-License-Identifier: Apache-2.0 */
/* transport/select.c - weighs the paths for one file and device; every "no" has its reason. */
#include <stdio.h>
#include <string.h>

#include <headrace/config.h>
#include <headrace/error.h>

#include "base/fail.h"
#include "base/util.h"
#include "transport/transport.h"

static const struct hr__transport_ops *const transports[] = {
	&hr__transport_host,
	&hr__transport_pagecache,
	&hr__transport_bounce,
	&hr__transport_p2p,
};
const uint32_t hr__transports_count = HR_ARRAY_LEN(transports);
_Static_assert(HR_ARRAY_LEN(transports) <= HR_PATH_MAX, "callers have room for HR_PATH_MAX");

/* HEADRACE_REQUIRE=direct: no copy through host memory, no page cache. */
static void demand_direct(const struct hr_file *file, struct hr__verdict *v)
{
	if (v->score <= 0)
		return;
	if (v->ops->path == HR_PATH_P2P)
		return;
	if (v->ops->path != HR_PATH_HOST)
		snprintf(v->reason, sizeof(v->reason),
			 "HEADRACE_REQUIRE=direct, and this path stages bytes in host memory");
	else if (!hr__file_has_direct(file))
		snprintf(v->reason, sizeof(v->reason),
			 "HEADRACE_REQUIRE=direct, and direct I/O is impossible here: %.100s",
			 file->direct_reason);
	else
		return;
	v->score = -HR_E_REQUIRE_DIRECT;
}

static int refuse(const struct hr_file *file, const struct hr_device *dev, enum hr_path wish,
		  const struct hr__verdict *out)
{
	bool direct = hr_config_get()->require_direct;
	int code = direct                 ? HR_E_REQUIRE_DIRECT
		   : wish == HR_PATH_AUTO ? HR_E_NO_PATH
					  : HR_E_PATH_REFUSED;

	/* Of all the reasons, the one of the path that would have been the natural one. */
	if (wish == HR_PATH_AUTO)
		wish = dev->caps & HR__MEM_CAP_HOST_VISIBLE ? HR_PATH_HOST
		       : direct                             ? HR_PATH_P2P
							    : HR_PATH_BOUNCE;
	for (uint32_t i = 0; i < hr__transports_count; i++) {
		if (out[i].ops->path != wish)
			continue;
		return hr__fail(code,
				"%s: the path %s to %s is refused: %s; `headrace explain` shows "
				"all paths",
				file->path, out[i].ops->name, dev->info.name, out[i].reason);
	}
	return hr__fail(code, "%s: this build has no path %s", file->path, hr_path_name(wish));
}

int hr__select(const struct hr_file *file, const struct hr_device *dev,
	       const struct hr__shape *shape, enum hr_path wish, struct hr__verdict *out)
{
	int best = -1;

	for (uint32_t i = 0; i < hr__transports_count; i++) {
		struct hr__verdict *v = &out[i];

		memset(v, 0, sizeof(*v));
		v->ops = transports[i];
		v->score =
			v->ops->score(file, dev, shape, &v->limits, v->reason, sizeof(v->reason));
		if (hr_config_get()->require_direct)
			demand_direct(file, v);
		if (v->score <= 0 || (wish != HR_PATH_AUTO && v->ops->path != wish))
			continue;
		if (best < 0 || v->score > out[best].score)
			best = (int)i;
	}
	return best >= 0 ? best : refuse(file, dev, wish, out);
}
