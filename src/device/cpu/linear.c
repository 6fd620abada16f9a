// Linear layers by oneDNN: y = x·Wᵀ + b with x [rows, in], W [out, in], y [rows, out].
//
// The home order of W is a rule on its shape: blocks of 16 inputs × 64 outputs (AB16b64a) when out
// is a multiple of 64 and in one of 16, else plain. All three products then read and write W as it
// lies, for any number of rows. x and y are plain.
//
// A W that is computed in BF16 is plain: oneDNN's products of BF16 pack it for themselves as fast
// as they read what was packed before, and its gradient, which is F32, has the same order.
#include "device/cpu/linear.h"

#include <stdlib.h>

linear_task linear_task_of(const tri_node *node) {
    if (node->op == &tri_op_linear) return LINEAR_FORWARD;
    return node->op == &tri_op_linear_grad_input ? LINEAR_GRAD_INPUT : LINEAR_GRAD_WEIGHT;
}

linear_shape linear_shape_of(const tri_graph *graph, const tri_node *node) {
    const tri_shape *weight, *y;
    switch (linear_task_of(node)) {
    case LINEAR_FORWARD:
        weight = cpu_in_shape(graph, node, 1);
        y = cpu_out_shape(graph, node, 0);
        break;
    case LINEAR_GRAD_INPUT:
        weight = cpu_in_shape(graph, node, 1);
        y = cpu_in_shape(graph, node, 0);
        break;
    default:
        weight = &((const tri_linear_grad_attr *)node->attr)->shape;
        y = cpu_in_shape(graph, node, 1);
        break;
    }
    linear_shape s = {.rows = 1,
                      .out = weight->dims[0],
                      .in = 1,
                      .dtype = tri_value_get(graph, node->inputs[0])->dtype,
                      .result = tri_value_get(graph, node->outputs[0])->dtype};
    for (int i = 1; i < weight->rank; i++) s.in *= weight->dims[i];
    for (int i = 0; i + 1 < y->rank; i++) s.rows *= y->dims[i];
    return s;
}

cpu_format linear_home(const tri_device *device, const linear_shape *s) {
    bool blocked = cpu_of(device)->avx512 && s->out % 64 == 0 && s->in % 16 == 0;
    if (s->dtype == TRI_BF16 && cpu_of(device)->brain) return CPU_PLAIN;
    return blocked ? CPU_OI16I64O : CPU_PLAIN;
}

bool linear_has_bias(const tri_node *node) {
    if (node->op == &tri_op_linear) return tri_value_is(node->inputs[2]);
    if (node->op == &tri_op_linear_grad_input) return false;
    return ((const tri_linear_grad_attr *)node->attr)->has_bias;
}

static tri_status describe(const cpu_device *device, linear_task task, const linear_shape *s,
                           cpu_format format, bool bias, tri_activation activation, double slope,
                           dnnl_primitive_desc_t *out) {
    dnnl_memory_desc_t x, weight, dweight, bias_md, y;
    int64_t weight_dims[] = {s->out, s->in};
    tri_dtype x_type = task == LINEAR_GRAD_INPUT ? s->result : s->dtype;
    tri_dtype y_type = task == LINEAR_FORWARD ? s->result : s->dtype;
    TRI_TRY(cpu_format_md(CPU_PLAIN, x_type, 2, (int64_t[]){s->rows, s->in}, &x));
    TRI_TRY(cpu_format_md(format, s->dtype, 2, weight_dims, &weight));
    TRI_TRY(cpu_format_md(format, TRI_F32, 2, weight_dims, &dweight));
    TRI_TRY(cpu_format_md(CPU_PLAIN, task == LINEAR_FORWARD ? s->dtype : TRI_F32, 1, &s->out,
                          &bias_md));
    TRI_TRY(cpu_format_md(CPU_PLAIN, y_type, 2, (int64_t[]){s->rows, s->out}, &y));
    const dnnl_memory_desc_t *b = bias ? &bias_md : NULL;
    dnnl_inner_product_desc_t forward, desc;
    CPU_DNNL(dnnl_inner_product_forward_desc_init(&forward, dnnl_forward_training, &x, &weight,
                                                  task == LINEAR_FORWARD ? b : NULL, &y));
    desc = forward;
    if (task == LINEAR_GRAD_INPUT)
        CPU_DNNL(dnnl_inner_product_backward_data_desc_init(&desc, &x, &weight, &y));
    if (task == LINEAR_GRAD_WEIGHT)
        CPU_DNNL(dnnl_inner_product_backward_weights_desc_init(&desc, &x, &dweight, b, &y));
    dnnl_primitive_attr_t attr;
    TRI_TRY(cpu_primitive_attr(activation, slope, &attr));
    dnnl_primitive_desc_t hint = NULL;
    if (task != LINEAR_FORWARD)
        dnnl_primitive_desc_create(&hint, &forward, NULL, device->engine, NULL);
    dnnl_status_t status = dnnl_primitive_desc_create(out, &desc, attr, device->engine, hint);
    if (hint) dnnl_primitive_desc_destroy(hint);
    dnnl_primitive_attr_destroy(attr);
    if (status == dnnl_success) return TRI_OK;
    return TRI_FAIL(TRI_UNSUPPORTED, "oneDNN has no such inner product: status %d", status);
}

static bool linear_supports(const tri_device *device, const tri_graph *graph,
                            const tri_node *node) {
    linear_shape s = linear_shape_of(graph, node);
    bool known = s.dtype == TRI_F32 || (s.dtype == TRI_BF16 && cpu_of(device)->brain);
    if (!known || s.rows == 0) return false;
    dnnl_primitive_desc_t pd;
    if (describe(cpu_of(device), linear_task_of(node), &s, linear_home(device, &s),
                 linear_has_bias(node), TRI_ACTIVATION_NONE, 0, &pd) != TRI_OK)
        return false;
    bool fast = cpu_primitive_is_fast(pd);
    dnnl_primitive_desc_destroy(pd);
    return fast;
}

static void linear_layouts(const tri_device *device, const tri_graph *graph, const tri_node *node,
                           tri_layout *in, tri_layout *out) {
    linear_shape s = linear_shape_of(graph, node);
    tri_layout weight = cpu_format_layout(linear_home(device, &s));
    for (int i = 0; i < node->input_count; i++) in[i] = TRI_LAYOUT_PLAIN;
    for (int i = 0; i < node->output_count; i++) out[i] = TRI_LAYOUT_PLAIN;
    if (linear_task_of(node) == LINEAR_GRAD_WEIGHT)
        out[0] = weight;
    else
        in[1] = weight;
}

typedef struct linear_state {
    const cpu_device *device;
    cpu_primitive primitive;
    linear_task task;
    bool bias;
} linear_state;

static tri_status linear_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                                 tri_kernel *kernel) {
    static const int args[][4] = {
        [LINEAR_FORWARD] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS},
        [LINEAR_GRAD_INPUT] = {DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_SRC, 0},
        [LINEAR_GRAD_WEIGHT] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS,
                                DNNL_ARG_DIFF_BIAS},
    };
    cpu_use_threads(cpu_of(device));
    linear_shape s = linear_shape_of(graph, node);
    linear_state *state = calloc(1, sizeof *state);
    if (!state) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a linear layer");
    *state = (linear_state){
        .device = cpu_of(device), .task = linear_task_of(node), .bias = linear_has_bias(node)};
    kernel->state = state;
    tri_activation activation = TRI_ACTIVATION_NONE;
    double slope = 0;
    if (state->task == LINEAR_FORWARD) {
        const tri_linear_attr *attr = node->attr;
        activation = attr->activation;
        slope = attr->slope;
    }
    dnnl_primitive_desc_t pd;
    TRI_TRY(describe(state->device, state->task, &s, linear_home(device, &s), state->bias,
                     activation, slope, &pd));
    TRI_TRY(cpu_primitive_make(state->device, pd, args[state->task], 3 + state->bias,
                               &state->primitive));
    kernel->workspace_bytes = state->primitive.scratchpad_bytes;
    return TRI_OK;
}

static tri_status linear_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    linear_state *state = kernel->state;
    cpu_use_threads(state->device);
    void *data[] = {args->in[0], args->in[1], args->out[0], NULL};
    if (state->bias) data[3] = state->task == LINEAR_FORWARD ? args->in[2] : args->out[1];
    return cpu_primitive_run(&state->primitive, data, args->workspace);
}

static void linear_release(tri_kernel *kernel) {
    linear_state *state = kernel->state;
    if (!state) return;
    cpu_primitive_release(&state->primitive);
    free(state);
}

#define LINEAR_KERNEL(identifier, opname)                                                          \
    const tri_kernel_def cpu_##identifier = {                                                      \
        .op = &tri_op_##opname,                                                                    \
        .name = "onednn",                                                                          \
        .supports = linear_supports,                                                               \
        .layouts = linear_layouts,                                                                 \
        .prepare = linear_prepare,                                                                 \
        .run = linear_run,                                                                         \
        .release = linear_release,                                                                 \
    };
LINEAR_KERNEL(linear_forward, linear)
LINEAR_KERNEL(linear_grad_input, linear_grad_input)
LINEAR_KERNEL(linear_grad_weight, linear_grad_weight)
