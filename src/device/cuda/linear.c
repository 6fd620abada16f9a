// Linear layers on the GPU: y = x·Wᵀ + b, dx = dy·W, dW = dyᵀ·x, all row-major. Tensors of more
// axes are taken as the matrices x [rows, in], W [out, in] and y [rows, out]: `rows` joins all axes
// of y but the last, and `in` all axes of W but the first.
#include "device/cuda/internal.h"

typedef struct linear_state {
    cuda_product product;
    cuda_column_sums sums;
    int a, b;       // indices of the node's inputs that are the product's operands
    bool bias;      // input 2 is the bias
    bool sums_bias; // output 1 is the bias' gradient
} linear_state;

// The sizes of the matrices x [rows, in], W [out, in] and y [rows, out].
typedef struct linear_sizes {
    int64_t rows, in, out;
} linear_sizes;

static linear_sizes sizes_of(const tri_graph *graph, const tri_node *node) {
    bool weight_is_made = node->op == &tri_op_linear_grad_weight;
    const tri_shape *weight = weight_is_made ? &((const tri_linear_grad_attr *)node->attr)->shape
                                             : cuda_in_shape(graph, node, 1);
    const tri_shape *y = node->op == &tri_op_linear ? cuda_out_shape(graph, node, 0)
                         : weight_is_made           ? cuda_in_shape(graph, node, 1)
                                                    : cuda_in_shape(graph, node, 0);
    linear_sizes s = {.rows = 1, .in = 1, .out = weight->dims[0]};
    for (int i = 1; i < weight->rank; i++) s.in *= weight->dims[i];
    for (int i = 0; i + 1 < y->rank; i++) s.rows *= y->dims[i];
    return s;
}

static bool supports(const tri_device_description *device, const tri_graph *graph,
                     const tri_node *given) {
    tri_node product;
    const tri_node *node = cuda_is_relu_of(given, &tri_op_linear, &product) ? &product : given;
    if (node->op == &tri_op_product_map) return false;
    tri_dtype a = cuda_in_type(graph, node, 0), b = cuda_in_type(graph, node, 1);
    tri_dtype out = cuda_out_type(graph, node, 0);
    bool bias_alike = node->op != &tri_op_linear || !tri_value_is(node->inputs[2]) ||
                      cuda_in_type(graph, node, 2) == a;
    bool sums_f32 = node->output_count < 2 || !tri_value_is(node->outputs[1]) ||
                    cuda_out_type(graph, node, 1) == TRI_F32;
    return cuda_is_real(a) && a == b && (out == a || out == TRI_F32) && bias_alike && sums_f32;
}

static linear_state state_of(const tri_graph *graph, const tri_node *given) {
    tri_node product;
    bool relu = cuda_is_relu_of(given, &tri_op_linear, &product);
    const tri_node *node = relu ? &product : given;
    linear_sizes s = sizes_of(graph, node);
    linear_state state = {.b = 1};
    cuda_product *p = &state.product;
    if (node->op == &tri_op_linear) {
        *p = (cuda_product){.m = s.rows, .n = s.out, .k = s.in, .transpose_b = true, .relu = relu};
        state.bias = tri_value_is(node->inputs[2]);
    } else if (node->op == &tri_op_linear_grad_input) {
        *p = (cuda_product){.m = s.rows, .n = s.in, .k = s.out};
    } else {
        *p = (cuda_product){.m = s.out, .n = s.in, .k = s.rows, .transpose_a = true};
        state.a = 1;
        state.b = 0;
        state.sums_bias = ((const tri_linear_grad_attr *)node->attr)->has_bias;
        state.sums = cuda_column_sums_of(s.rows, s.out, cuda_in_type(graph, node, 1));
    }
    p->in_type = cuda_in_type(graph, node, 0);
    p->out_type = cuda_out_type(graph, node, 0);
    p->tf32 = p->in_type == TRI_F32 && graph->options.tf32;
    return state;
}

// Computes the size of a product's workspace. The bias' gradient is summed after the product, so
// the product and this sum use the same memory.
static tri_status workspace(const tri_device_description *device, const tri_graph *graph,
                            const tri_node *node, size_t *out) {
    linear_state state = state_of(graph, node);
    size_t sums = state.sums_bias ? cuda_column_sums_bytes(&state.sums) : 0;
    *out = device->features & CUDA_HAS_PRODUCTS ? CUDA_PRODUCT_WORKSPACE_BYTES : 0;
    if (*out < sums) *out = sums;
    return TRI_OK;
}

// Returns which outputs the kernel can add to what their memory holds (bit k: output k; see
// tri_kernel_def.adds): only output 0 of linear_grad_weight, the gradient of the weight, if it is
// F32. The gradient of the bias is overwritten, because cuBLASLt cannot add to it; it is small, so
// that adding it separately costs little.
static unsigned adds(const tri_device_description *device, const tri_graph *graph,
                     const tri_node *node) {
    return node->op == &tri_op_linear_grad_weight && cuda_out_type(graph, node, 0) == TRI_F32;
}

static tri_status prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                          tri_kernel *kernel) {
    linear_state state = state_of(graph, node);
    state.product.workspace_bytes = (int64_t)kernel->workspace_bytes;
    return cuda_prepare(kernel, &state, sizeof state);
}

static tri_status run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const linear_state *state = kernel->state;
    cuda_product p = state->product;
    p.a = args->in[state->a];
    p.b = args->in[state->b];
    p.bias = state->bias ? args->in[2] : NULL;
    p.c = args->out[0];
    p.adds = args->adds & 1;
    p.workspace = args->workspace;
    if (state->sums_bias) {
        p.bias_grad = state->sums;
        p.bias_grad.x = args->in[1];
        p.bias_grad.sums = args->out[1];
        p.bias_grad.room = args->workspace;
    }
    CUDA_LAUNCH(args->queue, product, p);
    return TRI_OK;
}

#define LINEAR(identifier, opname)                                                                 \
    const tri_kernel_def cuda_kernel_##identifier = {.op = &tri_op_##opname,                       \
                                                     .name = "product",                            \
                                                     .supports = supports,                         \
                                                     .workspace = workspace,                       \
                                                     .adds = adds,                                 \
                                                     .prepare = prepare,                           \
                                                     .run = run,                                   \
                                                     .release = cuda_release};
LINEAR(linear, linear)
LINEAR(linear_relu, product_map)
LINEAR(linear_grad_input, linear_grad_input)
LINEAR(linear_grad_weight, linear_grad_weight)
