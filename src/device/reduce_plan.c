// Plans how a tensor is reduced.
#include "device/reduce_plan.h"

enum { REDUCE_PART = 1024, REDUCE_PARTS = 64 };

bool tri_reduce_plan_make(const tri_shape *x, int64_t axes, int64_t tile, bool may_repeat,
                          tri_reduce_plan *out) {
    int stage = 0; // 0: in the outer axes, 1: in the reduced ones, 2: in the inner ones
    *out = (tri_reduce_plan){.repeats = 1, .outer = 1, .reduced = 1, .inner = 1};
    int64_t *sizes[] = {&out->outer, &out->reduced, &out->inner};
    for (int i = 0; i < x->rank; i++) {
        bool is_reduced = axes >> i & 1;
        if (x->dims[i] == 1) continue;
        if (is_reduced && stage == 2) { // what was reduced so far is repeated
            if (!may_repeat || out->outer != 1 || out->repeats != 1) return false;
            *out = (tri_reduce_plan){
                .repeats = out->reduced, .outer = out->inner, .reduced = 1, .inner = 1};
        }
        stage = is_reduced ? 1 : stage == 1 ? 2 : stage;
        *sizes[stage] *= x->dims[i];
    }
    int64_t items = out->repeats * out->outer * ((out->inner + tile - 1) / tile);
    int64_t parts = (out->reduced + REDUCE_PART - 1) / REDUCE_PART;
    if (parts > REDUCE_PARTS) parts = REDUCE_PARTS;
    out->parts = items >= REDUCE_PARTS || parts < 1 ? 1 : parts;
    out->part = (out->reduced + out->parts - 1) / out->parts;
    return out->repeats > 0 && out->outer > 0 && out->reduced > 0 && out->inner > 0;
}
