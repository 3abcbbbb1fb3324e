/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem/lane.c - the public face of lanes: open and close for every provider.
 */
#include <assert.h>

#include "mem/mem.h"

int hr_lane_open(struct hr_device *dev, void *native, struct hr_lane **out)
{
	struct hr_lane *lane;
	int ret;

	ret = dev->ops->lane_open(dev, native, &lane);
	if (ret)
		return ret;
	assert(lane->ops->move && lane->ops->poll && lane->ops->wait && lane->ops->mark &&
	       lane->ops->call && lane->ops->flush && lane->ops->close);
	lane->dev = dev;
	hr__device_get(dev);
	*out = lane;
	return 0;
}

void hr_lane_close(struct hr_lane *lane)
{
	struct hr_device *dev;

	if (!lane)
		return;
	dev = lane->dev; /* the lane's memory is gone after close() */
	lane->ops->close(lane);
	hr__device_put(dev);
}
