// Convolutions by cuDNN (dnn.h). If possible, the plan also adds the bias and applies the
// ReLU, in F32, and rounds once. If the library has no such plan, a kernel of our own does
// this afterwards (convolution.cu). No plan writes the gradient of a weight in F32 from inputs of a
// half type (F16, BF16). So this gradient is rounded to the half type, as in PyTorch, and a kernel
// of our own widens it to F32.
#include "device/cuda/module/dnn.h"

#if defined(DNN_IS_THERE)

#include <string.h>

namespace {

typedef dnn_descriptor descriptor;

enum { X_ID = 1, WEIGHT_ID, Y_ID, BIAS_ID, SUM_ID, BIASED_ID };
enum { WORKSPACE_ALIGNMENT = 256 };

// Describes a tensor of 4 axes, of which the second is that of the channels.
descriptor tensor_of(const cuda_convolution *p, int64_t id, cudnnDataType_t type, bool is_in_memory,
                     int64_t a, int64_t b, int64_t c, int64_t d) {
    int64_t dims[] = {a, b, c, d}, strides[] = {b * c * d, c * d, d, 1};
    int64_t last[] = {b * c * d, 1, d * b, b};
    return dnn_tensor(id, type, is_in_memory ? DNN_IN_MEMORY : DNN_VIRTUAL, dims,
                      p->channels_last ? last : strides);
}

descriptor window_of(const cuda_convolution *p) {
    descriptor window(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    auto set_pair = [&](cudnnBackendAttributeName_t name, const int(&values)[2]) {
        int64_t pair[] = {values[0], values[1]};
        window.set(name, CUDNN_TYPE_INT64, 2, pair);
    };
    window.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    window.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    window.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, (int64_t)2);
    set_pair(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, p->padding);
    set_pair(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, p->padding);
    set_pair(CUDNN_ATTR_CONVOLUTION_DILATIONS, p->dilation);
    set_pair(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, p->stride);
    window.finalize();
    return window;
}

// What cuDNN calls one of the three computations of cuda_convolution_kind: the type of its
// operation, and the operation's attributes.
struct kind_names {
    cudnnBackendDescriptorType_t operation;
    cudnnBackendAttributeName_t x, weight, y, window, alpha, beta;
};

const kind_names names[] = {
    // Indexed by cuda_convolution_kind.
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

descriptor convolution_of(const cuda_convolution *p, const descriptor &y) {
    const kind_names &n = names[p->kind];
    cudnnDataType_t type = dnn_type(p->in_type);
    descriptor x = tensor_of(p, X_ID, type, true, p->samples, p->channels, p->in[0], p->in[1]);
    descriptor weight = tensor_of(p, WEIGHT_ID, type, true, p->features, p->channels / p->groups,
                                  p->kernel[0], p->kernel[1]);
    descriptor window = window_of(p), operation(n.operation);
    operation.set(n.x, x);
    operation.set(n.weight, weight);
    operation.set(n.y, y);
    operation.set(n.window, window);
    operation.set(n.alpha, 1.0f);
    operation.set(n.beta, 0.0f);
    operation.finalize();
    return operation;
}

bool has_epilogue(const cuda_convolution *p) {
    return p->kind == CUDA_FORWARD && (p->bias || p->relu);
}

// Describes the convolution and, if `with_epilogue`, bias and ReLU after it. Values that pass
// from one operation to the next are F32.
descriptor graph_of(cudnnHandle_t handle, const cuda_convolution *p, bool with_epilogue) {
    cudnnDataType_t type = dnn_type(p->in_type);
    bool has_bias = with_epilogue && p->bias;
    bool has_relu = with_epilogue && p->relu;
    auto output = [=](int64_t id, bool is_last) {
        return tensor_of(p, id, is_last ? type : CUDNN_DATA_FLOAT, is_last, p->samples, p->features,
                         p->out[0], p->out[1]);
    };
    descriptor sum = with_epilogue ? output(SUM_ID, false) : output(Y_ID, true);
    descriptor biased = output(has_relu ? BIASED_ID : Y_ID, !has_relu);
    descriptor y = output(Y_ID, true),
               bias = tensor_of(p, BIAS_ID, type, true, 1, p->features, 1, 1);
    std::vector<descriptor> operations;
    operations.push_back(convolution_of(p, sum));
    if (has_bias)
        operations.push_back(dnn_pointwise({CUDNN_POINTWISE_ADD}, sum, &bias, nullptr, biased));
    if (has_relu)
        operations.push_back(dnn_pointwise({CUDNN_POINTWISE_RELU_FWD}, has_bias ? biased : sum,
                                           nullptr, nullptr, y));
    return dnn_graph(handle, operations);
}

// How many bytes at the start of the workspace hold the gradient of the weight, which cuDNN writes
// in a half type and the caller then converts to F32; 0: cuDNN writes the output directly.
int64_t held_bytes(const cuda_convolution *p) {
    if (p->kind != CUDA_GRAD_WEIGHT || p->in_type == TRI_F32) return 0;
    int64_t elements = p->features * (p->channels / p->groups) * p->kernel[0] * p->kernel[1];
    int64_t bytes = elements * (int64_t)sizeof(uint16_t);
    return (bytes + WORKSPACE_ALIGNMENT - 1) / WORKSPACE_ALIGNMENT * WORKSPACE_ALIGNMENT;
}

// The numbers on which the choice of a plan depends.
std::vector<int64_t> key_of(const cuda_convolution *p) {
    std::vector<int64_t> key = {p->kind,     p->in_type,        p->tf32,     p->channels_last,
                                p->out_type, p->samples,        p->channels, p->features,
                                p->groups,   p->workspace_bytes};
    if (has_epilogue(p)) {
        key.push_back(p->bias != nullptr);
        key.push_back(p->relu);
    }
    for (int i = 0; i < 2; i++)
        for (int value : {p->in[i], p->kernel[i], p->stride[i], p->padding[i], p->dilation[i]})
            key.push_back(value);
    return key;
}

} // namespace

bool vendor_has_dnn() { return dnn() != nullptr; }

bool vendor_convolution(cuda_stream *stream, const cuda_convolution *p, vendor_left *left,
                        tri_status *status, char *why) {
    uintptr_t addresses = (uintptr_t)p->a | (uintptr_t)p->b | (uintptr_t)p->c | (uintptr_t)p->bias;
    if (!dnn() || !p->workspace || p->samples == 0 || addresses % DNN_ALIGNMENT) return false;
    int64_t held = held_bytes(p);
    const void *weight_gradient = held ? p->workspace : p->c;
    // For each cuda_convolution_kind: the addresses of x, of the weight and of y, or of their
    // gradients.
    const void *operands[][3] = {
        {p->a, p->b, p->c}, {p->c, p->b, p->a}, {p->a, weight_gradient, p->b}};
    const void *const *x = operands[p->kind];
    bool has_bias = p->kind == CUDA_FORWARD && p->bias, with_epilogue = false;
    dnn_request request = {};
    request.kind = "convolution 1";
    request.key = key_of(p);
    request.in_type = p->in_type;
    request.tf32 = p->tf32;
    request.has_epilogue = has_epilogue(p);
    request.graph = [p](cudnnHandle_t handle, bool with) { return graph_of(handle, p, with); };
    request.ids = {X_ID, WEIGHT_ID, Y_ID};
    request.addresses = {x[0], x[1], x[2]};
    request.epilogue_operands = has_bias;
    request.workspace = (char *)p->workspace + held;
    request.workspace_bytes = p->workspace_bytes - held;
    if (has_bias) {
        request.ids.push_back(BIAS_ID);
        request.addresses.push_back(p->bias);
    }
    if (!dnn_compute(stream, request, &with_epilogue, status, why)) return false;
    *left = held                                ? VENDOR_LEFT_WIDEN
            : has_epilogue(p) && !with_epilogue ? VENDOR_LEFT_FINISH
                                                : VENDOR_LEFT_NOTHING;
    return true;
}
#else // for HIP, or without cuDNN's header: our own kernel computes every convolution
bool vendor_has_dnn() { return false; }
bool vendor_convolution(cuda_stream *, const cuda_convolution *, vendor_left *, tri_status *,
                        char *) {
    return false;
}
#endif
