/* SPDX-License-Identifier: Apache-2.0 */
/*
 * abi/prototypes.h - every function by its exact type: compiles only where the header declares the
 * published prototypes, and links only where the library has the names. Included after a cufile.h,
 * as C or C++.
 */
#ifndef HR_TESTS_ABI_PROTOTYPES_H
#define HR_TESTS_ABI_PROTOTYPES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "layout.h"

/* The header says Close and means Close_v2; both names have to exist in the library. */
#ifndef cuFileDriverClose
#error "cuFileDriverClose is a macro for cuFileDriverClose_v2 since 1.4"
#endif

/*
 * A pointer of the type asked for, made of the function itself: any other type is an error. It stays
 * in the program, so that the linker has to find every name.
 */
#define FUNCTION(result, name, ...)                                                                \
	static result (*const volatile type_of_##name)(__VA_ARGS__) __attribute__((used)) = name
#define E CUfileError_t
#define H CUfileHandle_t
#define BH CUfileBatchHandle_t

FUNCTION(E, cuFileHandleRegister, H *, CUfileDescr_t *);
FUNCTION(void, cuFileHandleDeregister, H);
FUNCTION(E, cuFileBufRegister, const void *, size_t, int);
FUNCTION(E, cuFileBufDeregister, const void *);
FUNCTION(ssize_t, cuFileRead, H, void *, size_t, off_t, off_t);
FUNCTION(ssize_t, cuFileWrite, H, const void *, size_t, off_t, off_t);
FUNCTION(E, cuFileDriverOpen, void);
FUNCTION(E, cuFileDriverClose_v2, void);
FUNCTION(long, cuFileUseCount, void);
FUNCTION(E, cuFileDriverGetProperties, CUfileDrvProps_t *);
FUNCTION(E, cuFileDriverSetPollMode, bool, size_t);
FUNCTION(E, cuFileDriverSetMaxDirectIOSize, size_t);
FUNCTION(E, cuFileDriverSetMaxCacheSize, size_t);
FUNCTION(E, cuFileDriverSetMaxPinnedMemSize, size_t);
FUNCTION(E, cuFileBatchIOSetUp, BH *, unsigned);
FUNCTION(E, cuFileBatchIOSubmit, BH, unsigned, CUfileIOParams_t *, unsigned);
FUNCTION(E, cuFileBatchIOGetStatus, BH, unsigned, unsigned *, CUfileIOEvents_t *,
	 struct timespec *);
FUNCTION(E, cuFileBatchIOCancel, BH);
FUNCTION(void, cuFileBatchIODestroy, BH);
FUNCTION(E, cuFileReadAsync, H, void *, size_t *, off_t *, off_t *, ssize_t *, CUstream);
FUNCTION(E, cuFileWriteAsync, H, void *, size_t *, off_t *, off_t *, ssize_t *, CUstream);
FUNCTION(E, cuFileStreamRegister, CUstream, unsigned);
FUNCTION(E, cuFileStreamDeregister, CUstream);
FUNCTION(E, cuFileGetVersion, int *);
#if CUFILE_LEVEL >= 1140
FUNCTION(E, cuFileGetParameterSizeT, CUFileSizeTConfigParameter_t, size_t *);
FUNCTION(E, cuFileSetParameterSizeT, CUFileSizeTConfigParameter_t, size_t);
FUNCTION(E, cuFileGetParameterBool, CUFileBoolConfigParameter_t, bool *);
FUNCTION(E, cuFileSetParameterBool, CUFileBoolConfigParameter_t, bool);
FUNCTION(E, cuFileGetParameterString, CUFileStringConfigParameter_t, char *, int);
FUNCTION(E, cuFileSetParameterString, CUFileStringConfigParameter_t, const char *);
#endif
#if CUFILE_LEVEL >= 1150
FUNCTION(E, cuFileGetParameterMinMaxValue, CUFileSizeTConfigParameter_t, size_t *, size_t *);
FUNCTION(E, cuFileSetStatsLevel, int);
FUNCTION(E, cuFileGetStatsLevel, int *);
FUNCTION(E, cuFileStatsStart, void);
FUNCTION(E, cuFileStatsStop, void);
FUNCTION(E, cuFileStatsReset, void);
FUNCTION(E, cuFileGetStatsL1, CUfileStatsLevel1_t *);
FUNCTION(E, cuFileGetStatsL2, CUfileStatsLevel2_t *);
FUNCTION(E, cuFileGetStatsL3, CUfileStatsLevel3_t *);
FUNCTION(E, cuFileGetBARSizeInKB, int, size_t *);
FUNCTION(E, cuFileSetParameterPosixPoolSlabArray, const size_t *, const size_t *, int);
FUNCTION(E, cuFileGetParameterPosixPoolSlabArray, size_t *, size_t *, int);
#endif
#if CUFILE_LEVEL >= 1160
FUNCTION(E, cuFileDriverGetP2PFlags, CUfileDriverStatusFlags_t, CUfileP2PFlags_t *);
FUNCTION(E, cuFileDriverSetP2PFlags, CUfileDriverStatusFlags_t, CUfileP2PFlags_t);
#endif
#if CUFILE_LEVEL >= 1170
FUNCTION(E, cuFileSetParameterGpuBounceBufferSlabArray, const size_t *, const size_t *, int);
FUNCTION(E, cuFileGetParameterGpuBounceBufferSlabArray, size_t *, size_t *, int);
FUNCTION(E, cuFileExportPCIeTopology, const char *);
#endif
#if CUFILE_LEVEL >= 1190
FUNCTION(ssize_t, cuFileReadv, H, const CUfileIOVec_t *, size_t, off_t, unsigned);
FUNCTION(ssize_t, cuFileWritev, H, const CUfileIOVec_t *, size_t, off_t, unsigned);
#endif

#undef E
#undef H
#undef BH
#endif
