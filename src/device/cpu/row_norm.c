// rms_norm and layer_norm, which also subtracts a row's mean, and their gradients. A row is the
// elements along the last axis of x. The gradients of weight and bias are sums over rows: each
// chunk of 32 rows is summed alone, and then the chunks' sums are added in order, so that the
// results do not depend on the number of threads.
#include "device/cpu/scalar.h"

#include <math.h>
#include <stdlib.h>

enum {
    NORM_LANES = 64,
    NORM_CHUNK = 32,
    NORM_SPAN = NORM_LANES * CPU_SUM_TERMS, // elements of a row that are added in F32
    NORM_COLUMNS = 512,                     // columns whose chunks are added up together
    SUM_GRAIN = 1 << 14,                    // numbers to add that are worth another thread
};

typedef struct norm_state {
    const cpu_device *device;
    int64_t rows, width;
    float eps;
    // x_bf16: x and dx are BF16, else F32. y_bf16: y and dy are BF16, else F32. All other tensors
    // are F32.
    bool x_bf16, y_bf16;
    bool weighted;       // the norm has a weight, and layer_norm also a bias
    float *ones, *zeros; // used as weight and bias if the norm has none
} norm_state;

typedef struct norm_job {
    const norm_state *state;
    const void *x, *dy;
    const void *other_dx; // another gradient of x, which is added to dx; NULL: nothing is added
    void *out;            // y or dx
    const float *weight, *bias;
    // By row: the mean (for rms_norm it is not stored and counts as 0), and 1 / sqrt(mean of (x −
    // mean)² + eps).
    float *mean, *inv;
    float *sums; // [chunk of rows][2][width]: sums of dy · (normalised x), and of dy
} norm_job;

CPU_SCALAR float sum_of_lanes(float *lane) {
    for (int width = NORM_LANES / 2; width; width /= 2)
        for (int k = 0; k < width; k++) lane[k] += lane[k + width];
    return lane[0];
}

// The end of the span of a row of `width` elements that begins with element `begin`.
CPU_SCALAR int64_t span_end(int64_t begin, int64_t width) {
    return width - begin < NORM_SPAN ? width : begin + NORM_SPAN;
}

// The sum over a row of x − center or, with `square`, of (x − center)².
CPU_SCALAR float sum_of_row(const void *x, bool bf16, int64_t width, float center, bool square) {
    double sum = 0;
    for (int64_t begin = 0, end; begin < width; begin = end) {
        end = span_end(begin, width);
        float lane[NORM_LANES] = {0}, rest = 0;
        int64_t whole = begin + (end - begin) / NORM_LANES * NORM_LANES;
        for (int64_t i = begin; i < whole; i += NORM_LANES)
            for (int k = 0; k < NORM_LANES; k++) {
                float value = cpu_get(x, bf16, i + k) - center;
                lane[k] += square ? value * value : value;
            }
        for (int64_t i = whole; i < end; i++) {
            float value = cpu_get(x, bf16, i) - center;
            rest += square ? value * value : value;
        }
        sum += (double)(rest + sum_of_lanes(lane));
    }
    return (float)sum;
}

CPU_SCALAR void forward_rows(const norm_job *job, int64_t begin, int64_t end, bool x_bf16,
                             bool y_bf16, bool centred) {
    const norm_state *s = job->state;
    const float *weight = job->weight, *bias = job->bias;
    int64_t width = s->width;
    for (int64_t r = begin; r < end; r++) {
        const void *x = cpu_row(job->x, x_bf16, r * width);
        void *y = (char *)job->out + r * width * (y_bf16 ? 2 : 4);
        float mean = centred ? sum_of_row(x, x_bf16, width, 0, false) / (float)width : 0;
        float squares = sum_of_row(x, x_bf16, width, mean, true);
        float inv = 1 / sqrtf(squares / (float)width + s->eps);
        if (centred) job->mean[r] = mean;
        job->inv[r] = inv;
#pragma GCC ivdep
        for (int64_t i = 0; i < width; i++) {
            float h = (cpu_get(x, x_bf16, i) - mean) * inv;
            cpu_put(y, y_bf16, i, centred ? h * weight[i] + bias[i] : h * weight[i]);
        }
    }
}

// Three numbers of one element: dy, g = dy · weight, and h, the normalised x.
typedef struct norm_element {
    float dy, g, h;
} norm_element;

CPU_SCALAR norm_element element_at(const norm_job *job, const void *x, const void *dy, int64_t i,
                                   float mean, float inv, bool x_bf16, bool y_bf16) {
    float slope = cpu_get(dy, y_bf16, i);
    return (norm_element){slope, slope * job->weight[i], (cpu_get(x, x_bf16, i) - mean) * inv};
}

CPU_SCALAR void gradient_row(const norm_job *job, int64_t r, float *restrict sums, bool x_bf16,
                             bool y_bf16, bool centred) {
    int64_t width = job->state->width;
    const void *x = cpu_row(job->x, x_bf16, r * width);
    const void *dy = cpu_row(job->dy, y_bf16, r * width);
    void *dx = (char *)job->out + r * width * (x_bf16 ? 2 : 4);
    float *restrict bias_sums = sums + width;
    float mean = centred ? job->mean[r] : 0, inv = job->inv[r];
    double sum_g = 0, sum_gh = 0;
    for (int64_t begin = 0, end; begin < width; begin = end) {
        end = span_end(begin, width);
        float lane[NORM_LANES] = {0}, lane_h[NORM_LANES] = {0}, rest = 0, rest_h = 0;
        int64_t whole = begin + (end - begin) / NORM_LANES * NORM_LANES;
        for (int64_t i = begin; i < whole; i += NORM_LANES)
            for (int k = 0; k < NORM_LANES; k++) {
                norm_element e = element_at(job, x, dy, i + k, mean, inv, x_bf16, y_bf16);
                sums[i + k] += e.dy * e.h;
                if (centred) bias_sums[i + k] += e.dy;
                if (centred) lane[k] += e.g;
                lane_h[k] += e.g * e.h;
            }
        for (int64_t i = whole; i < end; i++) {
            norm_element e = element_at(job, x, dy, i, mean, inv, x_bf16, y_bf16);
            sums[i] += e.dy * e.h;
            if (centred) bias_sums[i] += e.dy;
            rest += e.g;
            rest_h += e.g * e.h;
        }
        sum_g += (double)(rest + sum_of_lanes(lane));
        sum_gh += (double)(rest_h + sum_of_lanes(lane_h));
    }
    float mean_g = centred ? (float)sum_g / (float)width : 0;
    float mean_gh = (float)sum_gh / (float)width;
#pragma GCC ivdep
    for (int64_t i = 0; i < width; i++) {
        norm_element e = element_at(job, x, dy, i, mean, inv, x_bf16, y_bf16);
        cpu_put(dx, x_bf16, i, inv * (e.g - mean_g - e.h * mean_gh));
    }
    if (!job->other_dx) return;
    // This addition has a loop of its own. In the loop above, the compiler could fuse it with a
    // multiplication, and the bits would differ from those of a separate op `add`.
    const void *other_dx = cpu_row(job->other_dx, x_bf16, r * width);
#pragma GCC ivdep
    for (int64_t i = 0; i < width; i++)
        cpu_put(dx, x_bf16, i, cpu_get(other_dx, x_bf16, i) + cpu_get(dx, x_bf16, i));
}

CPU_SCALAR void gradient_chunks(const norm_job *job, int64_t begin, int64_t end, bool x_bf16,
                                bool y_bf16, bool centred) {
    const norm_state *s = job->state;
    for (int64_t c = begin; c < end; c++) {
        float *sums = job->sums + c * 2 * s->width;
        for (int64_t i = 0; i < 2 * s->width; i++) sums[i] = 0;
        int64_t last = (c + 1) * NORM_CHUNK < s->rows ? (c + 1) * NORM_CHUNK : s->rows;
        for (int64_t r = c * NORM_CHUNK; r < last; r++)
            gradient_row(job, r, sums, x_bf16, y_bf16, centred);
    }
}

#define NORM_RANGE(name, function, x_bf16, y_bf16, centred)                                        \
    CPU_BODY name##_body(void *context, int64_t begin, int64_t end) {                              \
        function(context, begin, end, x_bf16, y_bf16, centred);                                    \
    }                                                                                              \
    CPU_RANGES(name)
// Arguments of NORM_RANGE: the types of x and of y, and whether the mean is subtracted.
enum { NORM_F32 = false, NORM_BF16 = true };
enum { NORM_RMS = false, NORM_CENTRED = true };

// Defines NAME_range(state), which chooses the compiled form for the types of x and y.
#define NORM_RANGES(name, function, centred)                                                       \
    NORM_RANGE(name##_f32, function, NORM_F32, NORM_F32, centred)                                  \
    NORM_RANGE(name##_mixed, function, NORM_F32, NORM_BF16, centred)                               \
    NORM_RANGE(name##_bf16, function, NORM_BF16, NORM_BF16, centred)                               \
    static cpu_range name##_range(const norm_state *s) {                                           \
        if (s->x_bf16) return name##_bf16_range(s->device);                                        \
        return s->y_bf16 ? name##_mixed_range(s->device) : name##_f32_range(s->device);            \
    }
NORM_RANGES(rms, forward_rows, NORM_RMS)
NORM_RANGES(layer, forward_rows, NORM_CENTRED)
NORM_RANGES(rms_grad, gradient_chunks, NORM_RMS)
NORM_RANGES(layer_grad, gradient_chunks, NORM_CENTRED)

static int64_t chunks_of(int64_t rows) { return (rows + NORM_CHUNK - 1) / NORM_CHUNK; }

static bool is_gradient(const tri_node *node) {
    return node->op == &tri_op_rms_norm_grad || node->op == &tri_op_layer_norm_grad;
}

// The type of y; of a gradient's node, which has no y, the type of dy.
static tri_dtype y_type(const tri_graph *graph, const tri_node *node) {
    return tri_value_get(graph, is_gradient(node) ? node->inputs[1] : node->outputs[0])->dtype;
}

static bool norm_supports(const tri_device_description *device, const tri_graph *graph,
                          const tri_node *node) {
    int64_t narrow = ((const tri_norm_attr *)node->attr)->narrow;
    tri_dtype x = tri_value_get(graph, node->inputs[0])->dtype;
    return (x == TRI_F32 || x == TRI_BF16) && (narrow == 0 || narrow == TRI_BF16);
}

static tri_status norm_workspace(const tri_device_description *device, const tri_graph *graph,
                                 const tri_node *node, size_t *out) {
    const tri_shape *x = cpu_in_shape(graph, node, 0);
    int64_t width = x->dims[x->rank - 1], rows = tri_shape_count(x) / width;
    if (is_gradient(node)) *out = (size_t)(chunks_of(rows) * 2 * width) * sizeof(float);
    return TRI_OK;
}

static tri_status norm_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                               tri_kernel *kernel) {
    const tri_shape *x = cpu_in_shape(graph, node, 0);
    norm_state *state = calloc(1, sizeof *state);
    if (!state) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a norm");
    int weight_input = node->op == &tri_op_layer_norm_grad ? 4 : is_gradient(node) ? 2 : 1;
    int64_t width = x->dims[x->rank - 1];
    *state = (norm_state){.device = cpu_of(device),
                          .rows = tri_shape_count(x) / width,
                          .width = width,
                          .eps = (float)((const tri_norm_attr *)node->attr)->eps,
                          .x_bf16 = cpu_is_bf16(graph, node),
                          .y_bf16 = y_type(graph, node) == TRI_BF16,
                          .weighted = tri_value_is(node->inputs[weight_input])};
    kernel->state = state;
    if (state->weighted) return TRI_OK;
    state->ones = malloc((size_t)width * sizeof *state->ones);
    state->zeros = calloc((size_t)width, sizeof *state->zeros);
    if (!state->ones || !state->zeros) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a norm");
    for (int64_t i = 0; i < width; i++) state->ones[i] = 1;
    return TRI_OK;
}

static int64_t row_grain(const norm_state *s) { return 1 + 4096 / s->width; }

static tri_status rms_norm_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const norm_state *s = kernel->state;
    norm_job job = {.state = s,
                    .x = args->in[0],
                    .out = args->out[0],
                    .weight = args->in[1],
                    .inv = args->out[1]};
    cpu_parallel(s->device, s->rows, row_grain(s), rms_range(s), &job);
    return TRI_OK;
}

static tri_status layer_norm_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const norm_state *s = kernel->state;
    norm_job job = {.state = s,
                    .x = args->in[0],
                    .out = args->out[0],
                    .weight = s->weighted ? args->in[1] : s->ones,
                    .bias = s->weighted ? args->in[2] : s->zeros,
                    .mean = args->out[1],
                    .inv = args->out[2]};
    cpu_parallel(s->device, s->rows, row_grain(s), layer_range(s), &job);
    return TRI_OK;
}

typedef struct norm_chunks {
    const float *sums;    // the first chunk's
    int64_t chunks, step; // number of chunks, and floats from one to the next
    float *out;
} norm_chunks;

// Adds columns [begin, end) of all chunks, in order, so that the result does not depend on the
// number of threads.
CPU_BODY chunks_body(void *context, int64_t begin, int64_t end) {
    const norm_chunks *job = context;
    for (int64_t first = begin; first < end; first += NORM_COLUMNS) {
        double totals[NORM_COLUMNS] = {0};
        int64_t width = end - first < NORM_COLUMNS ? end - first : NORM_COLUMNS;
        for (int64_t c = 0; c < job->chunks; c++) {
            const float *sums = job->sums + c * job->step + first;
            for (int64_t i = 0; i < width; i++) totals[i] += (double)sums[i];
        }
        for (int64_t i = 0; i < width; i++) job->out[first + i] = (float)totals[i];
    }
}
CPU_RANGES(chunks)

// `offset` is 0 for dy · (normalised x), and the width for dy.
static void add_chunks(const norm_job *job, int64_t offset, float *out) {
    const norm_state *s = job->state;
    norm_chunks chunks = {
        .sums = job->sums + offset, .chunks = chunks_of(s->rows), .step = 2 * s->width, .out = out};
    cpu_parallel(s->device, s->width, 1 + SUM_GRAIN / chunks.chunks, chunks_range(s->device),
                 &chunks);
}

static tri_status rms_norm_grad_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const norm_state *s = kernel->state;
    norm_job job = {.state = s,
                    .x = args->in[0],
                    .dy = args->in[1],
                    .out = args->out[0],
                    .weight = args->in[2],
                    .inv = args->in[3],
                    .other_dx = args->in[4],
                    .sums = args->workspace};
    cpu_parallel(s->device, chunks_of(s->rows), 1, rms_grad_range(s), &job);
    add_chunks(&job, 0, args->out[1]);
    return TRI_OK;
}

static tri_status layer_norm_grad_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const norm_state *s = kernel->state;
    norm_job job = {.state = s,
                    .x = args->in[0],
                    .dy = args->in[1],
                    .out = args->out[0],
                    .weight = s->weighted ? args->in[4] : s->ones,
                    .mean = args->in[2],
                    .inv = args->in[3],
                    .other_dx = args->in[5],
                    .sums = args->workspace};
    cpu_parallel(s->device, chunks_of(s->rows), 1, layer_grad_range(s), &job);
    if (!s->weighted) return TRI_OK;
    add_chunks(&job, 0, args->out[1]);
    add_chunks(&job, s->width, args->out[2]);
    return TRI_OK;
}

static void norm_release(tri_kernel *kernel) {
    norm_state *state = kernel->state;
    if (!state) return;
    free(state->ones);
    free(state->zeros);
    free(state);
}

#define NORM_KERNEL(opname)                                                                        \
    const tri_kernel_def cpu_##opname##_rows = {                                                   \
        .op = &tri_op_##opname,                                                                    \
        .name = "rows",                                                                            \
        .supports = norm_supports,                                                                 \
        .workspace = norm_workspace,                                                               \
        .prepare = norm_prepare,                                                                   \
        .run = opname##_run,                                                                       \
        .release = norm_release,                                                                   \
    };
NORM_KERNEL(rms_norm)
NORM_KERNEL(rms_norm_grad)
NORM_KERNEL(layer_norm)
NORM_KERNEL(layer_norm_grad)
