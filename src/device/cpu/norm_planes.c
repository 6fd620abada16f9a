// The loops of batch norm over tensors in blocks of 16 channels, for F32 and BF16, with and without
// a fused max pooling, by AVX-512. norm.h describes what they compute. A plane is 16 channels of
// one sample.
//
// A sum over a plane is F32 within each run of 64 pixels, and F64 over these runs.
#include "device/cpu/norm.h"

enum { NORM_F32_PIXELS = 64 }; // pixels that are summed in F32 before their sum is added in F64

typedef struct norm_sum {
    __m512d low, high; // sums of channels 0 to 7, and of channels 8 to 15
} norm_sum;

static CPU_AVX512 inline norm_sum sum_add(norm_sum sum, __m512 values) {
    sum.low = _mm512_add_pd(sum.low, _mm512_cvtps_pd(_mm512_castps512_ps256(values)));
    sum.high = _mm512_add_pd(sum.high, _mm512_cvtps_pd(_mm512_extractf32x8_ps(values, 1)));
    return sum;
}

static CPU_AVX512 inline void sum_store(norm_sum sum, double *to) {
    _mm512_storeu_pd(to, sum.low);
    _mm512_storeu_pd(to + 8, sum.high);
}

static CPU_AVX512 inline norm_sum sum_zero(void) {
    return (norm_sum){_mm512_setzero_pd(), _mm512_setzero_pd()};
}

// Loads the 16 channels of a pixel.
CPU_INLINE __m512 load(const void *image, bool bf16, int64_t pixel) {
    return cpu_load(image, bf16, pixel * CPU_BLOCK, 0xFFFF);
}

// The end of the run of pixels that begins with pixel p.
static int64_t run_end(const norm_state *s, int64_t p) {
    return p + NORM_F32_PIXELS < s->pixels ? p + NORM_F32_PIXELS : s->pixels;
}

CPU_INLINE __m512 add_value(__m512 sum, __m512 value, __m512 mean, bool squares) {
    __m512 deviation = _mm512_sub_ps(value, mean);
    return squares ? _mm512_fmadd_ps(deviation, deviation, sum) : _mm512_add_ps(sum, value);
}

// Adds up pixels [p, stop) of a plane or, if `squares`, the squares of their deviations from
// `mean`. Even and odd pixels have a sum each, so that an addition need not wait for the one just
// before it.
CPU_INLINE __m512 sum_run(const void *x, bool bf16, int64_t p, int64_t stop, __m512 mean,
                          bool squares) {
    __m512 even = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
    for (; p + 1 < stop; p += 2) {
        even = add_value(even, load(x, bf16, p), mean, squares);
        odd = add_value(odd, load(x, bf16, p + 1), mean, squares);
    }
    if (p < stop) even = add_value(even, load(x, bf16, p), mean, squares);
    return _mm512_add_ps(even, odd);
}

// Computes, for each channel of planes [begin, end), the mean (mean_or_dy_sum) and the sum of
// squared deviations from the mean (squares_or_product_sum).
CPU_INLINE void moments(const norm_job *job, int64_t begin, int64_t end, bool bf16) {
    int64_t pixels = job->state->pixels;
    for (int64_t i = begin; i < end; i++) {
        int64_t plane = i * pixels;
        double *means = job->mean_or_dy_sum + i * CPU_BLOCK,
               *square_sums = job->squares_or_product_sum + i * CPU_BLOCK;
        norm_sum sum = sum_zero(), squares = sum_zero();
        for (int64_t p = 0; p < pixels; p += NORM_F32_PIXELS)
            sum = sum_add(sum, sum_run(job->x, bf16, plane + p, plane + run_end(job->state, p),
                                       _mm512_setzero_ps(), false));
        sum_store(sum, means);
        float rounded[CPU_BLOCK];
        for (int c = 0; c < CPU_BLOCK; c++) rounded[c] = (float)(means[c] /= (double)pixels);
        __m512 mean = _mm512_loadu_ps(rounded);
        for (int64_t p = 0; p < pixels; p += NORM_F32_PIXELS)
            squares = sum_add(squares, sum_run(job->x, bf16, plane + p,
                                               plane + run_end(job->state, p), mean, true));
        sum_store(squares, square_sums);
        for (int c = 0; c < CPU_BLOCK; c++) {
            // The deviations above are from the mean rounded to F32. That made the sum of their
            // squares larger by pixels · error².
            double error = means[c] - (double)rounded[c];
            square_sums[c] -= (double)pixels * error * error;
        }
    }
}

// Computes, for all elements, out = x · scale + shift, and applies ReLU if norm_state.relu is set.
CPU_INLINE void affine(const norm_job *job, int64_t begin, int64_t end, bool bf16) {
    const norm_state *s = job->state;
    for (int64_t i = begin; i < end; i++) {
        int64_t channel = i % (s->channels / CPU_BLOCK) * CPU_BLOCK;
        __m512 scale = _mm512_loadu_ps(job->scale + channel);
        __m512 shift = _mm512_loadu_ps(job->shift + channel);
        for (int64_t p = i * s->pixels; p < (i + 1) * s->pixels; p++) {
            __m512 value = _mm512_fmadd_ps(load(job->x, bf16, p), scale, shift);
            // The maximum returns its second operand if one is NaN, so that a NaN of `value` stays.
            if (s->relu) value = _mm512_max_ps(_mm512_setzero_ps(), value);
            cpu_store(job->out, bf16, p * CPU_BLOCK, 0xFFFF, value);
        }
    }
}

// One plane of the gradient with respect to the normalised tensor. Without fusion this is dy. With
// a fused ReLU or max pooling, y is computed from the normalised tensor, and load_dy computes this
// gradient from dy.
typedef struct norm_dy {
    const norm_job *job;
    int64_t first;       // the number of the plane's first pixel in the tensor
    const float *pooled; // with pooling: the plane of dy, the gradient of the pooled tensor
    // With pooling, by pixel of `pooled`: the position of the maximum in the pixel's window.
    const uint8_t *index;
} norm_dy;

CPU_INLINE norm_dy dy_of_plane(const norm_job *job, int64_t plane, int thread, bool pools) {
    const norm_state *s = job->state;
    norm_dy dy = {.job = job, .first = plane * s->pixels};
    if (!pools) return dy;
    dy.pooled = cpu_pool_dy(&job->pool, plane, thread);
    dy.index = job->pool.index + plane * cpu_pooled_pixels(&s->pool) * CPU_BLOCK;
    return dy;
}

// Loads the gradient of pixel number `pixel` of a plane. With a fused ReLU, it is 0 where y is 0
// (but not where y is NaN). With max pooling it is dy of the pixel's window, or 0 if the window's
// maximum is another pixel.
CPU_INLINE __m512 load_dy(norm_dy from, bool bf16, bool pools, int64_t pixel) {
    const norm_state *s = from.job->state;
    if (pools) {
        norm_window_pixel window = s->window_pixels[pixel];
        int64_t at = (int64_t)window.pooled * CPU_BLOCK;
        __m128i maximum = _mm_loadu_si128((const __m128i *)(from.index + at));
        __mmask16 here = _mm_cmpeq_epi8_mask(maximum, _mm_set1_epi8((char)window.position));
        return _mm512_maskz_loadu_ps(here, from.pooled + at);
    }
    __m512 dy = load(from.job->dy, bf16, from.first + pixel);
    if (!s->relu) return dy;
    __m512 y = load(from.job->y, bf16, from.first + pixel);
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(y, _mm512_setzero_ps(), _CMP_NLE_UQ), dy);
}

// The F32 sums of a run of pixels: of dy, and of dy · (x − mean).
typedef struct norm_run {
    __m512 dy, product;
} norm_run;

CPU_INLINE norm_run add_pixel(norm_run to, norm_dy from, bool bf16, bool pools, int64_t pixel,
                              __m512 mean) {
    __m512 dy = load_dy(from, bf16, pools, pixel);
    __m512 deviation = _mm512_sub_ps(load(from.job->x, bf16, from.first + pixel), mean);
    return (norm_run){_mm512_add_ps(to.dy, dy), _mm512_fmadd_ps(dy, deviation, to.product)};
}

// Computes, for each channel of planes [begin, end), the sum of dy (mean_or_dy_sum) and of
// dy · (x − mean) (squares_or_product_sum).
CPU_INLINE void gradient_sums(const norm_job *job, int64_t begin, int64_t end, int thread,
                              bool bf16, bool pools) {
    const norm_state *s = job->state;
    for (int64_t i = begin; i < end; i++) {
        norm_dy from = dy_of_plane(job, i, thread, pools);
        __m512 mean = _mm512_loadu_ps(job->mean + i % (s->channels / CPU_BLOCK) * CPU_BLOCK);
        norm_sum sum = sum_zero(), product = sum_zero();
        for (int64_t p = 0; p < s->pixels; p += NORM_F32_PIXELS) {
            norm_run even = {_mm512_setzero_ps(), _mm512_setzero_ps()}, odd = even;
            int64_t stop = run_end(s, p), q = p;
            for (; q + 1 < stop; q += 2) {
                even = add_pixel(even, from, bf16, pools, q, mean);
                odd = add_pixel(odd, from, bf16, pools, q + 1, mean);
            }
            if (q < stop) even = add_pixel(even, from, bf16, pools, q, mean);
            sum = sum_add(sum, _mm512_add_ps(even.dy, odd.dy));
            product = sum_add(product, _mm512_add_ps(even.product, odd.product));
        }
        sum_store(sum, job->mean_or_dy_sum + i * CPU_BLOCK);
        sum_store(product, job->squares_or_product_sum + i * CPU_BLOCK);
    }
}

// Computes, for all elements, out = scale · dy + slope · (x − mean) + shift: the gradient of x.
CPU_INLINE void gradient(const norm_job *job, int64_t begin, int64_t end, int thread, bool bf16,
                         bool pools) {
    const norm_state *s = job->state;
    for (int64_t i = begin; i < end; i++) {
        norm_dy from = dy_of_plane(job, i, thread, pools);
        int64_t channel = i % (s->channels / CPU_BLOCK) * CPU_BLOCK;
        __m512 mean = _mm512_loadu_ps(job->mean + channel);
        __m512 scale = _mm512_loadu_ps(job->scale + channel);
        __m512 slope = _mm512_loadu_ps(job->slope + channel);
        __m512 shift = _mm512_loadu_ps(job->shift + channel);
        for (int64_t p = 0; p < s->pixels; p++) {
            __m512 h = _mm512_sub_ps(load(job->x, bf16, from.first + p), mean);
            __m512 value = _mm512_fmadd_ps(slope, h, shift);
            value = _mm512_fmadd_ps(scale, load_dy(from, bf16, pools, p), value);
            cpu_store(job->out, bf16, (from.first + p) * CPU_BLOCK, 0xFFFF, value);
        }
    }
}

#define NORM_RANGE(name, call)                                                                     \
    static CPU_AVX512 void name(void *context, int64_t begin, int64_t end, int thread) { call; }
// Functions for F32 and for BF16.
#define NORM_RANGES(name)                                                                          \
    NORM_RANGE(name##_f32, name(context, begin, end, false))                                       \
    NORM_RANGE(name##_bf16, name(context, begin, end, true))
// Functions for F32 and for BF16, then those with a fused pooling.
#define NORM_GRADIENT_RANGES(name)                                                                 \
    NORM_RANGE(name##_f32, name(context, begin, end, thread, false, false))                        \
    NORM_RANGE(name##_bf16, name(context, begin, end, thread, true, false))                        \
    NORM_RANGE(name##_pool_f32, name(context, begin, end, thread, false, true))                    \
    NORM_RANGE(name##_pool_bf16, name(context, begin, end, thread, true, true))
NORM_RANGES(moments)
NORM_RANGES(affine)
NORM_GRADIENT_RANGES(gradient_sums)
NORM_GRADIENT_RANGES(gradient)

cpu_range cpu_norm_blocked_loop(norm_loop loop, bool bf16, bool pools) {
    static const cpu_range loops[][4] = {
        [NORM_MOMENTS] = {moments_f32, moments_bf16, moments_f32, moments_bf16},
        [NORM_AFFINE] = {affine_f32, affine_bf16, affine_f32, affine_bf16},
        [NORM_GRADIENT_SUMS] = {gradient_sums_f32, gradient_sums_bf16, gradient_sums_pool_f32,
                                gradient_sums_pool_bf16},
        [NORM_GRADIENT] = {gradient_f32, gradient_bf16, gradient_pool_f32, gradient_pool_bf16},
    };
    return loops[loop][2 * pools + bf16];
}
