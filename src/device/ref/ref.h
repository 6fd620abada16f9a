// The device `ref`, against which all others are tested. It is meant to be simple, not fast: plain
// C on one thread, with plain layouts, and sums in double. It computes F32 and F64; half types are
// converted to F32 (device/widen.h).
#ifndef TRIREME_DEVICE_REF_H
#define TRIREME_DEVICE_REF_H

#include "device/device.h"
#include "ops/ops.h"

extern const tri_device_backend tri_device_ref;

// One kernel for each op. Other devices with host memory may list these after their own, for ops
// for which they have no kernel.
#define X(identifier) extern const tri_kernel_def ref_##identifier;
TRI_OP_LIST(X)
#undef X

#endif
