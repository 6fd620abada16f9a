#include "device/ref/node.h"

#include <math.h>

#include "device/ref/f32.h"

#include "device/ref/update_body.h"

#include "device/ref/f64.h"

#include "device/ref/update_body.h"

REF_KERNEL(sgd)
REF_KERNEL(adam)
REF_KERNEL(adadelta)
REF_KERNEL(moving_average)
