// Linear layers in BF16 by the device's own matrix product. The gradient of a weight is F32,
// because it is summed over micro-batches and ranks.
#include "device/cpu/linear.h"

#include "device/cpu/product_map.h"

#include <stdlib.h>

typedef struct bf16_state {
    const cpu_device *device;
    linear_shape shape;
    cpu_bf16_gemm gemm;
    int a, b; // indices of the node's inputs that are the product's operands
    bool bias, bias_gradient;
} bf16_state;

static bool bf16_supports(const tri_device_description *device, const tri_graph *graph,
                          const tri_node *node) {
    linear_shape s = linear_shape_of(graph, node);
    if (s.dtype != TRI_BF16 || !cpu_has(device, CPU_HAS_BF16)) return false;
    return s.rows > 0 && s.in > 0;
}

cpu_bf16_gemm linear_bf16_gemm(linear_task task, const linear_shape *s, bool *swaps) {
    cpu_bf16_gemm g = {.c_f32 = s->result == TRI_F32};
    *swaps = task == LINEAR_GRAD_WEIGHT;
    if (task == LINEAR_FORWARD) { // y = x · Wᵀ
        g.m = s->rows;
        g.n = s->out;
        g.k = s->in;
        g.b_transposed = true;
    } else if (task == LINEAR_GRAD_INPUT) { // dx = dy · W
        g.m = s->rows;
        g.n = s->in;
        g.k = s->out;
    } else { // dW = dyᵀ · x
        g.m = s->out;
        g.n = s->in;
        g.k = s->rows;
        g.a_transposed = true;
    }
    return g;
}

static bf16_state state_of(const tri_graph *graph, const tri_node *node) {
    linear_task task = linear_task_of(node);
    bf16_state state = {.shape = linear_shape_of(graph, node)};
    bool swaps;
    state.gemm = linear_bf16_gemm(task, &state.shape, &swaps);
    state.a = swaps;
    state.b = !swaps;
    state.bias = task == LINEAR_FORWARD && linear_has_bias(node);
    state.bias_gradient = task == LINEAR_GRAD_WEIGHT && linear_has_bias(node);
    return state;
}

static tri_status bf16_workspace(const tri_device_description *device, const tri_graph *graph,
                                 const tri_node *node, size_t *out) {
    bf16_state state = state_of(graph, node);
    *out = cpu_bf16_gemm_workspace(device, &state.gemm);
    return TRI_OK;
}

static tri_status bf16_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                               tri_kernel *kernel) {
    bf16_state *state = calloc(1, sizeof *state);
    if (!state) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a linear layer");
    *state = state_of(graph, node);
    state->device = cpu_of(device);
    kernel->state = state;
    return TRI_OK;
}

tri_status cpu_linear_bf16_compute(const tri_kernel *kernel, const tri_kernel_args *args,
                                   const cpu_finish *finish) {
    const bf16_state *state = kernel->state;
    cpu_bf16_gemm gemm = state->gemm;
    gemm.finish = finish;
    gemm.a = args->in[state->a];
    gemm.b = args->in[state->b];
    gemm.c = args->out[0];
    gemm.bias = state->bias ? args->in[2] : NULL;
    cpu_bf16_gemm_run(state->device, &gemm, args->workspace);
    if (state->bias_gradient)
        linear_sum_columns(state->device, &state->shape, args->in[1], args->out[1], NULL, false);
    return TRI_OK;
}

static tri_status bf16_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    return cpu_linear_bf16_compute(kernel, args, NULL);
}

static void bf16_release(tri_kernel *kernel) { free(kernel->state); }

#define BF16_KERNEL(identifier, opname)                                                            \
    const tri_kernel_def cpu_##identifier = {                                                      \
        .op = &tri_op_##opname,                                                                    \
        .name = "bf16-product",                                                                    \
        .supports = bf16_supports,                                                                 \
        .workspace = bf16_workspace,                                                               \
        .prepare = bf16_prepare,                                                                   \
        .run = bf16_run,                                                                           \
        .release = bf16_release,                                                                   \
    };
BF16_KERNEL(linear_bf16, linear)
BF16_KERNEL(linear_bf16_grad_input, linear_grad_input)
BF16_KERNEL(linear_bf16_grad_weight, linear_grad_weight)
