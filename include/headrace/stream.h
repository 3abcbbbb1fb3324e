/* SPDX-License-Identifier: Apache-2.0 */
/*
 * headrace/stream.h - a lane: an ordered queue of a device, ours or the caller's own CUDA stream.
 *
 * A lane lets the library order its work with the caller's: a batch slot that is released on a lane
 * is used again only after everything queued on that lane before has finished.
 *
 * A stream that is being captured into a CUDA graph runs nothing, so nothing can wait for it: opening
 * a lane on it, or releasing a batch on such a lane, is refused with -HR_E_CAPTURING and leaves the
 * capture as it is. The lane works again when the capture has ended. All other calls go on beside a
 * capture, in its thread and in others, and put nothing into the graph.
 */
#ifndef HEADRACE_STREAM_H
#define HEADRACE_STREAM_H

#include <headrace/device.h>

#ifdef __cplusplus
extern "C" {
#endif

struct hr_lane;

/*
 * hr_lane_open() - a lane on @dev.
 * @native: for "cuda:N" a CUstream/cudaStream_t of the caller (kept by the caller, must outlive the
 *          lane); NULL makes a new low-priority stream that the lane owns. Ignored by "host".
 * Return: 0, -ENOMEM, -HR_E_CAPTURING, -HR_E_DEVICE_LOST.
 */
int hr_lane_open(struct hr_device *dev, void *native, struct hr_lane **out);

/* hr_lane_close() - waits for what the library queued on it. @lane: may be NULL. */
void hr_lane_close(struct hr_lane *lane);

/*
 * hr_stream_call() - call @fn(@arg) once a CUDA stream of the caller gets there. The stream goes on
 * when @fn has returned.
 * @native: a CUstream/cudaStream_t; NULL is the default stream of the calling thread's context.
 * @fn: runs on a thread of the driver; must not call it, nor wait for what is queued on this stream.
 *
 * In a process that does not use the CUDA driver there is nothing to wait for: @fn is called at once.
 * Return: 0, -EINVAL (no such stream), -ENOTSUP (it is being captured into a graph),
 * -HR_E_DEVICE_LOST; then @fn is never called.
 */
int hr_stream_call(void *native, void (*fn)(void *arg), void *arg);

#ifdef __cplusplus
}
#endif
#endif
