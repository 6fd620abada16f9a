// Copies a tensor into another layout. Our own code copies images in F32 between the plain layout
// and nChw16c, one plane (16 channels of a sample) at a time. It also copies weights from their
// home layout to those of BF16, before or after they are cast, one block of 16 × 16 channels at a
// time. oneDNN does the other reorders, which are small or of BF16 images.
#include "device/cpu/simd.h"

#include <stdlib.h>

// Copies plane number i of an image, which has so many pixels, or block number i of a weight.
typedef void own_reorder(const void *from, void *to, int64_t i, int64_t pixels);

typedef struct reorder_state {
    const cpu_device *device;
    own_reorder *own;        // NULL: oneDNN's primitive runs
    int64_t parts, pixels;   // for our own code: number of planes or blocks; pixels in a plane
    cpu_primitive primitive; // for oneDNN
} reorder_state;

typedef struct reorder_job {
    const reorder_state *state;
    const void *from;
    void *to;
} reorder_job;

static void plane_to_plain(const void *from, void *to, int64_t i, int64_t pixels) {
    int64_t at = i * pixels * CPU_BLOCK;
    cpu_block_to_rows(false, (const float *)from + at, to, at, pixels);
}

static void plane_to_blocked(const void *from, void *to, int64_t i, int64_t pixels) {
    int64_t at = i * pixels * CPU_BLOCK;
    cpu_rows_to_block(false, from, at, (float *)to + at, pixels);
}

enum { WEIGHT_BLOCK = CPU_BLOCK * CPU_BLOCK }; // elements: [16 input channels][16 output channels]

// Copies a block of a weight to pairs of input channels, [8][16 output channels][2], or of output
// channels, [8][16 input channels][2]. A pair of output channels lies side by side already.
#define WEIGHT_REORDERS(name, element, pair)                                                       \
    static void name##_to_input_pairs(const void *from, void *to, int64_t i, int64_t pixels) {     \
        const element *x = (const element *)from + i * WEIGHT_BLOCK;                               \
        element *y = (element *)to + i * WEIGHT_BLOCK;                                             \
        for (int k = 0; k < CPU_BLOCK / 2; k++, x += 2 * CPU_BLOCK)                                \
            for (int o = 0; o < CPU_BLOCK; o++, y += 2) {                                          \
                y[0] = x[o];                                                                       \
                y[1] = x[CPU_BLOCK + o];                                                           \
            }                                                                                      \
    }                                                                                              \
    static void name##_to_output_pairs(const void *from, void *to, int64_t i, int64_t pixels) {    \
        const pair *x = (const pair *)from + i * WEIGHT_BLOCK / 2;                                 \
        pair *y = (pair *)to + i * WEIGHT_BLOCK / 2;                                               \
        for (int k = 0; k < CPU_BLOCK / 2; k++)                                                    \
            for (int c = 0; c < CPU_BLOCK; c++) *y++ = x[c * CPU_BLOCK / 2 + k];                   \
    }
WEIGHT_REORDERS(bf16, uint16_t, uint32_t)
WEIGHT_REORDERS(f32, uint32_t, uint64_t)

static void own_range(void *context, int64_t begin, int64_t end, int thread) {
    const reorder_job *job = context;
    for (int64_t i = begin; i < end; i++)
        job->state->own(job->from, job->to, i, job->state->pixels);
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

// Our own code for the reorder, where it is faster than oneDNN; NULL: there is none. All these
// layouts exist only with AVX-512.
static own_reorder *own_of(const reorder_request *r) {
    if (r->x->dtype == TRI_F32 && r->from == CPU_PLAIN && r->to == CPU_NCHW16C)
        return plane_to_blocked;
    if (r->x->dtype == TRI_F32 && r->from == CPU_NCHW16C && r->to == CPU_PLAIN)
        return plane_to_plain;
    if (r->from != CPU_OIHW16I16O) return NULL;
    bool bf16 = r->x->dtype == TRI_BF16;
    if (r->to == CPU_OIHW8I16O2I) return bf16 ? bf16_to_input_pairs : f32_to_input_pairs;
    if (r->to == CPU_OIHW8O16I2O) return bf16 ? bf16_to_output_pairs : f32_to_output_pairs;
    return NULL;
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
    if (own_of(&r)) return TRI_OK;
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
    *state = (reorder_state){.device = cpu_of(device), .own = own_of(&r)};
    kernel->state = state;
    if (state->own) {
        bool weight = r.from == CPU_OIHW16I16O;
        state->pixels = r.x->shape.dims[2] * r.x->shape.dims[3];
        state->parts =
            tri_shape_count(&r.x->shape) / (weight ? WEIGHT_BLOCK : state->pixels * CPU_BLOCK);
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
    if (state->own) {
        reorder_job job = {.state = state, .from = args->in[0], .to = args->out[0]};
        cpu_parallel(state->device, state->parts, 4, own_range, &job);
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
    .name = "own-or-onednn",
    .supports = reorder_supports,
    .layouts = reorder_layouts,
    .workspace = reorder_workspace,
    .prepare = reorder_prepare,
    .run = reorder_run,
    .release = reorder_release,
};
