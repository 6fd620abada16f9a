#include "device/ref/node.h"

#include <math.h>

#include "device/ref/f32.h"

#include "device/ref/norm_body.h"

#include "device/ref/f64.h"

#include "device/ref/norm_body.h"

REF_KERNEL(rms_norm)
REF_SUMMING_KERNEL(rms_norm_grad, s->in[2].dims[0])
REF_KERNEL(layer_norm)
REF_SUMMING_KERNEL(layer_norm_grad, 2 * s->in[0].dims[s->in[0].rank - 1])
