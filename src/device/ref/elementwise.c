#include "device/ref/node.h"

#include "device/ref/f32.h"

#include "device/ref/elementwise_body.h"

#include "device/ref/f64.h"

#include "device/ref/elementwise_body.h"

REF_KERNEL(relu)
REF_KERNEL(leaky_relu)
REF_KERNEL(activation_grad)
REF_KERNEL(add)
REF_KERNEL(dropout)
REF_KERNEL(dropout_grad)
