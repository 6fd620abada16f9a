// The device `ref` (reference), against which all others are tested. It is meant to be simple, not
// fast: plain C on one thread, with row-major tensors, and sums in double. It computes F32 and F64;
// BF16 and F16 are converted to F32 (device/widen.h).
#ifndef TRIREME_DEVICE_REF_H
#define TRIREME_DEVICE_REF_H

#include "device/device.h"
#include "ops/ops.h"

extern const tri_device_backend tri_device_ref;

// One kernel for each op. Another device whose memory the host can use may list these after its own
// kernels, for ops for which it has none.
#define X(identifier) extern const tri_kernel_def ref_##identifier;
TRI_OP_LIST(X)
#undef X

#endif
