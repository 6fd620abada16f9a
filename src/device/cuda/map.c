// The general ops on the GPU: how module/map.cu is launched.
#include "device/cuda/internal.h"
#include "device/map_compiled.h"
#include "device/map_plan.h"
#include "device/reduce_pair.h"
#include "device/reduce_plan.h"

static bool map_supports(const tri_device_description *device, const tri_graph *graph,
                         const tri_node *node) {
    return true;
}

static tri_status map_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                              tri_kernel *kernel) {
    bool mixed;
    cuda_map p = {.type = tri_map_plan_type(graph, node, &mixed),
                  .mask = ((const tri_map_attr *)node->attr)->mask};
    tri_map_plan_make(graph, node, &p.plan);
    for (int k = 0; k < p.plan.formula.input_count; k++)
        p.bytes |= (unsigned)(cuda_in_type(graph, node, k) == TRI_U8 && p.type != TRI_U8) << k;
    return cuda_prepare(kernel, &p, sizeof p);
}

static tri_status map_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    cuda_map p = *(const cuda_map *)kernel->state;
    for (int k = 0; k < p.plan.formula.input_count; k++) p.in[k] = args->in[k];
    for (int k = 0; k < p.plan.formula.output_count; k++) p.out[k] = args->out[k];
    CUDA_LAUNCH(args->queue, map, p);
    return TRI_OK;
}

const tri_kernel_def cuda_kernel_map = {.op = &tri_op_map,
                                        .name = "steps",
                                        .supports = map_supports,
                                        .layouts = tri_map_layouts,
                                        .prepare = map_prepare,
                                        .run = map_run,
                                        .release = cuda_release};

static bool update_supports(const tri_device_description *device, const tri_graph *graph,
                            const tri_node *node) {
    return cuda_in_type(graph, node, 0) == TRI_F32;
}

static tri_status update_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                                 tri_kernel *kernel) {
    const tri_map_update_attr *attr = node->attr;
    const tri_value_info *param = tri_value_get(graph, node->inputs[0]);
    cuda_map_update p = {.lr_factor = attr->lr_factor,
                         .count_input = tri_map_update_count(&attr->formula)};
    tri_map_plan_formula(&attr->formula, tri_layout_elements(&param->layout, &param->shape),
                         &p.plan);
    return cuda_prepare(kernel, &p, sizeof p);
}

static tri_status update_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    cuda_map_update p = *(const cuda_map_update *)kernel->state;
    p.arrays[0] = args->in[0];
    p.grad = args->in[1];
    p.step = args->in[2];
    for (int k = 1; k < p.plan.formula.output_count; k++) p.arrays[k] = args->in[2 + k];
    CUDA_LAUNCH(args->queue, map_update, p);
    return TRI_OK;
}

const tri_kernel_def cuda_kernel_map_update = {.op = &tri_op_map_update,
                                               .name = "steps",
                                               .supports = update_supports,
                                               .layouts = cuda_update_layouts,
                                               .prepare = update_prepare,
                                               .run = update_run,
                                               .release = cuda_release};

static bool compiled_supports(const tri_device_description *device, const tri_graph *graph,
                              const tri_node *node) {
    double slope;
    bool mixed;
    tri_dtype type = tri_map_plan_type(graph, node, &mixed);
    return !mixed && (cuda_is_real(type) || type == TRI_F64) && tri_map_is_flat(graph, node) &&
           tri_compiled_find(&((const tri_map_attr *)node->attr)->formula, &slope) !=
               TRI_COMPILED_COUNT;
}

static tri_status compiled_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                                   tri_kernel *kernel) {
    const tri_value_info *y = tri_value_get(graph, node->outputs[0]);
    cuda_map_compiled p = {.type = cuda_in_type(graph, node, 0),
                           .count = tri_layout_elements(&y->layout, &y->shape)};
    p.row = tri_compiled_find(&((const tri_map_attr *)node->attr)->formula, &p.slope);
    return cuda_prepare(kernel, &p, sizeof p);
}

static tri_status compiled_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    cuda_map_compiled p = *(const cuda_map_compiled *)kernel->state;
    for (int k = 0; k < TRI_COMPILED_INPUTS; k++) p.in[k] = args->in[k];
    for (int k = 0; k < TRI_COMPILED_OUTPUTS; k++) p.out[k] = args->out[k];
    CUDA_LAUNCH(args->queue, map_compiled, p);
    return TRI_OK;
}

const tri_kernel_def cuda_kernel_map_compiled = {.op = &tri_op_map,
                                                 .name = "compiled",
                                                 .supports = compiled_supports,
                                                 .layouts = tri_map_layouts,
                                                 .prepare = compiled_prepare,
                                                 .run = compiled_run,
                                                 .release = cuda_release};

static bool make_plan(const tri_graph *graph, const tri_node *node, tri_reduce_plan *plan) {
    return tri_reduce_plan_make(&tri_value_get(graph, node->inputs[0])->shape,
                                ((const tri_reduce_attr *)node->attr)->axes, 1, false, plan);
}

static bool reduce_supports(const tri_device_description *device, const tri_graph *graph,
                            const tri_node *node) {
    tri_reduce_plan plan;
    return cuda_is_number(cuda_in_type(graph, node, 0)) && make_plan(graph, node, &plan);
}

static tri_status reduce_workspace(const tri_device_description *device, const tri_graph *graph,
                                   const tri_node *node, size_t *out) {
    tri_reduce_plan plan;
    make_plan(graph, node, &plan);
    *out = (size_t)(plan.outer * plan.parts * plan.inner) * sizeof(tri_reduce_pair);
    return TRI_OK;
}

static tri_status reduce_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                                 tri_kernel *kernel) {
    tri_reduce_plan plan;
    make_plan(graph, node, &plan);
    cuda_reduce p = {.kind = (int)((const tri_reduce_attr *)node->attr)->kind,
                     .type = cuda_in_type(graph, node, 0),
                     .outer = plan.outer,
                     .reduced = plan.reduced,
                     .inner = plan.inner,
                     .parts = plan.parts,
                     .part = plan.part};
    return cuda_prepare(kernel, &p, sizeof p);
}

static tri_status reduce_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    cuda_reduce p = *(const cuda_reduce *)kernel->state;
    p.x = args->in[0];
    p.y = args->out[0];
    p.room = args->workspace;
    CUDA_LAUNCH(args->queue, reduce, p);
    return TRI_OK;
}

const tri_kernel_def cuda_kernel_reduce = {.op = &tri_op_reduce,
                                           .name = "parts",
                                           .supports = reduce_supports,
                                           .workspace = reduce_workspace,
                                           .prepare = reduce_prepare,
                                           .run = reduce_run,
                                           .release = cuda_release};
