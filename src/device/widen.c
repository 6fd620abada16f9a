// The kernel that computes any op in a half type (F16, BF16) by the device's F32 kernel, so that a
// device does not need kernels for all types. It copies the inputs that have a half type to its
// workspace as F32, runs the F32 kernel on these copies, and rounds the outputs to the half type.
#include "device/widen.h"

#include "ops/ops.h"
#include "tensor/half.h"

#include <stdlib.h>

enum { WIDEN_ALIGNMENT = 64 };

bool tri_node_has_half(const tri_graph *graph, const tri_node *node) {
    for (int i = 0; i < node->input_count; i++)
        if (tri_dtype_is_half(tri_value_get(graph, node->inputs[i])->dtype)) return true;
    for (int i = 0; i < node->output_count; i++)
        if (tri_dtype_is_half(tri_value_get(graph, node->outputs[i])->dtype)) return true;
    return false;
}

// Copies the graph and its values. In the copy, this node's inputs and outputs of a half type are
// F32, so that the device finds its F32 kernel for the node and prepares it. Values keep their ids,
// so that the node is valid in both graphs.
static tri_graph *shadow_of(tri_arena *arena, const tri_graph *graph, const tri_node *node) {
    tri_graph *shadow = TRI_NEW(arena, tri_graph);
    *shadow = *graph;
    shadow->values = TRI_NEW_ARRAY(arena, tri_value_info, graph->value_count);
    for (int i = 0; i < graph->value_count; i++) shadow->values[i] = graph->values[i];
    for (int i = 0; i < node->input_count + node->output_count; i++) {
        tri_value value =
            i < node->input_count ? node->inputs[i] : node->outputs[i - node->input_count];
        tri_value_info *info = &shadow->values[value.id];
        if (tri_dtype_is_half(info->dtype)) info->dtype = TRI_F32;
    }
    return shadow;
}

static bool widened_supports(const tri_device_description *device, const tri_graph *graph,
                             const tri_node *node) {
    if (node->op == &tri_op_cast || !tri_node_has_half(graph, node)) return false;
    tri_arena *arena = tri_arena_create(NULL, "widen");
    bool found = tri_device_select(device, shadow_of(arena, graph, node), node) != NULL;
    tri_arena_destroy(arena);
    return found;
}

static void widened_layouts(const tri_device_description *device, const tri_graph *graph,
                            const tri_node *node, tri_layout *in, tri_layout *out) {
    tri_arena *arena = tri_arena_create(NULL, "widen");
    const tri_graph *shadow = shadow_of(arena, graph, node);
    tri_kernel_layouts(tri_device_select(device, shadow, node), device, shadow, node, in, out);
    tri_arena_destroy(arena);
}

// A tensor of a half type and its F32 copy in the workspace.
typedef struct widened_tensor {
    tri_dtype half; // type of the tensor; TRI_F32 (0): it is no half type, so it is not copied
    int64_t count;  // number of elements, with the layout's padding
    size_t offset;  // where the copy begins in the workspace, in bytes
} widened_tensor;

typedef struct widened_copies {
    int input_count, output_count;
    widened_tensor in[TRI_MAX_INPUTS], out[TRI_MAX_OUTPUTS];
    size_t bytes; // size of the F32 copies; the F32 kernel's workspace follows them
} widened_copies;

typedef struct widened_state {
    tri_kernel inner;
    widened_copies copies;
} widened_state;

static widened_tensor reserve_copy(const tri_graph *graph, tri_value value, size_t *bytes) {
    const tri_value_info *info = tri_value_get(graph, value);
    widened_tensor tensor = {0};
    if (!tri_dtype_is_half(info->dtype)) return tensor;
    tensor.half = info->dtype;
    tensor.count = tri_layout_elements(&info->layout, &info->shape);
    tensor.offset = *bytes;
    *bytes += (size_t)tensor.count * sizeof(float) + WIDEN_ALIGNMENT - 1;
    *bytes -= *bytes % WIDEN_ALIGNMENT;
    return tensor;
}

static widened_copies copies_of(const tri_graph *graph, const tri_node *node) {
    widened_copies c = {.input_count = node->input_count, .output_count = node->output_count};
    for (int i = 0; i < node->input_count; i++)
        c.in[i] = reserve_copy(graph, node->inputs[i], &c.bytes);
    for (int i = 0; i < node->output_count; i++)
        c.out[i] = reserve_copy(graph, node->outputs[i], &c.bytes);
    return c;
}

static tri_status widened_workspace(const tri_device_description *device, const tri_graph *graph,
                                    const tri_node *node, size_t *out) {
    size_t inner;
    tri_arena *arena = tri_arena_create(NULL, "widen");
    const tri_graph *shadow = shadow_of(arena, graph, node);
    tri_status status =
        tri_kernel_workspace(tri_device_select(device, shadow, node), device, shadow, node, &inner);
    tri_arena_destroy(arena);
    *out = copies_of(graph, node).bytes + inner;
    return status;
}

static tri_status widened_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                                  tri_kernel *kernel) {
    widened_state *state = calloc(1, sizeof *state);
    if (!state) return TRI_FAIL(TRI_NO_MEMORY, "no memory for kernel %s", node->op->name);
    kernel->state = state;
    state->copies = copies_of(graph, node);
    tri_arena *arena = tri_arena_create(NULL, "widen");
    const tri_graph *shadow = shadow_of(arena, graph, node);
    tri_status status = tri_kernel_make(device, shadow, node, &state->inner);
    tri_arena_destroy(arena);
    kernel->workspace_bytes = state->copies.bytes + state->inner.workspace_bytes;
    return status;
}

static tri_status widened_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const widened_state *state = kernel->state;
    const widened_copies *s = &state->copies;
    char *workspace = args->workspace;
    void *in[TRI_MAX_INPUTS], *out[TRI_MAX_OUTPUTS];
    for (int i = 0; i < s->input_count; i++) {
        in[i] = s->in[i].half ? workspace + s->in[i].offset : args->in[i];
        if (s->in[i].half) tri_half_widen(s->in[i].half, args->in[i], in[i], s->in[i].count);
    }
    for (int i = 0; i < s->output_count; i++)
        out[i] = s->out[i].half ? workspace + s->out[i].offset : args->out[i];
    tri_kernel_args wide = {
        .queue = args->queue, .in = in, .out = out, .workspace = workspace + s->bytes};
    TRI_TRY(state->inner.def->run(&state->inner, &wide));
    for (int i = 0; i < s->output_count; i++)
        if (s->out[i].half) tri_half_narrow(s->out[i].half, out[i], args->out[i], s->out[i].count);
    return TRI_OK;
}

static void widened_release(tri_kernel *kernel) {
    widened_state *state = kernel->state;
    if (!state) return;
    tri_kernel_release(&state->inner);
    free(state);
}

const tri_kernel_def tri_kernel_widened = {
    .name = "widened",
    .supports = widened_supports,
    .layouts = widened_layouts,
    .workspace = widened_workspace,
    .prepare = widened_prepare,
    .run = widened_run,
    .release = widened_release,
};
