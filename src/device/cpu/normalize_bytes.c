// Normalises images of bytes to F32, by the same vector code as in the data loader
// (tensor/pixels.c), one channel of one sample at a time.
#include "device/cpu/internal.h"

#include "tensor/pixels.h"

#include <stdlib.h>

typedef struct normalize_state {
    const cpu_device *device;
    int64_t samples, channels, plane; // `plane` is the number of pixels of one channel
    tri_pixels pixels[];              // by channel: a table of the normalised value of each byte
} normalize_state;

typedef struct normalize_job {
    const normalize_state *state;
    const uint8_t *from;
    float *to;
} normalize_job;

static void normalize_range(void *context, int64_t begin, int64_t end, int thread) {
    const normalize_job *job = context;
    const normalize_state *s = job->state;
    for (int64_t i = begin; i < end; i++)
        tri_pixels_apply(&s->pixels[i % s->channels], job->from + i * s->plane,
                         job->to + i * s->plane, s->plane);
}

static tri_status normalize_prepare(tri_device *device, const tri_graph *graph,
                                    const tri_node *node, tri_kernel *kernel) {
    const tri_pixel_scale *scale = node->attr;
    const tri_shape *x = &tri_value_get(graph, node->inputs[0])->shape;
    size_t channels = (size_t)scale->channels;
    normalize_state *s = calloc(1, sizeof *s + channels * sizeof *s->pixels);
    if (!s) return TRI_FAIL(TRI_NO_MEMORY, "no memory for kernel %s", node->op->name);
    s->device = cpu_of(device);
    s->samples = x->dims[0];
    s->channels = scale->channels;
    s->plane = tri_shape_count(x) / (s->samples * s->channels);
    for (int64_t c = 0; c < s->channels; c++) tri_pixels_make(&s->pixels[c], scale, c);
    kernel->state = s;
    return TRI_OK;
}

static tri_status normalize_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const normalize_state *s = kernel->state;
    normalize_job job = {.state = s, .from = args->in[0], .to = args->out[0]};
    cpu_parallel(s->device, s->samples * s->channels, 1 + 65536 / s->plane, normalize_range, &job);
    return TRI_OK;
}

static void normalize_release(tri_kernel *kernel) { free(kernel->state); }

const tri_kernel_def cpu_normalize_bytes = {.op = &tri_op_normalize_bytes,
                                            .name = "vector",
                                            .prepare = normalize_prepare,
                                            .run = normalize_run,
                                            .release = normalize_release};
