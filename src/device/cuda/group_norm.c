// Group norm and its gradient on the GPU: how module/group_norm.cu is launched.
#include "device/cuda/internal.h"

static int64_t channels_of(const tri_graph *graph, const tri_node *node) {
    return tri_value_get(graph, node->inputs[0])->shape.dims[1];
}

static int64_t inner_of(const tri_graph *graph, const tri_node *node) {
    const tri_shape *x = &tri_value_get(graph, node->inputs[0])->shape;
    int64_t inner = 1;
    for (int i = 2; i < x->rank; i++) inner *= x->dims[i];
    return inner;
}

static int64_t samples_of(const tri_graph *graph, const tri_node *node) {
    return tri_value_get(graph, node->inputs[0])->shape.dims[0];
}

static tri_status prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                          tri_kernel *kernel) {
    const tri_group_norm_attr *attr = node->attr;
    int64_t channels = channels_of(graph, node);
    cuda_group_norm p = {.samples = samples_of(graph, node),
                         .channels = channels,
                         .group = channels / attr->groups,
                         .inner = inner_of(graph, node),
                         .eps = (float)attr->norm.eps,
                         .x_type = cuda_in_type(graph, node, 0),
                         .y_type = cuda_out_type(graph, node, 0)};
    return cuda_prepare(kernel, &p, sizeof p);
}

static tri_status run(const tri_kernel *kernel, const tri_kernel_args *args) {
    cuda_group_norm p = *(const cuda_group_norm *)kernel->state;
    p.x = args->in[0];
    p.weight = args->in[1];
    p.bias = args->in[2];
    p.y = args->out[0];
    p.mean = args->out[1];
    p.inv = args->out[2];
    CUDA_LAUNCH(args->queue, group_norm, p);
    return TRI_OK;
}

// The workspace has, for each sample, the sums over its pixels for the gradients of the weight and
// of the bias, and behind them the workspace of the kernel that adds up the samples.
static tri_status grad_workspace(const tri_device_description *device, const tri_graph *graph,
                                 const tri_node *node, size_t *out) {
    int64_t samples = samples_of(graph, node), channels = channels_of(graph, node);
    cuda_column_sums added = cuda_column_sums_of(samples, channels, TRI_F32);
    *out = 2 * (size_t)(samples * channels) * sizeof(float) + cuda_column_sums_bytes(&added);
    return TRI_OK;
}

static tri_status grad_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                               tri_kernel *kernel) {
    const tri_group_norm_attr *attr = node->attr;
    int64_t channels = channels_of(graph, node);
    cuda_group_norm_grad p = {.samples = samples_of(graph, node),
                              .channels = channels,
                              .group = channels / attr->groups,
                              .inner = inner_of(graph, node),
                              .x_type = cuda_in_type(graph, node, 0),
                              .y_type = cuda_in_type(graph, node, 1)};
    return cuda_prepare(kernel, &p, sizeof p);
}

static tri_status add_samples(const tri_kernel_args *args, const cuda_group_norm_grad *p,
                              const float *terms, float *out) {
    cuda_column_sums sums = cuda_column_sums_of(p->samples, p->channels, TRI_F32);
    sums.x = terms;
    sums.sums = out;
    sums.room = p->dbias + p->samples * p->channels;
    CUDA_LAUNCH(args->queue, column_sums, sums);
    return TRI_OK;
}

static tri_status grad_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    cuda_group_norm_grad p = *(const cuda_group_norm_grad *)kernel->state;
    p.x = args->in[0];
    p.dy = args->in[1];
    p.mean = args->in[2];
    p.inv = args->in[3];
    p.weight = args->in[4];
    p.dx = args->out[0];
    p.dweight = args->workspace;
    p.dbias = p.dweight + p.samples * p.channels;
    CUDA_LAUNCH(args->queue, group_norm_grad, p);
    if (!p.weight) return TRI_OK;
    TRI_TRY(add_samples(args, &p, p.dweight, args->out[1]));
    return add_samples(args, &p, p.dbias, args->out[2]);
}

const tri_kernel_def cuda_kernel_group_norm = {.op = &tri_op_group_norm,
                                               .name = "group-norm",
                                               .supports = cuda_takes_real,
                                               .prepare = prepare,
                                               .run = run,
                                               .release = cuda_release};
const tri_kernel_def cuda_kernel_group_norm_grad = {.op = &tri_op_group_norm_grad,
                                                    .name = "group-norm",
                                                    .supports = cuda_takes_real,
                                                    .workspace = grad_workspace,
                                                    .prepare = grad_prepare,
                                                    .run = grad_run,
                                                    .release = cuda_release};
