// Batch norm and its gradient, over a micro-batch or (the ops batch_norm_shared and
// batch_norm_shared_grad) over the micro-batches of all replicas. The moments of a channel are the
// number of its values, their mean, and the sum of squared deviations from the mean; those of
// several replicas can be joined. ReLU or max pooling may be fused: the op then applies it to the
// normalised tensor to make y.
#include "device/ref/pool.h"

#include "device/moments.h"

// The sizes of a node's tensors.
typedef struct norm_sizes {
    int64_t samples, channels;
    int64_t inner;  // elements of a channel of a sample of x
    int64_t pooled; // elements of a channel of a sample of y, which is smaller after pooling
} norm_sizes;

REF_BODY norm_sizes norm_sizes_of(const tri_shape *x, const tri_shape *y) {
    norm_sizes sizes = {.samples = x->dims[0], .channels = x->dims[1]};
    int64_t planes = sizes.samples * sizes.channels;
    sizes.inner = planes ? ref_count(x) / planes : 0;
    sizes.pooled = planes ? ref_count(y) / planes : 0;
    return sizes;
}

// Computes channel c of sample n of y: (x - mean) · inv_std · weight + bias, then ReLU or pooling
// if one of them is fused.
REF_BODY void normalise_plane(const ref_node *node, const tri_kernel_args *args, bool f64,
                              const tri_batch_norm_attr *a, int64_t n, int64_t c, double mean,
                              double inv_std) {
    norm_sizes sizes = norm_sizes_of(&node->s.in[0], &node->s.out[0]);
    const int64_t *xd = node->s.in[0].dims, *yd = node->s.out[0].dims;
    double weight = get(ref_input(args, 1, f64), c), bias = get(ref_input(args, 2, f64), c);
    int64_t plane = n * sizes.channels + c;
    ref_array x = ref_from(ref_input(args, 0, f64), plane * sizes.inner);
    ref_array y = ref_from(ref_output(args, 0, f64), plane * sizes.pooled);
    bool pools = a->pool.kernel[0] != 0;
    ref_array to = pools ? (ref_array){args->workspace, f64} : y;
    for (int64_t i = 0; i < sizes.inner; i++) {
        double v = (get(x, i) - mean) * inv_std * weight + bias;
        put(to, i, a->relu && v <= 0 ? 0 : v);
    }
    if (!pools) return;
    uint8_t *index = node->s.output_count > 5 ? args->out[5] : NULL;
    for (int64_t i = 0; i < sizes.pooled; i++) {
        double value = 0;
        int best = ref_pool_maximum(&a->pool, to, xd[2], xd[3], i / yd[3], i % yd[3], &value);
        bool cut = a->pool.relu && value <= 0;
        put(y, i, cut ? 0 : value);
        if (index) index[plane * sizes.pooled + i] = (uint8_t)(cut ? TRI_POOL_NO_GRADIENT : best);
    }
}

// Normalises channel c by the moments m. Also writes the outputs that training needs: mean and
// inv_std for the gradient and, for the running mean and variance, samples · mean and samples ·
// variance. As sums over samples, these can be added up over micro-batches and ranks like
// gradients.
REF_BODY void normalise_channel(const ref_node *node, const tri_kernel_args *args, bool f64,
                                const tri_batch_norm_attr *a, int64_t c, tri_moments m) {
    int64_t samples = node->s.in[0].dims[0];
    double inv_std = 1 / sqrt(m.squares / m.count + a->eps);
    for (int64_t n = 0; n < samples; n++)
        normalise_plane(node, args, f64, a, n, c, m.mean, inv_std);
    put(ref_output(args, 1, f64), c, m.mean);
    put(ref_output(args, 2, f64), c, inv_std);
    put(ref_output(args, 3, f64), c, (double)samples * m.mean);
    put(ref_output(args, 4, f64), c, (double)samples * m.squares / (m.count - 1));
}

// The moments of channel c of x, which is input 0.
REF_BODY tri_moments channel_moments(const ref_node *node, const tri_kernel_args *args, bool f64,
                                     int64_t c) {
    ref_array x = ref_input(args, 0, f64);
    int64_t samples = node->s.in[0].dims[0], channels = node->s.in[0].dims[1];
    int64_t inner = ref_count(&node->s.in[0]) / (samples * channels);
    double sum = 0, squares = 0, count = (double)(samples * inner);
    for (int64_t n = 0; n < samples; n++)
        for (int64_t i = 0; i < inner; i++) sum += get(x, (n * channels + c) * inner + i);
    double mean = sum / count;
    for (int64_t n = 0; n < samples; n++)
        for (int64_t i = 0; i < inner; i++) {
            double d = get(x, (n * channels + c) * inner + i) - mean;
            squares += d * d;
        }
    return (tri_moments){.count = count, .mean = mean, .squares = squares};
}

REF_BODY tri_status batch_norm_body(const ref_node *node, const tri_kernel_args *args, bool f64) {
    const tri_batch_norm_attr *a = (const void *)node->attr;
    for (int64_t c = 0; c < node->s.in[0].dims[1]; c++)
        normalise_channel(node, args, f64, a, c, channel_moments(node, args, f64, c));
    return TRI_OK;
}

REF_BODY tri_status batch_norm_inference_body(const ref_node *node, const tri_kernel_args *args,
                                              bool f64) {
    const tri_batch_norm_attr *a = (const void *)node->attr;
    ref_array mean = ref_input(args, 3, f64), var = ref_input(args, 4, f64);
    norm_sizes sizes = norm_sizes_of(&node->s.in[0], &node->s.out[0]);
    for (int64_t n = 0; n < sizes.samples; n++)
        for (int64_t c = 0; c < sizes.channels; c++)
            normalise_plane(node, args, f64, a, n, c, get(mean, c), 1 / sqrt(get(var, c) + a->eps));
    return TRI_OK;
}

// Finds the gradient with respect to the normalised tensor, for channel c of sample n. Without
// fusion this is dy. A fused ReLU or pooling computes y from the normalised tensor. Then the
// gradient is 0 where ReLU made y 0, or at all pixels that are no window's maximum. Inputs 0 to 2
// are x, mask and dy; `mask` is y or, with pooling, the position of the maximum in each window.
REF_BODY ref_array plane_gradient(const ref_node *node, const tri_kernel_args *args, bool f64,
                                  const tri_batch_norm_attr *a, int64_t n, int64_t c) {
    norm_sizes sizes = norm_sizes_of(&node->s.in[0], &node->s.in[2]);
    int64_t at = (n * sizes.channels + c) * sizes.pooled;
    ref_array y = ref_from(ref_input(args, 1, f64), at), dy = ref_from(ref_input(args, 2, f64), at);
    ref_array out = {args->workspace, f64};
    if (a->pool.kernel[0] != 0)
        ref_pool_scatter(&a->pool, &node->s.in[0], &node->s.in[2],
                         (const uint8_t *)args->in[1] + at, dy, 1, out);
    for (int64_t i = 0; a->pool.kernel[0] == 0 && i < sizes.inner; i++)
        put(out, i, a->relu && get(y, i) <= 0 ? 0 : get(dy, i));
    return out;
}

// Computes the sums of d and of d · h over channel c, from which the gradients of x, weight and
// bias follow. d is the gradient that plane_gradient finds, and h = (x - mean) · inv_std.
REF_BODY void channel_grad_sums(const ref_node *node, const tri_kernel_args *args, bool f64,
                                const tri_batch_norm_attr *a, double mean, double inv_std,
                                int64_t c, double *sum, double *sum_h) {
    ref_array x = ref_input(args, 0, f64);
    int64_t samples = node->s.in[0].dims[0], channels = node->s.in[0].dims[1];
    int64_t inner = ref_count(&node->s.in[0]) / (samples * channels);
    *sum = *sum_h = 0;
    for (int64_t n = 0; n < samples; n++) {
        ref_array d = plane_gradient(node, args, f64, a, n, c);
        for (int64_t i = 0; i < inner; i++) {
            *sum += get(d, i);
            *sum_h += get(d, i) * (get(x, (n * channels + c) * inner + i) - mean) * inv_std;
        }
    }
}

REF_BODY tri_status batch_norm_grad_body(const ref_node *node, const tri_kernel_args *args,
                                         bool f64) {
    const tri_batch_norm_attr *a = (const void *)node->attr;
    ref_array x = ref_input(args, 0, f64), weight = ref_input(args, 3, f64);
    ref_array mean = ref_input(args, 4, f64), inv_std = ref_input(args, 5, f64);
    ref_array dx = ref_output(args, 0, f64), dweight = ref_output(args, 1, f64),
              dbias = ref_output(args, 2, f64);
    int64_t samples = node->s.in[0].dims[0], channels = node->s.in[0].dims[1];
    int64_t inner = ref_count(&node->s.in[0]) / (samples * channels);
    double values = (double)(samples * inner);
    for (int64_t c = 0; c < channels; c++) {
        double sum, sum_h;
        channel_grad_sums(node, args, f64, a, get(mean, c), get(inv_std, c), c, &sum, &sum_h);
        for (int64_t n = 0; n < samples; n++) {
            ref_array d = plane_gradient(node, args, f64, a, n, c);
            for (int64_t i = 0; i < inner; i++) {
                int64_t at = (n * channels + c) * inner + i;
                double h = (get(x, at) - get(mean, c)) * get(inv_std, c);
                put(dx, at,
                    get(weight, c) * get(inv_std, c) * (get(d, i) - (sum + h * sum_h) / values));
            }
        }
        put(dweight, c, sum_h);
        put(dbias, c, sum);
    }
    return TRI_OK;
}

REF_BODY tri_status batch_norm_moments_body(const ref_node *node, const tri_kernel_args *args,
                                            bool f64) {
    ref_array moments = ref_output(args, 0, f64);
    int64_t channels = node->s.in[0].dims[1];
    for (int64_t c = 0; c < channels; c++) {
        tri_moments m = channel_moments(node, args, f64, c);
        put(moments, c, m.mean);
        put(moments, channels + c, m.squares);
    }
    put(moments, 2 * channels, (double)node->s.in[0].dims[0]);
    return TRI_OK;
}

// Joins the moments of channel c of all replicas into those of all their samples together. For each
// replica `moments` has the means and the sums of squared deviations of all channels, and then the
// number of samples.
REF_BODY tri_moments join_moments(ref_array moments, int64_t replicas, int64_t channels,
                                  int64_t inner, int64_t c) {
    tri_moments all = {0};
    for (int64_t r = 0; r < replicas; r++, moments = ref_from(moments, 2 * channels + 1))
        all = tri_moments_join(all, (tri_moments){get(moments, 2 * channels) * (double)inner,
                                                  get(moments, c), get(moments, channels + c)});
    return all;
}

REF_BODY tri_status batch_norm_shared_body(const ref_node *node, const tri_kernel_args *args,
                                           bool f64) {
    const tri_batch_norm_shared_attr *a = (const void *)node->attr;
    int64_t samples = node->s.in[0].dims[0], channels = node->s.in[0].dims[1];
    int64_t inner = ref_count(&node->s.in[0]) / (samples * channels);
    for (int64_t c = 0; c < channels; c++)
        normalise_channel(
            node, args, f64, &a->norm, c,
            join_moments(ref_input(args, 3, f64), node->s.in[3].dims[0], channels, inner, c));
    return TRI_OK;
}

REF_BODY tri_status batch_norm_sums_body(const ref_node *node, const tri_kernel_args *args,
                                         bool f64) {
    const tri_batch_norm_attr *a = (const void *)node->attr;
    ref_array mean = ref_input(args, 3, f64), inv_std = ref_input(args, 4, f64);
    ref_array dweight = ref_output(args, 0, f64), dbias = ref_output(args, 1, f64),
              sums = ref_output(args, 2, f64);
    int64_t channels = node->s.in[0].dims[1];
    for (int64_t c = 0; c < channels; c++) {
        double sum, sum_h;
        channel_grad_sums(node, args, f64, a, get(mean, c), get(inv_std, c), c, &sum, &sum_h);
        put(dweight, c, sum_h);
        put(sums, c, sum_h);
        put(dbias, c, sum);
        put(sums, channels + c, sum);
    }
    return TRI_OK;
}

REF_BODY tri_status batch_norm_shared_grad_body(const ref_node *node, const tri_kernel_args *args,
                                                bool f64) {
    const tri_batch_norm_shared_attr *a = (const void *)node->attr;
    ref_array x = ref_input(args, 0, f64), weight = ref_input(args, 3, f64);
    ref_array mean = ref_input(args, 4, f64), inv_std = ref_input(args, 5, f64),
              sums = ref_input(args, 6, f64);
    ref_array dx = ref_output(args, 0, f64);
    int64_t samples = node->s.in[0].dims[0], channels = node->s.in[0].dims[1];
    int64_t inner = ref_count(&node->s.in[0]) / (samples * channels);
    for (int64_t c = 0; c < channels; c++) {
        double values =
            join_moments(ref_input(args, 7, f64), node->s.in[7].dims[0], channels, inner, c).count;
        for (int64_t n = 0; n < samples; n++) {
            ref_array d = plane_gradient(node, args, f64, &a->norm, n, c);
            for (int64_t i = 0; i < inner; i++) {
                int64_t at = (n * channels + c) * inner + i;
                double h = (get(x, at) - get(mean, c)) * get(inv_std, c);
                double rest = get(sums, channels + c) + h * get(sums, c);
                put(dx, at, get(weight, c) * get(inv_std, c) * (get(d, i) - rest / values));
            }
        }
    }
    return TRI_OK;
}

// The workspace holds one channel of one sample: the normalised values, or their gradient.
#define NORM_KERNEL(op_name) REF_SUMMING_KERNEL(op_name, ref_plane(s))
static int64_t ref_plane(const tri_op_signature *s) {
    int64_t planes = s->in[0].dims[0] * s->in[0].dims[1];
    return planes ? ref_count(&s->in[0]) / planes : 0;
}
NORM_KERNEL(batch_norm)
NORM_KERNEL(batch_norm_inference)
NORM_KERNEL(batch_norm_grad)
REF_KERNEL(batch_norm_moments)
NORM_KERNEL(batch_norm_shared)
NORM_KERNEL(batch_norm_sums)
NORM_KERNEL(batch_norm_shared_grad)
