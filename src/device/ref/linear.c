#include "device/ref/node.h"

#include "device/ref/f32.h"

#include "device/ref/linear_body.h"

#include "device/ref/f64.h"

#include "device/ref/linear_body.h"

REF_KERNEL(linear)
REF_KERNEL(linear_grad_input)
REF_KERNEL(linear_grad_weight)
