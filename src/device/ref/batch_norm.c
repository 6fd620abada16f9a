#include "device/ref/node.h"

#include <math.h>

#include "device/ref/f32.h"

#include "device/ref/batch_norm_body.h"

#include "device/ref/f64.h"

#include "device/ref/batch_norm_body.h"

REF_KERNEL(batch_norm)
REF_KERNEL(batch_norm_inference)
REF_KERNEL(batch_norm_grad)
