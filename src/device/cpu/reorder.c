// Copies a tensor into another layout. Images in F32 are copied between the plain layout and
// nChw16c by our own code, which transposes one plane (16 channels of a sample) at a time in
// registers. oneDNN does the other reorders, which are small (weights) or BF16.
#include "device/cpu/simd.h"

#include <stdlib.h>

typedef struct reorder_state {
    const cpu_device *device;
    // Our own code runs, from plain to blocked or back. Both false: oneDNN's primitive runs.
    bool to_blocked, to_plain;
    int64_t planes, pixels;  // for our own code: number of planes, and of pixels in a plane
    cpu_primitive primitive; // for oneDNN
} reorder_state;

typedef struct reorder_job {
    const reorder_state *state;
    const float *from;
    float *to;
} reorder_job;

static void planes_range(void *context, int64_t begin, int64_t end, int thread) {
    const reorder_job *job = context;
    int64_t pixels = job->state->pixels, plane = pixels * CPU_BLOCK;
    for (int64_t i = begin; i < end; i++) {
        if (job->state->to_plain)
            cpu_block_to_rows(false, job->from + i * plane, job->to, i * plane, pixels);
        else
            cpu_rows_to_block(false, job->from, i * plane, job->to + i * plane, pixels);
    }
}

static cpu_format format_of(const tri_layout *layout) {
    for (int format = 0; format < CPU_FORMAT_COUNT; format++)
        if (cpu_layout_is(layout, (cpu_format)format)) return (cpu_format)format;
    TRI_ASSERT(!"a layout that no kernel of this device uses");
    return CPU_PLAIN;
}

// Whether this kernel can reorder the value: oneDNN supports BF16 only with AVX-512.
static bool reorder_supports(const tri_device_description *device, const tri_graph *graph,
                             const tri_node *node) {
    tri_dtype dtype = tri_value_get(graph, node->inputs[0])->dtype;
    return dtype == TRI_F32 || (dtype == TRI_BF16 && cpu_has(device, CPU_HAS_AVX512));
}

// Accepts the layouts that input and output have, because the layout pass (pass/layout.c), which
// added this node, has already set both.
static void reorder_layouts(const tri_device_description *device, const tri_graph *graph,
                            const tri_node *node, tri_layout *in, tri_layout *out) {
    in[0] = tri_value_get(graph, node->inputs[0])->layout;
    out[0] = tri_value_get(graph, node->outputs[0])->layout;
}

// A copy of a tensor from one format into another.
typedef struct reorder_request {
    const tri_value_info *x;
    cpu_format from, to;
} reorder_request;

static reorder_request request_of(const tri_graph *graph, const tri_node *node) {
    const tri_value_info *x = tri_value_get(graph, node->inputs[0]);
    return (reorder_request){.x = x,
                             .from = format_of(&x->layout),
                             .to = format_of(&tri_value_get(graph, node->outputs[0])->layout)};
}

// Whether our own code does the reorder, from plain to blocked or (is_to_plain) back, by
// transposing planes, because it is faster than oneDNN.
static bool is_to_blocked(const reorder_request *r) {
    return r->x->dtype == TRI_F32 && r->from == CPU_PLAIN && r->to == CPU_NCHW16C;
}
static bool is_to_plain(const reorder_request *r) {
    return r->x->dtype == TRI_F32 && r->from == CPU_NCHW16C && r->to == CPU_PLAIN;
}

static tri_status describe_between(onednn_md source, onednn_md target, dnnl_primitive_desc_t *out) {
    dnnl_primitive_attr_t attr;
    dnnl_engine_t engine;
    TRI_TRY(cpu_engine(&engine));
    TRI_TRY(cpu_primitive_attr(&attr));
    dnnl_status_t status =
        dnnl_reorder_primitive_desc_create(out, source, engine, target, engine, attr);
    dnnl_primitive_attr_destroy(attr);
    if (status == dnnl_success) return TRI_OK;
    return TRI_FAIL(TRI_INTERNAL, "oneDNN has no such reorder: status %d", status);
}

static tri_status describe(const reorder_request *r, dnnl_primitive_desc_t *out) {
    const tri_shape *shape = &r->x->shape;
    onednn_md source = NULL, target = NULL;
    tri_status status = cpu_format_md(r->from, r->x->dtype, shape->rank, shape->dims, &source);
    if (status == TRI_OK)
        status = cpu_format_md(r->to, r->x->dtype, shape->rank, shape->dims, &target);
    if (status == TRI_OK) status = describe_between(source, target, out);
    onednn_md_destroy(source);
    onednn_md_destroy(target);
    return status;
}

static tri_status reorder_workspace(const tri_device_description *device, const tri_graph *graph,
                                    const tri_node *node, size_t *out) {
    reorder_request r = request_of(graph, node);
    const tri_shape *shape = &r.x->shape;
    int64_t key[5 + TRI_MAX_RANK] = {device->threads, r.from, r.to, r.x->dtype, shape->rank};
    cpu_primitive_facts facts;
    if (is_to_blocked(&r) || is_to_plain(&r)) return TRI_OK;
    for (int i = 0; i < shape->rank; i++) key[5 + i] = shape->dims[i];
    if (!cpu_facts_find(key, sizeof key, &facts)) {
        dnnl_primitive_desc_t pd;
        cpu_use_threads(device);
        TRI_TRY(describe(&r, &pd));
        facts = cpu_primitive_facts_of(pd);
        dnnl_primitive_desc_destroy(pd);
        cpu_facts_keep(key, sizeof key, facts);
    }
    *out = facts.scratchpad_bytes;
    return TRI_OK;
}

static tri_status reorder_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                                  tri_kernel *kernel) {
    reorder_request r = request_of(graph, node);
    cpu_use_threads(&device->description);
    reorder_state *state = calloc(1, sizeof *state);
    if (!state) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a reorder");
    *state = (reorder_state){
        .device = cpu_of(device), .to_blocked = is_to_blocked(&r), .to_plain = is_to_plain(&r)};
    kernel->state = state;
    if (state->to_blocked || state->to_plain) {
        state->planes = r.x->shape.dims[0] * r.x->shape.dims[1] / CPU_BLOCK;
        state->pixels = r.x->shape.dims[2] * r.x->shape.dims[3];
        return TRI_OK;
    }
    dnnl_primitive_desc_t pd;
    TRI_TRY(describe(&r, &pd));
    TRI_TRY(cpu_primitive_make(state->device, pd, (int[]){DNNL_ARG_FROM, DNNL_ARG_TO}, 2,
                               &state->primitive));
    kernel->workspace_bytes = state->primitive.scratchpad_bytes;
    return TRI_OK;
}

static tri_status reorder_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    reorder_state *state = kernel->state;
    if (state->planes) {
        reorder_job job = {.state = state, .from = args->in[0], .to = args->out[0]};
        cpu_parallel(state->device, state->planes, 4, planes_range, &job);
        return TRI_OK;
    }
    cpu_use_threads(&state->device->head.description);
    return cpu_primitive_run(&state->primitive, (void *[]){args->in[0], args->out[0]},
                             args->workspace);
}

static void reorder_release(tri_kernel *kernel) {
    reorder_state *state = kernel->state;
    if (!state) return;
    cpu_primitive_release(&state->primitive);
    free(state);
}

const tri_kernel_def cpu_reorder_dnnl = {
    .op = &tri_op_reorder,
    .name = "planes-or-onednn",
    .supports = reorder_supports,
    .layouts = reorder_layouts,
    .workspace = reorder_workspace,
    .prepare = reorder_prepare,
    .run = reorder_run,
    .release = reorder_release,
};
