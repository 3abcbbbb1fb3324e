/* SPDX-License-Identifier: Apache-2.0 */
/*
 * abi/layout.h - what every binary that speaks cuFile has compiled in: sizes, offsets and values, asked
 * of the compiler. Included after a cufile.h, as C or C++. It knows the published numbers alone, so
 * that the same file judges other headers too: -DCUFILE_LEVEL=1150 leaves out what came after 1.15.
 */
#ifndef HR_TESTS_ABI_LAYOUT_H
#define HR_TESTS_ABI_LAYOUT_H

#include <stddef.h>

#ifndef CUFILE_LEVEL
#define CUFILE_LEVEL 1190
#endif

#ifdef __cplusplus
#define ABI_ASSERT(condition, text) static_assert(condition, text)
#else
#define ABI_ASSERT(condition, text) _Static_assert(condition, text)
#endif

#define SIZE(type, bytes) ABI_ASSERT(sizeof(type) == (bytes), "sizeof " #type)
#define AT(type, field, offset)                                                                    \
	ABI_ASSERT(offsetof(type, field) == (offset), "offset of " #type "." #field)
#define VALUE(name, number) ABI_ASSERT((long long)(name) == (number), "value of " #name)

/* -- sizes and offsets -- */
SIZE(CUfileOpError, 4);
SIZE(CUfileError_t, 8);
AT(CUfileError_t, err, 0);
AT(CUfileError_t, cu_err, 4);
SIZE(CUfileHandle_t, 8);
SIZE(CUfileBatchHandle_t, 8);
SIZE(CUfileDescr_t, 24);
AT(CUfileDescr_t, type, 0);
AT(CUfileDescr_t, handle.fd, 8);
AT(CUfileDescr_t, handle.handle, 8);
AT(CUfileDescr_t, fs_ops, 16);
SIZE(CUfileFSOps_t, 40);
AT(CUfileFSOps_t, fs_type, 0);
AT(CUfileFSOps_t, getRDMADeviceList, 8);
AT(CUfileFSOps_t, getRDMADevicePriority, 16);
AT(CUfileFSOps_t, read, 24);
AT(CUfileFSOps_t, write, 32);
SIZE(cufileRDMAInfo_t, 16);
AT(cufileRDMAInfo_t, version, 0);
AT(cufileRDMAInfo_t, desc_len, 4);
AT(cufileRDMAInfo_t, desc_str, 8);
SIZE(CUfileDrvProps_t, 56);
AT(CUfileDrvProps_t, nvfs.major_version, 0);
AT(CUfileDrvProps_t, nvfs.minor_version, 4);
AT(CUfileDrvProps_t, nvfs.poll_thresh_size, 8);
AT(CUfileDrvProps_t, nvfs.max_direct_io_size, 16);
AT(CUfileDrvProps_t, nvfs.dstatusflags, 24);
AT(CUfileDrvProps_t, nvfs.dcontrolflags, 28);
AT(CUfileDrvProps_t, fflags, 32);
AT(CUfileDrvProps_t, max_device_cache_size, 36);
AT(CUfileDrvProps_t, per_buffer_cache_size, 40);
AT(CUfileDrvProps_t, max_device_pinned_mem_size, 44);
AT(CUfileDrvProps_t, max_batch_io_size, 48);
AT(CUfileDrvProps_t, max_batch_io_timeout_msecs, 52);
SIZE(CUfileIOParams_t, 64);
AT(CUfileIOParams_t, mode, 0);
AT(CUfileIOParams_t, u.batch.devPtr_base, 8);
AT(CUfileIOParams_t, u.batch.file_offset, 16);
AT(CUfileIOParams_t, u.batch.devPtr_offset, 24);
AT(CUfileIOParams_t, u.batch.size, 32);
AT(CUfileIOParams_t, fh, 40);
AT(CUfileIOParams_t, opcode, 48);
AT(CUfileIOParams_t, cookie, 56);
SIZE(CUfileIOEvents_t, 24);
AT(CUfileIOEvents_t, cookie, 0);
AT(CUfileIOEvents_t, status, 8);
AT(CUfileIOEvents_t, ret, 16);
ABI_ASSERT((__typeof__(((CUfileIOEvents_t *)0)->ret))-1 > 0, "ret of CUfileIOEvents_t is a size_t");
#if CUFILE_LEVEL >= 1190
SIZE(CUfileIOVec_t, 16);
AT(CUfileIOVec_t, base, 0);
AT(CUfileIOVec_t, len, 8);
#endif

#if CUFILE_LEVEL >= 1150
SIZE(CUfileOpCounter_t, 16);
AT(CUfileOpCounter_t, ok, 0);
AT(CUfileOpCounter_t, err, 8);
/* One symbol serves callers of both layouts, so the shorter one of 1.15 to 1.18 is the safe one. */
SIZE(CUfileStatsLevel1_t, 512);
#define L1(field, offset) AT(CUfileStatsLevel1_t, field, offset)
L1(read_ops, 0);
L1(write_ops, 16);
L1(hdl_register_ops, 32);
L1(hdl_deregister_ops, 48);
L1(buf_register_ops, 64);
L1(buf_deregister_ops, 80);
L1(read_bytes, 96);
L1(write_bytes, 104);
L1(read_bw_bytes_per_sec, 112);
L1(write_bw_bytes_per_sec, 120);
L1(read_lat_avg_us, 128);
L1(write_lat_avg_us, 136);
L1(read_ops_per_sec, 144);
L1(write_ops_per_sec, 152);
L1(read_lat_sum_us, 160);
L1(write_lat_sum_us, 168);
L1(batch_submit_ops, 176);
L1(batch_complete_ops, 192);
L1(batch_setup_ops, 208);
L1(batch_cancel_ops, 224);
L1(batch_destroy_ops, 240);
L1(batch_enqueued_ops, 256);
L1(batch_posix_enqueued_ops, 272);
L1(batch_processed_ops, 288);
L1(batch_posix_processed_ops, 304);
L1(batch_nvfs_submit_ops, 320);
L1(batch_p2p_submit_ops, 336);
L1(batch_aio_submit_ops, 352);
L1(batch_iouring_submit_ops, 368);
L1(batch_mixed_io_submit_ops, 384);
L1(batch_total_submit_ops, 400);
L1(batch_read_bytes, 416);
L1(batch_write_bytes, 424);
L1(batch_read_bw_bytes, 432);
L1(batch_write_bw_bytes, 440);
L1(batch_submit_lat_avg_us, 448);
L1(batch_completion_lat_avg_us, 456);
L1(batch_submit_ops_per_sec, 464);
L1(batch_complete_ops_per_sec, 472);
L1(batch_submit_lat_sum_us, 480);
L1(batch_completion_lat_sum_us, 488);
L1(last_batch_read_bytes, 496);
L1(last_batch_write_bytes, 504);
SIZE(CUfileStatsLevel2_t, 1024);
AT(CUfileStatsLevel2_t, basic, 0);
AT(CUfileStatsLevel2_t, read_size_kb_hist, 512);
AT(CUfileStatsLevel2_t, write_size_kb_hist, 768);
SIZE(CUfilePerGpuStats_t, 248);
#define GPU(field, place) AT(CUfilePerGpuStats_t, field, 16 + 8 * (place))
AT(CUfilePerGpuStats_t, uuid, 0);
GPU(read_bytes, 0);
GPU(read_bw_bytes_per_sec, 1);
GPU(read_utilization, 2);
GPU(read_duration_us, 3);
GPU(n_total_reads, 4);
GPU(n_p2p_reads, 5);
GPU(n_nvfs_reads, 6);
GPU(n_posix_reads, 7);
GPU(n_unaligned_reads, 8);
GPU(n_dr_reads, 9);
GPU(n_sparse_regions, 10);
GPU(n_inline_regions, 11);
GPU(n_reads_err, 12);
GPU(writes_bytes, 13);
GPU(write_bw_bytes_per_sec, 14);
GPU(write_utilization, 15);
GPU(write_duration_us, 16);
GPU(n_total_writes, 17);
GPU(n_p2p_writes, 18);
GPU(n_nvfs_writes, 19);
GPU(n_posix_writes, 20);
GPU(n_unaligned_writes, 21);
GPU(n_dr_writes, 22);
GPU(n_writes_err, 23);
GPU(n_mmap, 24);
GPU(n_mmap_ok, 25);
GPU(n_mmap_err, 26);
GPU(n_mmap_free, 27);
GPU(reg_bytes, 28);
SIZE(CUfileStatsLevel3_t, 5000);
AT(CUfileStatsLevel3_t, detailed, 0);
AT(CUfileStatsLevel3_t, num_gpus, 1024);
AT(CUfileStatsLevel3_t, per_gpu_stats, 1032);
#endif

#endif
