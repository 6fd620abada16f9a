// The derivative of a formula, as a formula: by reverse accumulation. It walks over the steps from
// the last to the first, and adds to each operand what the step's gradient contributes to it.
#include "ops/formula.h"

#include <string.h>

enum { NONE = -1 }; // a gradient that is 0 everywhere: the operand does not matter

typedef struct derivation {
    const tri_formula *f;
    tri_formula_maker maker;
    int gradients[TRI_OPERAND_CONSTANT]; // by operand of f: the operand of its gradient so far
} derivation;

static int step(derivation *d, tri_step_kind kind, int a, int b) {
    return tri_formula_step_add(&d->maker, kind, a, b, 0);
}

static int constant(derivation *d, double value) { return tri_formula_constant(&d->maker, value); }

static int choose(derivation *d, int condition, int yes, int no) {
    return tri_formula_step_add(&d->maker, TRI_STEP_select, condition, yes, no);
}

// gradient · factor. If the gradient is 0 on one side of a condition, the product is taken inside
// the condition, because the factor may be infinite there, and 0 · infinity is NaN: as in x > 0 ? x
// : exp(x) - 1.
static int times(derivation *d, int gradient, int factor) {
    const tri_formula *p = d->maker.formula;
    double value;
    if (gradient < TRI_OPERAND_INPUT && gradient < p->step_count &&
        p->steps[gradient].kind == TRI_STEP_select) {
        tri_formula_step s = p->steps[gradient];
        if (tri_formula_is_constant(p, s.c, &value) && value == 0)
            return choose(d, s.a, times(d, s.b, factor), s.c);
        if (tri_formula_is_constant(p, s.b, &value) && value == 0)
            return choose(d, s.a, s.b, times(d, s.c, factor));
    }
    return step(d, TRI_STEP_mul, gradient, factor);
}

static void add_to(derivation *d, int operand, int gradient) {
    if (operand >= TRI_OPERAND_CONSTANT) return;
    int *sum = &d->gradients[operand];
    *sum = *sum == NONE ? gradient : step(d, TRI_STEP_add, *sum, gradient);
}

// min and max: the gradient goes to the operand that was taken, and half to each if they are equal,
// as in PyTorch.
static void add_extreme(derivation *d, const tri_formula_step *s, int g) {
    int zero = constant(d, 0), half = step(d, TRI_STEP_mul, g, constant(d, 0.5));
    int same = choose(d, step(d, TRI_STEP_equal, s->a, s->b), half, g);
    int a_below = step(d, TRI_STEP_less, s->a, s->b), b_below = step(d, TRI_STEP_less, s->b, s->a);
    bool is_max = s->kind == TRI_STEP_max;
    add_to(d, s->a, choose(d, is_max ? a_below : b_below, zero, same));
    add_to(d, s->b, choose(d, is_max ? b_below : a_below, zero, same));
}

// a^b: b · a^(b - 1) for a, which is 0 where b is 0; and a^b · log(a) for b, which is 0 where a is
// 0 and b is not negative; as in PyTorch.
static void add_power(derivation *d, const tri_formula_step *s, int y, int g) {
    double exponent;
    int zero = constant(d, 0);
    if (tri_formula_is_constant(d->maker.formula, s->b, &exponent) && exponent == 0) return;
    if (s->a < TRI_OPERAND_CONSTANT) {
        int less = step(d, TRI_STEP_sub, s->b, constant(d, 1));
        int slope = step(d, TRI_STEP_mul, s->b, step(d, TRI_STEP_pow, s->a, less));
        add_to(d, s->a, times(d, g, choose(d, step(d, TRI_STEP_equal, s->b, zero), zero, slope)));
    }
    if (s->b < TRI_OPERAND_CONSTANT) {
        int slope = step(d, TRI_STEP_mul, y, step(d, TRI_STEP_log, s->a, 0));
        int at_zero = choose(d, step(d, TRI_STEP_less_equal, zero, s->b), zero, slope);
        slope = choose(d, step(d, TRI_STEP_equal, s->a, zero), at_zero, slope);
        add_to(d, s->b, times(d, g, slope));
    }
}

// a // b and a % b, or fmod(a, b), make a = b · quotient + remainder, and the quotient is constant
// between its steps.
static void add_remainder(derivation *d, const tri_formula_step *s, int y, int g) {
    add_to(d, s->a, g);
    if (s->b >= TRI_OPERAND_CONSTANT) return;
    int exact = step(d, TRI_STEP_div, step(d, TRI_STEP_sub, s->a, y), s->b);
    add_to(d, s->b, times(d, g, step(d, TRI_STEP_neg, step(d, TRI_STEP_round, exact, 0), 0)));
}

// The value y has the sign of a unless the slope b is negative.
static void add_leaky(derivation *d, const tri_formula_step *s, int y, int g) {
    double slope;
    int zero = constant(d, 0);
    bool is_known = tri_formula_is_constant(d->maker.formula, s->b, &slope) && slope >= 0;
    int below = step(d, TRI_STEP_less_equal, is_known ? y : s->a, zero);
    add_to(d, s->a, times(d, g, choose(d, below, s->b, constant(d, 1))));
    add_to(d, s->b, choose(d, below, times(d, g, s->a), zero));
}

// The factor of the gradient of a function of one operand x with the value y; NONE: the function is
// constant between its steps.
static int slope_of(derivation *d, tri_step_kind kind, int x, int y) {
    int one = constant(d, 1);
    switch (kind) {
    case TRI_STEP_abs:
        return step(d, TRI_STEP_sign, x, 0);
    case TRI_STEP_sqrt:
        return step(d, TRI_STEP_div, constant(d, 0.5), y);
    case TRI_STEP_rsqrt:
        return step(d, TRI_STEP_mul, constant(d, -0.5),
                    step(d, TRI_STEP_mul, y, step(d, TRI_STEP_mul, y, y)));
    case TRI_STEP_exp:
        return y;
    case TRI_STEP_expm1:
        return step(d, TRI_STEP_add, y, one);
    case TRI_STEP_log:
        return step(d, TRI_STEP_div, one, x);
    case TRI_STEP_log1p:
        return step(d, TRI_STEP_div, one, step(d, TRI_STEP_add, x, one));
    case TRI_STEP_sin:
        return step(d, TRI_STEP_cos, x, 0);
    case TRI_STEP_cos:
        return step(d, TRI_STEP_neg, step(d, TRI_STEP_sin, x, 0), 0);
    case TRI_STEP_atan:
        return step(d, TRI_STEP_div, one, step(d, TRI_STEP_add, step(d, TRI_STEP_mul, x, x), one));
    case TRI_STEP_erf: // 2 / sqrt(pi) · exp(-x²)
        return step(
            d, TRI_STEP_mul, constant(d, 1.12837916709551257390),
            step(d, TRI_STEP_exp, step(d, TRI_STEP_neg, step(d, TRI_STEP_mul, x, x), 0), 0));
    case TRI_STEP_erfinv: // sqrt(pi) / 2 · exp(y²)
        return step(d, TRI_STEP_mul, constant(d, 0.88622692545275801365),
                    step(d, TRI_STEP_exp, step(d, TRI_STEP_mul, y, y), 0));
    case TRI_STEP_lgamma:
        return step(d, TRI_STEP_digamma, x, 0);
    case TRI_STEP_digamma:
        return step(d, TRI_STEP_trigamma, x, 0);
    case TRI_STEP_trigamma:
        d->maker.error = "trigamma has none";
        return NONE;
    case TRI_STEP_normal_cdf: // 1 / sqrt(2 pi) · exp(-x² / 2)
        return step(d, TRI_STEP_mul, constant(d, 0.398942280401432678),
                    step(d, TRI_STEP_exp,
                         step(d, TRI_STEP_mul, constant(d, -0.5), step(d, TRI_STEP_mul, x, x)), 0));
    case TRI_STEP_tanh:
        return step(d, TRI_STEP_sub, one, step(d, TRI_STEP_mul, y, y));
    case TRI_STEP_sigmoid:
        return step(d, TRI_STEP_mul, y, step(d, TRI_STEP_sub, one, y));
    default:
        return NONE;
    }
}

static void derive_step(derivation *d, int y) {
    const tri_formula_step *s = &d->f->steps[y];
    int g = d->gradients[y], zero = constant(d, 0), slope;
    if (g == NONE) return;
    switch ((tri_step_kind)s->kind) {
    case TRI_STEP_add:
        add_to(d, s->a, g);
        add_to(d, s->b, g);
        break;
    case TRI_STEP_sub:
        add_to(d, s->a, g);
        add_to(d, s->b, times(d, g, constant(d, -1)));
        break;
    case TRI_STEP_mul:
        add_to(d, s->a, times(d, g, s->b));
        add_to(d, s->b, times(d, g, s->a));
        break;
    case TRI_STEP_div: {
        int part = times(d, g, step(d, TRI_STEP_div, constant(d, 1), s->b));
        add_to(d, s->a, part);
        if (s->b < TRI_OPERAND_CONSTANT)
            add_to(d, s->b, times(d, part, step(d, TRI_STEP_neg, y, 0)));
        break;
    }
    case TRI_STEP_min:
    case TRI_STEP_max:
        add_extreme(d, s, g);
        break;
    case TRI_STEP_pow:
        add_power(d, s, y, g);
        break;
    case TRI_STEP_remainder:
    case TRI_STEP_fmod:
        add_remainder(d, s, y, g);
        break;
    case TRI_STEP_neg:
        add_to(d, s->a, times(d, g, constant(d, -1)));
        break;
    case TRI_STEP_relu:
        add_to(d, s->a, choose(d, step(d, TRI_STEP_less_equal, y, zero), zero, g));
        break;
    case TRI_STEP_leaky_relu:
        add_leaky(d, s, y, g);
        break;
    case TRI_STEP_select:
        add_to(d, s->b, choose(d, s->a, g, zero));
        add_to(d, s->c, choose(d, s->a, zero, g));
        break;
    default:
        slope = slope_of(d, (tri_step_kind)s->kind, s->a, y);
        if (slope != NONE) add_to(d, s->a, times(d, g, slope));
    }
}

// Has the steps of the derivative read the outputs of `f` as inputs, instead of computing them
// again.
static void read_outputs(const tri_formula *f, tri_formula *out) {
    for (int k = 0; k < f->output_count; k++) {
        uint8_t computed = f->outputs[k];
        uint8_t given = (uint8_t)(TRI_OPERAND_INPUT + f->input_count + k);
        if (computed >= TRI_OPERAND_INPUT) continue;
        for (int i = f->step_count; i < out->step_count; i++) {
            tri_formula_step *s = &out->steps[i];
            uint8_t *operands[] = {&s->a, &s->b, &s->c};
            for (int j = 0; j < tri_step_arity((tri_step_kind)s->kind); j++)
                if (*operands[j] == computed) *operands[j] = given;
        }
    }
}

// Makes the derivative with the given number of outputs of `f` as inputs: all or none.
static tri_status derive(const tri_formula *f, const bool *has_gradient, const bool *wanted,
                         int given, tri_formula *out, int uses[TRI_FORMULA_INPUTS], bool *differs) {
    derivation d = {.f = f, .maker = {.formula = out, .most_steps = TRI_FORMULA_STEPS}};
    *out = *f; // the derivative begins with the steps of f itself
    out->output_count = 0;
    out->input_count = (uint8_t)(f->input_count + given);
    for (int i = 0; i < TRI_OPERAND_CONSTANT; i++) d.gradients[i] = NONE;
    // The gradient of a single output is a factor of everything: it is multiplied at the end, once.
    int factor = f->output_count == 1 ? constant(&d, 1) : NONE;
    for (int k = 0; k < f->output_count; k++) {
        if (!has_gradient[k]) continue;
        bool is_full = out->input_count >= TRI_FORMULA_INPUTS;
        if (is_full && factor == NONE)
            return TRI_FAIL(TRI_BAD_INPUT, "map: its derivative has too many inputs");
        if (is_full) {
            add_to(&d, f->outputs[k], factor);
            continue;
        }
        int gradient = TRI_OPERAND_INPUT + out->input_count++;
        add_to(&d, f->outputs[k], factor == NONE ? gradient : factor);
        if (factor != NONE) factor = gradient;
    }
    for (int y = f->step_count; y-- > 0;) derive_step(&d, y);
    for (int k = 0; k < f->input_count; k++) {
        int gradient = d.gradients[TRI_OPERAND_INPUT + k];
        differs[k] = wanted[k] && gradient != NONE;
        if (differs[k] && factor != NONE) gradient = times(&d, gradient, factor);
        if (differs[k]) out->outputs[out->output_count++] = (uint8_t)gradient;
    }
    if (d.maker.error) return TRI_FAIL(TRI_BAD_INPUT, "map: of the derivative: %s", d.maker.error);
    if (given) read_outputs(f, out);
    // The first output may be written over the first input. A single one is written over the
    // gradient, which nobody else reads. Of several, the first is written over the input of `f`
    // that it belongs to: that was kept for this, and the memory of the gradient is free again.
    tri_formula_sweep(out, out->output_count > 1 ? 0 : f->input_count + given, uses);
    for (int i = 0; i < out->input_count; i++)
        if (uses[i] >= f->input_count && !given) uses[i] += f->output_count;
    return TRI_OK;
}

// How many of the values below number `end` the derivative reads.
static int count_read(const tri_formula *derivative, const int *uses, int end) {
    int count = 0;
    for (int i = 0; i < derivative->input_count; i++) count += uses[i] < end;
    return count;
}

tri_status tri_formula_derive(const tri_formula *f, const bool *has_gradient, const bool *wanted,
                              tri_formula *out, int uses[TRI_FORMULA_INPUTS], bool *differs) {
    tri_formula other;
    int other_uses[TRI_FORMULA_INPUTS], gradients = 0;
    TRI_TRY(derive(f, has_gradient, wanted, 0, out, uses, differs));
    for (int k = 0; k < f->output_count; k++) gradients += has_gradient[k];
    if (f->input_count + f->output_count + gradients > TRI_FORMULA_INPUTS) return TRI_OK;
    TRI_TRY(derive(f, has_gradient, wanted, f->output_count, &other, other_uses, differs));
    int values = f->input_count + f->output_count, before = count_read(out, uses, values);
    int fewer = before - count_read(&other, other_uses, values);
    if (fewer < 0 || (fewer == 0 && count_read(&other, other_uses, f->input_count) > 0))
        return TRI_OK;
    *out = other;
    memcpy(uses, other_uses, sizeof other_uses);
    return TRI_OK;
}
