// What all kernels of the reference device `ref` share: preparation, dropout masks, and checks of
// labels and tokens.
#include "device/ref/node.h"

#include "base/philox.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_float(tri_dtype dtype) { return dtype == TRI_F32 || dtype == TRI_F64; }

bool ref_supports(const tri_device_description *device, const tri_graph *graph,
                  const tri_node *node) {
    return !tri_node_has_half(graph, node);
}

tri_status ref_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                       tri_kernel *kernel) {
    ref_node *state = calloc(1, sizeof *state + node->op->attr_bytes);
    if (!state) return TRI_FAIL(TRI_NO_MEMORY, "no memory for kernel %s", node->op->name);
    state->s = tri_node_signature(graph, node);
    state->dtype = is_float(state->s.in_type[0]) ? state->s.in_type[0] : state->s.out_type[0];
    state->in_layout = tri_value_get(graph, node->inputs[0])->layout;
    if (node->output_count) state->out_layout = tri_value_get(graph, node->outputs[0])->layout;
    if (node->op->attr_bytes) memcpy(state->attr, node->attr, node->op->attr_bytes);
    kernel->state = state;
    return TRI_OK;
}

void ref_release(tri_kernel *kernel) { free(kernel->state); }

ref_mask ref_mask_of(double p, uint64_t key, const int64_t *position) {
    ref_mask mask = {.key = key, .scale = p < 1 ? 1 / (1 - p) : 0};
    if (p <= 0) return mask; // `position` may be NULL in this case
    mask.step = (uint64_t)position[0];
    mask.first = (uint32_t)position[1];
    mask.threshold = p < 1 ? (uint32_t)fmin(ceil(p * 0x1p32), UINT32_MAX) : 0;
    return mask;
}

double ref_mask_at(const ref_mask *mask, int64_t sample, int64_t element) {
    if (mask->threshold == 0) return mask->scale;
    uint32_t word =
        tri_philox_at(mask->key, mask->step, mask->first + (uint32_t)sample, (uint64_t)element);
    return word >= mask->threshold ? mask->scale : 0;
}

tri_status ref_check_label(int64_t label, int64_t sample, int64_t classes) {
    if (label == TRI_IGNORED_LABEL || (label >= 0 && label < classes)) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT,
                    "label %" PRId64 " of sample %" PRId64
                    " of the micro-batch is no class: classes are 0 to %" PRId64
                    ", or -100 for none",
                    label, sample, classes - 1);
}

tri_status ref_check_token(int64_t token, int64_t index, int64_t tokens) {
    if (token >= 0 && token < tokens) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT,
                    "token %" PRId64 " at position %" PRId64
                    " of the micro-batch is not in the vocabulary: tokens are 0 to %" PRId64,
                    token, index, tokens - 1);
}

tri_status ref_refuse_index(int64_t index, int64_t at, int64_t size) {
    return TRI_FAIL(TRI_BAD_INPUT,
                    "index %" PRId64 " at position %" PRId64
                    " of the micro-batch is outside of the axis that it indexes: indices are 0 to "
                    "%" PRId64,
                    index, at, size - 1);
}

tri_status ref_check_indices(const int64_t *indices, int64_t count, int64_t size) {
    for (int64_t i = 0; i < count; i++)
        if (indices[i] < 0 || indices[i] >= size) return ref_refuse_index(indices[i], i, size);
    return TRI_OK;
}
