// Functions of elements that are no plain row of TRI_FUNCTION_LIST: those of several tensors, and
// those whose arguments have other names or defaults there.
#include "nn/exported/build.h"

#include <math.h>
#include <string.h>
#include <trireme/nn.h>

// Computes `formula` of the first `count` arguments.
static void map(exported_call *c, const char *formula, const double *parameters, int count) {
    exported_value in[TRI_FORMULA_INPUTS];
    for (int k = 0; k < count; k++) in[k] = exported_operand(c, k);
    exported_give(
        c, exported_map_text(c->build, formula, parameters, in, count, exported_result_type(c, 0)));
}

static void add(exported_call *c) {
    double alpha = exported_real(c, 2);
    exported_value a = exported_operand(c, 0), b = exported_operand(c, 1);
    tri_graph *g = c->build->graph;
    if (alpha != 1) {
        map(c, "a, b, alpha = 1 -> a + alpha * b", &alpha, 2);
    } else if (a.kind == EXPORTED_GRAPH && b.kind == EXPORTED_GRAPH && a.dtype == b.dtype &&
               a.dtype != TRI_PT2_BOOLEAN) {
        exported_give_graph(c, tri_add(g, a.graph, b.graph));
    } else {
        map(c, "a, b -> a + b", NULL, 2);
    }
}

static bool is_loss(exported_call *c, const exported_value *v) {
    return v->kind == EXPORTED_GRAPH && tri_value_is_loss(c->build->graph, v->graph);
}

static void sub(exported_call *c) {
    double alpha = exported_real(c, 2);
    exported_value a = exported_operand(c, 0), b = exported_operand(c, 1);
    if (is_loss(c, &a) && is_loss(c, &b)) {
        tri_graph *g = c->build->graph;
        exported_give_graph(c, tri_add(g, a.graph, tri_weighted(g, b.graph, -alpha)));
        return;
    }
    map(c, alpha == 1 ? "a, b -> a - b" : "a, b, alpha = 1 -> a - alpha * b",
        alpha == 1 ? NULL : &alpha, 2);
}

static void rsub(exported_call *c) {
    double alpha = exported_real(c, 2);
    map(c, "a, b, alpha = 1 -> b - alpha * a", &alpha, 2);
}

static void mul(exported_call *c) {
    exported_value a = exported_operand(c, 0), b = exported_operand(c, 1);
    tri_graph *g = c->build->graph;
    // A loss times a number.
    for (int k = 0; k < 2; k++) {
        const exported_value *loss = k ? &b : &a, *factor = k ? &a : &b;
        if (loss->kind != EXPORTED_GRAPH || !tri_value_is_loss(g, loss->graph)) continue;
        if (factor->kind == EXPORTED_NUMBER)
            exported_give_graph(c, tri_weighted(g, loss->graph, factor->real));
        else
            exported_fail(c, "a loss can be multiplied by a number only");
        return;
    }
    map(c, "a, b -> a * b", NULL, 2);
}

static void div_by(exported_call *c) {
    const char *mode = exported_text(c, 2);
    exported_value a = exported_operand(c, 0), b = exported_operand(c, 1);
    if (is_loss(c, &a) && b.kind == EXPORTED_NUMBER && !*mode) {
        exported_give_graph(c, tri_weighted(c->build->graph, a.graph, 1 / b.real));
        return;
    }
    if (!strcmp(mode, "floor"))
        map(c, "a, b -> a // b", NULL, 2);
    else if (!strcmp(mode, "trunc"))
        map(c, "a, b, q = a / b -> q < 0 ? ceil(q) : floor(q)", NULL, 2);
    else
        map(c, "a, b -> a / b", NULL, 2);
}

static void raise_to(exported_call *c) {
    static const struct {
        double exponent;
        const char *formula;
    } rows[] = {{1, "x"},         {2, "x * x"},       {3, "x * x * x"},
                {0.5, "sqrt(x)"}, {-0.5, "rsqrt(x)"}, {-1, "1 / x"}};
    exported_value exponent = exported_operand(c, 1);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (exponent.kind == EXPORTED_NUMBER && exponent.real == rows[i].exponent) {
            map(c, rows[i].formula, NULL, 1);
            return;
        }
    map(c, "a, b -> a ^ b", NULL, 2);
}

// Either bound may be missing; each may be a tensor. As PyTorch has it since 2.15: at a number the
// gradient is 0; at a tensor each gets half of it, and between two that are equal all is x's.
static void clamp(exported_call *c) {
    static const char *const texts[][3] = {
        {"x, a -> max(x, a)", "x, b -> min(x, b)",
         "x, a, b -> a > b ? b : a == b ? (x < a ? a : x > b ? b : x) : min(max(x, a), b)"},
        {"x, a -> x <= a ? a : x", "x, b -> x >= b ? b : x",
         "x, a, b -> x >= b ? b : x <= a ? min(a, b) : x"}};
    exported_value in[] = {exported_operand(c, 0), exported_operand(c, 1), exported_operand(c, 2)};
    bool low = in[1].kind != EXPORTED_NOTHING, high = in[2].kind != EXPORTED_NOTHING,
         are_numbers =
             (!low || in[1].kind == EXPORTED_NUMBER) && (!high || in[2].kind == EXPORTED_NUMBER);
    if (!low) in[1] = in[2];
    exported_give(c, exported_map_text(c->build, texts[are_numbers][high + (low && high)], NULL, in,
                                       low && high ? 3 : 2, exported_result_type(c, 0)));
}

static void gelu(exported_call *c) {
    map(c,
        strcmp(exported_text(c, 1), "tanh") ? "x * normal_cdf(x)"
                                            : "x * sigmoid(x * (1.595769121605730712 + "
                                              "0.0713548162726002488 * (x * x)))",
        NULL, 1);
}

// The first half along an axis times the sigmoid of the second.
static void glu(exported_call *c) {
    exported_build *b = c->build;
    exported_value x = exported_operand(c, 0);
    int axis = exported_axis_of(c, 1);
    int64_t size = exported_size(b, &x, axis);
    if (size % 2) exported_fail(c, "an axis of %lld elements has no halves", (long long)size);
    exported_value halves[] = {exported_slice(b, x, axis, 0, size / 2, 1),
                               exported_slice(b, x, axis, size / 2, size, 1)};
    exported_give(c, exported_map_text(b, "a, b -> a * sigmoid(b)", NULL, halves, 2, x.dtype));
}

// 1 at the place of each number along a new last axis.
static void one_hot(exported_call *c) {
    exported_build *b = c->build;
    exported_value ids = exported_operand(c, 0);
    int64_t classes = exported_int(c, 1), sizes[EXPORTED_MAX_RANK + 1];
    int rank = exported_rank(b, &ids);
    double *data;
    if (classes < 1) {
        exported_fail(c, "one_hot has to be given its number of classes: one_hot(ids, 10)");
        return;
    }
    for (int i = 0; i <= rank; i++) sizes[i] = i < rank ? exported_size(b, &ids, i) : 1;
    exported_value in[] = {exported_reshape(b, ids, sizes, rank + 1),
                           exported_host_new(b, &classes, 1, TRI_PT2_LONG, &data)};
    for (int64_t i = 0; in[1].kind == EXPORTED_HOST && i < classes; i++) data[i] = (double)i;
    in[1].name = tri_name(b->graph, "classes.%lld", (long long)classes);
    exported_give(c, exported_map_text(b, "a, b -> a == b", NULL, in, 2, TRI_PT2_LONG));
}

// Of masks the logical operation, of integers that of bits.
static void by_type(exported_call *c, const char *logical, const char *bits, int count) {
    map(c, exported_result_type(c, 0) == TRI_PT2_BOOLEAN ? logical : bits, NULL, count);
}

static void bit_and(exported_call *c) { by_type(c, "a, b -> a && b", "a, b -> a & b", 2); }
static void bit_or(exported_call *c) { by_type(c, "a, b -> a || b", "a, b -> a | b", 2); }
static void bit_xor(exported_call *c) {
    by_type(c, "a, b -> !a != !b", "a, b -> bit_xor(a, b)", 2);
}
static void bit_not(exported_call *c) { by_type(c, "!x", "~x", 1); }

// One slope for each channel, of axis 1, or one for all.
static void prelu(exported_call *c) {
    exported_build *b = c->build;
    exported_value in[] = {exported_operand(c, 0), exported_operand(c, 1)};
    int rank = exported_rank(b, &in[0]);
    int64_t sizes[EXPORTED_MAX_RANK] = {0};
    for (int i = 1; i < rank; i++) sizes[i - 1] = i == 1 ? exported_count(b, &in[1]) : 1;
    if (rank > 1) in[1] = exported_reshape(b, in[1], sizes, rank - 1);
    exported_give(c, exported_map_text(b, "x, w -> x > 0 ? x : w * x", NULL, in, 2,
                                       exported_result_type(c, 0)));
}

static void nan_to_num(exported_call *c) {
    double values[] = {0, 3.40282346638528859812e38, -3.40282346638528859812e38};
    for (int k = 0; k < 3; k++)
        if (!exported_is_none(c, k + 1)) values[k] = exported_real(c, k + 1);
    map(c,
        "x, n = 0, p = 1, m = -1 -> x != x ? n : x > 3.40282346638528859812e38 ? p : "
        "x < -3.40282346638528859812e38 ? m : x",
        values, 1);
}

const exported_row exported_function_rows[] = {
    ROW("aten.add", "self other alpha=1", add),
    ROW("aten.sub", "self other alpha=1", sub),
    ROW("aten.rsub", "self other alpha=1", rsub),
    ROW("aten.mul", "self other", mul),
    ROW("aten.div", "self other rounding_mode=None", div_by),
    FORMULA("aten.floor_divide", "self other", "a, b -> a // b"),
    FORMULA("aten.remainder", "self other", "a, b -> a % b"),
    FORMULA("aten.fmod", "self other", "a, b -> fmod(a, b)"),
    ROW("aten.pow", "self exponent", raise_to),
    FORMULA("aten.maximum", "self other", "a, b -> max(a, b)"),
    FORMULA("aten.minimum", "self other", "a, b -> min(a, b)"),
    FORMULA("aten.max.other", "self other", "a, b -> max(a, b)"),
    FORMULA("aten.min.other", "self other", "a, b -> min(a, b)"),
    FORMULA("aten.eq", "self other", "a, b -> a == b"),
    FORMULA("aten.ne", "self other", "a, b -> a != b"),
    FORMULA("aten.lt", "self other", "a, b -> a < b"),
    FORMULA("aten.le", "self other", "a, b -> a <= b"),
    FORMULA("aten.gt", "self other", "a, b -> a > b"),
    FORMULA("aten.ge", "self other", "a, b -> a >= b"),
    FORMULA("aten.logical_and", "self other", "a, b -> a && b"),
    FORMULA("aten.logical_or", "self other", "a, b -> a || b"),
    FORMULA("aten.logical_xor", "self other", "a, b -> !a != !b"),
    ROW("aten.__and__", "self other", bit_and),
    ROW("aten.__or__", "self other", bit_or),
    ROW("aten.__xor__", "self other", bit_xor),
    ROW("aten.bitwise_and", "self other", bit_and),
    ROW("aten.bitwise_or", "self other", bit_or),
    ROW("aten.bitwise_xor", "self other", bit_xor),
    ROW("aten.bitwise_not", "self", bit_not),
    FORMULA("aten.where", "condition self other", "c, a, b -> c ? a : b"),
    FORMULA("aten.masked_fill", "self mask value", "x, mask, value -> mask ? value : x"),
    FORMULA("aten.lerp", "self end weight", "a, b, w -> a + w * (b - a)"),
    FORMULA("aten.atan2", "self other",
            "y, x, up = y < 0 || 1 / y < 0 ? -1 : 1, right = x < 0 || 1 / x < 0 ? -1 : 1, "
            "p = up * y, q = right * x, even = p == q && (p == 0 || p - p != 0), "
            "t = even ? (p > 0 ? pi / 4 : 0) : p > q ? pi / 2 - atan(q / p) : atan(p / q) "
            "-> up * (right < 0 ? pi - t : t)"),
    FORMULA("aten.logaddexp", "self other",
            "a, b, d = a == b ? 0 : abs(a - b) -> max(a, b) + log1p(exp(-d))"),
    FORMULA("aten.addcmul", "self tensor1 tensor2 value=1", "x, a, b, v = 1 -> x + v * a * b"),
    FORMULA("aten.addcdiv", "self tensor1 tensor2 value=1", "x, a, b, v = 1 -> x + v * a / b"),
    ROW("aten.clamp", "self min=None max=None", clamp),
    ROW("aten.clamp_min", "self min max=None", clamp),
    ROW("aten.clamp_max", "self low=None max", clamp),
    ROW("aten.gelu", "self approximate='none'", gelu),
    ROW("aten.glu", "self dim=-1", glu),
    ROW("aten.one_hot", "self num_classes=-1", one_hot),
    ROW("aten.float_power", "self exponent", raise_to),
    FORMULA("aten.bitwise_left_shift", "self other", "a, b -> a << b"),
    FORMULA("aten.bitwise_right_shift", "self other", "a, b -> a >> b"),
    FORMULA("aten.__lshift__", "self other", "a, b -> a << b"),
    FORMULA("aten.__rshift__", "self other", "a, b -> a >> b"),
    FORMULA("aten.heaviside", "self values", "x, v -> x == 0 ? v : x > 0"),
    FORMULA("aten.signbit", "self", "x < 0 || (x == 0 && 1 / x < 0)"),
    FORMULA("aten.isposinf", "self", "x > 3.40282346638528859812e38"),
    FORMULA("aten.isneginf", "self", "x < -3.40282346638528859812e38"),
    FORMULA("aten.isclose", "self other rtol=1e-05 atol=1e-08",
            "a, b, rtol = 1e-5, atol = 1e-8 -> a == b || abs(a - b) <= atol + rtol * abs(b)"),
    FORMULA("aten.ldexp", "self other", "a, b -> a * 2 ^ b"),
    FORMULA("aten.logaddexp2", "self other",
            "a, b, d = a == b ? 0 : abs(a - b) -> max(a, b) + 1.44269504088896340736 * "
            "log1p(2 ^ -d)"),
    FORMULA("aten.leaky_relu", "self negative_slope=0.01",
            "x, slope = 0.01 -> leaky_relu(x, slope)"),
    FORMULA("aten.hardtanh", "self min_val=-1 max_val=1",
            "x, low = -1, high = 1 -> x >= high ? high : x <= low ? min(low, high) : x"),
    FORMULA("aten.elu", "self alpha=1 scale=1 input_scale=1",
            "x, alpha = 1, scale = 1, factor = 1 -> x > 0 ? scale * x : scale * alpha * "
            "expm1(factor * x)"),
    FORMULA("aten.celu", "self alpha=1", "x, alpha = 1 -> x > 0 ? x : alpha * expm1(x / alpha)"),
    FORMULA("aten.softplus", "self beta=1 threshold=20",
            "x, beta = 1, limit = 20 -> x * beta > limit ? x : log1p(exp(x * beta)) / beta"),
    FORMULA("aten.hardshrink", "self lambd=0.5", "x, w = 0.5 -> x >= -w && x <= w ? 0 : x"),
    FORMULA("aten.softshrink", "self lambd=0.5",
            "x, w = 0.5 -> x >= -w && x <= w ? 0 : x > 0 ? x - w : x + w"),
    FORMULA("aten.threshold", "self threshold value", "x, limit = 0, v = 0 -> x <= limit ? v : x"),
    ROW("aten.nan_to_num", "self nan=None posinf=None neginf=None", nan_to_num),
    ROW("aten.prelu", "self weight", prelu),
    // Of sizes, which are numbers.
    FORMULA("_operator.add", "a b", "a, b -> a + b"),
    FORMULA("_operator.sub", "a b", "a, b -> a - b"),
    FORMULA("_operator.mul", "a b", "a, b -> a * b"),
    FORMULA("_operator.floordiv", "a b", "a, b -> a // b"),
    FORMULA("_operator.truediv", "a b", "a, b -> a / b"),
    FORMULA("_operator.mod", "a b", "a, b -> a % b"),
    FORMULA("_operator.neg", "a", "-x"),
    FORMULA("_operator.pow", "a b", "a, b -> a ^ b"),
    FORMULA("_operator.and_", "a b", "a, b -> a && b"),
    FORMULA("_operator.or_", "a b", "a, b -> a || b"),
    FORMULA("_operator.eq", "a b", "a, b -> a == b"),
    FORMULA("_operator.ne", "a b", "a, b -> a != b"),
    FORMULA("_operator.lt", "a b", "a, b -> a < b"),
    FORMULA("_operator.le", "a b", "a, b -> a <= b"),
    FORMULA("_operator.gt", "a b", "a, b -> a > b"),
    FORMULA("_operator.ge", "a b", "a, b -> a >= b"),
    FORMULA("math.ceil", "a", "ceil(x)"),
    FORMULA("math.floor", "a", "floor(x)"),
    FORMULA("math.trunc", "a", "x < 0 ? ceil(x) : floor(x)"),
    FORMULA("math.sqrt", "a", "sqrt(x)"),
    FORMULA("torch.sym_float", "a", "x"),
    FORMULA("torch.sym_int", "a", "x < 0 ? ceil(x) : floor(x)"),
    FORMULA("torch.sym_not", "a", "!x"),
    FORMULA("torch.sym_ite", "b t f", "b, t, f -> b ? t : f"),
    FORMULA("torch.sym_max", "a b", "a, b -> max(a, b)"),
    FORMULA("torch.sym_min", "a b", "a, b -> min(a, b)"),
    FORMULA("torch.sym_sqrt", "a", "sqrt(x)"),
    {NULL, NULL, NULL, NULL, NULL, false},
};
