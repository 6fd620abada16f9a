// Tensors that are computed on the host while a graph is built: masks, positions, tables of
// rotations. They are small, and all of F64.
#include "nn/exported/build.h"
#include "tensor/half.h"

#include <math.h>
#include <stdlib.h>

exported_value exported_host_new(exported_build *b, const int64_t *sizes, int rank, int dtype,
                                 double **data) {
    exported_value v = {.kind = EXPORTED_HOST, .dtype = dtype, .host.rank = rank};
    int64_t count = 1;
    for (int i = rank - 1; i >= 0; i--) {
        v.host.sizes[i] = sizes[i];
        v.host.strides[i] = count;
        if (sizes[i] < 0 || __builtin_mul_overflow(count, sizes[i], &count) ||
            count > EXPORTED_MAX_HOST) {
            tri_graph_fail(b->graph, "a constant has more than %d elements", EXPORTED_MAX_HOST);
            return (exported_value){0};
        }
    }
    *data = TRI_NEW_ARRAY(b->graph->arena, double, count);
    v.host.data = *data;
    return v;
}

exported_value exported_host_fill(exported_build *b, const int64_t *sizes, int rank, double value,
                                  int dtype) {
    double *data;
    exported_value v = exported_host_new(b, NULL, 0, dtype, &data);
    data[0] = value;
    v.host.rank = rank;
    for (int i = 0; i < rank; i++) v.host.sizes[i] = sizes[i], v.host.strides[i] = 0;
    return v;
}

double exported_host_at(const exported_host *x, const int64_t *index) {
    int64_t at = 0;
    for (int i = 0; i < x->rank; i++) at += index[i] * x->strides[i];
    return x->data[at];
}

bool exported_host_next(const exported_host *x, int64_t *index) {
    for (int i = x->rank - 1; i >= 0; i--) {
        if (++index[i] < x->sizes[i]) return true;
        index[i] = 0;
    }
    return false;
}

static int64_t count_of(const exported_host *x) {
    int64_t count = 1;
    for (int i = 0; i < x->rank; i++) count *= x->sizes[i];
    return count;
}

exported_value exported_host_row_major(exported_build *b, const exported_value *x) {
    double *data;
    int64_t index[EXPORTED_MAX_RANK] = {0}, at = 0;
    exported_value v = exported_host_new(b, x->host.sizes, x->host.rank, x->dtype, &data);
    if (v.kind != EXPORTED_HOST || count_of(&x->host) == 0) return v;
    do data[at++] = exported_host_at(&x->host, index);
    while (exported_host_next(&x->host, index));
    return v;
}

static double element_of(tri_dtype dtype, const void *bytes, int64_t i) {
    switch (dtype) {
    case TRI_F32:
        return ((const float *)bytes)[i];
    case TRI_F64:
        return ((const double *)bytes)[i];
    case TRI_I64:
        return (double)((const int64_t *)bytes)[i];
    case TRI_I32:
        return ((const int32_t *)bytes)[i];
    case TRI_I16:
        return ((const int16_t *)bytes)[i];
    case TRI_I8:
        return ((const int8_t *)bytes)[i];
    case TRI_U8:
    case TRI_BOOL:
        return ((const uint8_t *)bytes)[i];
    case TRI_F16:
        return tri_f16_to_float(((const uint16_t *)bytes)[i]);
    case TRI_BF16:
        return tri_bf16_to_float(((const uint16_t *)bytes)[i]);
    default:
        return NAN;
    }
}

exported_value exported_host_read(exported_build *b, const tri_pt2_tensor *tensor) {
    double *data;
    const tri_safetensors_entry *e = &tensor->entry;
    exported_value v = exported_host_new(b, e->shape.dims, e->shape.rank, 0, &data);
    void *bytes = v.kind == EXPORTED_HOST ? malloc((size_t)e->size_bytes + 1) : NULL;
    if (bytes && tri_pt2_read(&b->network->file, tensor, bytes) == TRI_OK)
        for (int64_t i = 0, count = tri_shape_count(&e->shape); i < count; i++)
            data[i] = element_of(e->dtype, bytes, i);
    else
        tri_graph_fail(b->graph, "%s", bytes ? tri_error_message() : "no memory for a constant");
    free(bytes);
    return v;
}

// The steps that only integers have.
static double bits_of(tri_step_kind kind, double a, double b) {
    int64_t A = (int64_t)a, B = (int64_t)b, shifted = B & ~(int64_t)63;
    switch (kind) {
    case TRI_STEP_bit_and:
        return (double)(A & B);
    case TRI_STEP_bit_or:
        return (double)(A | B);
    case TRI_STEP_bit_xor:
        return (double)(A ^ B);
    case TRI_STEP_shift_left:
        return shifted ? 0 : (double)(int64_t)((uint64_t)A << B);
    case TRI_STEP_shift_right:
        return (double)(A >> (shifted ? 63 : B));
    default:
        return NAN;
    }
}

// `steps` has room for the result of each step.
static double compute(const tri_formula *f, const double *inputs, double *steps) {
#define OPERAND(o)                                                                                 \
    ((o) < TRI_OPERAND_INPUT      ? steps[o]                                                       \
     : (o) < TRI_OPERAND_CONSTANT ? inputs[(o)-TRI_OPERAND_INPUT]                                  \
                                  : f->constants[(o)-TRI_OPERAND_CONSTANT])
    for (int i = 0; i < f->step_count; i++) {
        const tri_formula_step *s = &f->steps[i];
        int arity = tri_step_arity(s->kind);
        double a = OPERAND(s->a), b = arity > 1 ? OPERAND(s->b) : 0,
               c = arity > 2 ? OPERAND(s->c) : 0;
        steps[i] = tri_step_is_of_bits(s->kind) ? bits_of(s->kind, a, b)
                                                : tri_step_value(s->kind, a, b, c);
    }
    return OPERAND(f->outputs[0]);
#undef OPERAND
}

// Rounds as the type would.
static double as_type(double value, int dtype) {
    bool fits = value > -0x1p63 && value < 0x1p63;
    int64_t whole = fits ? (int64_t)value : 0;
    switch (dtype) {
    case TRI_PT2_BOOLEAN:
        return value != 0;
    case TRI_PT2_BYTE:
        return (uint8_t)whole;
    case TRI_PT2_CHAR:
        return (int8_t)whole;
    case TRI_PT2_SHORT:
        return (int16_t)whole;
    case TRI_PT2_INT32:
        return (int32_t)whole;
    case TRI_PT2_LONG:
        return trunc(value);
    case TRI_PT2_DOUBLE:
        return value;
    default:
        return (float)value;
    }
}

exported_value exported_host_map(exported_build *b, const tri_formula *formula,
                                 const exported_value *in, int count, int dtype) {
    exported_host read[TRI_FORMULA_INPUTS], all = {0};
    int64_t index[EXPORTED_MAX_RANK] = {0}, at = 0;
    for (int k = 0; k < count; k++)
        if (in[k].kind == EXPORTED_HOST && in[k].host.rank > all.rank) all.rank = in[k].host.rank;
    for (int i = 0; i < all.rank; i++) all.sizes[i] = 1;
    for (int k = 0; k < count; k++) {
        read[k] = (exported_host){.rank = all.rank, .data = &in[k].real};
        if (in[k].kind != EXPORTED_HOST) continue;
        const exported_host *x = &in[k].host;
        read[k].data = x->data;
        for (int i = 0; i < x->rank; i++) {
            int axis = all.rank - x->rank + i;
            read[k].strides[axis] = x->sizes[i] == 1 ? 0 : x->strides[i];
            if (x->sizes[i] == 1 || x->sizes[i] == all.sizes[axis]) continue;
            if (all.sizes[axis] != 1) {
                tri_graph_fail(b->graph, "constants of other sizes cannot be broadcast");
                return (exported_value){0};
            }
            all.sizes[axis] = x->sizes[i];
        }
    }
    // An axis along which nothing differs is not stored, so that the batch is no part of constants.
    int64_t stored[EXPORTED_MAX_RANK];
    for (int i = 0; i < all.rank; i++) {
        stored[i] = 1;
        for (int k = 0; k < count; k++)
            if (read[k].strides[i]) stored[i] = all.sizes[i];
    }
    double *data, inputs[TRI_FORMULA_INPUTS], steps[TRI_FORMULA_STEPS] = {0};
    exported_value v = exported_host_new(b, stored, all.rank, dtype, &data);
    if (v.kind != EXPORTED_HOST || count_of(&v.host) == 0) return v;
    do {
        for (int k = 0; k < count; k++) inputs[k] = exported_host_at(&read[k], index);
        data[at++] = as_type(compute(formula, inputs, steps), dtype);
    } while (exported_host_next(&v.host, index));
    for (int k = 0; k < count; k++) v.is_sized = v.is_sized || in[k].is_sized;
    for (int i = 0; i < all.rank; i++) {
        if (stored[i] != all.sizes[i] || stored[i] == 1) v.host.strides[i] = 0;
        v.host.sizes[i] = all.sizes[i];
    }
    return v;
}
