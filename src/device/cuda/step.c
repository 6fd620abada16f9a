// What ends a step, on the GPU: updates by the optimizer, sums of squares of the gradients, and the
// step scalars (learning rate, factor of the gradients, …): how module/step.cu is launched.
#include "device/cuda/internal.h"

#include <string.h>

static bool first_is_f32(const tri_device_description *device, const tri_graph *graph,
                         const tri_node *node) {
    return cuda_in_type(graph, node, 0) == TRI_F32;
}

static cuda_update update_of(const tri_node *node) {
    if (node->op == &tri_op_sgd) {
        const tri_sgd_attr *a = node->attr;
        return (cuda_update){.rule = CUDA_SGD,
                             .nesterov_or_decoupled = a->nesterov,
                             .number = {a->momentum, a->dampening},
                             .lr_factor = a->lr_factor,
                             .weight_decay = a->weight_decay};
    }
    if (node->op == &tri_op_adam) {
        const tri_adam_attr *a = node->attr;
        return (cuda_update){.rule = CUDA_ADAM,
                             .nesterov_or_decoupled = a->decoupled,
                             .number = {a->beta1, a->beta2, a->eps},
                             .lr_factor = a->lr_factor,
                             .weight_decay = a->weight_decay};
    }
    if (node->op == &tri_op_adadelta) {
        const tri_adadelta_attr *a = node->attr;
        return (cuda_update){.rule = CUDA_ADADELTA,
                             .number = {a->rho, a->eps},
                             .lr_factor = a->lr_factor,
                             .weight_decay = a->weight_decay};
    }
    if (node->op == &tri_op_average_weights) return (cuda_update){.rule = CUDA_AVERAGE_WEIGHTS};
    const tri_moving_average_attr *a = node->attr;
    return (cuda_update){.rule = CUDA_MOVING_AVERAGE, .number = {a->momentum}};
}

void cuda_update_layouts(const tri_device_description *device, const tri_graph *graph,
                         const tri_node *node, tri_layout *in, tri_layout *out) {
    for (int i = 1; i < node->input_count; i++)
        if (i != 2) in[i] = in[0];
}

static tri_status update_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                                 tri_kernel *kernel) {
    const tri_value_info *param = tri_value_get(graph, node->inputs[0]);
    cuda_update p = update_of(node);
    p.count = tri_layout_elements(&param->layout, &param->shape);
    return cuda_prepare(kernel, &p, sizeof p);
}

static tri_status update_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    cuda_update p = *(const cuda_update *)kernel->state;
    p.param = args->in[0];
    p.grad = args->in[1];
    p.step = args->in[2];
    for (int i = 3; i < kernel->def->op->input_count; i++) p.state[i - 3] = args->in[i];
    CUDA_LAUNCH(args->queue, update, p);
    return TRI_OK;
}

static tri_status squares_workspace(const tri_device_description *device, const tri_graph *graph,
                                    const tri_node *node, size_t *out) {
    *out = CUDA_SQUARES_BLOCKS * sizeof(double);
    return TRI_OK;
}

static tri_status squares_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                                  tri_kernel *kernel) {
    const tri_sum_of_squares_attr *a = node->attr;
    cuda_squares p = {.count = cuda_in_count(graph, node, 0)};
    int64_t turns = (p.count + CUDA_SQUARES_TURN - 1) / CUDA_SQUARES_TURN;
    p.chunk = a->chunk ? a->chunk : p.count;
    p.blocks = turns < CUDA_SQUARES_BLOCKS ? (int)turns : CUDA_SQUARES_BLOCKS;
    return cuda_prepare(kernel, &p, sizeof p);
}

static tri_status squares_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    cuda_squares p = *(const cuda_squares *)kernel->state;
    p.block_sums = args->workspace;
    p.x = args->in[0];
    p.sums = args->out[0];
    if (p.count == 0) return cuda_zero(args->queue, p.sums, sizeof *p.sums);
    CUDA_LAUNCH(args->queue, squares, p);
    return TRI_OK;
}

static tri_status sum_rows_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                                   tri_kernel *kernel) {
    const tri_shape *x = cuda_in_shape(graph, node, 0);
    cuda_sum_rows p = {.rows = x->dims[0], .width = x->dims[1]};
    return cuda_prepare(kernel, &p, sizeof p);
}

static tri_status sum_rows_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    cuda_sum_rows p = *(const cuda_sum_rows *)kernel->state;
    p.x = args->in[0];
    p.sums = args->out[0];
    CUDA_LAUNCH(args->queue, sum_rows, p);
    return TRI_OK;
}

_Static_assert(sizeof(tri_step_numbers_attr) <= CUDA_STEP_ATTR_WORDS * sizeof(int64_t), "they fit");

static tri_status step_numbers_prepare(tri_device *device, const tri_graph *graph,
                                       const tri_node *node, tri_kernel *kernel) {
    cuda_step_numbers p = {.carried = NULL};
    memcpy(p.attr, node->attr, sizeof(tri_step_numbers_attr));
    return cuda_prepare(kernel, &p, sizeof p);
}

static tri_status step_numbers_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    cuda_step_numbers p = *(const cuda_step_numbers *)kernel->state;
    p.carried = args->in[0];
    p.control = args->in[1];
    p.sums = args->in[2];
    p.squares = args->in[3];
    p.after = args->out[0];
    p.step = args->out[1];
    CUDA_LAUNCH(args->queue, step_numbers, p);
    return TRI_OK;
}

static tri_status not_finite_prepare(tri_device *device, const tri_graph *graph,
                                     const tri_node *node, tri_kernel *kernel) {
    cuda_not_finite p = {.range_count = cuda_in_shape(graph, node, 1)->dims[0]};
    return cuda_prepare(kernel, &p, sizeof p);
}

static tri_status not_finite_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    cuda_not_finite p = *(const cuda_not_finite *)kernel->state;
    p.x = args->in[0];
    p.ranges = args->in[1];
    p.step = args->in[2];
    p.found = args->out[0];
    CUDA_LAUNCH(args->queue, not_finite, p);
    return TRI_OK;
}

static tri_status loss_seeds_prepare(tri_device *device, const tri_graph *graph,
                                     const tri_node *node, tri_kernel *kernel) {
    cuda_loss_seeds p = {.count = cuda_out_count(graph, node, 0)};
    return cuda_prepare(kernel, &p, sizeof p);
}

static tri_status loss_seeds_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    cuda_loss_seeds p = *(const cuda_loss_seeds *)kernel->state;
    p.carried = args->in[0];
    p.losses = args->in[1];
    p.seeds = args->out[0];
    CUDA_LAUNCH(args->queue, loss_seeds, p);
    return TRI_OK;
}

#define UPDATE(identifier)                                                                         \
    const tri_kernel_def cuda_kernel_##identifier = {.op = &tri_op_##identifier,                   \
                                                     .name = "update",                             \
                                                     .supports = first_is_f32,                     \
                                                     .layouts = cuda_update_layouts,               \
                                                     .prepare = update_prepare,                    \
                                                     .run = update_run,                            \
                                                     .release = cuda_release};
UPDATE(sgd)
UPDATE(adam)
UPDATE(adadelta)
UPDATE(moving_average)
UPDATE(average_weights)

#define STEP(identifier, function)                                                                 \
    const tri_kernel_def cuda_kernel_##identifier = {.op = &tri_op_##identifier,                   \
                                                     .name = "step",                               \
                                                     .prepare = function##_prepare,                \
                                                     .run = function##_run,                        \
                                                     .release = cuda_release};
STEP(sum_rows, sum_rows)
STEP(step_numbers, step_numbers)
STEP(loss_seeds, loss_seeds)

const tri_kernel_def cuda_kernel_first_not_finite = {.op = &tri_op_first_not_finite,
                                                     .name = "step",
                                                     .supports = first_is_f32,
                                                     .prepare = not_finite_prepare,
                                                     .run = not_finite_run,
                                                     .release = cuda_release};
const tri_kernel_def cuda_kernel_sum_of_squares = {.op = &tri_op_sum_of_squares,
                                                   .name = "step",
                                                   .supports = first_is_f32,
                                                   .workspace = squares_workspace,
                                                   .prepare = squares_prepare,
                                                   .run = squares_run,
                                                   .release = cuda_release};
