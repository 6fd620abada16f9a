// Formulas of elementwise arithmetic: steps and their values, how a formula is made step by step
// and simplified at once, and how it is printed.
#include "ops/formula.h"

#include "ops/formula_math.h"

#include <string.h>

static const struct {
    const char *name;
    int arity;
} kinds[] = {
#define X(name, arity, value) {#name, arity},
    TRI_STEP_LIST(X) TRI_BIT_STEP_LIST(X)
#undef X
};

int tri_step_arity(tri_step_kind kind) { return kinds[kind].arity; }
const char *tri_step_name(tri_step_kind kind) { return kinds[kind].name; }
bool tri_step_is_of_bits(tri_step_kind kind) { return kind >= TRI_STEP_bit_and; }

#define A a
#define B b
#define C c
double tri_step_value(tri_step_kind kind, double a, double b, double c) {
    switch (kind) {
#define X(name, arity, value)                                                                      \
    case TRI_STEP_##name:                                                                          \
        return value;
        TRI_STEP_LIST(X)
#undef X
    default:
        return NAN;
    }
}
#undef A
#undef B
#undef C

static void fail(tri_formula_maker *maker, const char *error) {
    if (!maker->error) maker->error = error;
}

bool tri_formula_is_constant(const tri_formula *formula, int operand, double *value) {
    if (operand < TRI_OPERAND_CONSTANT) return false;
    *value = formula->constants[operand - TRI_OPERAND_CONSTANT];
    return true;
}

int tri_formula_constant(tri_formula_maker *maker, double value) {
    tri_formula *p = maker->formula;
    for (int i = 0; i < p->constant_count; i++)
        if (!memcmp(&p->constants[i], &value, sizeof value)) return TRI_OPERAND_CONSTANT + i;
    if (p->constant_count == TRI_FORMULA_CONSTANTS) {
        fail(maker, "it has too many different constants");
        return TRI_OPERAND_CONSTANT;
    }
    p->constants[p->constant_count] = value;
    return TRI_OPERAND_CONSTANT + p->constant_count++;
}

// Finds what a step is without computing it, such as x for x · 1; -1: nothing simpler. The constant
// that decides is `value`, operand b if `second` is set, else a; `other` is the other operand.
static int simpler(tri_step_kind kind, bool second, double value, int other) {
    bool one = value == 1, zero = value == 0;
    if (kind == TRI_STEP_add && zero) return other;
    if (kind == TRI_STEP_mul && one) return other;
    if (!second) return -1;
    if (kind == TRI_STEP_sub && zero) return other;
    if ((kind == TRI_STEP_div || kind == TRI_STEP_pow) && one) return other;
    return -1;
}

static int simplify(tri_formula_maker *maker, tri_step_kind kind, int a, int b, int c) {
    tri_formula *p = maker->formula;
    int arity = kinds[kind].arity;
    double va = 0, vb = 0, vc = 0;
    bool ca = tri_formula_is_constant(p, a, &va);
    bool cb = arity > 1 && tri_formula_is_constant(p, b, &vb);
    bool cc = arity > 2 && tri_formula_is_constant(p, c, &vc);
    if (tri_step_is_of_bits(kind)) return -1; // constants are numbers without bits
    if (ca && (cb || arity < 2) && (cc || arity < 3))
        return tri_formula_constant(maker, tri_step_value(kind, va, vb, vc));
    if (kind == TRI_STEP_select) return ca ? (va != 0 ? b : c) : b == c ? b : -1;
    if (arity != 2) return -1;
    int found = ca ? simpler(kind, false, va, b) : -1;
    if (found < 0 && cb) found = simpler(kind, true, vb, a);
    if (found >= 0) return found;
    if (kind == TRI_STEP_pow && cb && vb == 2)
        return tri_formula_step_add(maker, TRI_STEP_mul, a, a, 0);
    if (kind == TRI_STEP_pow && cb && vb == 0.5)
        return tri_formula_step_add(maker, TRI_STEP_sqrt, a, 0, 0);
    if (kind == TRI_STEP_pow && cb && vb == -1)
        return tri_formula_step_add(maker, TRI_STEP_div, tri_formula_constant(maker, 1), a, 0);
    if (kind == TRI_STEP_mul && ((ca && va == -1) || (cb && vb == -1)))
        return tri_formula_step_add(maker, TRI_STEP_neg, ca ? b : a, 0, 0);
    return -1;
}

static void swap_operands(tri_formula_step *s) {
    uint8_t a = s->a;
    s->a = s->b;
    s->b = a;
}

int tri_formula_step_add(tri_formula_maker *maker, tri_step_kind kind, int a, int b, int c) {
    tri_formula *p = maker->formula;
    if (maker->error) return a;
    int found = simplify(maker, kind, a, b, c);
    if (found >= 0) return found;
    tri_formula_step step = {.kind = (uint8_t)kind, .a = (uint8_t)a};
    if (kinds[kind].arity > 1) step.b = (uint8_t)b;
    if (kinds[kind].arity > 2) step.c = (uint8_t)c;
    // Equal sums and products get equal bytes.
    bool commutes = kind == TRI_STEP_add || kind == TRI_STEP_mul;
    if (commutes && step.a > step.b) swap_operands(&step);
    for (int i = 0; i < p->step_count; i++)
        if (!memcmp(&p->steps[i], &step, sizeof step)) return i;
    if (p->step_count == maker->most_steps) {
        fail(maker, "it has too many steps");
        return a;
    }
    p->steps[p->step_count] = step;
    return p->step_count++;
}

// A formula while it is swept.
typedef struct sweep {
    tri_formula from, *to;
    bool placed[UINT8_MAX + 1];
    uint8_t number[UINT8_MAX + 1]; // by operand of `from`, if it is placed: its number in `to`
} sweep;

static bool reads(const tri_formula_step *s, int k) { return k < kinds[s->kind].arity; }

// Orders operands by what they compute, whatever the numbers of their steps. No two steps of a
// formula compute the same, so only the first operand in which two steps differ has to be followed.
static int compare(const sweep *w, int x, int y) {
    const tri_formula *p = &w->from;
    double left, right;
    while (x != y && x < TRI_OPERAND_INPUT && y < TRI_OPERAND_INPUT) {
        const tri_formula_step *s = &p->steps[x], *t = &p->steps[y];
        if (s->kind != t->kind) return s->kind - t->kind;
        bool first = s->a != t->a, second = reads(s, 1) && s->b != t->b;
        x = first ? s->a : second ? s->b : s->c;
        y = first ? t->a : second ? t->b : t->c;
    }
    if (tri_formula_is_constant(p, x, &left) && tri_formula_is_constant(p, y, &right))
        return memcmp(&left, &right, sizeof left);
    bool inputs = x >= TRI_OPERAND_INPUT && y >= TRI_OPERAND_INPUT;
    return inputs ? w->number[x] - w->number[y] : x - y;
}

// Adds the operand to the formula, after those that it reads.
static uint8_t place(sweep *w, uint8_t operand) {
    double value;
    if (w->placed[operand]) return w->number[operand];
    w->placed[operand] = true;
    if (tri_formula_is_constant(&w->from, operand, &value)) {
        w->to->constants[w->to->constant_count] = value;
        return w->number[operand] = (uint8_t)(TRI_OPERAND_CONSTANT + w->to->constant_count++);
    }
    tri_formula_step s = w->from.steps[operand];
    s.a = place(w, s.a);
    if (reads(&s, 1)) s.b = place(w, s.b);
    if (reads(&s, 2)) s.c = place(w, s.c);
    w->to->steps[w->to->step_count] = s;
    return w->number[operand] = w->to->step_count++;
}

void tri_formula_sweep(tri_formula *p, int first, int uses[TRI_FORMULA_INPUTS]) {
    sweep w = {.from = *p, .to = p};
    bool needed[UINT8_MAX + 1] = {false};
    for (int i = 0; i < p->output_count; i++) needed[p->outputs[i]] = true;
    for (int i = p->step_count; i-- > 0;) { // a step reads earlier ones only
        tri_formula_step *s = &w.from.steps[i];
        uint8_t operands[] = {s->a, s->b, s->c};
        for (int k = 0; needed[i] && reads(s, k); k++) needed[operands[k]] = true;
    }
    *p = (tri_formula){.output_count = w.from.output_count};
    for (int k = 0; k < w.from.input_count; k++) {
        int i = (first + k) % w.from.input_count, operand = TRI_OPERAND_INPUT + i;
        if (!needed[operand]) continue;
        w.placed[operand] = true;
        w.number[operand] = (uint8_t)(TRI_OPERAND_INPUT + p->input_count);
        uses[p->input_count++] = i;
    }
    for (int i = 0; i < w.from.step_count; i++) {
        tri_formula_step *s = &w.from.steps[i];
        bool commutes = s->kind == TRI_STEP_add || s->kind == TRI_STEP_mul;
        if (needed[i] && commutes && compare(&w, s->a, s->b) > 0) swap_operands(s);
    }
    for (int i = 0; i < p->output_count; i++) p->outputs[i] = place(&w, w.from.outputs[i]);
}

static void print_operand(const tri_formula *p, int operand, FILE *out) {
    double value;
    if (tri_formula_is_constant(p, operand, &value))
        fprintf(out, "%.17g", value);
    else if (operand >= TRI_OPERAND_INPUT)
        fprintf(out, "in%d", operand - TRI_OPERAND_INPUT);
    else
        fprintf(out, "t%d", operand);
}

void tri_formula_print(const tri_formula *p, FILE *out) {
    for (int i = 0; i < p->step_count; i++) {
        const tri_formula_step *s = &p->steps[i];
        uint8_t operands[] = {s->a, s->b, s->c};
        fprintf(out, "t%d=%s(", i, kinds[s->kind].name);
        for (int k = 0; k < kinds[s->kind].arity; k++) {
            if (k) fputc(',', out);
            print_operand(p, operands[k], out);
        }
        fputs(") ", out);
    }
    fputs("->", out);
    for (int i = 0; i < p->output_count; i++) {
        fputc(' ', out);
        print_operand(p, p->outputs[i], out);
    }
}
