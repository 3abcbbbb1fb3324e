/* SPDX-License-Identifier: Apache-2.0 */
/*
 * consumer++ - the header in C++17: the same sizes, values and prototypes, C linkage, and a call of
 * each kind. Its compilation and linking is most of the test.
 */
#include <cufile.h>

#include <cstdio>

#include "prototypes.h"
#include "values.h"

/* A caller's own enumeration and error types must convert as they do in C. */
static bool round_trip()
{
	CUfileDescr_t descr = {};
	CUfileHandle_t handle = nullptr;

	descr.type = CU_FILE_HANDLE_TYPE_OPAQUE_FD;
	descr.handle.fd = -1;
	const CUfileError_t status = cuFileHandleRegister(&handle, &descr);
	return status.err == CU_FILE_INVALID_VALUE && handle == nullptr;
}

int main()
{
	int version = 0;

	if (cuFileGetVersion(&version).err != CU_FILE_SUCCESS || version < 1000 || !round_trip()) {
		std::fprintf(stderr, "consumer++: version %d\n", version);
		return 1;
	}
	return 0;
}
