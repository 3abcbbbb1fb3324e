/* SPDX-License-Identifier: Apache-2.0 */
/*
 * headrace/headrace.h - the whole library: bytes from files straight into device memory.
 *
 * Start with device.h, file.h, buffer.h and io.h (one gather), or with dataset.h and loader.h
 * (training batches), or with checkpoint.h (weights). error.h states the return contract once for all
 * of them.
 */
#ifndef HEADRACE_HEADRACE_H
#define HEADRACE_HEADRACE_H

#include <headrace/buffer.h>
#include <headrace/checkpoint.h>
#include <headrace/config.h>
#include <headrace/dataset.h>
#include <headrace/device.h>
#include <headrace/doctor.h>
#include <headrace/dtype.h>
#include <headrace/error.h>
#include <headrace/file.h>
#include <headrace/io.h>
#include <headrace/loader.h>
#include <headrace/stats.h>
#include <headrace/stream.h>
#include <headrace/weight.h>

#endif
