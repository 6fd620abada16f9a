// The loops of batch norm over plain tensors of any instruction set, F32 and BF16. norm.h describes
// what they compute. A plane is one channel of one sample.
//
// A sum over a plane has NORM_LANES sums side by side. Each is F32 within a run of CPU_SUM_TERMS
// terms, and F64 over these runs.
#include "device/cpu/norm.h"
#include "device/cpu/scalar.h"

enum { NORM_LANES = 32 };

// Calls BODY(i, k) for the elements i of [begin, end), and the lane k of each.
#define EACH_PIXEL(begin, end, BODY)                                                               \
    do {                                                                                           \
        int64_t i_ = (begin);                                                                      \
        for (; i_ + NORM_LANES <= (end); i_ += NORM_LANES)                                         \
            _Pragma("GCC ivdep") for (int k = 0; k < NORM_LANES; k++) BODY(i_ + k, k);             \
        for (int k = 0; i_ + k < (end); k++) BODY(i_ + k, k);                                      \
    } while (0)

CPU_SCALAR int64_t run_end(int64_t begin, int64_t end) {
    int64_t run = NORM_LANES * CPU_SUM_TERMS;
    return end - begin < run ? end : begin + run;
}

CPU_SCALAR double lanes_sum(float *sum) {
    for (int half = NORM_LANES / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++) sum[k] += sum[k + half];
    return (double)sum[0];
}

// The sum of elements [first, last) or, if `squares`, of the squares of their deviations from
// `mean`.
CPU_SCALAR double plane_sum(const void *x, bool bf16, int64_t first, int64_t last, float mean,
                            bool squares) {
    double all = 0;
#define ADD(i, k)                                                                                  \
    do {                                                                                           \
        float value_ = cpu_get(x, bf16, i) - mean;                                                 \
        sum[k] += squares ? value_ * value_ : value_;                                              \
    } while (0)
    for (int64_t begin = first, end; begin < last; begin = end) {
        float sum[NORM_LANES] = {0};
        end = run_end(begin, last);
        EACH_PIXEL(begin, end, ADD);
        all += lanes_sum(sum);
    }
#undef ADD
    return all;
}

CPU_BODY moments_typed(void *context, int64_t begin, int64_t end, bool bf16) {
    const norm_job *job = context;
    int64_t pixels = job->state->pixels;
    for (int64_t i = begin; i < end; i++) {
        int64_t first = i * pixels, last = first + pixels;
        double mean = plane_sum(job->x, bf16, first, last, 0, false) / (double)pixels;
        // The deviations are from the mean rounded to F32. That makes the sum of their squares
        // larger by pixels · error².
        double error = mean - (double)(float)mean;
        job->mean_or_dy_sum[i] = mean;
        job->squares_or_product_sum[i] = plane_sum(job->x, bf16, first, last, (float)mean, true) -
                                         (double)pixels * error * error;
    }
}
CPU_TYPED_RANGES(moments)

CPU_BODY affine_typed(void *context, int64_t begin, int64_t end, bool bf16) {
    const norm_job *job = context;
    const norm_state *s = job->state;
    for (int64_t i = begin; i < end; i++) {
        float scale = job->scale[i % s->channels], shift = job->shift[i % s->channels];
        bool relu = s->relu;
#pragma GCC ivdep
        for (int64_t p = i * s->pixels; p < (i + 1) * s->pixels; p++) {
            float value = cpu_get(job->x, bf16, p) * scale + shift;
            cpu_put(job->out, bf16, p, relu && value <= 0 ? 0 : value); // NaN stays
        }
    }
}
CPU_TYPED_RANGES(affine)

// The gradient of an element of the normalised tensor: 0 where a fused ReLU made y 0.
CPU_SCALAR float dy_of(const norm_job *job, bool bf16, bool relu, int64_t i) {
    float dy = cpu_get(job->dy, bf16, i);
    return relu && cpu_get(job->y, bf16, i) <= 0 ? 0 : dy;
}

CPU_SCALAR void plane_gradient_sums(const norm_job *job, int64_t plane, bool bf16, bool relu) {
    const norm_state *s = job->state;
    int64_t last = (plane + 1) * s->pixels;
    float mean = job->mean[plane % s->channels];
    double dy_sum = 0, product_sum = 0;
#define ADD(i, k)                                                                                  \
    do {                                                                                           \
        float dy_ = dy_of(job, bf16, relu, i);                                                     \
        sum[k] += dy_;                                                                             \
        product[k] += dy_ * (cpu_get(job->x, bf16, i) - mean);                                     \
    } while (0)
    for (int64_t begin = plane * s->pixels, end; begin < last; begin = end) {
        float sum[NORM_LANES] = {0}, product[NORM_LANES] = {0};
        end = run_end(begin, last);
        EACH_PIXEL(begin, end, ADD);
        dy_sum += lanes_sum(sum);
        product_sum += lanes_sum(product);
    }
#undef ADD
    job->mean_or_dy_sum[plane] = dy_sum;
    job->squares_or_product_sum[plane] = product_sum;
}

CPU_BODY gradient_sums_typed(void *context, int64_t begin, int64_t end, bool bf16) {
    const norm_job *job = context;
    for (int64_t i = begin; i < end; i++)
        if (job->state->relu)
            plane_gradient_sums(job, i, bf16, true);
        else
            plane_gradient_sums(job, i, bf16, false);
}
CPU_TYPED_RANGES(gradient_sums)

CPU_SCALAR void plane_gradient(const norm_job *job, int64_t plane, bool bf16, bool relu) {
    const norm_state *s = job->state;
    int64_t c = plane % s->channels;
    float mean = job->mean[c], scale = job->scale[c], slope = job->slope[c], shift = job->shift[c];
#pragma GCC ivdep
    for (int64_t p = plane * s->pixels; p < (plane + 1) * s->pixels; p++) {
        float h = cpu_get(job->x, bf16, p) - mean;
        cpu_put(job->out, bf16, p, scale * dy_of(job, bf16, relu, p) + (slope * h + shift));
    }
}

CPU_BODY gradient_typed(void *context, int64_t begin, int64_t end, bool bf16) {
    const norm_job *job = context;
    for (int64_t i = begin; i < end; i++)
        if (job->state->relu)
            plane_gradient(job, i, bf16, true);
        else
            plane_gradient(job, i, bf16, false);
}
CPU_TYPED_RANGES(gradient)

cpu_range cpu_norm_plain_loop(const cpu_device *device, norm_loop loop, bool bf16) {
    switch (loop) {
    case NORM_MOMENTS:
        return moments_range(device, bf16);
    case NORM_AFFINE:
        return affine_range(device, bf16);
    case NORM_GRADIENT_SUMS:
        return gradient_sums_range(device, bf16);
    case NORM_GRADIENT:
        break;
    }
    return gradient_range(device, bf16);
}
