#include "device/ref/node.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

// gelu(x) / x, which is in (0, 1).
static double gelu_share(double x, bool tanh_form) {
    if (!tanh_form) return 0.5 * (1 + erf(x / sqrt(2)));
    return 0.5 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x, bool tanh_form) {
    double share = gelu_share(x, tanh_form);
    if (!tanh_form) return share + x * exp(-0.5 * x * x) / sqrt(2 * pi);
    double inner = sqrt(2 / pi) * (1 + 3 * 0.044715 * x * x);
    return share + x * 2 * share * (1 - share) * inner; // tanh' = 1 - tanh² = 4 share (1 - share)
}

#include "device/ref/f32.h"

#include "device/ref/elementwise_body.h"

#include "device/ref/f64.h"

#include "device/ref/elementwise_body.h"

REF_KERNEL(relu)
REF_KERNEL(leaky_relu)
REF_KERNEL(activation_grad)
REF_KERNEL(add)
REF_KERNEL(add_bias)
REF_SUMMING_KERNEL(add_bias_grad, s->out[0].dims[0])
REF_KERNEL(dropout)
REF_KERNEL(dropout_grad)
REF_KERNEL(gelu)
REF_KERNEL(gelu_grad)
REF_KERNEL(silu_mul)
REF_KERNEL(silu_mul_grad)
