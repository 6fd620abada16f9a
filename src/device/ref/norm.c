#include "device/ref/node.h"

#include <math.h>

#include "device/ref/f32.h"

#include "device/ref/norm_body.h"

#include "device/ref/f64.h"

#include "device/ref/norm_body.h"

REF_KERNEL(rms_norm)
REF_KERNEL(rms_norm_grad)
REF_KERNEL(layer_norm)
REF_KERNEL(layer_norm_grad)
