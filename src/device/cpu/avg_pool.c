// Average pooling and its gradient. One loop computes both: each result is a sum over a rectangle
// of a source tensor, computed by one thread and written once. In the forward pass the source is x,
// and the rectangle is the result's window, by whose divisor the sum is divided. In the gradient
// the source is dy, which has a pixel for each window, and the rectangle is all windows that
// contain the result's pixel; each value of dy is divided by its window's divisor.
//
// A tensor in blocks of 16 channels is computed 16 channels at a time, a plain (row-major) tensor
// one channel at a time. A plane is what is computed at a time: one channel, or a block of 16, of
// one sample.
#include "device/cpu/scalar.h"
#include "device/cpu/simd.h"

#include <stdlib.h>

// One axis of the pooling, height or width. `source` and `result` count the elements along it.
// Element i of the result reads elements [begin[i], end[i]) of the source: pixels of x in the
// forward pass, pixels of dy (one for each pooling window) in the gradient.
typedef struct avg_axis {
    int64_t source, result;
    int64_t *begin, *end;
} avg_axis;

typedef struct avg_state {
    const cpu_device *device;
    int64_t planes; // number of planes: samples × channels, or samples × blocks of 16 channels
    avg_axis axis[2];
    float *weight; // by window: 1 / the number by which the window's sum is divided
    // backward: the kernel computes the gradient, so the source (dy) has one element for each
    // window. bf16: source and result are BF16, else F32.
    bool backward, bf16;
    // Only for the kernel that computes 16 channels at a time: whether the source or the result has
    // the plain layout instead of blocks of 16 channels. Such a tensor is converted block by block,
    // in the workspace.
    bool plain_source, plain_result;
} avg_state;

typedef struct avg_job {
    const avg_state *state;
    const void *from;
    void *to;
    // For each thread a plane of 16 channels of the source, and one of the result; used where
    // plain_source or plain_result is set.
    float *workspace;
} avg_job;

static int64_t source_elements(const avg_state *s) { return s->axis[0].source * s->axis[1].source; }
static int64_t result_elements(const avg_state *s) { return s->axis[0].result * s->axis[1].result; }

// The sum of `count` consecutive numbers, each times its weight if `weight` is not NULL.
CPU_SCALAR float sum_row(const void *from, bool bf16, int64_t at, int64_t count,
                         const float *weight) {
    enum { LANES = 16 };
    float lane[LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (int k = 0; k < LANES; k++)
            lane[k] += cpu_get(from, bf16, at + i + k) * (weight ? weight[i + k] : 1);
    for (; i < count; i++) sum += cpu_get(from, bf16, at + i) * (weight ? weight[i] : 1);
    for (int k = 0; k < LANES; k++) sum += lane[k];
    return sum;
}

CPU_BODY avg_planes_typed(void *context, int64_t begin, int64_t end, bool bf16) {
    const avg_job *job = context;
    const avg_state *s = job->state;
    const avg_axis *rows = &s->axis[0], *columns = &s->axis[1];
    int64_t from_plane = source_elements(s), to_plane = result_elements(s);
    for (int64_t plane = begin; plane < end; plane++) {
        int64_t to = plane * to_plane;
        for (int64_t r = 0; r < rows->result; r++)
            for (int64_t c = 0; c < columns->result; c++, to++) {
                float sum = 0;
                int64_t first = columns->begin[c], count = columns->end[c] - first;
                for (int64_t row = rows->begin[r]; row < rows->end[r]; row++) {
                    int64_t pixel = row * columns->source + first;
                    sum += sum_row(job->from, bf16, plane * from_plane + pixel, count,
                                   s->backward ? s->weight + pixel : NULL);
                }
                cpu_put(job->to, bf16, to,
                        s->backward ? sum : sum * s->weight[r * columns->result + c]);
            }
    }
}
CPU_TYPED_RANGES(avg_planes)

// Computes pixel (r, c) of y or, with `backward`, of dx, for 16 channels at once. The plane of the
// source begins with element `at` of `from`.
CPU_INLINE __m512 sum_rectangle(const avg_state *s, const void *from, bool bf16, int64_t at,
                                int64_t r, int64_t c) {
    const avg_axis *rows = &s->axis[0], *columns = &s->axis[1];
    __m512 sum = _mm512_setzero_ps();
    for (int64_t row = rows->begin[r]; row < rows->end[r]; row++) {
        __m512 of_row = _mm512_setzero_ps();
        for (int64_t column = columns->begin[c]; column < columns->end[c]; column++) {
            int64_t pixel = row * columns->source + column;
            __m512 value = cpu_load(from, bf16, at + pixel * CPU_BLOCK, 0xFFFF);
            of_row = s->backward ? _mm512_fmadd_ps(value, _mm512_set1_ps(s->weight[pixel]), of_row)
                                 : _mm512_add_ps(of_row, value);
        }
        sum = _mm512_add_ps(sum, of_row);
    }
    if (s->backward) return sum;
    return _mm512_mul_ps(sum, _mm512_set1_ps(s->weight[r * columns->result + c]));
}

CPU_INLINE void avg_block(const avg_job *job, int64_t plane, float *own, bool source_bf16,
                          bool result_bf16) {
    const avg_state *s = job->state;
    int64_t from_plane = source_elements(s) * CPU_BLOCK, to_plane = result_elements(s) * CPU_BLOCK;
    const void *from = job->from;
    void *to = job->to;
    int64_t from_at = plane * from_plane, to_at = plane * to_plane, pixel = 0;
    if (s->plain_source) from = own, from_at = 0;
    if (s->plain_result) to = own + (s->plain_source ? from_plane : 0), to_at = 0;
    for (int64_t r = 0; r < s->axis[0].result; r++)
        for (int64_t c = 0; c < s->axis[1].result; c++, pixel++)
            cpu_store(to, result_bf16, to_at + pixel * CPU_BLOCK, 0xFFFF,
                      sum_rectangle(s, from, source_bf16, from_at, r, c));
}

static CPU_AVX512 void avg_blocked_range(void *context, int64_t begin, int64_t end, int thread) {
    const avg_job *job = context;
    const avg_state *s = job->state;
    int64_t from_plane = source_elements(s) * CPU_BLOCK, to_plane = result_elements(s) * CPU_BLOCK;
    float *own = job->workspace + (from_plane + to_plane) * thread;
    for (int64_t plane = begin; plane < end; plane++) {
        if (s->plain_source)
            cpu_rows_to_block(s->bf16, job->from, plane * from_plane, own, source_elements(s));
        if (s->bf16)
            avg_block(job, plane, own, !s->plain_source, !s->plain_result);
        else
            avg_block(job, plane, own, false, false);
        if (s->plain_result)
            cpu_block_to_rows(s->bf16, own + (s->plain_source ? from_plane : 0), job->to,
                              plane * to_plane, result_elements(s));
    }
}

// Computes, for each element i of x along one axis, which pooling windows [begin[i], end[i])
// contain it, from the elements that each window contains. The windows that contain an element are
// consecutive, because from one window to the next neither its begin nor its end moves back.
static void windows_of_elements(const avg_axis *windows, int64_t *begin, int64_t *end) {
    for (int64_t i = 0; i < windows->source; i++) begin[i] = end[i] = 0;
    for (int64_t w = windows->result - 1; w >= 0; w--)
        for (int64_t i = windows->begin[w]; i < windows->end[w]; i++) {
            if (end[i] == 0) end[i] = w + 1;
            begin[i] = w;
        }
}

static const tri_shape *x_shape_of(const tri_graph *graph, const tri_node *node) {
    if (node->op == &tri_op_avg_pool2d) return cpu_in_shape(graph, node, 0);
    return cpu_out_shape(graph, node, 0);
}

static const tri_shape *y_shape_of(const tri_graph *graph, const tri_node *node) {
    if (node->op == &tri_op_avg_pool2d) return cpu_out_shape(graph, node, 0);
    return cpu_in_shape(graph, node, 0);
}

static void avg_release(tri_kernel *kernel) {
    avg_state *state = kernel->state;
    for (int i = 0; state && i < 2; i++) {
        free(state->axis[i].begin);
        free(state->axis[i].end);
    }
    if (state) free(state->weight);
    free(state);
}

static int64_t *numbers(int64_t count) { return malloc((size_t)(count + 1) * sizeof(int64_t)); }

// Computes the ranges of the pooling windows and, for the gradient, which windows contain each
// element of x.
static bool make_tables(const tri_avg_pool2d_attr *attr, const tri_shape *x, const tri_shape *y,
                        avg_state *s) {
    avg_axis windows[2];
    bool good = true;
    for (int i = 0; i < 2; i++) {
        int64_t in = x->dims[2 + i], out = y->dims[2 + i];
        windows[i] = (avg_axis){in, out, numbers(out), numbers(out)};
        s->axis[i] = windows[i];
        if (s->backward) s->axis[i] = (avg_axis){out, in, numbers(in), numbers(in)};
        good = good && windows[i].begin && windows[i].end && s->axis[i].begin && s->axis[i].end;
        for (int64_t w = 0; good && w < out; w++)
            ops_avg_window(attr, i, in, w, &windows[i].begin[w], &windows[i].end[w]);
        if (good && s->backward) windows_of_elements(&windows[i], s->axis[i].begin, s->axis[i].end);
    }
    int64_t count = y->dims[2] * y->dims[3];
    s->weight = malloc((size_t)(count + 1) * sizeof *s->weight);
    good = good && s->weight;
    for (int64_t w = 0; good && w < count; w++) {
        int64_t row = w / y->dims[3], column = w % y->dims[3];
        int64_t begin[2] = {windows[0].begin[row], windows[1].begin[column]};
        int64_t end[2] = {windows[0].end[row], windows[1].end[column]};
        s->weight[w] = 1 / (float)ops_avg_divisor(attr, begin, end);
    }
    for (int i = 0; i < 2 && s->backward; i++) {
        free(windows[i].begin);
        free(windows[i].end);
    }
    return good;
}

static tri_status avg_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                              tri_kernel *kernel) {
    const tri_shape *x = x_shape_of(graph, node), *y = y_shape_of(graph, node);
    avg_state *state = calloc(1, sizeof *state);
    kernel->state = state;
    if (state)
        *state = (avg_state){.device = cpu_of(device),
                             .planes = x->dims[0] * x->dims[1],
                             .backward = node->op == &tri_op_avg_pool2d_grad,
                             .bf16 = cpu_is_bf16(graph, node)};
    if (!state || !make_tables(node->attr, x, y, state)) {
        avg_release(kernel);
        return TRI_FAIL(TRI_NO_MEMORY, "no memory for average pooling");
    }
    return TRI_OK;
}

// Whether the value has a plain layout and so has to be converted to blocks of 16 channels. If the
// value has a single pixel, both layouts are the same; the result is then false.
static bool is_plain(const tri_graph *graph, tri_value value) {
    const tri_value_info *info = tri_value_get(graph, value);
    return tri_layout_is_plain(&info->layout) && info->shape.dims[2] * info->shape.dims[3] != 1;
}

static tri_status avg_blocked_workspace(const tri_device_description *device,
                                        const tri_graph *graph, const tri_node *node, size_t *out) {
    const int64_t *x = x_shape_of(graph, node)->dims, *y = y_shape_of(graph, node)->dims;
    *out = (size_t)((x[2] * x[3] + y[2] * y[3]) * CPU_BLOCK * device->threads) * sizeof(float);
    return TRI_OK;
}

static tri_status avg_blocked_prepare(tri_device *device, const tri_graph *graph,
                                      const tri_node *node, tri_kernel *kernel) {
    TRI_TRY(avg_prepare(device, graph, node, kernel));
    avg_state *s = kernel->state;
    s->planes /= CPU_BLOCK;
    s->plain_source = is_plain(graph, node->inputs[0]);
    s->plain_result = is_plain(graph, node->outputs[0]);
    return TRI_OK;
}

// x and dx are in blocks of 16 channels, because convolutions write x and read dx in this layout. y
// is in blocks too if the nodes that read it want that. dy stays as it is: in blocks or plain.
static void avg_blocked_layouts(const tri_device_description *device, const tri_graph *graph,
                                const tri_node *node, tri_layout *in, tri_layout *out) {
    tri_layout blocked = cpu_format_layout(CPU_NCHW16C);
    if (node->op == &tri_op_avg_pool2d) {
        in[0] = blocked;
        out[0] = cpu_is_read_blocked(graph, node->outputs[0]) ? blocked : TRI_LAYOUT_PLAIN;
        return;
    }
    if (!cpu_layout_is(&in[0], CPU_NCHW16C)) in[0] = TRI_LAYOUT_PLAIN;
    out[0] = blocked;
}

static bool avg_blocked_supports(const tri_device_description *device, const tri_graph *graph,
                                 const tri_node *node) {
    return cpu_has_avx512_float(device, graph, node) &&
           x_shape_of(graph, node)->dims[1] % CPU_BLOCK == 0;
}

static avg_job job_of(const avg_state *state, const tri_kernel_args *args) {
    return (avg_job){
        .state = state, .from = args->in[0], .to = args->out[0], .workspace = args->workspace};
}

static tri_status avg_planes_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    enum { GRAIN_ELEMENTS = 1 << 13 };
    const avg_state *s = kernel->state;
    avg_job job = job_of(s, args);
    int64_t grain = GRAIN_ELEMENTS / (source_elements(s) + result_elements(s)) + 1;
    cpu_parallel(s->device, s->planes, grain, avg_planes_range(s->device, s->bf16), &job);
    return TRI_OK;
}

static tri_status avg_blocked_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const avg_state *s = kernel->state;
    avg_job job = job_of(s, args);
    cpu_parallel(s->device, s->planes, 2, avg_blocked_range, &job);
    return TRI_OK;
}

#define AVG_KERNELS(opname)                                                                        \
    const tri_kernel_def cpu_##opname##_blocked = {                                                \
        .op = &tri_op_##opname,                                                                    \
        .name = "avx512-blocked",                                                                  \
        .supports = avg_blocked_supports,                                                          \
        .layouts = avg_blocked_layouts,                                                            \
        .workspace = avg_blocked_workspace,                                                        \
        .prepare = avg_blocked_prepare,                                                            \
        .run = avg_blocked_run,                                                                    \
        .release = avg_release,                                                                    \
    };                                                                                             \
    const tri_kernel_def cpu_##opname##_planes = {                                                 \
        .op = &tri_op_##opname,                                                                    \
        .name = "planes",                                                                          \
        .supports = cpu_is_float,                                                                  \
        .prepare = avg_prepare,                                                                    \
        .run = avg_planes_run,                                                                     \
        .release = avg_release,                                                                    \
    };
AVG_KERNELS(avg_pool2d)
AVG_KERNELS(avg_pool2d_grad)
