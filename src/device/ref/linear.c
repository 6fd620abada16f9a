#include "device/ref/node.h"

#include "device/ref/f32.h"

#include "device/ref/linear_body.h"

#include "device/ref/f64.h"

#include "device/ref/linear_body.h"

REF_KERNEL(linear)
REF_SUMMING_KERNEL(linear_grad_input, s->in[1].dims[1])
REF_SUMMING_KERNEL(linear_grad_weight, s->out[0].dims[1])
