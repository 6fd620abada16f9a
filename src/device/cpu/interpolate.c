// Resizing of one axis, and its gradient. Both add, for each element along the axis, elements of
// the other tensor times their shares; a table has them. What lies behind the axis is added at
// once.
#include "ops/interpolate_axis.h"

#include "device/cpu/scalar.h"

#include <stdlib.h>

enum { INTERPOLATE_GRAIN = 1 << 14 };

typedef struct interpolate_state {
    const cpu_device *device;
    int64_t outer, inner, from, to; // from, to: elements along the axis
    bool bf16;
    // Element i is the sum of the terms begin[i] to begin[i + 1] - 1: element at[t], times
    // share[t].
    int64_t *begin, *at;
    float *share;
} interpolate_state;

typedef struct interpolate_job {
    const interpolate_state *state;
    const void *x;
    void *y;
} interpolate_job;

// Item i is one element along the axis, for all that lies behind it.
CPU_BODY interpolate_typed(void *context, int64_t begin, int64_t end, bool bf16) {
    const interpolate_job *job = context;
    const interpolate_state *s = job->state;
    int64_t inner = s->inner, row = begin / s->to, element = begin % s->to;
    for (int64_t i = begin; i < end; i++) {
        int64_t first = s->begin[element], last = s->begin[element + 1], to = i * inner;
        int64_t from = row * s->from;
        if (++element == s->to) {
            element = 0;
            row++;
        }
        if (inner == 1) { // rows of one element are too short to be added by tiles
            float sum = 0;
            for (int64_t t = first; t < last; t++)
                sum += s->share[t] * cpu_get(job->x, bf16, from + s->at[t]);
            cpu_put(job->y, bf16, to, sum);
            continue;
        }
        enum { TILE = 64 };
        for (int64_t tile = 0; tile < inner; tile += TILE) {
            float sum[TILE] = {0};
            int64_t width = inner - tile < TILE ? inner - tile : TILE;
            for (int64_t t = first; t < last; t++) {
                int64_t at = (from + s->at[t]) * inner + tile;
                float share = s->share[t];
                for (int64_t k = 0; k < width; k++) sum[k] += share * cpu_get(job->x, bf16, at + k);
            }
            for (int64_t k = 0; k < width; k++) cpu_put(job->y, bf16, to + tile + k, sum[k]);
        }
    }
}
CPU_TYPED_RANGES(interpolate)

static bool interpolate_supports(const tri_device_description *device, const tri_graph *graph,
                                 const tri_node *node) {
    return cpu_is_float(device, graph, node);
}

// Adds a term to the table; one without a share is left out, so that its NaN stays out too.
static void add_term(interpolate_state *s, int64_t *terms, int64_t at, double share) {
    if (share == 0) return;
    s->at[*terms] = at;
    s->share[(*terms)++] = (float)share;
}

// totals: room for what the weights of each element of y are divided by.
static void set_terms(interpolate_state *s, const interpolate_axis *a, bool gradient,
                      double *totals) {
    int64_t terms = 0;
    for (int64_t i = 0; i < a->out; i++) {
        interpolate_source source = interpolate_from(a, i);
        totals[i] = interpolate_total(a, &source);
    }
    for (int64_t i = 0; i < s->to; i++) {
        s->begin[i] = terms;
        if (!gradient) {
            interpolate_source source = interpolate_from(a, i);
            for (int64_t k = source.first; k <= source.last; k++)
                add_term(s, &terms, k, interpolate_weight(a, &source, k) / totals[i]);
            continue;
        }
        for (int64_t j = interpolate_reader(a, i); j < a->out; j++) {
            interpolate_source source = interpolate_from(a, j);
            if (source.first > i) break;
            add_term(s, &terms, j, interpolate_weight(a, &source, i) / totals[j]);
        }
    }
    s->begin[s->to] = terms;
}

static tri_status interpolate_prepare(tri_device *device, const tri_graph *graph,
                                      const tri_node *node, tri_kernel *kernel) {
    const tri_interpolate_attr *attr = node->attr;
    bool gradient = node->op == &tri_op_interpolate_grad;
    const tri_shape *x = gradient ? cpu_out_shape(graph, node, 0) : cpu_in_shape(graph, node, 0);
    interpolate_axis a = ops_interpolate_axis(attr, x);
    interpolate_state *s = calloc(1, sizeof *s);
    if (!s) return TRI_FAIL(TRI_NO_MEMORY, "no memory to interpolate");
    kernel->state = s;
    *s = (interpolate_state){.device = cpu_of(device),
                             .outer = 1,
                             .inner = 1,
                             .from = gradient ? a.out : a.in,
                             .to = gradient ? a.in : a.out,
                             .bf16 = cpu_is_bf16(graph, node)};
    for (int i = 0; i < x->rank; i++)
        if (i != attr->axis) *(i < attr->axis ? &s->outer : &s->inner) *= x->dims[i];
    size_t terms = 0;
    for (int64_t i = 0; i < a.out; i++) {
        interpolate_source source = interpolate_from(&a, i);
        terms += (size_t)(source.last - source.first + 1);
    }
    s->begin = calloc((size_t)s->to + 1, sizeof *s->begin);
    s->at = calloc(terms, sizeof *s->at);
    s->share = calloc(terms, sizeof *s->share);
    double *totals = calloc((size_t)a.out, sizeof *totals);
    bool has_room = s->begin && s->at && s->share && totals;
    if (has_room) set_terms(s, &a, gradient, totals);
    free(totals);
    return has_room ? TRI_OK : TRI_FAIL(TRI_NO_MEMORY, "no memory to interpolate");
}

static tri_status interpolate_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const interpolate_state *s = kernel->state;
    interpolate_job job = {s, args->in[0], args->out[0]};
    cpu_parallel(s->device, s->outer * s->to, INTERPOLATE_GRAIN / (s->inner > 0 ? s->inner : 1) + 1,
                 interpolate_range(s->device, s->bf16), &job);
    return TRI_OK;
}

static void interpolate_release(tri_kernel *kernel) {
    interpolate_state *s = kernel->state;
    if (!s) return;
    free(s->begin);
    free(s->at);
    free(s->share);
    free(s);
}

#define INTERPOLATE_KERNEL(opname)                                                                 \
    const tri_kernel_def cpu_##opname##_rows = {                                                   \
        .op = &tri_op_##opname,                                                                    \
        .name = "rows",                                                                            \
        .supports = interpolate_supports,                                                          \
        .prepare = interpolate_prepare,                                                            \
        .run = interpolate_run,                                                                    \
        .release = interpolate_release,                                                            \
    };
INTERPOLATE_KERNEL(interpolate)
INTERPOLATE_KERNEL(interpolate_grad)
