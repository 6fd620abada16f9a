// Linear layers on many rows, as in transformers, by the device's own matrix product. It takes W as
// it lies, in its home order or plain.
#include "device/cpu/gemm.h"
#include "device/cpu/linear.h"

#include <stdlib.h>

typedef struct rows_state {
    const cpu_device *device;
    cpu_gemm gemm;
    int a, b, bias; // the inputs that they are; bias 0: none
} rows_state;

static bool rows_supports(const tri_device *device, const tri_graph *graph, const tri_node *node) {
    if (!cpu_has_avx512_f32(device, graph, node)) return false;
    linear_task task = linear_task_of(node);
    linear_shape s = linear_shape_of(graph, node);
    if (task == LINEAR_FORWARD &&
        ((const tri_linear_attr *)node->attr)->activation != TRI_ACTIVATION_NONE)
        return false;
    if (task == LINEAR_GRAD_WEIGHT && linear_has_bias(node)) return false;
    return s.rows >= LINEAR_LEAST_ROWS && s.in > 0;
}

// A parameter that already has a home stays there, if that is one we can read.
static tri_layout wanted(const tri_device *device, const tri_graph *graph, const tri_node *node,
                         const linear_shape *s) {
    const tri_value_info *weight = tri_value_get(graph, node->inputs[1]);
    bool chosen =
        weight->kind != TRI_VALUE_PARAMETER || graph->parameters[weight->index].layout_chosen;
    if (chosen && tri_layout_is_plain(&weight->layout)) return TRI_LAYOUT_PLAIN;
    return cpu_format_layout(linear_home(device, s));
}

static void rows_layouts(const tri_device *device, const tri_graph *graph, const tri_node *node,
                         tri_layout *in, tri_layout *out) {
    linear_shape s = linear_shape_of(graph, node);
    for (int i = 0; i < node->input_count; i++) in[i] = TRI_LAYOUT_PLAIN;
    if (linear_task_of(node) == LINEAR_GRAD_WEIGHT)
        out[0] = cpu_format_layout(linear_home(device, &s));
    else
        in[1] = wanted(device, graph, node, &s);
}

static cpu_matrix weight_of(const tri_layout *layout, const linear_shape *s) {
    cpu_matrix w = cpu_matrix_plain(NULL, s->in);
    if (!tri_layout_is_plain(layout)) // [out / 64][in][64]
        w = (cpu_matrix){.row = 1, .row_block = 64 * s->in, .column = 64, .column_block = 64 * 64};
    return w;
}

static tri_status rows_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                               tri_kernel *kernel) {
    linear_task task = linear_task_of(node);
    linear_shape s = linear_shape_of(graph, node);
    rows_state *state = calloc(1, sizeof *state);
    if (!state) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a linear layer");
    tri_value weight = task == LINEAR_GRAD_WEIGHT ? node->outputs[0] : node->inputs[1];
    cpu_matrix x = cpu_matrix_plain(NULL, s.in), y = cpu_matrix_plain(NULL, s.out);
    cpu_matrix w = weight_of(&tri_value_get(graph, weight)->layout, &s);
    *state = (rows_state){.device = cpu_of(device), .b = 1};
    cpu_gemm *g = &state->gemm;
    if (task == LINEAR_FORWARD) {
        *g = (cpu_gemm){.m = s.rows, .n = s.out, .k = s.in, .a = x, .c = y};
        g->b = cpu_matrix_transposed(w);
        state->bias = linear_has_bias(node) ? 2 : 0;
    } else if (task == LINEAR_GRAD_INPUT) {
        *g = (cpu_gemm){.m = s.rows, .n = s.in, .k = s.out, .a = y, .b = w, .c = x};
    } else if (w.column == 1) {
        *g = (cpu_gemm){.m = s.out, .n = s.in, .k = s.rows, .b = x, .c = w};
        g->a = cpu_matrix_transposed(y);
        state->a = 1;
        state->b = 0;
    } else { // the transposed dW: its rows lie as a product's do
        *g = (cpu_gemm){.m = s.in, .n = s.out, .k = s.rows, .b = y};
        g->a = cpu_matrix_transposed(x);
        g->c = cpu_matrix_transposed(w);
    }
    kernel->state = state;
    kernel->workspace_bytes = cpu_gemm_workspace(state->device, g);
    return TRI_OK;
}

static tri_status rows_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const rows_state *state = kernel->state;
    cpu_gemm gemm = state->gemm;
    gemm.a.data = args->in[state->a];
    gemm.b.data = args->in[state->b];
    gemm.c.data = args->out[0];
    gemm.bias = state->bias ? args->in[state->bias] : NULL;
    cpu_gemm_run(state->device, &gemm, args->workspace);
    return TRI_OK;
}

static void rows_release(tri_kernel *kernel) { free(kernel->state); }

#define ROWS_KERNEL(identifier, opname)                                                            \
    const tri_kernel_def cpu_##identifier = {                                                      \
        .op = &tri_op_##opname,                                                                    \
        .name = "avx512-rows",                                                                     \
        .supports = rows_supports,                                                                 \
        .layouts = rows_layouts,                                                                   \
        .prepare = rows_prepare,                                                                   \
        .run = rows_run,                                                                           \
        .release = rows_release,                                                                   \
    };
ROWS_KERNEL(linear_rows, linear)
ROWS_KERNEL(linear_rows_grad_input, linear_grad_input)
ROWS_KERNEL(linear_rows_grad_weight, linear_grad_weight)
