// Reads arbitrary bytes as an expression of map. Where it is one, derives its formula, and the
// derivative once more: every operand has to be a step before, an input or a constant. Steps that
// integers have are computed of the largest, the smallest and small integers.
#include "ops/formula_integer.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const tri_formula *f) {
    TRI_ASSERT(f->step_count <= TRI_FORMULA_STEPS && f->input_count <= TRI_FORMULA_INPUTS);
    for (int i = 0; i < f->step_count + f->output_count; i++) {
        const tri_formula_step *s = &f->steps[i < f->step_count ? i : 0];
        uint8_t operands[] = {s->a, s->b, s->c};
        bool is_output = i >= f->step_count;
        if (is_output) operands[0] = f->outputs[i - f->step_count];
        for (int k = 0; k < (is_output ? 1 : tri_step_arity((tri_step_kind)s->kind)); k++) {
            int at = operands[k];
            bool valid = at < TRI_OPERAND_INPUT ? at < (is_output ? f->step_count : i)
                         : at < TRI_OPERAND_CONSTANT
                             ? at - TRI_OPERAND_INPUT < f->input_count
                             : at - TRI_OPERAND_CONSTANT < f->constant_count;
            TRI_ASSERT(valid);
        }
    }
}

// Computes the steps up to the first that integers do not have.
static void compute(const tri_formula *f, size_t seed) {
    static const int64_t some[] = {INT64_MIN, INT64_MAX, -1, 0, 1, 2, 63, 64, -64};
    int64_t values[UINT8_MAX + 1] = {0};
    for (int k = 0; k < f->input_count; k++)
        values[TRI_OPERAND_INPUT + k] = some[(seed / ((size_t)k + 1)) % (sizeof some / 8)];
    for (int k = 0; k < f->constant_count; k++)
        if (f->constants[k] > -0x1p53 && f->constants[k] < 0x1p53)
            values[TRI_OPERAND_CONSTANT + k] = (int64_t)f->constants[k];
    for (int t = 0; t < f->step_count && formula_is_integer(f->steps[t].kind); t++) {
        const tri_formula_step *s = &f->steps[t];
        values[t] = formula_integer_step(s->kind, values[s->a], values[s->b], values[s->c]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1);
    tri_formula f, derived;
    int uses[TRI_FORMULA_INPUTS];
    bool has_gradient[TRI_FORMULA_OUTPUTS] = {true, true, true, true};
    bool wanted[TRI_FORMULA_INPUTS] = {true, true, true, true}, differs[TRI_FORMULA_INPUTS];
    if (!text) return 0;
    memcpy(text, data, size);
    text[size] = 0;
    tri_status status = tri_formula_parse(text, NULL, &f);
    for (int times = 0; status == TRI_OK && times < 2; times++) {
        check(&f);
        compute(&f, size);
        status = tri_formula_derive(&f, has_gradient, wanted, &derived, uses, differs);
        f = derived;
    }
    if (status == TRI_OK) check(&f);
    free(text);
    return 0;
}
