// group_norm and its gradient, of plain tensors and of tensors in blocks of 16 channels. A plane is
// what lies together of one sample: the pixels of one channel, or of a block of 16. Threads divide
// units among them: the fewest planes of a sample that are whole groups.
//
// A loop over a plane has GROUP_LANES sums. Elements of the same lane belong to the same channel,
// because blocks divide the lanes; so both layouts have the same loops.
#include "device/cpu/scalar.h"

#include <math.h>
#include <stdlib.h>

enum { GROUP_LANES = 64, GROUP_GRAIN = 1 << 14 };

typedef struct group_state {
    const cpu_device *device;
    int64_t samples, channels, pixels;
    int64_t block; // channels of a plane
    int64_t group; // channels of a group
    int64_t unit;  // channels of a unit
    float eps;
    bool x_bf16, y_bf16; // the types of x and dx, and of y and dy: BF16, else F32
} group_state;

typedef struct group_job {
    const group_state *state;
    const void *x, *dy;
    void *out;                  // y or dx
    const float *weight, *bias; // NULL: there is none
    float *mean, *inv;          // [samples, groups]
    float *sums; // of the gradient: [samples][2][channels], sums of dy · (normalised x), and of dy
} group_job;

// For each lane, numbers of the lane's channel.
typedef struct group_lanes {
    float mean[GROUP_LANES], inv[GROUP_LANES], weight[GROUP_LANES], bias[GROUP_LANES];
    float mean_g[GROUP_LANES], mean_gh[GROUP_LANES];
} group_lanes;

// Calls BODY(i, k) for elements [begin, end) of a plane, and the lane k of each.
#define EACH_ELEMENT(begin, end, BODY)                                                             \
    do {                                                                                           \
        int64_t i_ = (begin);                                                                      \
        for (; i_ + GROUP_LANES <= (end); i_ += GROUP_LANES)                                       \
            _Pragma("GCC ivdep") for (int k = 0; k < GROUP_LANES; k++) BODY(i_ + k, k);            \
        for (int k = 0; i_ + k < (end); k++) BODY(i_ + k, k);                                      \
    } while (0)

// The end of the span of a plane that begins with element `begin`: its sums are F32.
CPU_SCALAR int64_t span_end(int64_t begin, int64_t count) {
    int64_t span = GROUP_LANES * CPU_SUM_TERMS;
    return count - begin < span ? count : begin + span;
}

// Adds up the lanes of each channel: `sum` then begins with the sums of the plane's channels.
CPU_SCALAR void join_lanes(float *sum, int64_t block) {
    for (int64_t half = GROUP_LANES / 2; half >= block; half /= 2)
        for (int64_t k = 0; k < half; k++) sum[k] += sum[k + half];
}

// Repeats the numbers of a plane's channels, so that each lane has that of its channel.
CPU_SCALAR void repeat(float *lanes, int64_t block) {
    float first = lanes[0];
    if (block == 1)
        for (int k = 0; k < GROUP_LANES; k++) lanes[k] = first;
    for (int k = CPU_BLOCK; block != 1 && k < GROUP_LANES; k++) lanes[k] = lanes[k % CPU_BLOCK];
}

// The number of the unit's first channel among those of all samples.
CPU_SCALAR int64_t first_channel(const group_state *s, int64_t unit) {
    int64_t units = s->channels / s->unit;
    return unit / units * s->channels + unit % units * s->unit;
}

// Of each channel in turn (a plane's channels follow those of the plane before), the sum of x or,
// with `squares`, of (x - mean)², is added to `sums` of its group.
CPU_SCALAR void add_moments(const group_job *job, int64_t channel, const float *means, double *sums,
                            bool x_bf16, bool squares) {
    const group_state *s = job->state;
    int64_t count = s->pixels * s->block;
    for (int64_t c = 0; c < s->unit; c += s->block) {
        const void *x = cpu_row(job->x, x_bf16, (channel + c) * s->pixels);
        float mean[GROUP_LANES] = {0};
        for (int64_t k = 0; squares && k < s->block; k++) mean[k] = means[(c + k) / s->group];
        if (squares) repeat(mean, s->block);
#define ADD(i, k)                                                                                  \
    do {                                                                                           \
        float value_ = cpu_get(x, x_bf16, i) - mean[k];                                            \
        sum[k] += squares ? value_ * value_ : value_;                                              \
    } while (0)
        for (int64_t begin = 0, end; begin < count; begin = end) {
            float sum[GROUP_LANES] = {0};
            end = span_end(begin, count);
            EACH_ELEMENT(begin, end, ADD);
            join_lanes(sum, s->block);
            for (int64_t k = 0; k < s->block; k++) sums[(c + k) / s->group] += (double)sum[k];
        }
#undef ADD
    }
}

// Finds the numbers of the lanes of the plane that begins with channel `c` of the unit.
CPU_SCALAR void set_lanes(const group_job *job, int64_t channel, int64_t c, group_lanes *lanes) {
    const group_state *s = job->state;
    for (int64_t k = 0; k < s->block; k++) {
        int64_t own = channel + c + k, group = own / s->group;
        lanes->mean[k] = job->mean[group];
        lanes->inv[k] = job->inv[group];
        lanes->weight[k] = job->weight ? job->weight[own % s->channels] : 1;
        lanes->bias[k] = job->bias ? job->bias[own % s->channels] : 0;
    }
    repeat(lanes->mean, s->block);
    repeat(lanes->inv, s->block);
    repeat(lanes->weight, s->block);
    repeat(lanes->bias, s->block);
}

enum { GROUPS_AT_ONCE = 64 }; // a unit has at most 16 groups, because a block has 16 channels

CPU_SCALAR void forward_units(const group_job *job, int64_t begin, int64_t end, bool x_bf16,
                              bool y_bf16) {
    const group_state *s = job->state;
    int64_t groups = s->unit / s->group, count = s->pixels * s->block;
    double elements = (double)s->group * (double)s->pixels;
    for (int64_t u = begin; u < end; u++) {
        int64_t channel = first_channel(s, u), first = channel / s->group;
        double sums[GROUPS_AT_ONCE] = {0}, squares[GROUPS_AT_ONCE] = {0};
        add_moments(job, channel, NULL, sums, x_bf16, false);
        for (int64_t g = 0; g < groups; g++) job->mean[first + g] = (float)(sums[g] / elements);
        add_moments(job, channel, job->mean + first, squares, x_bf16, true);
        for (int64_t g = 0; g < groups; g++)
            job->inv[first + g] = 1 / sqrtf((float)(squares[g] / elements) + s->eps);
        for (int64_t c = 0; c < s->unit; c += s->block) {
            group_lanes lanes;
            const void *x = cpu_row(job->x, x_bf16, (channel + c) * s->pixels);
            void *y = (char *)job->out + (channel + c) * s->pixels * (y_bf16 ? 2 : 4);
            set_lanes(job, channel, c, &lanes);
#define APPLY(i, k)                                                                                \
    cpu_put(y, y_bf16, i,                                                                          \
            (cpu_get(x, x_bf16, i) - lanes.mean[k]) * lanes.inv[k] * lanes.weight[k] +             \
                lanes.bias[k])
            EACH_ELEMENT(0, count, APPLY);
#undef APPLY
        }
    }
}

// Computes the sums over a plane that its gradient needs, of dy · h and of dy, where h is the
// normalised x.
CPU_SCALAR void gradient_sums(const group_job *job, int64_t channel, int64_t c,
                              const group_lanes *lanes, bool x_bf16, bool y_bf16, double *all_dy_h,
                              double *all_dy) {
    const group_state *s = job->state;
    int64_t count = s->pixels * s->block;
    const void *x = cpu_row(job->x, x_bf16, (channel + c) * s->pixels);
    const void *dy = cpu_row(job->dy, y_bf16, (channel + c) * s->pixels);
#define ADD(i, k)                                                                                  \
    do {                                                                                           \
        float slope_ = cpu_get(dy, y_bf16, i);                                                     \
        dy_sum[k] += slope_;                                                                       \
        dy_h[k] += slope_ * ((cpu_get(x, x_bf16, i) - lanes->mean[k]) * lanes->inv[k]);            \
    } while (0)
    for (int64_t begin = 0, end; begin < count; begin = end) {
        float dy_h[GROUP_LANES] = {0}, dy_sum[GROUP_LANES] = {0};
        end = span_end(begin, count);
        EACH_ELEMENT(begin, end, ADD);
        join_lanes(dy_h, s->block);
        join_lanes(dy_sum, s->block);
        for (int64_t k = 0; k < s->block; k++) all_dy_h[k] += (double)dy_h[k];
        for (int64_t k = 0; k < s->block; k++) all_dy[k] += (double)dy_sum[k];
    }
#undef ADD
}

CPU_SCALAR void gradient_units(const group_job *job, int64_t begin, int64_t end, bool x_bf16,
                               bool y_bf16) {
    const group_state *s = job->state;
    double elements = (double)s->group * (double)s->pixels;
    for (int64_t u = begin; u < end; u++) {
        int64_t channel = first_channel(s, u);
        float *to = job->sums + channel / s->channels * 2 * s->channels + channel % s->channels;
        double mean_g[GROUPS_AT_ONCE] = {0}, mean_gh[GROUPS_AT_ONCE] = {0};
        group_lanes lanes;
        for (int64_t c = 0; c < s->unit; c += s->block) {
            double dy_h[CPU_BLOCK] = {0}, dy_sum[CPU_BLOCK] = {0};
            set_lanes(job, channel, c, &lanes);
            gradient_sums(job, channel, c, &lanes, x_bf16, y_bf16, dy_h, dy_sum);
            for (int64_t k = 0; k < s->block; k++) {
                to[c + k] = (float)dy_h[k];
                to[s->channels + c + k] = (float)dy_sum[k];
                mean_g[(c + k) / s->group] += dy_sum[k] * (double)lanes.weight[k];
                mean_gh[(c + k) / s->group] += dy_h[k] * (double)lanes.weight[k];
            }
        }
        for (int64_t c = 0; c < s->unit; c += s->block) {
            const void *x = cpu_row(job->x, x_bf16, (channel + c) * s->pixels);
            const void *dy = cpu_row(job->dy, y_bf16, (channel + c) * s->pixels);
            void *dx = (char *)job->out + (channel + c) * s->pixels * (x_bf16 ? 2 : 4);
            set_lanes(job, channel, c, &lanes);
            for (int64_t k = 0; k < s->block; k++) {
                lanes.mean_g[k] = (float)(mean_g[(c + k) / s->group] / elements);
                lanes.mean_gh[k] = (float)(mean_gh[(c + k) / s->group] / elements);
            }
            repeat(lanes.mean_g, s->block);
            repeat(lanes.mean_gh, s->block);
#define APPLY(i, k)                                                                                \
    cpu_put(dx, x_bf16, i,                                                                         \
            lanes.inv[k] *                                                                         \
                (cpu_get(dy, y_bf16, i) * lanes.weight[k] - lanes.mean_g[k] -                      \
                 (cpu_get(x, x_bf16, i) - lanes.mean[k]) * lanes.inv[k] * lanes.mean_gh[k]))
            EACH_ELEMENT(0, s->pixels * s->block, APPLY);
#undef APPLY
        }
    }
}

#define GROUP_RANGE(name, function, x_bf16, y_bf16)                                                \
    CPU_BODY name##_body(void *context, int64_t begin, int64_t end) {                              \
        function(context, begin, end, x_bf16, y_bf16);                                             \
    }                                                                                              \
    CPU_RANGES(name)
// Defines NAME_range(state), which chooses the compiled form for the types of x and y.
#define GROUP_RANGES(name, function)                                                               \
    GROUP_RANGE(name##_f32, function, false, false)                                                \
    GROUP_RANGE(name##_mixed, function, false, true)                                               \
    GROUP_RANGE(name##_bf16, function, true, true)                                                 \
    static cpu_range name##_range(const group_state *s) {                                          \
        if (s->x_bf16) return name##_bf16_range(s->device);                                        \
        return s->y_bf16 ? name##_mixed_range(s->device) : name##_f32_range(s->device);            \
    }
GROUP_RANGES(forward, forward_units)
GROUP_RANGES(gradient, gradient_units)

static bool is_gradient(const tri_node *node) { return node->op == &tri_op_group_norm_grad; }

static bool group_supports(const tri_device_description *device, const tri_graph *graph,
                           const tri_node *node) {
    int64_t narrow = ((const tri_group_norm_attr *)node->attr)->norm.narrow;
    tri_dtype x = tri_value_get(graph, node->inputs[0])->dtype;
    return (x == TRI_F32 || x == TRI_BF16) && (narrow == 0 || narrow == TRI_BF16);
}

static void group_layouts(const tri_device_description *device, const tri_graph *graph,
                          const tri_node *node, tri_layout *in, tri_layout *out) {
    if (!cpu_layout_is(&in[0], CPU_NCHW16C)) in[0] = TRI_LAYOUT_PLAIN;
    cpu_layouts_of_first(device, graph, node, in, out);
}

static tri_status group_workspace(const tri_device_description *device, const tri_graph *graph,
                                  const tri_node *node, size_t *out) {
    const tri_shape *x = cpu_in_shape(graph, node, 0);
    if (is_gradient(node)) *out = (size_t)(x->dims[0] * 2 * x->dims[1]) * sizeof(float);
    return TRI_OK;
}

static int64_t common_multiple(int64_t a, int64_t b) {
    int64_t x = a, y = b;
    while (y) {
        int64_t rest = x % y;
        x = y;
        y = rest;
    }
    return a / x * b;
}

static tri_status group_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                                tri_kernel *kernel) {
    const tri_group_norm_attr *attr = node->attr;
    const tri_value_info *x = tri_value_get(graph, node->inputs[0]);
    tri_value y = is_gradient(node) ? node->inputs[1] : node->outputs[0];
    group_state *s = calloc(1, sizeof *s);
    if (!s) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a norm");
    kernel->state = s;
    *s = (group_state){.device = cpu_of(device),
                       .samples = x->shape.dims[0],
                       .channels = x->shape.dims[1],
                       .pixels = 1,
                       .block = cpu_layout_is(&x->layout, CPU_NCHW16C) ? CPU_BLOCK : 1,
                       .group = x->shape.dims[1] / attr->groups,
                       .eps = (float)attr->norm.eps,
                       .x_bf16 = x->dtype == TRI_BF16,
                       .y_bf16 = tri_value_get(graph, y)->dtype == TRI_BF16};
    for (int i = 2; i < x->shape.rank; i++) s->pixels *= x->shape.dims[i];
    s->unit = common_multiple(s->group, s->block);
    return TRI_OK;
}

static void each_unit(const group_state *s, cpu_range range, group_job *job) {
    int64_t units = s->samples * (s->channels / s->unit);
    cpu_parallel(s->device, units, GROUP_GRAIN / (s->unit * s->pixels) + 1, range, job);
}

static tri_status group_norm_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const group_state *s = kernel->state;
    group_job job = {.state = s,
                     .x = args->in[0],
                     .weight = args->in[1],
                     .bias = args->in[2],
                     .out = args->out[0],
                     .mean = args->out[1],
                     .inv = args->out[2]};
    each_unit(s, forward_range(s), &job);
    return TRI_OK;
}

static tri_status group_norm_grad_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const group_state *s = kernel->state;
    group_job job = {.state = s,
                     .x = args->in[0],
                     .dy = args->in[1],
                     .mean = args->in[2],
                     .inv = args->in[3],
                     .weight = args->in[4],
                     .out = args->out[0],
                     .sums = args->workspace};
    each_unit(s, gradient_range(s), &job);
    if (!job.weight) return TRI_OK;
    for (int k = 0; k < 2; k++) // dweight, then dbias, in the order of the samples
        for (int64_t c = 0; c < s->channels; c++) {
            double sum = 0;
            for (int64_t n = 0; n < s->samples; n++)
                sum += (double)job.sums[(n * 2 + k) * s->channels + c];
            ((float *)args->out[1 + k])[c] = (float)sum;
        }
    return TRI_OK;
}

static void group_release(tri_kernel *kernel) { free(kernel->state); }

#define GROUP_KERNEL(opname)                                                                       \
    const tri_kernel_def cpu_##opname##_planes = {                                                 \
        .op = &tri_op_##opname,                                                                    \
        .name = "planes",                                                                          \
        .supports = group_supports,                                                                \
        .layouts = group_layouts,                                                                  \
        .workspace = group_workspace,                                                              \
        .prepare = group_prepare,                                                                  \
        .run = opname##_run,                                                                       \
        .release = group_release,                                                                  \
    };
GROUP_KERNEL(group_norm)
GROUP_KERNEL(group_norm_grad)
