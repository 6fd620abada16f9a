#include "device/ref/node.h"

#include "device/moments.h"

#include <math.h>

#include "device/ref/f32.h"

#include "device/ref/batch_norm_body.h"

#include "device/ref/batch_norm_shared_body.h"

#include "device/ref/f64.h"

#include "device/ref/batch_norm_body.h"

#include "device/ref/batch_norm_shared_body.h"

REF_KERNEL(batch_norm)
REF_KERNEL(batch_norm_inference)
REF_KERNEL(batch_norm_grad)
REF_KERNEL(batch_norm_moments)
REF_KERNEL(batch_norm_shared)
REF_KERNEL(batch_norm_sums)
REF_KERNEL(batch_norm_shared_grad)
