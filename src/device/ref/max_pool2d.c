#include "device/ref/node.h"

#include <math.h>
#include <string.h>

#include "device/ref/f32.h"

#include "device/ref/max_pool2d_body.h"

#include "device/ref/f64.h"

#include "device/ref/max_pool2d_body.h"

REF_KERNEL(max_pool2d)
REF_KERNEL(max_pool2d_grad)
