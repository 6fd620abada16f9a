// Batch norm over a micro-batch, or over the micro-batches of all replicas, whose moments are
// joined.
#include "device/ref/node.h"

#include "device/moments.h"

#include <math.h>

// Normalises channel c: y = activation((x - mean) · inv_std · weight + bias). Also writes the
// outputs that training needs: mean and inv_std for the gradient, and sums over samples for the two
// running statistics.
REF_BODY void normalise_channel(const ref_node *node, const tri_kernel_args *args, bool f64,
                                const tri_batch_norm_attr *a, int64_t c, tri_moments m) {
    ref_array x = ref_input(args, 0, f64), y = ref_output(args, 0, f64);
    double weight = get(ref_input(args, 1, f64), c), bias = get(ref_input(args, 2, f64), c);
    int64_t samples = node->s.in[0].dims[0], channels = node->s.in[0].dims[1];
    int64_t inner = ref_count(&node->s.in[0]) / (samples * channels);
    double inv_std = 1 / sqrt(m.squares / m.count + a->eps);
    for (int64_t n = 0; n < samples; n++)
        for (int64_t i = 0; i < inner; i++) {
            int64_t at = (n * channels + c) * inner + i;
            double v = (get(x, at) - m.mean) * inv_std * weight + bias;
            put(y, at, ref_activate(a->relu ? TRI_ACTIVATION_RELU : 0, 0, v));
        }
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
    ref_array x = ref_input(args, 0, f64), weight = ref_input(args, 1, f64),
              bias = ref_input(args, 2, f64);
    ref_array mean = ref_input(args, 3, f64), var = ref_input(args, 4, f64);
    ref_array y = ref_output(args, 0, f64);
    int64_t samples = node->s.in[0].dims[0], channels = node->s.in[0].dims[1];
    int64_t count = ref_count(&node->s.in[0]), inner = count ? count / (samples * channels) : 1;
    for (int64_t at = 0; at < count; at++) {
        int64_t c = at / inner % channels;
        double v = (get(x, at) - get(mean, c)) / sqrt(get(var, c) + a->eps);
        v = v * get(weight, c) + get(bias, c);
        put(y, at, ref_activate(a->relu ? TRI_ACTIVATION_RELU : 0, 0, v));
    }
    return TRI_OK;
}

// Computes two sums for channel c, from which the gradients follow: the sum of dy, and of dy times
// the normalised x. Where a fused ReLU made y 0, dy counts as 0. Inputs 0 to 2 are x, y and dy.
REF_BODY void channel_grad_sums(const ref_node *node, const tri_kernel_args *args, bool f64,
                                bool relu, double mean, double inv_std, int64_t c, double *sum,
                                double *sum_h) {
    ref_array x = ref_input(args, 0, f64), y = ref_input(args, 1, f64),
              dy = ref_input(args, 2, f64);
    int64_t samples = node->s.in[0].dims[0], channels = node->s.in[0].dims[1];
    int64_t inner = ref_count(&node->s.in[0]) / (samples * channels);
    *sum = *sum_h = 0;
    for (int64_t n = 0; n < samples; n++)
        for (int64_t i = 0; i < inner; i++) {
            int64_t at = (n * channels + c) * inner + i;
            double d = relu && !(get(y, at) > 0) ? 0 : get(dy, at);
            *sum += d;
            *sum_h += d * (get(x, at) - mean) * inv_std;
        }
}

REF_BODY tri_status batch_norm_grad_body(const ref_node *node, const tri_kernel_args *args,
                                         bool f64) {
    const tri_batch_norm_attr *a = (const void *)node->attr;
    ref_array x = ref_input(args, 0, f64), y = ref_input(args, 1, f64),
              dy = ref_input(args, 2, f64), weight = ref_input(args, 3, f64);
    ref_array mean = ref_input(args, 4, f64), inv_std = ref_input(args, 5, f64);
    ref_array dx = ref_output(args, 0, f64), dweight = ref_output(args, 1, f64),
              dbias = ref_output(args, 2, f64);
    int64_t samples = node->s.in[0].dims[0], channels = node->s.in[0].dims[1];
    int64_t inner = ref_count(&node->s.in[0]) / (samples * channels);
    double values = (double)(samples * inner);
    for (int64_t c = 0; c < channels; c++) {
        double sum, sum_h;
        channel_grad_sums(node, args, f64, a->relu, get(mean, c), get(inv_std, c), c, &sum, &sum_h);
        for (int64_t n = 0; n < samples; n++)
            for (int64_t i = 0; i < inner; i++) {
                int64_t at = (n * channels + c) * inner + i;
                double d = a->relu && !(get(y, at) > 0) ? 0 : get(dy, at);
                double h = (get(x, at) - get(mean, c)) * get(inv_std, c);
                put(dx, at, get(weight, c) * get(inv_std, c) * (d - (sum + h * sum_h) / values));
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

// Joins the moments of channel c of all replicas.
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
        channel_grad_sums(node, args, f64, a->relu, get(mean, c), get(inv_std, c), c, &sum, &sum_h);
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
    ref_array x = ref_input(args, 0, f64), y = ref_input(args, 1, f64),
              dy = ref_input(args, 2, f64), weight = ref_input(args, 3, f64);
    ref_array mean = ref_input(args, 4, f64), inv_std = ref_input(args, 5, f64),
              sums = ref_input(args, 6, f64);
    ref_array dx = ref_output(args, 0, f64);
    int64_t samples = node->s.in[0].dims[0], channels = node->s.in[0].dims[1];
    int64_t inner = ref_count(&node->s.in[0]) / (samples * channels);
    for (int64_t c = 0; c < channels; c++) {
        double values =
            join_moments(ref_input(args, 7, f64), node->s.in[7].dims[0], channels, inner, c).count;
        for (int64_t n = 0; n < samples; n++)
            for (int64_t i = 0; i < inner; i++) {
                int64_t at = (n * channels + c) * inner + i;
                double d = a->norm.relu && !(get(y, at) > 0) ? 0 : get(dy, at);
                double h = (get(x, at) - get(mean, c)) * get(inv_std, c);
                double rest = get(sums, channels + c) + h * get(sums, c);
                put(dx, at, get(weight, c) * get(inv_std, c) * (d - rest / values));
            }
    }
    return TRI_OK;
}

REF_KERNEL(batch_norm)
REF_KERNEL(batch_norm_inference)
REF_KERNEL(batch_norm_grad)
REF_KERNEL(batch_norm_moments)
REF_KERNEL(batch_norm_shared)
REF_KERNEL(batch_norm_sums)
REF_KERNEL(batch_norm_shared_grad)
