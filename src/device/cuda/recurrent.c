// Recurrent layers on the GPU, in F32: for each step one product of the states with the weight, and
// one launch of module/recurrent.cu, which computes the units.
#include "device/cuda/internal.h"

typedef struct recurrent_state {
    tri_recurrent_attr attr;
    int64_t steps, samples, units, width; // width: of all gates together
    int64_t next_sample, next_step;       // distance in rows of a sequence
    cuda_product product;                 // of one step
} recurrent_state;

static bool supports(const tri_device_description *device, const tri_graph *graph,
                     const tri_node *node) {
    for (int i = 0; i < node->input_count; i++)
        if (tri_value_is(node->inputs[i]) && cuda_in_type(graph, node, i) != TRI_F32) return false;
    return true;
}

static recurrent_state state_of(const tri_device_description *device, const tri_graph *graph,
                                const tri_node *node) {
    bool gradient = node->op == &tri_op_recurrent_grad;
    const tri_shape *y = gradient ? cuda_in_shape(graph, node, 1) : cuda_out_shape(graph, node, 0);
    const tri_shape *weight = cuda_in_shape(graph, node, !gradient);
    recurrent_state s = {.attr = *(const tri_recurrent_attr *)node->attr,
                         .units = weight->dims[1],
                         .width = weight->dims[0]};
    s.steps = y->dims[!s.attr.time_first];
    s.samples = y->dims[s.attr.time_first];
    s.next_sample = s.attr.time_first ? 1 : s.steps;
    s.next_step = s.attr.time_first ? s.samples : 1;
    s.product = (cuda_product){.m = s.samples,
                               .n = gradient ? s.units : s.width,
                               .k = gradient ? s.width : s.units,
                               .transpose_b = !gradient,
                               .adds = gradient && s.attr.kind == TRI_RECURRENT_GRU,
                               .in_type = TRI_F32,
                               .out_type = TRI_F32,
                               .tf32 = graph->options.tf32};
    if (device->features & CUDA_HAS_PRODUCTS)
        s.product.workspace_bytes = CUDA_PRODUCT_WORKSPACE_BYTES;
    return s;
}

// The workspace is that of the product, and behind it the products of a step, or their gradient.
static tri_status workspace(const tri_device_description *device, const tri_graph *graph,
                            const tri_node *node, size_t *out) {
    recurrent_state s = state_of(device, graph, node);
    *out = (size_t)s.product.workspace_bytes + (size_t)(s.samples * s.width) * sizeof(float);
    return TRI_OK;
}

static tri_status prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                          tri_kernel *kernel) {
    recurrent_state state = state_of(&device->description, graph, node);
    return cuda_prepare(kernel, &state, sizeof state);
}

// Sets states [samples, units] to others, or to 0 if those are left out.
static tri_status set_states(const recurrent_state *s, tri_queue *queue, void *to,
                             const void *from) {
    size_t bytes = (size_t)(s->samples * s->units) * sizeof(float);
    return from ? cuda_copy_within(queue, to, from, bytes) : cuda_zero(queue, to, bytes);
}

// The first row of a step, whose number is that in the order of computation.
static int64_t row_of(const recurrent_state *s, int64_t step) {
    return (s->attr.reverse ? s->steps - 1 - step : step) * s->next_step;
}

static float *room_of(const recurrent_state *s, const tri_kernel_args *args) {
    return (float *)(void *)((char *)args->workspace + s->product.workspace_bytes);
}

static tri_status recurrent_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const recurrent_state *s = kernel->state;
    bool is_lstm = s->attr.kind == TRI_RECURRENT_LSTM, keeps = s->attr.keeps;
    bool is_plain = !is_lstm && s->attr.kind != TRI_RECURRENT_GRU;
    int64_t states = s->samples * s->units;
    float *cells = keeps && is_lstm ? args->out[4] : NULL;
    cuda_product product = s->product;
    cuda_recurrent_units p = {.kind = (int)s->attr.kind,
                              .samples = s->samples,
                              .units = s->units,
                              .next_sample = s->next_sample,
                              .gates = args->in[0],
                              .product = room_of(s, args),
                              .y = args->out[0],
                              .h = args->out[1],
                              .c = args->out[2]};
    product.a = p.h;
    product.b = args->in[1];
    product.bias = args->in[2];
    product.c = room_of(s, args);
    product.workspace = args->workspace;
    TRI_TRY(set_states(s, args->queue, p.h, args->in[3]));
    if (is_lstm) TRI_TRY(set_states(s, args->queue, p.c, args->in[4]));
    if (cells) TRI_TRY(set_states(s, args->queue, cells, args->in[4]));
    for (int64_t step = 0; step < s->steps; step++) {
        CUDA_LAUNCH(args->queue, product, product);
        p.row = row_of(s, step);
        p.saved = keeps && !is_plain ? (float *)args->out[3] + step * 4 * states : NULL;
        p.cell = cells ? cells + (step + 1) * states : NULL;
        CUDA_LAUNCH(args->queue, recurrent_units, p);
    }
    return TRI_OK;
}

static tri_status recurrent_grad_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const recurrent_state *s = kernel->state;
    bool is_lstm = s->attr.kind == TRI_RECURRENT_LSTM;
    bool is_plain = !is_lstm && s->attr.kind != TRI_RECURRENT_GRU;
    int64_t states = s->samples * s->units;
    const float *saved = args->in[2], *cells = args->in[3];
    cuda_product product = s->product;
    cuda_recurrent_units_grad p = {.kind = (int)s->attr.kind,
                                   .samples = s->samples,
                                   .units = s->units,
                                   .next_sample = s->next_sample,
                                   .y = args->in[1],
                                   .dy = args->in[4],
                                   .h = args->in[7],
                                   .dh = args->out[3],
                                   .dc = args->out[4],
                                   .dgates = args->out[0],
                                   .before = args->out[2],
                                   .dproduct = args->out[1],
                                   .dp = room_of(s, args)};
    product.a = p.dp;
    product.b = args->in[0];
    product.c = p.dh;
    product.workspace = args->workspace;
    TRI_TRY(set_states(s, args->queue, p.dh, args->in[5]));
    if (is_lstm) TRI_TRY(set_states(s, args->queue, p.dc, args->in[6]));
    for (int64_t step = s->steps - 1; step >= 0; step--) {
        p.row = row_of(s, step);
        p.row_before = step > 0 ? row_of(s, step - 1) : 0;
        p.is_first = step == 0;
        p.saved = is_plain ? NULL : saved + step * 4 * states;
        p.cell = is_lstm ? cells + step * states : NULL;
        CUDA_LAUNCH(args->queue, recurrent_units_grad, p);
        CUDA_LAUNCH(args->queue, product, product);
    }
    return TRI_OK;
}

const tri_kernel_def cuda_kernel_recurrent = {.op = &tri_op_recurrent,
                                              .name = "steps",
                                              .supports = supports,
                                              .workspace = workspace,
                                              .prepare = prepare,
                                              .run = recurrent_run,
                                              .release = cuda_release};
const tri_kernel_def cuda_kernel_recurrent_grad = {.op = &tri_op_recurrent_grad,
                                                   .name = "steps",
                                                   .supports = supports,
                                                   .workspace = workspace,
                                                   .prepare = prepare,
                                                   .run = recurrent_grad_run,
                                                   .release = cuda_release};
