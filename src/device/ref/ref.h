// Plain C, the truth that every other device is held against: plain layouts, F32 and F64, sums in
// double, one thread; half types by way of F32 (device/widen.h).
#ifndef TRIREME_DEVICE_REF_H
#define TRIREME_DEVICE_REF_H

#include "device/device.h"
#include "ops/ops.h"

extern const tri_device_backend tri_device_ref;

// One kernel for each op. Another device with host memory may list them after its own.
#define X(identifier) extern const tri_kernel_def ref_##identifier;
TRI_OP_LIST(X)
#undef X

#endif
