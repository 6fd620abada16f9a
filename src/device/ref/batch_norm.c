#include "device/ref/node.h"

#include <math.h>

// Of one channel.
typedef struct ref_moments {
    double values, mean, squares; // sum of squared deviations from the mean
} ref_moments;

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
