// Functions of elements: activations, arithmetic, comparisons. Inputs are broadcast to one shape,
// as in NumPy and PyTorch, and have one type.
//
// Each function is a row of a list: from its expression follow the kernels of every device, the
// gradient, and its test against PyTorch. tri_map takes an expression of your own. The first axis
// of what comes from the data is that of the samples of a micro-batch: a sum over it would make the
// result depend on how a step is divided.
#ifndef TRIREME_FUNCTIONS_H
#define TRIREME_FUNCTIONS_H

#include <trireme/api.h>
#include <trireme/graph.h>

#ifdef __cplusplus
#include <initializer_list>
#endif

TRI_API_BEGIN

// clang-format off
// X(NAME, DECLARED, VALUES, PARAMETERS, EXPRESSION, DOC): the function tri_NAME(graph, DECLARED)
// computes the expression (see tri_map) of VALUES and, with a comma behind each, PARAMETERS.
#define TRI_FUNCTION_LIST(X) \
    X(sub, (tri_value a, tri_value b), (a, b), (), \
      "a, b -> a - b", "a - b.") \
    X(mul, (tri_value a, tri_value b), (a, b), (), \
      "a, b -> a * b", "a * b.") \
    X(div, (tri_value a, tri_value b), (a, b), (), \
      "a, b -> a / b", "a / b.") \
    X(floor_divide, (tri_value a, tri_value b), (a, b), (), \
      "a, b -> a // b", "a / b, rounded down; no gradient.") \
    X(remainder, (tri_value a, tri_value b), (a, b), (), \
      "a, b -> a % b", "a - (a // b) * b, which has the sign of b.") \
    X(fmod, (tri_value a, tri_value b), (a, b), (), \
      "a, b -> fmod(a, b)", "The same with the quotient rounded towards 0: it has the sign of a.") \
    X(maximum, (tri_value a, tri_value b), (a, b), (), \
      "a, b -> max(a, b)", "The larger one; equal ones share the gradient.") \
    X(minimum, (tri_value a, tri_value b), (a, b), (), \
      "a, b -> min(a, b)", "The smaller one; equal ones share the gradient.") \
    X(where, (tri_value condition, tri_value a, tri_value b), (condition, a, b), (), \
      "condition, a, b -> condition ? a : b", "a where the condition is not 0, else b.") \
    X(lerp, (tri_value a, tri_value b, tri_value weight), (a, b, weight), (), \
      "a, b, weight -> a + weight * (b - a)", "A mean of a and b by weights.") \
    X(less, (tri_value a, tri_value b), (a, b), (), \
      "a, b -> a < b", "1 where a < b, else 0.") \
    X(equal, (tri_value a, tri_value b), (a, b), (), \
      "a, b -> a == b", "1 where a equals b, else 0.") \
    X(less_equal, (tri_value a, tri_value b), (a, b), (), \
      "a, b -> a <= b", "1 where a <= b, else 0.") \
    X(greater, (tri_value a, tri_value b), (a, b), (), \
      "a, b -> a > b", "1 where a > b, else 0.") \
    X(greater_equal, (tri_value a, tri_value b), (a, b), (), \
      "a, b -> a >= b", "1 where a >= b, else 0.") \
    X(not_equal, (tri_value a, tri_value b), (a, b), (), \
      "a, b -> a != b", "1 where a and b differ, else 0.") \
    X(logical_and, (tri_value a, tri_value b), (a, b), (), \
      "a, b -> a && b", "1 where neither is 0, else 0.") \
    X(logical_or, (tri_value a, tri_value b), (a, b), (), \
      "a, b -> a || b", "1 where one is not 0, else 0.") \
    X(logical_xor, (tri_value a, tri_value b), (a, b), (), \
      "a, b -> !a != !b", "1 where just one is not 0, else 0.") \
    X(logical_not, (tri_value x), (x), (), "!x", "1 where x is 0, else 0.") \
    X(isnan, (tri_value x), (x), (), "x != x", "1 where x is NaN, else 0.") \
    X(isfinite, (tri_value x), (x), (), "x - x == 0", "1 where x is neither NaN nor infinite.") \
    X(isinf, (tri_value x), (x), (), "x == x && x - x != 0", "1 where x is infinite, else 0.") \
    X(masked_fill, (tri_value x, tri_value mask, double value), (x, mask), (value, ), \
      "x, mask, value = 0 -> mask ? value : x", "x, but `value` where the mask is not 0.") \
    X(addcmul, (tri_value x, tri_value a, tri_value b, double value), (x, a, b), (value, ), \
      "x, a, b, value = 1 -> x + value * a * b", "x + value * a * b.") \
    X(addcdiv, (tri_value x, tri_value a, tri_value b, double value), (x, a, b), (value, ), \
      "x, a, b, value = 1 -> x + value * a / b", "x + value * a / b.") \
    X(copysign, (tri_value a, tri_value b), (a, b), (), \
      "a, b -> b < 0 || 1 / b < 0 ? -abs(a) : abs(a)", "The size of a with the sign of b.") \
    X(add_scalar, (tri_value x, double number), (x), (number, ), \
      "x, number = 0 -> x + number", "x + number.") \
    X(mul_scalar, (tri_value x, double factor), (x), (factor, ), \
      "x, factor = 1 -> x * factor", "x * factor.") \
    X(pow_scalar, (tri_value x, double exponent), (x), (exponent, ), \
      "x, exponent = 2 -> x ^ exponent", "x to a power.") \
    X(pow, (tri_value a, tri_value b), (a, b), (), \
      "a, b -> a ^ b", "a to the power b.") \
    X(clamp, (tri_value x, double low, double high), (x), (low, high, ), \
      "x, low = 0, high = 1 -> x > high ? high : x < low ? min(low, high) : x", \
      "x, but at least `low` and at most `high`; `high` if `low` is larger.") \
    X(neg, (tri_value x), (x), (), "-x", "-x.") \
    X(abs, (tri_value x), (x), (), "abs(x)", "The absolute value.") \
    X(sign, (tri_value x), (x), (), "sign(x)", "-1, 0 or 1.") \
    X(detach, (tri_value x), (x), (), "detach(x)", "x, through which no gradient flows.") \
    X(floor, (tri_value x), (x), (), "floor(x)", "The next whole number below; no gradient.") \
    X(ceil, (tri_value x), (x), (), "ceil(x)", "The next whole number above; no gradient.") \
    X(round, (tri_value x), (x), (), "round(x)", \
      "The nearest whole number, of two the even one; no gradient.") \
    X(trunc, (tri_value x), (x), (), "x < 0 ? ceil(x) : floor(x)", \
      "The next whole number towards 0; no gradient.") \
    X(frac, (tri_value x), (x), (), "x - (x < 0 ? ceil(x) : floor(x))", "x - trunc(x).") \
    X(deg2rad, (tri_value x), (x), (), "x * 0.01745329251994329577", "Degrees as radians.") \
    X(rad2deg, (tri_value x), (x), (), "x * 57.2957795130823208768", "Radians as degrees.") \
    X(nan_to_num, (tri_value x, double value), (x), (value, ), \
      "x, value = 0 -> x != x ? value : " \
      "x > 3.40282346638528859812e38 ? 3.40282346638528859812e38 : " \
      "x < -3.40282346638528859812e38 ? -3.40282346638528859812e38 : x", \
      "x, with `value` for NaN and the largest F32 for infinity.") \
    X(square, (tri_value x), (x), (), "x * x", "x squared.") \
    X(sqrt, (tri_value x), (x), (), "sqrt(x)", "The square root.") \
    X(rsqrt, (tri_value x), (x), (), "rsqrt(x)", "1 / the square root.") \
    X(reciprocal, (tri_value x), (x), (), "1 / x", "1 / x.") \
    X(exp, (tri_value x), (x), (), "exp(x)", "e to the power x.") \
    X(exp2, (tri_value x), (x), (), "2 ^ x", "2 to the power x.") \
    X(expm1, (tri_value x), (x), (), "expm1(x)", "exp(x) - 1, exact near 0.") \
    X(log, (tri_value x), (x), (), "log(x)", "The natural logarithm.") \
    X(log1p, (tri_value x), (x), (), "log1p(x)", "log(1 + x), exact near 0.") \
    X(log2, (tri_value x), (x), (), "log(x) * 1.44269504088896340736", \
      "The logarithm to the base 2.") \
    X(log10, (tri_value x), (x), (), "log(x) * 0.43429448190325182765", \
      "The logarithm to the base 10.") \
    X(logit, (tri_value x), (x), (), "log(x / (1 - x))", "The inverse of the sigmoid.") \
    X(logaddexp, (tri_value a, tri_value b), (a, b), (), \
      "a, b, d = a == b ? 0 : abs(a - b) -> max(a, b) + log1p(exp(-d))", "log(exp(a) + exp(b)).") \
    X(xlogy, (tri_value a, tri_value b), (a, b), (), \
      "a, b -> a * log(a == 0 && (b <= 0 || 1 / b == 0) ? 1 : b)", \
      "a * log(b), and 0 where a is 0.") \
    X(hypot, (tri_value a, tri_value b), (a, b), (), \
      "a, b, m = detach(max(abs(a), abs(b))), k = m == 0 || m - m != 0 ? 1 : m, " \
      "p = a / k, q = b / k -> k * sqrt(p * p + q * q)", "The length of the vector (a, b).") \
    X(sin, (tri_value x), (x), (), "sin(x)", "The sine.") \
    X(cos, (tri_value x), (x), (), "cos(x)", "The cosine.") \
    X(tan, (tri_value x), (x), (), "sin(x) / cos(x)", "The tangent.") \
    X(asin, (tri_value x), (x), (), "2 * atan(x / (1 + sqrt(1 - x) * sqrt(1 + x)))", \
      "The arc sine.") \
    X(acos, (tri_value x), (x), (), \
      "x, s = x < 0 ? -1 : 1, a = s * x, t = 2 * atan(sqrt(1 - a) / sqrt(1 + a)) " \
      "-> s < 0 ? pi - t : t", "The arc cosine.") \
    X(atan, (tri_value x), (x), (), "atan(x)", "The arc tangent.") \
    X(atan2, (tri_value y, tri_value x), (y, x), (), \
      "y, x, up = y < 0 || 1 / y < 0 ? -1 : 1, right = x < 0 || 1 / x < 0 ? -1 : 1, " \
      "p = up * y, q = right * x, even = p == q && (p == 0 || p - p != 0), " \
      "t = even ? (p > 0 ? pi / 4 : 0) : p > q ? pi / 2 - atan(q / p) : atan(p / q) " \
      "-> up * (right < 0 ? pi - t : t)", "The angle of the point (x, y).") \
    X(sinh, (tri_value x), (x), (), "(expm1(x) - expm1(-x)) / 2", "The hyperbolic sine.") \
    X(cosh, (tri_value x), (x), (), "(exp(x) + exp(-x)) / 2", "The hyperbolic cosine.") \
    X(asinh, (tri_value x), (x), (), \
      "x, s = x < 0 ? -1 : 1, a = s * x -> s * (a > 1e9 ? log(a) + 0.69314718055994530942 : " \
      "log1p(a + a * (a / (1 + sqrt(1 + a * a)))))", "Its inverse.") \
    X(acosh, (tri_value x), (x), (), \
      "x, d = x - 1 -> x > 1e9 ? log(x) + 0.69314718055994530942 : " \
      "log1p(d + sqrt(d) * sqrt(x + 1))", "The inverse of cosh.") \
    X(atanh, (tri_value x), (x), (), "(log1p(x) - log1p(-x)) / 2", "The inverse of tanh.") \
    X(sinc, (tri_value x), (x), (), "x, u = x == 0 ? 1 : pi * x -> x == 0 ? 1 : sin(u) / u", \
      "sin(pi x) / (pi x), and 1 at 0.") \
    X(erf, (tri_value x), (x), (), "erf(x)", "The error function.") \
    X(erfc, (tri_value x), (x), (), "2 * normal_cdf(-1.41421356237309504880 * x)", "1 - erf(x).") \
    X(erfinv, (tri_value x), (x), (), "erfinv(x)", "The inverse of erf, from -1 to 1.") \
    X(lgamma, (tri_value x), (x), (), "lgamma(x)", "The logarithm of |gamma(x)|.") \
    X(digamma, (tri_value x), (x), (), "digamma(x)", "The derivative of lgamma.") \
    X(normal_cdf, (tri_value x), (x), (), "normal_cdf(x)", \
      "The probability that a normal number is at most x.") \
    X(sigmoid, (tri_value x), (x), (), "sigmoid(x)", "1 / (1 + exp(-x)).") \
    X(tanh, (tri_value x), (x), (), "tanh(x)", "The hyperbolic tangent.") \
    X(relu, (tri_value x), (x), (), "relu(x)", "ReLU: x where x > 0, else 0.") \
    X(leaky_relu, (tri_value x, double slope), (x), (slope, ), \
      "x, slope = 0.01 -> leaky_relu(x, slope)", "Leaky ReLU: x where x > 0, else slope times x.") \
    X(relu6, (tri_value x), (x), (), "x <= 0 ? 0 : x >= 6 ? 6 : x", "ReLU, at most 6.") \
    X(silu, (tri_value x), (x), (), "x * sigmoid(x)", "SiLU, also called swish.") \
    X(silu_mul, (tri_value gate, tri_value up), (gate, up), (), \
      "gate, up -> gate * sigmoid(gate) * up", "The activation of SwiGLU, silu(gate) times up.") \
    X(gelu, (tri_value x), (x), (), "x * normal_cdf(x)", "GELU, with the exact normal_cdf.") \
    X(gelu_tanh, (tri_value x), (x), (), \
      "x * sigmoid(x * (1.595769121605730712 + 0.0713548162726002488 * (x * x)))", \
      "GELU, approximated by tanh as in GPT-2.") \
    X(quick_gelu, (tri_value x), (x), (), "x * sigmoid(1.702 * x)", "GELU as CLIP has it.") \
    X(mish, (tri_value x), (x), (), "x * tanh(x > 20 ? x : log1p(exp(x)))", "Mish.") \
    X(softsign, (tri_value x), (x), (), "x / (1 + abs(x))", "x / (1 + |x|).") \
    X(tanhshrink, (tri_value x), (x), (), "x - tanh(x)", "x - tanh(x).") \
    X(log_sigmoid, (tri_value x), (x), (), "min(x, 0) - log1p(exp(-abs(x)))", \
      "The logarithm of the sigmoid.") \
    X(hardsigmoid, (tri_value x), (x), (), "x <= -3 ? 0 : x >= 3 ? 1 : x / 6 + 0.5", \
      "A sigmoid of straight lines.") \
    X(hardswish, (tri_value x), (x), (), "x < -3 ? 0 : x <= 3 ? x * (x + 3) / 6 : x", \
      "x times hardsigmoid(x).") \
    X(selu, (tri_value x), (x), (), \
      "1.0507009873554804934193349852946 * " \
      "(x > 0 ? x : 1.6732632423543772848170429916717 * expm1(x))", "SELU.") \
    X(elu, (tri_value x, double alpha), (x), (alpha, ), \
      "x, alpha = 1 -> x > 0 ? x : alpha * expm1(x)", "ELU.") \
    X(celu, (tri_value x, double alpha), (x), (alpha, ), \
      "x, alpha = 1 -> x > 0 ? x : alpha * expm1(x / alpha)", "CELU.") \
    X(softplus, (tri_value x, double beta), (x), (beta, ), \
      "x, beta = 1 -> x * beta > 20 ? x : log1p(exp(x * beta)) / beta", "A smooth ReLU.") \
    X(hardtanh, (tri_value x, double low, double high), (x), (low, high, ), \
      "x, low = -1, high = 1 -> x >= high ? high : x <= low ? min(low, high) : x", \
      "clamp, without a gradient at the ends.") \
    X(softshrink, (tri_value x, double width), (x), (width, ), \
      "x, width = 0.5 -> x >= -width && x <= width ? 0 : x > 0 ? x - width : x + width", \
      "x, moved towards 0 by `width`.") \
    X(hardshrink, (tri_value x, double width), (x), (width, ), \
      "x, width = 0.5 -> x >= -width && x <= width ? 0 : x", \
      "x, but 0 from -width to width.") \
    X(threshold, (tri_value x, double limit, double value), (x), (limit, value, ), \
      "x, limit = 0, value = 0 -> x <= limit ? value : x", "x above `limit`, else `value`.")

#define TRI_UNPACKED_(...) __VA_ARGS__
#define X(name, declared, values, parameters, expression, doc) \
    tri_value tri_##name(tri_graph *graph, TRI_UNPACKED_ declared);
TRI_FUNCTION_LIST(X)
#undef X

// X(…) as above: the losses tri_NAME, each the mean over all elements of what the expression has as
// their terms (PyTorch's reduction "mean"). A target has the shape of its prediction, or one
// element; the target and the variance of gaussian_nll_loss may be broadcast to that shape.
#define TRI_LOSS_LIST(X) \
    X(l1_loss, (tri_value prediction, tri_value target), (prediction, target), (), \
      "p, t -> abs(p - t)", "The mean absolute error.") \
    X(smooth_l1_loss, (tri_value prediction, tri_value target, double beta), \
      (prediction, target), (beta, ), \
      "p, t, beta = 1 -> abs(p - t) < beta ? 0.5 * (p - t) ^ 2 / beta : abs(p - t) - 0.5 * beta", \
      "Squares of errors below `beta`, absolute values above.") \
    X(huber_loss, (tri_value prediction, tri_value target, double delta), \
      (prediction, target), (delta, ), \
      "p, t, d = 1 -> abs(p - t) <= d ? 0.5 * (p - t) ^ 2 : d * (abs(p - t) - 0.5 * d)", \
      "`delta` times smooth_l1_loss.") \
    X(bce_loss, (tri_value probability, tri_value target), (probability, target), (), \
      "p, t -> -(t * max(log(p), -100) + (1 - t) * max(log1p(-p), -100))", \
      "Binary cross-entropy of probabilities; tri_binary_cross_entropy takes logits.") \
    X(poisson_nll_loss, (tri_value log_rate, tri_value target), (log_rate, target), (), \
      "p, t -> exp(p) - t * p", "Counts that are expected as e to the power log_rate.") \
    X(kl_div_loss, (tri_value log_probability, tri_value target), \
      (log_probability, target), (), \
      "p, t -> t > 0 ? t * (log(t) - p) : 0 * p", \
      "Kullback-Leibler divergence; the mean over elements, not over samples.") \
    X(gaussian_nll_loss, (tri_value mean, tri_value target, tri_value variance), \
      (mean, target, variance), (), \
      "p, t, v, w = detach(max(v, 1e-6)) + (v - detach(v)) -> 0.5 * (log(w) + (p - t) ^ 2 / w)", \
      "The likelihood of a normal distribution, without its constant.") \
    X(soft_margin_loss, (tri_value score, tri_value target), (score, target), (), \
      "p, t -> log1p(exp(-t * p))", "Logistic loss of targets -1 and 1.") \
    X(hinge_loss, (tri_value score, tri_value target), (score, target), (), \
      "p, t -> max(1 - t * p, 0)", "Hinge loss of targets -1 and 1.") \
    X(multilabel_soft_margin_loss, (tri_value score, tri_value target), (score, target), (), \
      "p, t -> max(p, 0) - p * t + log1p(exp(-abs(p)))", \
      "Logistic loss of each class, with targets 0 and 1.")

#define X(name, declared, values, parameters, expression, doc) \
    tri_value tri_##name(tri_graph *graph, TRI_UNPACKED_ declared);
TRI_LOSS_LIST(X)
#undef X
// clang-format on

// Computes an expression on each element of `count` values, at most 8. Before an arrow stand the
// names of the values in their order: "gate, up -> gate / (1 + exp(-gate)) * up", and of parts
// that the expression has several times: "x, s = sigmoid(x) -> s * (1 - s)". One value needs no
// arrow: "x * sigmoid(1.702 * x)". An expression has numbers, + - * / ^ (power), // and % (as in
// Python: rounded down), comparisons, && || !, c ? a : b, pi, and abs, atan, ceil, cos, detach,
// digamma, erf, erfinv, exp, expm1, floor, fmod, leaky_relu, lgamma, log, log1p, max, min,
// normal_cdf, pow, relu, round, rsqrt, sigmoid, sign, sin, sqrt, tanh, trigamma; of integers also
// & | ~ << >> and bit_xor. Comparisons yield 1 or 0. The gradient is found from the expression.
// Fails the graph with the place of a mistake.
tri_value tri_map_values(tri_graph *graph, const char *expression, const tri_value *values,
                         int count);
// The same, with the values as arguments: tri_map(g, "x, y -> x * exp(-y)", x, y).
#ifdef __cplusplus
#define tri_map(graph, expression, ...)                                                            \
    [&](std::initializer_list<tri_value> list) {                                                   \
        return tri_map_values(graph, expression, list.begin(), (int)list.size());                  \
    }({__VA_ARGS__})
#else
#define tri_map(graph, expression, ...)                                                            \
    tri_map_values(graph, expression, (const tri_value[]){__VA_ARGS__},                            \
                   (int)(sizeof((const tri_value[]){__VA_ARGS__}) / sizeof(tri_value)))
#endif

// The same for several expressions with commas between them, at most 4, which are computed together
// and read the values once: "x, y -> x * cos(y), x * sin(y)". results[k] becomes that of expression
// k; `result_count` is their number.
void tri_map_several(tri_graph *graph, const char *expressions, const tri_value *values, int count,
                     tri_value *results, int result_count);

// A mask: U8, 1 where the expression is not 0, else 0; no gradient. It takes one byte for each
// element, wherever it lies: tri_mask(g, "x, y -> x > y", x, y). Masks are joined by && || ! in
// another one, counted by tri_sum, and may stand among values of any other type in tri_where,
// tri_map and the functions of lists, which read them as 1 and 0.
tri_value tri_mask_values(tri_graph *graph, const char *expression, const tri_value *values,
                          int count);
#ifdef __cplusplus
#define tri_mask(graph, expression, ...)                                                           \
    [&](std::initializer_list<tri_value> list) {                                                   \
        return tri_mask_values(graph, expression, list.begin(), (int)list.size());                 \
    }({__VA_ARGS__})
#else
#define tri_mask(graph, expression, ...)                                                           \
    tri_mask_values(graph, expression, (const tri_value[]){__VA_ARGS__},                           \
                    (int)(sizeof((const tri_value[]){__VA_ARGS__}) / sizeof(tri_value)))
#endif

// Random numbers of x's shape, a new one for each element in each step. They depend on the name and
// the recipe's seed, and on the sample, the step and the element: not on the number of ranks or
// micro-batches. The first axis of x has to be that of the samples, each in one or several rows. A
// function that reads them draws them itself, so that they are not stored, and the backward pass
// draws them again. An evaluation draws too, the same numbers each time, as those of step 0. No
// gradient. Functions of functions.h make other distributions of them: x + std * noise is
// tri_map(g, "x, e -> x + 0.1 * e", x, tri_randn_like(g, "noise", x)).

// Numbers in [0, 1), all alike probable, as torch.rand_like.
tri_value tri_rand_like(tri_graph *graph, const char *name, tri_value x);
// Normal numbers, with the mean 0 and the standard deviation 1, as torch.randn_like.
tri_value tri_randn_like(tri_graph *graph, const char *name, tri_value x);
// 1 with the probability that an element of p is, else 0, as torch.bernoulli.
tri_value tri_bernoulli(tri_graph *graph, const char *name, tri_value p);
// Whole numbers from `low` to `high` - 1, I64 of the shape, whose first axis is that of the
// samples, as torch.randint; at most 2^24 different ones.
tri_value tri_randint(tri_graph *graph, const char *name, tri_shape shape, int64_t low,
                      int64_t high);
// In each row of the shape the numbers 0 to K - 1 of its last axis, I64 in an order of its own, as
// torch.randperm.
tri_value tri_randperm(tri_graph *graph, const char *name, tri_shape shape);
// `count` numbers of classes, I64 [.., count], each drawn with a probability in proportion to its
// weight [.., K], as torch.multinomial: with `replacement` a class may come again, and else those
// of weight 0 come last.
tri_value tri_multinomial(tri_graph *graph, const char *name, tri_value weights, int64_t count,
                          bool replacement);

// x in another type: F32, in which networks compute (or whatever trainer.precision makes of it), or
// I64, I32 or U8. Integers, such as token ids and what tri_argmax and tri_sort make, may also be
// compared, added, multiplied and divided with remainder, exactly and in their own type, by tri_map
// and the functions of shapes; comparisons yield 1 or 0 of that type. They are computed in 64 bits,
// and the result wraps where its type has no room, as in PyTorch. An integer // 0 or % 0 is 0, as
// in NumPy, on every device. All values of one call need one type, but for those of U8, and numbers
// in an expression have to be below 2^53. From F32 to an integer the part behind the point goes.
// What is made of integers alone, as a mask of positions, is F32 with every trainer.precision,
// until a function reads it beside other values.
tri_value tri_cast(tri_graph *graph, tri_value x, tri_dtype dtype);

// Functions of shapes. They read their input by strides; where its elements keep their order it is
// not copied at all. A negative axis counts from the last. As in every layer, the first axis of
// what comes from the data has to stay that of the samples.

// The axes in another order, as torch.permute: axis i of the result is axis axes[i] of x.
tri_value tri_permute(tri_graph *graph, tri_value x, const int *axes);
// Two axes exchanged.
tri_value tri_transpose(tri_graph *graph, tri_value x, int first, int second);
// The elements `first` to end - 1 along an axis; negative numbers count from its end, and end 0
// means up to its end. `step` above 1 takes every step-th element, 0 means 1.
tri_value tri_slice(tri_graph *graph, tri_value x, int axis, int64_t first, int64_t end,
                    int64_t step);
// One element along an axis, which goes: x[:, 3] is tri_select(g, x, 1, 3).
tri_value tri_select(tri_graph *graph, tri_value x, int axis, int64_t index);
// The elements along an axis in the opposite order.
tri_value tri_flip(tri_graph *graph, tri_value x, int axis);
// `before` and `after` zeros along an axis; negative numbers cut elements off.
tri_value tri_pad(tri_graph *graph, tri_value x, int axis, int64_t before, int64_t after);
// The elements along an axis moved by `shift`, those at the end to the begin.
tri_value tri_roll(tri_graph *graph, tri_value x, int axis, int64_t shift);
// Axes of size 1, and new axes in front, repeated to `shape`.
tri_value tri_expand(tri_graph *graph, tri_value x, tri_shape shape);
// All of x `count` times along an axis.
tri_value tri_repeat(tri_graph *graph, tri_value x, int axis, int64_t count);
// Each element `count` times along an axis, as torch.repeat_interleave.
tri_value tri_repeat_interleave(tri_graph *graph, tri_value x, int axis, int64_t count);
// A new axis of size 1, which becomes number `axis`.
tri_value tri_unsqueeze(tri_graph *graph, tri_value x, int axis);
// x without an axis of size 1.
tri_value tri_squeeze(tri_graph *graph, tri_value x, int axis);
// `count` values of one shape along a new axis, which becomes number `axis`.
tri_value tri_stack(tri_graph *graph, const tri_value *values, int count, int axis);
// Part number `index` of `parts` equal ones along an axis, as torch.chunk.
tri_value tri_chunk(tri_graph *graph, tri_value x, int axis, int64_t parts, int64_t index);
// The first half of an axis times the sigmoid of its second half.
tri_value tri_glu(tri_graph *graph, tri_value x, int axis);
// Channels to pixels: [N, C · r², H, W] → [N, C, H · r, W · r].
tri_value tri_pixel_shuffle(tri_graph *graph, tri_value x, int64_t factor);
// Pixels to channels: [N, C, H · r, W · r] → [N, C · r², H, W].
tri_value tri_pixel_unshuffle(tri_graph *graph, tri_value x, int64_t factor);

// Functions of indices, which are I64, numbers from 0, and come from the data or from a function
// that makes them. An index that the axis does not have ends the run with a message, exit code 2. A
// negative axis counts from the last. Sums are added in the order of the index, whatever the number
// of threads.

// Elements of x along an axis by their numbers, as torch.gather: for an index of 3 axes and axis 1,
// y[i][j][k] = x[i][index[i][j][k]][k]. y has the shape of `index`, which along the other axes may
// be smaller than x.
tri_value tri_gather(tri_graph *graph, tri_value x, int axis, tri_value index);
// The same as torch.take_along_dim: axes of size 1 of x and the index, other than `axis`, are
// repeated.
tri_value tri_take_along(tri_graph *graph, tri_value x, int axis, tri_value index);
// The elements along an axis that a vector of indices [K] names, for all other axes alike, as
// torch.index_select.
tri_value tri_index_select(tri_graph *graph, tri_value x, int axis, tri_value index);
// x, of which along an axis the elements that the index names are replaced by the source's, as
// torch.scatter: x[i][index[i][j][k]][k] = source[i][j][k]. Of equal indices the last one wins, and
// only it has a gradient. Along the other axes the index has the sizes of x's.
tri_value tri_scatter(tri_graph *graph, tri_value x, int axis, tri_value index, tri_value source);
// The same, with the source added to x, as torch.scatter_add.
tri_value tri_scatter_add(tri_graph *graph, tri_value x, int axis, tri_value index,
                          tri_value source);
// The same, with the larger one of x and the source, as torch.scatter_reduce with "amax"; equal
// ones share the gradient.
tri_value tri_scatter_amax(tri_graph *graph, tri_value x, int axis, tri_value index,
                           tri_value source);
// x with the source added to what a vector of indices [K] names along an axis, as torch.index_add.
tri_value tri_index_add(tri_graph *graph, tri_value x, int axis, tri_value index, tri_value source);

// Order, running sums and reductions take integers too, in their own type, but sums and products
// become I64, of 64 bits, which wrap. So they are exact, as those of PyTorch.

// Where along an axis the largest element of x is, I64; of equal ones the first, as in PyTorch, and
// NaN counts as the largest. keep: the axis stays, with the size 1; else it goes.
tri_value tri_argmax(tri_graph *graph, tri_value x, int axis, bool keep);
// The same for the smallest element; NaN counts as the smallest.
tri_value tri_argmin(tri_graph *graph, tri_value x, int axis, bool keep);
// The elements of x along an axis in ascending or descending order, as torch.sort with stable=True:
// equal ones stay in their order, and NaN counts as the largest. *index becomes which elements of x
// they are, I64 of the same shape; NULL: that is not wanted.
tri_value tri_sort(tri_graph *graph, tri_value x, int axis, bool descending, tri_value *index);
// The `count` largest or smallest elements along an axis, in that order, as torch.topk. *index as
// for tri_sort; of equal elements the first ones are taken.
tri_value tri_topk(tri_graph *graph, tri_value x, int64_t count, int axis, bool largest,
                   tri_value *index);

// The sum of all elements up to each one along an axis, as torch.cumsum.
tri_value tri_cumsum(tri_graph *graph, tri_value x, int axis);
// The product of all elements up to each one; its gradient is right with zeros among them too.
tri_value tri_cumprod(tri_graph *graph, tri_value x, int axis);
// The largest element up to each one, of which *index becomes the place, of equal ones the last;
// NULL: that is not wanted.
tri_value tri_cummax(tri_graph *graph, tri_value x, int axis, tri_value *index);
// The smallest element up to each one, with *index as for tri_cummax.
tri_value tri_cummin(tri_graph *graph, tri_value x, int axis, tri_value *index);
// The logarithm of the sum of exp(x) of all elements up to each one, as torch.logcumsumexp.
tri_value tri_logcumsumexp(tri_graph *graph, tri_value x, int axis);

// The numbers 0 to count - 1, I64 [count], as torch.arange: a triangular mask of T rows is
// tri_map(g, "i, j -> j <= i", tri_unsqueeze(g, t, 1), t) with t = tri_arange(g, T). It is a
// constant of the network, so that `count` must not depend on the batch size: samples are numbered
// by tri_cumsum of ones along their axis.
tri_value tri_arange(tri_graph *graph, int64_t count);
// Windows of `size` elements along an axis, each `step` behind the one before, as Tensor.unfold:
// the axis counts the windows, and a new last axis has their elements.
tri_value tri_unfold(tri_graph *graph, tri_value x, int axis, int64_t size, int64_t step);

// The product of matrices, as torch.matmul: a [.., M, K] times b [.., K, N] is [.., M, N]. The axes
// before are broadcast. A value of one axis is a row on the left and a column on the right, and
// this axis goes. A transposed or permuted operand, such as tri_transpose(g, k, -1, -2), is read
// where it lies and not copied.
tri_value tri_matmul(tri_graph *graph, tri_value a, tri_value b);

// A loss of your own: the mean of x, whose elements are the terms that a tri_map has computed.
tri_value tri_mean_loss(tri_graph *graph, tri_value x);

// The sum over the axes of x that are listed, `count` of them; a negative axis counts from the
// last, and count 0 means all axes. keep: these axes stay, with the size 1; else they go.
tri_value tri_sum(tri_graph *graph, tri_value x, const int *axes, int count, bool keep);
// The mean over axes, which are given as for tri_sum.
tri_value tri_mean(tri_graph *graph, tri_value x, const int *axes, int count, bool keep);
// The largest element over axes, which are given as for tri_sum; equal ones share the gradient.
tri_value tri_amax(tri_graph *graph, tri_value x, const int *axes, int count, bool keep);
// The smallest element over axes, which are given as for tri_sum; equal ones share the gradient.
tri_value tri_amin(tri_graph *graph, tri_value x, const int *axes, int count, bool keep);
// The product over axes, which are given as for tri_sum.
tri_value tri_prod(tri_graph *graph, tri_value x, const int *axes, int count, bool keep);
// 1 if an element over axes, which are given as for tri_sum, is not 0, else 0; no gradient.
tri_value tri_any(tri_graph *graph, tri_value x, const int *axes, int count, bool keep);
// 1 if no element over axes, which are given as for tri_sum, is 0, else 0; no gradient.
tri_value tri_all(tri_graph *graph, tri_value x, const int *axes, int count, bool keep);
// The variance over axes, which are given as for tri_sum: the sum of the squared distances from the
// mean, divided by the number of elements less `correction` (torch.var takes 1).
tri_value tri_var(tri_graph *graph, tri_value x, const int *axes, int count, int64_t correction,
                  bool keep);
// The standard deviation, the root of tri_var; where it is 0, its gradient is 0.
tri_value tri_std(tri_graph *graph, tri_value x, const int *axes, int count, int64_t correction,
                  bool keep);
// The logarithm of the sum of exp(x) over axes, which are given as for tri_sum; exp(x) may be too
// large or too small for a number.
tri_value tri_logsumexp(tri_graph *graph, tri_value x, const int *axes, int count, bool keep);
// The Euclidean norm over axes, which are given as for tri_sum; where it is 0, its gradient is 0.
tri_value tri_norm(tri_graph *graph, tri_value x, const int *axes, int count, bool keep);
// x divided by its Euclidean norm along an axis, or by `eps` (0: 1e-12) where that is larger.
tri_value tri_normalize(tri_graph *graph, tri_value x, int axis, double eps);
// The cosine of the angle between a and b along an axis, which goes. Norms below `eps` (0: 1e-8)
// count as that.
tri_value tri_cosine_similarity(tri_graph *graph, tri_value a, tri_value b, int axis, double eps);

TRI_API_END

#endif
