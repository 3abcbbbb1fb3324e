/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem/cuda_capture.c - beside programs that capture streams into CUDA graphs: what we do must not spoil
 * their capture, and nothing of ours may end up in their graph. Knows no lanes.
 *
 * While a stream is captured in the driver's usual mode, no thread of the process may allocate or
 * register memory or ask for events: the call fails, and the capture with it. None of our calls touches
 * a captured stream, so each runs in the mode that leaves captures of others alone.
 */
#include "base/fail.h"
#include "base/log.h"
#include "mem/cuda.h"

/* What the caller's thread had before hr__cuda_relax(); < 0: nothing to put back. */
static _Thread_local int outside_mode = -1;

void hr__cuda_relax(const struct hr__cuda_device *cd)
{
	outside_mode = HR__CU_CAPTURE_RELAXED;
	if (cd->cu->exchange_capture_mode(&outside_mode))
		outside_mode = -1; /* calls may fail beside a capture, and will say so */
}

void hr__cuda_unrelax(const struct hr__cuda_device *cd)
{
	int result = outside_mode < 0 ? 0 : cd->cu->exchange_capture_mode(&outside_mode);

	outside_mode = -1;
	if (result)
		hr__log(HR_LOG_WARN, "%s: the thread's capture mode could not be put back: %s",
			cd->dev.info.name, hr__cuda_name(cd->cu, result));
}

bool hr__cuda_capturing(const struct hr__cuda_device *cd, struct hr__cu_stream *stream)
{
	int status = HR__CU_CAPTURE_NONE, result = cd->cu->stream_capturing(stream, &status);

	/* The legacy stream cannot tell while another one that it waits for is captured. */
	return result == HR__CU_CAPTURE_IMPLICIT || (!result && status != HR__CU_CAPTURE_NONE);
}

int hr__cuda_refuse_capture(const struct hr__cuda_device *cd, struct hr__cu_stream *stream)
{
	if (!hr__cuda_capturing(cd, stream))
		return 0;
	return hr__fail(
		HR_E_CAPTURING,
		"%s: the stream is being captured into a graph, where a lane cannot wait for "
		"anything; end the capture first, or use another stream",
		cd->dev.info.name);
}
