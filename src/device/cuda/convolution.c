// Convolutions on the GPU: by cuDNN, where it is installed and has a plan for the shape
// (module/dnn_convolution.cu), else by our own kernel. That kernel computes a product of two
// matrices, and reads one of them element by element from the image, because a copy of the image in
// the order of the matrix would take memory and time.
#include "device/cuda/internal.h"

typedef struct conv_state {
    cuda_convolution conv;
    // The gradient of the bias is the sum of dy over all pixels. `columns`: the parameters of its
    // kernel if dy has its channels last, and so is a matrix with a column for each channel.
    // `sums`: the parameters of its kernel if dy is row-major.
    cuda_channel_sums sums;
    cuda_column_sums columns;
    bool bias;      // input 2 is the bias
    bool sums_bias; // the node computes the gradient of a bias
} conv_state;

enum {
    // For the gradient of the weight, the pixels are cut into slices, each for its own thread
    // blocks:
    CONV_LEAST_SLICE = 256,    // there is at most one slice for every 256 pixels
    CONV_ENOUGH_BLOCKS = 1024, // thread blocks of all slices together: enough to keep any GPU busy
};

static void set_attributes(cuda_convolution *p, const tri_conv2d_attr *a, const tri_shape *x,
                           const tri_shape *weight, const tri_shape *y) {
    p->samples = x->dims[0];
    p->channels = x->dims[1];
    p->features = weight->dims[0];
    p->groups = a->groups;
    for (int i = 0; i < 2; i++) {
        p->in[i] = (int)x->dims[2 + i];
        p->out[i] = (int)y->dims[2 + i];
        p->kernel[i] = (int)weight->dims[2 + i];
        p->stride[i] = (int)a->stride[i];
        p->padding[i] = (int)a->padding[i];
        p->dilation[i] = (int)a->dilation[i];
    }
}

// Decides into how many slices the pixels are cut for the gradient of the weight, a sum over
// pixels. The number depends on the shapes alone, so that the sums have the same bits on every
// device.
static void cut(cuda_convolution *p) {
    int64_t filter = p->channels / p->groups * p->kernel[0] * p->kernel[1];
    int64_t rows = p->features / p->groups, pixels = p->samples * p->out[0] * p->out[1];
    const int64_t tile = CUDA_CONVOLUTION_TILE;
    int64_t tiles = (rows + tile - 1) / tile * ((filter + tile - 1) / tile);
    int64_t wanted = CONV_ENOUGH_BLOCKS / (tiles * p->groups);
    int64_t most = (pixels + CONV_LEAST_SLICE - 1) / CONV_LEAST_SLICE;
    int64_t slices = wanted < most ? wanted : most;
    if (slices < 1) slices = 1;
    p->slice = (pixels + slices - 1) / slices;
    if (p->slice < 1) p->slice = 1;
    p->slices = pixels > 0 ? (pixels + p->slice - 1) / p->slice : 1;
}

static conv_state state_of(const tri_device_description *device, const tri_graph *graph,
                           const tri_node *given) {
    tri_node product;
    bool relu = cuda_is_relu_of(given, &tri_op_conv2d, &product);
    const tri_node *node = relu ? &product : given;
    conv_state state = {.bias = node->op == &tri_op_conv2d && tri_value_is(node->inputs[2])};
    cuda_convolution *p = &state.conv;
    p->channels_last = cuda_convolves_channels_last(device, graph, node);
    p->in_type = cuda_in_type(graph, node, 0);
    p->out_type = cuda_out_type(graph, node, 0);
    p->tf32 = cuda_rounds_to_tf32(device, graph, p->in_type);
    if (node->op == &tri_op_conv2d) {
        const tri_conv2d_attr *a = node->attr;
        p->kind = CUDA_FORWARD;
        p->relu = relu;
        set_attributes(p, a, cuda_in_shape(graph, node, 0), cuda_in_shape(graph, node, 1),
                       cuda_out_shape(graph, node, 0));
        return state;
    }
    const tri_conv2d_grad_attr *a = node->attr;
    if (node->op == &tri_op_conv2d_grad_input) {
        p->kind = CUDA_GRAD_INPUT;
        set_attributes(p, &a->conv, &a->shape, cuda_in_shape(graph, node, 1),
                       cuda_in_shape(graph, node, 0));
        return state;
    }
    p->kind = CUDA_GRAD_WEIGHT;
    set_attributes(p, &a->conv, cuda_in_shape(graph, node, 0), &a->shape,
                   cuda_in_shape(graph, node, 1));
    cut(p);
    state.sums_bias = a->has_bias;
    state.columns = cuda_column_sums_of(p->samples * p->out[0] * p->out[1], p->features,
                                        cuda_in_type(graph, node, 1));
    state.sums = (cuda_channel_sums){.samples = p->samples,
                                     .channels = p->features,
                                     .inner = (int64_t)p->out[0] * p->out[1],
                                     .type = cuda_in_type(graph, node, 1)};
    return state;
}

// Whether the pixels of an image and the weights of a filter can be numbered in 32 bits. The kernel
// numbers them so, because divisions of 32 bits are faster than those of 64 bits.
static bool is_countable(const tri_shape *image, const tri_shape *weight) {
    const int64_t *d = image->dims, *w = weight->dims;
    return d[2] < INT32_MAX && d[3] < INT32_MAX && d[2] * d[3] < INT32_MAX &&
           d[0] * d[2] * d[3] < INT32_MAX && w[0] < INT32_MAX && w[1] < INT32_MAX &&
           w[0] * w[2] * w[3] < INT32_MAX && w[1] * w[2] * w[3] < INT32_MAX;
}

static bool supports(const tri_device_description *device, const tri_graph *graph,
                     const tri_node *given) {
    tri_node product;
    const tri_node *node = cuda_is_relu_of(given, &tri_op_conv2d, &product) ? &product : given;
    if (node->op == &tri_op_product_map) return false;
    tri_dtype a = cuda_in_type(graph, node, 0), b = cuda_in_type(graph, node, 1);
    const tri_conv2d_grad_attr *grad = node->attr;
    const tri_shape *x = cuda_in_shape(graph, node, 0), *y = cuda_out_shape(graph, node, 0);
    const tri_shape *weight = cuda_in_shape(graph, node, 1);
    if (node->op == &tri_op_conv2d_grad_weight) {
        y = cuda_in_shape(graph, node, 1);
        weight = &grad->shape;
    }
    return cuda_is_real(a) && a == b && is_countable(x, weight) && is_countable(y, weight);
}

static void layouts(const tri_device_description *device, const tri_graph *graph,
                    const tri_node *node, tri_layout *in, tri_layout *out) {
    bool is_last = cuda_convolves_channels_last(device, graph, node);
    for (int k = 0; k < node->input_count; k++)
        in[k] = is_last && tri_value_is(node->inputs[k])
                    ? cuda_channels_last(cuda_in_shape(graph, node, k))
                    : TRI_LAYOUT_PLAIN;
    for (int k = 0; k < node->output_count; k++)
        out[k] = is_last ? cuda_channels_last(cuda_out_shape(graph, node, k)) : TRI_LAYOUT_PLAIN;
}

static tri_status workspace(const tri_device_description *device, const tri_graph *graph,
                            const tri_node *node, size_t *out) {
    conv_state state = state_of(device, graph, node);
    int64_t slices = state.conv.slices > 1 ? state.conv.slices : 0;
    size_t sums_bytes = (size_t)(slices * cuda_out_count(graph, node, 0)) * sizeof(float);
    *out = device->features & CUDA_HAS_DNN ? (size_t)cuda_convolution_bytes(&state.conv) : 0;
    if (*out < sums_bytes) *out = sums_bytes;
    if (state.sums_bias && state.conv.channels_last) {
        size_t room = cuda_column_sums_bytes(&state.columns);
        if (*out < room) *out = room;
    }
    return TRI_OK;
}

static tri_status prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                          tri_kernel *kernel) {
    conv_state state = state_of(&device->description, graph, node);
    state.conv.workspace_bytes = (int64_t)kernel->workspace_bytes;
    return cuda_prepare(kernel, &state, sizeof state);
}

static tri_status run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const conv_state *state = kernel->state;
    cuda_convolution p = state->conv;
    p.a = args->in[0];
    p.b = args->in[1];
    p.bias = state->bias ? args->in[2] : NULL;
    p.c = args->out[0];
    p.slice_sums = p.slices > 1 ? args->workspace : NULL;
    p.workspace = args->workspace;
    CUDA_LAUNCH(args->queue, convolution, p);
    if (!state->sums_bias) return TRI_OK;
    if (p.channels_last) {
        cuda_column_sums columns = state->columns;
        columns.x = args->in[1];
        columns.sums = args->out[1];
        columns.room = args->workspace; // the convolution no longer needs this memory
        CUDA_LAUNCH(args->queue, column_sums, columns);
        return TRI_OK;
    }
    cuda_channel_sums sums = state->sums;
    sums.x = args->in[1];
    sums.sums = args->out[1];
    CUDA_LAUNCH(args->queue, channel_sums, sums);
    return TRI_OK;
}

#define CONVOLUTION(identifier, opname)                                                            \
    const tri_kernel_def cuda_kernel_##identifier = {.op = &tri_op_##opname,                       \
                                                     .name = "implicit",                           \
                                                     .supports = supports,                         \
                                                     .layouts = layouts,                           \
                                                     .workspace = workspace,                       \
                                                     .prepare = prepare,                           \
                                                     .run = run,                                   \
                                                     .release = cuda_release};
CONVOLUTION(conv2d, conv2d)
CONVOLUTION(conv2d_relu, product_map)
CONVOLUTION(conv2d_grad_input, conv2d_grad_input)
CONVOLUTION(conv2d_grad_weight, conv2d_grad_weight)
