// Ops on sequences of tokens: embedding, rotary position embedding, next tokens as labels.
#include "device/ref/node.h"

#include <math.h>

REF_BODY tri_status embedding_body(const ref_node *node, const tri_kernel_args *args, bool f64) {
    const int64_t *ids = args->in[0];
    ref_array weight = ref_input(args, 1, f64);
    ref_array y = ref_output(args, 0, f64);
    int64_t rows = node->s.in[1].dims[0], width = node->s.in[1].dims[1];
    const tri_embedding_attr *a = (const void *)node->attr;
    for (int64_t i = 0, count = ref_count(&node->s.in[0]); i < count; i++) {
        TRI_TRY(ref_check_token(ids[i], i, a->total ? a->total : rows));
        int64_t row = ids[i] - a->first;
        bool here = row >= 0 && row < rows;
        for (int64_t d = 0; d < width; d++)
            put(y, i * width + d, here ? get(weight, row * width + d) : 0);
    }
    return TRI_OK;
}

// Computes one column of the table's gradient at a time, so that the workspace only holds the sums
// of one column.
REF_BODY tri_status embedding_grad_weight_body(const ref_node *node, const tri_kernel_args *args,
                                               bool f64) {
    const int64_t *ids = args->in[0];
    ref_array dy = ref_input(args, 1, f64);
    ref_array dweight = ref_output(args, 0, f64);
    double *column = args->workspace;
    int64_t rows = node->s.out[0].dims[0], width = node->s.out[0].dims[1];
    int64_t count = ref_count(&node->s.in[0]);
    const tri_embedding_attr *a =
        &((const tri_embedding_grad_attr *)(const void *)node->attr)->rows;
    for (int64_t i = 0; i < count; i++)
        TRI_TRY(ref_check_token(ids[i], i, a->total ? a->total : rows));
    for (int64_t d = 0; d < width; d++) {
        for (int64_t r = 0; r < rows; r++) column[r] = 0;
        for (int64_t i = 0; i < count; i++) {
            int64_t row = ids[i] - a->first;
            if (row >= 0 && row < rows) column[row] += get(dy, i * width + d);
        }
        for (int64_t r = 0; r < rows; r++) put(dweight, r * width + d, column[r]);
    }
    return TRI_OK;
}

REF_BODY tri_status rotary_body(const ref_node *node, const tri_kernel_args *args, bool f64) {
    const tri_rotary_attr *a = (const void *)node->attr;
    const int64_t *xd = node->s.in[0].dims;
    int64_t heads = xd[2], half = xd[3] / 2;
    const int64_t *spans = args->in[1];
    for (int64_t row = 0; row < xd[0] * xd[1] * heads; row++) {
        ref_array x = ref_from(ref_input(args, 0, f64), row * 2 * half);
        ref_array y = ref_from(ref_output(args, 0, f64), row * 2 * half);
        int64_t before = spans ? spans[2 * (row / heads / xd[1])] : 0;
        double position = (double)(a->first + before + row / heads % xd[1]);
        for (int64_t i = 0; i < half; i++) {
            double angle =
                position * rotary_scaled(pow(a->theta, -(double)i / (double)half), a->scaling);
            double c = cos(angle), s = a->inverse ? -sin(angle) : sin(angle);
            double low = get(x, i), high = get(x, i + half);
            put(y, i, low * c - high * s);
            put(y, i + half, high * c + low * s);
        }
    }
    return TRI_OK;
}

REF_KERNEL(embedding)
REF_SUMMING_KERNEL(embedding_grad_weight, s->out[0].dims[0])
REF_KERNEL(rotary)

static tri_status next_token_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const ref_node *node = kernel->state;
    const int64_t *ids = args->in[0];
    int64_t *labels = args->out[0], length = node->s.in[0].dims[1];
    for (int64_t i = 0, count = ref_count(&node->s.in[0]); i < count; i++)
        labels[i] = (i + 1) % length ? ids[i + 1] : TRI_IGNORED_LABEL;
    return TRI_OK;
}

const tri_kernel_def ref_next_token = {.op = &tri_op_next_token,
                                       .name = "ref",
                                       .prepare = ref_prepare,
                                       .run = next_token_run,
                                       .release = ref_release};
