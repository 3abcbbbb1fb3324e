/* SPDX-License-Identifier: Apache-2.0 */
/*
 * headrace/error.h - every error code of the library, its name and its text.
 *
 * Return contract of the whole library: 0 or a count on success, a negative code on failure. A code
 * is either -errno (values below 1000) or one of the -HR_E_* codes below. errno itself is never part
 * of the contract.
 *
 * Beside the code there is a sentence for people. It names the file or device, the cause and what
 * to do, and belongs to the calling thread: see hr_error_detail().
 */
#ifndef HEADRACE_ERROR_H
#define HEADRACE_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The one error table: X(name, number, text). Numbers are promises; each category starts at a
 * multiple of 50 and leaves gaps for later codes.
 */
#define HR_ERROR_MAP(X)                                                                            \
	/* devices and memory */                                                                   \
	X(HR_E_NO_DEVICE, 1000, "no such device")                                                  \
	X(HR_E_NO_DRIVER, 1001, "the device's driver library could not be used")                   \
	X(HR_E_DRIVER_TOO_OLD, 1002, "the device's driver is too old")                             \
	X(HR_E_DEVICE_LOST, 1003, "the device failed or was lost")                                 \
	X(HR_E_WRONG_DEVICE, 1004, "the buffer belongs to another device")                         \
	X(HR_E_BAD_POINTER, 1005, "the pointer is not memory of this device")                      \
	X(HR_E_CAPTURING, 1006, "a stream is being captured into a graph")                         \
	/* files */                                                                                \
	X(HR_E_NOT_A_FILE, 1050, "not a regular file or block device")                             \
	X(HR_E_EMPTY_FILE, 1051, "the file is empty")                                              \
	X(HR_E_FILE_CHANGED, 1052, "the file changed while it was in use")                         \
	X(HR_E_NO_DIRECT, 1053, "direct I/O is impossible on this file")                           \
	/* paths */                                                                                \
	X(HR_E_NO_PATH, 1100, "no path from this file to this device")                             \
	X(HR_E_PATH_REFUSED, 1101, "the path asked for cannot be taken")                           \
	X(HR_E_REQUIRE_DIRECT, 1102, "a direct path is required and cannot be taken")              \
	/* use of the API */                                                                       \
	X(HR_E_BAD_RANGE, 1150, "the range lies outside the buffer or overflows")                  \
	X(HR_E_BAD_CAST, 1151, "this conversion of element types does not exist")                  \
	X(HR_E_WRONG_THREAD, 1152, "the engine belongs to another thread")                         \
	X(HR_E_CLOSED, 1153, "the object was stopped or closed")                                   \
	X(HR_E_FORKED, 1154, "the object was created before fork() and belongs to the parent")     \
	/* formats and loaders */                                                                  \
	X(HR_E_BAD_FORMAT, 1200, "the file does not follow its format")                            \
	X(HR_E_UNKNOWN_FORMAT, 1201, "the format of the file was not recognised")                  \
	X(HR_E_BAD_DTYPE, 1202, "the element type does not fit the file")                          \
	X(HR_E_TOO_SHORT, 1203, "the file is too short for one sample")                            \
	X(HR_E_BAD_STATE, 1204, "the saved state does not belong to this dataset or loader")       \
	X(HR_E_END, 1205, "the last epoch has ended")                                              \
	X(HR_E_NO_SLOT, 1206, "every batch slot is held by the caller")                            \
	X(HR_E_BAD_SAMPLE, 1207, "a sample is damaged")                                            \
	X(HR_E_NO_INDEX, 1208, "the side index is absent or does not fit the file")                \
	X(HR_E_BATCH_FULL, 1209, "the samples of a batch are larger than its slot")

#define HR__ERROR_ENUM(name, number, text) name = number,
enum hr_error { HR_ERROR_MAP(HR__ERROR_ENUM) HR_E_NEXT_ };
#undef HR__ERROR_ENUM

/*
 * hr_strerror() - short text of a code.
 * @code: a return value of this library (negative), or its absolute value.
 *
 * Return: a static string, never NULL; errno values give strerror()'s text for the C locale.
 */
const char *hr_strerror(int code);

/*
 * hr_error_name() - symbol of a code, such as "HR_E_NO_DEVICE" or "ENOENT".
 * @code: as for hr_strerror().
 *
 * Return: a static string, never NULL ("E?" for a number that means nothing).
 */
const char *hr_error_name(int code);

/*
 * hr_error_detail() - the sentence that belongs to the last failure on the calling thread.
 *
 * The text names the object, the cause and the remedy. It stays valid until the next library call
 * on the same thread that fails. It is UTF-8 without control characters, whatever a file is called: '?'
 * stands for each byte that is not.
 *
 * Return: a string, never NULL; "" if nothing failed on this thread yet.
 */
const char *hr_error_detail(void);

#ifdef __cplusplus
}
#endif
#endif
