// Linear layers of BF16 on many rows by the device's own matrix product: oneDNN's keeps an F32 copy
// of a BF16 result. The gradient of a weight, which is F32, is oneDNN's.
#include "device/cpu/gemm_brain.h"
#include "device/cpu/linear.h"

#include <stdlib.h>

typedef struct brain_state {
    const cpu_device *device;
    cpu_brain_gemm gemm;
    bool bias;
} brain_state;

static bool brain_supports(const tri_device *device, const tri_graph *graph, const tri_node *node) {
    bool forward = node->op == &tri_op_linear;
    linear_shape s = linear_shape_of(graph, node);
    if (s.dtype != TRI_BF16 || s.result != TRI_BF16 || !cpu_of(device)->brain) return false;
    if (forward && ((const tri_linear_attr *)node->attr)->activation != TRI_ACTIVATION_NONE)
        return false;
    if ((forward ? s.in : s.out) % 2) return false; // rows that are read in pairs
    return s.rows >= LINEAR_LEAST_ROWS && s.in > 0;
}

static tri_status brain_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                                tri_kernel *kernel) {
    linear_shape s = linear_shape_of(graph, node);
    brain_state *state = calloc(1, sizeof *state);
    if (!state) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a linear layer");
    *state = (brain_state){.device = cpu_of(device), .bias = linear_has_bias(node)};
    if (node->op == &tri_op_linear) // x · Wᵀ
        state->gemm = (cpu_brain_gemm){.m = s.rows, .n = s.out, .k = s.in, .b_transposed = true};
    else // dy · W
        state->gemm = (cpu_brain_gemm){.m = s.rows, .n = s.in, .k = s.out};
    kernel->state = state;
    kernel->workspace_bytes = cpu_brain_gemm_workspace(state->device, &state->gemm);
    return TRI_OK;
}

static tri_status brain_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const brain_state *state = kernel->state;
    cpu_brain_gemm gemm = state->gemm;
    gemm.a = args->in[0];
    gemm.b = args->in[1];
    gemm.c = args->out[0];
    gemm.bias = state->bias ? args->in[2] : NULL;
    cpu_brain_gemm_run(state->device, &gemm, args->workspace);
    return TRI_OK;
}

static void brain_release(tri_kernel *kernel) { free(kernel->state); }

#define BRAIN_KERNEL(identifier, opname)                                                           \
    const tri_kernel_def cpu_##identifier = {                                                      \
        .op = &tri_op_##opname,                                                                    \
        .name = "bf16-rows",                                                                       \
        .supports = brain_supports,                                                                \
        .prepare = brain_prepare,                                                                  \
        .run = brain_run,                                                                          \
        .release = brain_release,                                                                  \
    };
BRAIN_KERNEL(linear_brain, linear)
BRAIN_KERNEL(linear_brain_grad_input, linear_grad_input)
