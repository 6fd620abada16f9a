// The tiles of AMX: whether this process may use them, and their shape.
#ifndef TRIREME_DEVICE_CPU_AMX_H
#define TRIREME_DEVICE_CPU_AMX_H

#include "device/cpu/simd.h"

// Functions with this run only on a device with amx set, between cpu_amx_begin and cpu_amx_end.
#define CPU_AMX __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl")))

// Whether the CPU has tiles for BF16 and the kernel lets this process use them, for which it is
// asked once.
bool cpu_amx_is_allowed(void);

// All eight tiles of the calling thread with 16 rows of 64 bytes, and none.
void cpu_amx_begin(void);
void cpu_amx_end(void);

#endif
