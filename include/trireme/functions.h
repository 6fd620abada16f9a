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
    X(add_scalar, (tri_value x, double number), (x), (number, ), \
      "x, number = 0 -> x + number", "x + number.") \
    X(mul_scalar, (tri_value x, double factor), (x), (factor, ), \
      "x, factor = 1 -> x * factor", "x * factor.") \
    X(pow_scalar, (tri_value x, double exponent), (x), (exponent, ), \
      "x, exponent = 2 -> x ^ exponent", "x to a power.") \
    X(pow, (tri_value a, tri_value b), (a, b), (), \
      "a, b -> a ^ b", "a to the power b.") \
    X(clamp, (tri_value x, double low, double high), (x), (low, high, ), \
      "x, low = 0, high = 1 -> x < low ? low : x > high ? high : x", \
      "x, but at least `low` and at most `high`.") \
    X(neg, (tri_value x), (x), (), "-x", "-x.") \
    X(abs, (tri_value x), (x), (), "abs(x)", "The absolute value.") \
    X(sign, (tri_value x), (x), (), "sign(x)", "-1, 0 or 1.") \
    X(floor, (tri_value x), (x), (), "floor(x)", "The next whole number below; no gradient.") \
    X(ceil, (tri_value x), (x), (), "ceil(x)", "The next whole number above; no gradient.") \
    X(round, (tri_value x), (x), (), "round(x)", \
      "The nearest whole number, of two the even one; no gradient.") \
    X(square, (tri_value x), (x), (), "x * x", "x squared.") \
    X(sqrt, (tri_value x), (x), (), "sqrt(x)", "The square root.") \
    X(rsqrt, (tri_value x), (x), (), "rsqrt(x)", "1 / the square root.") \
    X(reciprocal, (tri_value x), (x), (), "1 / x", "1 / x.") \
    X(exp, (tri_value x), (x), (), "exp(x)", "e to the power x.") \
    X(expm1, (tri_value x), (x), (), "expm1(x)", "exp(x) - 1, exact near 0.") \
    X(log, (tri_value x), (x), (), "log(x)", "The natural logarithm.") \
    X(log1p, (tri_value x), (x), (), "log1p(x)", "log(1 + x), exact near 0.") \
    X(sin, (tri_value x), (x), (), "sin(x)", "The sine.") \
    X(cos, (tri_value x), (x), (), "cos(x)", "The cosine.") \
    X(erf, (tri_value x), (x), (), "erf(x)", "The error function.") \
    X(relu6, (tri_value x), (x), (), "x <= 0 ? 0 : x >= 6 ? 6 : x", "ReLU, at most 6.") \
    X(silu, (tri_value x), (x), (), "x * sigmoid(x)", "SiLU, also called swish.") \
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
      "x, low = -1, high = 1 -> x <= low ? low : x >= high ? high : x", \
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
// clang-format on

// Computes an expression on each element of `count` values, at most 7. Before an arrow stand the
// names of the values in their order: "gate, up -> gate / (1 + exp(-gate)) * up"; one value needs
// no arrow: "x * sigmoid(1.702 * x)". An expression has numbers, + - * / ^ (power), comparisons,
// && || !, c ? a : b, pi, and abs, ceil, cos, erf, exp, expm1, floor, log, log1p, max, min, pow,
// round, rsqrt, sigmoid, sign, sin, sqrt, tanh. Comparisons yield 1 or 0. The gradient is found
// from the expression. Fails the graph with the place of a mistake.
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

// The sum over the axes of x that are listed, `count` of them; a negative axis counts from the
// last, and count 0 means all axes. keep: these axes stay, with the size 1; else they go.
tri_value tri_sum(tri_graph *graph, tri_value x, const int *axes, int count, bool keep);
// The mean over axes, which are given as for tri_sum.
tri_value tri_mean(tri_graph *graph, tri_value x, const int *axes, int count, bool keep);
// The largest element over axes, which are given as for tri_sum; equal ones share the gradient.
tri_value tri_amax(tri_graph *graph, tri_value x, const int *axes, int count, bool keep);
// The smallest element over axes, which are given as for tri_sum; equal ones share the gradient.
tri_value tri_amin(tri_graph *graph, tri_value x, const int *axes, int count, bool keep);

TRI_API_END

#endif
