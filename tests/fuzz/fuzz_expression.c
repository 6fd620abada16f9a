// Reads arbitrary bytes as an expression of map. Where it is one, derives its formula, and the
// derivative once more: every operand has to be a step before, an input or a constant.
#include "ops/formula.h"

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
        status = tri_formula_derive(&f, has_gradient, wanted, &derived, uses, differs);
        f = derived;
    }
    if (status == TRI_OK) check(&f);
    free(text);
    return 0;
}
