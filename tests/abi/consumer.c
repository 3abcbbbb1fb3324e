/* SPDX-License-Identifier: Apache-2.0 */
/*
 * consumer - a C program as users write it: the header alone, before anything else, then linked with
 * -lcufile. Its compilation is the test of sizes, values and prototypes; running it asks what the
 * compiler cannot know: errors come back in one register, and the helpers of the header work.
 */
#include <cufile.h>

#include <stdio.h>
#include <string.h>

#include "prototypes.h"
#include "values.h"

static int failures;

static void expect(int good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "consumer: %s\n", what);
	failures++;
}

/* The whole answer as the register holds it: a caller in another language reads it so. */
static void errors_are_eight_bytes(void)
{
	uint64_t (*raw)(void *, void *);
	void *symbol = (void *)cuFileHandleRegister;

	memcpy(&raw, &symbol, sizeof(raw));
	expect((raw(NULL, NULL) & 0xffffffffu) == CU_FILE_INVALID_VALUE,
	       "the low half of an error is the code");
}

static void helpers_of_the_header(void)
{
	CUfileError_t cuda = {CU_FILE_CUDA_DRIVER_ERROR, (CUresult)801};
	CUfileError_t good = {CU_FILE_SUCCESS, (CUresult)0};

	expect(IS_CUFILE_ERR(CU_FILE_INVALID_VALUE) && IS_CUFILE_ERR(-CU_FILE_INVALID_VALUE),
	       "IS_CUFILE_ERR of 5022 and -5022");
	expect(!IS_CUFILE_ERR(22) && !IS_CUFILE_ERR(-22), "IS_CUFILE_ERR of 22 and -22");
	expect(IS_CUDA_ERR(cuda) && !IS_CUDA_ERR(good), "IS_CUDA_ERR");
	expect((int)CU_FILE_CUDA_ERR(cuda) == 801, "CU_FILE_CUDA_ERR");
	expect(strlen(cufileop_status_error(CU_FILE_INVALID_VALUE)) > 0, "a text for 5022");
	expect(strcmp(cufileop_status_error(CU_FILE_INVALID_VALUE),
		      cufileop_status_error(CU_FILE_HANDLE_NOT_REGISTERED)) != 0,
	       "different texts for different codes");
	expect(CUFILE_ERRSTR(CU_FILE_INVALID_VALUE) && CUFILE_ERRSTR(-CU_FILE_INVALID_VALUE),
	       "CUFILE_ERRSTR");
}

int main(void)
{
	int version = 0;

	expect(cuFileUseCount() == 0, "nothing is open at first");
	expect(cuFileGetVersion(&version).err == CU_FILE_SUCCESS, "cuFileGetVersion");
	expect(version >= 1000 && version % 10 == 0, "a version is 1000 * major + 10 * minor");
	errors_are_eight_bytes();
	helpers_of_the_header();
	return failures ? 1 : 0;
}
