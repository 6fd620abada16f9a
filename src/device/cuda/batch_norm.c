// Batch norm and its variants on the GPU: how module/batch_norm.cu is launched. Each op consists of
// a few stages, and a stage is one kernel, so that several ops share it. The ops with "shared" in
// their names normalise over all replicas of the model, which exchange moments (means and sums of
// squared deviations) or sums between two ops.
#include "device/cuda/internal.h"

// Of which stages each op consists.
typedef struct norm_row {
    const tri_op *op;
    unsigned stages;
} norm_row;

static const norm_row rows[] = {
    {&tri_op_batch_norm, CUDA_NORM_MOMENTS | CUDA_NORM_JOIN_SLICES | CUDA_NORM_APPLY},
    {&tri_op_batch_norm_inference, CUDA_NORM_APPLY},
    {&tri_op_batch_norm_grad, CUDA_NORM_GRAD_SUMS | CUDA_NORM_JOIN_SUMS | CUDA_NORM_GRAD_INPUT},
    {&tri_op_batch_norm_moments, CUDA_NORM_MOMENTS | CUDA_NORM_JOIN_SLICES},
    {&tri_op_batch_norm_shared, CUDA_NORM_JOIN_ALL | CUDA_NORM_APPLY},
    {&tri_op_batch_norm_sums, CUDA_NORM_GRAD_SUMS | CUDA_NORM_JOIN_SUMS},
    {&tri_op_batch_norm_shared_grad, CUDA_NORM_GRAD_INPUT},
};

static unsigned stages_of(const tri_op *op) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].op == op) return rows[i].stages;
    return 0;
}

// The type of y, which is output 0 of forward ops and input 1 of gradient ops. batch_norm_moments
// has no y and gets the type of x.
static tri_dtype y_type(const tri_graph *graph, const tri_node *node) {
    if (stages_of(node->op) & CUDA_NORM_APPLY) return cuda_out_type(graph, node, 0);
    return node->op == &tri_op_batch_norm_moments ? cuda_in_type(graph, node, 0)
                                                  : cuda_in_type(graph, node, 1);
}

static bool supports(const tri_device_description *device, const tri_graph *graph,
                     const tri_node *node) {
    const tri_shape *x = cuda_in_shape(graph, node, 0);
    const tri_batch_norm_attr *a = node->op->attr_bytes ? node->attr : NULL;
    if (a && a->pool.kernel[0] != 0) return false;
    return cuda_is_real(cuda_in_type(graph, node, 0)) && tri_shape_count(x) > 0;
}

static cuda_batch_norm params_of(const tri_graph *graph, const tri_node *node) {
    // The attributes of all these ops begin with this struct; an op without attributes has NULL.
    const tri_batch_norm_attr *a = node->attr;
    const tri_shape *x = cuda_in_shape(graph, node, 0);
    cuda_batch_norm p = {.stages = stages_of(node->op),
                         .samples = x->dims[0],
                         .channels = x->dims[1],
                         .x_type = cuda_in_type(graph, node, 0),
                         .y_type = y_type(graph, node),
                         .channels_last = cuda_is_channels_last(graph, node)};
    p.inner = tri_shape_count(x) / (p.samples * p.channels);
    if (a) {
        p.relu = a->relu;
        p.eps = a->eps;
    }
    if (node->op == &tri_op_batch_norm_shared) p.replicas = cuda_in_shape(graph, node, 3)->dims[0];
    if (node->op == &tri_op_batch_norm_shared_grad)
        p.replicas = cuda_in_shape(graph, node, 7)->dims[0];
    return p;
}

static tri_status workspace(const tri_device_description *device, const tri_graph *graph,
                            const tri_node *node, size_t *out) {
    cuda_batch_norm p = params_of(graph, node);
    bool sums = p.stages & (CUDA_NORM_MOMENTS | CUDA_NORM_GRAD_SUMS);
    *out = sums ? (size_t)(2 * p.channels * cuda_norm_slices(&p)) * sizeof(double) : 0;
    return TRI_OK;
}

static tri_status prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                          tri_kernel *kernel) {
    cuda_batch_norm p = params_of(graph, node);
    return cuda_prepare(kernel, &p, sizeof p);
}

static void set_training_outputs(cuda_batch_norm *p, void *const *out) {
    p->y = out[0];
    p->mean = out[1];
    p->inv_std = out[2];
    p->mean_sum = out[3];
    p->var_sum = out[4];
}

static void set_forward(const tri_op *op, cuda_batch_norm *p, const tri_kernel_args *args) {
    p->weight = args->in[1];
    p->bias = args->in[2];
    if (op == &tri_op_batch_norm_inference) {
        p->running_mean = args->in[3];
        p->running_var = args->in[4];
        p->y = args->out[0];
        return;
    }
    if (op == &tri_op_batch_norm_shared) p->all_moments = args->in[3];
    set_training_outputs(p, args->out);
}

static void set_gradient(const tri_op *op, cuda_batch_norm *p, const tri_kernel_args *args) {
    // Inputs begin with x, y, dy, weight, mean, inv_std; outputs with dx. Only batch_norm_sums has
    // no weight and no dx, so its later inputs and outputs come one index earlier: `has_weight` is
    // 0 for it, and 1 for the others.
    int has_weight = op == &tri_op_batch_norm_sums ? 0 : 1;
    p->y = args->in[1];
    p->dy = args->in[2];
    p->weight = has_weight ? args->in[3] : NULL;
    p->mean = args->in[3 + has_weight];
    p->inv_std = args->in[4 + has_weight];
    if (op == &tri_op_batch_norm_shared_grad) {
        p->dx = args->out[0];
        p->sum_dy_h = args->in[6];
        p->sum_dy = p->sum_dy_h + p->channels;
        p->all_moments = args->in[7];
        return;
    }
    p->dx = has_weight ? args->out[0] : NULL;
    p->dweight = args->out[has_weight];
    p->dbias = args->out[1 + has_weight];
    p->sums_out = has_weight ? NULL : args->out[2];
    p->sum_dy_h = p->dweight;
    p->sum_dy = p->dbias;
}

static tri_status run(const tri_kernel *kernel, const tri_kernel_args *args) {
    cuda_batch_norm p = *(const cuda_batch_norm *)kernel->state;
    const tri_op *op = kernel->def->op;
    p.x = args->in[0];
    p.slice_results = args->workspace;
    if (op == &tri_op_batch_norm_moments)
        p.moments = args->out[0];
    else if (p.stages & CUDA_NORM_APPLY)
        set_forward(op, &p, args);
    else
        set_gradient(op, &p, args);
    CUDA_LAUNCH(args->queue, batch_norm, p);
    return TRI_OK;
}

#define NORM(identifier)                                                                           \
    const tri_kernel_def cuda_kernel_##identifier = {.op = &tri_op_##identifier,                   \
                                                     .name = "batch_norm",                         \
                                                     .supports = supports,                         \
                                                     .layouts = cuda_layouts_of_images,            \
                                                     .workspace = workspace,                       \
                                                     .prepare = prepare,                           \
                                                     .run = run,                                   \
                                                     .release = cuda_release};
NORM(batch_norm)
NORM(batch_norm_inference)
NORM(batch_norm_grad)
NORM(batch_norm_moments)
NORM(batch_norm_shared)
NORM(batch_norm_sums)
NORM(batch_norm_shared_grad)
