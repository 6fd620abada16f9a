// The table of the module's functions. runtime.cu defines these functions for a GPU;
// tests/emulated_gpu defines functions of the same names for a GPU that the host emulates.
#ifndef TRIREME_DEVICE_CUDA_MODULE_TABLE_H
#define TRIREME_DEVICE_CUDA_MODULE_TABLE_H

#include "device/cuda/module/vendor.h"

// The functions of the module, in the order of the members of struct cuda_runtime.
#define CUDA_RUNTIME_TABLE                                                                         \
    {                                                                                              \
        count_devices, open_device, close_device, fault_of, clock_offset, alloc_memory,            \
            free_memory, alloc_host, free_host, memory_left, mark, open_stream, close_stream,      \
            copy, zero, wait_value, open_event, close_event, record, wait, finish, query,          \
            begin_capture, end_capture, repeat, close_graph, vendor_find_nccl, vendor_nccl_id,     \
            vendor_open_nccl, vendor_split_nccl, vendor_alloc_nccl, vendor_free_nccl,              \
            vendor_register_nccl, vendor_deregister_nccl, vendor_nccl_state, vendor_issue_nccl,    \
            vendor_close_nccl, CUDA_KERNEL_LIST(CUDA_KERNEL_ROW)                                   \
    }
#define CUDA_KERNEL_ROW(name) cuda_launch_##name,

#define X(name)                                                                                    \
    extern "C" tri_status cuda_launch_##name(cuda_stream *stream, const cuda_##name *params,       \
                                             char *why);
CUDA_KERNEL_LIST(X)
#undef X

#endif
