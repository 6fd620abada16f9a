// Batch norm and its gradient, of nChw16c tensors by AVX-512, and of plain ones. ReLU may be fused
// into it or, in blocks, max pooling whose windows do not overlap. A plane is what lies together of
// one sample, 16 channels or one, over all its pixels.
//
// norm_planes.c and norm_plain.c loop over pixels, and here the results of planes are joined. Their
// moments (number of values, mean, and sum of squared deviations from the mean) are combined in
// the order of the samples (Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm
// for computing sample variances", 1979), so that the results do not depend on the number of
// threads.
//
// With synchronised batch norm (the ops batch_norm_shared and batch_norm_shared_grad), several
// replicas, which compute different samples, normalise by their common moments.
#include "device/cpu/norm.h"
#include "device/moments.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// The attributes of all ops of batch norm begin with tri_batch_norm_attr; only batch_norm_moments
// has none.
static const tri_batch_norm_attr *attr_of(const tri_node *node) {
    static const tri_batch_norm_attr none = {0};
    return node->op->attr_bytes ? node->attr : &none;
}

static bool pools(const tri_node *node) { return attr_of(node)->pool.kernel[0] != 0; }

static bool is_forward(const tri_node *node) {
    return node->op == &tri_op_batch_norm || node->op == &tri_op_batch_norm_inference ||
           node->op == &tri_op_batch_norm_shared;
}

// Gets the value that has the size of the pooled tensor: the output of a forward op, or dy of a
// gradient op.
static tri_value pooled_value(const tri_node *node) {
    return is_forward(node) ? node->outputs[0] : node->inputs[2];
}

static bool pool_supports(const tri_graph *graph, const tri_node *node) {
    const tri_max_pool2d_attr *pool = &attr_of(node)->pool;
    tri_dtype x = tri_value_get(graph, node->inputs[0])->dtype;
    return tri_value_get(graph, pooled_value(node))->dtype == x &&
           pool->stride[0] >= pool->kernel[0] && pool->stride[1] >= pool->kernel[1] &&
           pool->kernel[0] * pool->kernel[1] <= NORM_NO_WINDOW;
}

// Whether all inputs and outputs that have the shape of x also have its type.
static bool have_type_of_x(const tri_graph *graph, const tri_node *node) {
    const tri_value_info *x = tri_value_get(graph, node->inputs[0]);
    for (int i = 0; i < node->input_count + node->output_count; i++) {
        tri_value value =
            i < node->input_count ? node->inputs[i] : node->outputs[i - node->input_count];
        const tri_value_info *info = tri_value_get(graph, value);
        if (tri_shape_equal(&info->shape, &x->shape) && info->dtype != x->dtype) return false;
    }
    return true;
}

static bool norm_supports(const tri_device_description *device, const tri_graph *graph,
                          const tri_node *node) {
    const tri_shape *x = cpu_in_shape(graph, node, 0);
    return cpu_has_avx512_float(device, graph, node) && have_type_of_x(graph, node) &&
           x->rank == 4 && x->dims[1] % CPU_BLOCK == 0 && tri_shape_count(x) > 0 &&
           (!pools(node) || pool_supports(graph, node));
}

static bool plain_supports(const tri_device_description *device, const tri_graph *graph,
                           const tri_node *node) {
    return cpu_is_float(device, graph, node) && have_type_of_x(graph, node) && !pools(node) &&
           tri_shape_count(cpu_in_shape(graph, node, 0)) > 0;
}

static void norm_layouts(const tri_device_description *device, const tri_graph *graph,
                         const tri_node *node, tri_layout *in, tri_layout *out) {
    tri_layout blocked = cpu_format_layout(CPU_NCHW16C);
    bool dy_is_blocked = pools(node) && !is_forward(node) && cpu_layout_is(&in[2], CPU_NCHW16C);
    in[0] = blocked;
    cpu_layouts_of_first(device, graph, node, in, out);
    if (!pools(node)) return;
    if (is_forward(node)) {
        out[0] = cpu_is_read_blocked(graph, node->outputs[0]) ? blocked : TRI_LAYOUT_PLAIN;
        if (node->output_count > 5) out[5] = blocked;
        return;
    }
    in[1] = blocked;
    in[2] = dy_is_blocked ? blocked : TRI_LAYOUT_PLAIN;
}

static cpu_pool pool_of(const tri_graph *graph, const tri_node *node) {
    return cpu_pool_of(&attr_of(node)->pool, cpu_in_shape(graph, node, 0),
                       tri_value_get(graph, pooled_value(node)));
}

// At which byte of the workspace the memory of the pooling begins: behind norm_job's mean_or_dy_sum
// and squares_or_product_sum (samples · channels F64 each) and its scale, shift and slope (channels
// F32 each).
static size_t pool_offset(int64_t samples, int64_t channels) {
    size_t vectors = 3 * (size_t)channels * sizeof(float);
    size_t sums = 2 * (size_t)(samples * channels) * sizeof(double);
    return (sums + vectors + 63) / 64 * 64;
}

static tri_status norm_workspace(const tri_device_description *device, const tri_graph *graph,
                                 const tri_node *node, size_t *out) {
    const int64_t *x = cpu_in_shape(graph, node, 0)->dims;
    *out = pool_offset(x[0], x[1]);
    if (!pools(node)) return TRI_OK;
    cpu_pool pool = pool_of(graph, node);
    *out += cpu_pool_workspace(&pool, device->threads);
    return TRI_OK;
}

// Finds for each pixel of a plane its pooling window and its position in that window.
static norm_window_pixel *window_pixels_of(const cpu_pool *pool) {
    norm_window_pixel *window_pixels =
        calloc((size_t)(pool->in[0] * pool->in[1]), sizeof *window_pixels);
    for (int64_t p = 0; window_pixels && p < pool->in[0] * pool->in[1]; p++) {
        int64_t h = p / pool->in[1] + pool->padding[0], w = p % pool->in[1] + pool->padding[1];
        int64_t row = h / pool->stride[0], column = w / pool->stride[1];
        int64_t kh = h % pool->stride[0], kw = w % pool->stride[1];
        bool inside = row < pool->out[0] && column < pool->out[1] && kh < pool->kernel[0] &&
                      kw < pool->kernel[1];
        window_pixels[p].position = inside ? (uint8_t)(kh * pool->kernel[1] + kw) : NORM_NO_WINDOW;
        if (inside) window_pixels[p].pooled = (uint32_t)(row * pool->out[1] + column);
    }
    return window_pixels;
}

static void norm_release(tri_kernel *kernel) {
    norm_state *state = kernel->state;
    if (state) free(state->window_pixels);
    free(state);
}

static tri_status prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                          tri_kernel *kernel, int64_t block) {
    const tri_batch_norm_attr *attr = attr_of(node);
    const tri_shape *x = cpu_in_shape(graph, node, 0);
    const tri_shape *last = cpu_in_shape(graph, node, node->input_count - 1);
    norm_state *state = calloc(1, sizeof *state);
    if (!state) return TRI_FAIL(TRI_NO_MEMORY, "no memory for batch norm");
    *state = (norm_state){.device = cpu_of(device),
                          .samples = x->dims[0],
                          .channels = x->dims[1],
                          .block = block,
                          .pixels = tri_shape_count(x) / (x->dims[0] * x->dims[1]),
                          .replicas = last->dims[0],
                          .eps = attr->eps,
                          .relu = attr->relu,
                          .bf16 = cpu_is_bf16(graph, node)};
    kernel->state = state;
    if (!pools(node)) return TRI_OK;
    state->pool = pool_of(graph, node);
    state->window_pixels = window_pixels_of(&state->pool);
    return state->window_pixels ? TRI_OK : TRI_FAIL(TRI_NO_MEMORY, "no memory for batch norm");
}

static tri_status norm_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                               tri_kernel *kernel) {
    return prepare(device, graph, node, kernel, CPU_BLOCK);
}

static tri_status plain_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                                tri_kernel *kernel) {
    return prepare(device, graph, node, kernel, 1);
}

static norm_job job_of(const norm_state *s, const tri_kernel_args *args) {
    double *sums = args->workspace;
    int64_t count = s->samples * s->channels;
    const float *vectors = (const float *)(sums + 2 * count);
    return (norm_job){.state = s,
                      .x = args->in[0],
                      .out = args->out[0],
                      .mean_or_dy_sum = sums,
                      .squares_or_product_sum = sums + count,
                      .scale = vectors,
                      .shift = vectors + s->channels,
                      .slope = vectors + 2 * s->channels,
                      .pool.pool = &s->pool,
                      .pool.workspace =
                          (char *)args->workspace + pool_offset(s->samples, s->channels)};
}

static norm_job gradient_job_of(const norm_state *s, const tri_kernel_args *args) {
    norm_job job = job_of(s, args);
    job.y = args->in[1];
    job.dy = args->in[2];
    job.pool.index = args->in[1];
    job.pool.from = args->in[2];
    return job;
}

static void each_plane(const norm_state *s, norm_loop loop, norm_job *job) {
    int64_t grain = 1 + 1024 * CPU_BLOCK / (s->block * s->pixels);
    bool pools = s->window_pixels != NULL;
    cpu_range range = s->block == 1 ? cpu_norm_plain_loop(s->device, loop, s->bf16)
                                    : cpu_norm_blocked_loop(loop, s->bf16, pools);
    cpu_parallel(s->device, s->samples * s->channels / s->block, grain, range, job);
}

// Joins the moments of channel c over all planes, in the order of the samples, so that the result
// does not depend on the number of threads.
static tri_moments join_planes(const norm_job *job, int64_t c) {
    const norm_state *s = job->state;
    tri_moments all = {0};
    for (int64_t n = 0; n < s->samples; n++) {
        int64_t at = n * s->channels + c;
        all = tri_moments_join(all, (tri_moments){(double)s->pixels, job->mean_or_dy_sum[at],
                                                  job->squares_or_product_sum[at]});
    }
    return all;
}

// Joins the moments of channel c over all replicas, in the order of their ranks, so that all get
// the same result. For each replica `moments` has the means and the sums of squared deviations of
// all channels, and the number of samples.
static tri_moments join_replicas(const norm_state *s, const float *moments, int64_t c) {
    tri_moments all = {0};
    for (int64_t r = 0; r < s->replicas; r++, moments += 2 * s->channels + 1)
        all = tri_moments_join(all,
                               (tri_moments){(double)moments[2 * s->channels] * (double)s->pixels,
                                             moments[c], moments[s->channels + c]});
    return all;
}

// Sets scale and shift of channel c, with which NORM_AFFINE computes y, and writes outputs 1 to
// 4 of the batch norm: mean, inv_std, mean_sum (samples × mean) and var_sum (samples × variance).
static void normalise(const norm_job *job, const tri_kernel_args *args, int64_t c, tri_moments m) {
    const norm_state *s = job->state;
    const float *weight = args->in[1], *bias = args->in[2];
    double inv_std = 1 / sqrt(m.squares / m.count + s->eps);
    ((float *)args->out[1])[c] = (float)m.mean;
    ((float *)args->out[2])[c] = (float)inv_std;
    ((float *)args->out[3])[c] = (float)(m.mean * (double)s->samples);
    ((float *)args->out[4])[c] = (float)(m.squares / (m.count - 1) * (double)s->samples);
    ((float *)job->scale)[c] = (float)(weight[c] * inv_std);
    ((float *)job->shift)[c] = (float)(bias[c] - m.mean * inv_std * weight[c]);
}

// Computes y from x, scale and shift. With pooling, `index` receives for each result the position
// of the maximum in its window; NULL: nobody needs these positions.
static void apply(norm_job *job, void *index) {
    const norm_state *s = job->state;
    if (!s->window_pixels) {
        each_plane(s, NORM_AFFINE, job);
        return;
    }
    job->pool.from = job->x;
    job->pool.to = job->out;
    job->pool.index = index;
    job->pool.scale = job->scale;
    job->pool.shift = job->shift;
    cpu_parallel(s->device, s->pool.planes, 2, cpu_pool_planes, &job->pool);
}

static tri_status forward_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const norm_state *s = kernel->state;
    norm_job job = job_of(s, args);
    each_plane(s, NORM_MOMENTS, &job);
    for (int64_t c = 0; c < s->channels; c++) normalise(&job, args, c, join_planes(&job, c));
    apply(&job, args->out[5]);
    return TRI_OK;
}

static tri_status moments_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const norm_state *s = kernel->state;
    norm_job job = job_of(s, args);
    float *moments = args->out[0];
    each_plane(s, NORM_MOMENTS, &job);
    for (int64_t c = 0; c < s->channels; c++) {
        tri_moments m = join_planes(&job, c);
        moments[c] = (float)m.mean;
        moments[s->channels + c] = (float)m.squares;
    }
    moments[2 * s->channels] = (float)s->samples;
    return TRI_OK;
}

static tri_status shared_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const norm_state *s = kernel->state;
    norm_job job = job_of(s, args);
    for (int64_t c = 0; c < s->channels; c++)
        normalise(&job, args, c, join_replicas(s, args->in[3], c));
    apply(&job, args->out[5]);
    return TRI_OK;
}

static tri_status inference_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const norm_state *s = kernel->state;
    const float *weight = args->in[1], *bias = args->in[2];
    const float *mean = args->in[3], *variance = args->in[4];
    norm_job job = job_of(s, args);
    float *scale = (float *)job.scale, *shift = (float *)job.shift;
    for (int64_t c = 0; c < s->channels; c++) {
        double inv_std = 1 / sqrt(variance[c] + s->eps);
        scale[c] = (float)(weight[c] * inv_std);
        shift[c] = (float)(bias[c] - mean[c] * inv_std * weight[c]);
    }
    apply(&job, NULL);
    return TRI_OK;
}

// Computes the gradients of weight and bias. For each channel they are the sums of dy · h and of dy
// over all samples and pixels, where h is the normalised x.
static void gradient_sums(norm_job *job, const float *mean, const float *inv_std, float *dweight,
                          float *dbias) {
    const norm_state *s = job->state;
    job->mean = mean;
    each_plane(s, NORM_GRADIENT_SUMS, job);
    for (int64_t c = 0; c < s->channels; c++) {
        double sum = 0, product = 0;
        for (int64_t n = 0; n < s->samples; n++) {
            sum += job->mean_or_dy_sum[n * s->channels + c];
            product += job->squares_or_product_sum[n * s->channels + c];
        }
        dbias[c] = (float)sum;
        dweight[c] = (float)(product * inv_std[c]);
    }
}

// Sets the factors of channel c with which NORM_GRADIENT computes dx. `sum` and `product` are
// the sums of dy and of dy · h, where h is the normalised x, over all values of the channel, and
// `all` is the number of these values.
static void set_gradient(const norm_job *job, int64_t c, double weight, double inv_std, double sum,
                         double product, double all) {
    double factor = weight * inv_std;
    ((float *)job->scale)[c] = (float)factor;
    ((float *)job->shift)[c] = (float)(-factor * sum / all);
    ((float *)job->slope)[c] = (float)(-factor * product * inv_std / all);
}

static tri_status gradient_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const norm_state *s = kernel->state;
    const float *weight = args->in[3], *inv_std = args->in[5];
    float *dweight = args->out[1], *dbias = args->out[2];
    norm_job job = gradient_job_of(s, args);
    gradient_sums(&job, args->in[4], inv_std, dweight, dbias);
    double all = (double)s->pixels * (double)s->samples;
    for (int64_t c = 0; c < s->channels; c++)
        set_gradient(&job, c, weight[c], inv_std[c], dbias[c], dweight[c], all);
    each_plane(s, NORM_GRADIENT, &job);
    return TRI_OK;
}

static tri_status sums_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const norm_state *s = kernel->state;
    float *dweight = args->out[0], *dbias = args->out[1], *sums = args->out[2];
    norm_job job = gradient_job_of(s, args);
    gradient_sums(&job, args->in[3], args->in[4], dweight, dbias);
    memcpy(sums, dweight, (size_t)s->channels * sizeof *sums);
    memcpy(sums + s->channels, dbias, (size_t)s->channels * sizeof *sums);
    return TRI_OK;
}

static tri_status shared_gradient_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const norm_state *s = kernel->state;
    const float *weight = args->in[3], *inv_std = args->in[5], *sums = args->in[6];
    norm_job job = gradient_job_of(s, args);
    job.mean = args->in[4];
    for (int64_t c = 0; c < s->channels; c++)
        set_gradient(&job, c, weight[c], inv_std[c], sums[s->channels + c], sums[c],
                     join_replicas(s, args->in[7], c).count);
    each_plane(s, NORM_GRADIENT, &job);
    return TRI_OK;
}

#define NORM_KERNEL(identifier, runs)                                                              \
    const tri_kernel_def cpu_##identifier##_blocked = {                                            \
        .op = &tri_op_##identifier,                                                                \
        .name = "avx512-blocked",                                                                  \
        .supports = norm_supports,                                                                 \
        .layouts = norm_layouts,                                                                   \
        .workspace = norm_workspace,                                                               \
        .prepare = norm_prepare,                                                                   \
        .run = runs,                                                                               \
        .release = norm_release,                                                                   \
    };                                                                                             \
    const tri_kernel_def cpu_##identifier##_planes = {                                             \
        .op = &tri_op_##identifier,                                                                \
        .name = "planes",                                                                          \
        .supports = plain_supports,                                                                \
        .workspace = norm_workspace,                                                               \
        .prepare = plain_prepare,                                                                  \
        .run = runs,                                                                               \
        .release = norm_release,                                                                   \
    };
NORM_KERNEL(batch_norm, forward_run)
NORM_KERNEL(batch_norm_inference, inference_run)
NORM_KERNEL(batch_norm_grad, gradient_run)
NORM_KERNEL(batch_norm_moments, moments_run)
NORM_KERNEL(batch_norm_shared, shared_run)
NORM_KERNEL(batch_norm_sums, sums_run)
NORM_KERNEL(batch_norm_shared_grad, shared_gradient_run)
