// The steps of recurrent layers over whole sequences, in F32, and their gradient. A thread takes
// some samples and computes all their steps, so that threads never wait for each other, and a
// result does not depend on their number. In each step it multiplies the states of its samples with
// the weight, which was packed once, and then computes the units.
#include "device/cpu/functions.h"
#include "device/cpu/linear.h"

#define RECURRENT_SIGMOID(x) cpu_sigmoid_scalar(x)
#define RECURRENT_TANH(x) cpu_tanh_scalar(x)
#include "ops/recurrent_step.h"

#include <stdlib.h>
#include <string.h>

enum { RECURRENT_GRAIN = 1 << 17 }; // multiplications that are worth a second thread

typedef struct recurrent_state {
    const cpu_device *device;
    cpu_device worker; // the device as a product of one thread sees it
    tri_recurrent_attr attr;
    int64_t steps, samples, units, width; // width: of all gates together
    int64_t next_sample, next_step;       // distance in rows of a sequence
    // The product of a step, for one sample: of the state with the weight, or in the gradient of
    // the gates' gradient with the weight. Columns are padded to whole panels.
    cpu_gemm product;
    int64_t packed; // floats in which the weight is packed; 0: it lies in panels already
} recurrent_state;

// The addresses of a node's tensors and of the workspace, and the step that is computed. Where a
// tensor is left out, the address is NULL.
typedef struct recurrent_job {
    const recurrent_state *state;
    int64_t step; // in the order of computation
    cpu_matrix weight;
    const float *bias, *gates, *h, *c, *dy, *dlast_h, *dlast_c;
    // y, saved and cells are outputs, and in the gradient inputs.
    float *y, *last_h, *last_c, *saved, *cells;
    float *dgates, *dproduct, *before, *dh_out, *dc;
    float *product, *kept; // forward: products of the step; the units' gates, if not `saved`
    float *dh, *dp;        // gradient: of the states [samples, padded], of the products
    cpu_range compute;
} recurrent_job;

// The row of a sequence that a sample has in this step, or `back` steps before.
CPU_SCALAR int64_t row_of(const recurrent_job *job, int64_t sample, int64_t back) {
    const recurrent_state *s = job->state;
    int64_t step = job->step - back;
    return sample * s->next_sample + (s->attr.reverse ? s->steps - 1 - step : step) * s->next_step;
}

// What a sample reads and writes in this step of the forward pass.
typedef struct sample_step {
    const float *x, *p; // products of the input and of the last state, by gate
    float *y, *h;       // the new state: in the sequence, and as the last one
    float *kept;        // the units' gates
} sample_step;

CPU_SCALAR sample_step step_of(const recurrent_job *job, int64_t n) {
    const recurrent_state *s = job->state;
    int64_t row = row_of(job, n, 0), at = 4 * s->units * n;
    return (sample_step){.x = job->gates + row * s->width,
                         .p = job->product + n * s->product.n,
                         .y = job->y + row * s->units,
                         .h = job->last_h + n * s->units,
                         .kept = job->saved
                                     ? job->saved + 4 * s->units * job->step * s->samples + at
                                     : job->kept + at};
}

// Elements [begin, end) of the bodies are samples.
CPU_BODY lstm_body(void *context, int64_t begin, int64_t end) {
    const recurrent_job *job = context;
    const recurrent_state *s = job->state;
    int64_t units = s->units, first = job->step * s->samples;
    for (int64_t n = begin; n < end; n++) {
        sample_step at = step_of(job, n);
        const float *x = at.x, *p = at.p;
        float *y = at.y, *h = at.h, *kept = at.kept;
        float *last = job->last_c + n * units;
        const float *c = job->cells ? job->cells + (first + n) * units : last;
        float *next = job->cells ? job->cells + (first + s->samples + n) * units : last;
#pragma omp simd
        for (int64_t u = 0; u < units; u++) {
            recurrent_lstm_unit unit = recurrent_lstm(x[u] + p[u], x[units + u] + p[units + u],
                                                      x[2 * units + u] + p[2 * units + u],
                                                      x[3 * units + u] + p[3 * units + u], c[u]);
            kept[u] = unit.i;
            kept[units + u] = unit.f;
            kept[2 * units + u] = unit.g;
            kept[3 * units + u] = unit.o;
            next[u] = last[u] = unit.c;
            y[u] = h[u] = unit.h;
        }
    }
}

CPU_BODY gru_body(void *context, int64_t begin, int64_t end) {
    const recurrent_job *job = context;
    const recurrent_state *s = job->state;
    int64_t units = s->units;
    for (int64_t n = begin; n < end; n++) {
        sample_step at = step_of(job, n);
        const float *x = at.x, *p = at.p;
        float *y = at.y, *h = at.h, *kept = at.kept;
#pragma omp simd
        for (int64_t u = 0; u < units; u++) {
            recurrent_gru_unit unit = recurrent_gru(x[u], x[units + u], x[2 * units + u], p[u],
                                                    p[units + u], p[2 * units + u], h[u]);
            kept[u] = unit.r;
            kept[units + u] = unit.z;
            kept[2 * units + u] = unit.n;
            kept[3 * units + u] = unit.p;
            y[u] = h[u] = unit.h;
        }
    }
}

CPU_BODY plain_body(void *context, int64_t begin, int64_t end) {
    const recurrent_job *job = context;
    const recurrent_state *s = job->state;
    bool relu = s->attr.kind == TRI_RECURRENT_RELU;
    int64_t units = s->units;
    for (int64_t n = begin; n < end; n++) {
        sample_step at = step_of(job, n);
        const float *x = at.x, *p = at.p;
        float *y = at.y, *h = at.h;
#pragma omp simd
        for (int64_t u = 0; u < units; u++) {
            float sum = x[u] + p[u], t = RECURRENT_TANH(sum);
            y[u] = h[u] = !relu ? t : sum <= 0 ? 0 : sum;
        }
    }
}

CPU_BODY lstm_grad_body(void *context, int64_t begin, int64_t end) {
    const recurrent_job *job = context;
    const recurrent_state *s = job->state;
    int64_t units = s->units, first = job->step * s->samples;
    for (int64_t n = begin; n < end; n++) {
        const float *kept = job->saved + (first + n) * 4 * units;
        const float *c = job->cells + (first + n) * units, *next = c + s->samples * units;
        const float *dh = job->dh + n * s->product.n;
        float *dc = job->dc + n * units, *dp = job->dp + n * s->width;
        float *dgates = job->dgates + row_of(job, n, 0) * s->width;
#pragma omp simd
        for (int64_t u = 0; u < units; u++) {
            recurrent_lstm_unit unit = {
                kept[u], kept[units + u], kept[2 * units + u], kept[3 * units + u], next[u], 0};
            recurrent_lstm_unit d = recurrent_lstm_grad(unit, c[u], dh[u], dc[u]);
            dgates[u] = dp[u] = d.i;
            dgates[units + u] = dp[units + u] = d.f;
            dgates[2 * units + u] = dp[2 * units + u] = d.g;
            dgates[3 * units + u] = dp[3 * units + u] = d.o;
            dc[u] = d.c;
        }
    }
}

CPU_BODY gru_grad_body(void *context, int64_t begin, int64_t end) {
    const recurrent_job *job = context;
    const recurrent_state *s = job->state;
    int64_t units = s->units, first = job->step * s->samples;
    for (int64_t n = begin; n < end; n++) {
        const float *kept = job->saved + (first + n) * 4 * units;
        const float *h = job->before + row_of(job, n, 0) * units;
        float *dh = job->dh + n * s->product.n, *dp = job->dp + n * s->width;
        float *dgates = job->dgates + row_of(job, n, 0) * s->width;
        float *dproduct = job->dproduct + row_of(job, n, 0) * s->width;
#pragma omp simd
        for (int64_t u = 0; u < units; u++) {
            recurrent_gru_unit unit = {kept[u], kept[units + u], kept[2 * units + u],
                                       kept[3 * units + u], 0};
            recurrent_gru_unit d = recurrent_gru_grad(unit, h[u], dh[u]);
            dgates[u] = dproduct[u] = dp[u] = d.r;
            dgates[units + u] = dproduct[units + u] = dp[units + u] = d.z;
            dgates[2 * units + u] = d.n;
            dproduct[2 * units + u] = dp[2 * units + u] = d.p;
            dh[u] = d.h;
        }
    }
}

CPU_BODY plain_grad_body(void *context, int64_t begin, int64_t end) {
    const recurrent_job *job = context;
    const recurrent_state *s = job->state;
    bool relu = s->attr.kind == TRI_RECURRENT_RELU;
    int64_t units = s->units;
    for (int64_t n = begin; n < end; n++) {
        const float *y = job->y + row_of(job, n, 0) * s->units, *dh = job->dh + n * s->product.n;
        float *dgates = job->dgates + row_of(job, n, 0) * s->width, *dp = job->dp + n * s->width;
#pragma omp simd
        for (int64_t u = 0; u < units; u++)
            dgates[u] = dp[u] = !relu ? dh[u] * (1 - y[u] * y[u]) : y[u] > 0 ? dh[u] : 0;
    }
}

CPU_RANGES(lstm)
CPU_RANGES(gru)
CPU_RANGES(plain)
CPU_RANGES(lstm_grad)
CPU_RANGES(gru_grad)
CPU_RANGES(plain_grad)

static cpu_range range_of(const recurrent_state *s, bool gradient) {
    if (s->attr.kind == TRI_RECURRENT_LSTM)
        return gradient ? lstm_grad_range(s->device) : lstm_range(s->device);
    if (s->attr.kind == TRI_RECURRENT_GRU)
        return gradient ? gru_grad_range(s->device) : gru_range(s->device);
    return gradient ? plain_grad_range(s->device) : plain_range(s->device);
}

// Sets rows [begin, end), `to_row` floats apart, to those of `from`, or to 0 if that is left out.
static void set_rows(float *to, int64_t to_row, const float *from, int64_t begin, int64_t end,
                     int64_t width) {
    size_t bytes = (size_t)width * sizeof(float);
    for (int64_t n = begin; n < end; n++)
        if (from)
            memcpy(to + n * to_row, from + n * width, bytes);
        else
            memset(to + n * to_row, 0, bytes);
}

static void forward_range(void *context, int64_t begin, int64_t end, int thread) {
    recurrent_job job = *(const recurrent_job *)context;
    const recurrent_state *s = job.state;
    cpu_gemm product = s->product;
    if (begin == end) return;
    product.m = end - begin;
    product.a.data = job.last_h + begin * s->units;
    product.b = job.weight;
    product.c.data = job.product + begin * product.n;
    product.bias = job.bias;
    set_rows(job.last_h, s->units, job.h, begin, end, s->units);
    if (job.last_c) set_rows(job.last_c, s->units, job.c, begin, end, s->units);
    if (job.cells) set_rows(job.cells, s->units, job.c, begin, end, s->units);
    for (job.step = 0; job.step < s->steps; job.step++) {
        cpu_gemm_run(&s->worker, &product, NULL);
        job.compute(&job, begin, end, thread);
    }
}

// Writes the states before the step, and adds the gradient of y to that of the states.
static void begin_grad_step(const recurrent_job *job, int64_t begin, int64_t end) {
    const recurrent_state *s = job->state;
    for (int64_t n = begin; n < end; n++) {
        float *before = job->before + row_of(job, n, 0) * s->units,
              *dh = job->dh + n * s->product.n;
        const float *dy = job->dy ? job->dy + row_of(job, n, 0) * s->units : NULL;
        const float *h = job->step > 0 ? job->y + row_of(job, n, 1) * s->units
                         : job->h      ? job->h + n * s->units
                                       : NULL;
        set_rows(before, s->units, h, 0, 1, s->units);
        for (int64_t u = 0; dy && u < s->units; u++) dh[u] += dy[u];
    }
}

static void grad_range(void *context, int64_t begin, int64_t end, int thread) {
    recurrent_job job = *(const recurrent_job *)context;
    const recurrent_state *s = job.state;
    cpu_gemm product = s->product;
    if (begin == end) return;
    product.m = end - begin;
    product.a.data = job.dp + begin * s->width;
    product.b = job.weight;
    product.c.data = job.dh + begin * product.n;
    product.accumulate = s->attr.kind == TRI_RECURRENT_GRU;
    set_rows(job.dh, product.n, NULL, begin, end, product.n);
    if (job.dlast_h) set_rows(job.dh, product.n, job.dlast_h, begin, end, s->units);
    if (job.dc) set_rows(job.dc, s->units, job.dlast_c, begin, end, s->units);
    for (job.step = s->steps - 1; job.step >= 0; job.step--) {
        begin_grad_step(&job, begin, end);
        job.compute(&job, begin, end, thread);
        cpu_gemm_run(&s->worker, &product, NULL);
    }
    for (int64_t n = begin; n < end; n++)
        set_rows(job.dh_out + n * s->units, 0, job.dh + n * product.n, 0, 1, s->units);
}

static bool is_gradient(const tri_node *node) { return node->op == &tri_op_recurrent_grad; }

static linear_shape weight_shape(const tri_graph *graph, const tri_node *node) {
    const tri_shape *weight = cpu_in_shape(graph, node, is_gradient(node) ? 0 : 1);
    return (linear_shape){
        .out = weight->dims[0], .in = weight->dims[1], .dtype = TRI_F32, .result = TRI_F32};
}

// The weight lies as a linear layer's, so that its gradient, made by one, needs no reorder.
static void layouts(const tri_device_description *device, const tri_graph *graph,
                    const tri_node *node, tri_layout *in, tri_layout *out) {
    linear_shape s = weight_shape(graph, node);
    int weight = is_gradient(node) ? 0 : 1;
    for (int i = 0; i < node->input_count; i++) in[i] = TRI_LAYOUT_PLAIN;
    in[weight] = linear_weight_layout(device, graph, node->inputs[weight], &s);
}

static recurrent_state state_of(const tri_graph *graph, const tri_node *node) {
    bool gradient = is_gradient(node);
    linear_shape w = weight_shape(graph, node);
    recurrent_state s = {
        .attr = *(const tri_recurrent_attr *)node->attr, .units = w.in, .width = w.out};
    const tri_shape *y = gradient ? cpu_in_shape(graph, node, 1) : cpu_out_shape(graph, node, 0);
    const tri_layout *layout = &tri_value_get(graph, node->inputs[!gradient])->layout;
    bool swaps;
    s.steps = y->dims[!s.attr.time_first];
    s.samples = y->dims[s.attr.time_first];
    s.next_sample = s.attr.time_first ? 1 : s.steps;
    s.next_step = s.attr.time_first ? s.samples : 1;
    w.rows = 1;
    s.product = linear_gemm(gradient ? LINEAR_GRAD_INPUT : LINEAR_FORWARD, &w, layout, &swaps);
    int64_t padded = (s.product.n + CPU_TILE_COLUMNS - 1) / CPU_TILE_COLUMNS * CPU_TILE_COLUMNS;
    s.packed = cpu_gemm_packs(&s.product) ? s.product.k * padded : 0;
    s.product.c = cpu_matrix_plain(NULL, padded);
    return s;
}

// The workspace: the packed weight; forward the bias, products and gates of a step; in the gradient
// those of states and of products.
static int64_t padded_of(const recurrent_state *s) { return s->product.c.row; }

static tri_status workspace(const tri_device_description *device, const tri_graph *graph,
                            const tri_node *node, size_t *out) {
    recurrent_state s = state_of(graph, node);
    int64_t rows = is_gradient(node) ? s.width : s.attr.keeps ? 0 : 4 * s.units;
    int64_t bias = is_gradient(node) ? 0 : padded_of(&s);
    *out = (size_t)(s.packed + bias + s.samples * (padded_of(&s) + rows)) * sizeof(float);
    return TRI_OK;
}

static tri_status prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                          tri_kernel *kernel) {
    recurrent_state *state = calloc(1, sizeof *state);
    if (!state) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a recurrent layer");
    *state = state_of(graph, node);
    state->device = cpu_of(device);
    state->worker = *state->device;
    state->worker.head.description.threads = 1;
    kernel->state = state;
    return TRI_OK;
}

// Packs the weight and runs all samples. Its product then has whole panels as columns.
static void run(const recurrent_state *s, recurrent_job *job, const float *weight, float *packed,
                cpu_range range) {
    recurrent_state padded = *s;
    double products = (double)s->steps * (double)s->width * (double)s->units;
    int64_t grain = products < RECURRENT_GRAIN ? (int64_t)(RECURRENT_GRAIN / products) + 1 : 1;
    padded.product.b.data = (float *)(uintptr_t)weight;
    job->weight = cpu_gemm_pack(s->device, &padded.product, packed);
    padded.product.n = padded_of(s);
    job->state = &padded;
    cpu_parallel(s->device, s->samples, grain, range, job);
}

static tri_status recurrent_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const recurrent_state *s = kernel->state;
    bool is_lstm = s->attr.kind == TRI_RECURRENT_LSTM;
    bool is_plain = !is_lstm && s->attr.kind != TRI_RECURRENT_GRU;
    float *packed = args->workspace, *bias = packed + s->packed, *product = bias + padded_of(s);
    recurrent_job job = {.gates = args->in[0],
                         .bias = args->in[2] ? bias : NULL,
                         .h = args->in[3],
                         .c = args->in[4],
                         .y = args->out[0],
                         .last_h = args->out[1],
                         .last_c = is_lstm ? args->out[2] : NULL,
                         .saved = s->attr.keeps && !is_plain ? args->out[3] : NULL,
                         .cells = s->attr.keeps && is_lstm ? args->out[4] : NULL,
                         .product = product,
                         .kept = product + s->samples * padded_of(s),
                         .compute = range_of(s, false)};
    if (args->in[2]) {
        set_rows(bias, 0, NULL, 0, 1, padded_of(s));
        set_rows(bias, 0, args->in[2], 0, 1, s->width);
    }
    run(s, &job, args->in[1], packed, forward_range);
    return TRI_OK;
}

static tri_status recurrent_grad_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const recurrent_state *s = kernel->state;
    float *packed = args->workspace, *dh = packed + s->packed;
    recurrent_job job = {.y = args->in[1],
                         .saved = args->in[2],
                         .cells = args->in[3],
                         .dy = args->in[4],
                         .dlast_h = args->in[5],
                         .dlast_c = args->in[6],
                         .h = args->in[7],
                         .dgates = args->out[0],
                         .dproduct = args->out[1],
                         .before = args->out[2],
                         .dh_out = args->out[3],
                         .dc = s->attr.kind == TRI_RECURRENT_LSTM ? args->out[4] : NULL,
                         .dh = dh,
                         .dp = dh + s->samples * padded_of(s),
                         .compute = range_of(s, true)};
    run(s, &job, args->in[0], packed, grad_range);
    return TRI_OK;
}

static void release(tri_kernel *kernel) { free(kernel->state); }

#define RECURRENT_KERNEL(opname)                                                                   \
    const tri_kernel_def cpu_##opname##_samples = {                                                \
        .op = &tri_op_##opname,                                                                    \
        .name = "samples",                                                                         \
        .supports = cpu_is_f32,                                                                    \
        .layouts = layouts,                                                                        \
        .workspace = workspace,                                                                    \
        .prepare = prepare,                                                                        \
        .run = opname##_run,                                                                       \
        .release = release,                                                                        \
    };
RECURRENT_KERNEL(recurrent)
RECURRENT_KERNEL(recurrent_grad)
