// Max pooling of nChw16c tensors, fused with ReLU and dropout, and its gradient. A plane is 16
// channels of one sample.
//
// If no convolution, pooling or batch norm reads the result, but for example a linear layer, it is
// written in the plain layout, which such a layer needs. To transpose 16 × 16 values in registers
// for this is cheaper than a reorder through memory.
#include "device/cpu/pool.h"
#include "ops/product_map.h"

#include <stdlib.h>

typedef struct pool_state {
    const cpu_device *device;
    cpu_pool pool;
} pool_state;

// The buffers of one thread. pooled: a plane of the pooled tensor in F32. whole: a plane of the
// tensor before pooling in F32, only if tensors are BF16. masks: the dropout masks of a pooled
// plane.
typedef struct pool_space {
    float *pooled, *whole;
    uint16_t *masks;
} pool_space;

static size_t pooled_bytes(const cpu_pool *s) {
    return (size_t)cpu_pooled_pixels(s) * CPU_BLOCK * sizeof(float);
}
static size_t whole_bytes(const cpu_pool *s) {
    return s->bf16 ? (size_t)(s->in[0] * s->in[1]) * CPU_BLOCK * sizeof(float) : 0;
}
static size_t workspace_of_thread(const cpu_pool *s) {
    size_t masks = (size_t)cpu_pooled_pixels(s) * sizeof(uint16_t);
    return (pooled_bytes(s) + whole_bytes(s) + masks + 63) / 64 * 64;
}
static pool_space space_of_thread(const cpu_pool_job *job, int thread) {
    const cpu_pool *s = job->pool;
    char *own = job->workspace + workspace_of_thread(s) * (size_t)thread;
    return (pool_space){.pooled = (float *)own,
                        .whole = (float *)(own + pooled_bytes(s)),
                        .masks = (uint16_t *)(own + pooled_bytes(s) + whole_bytes(s))};
}

// A plane in F32. If `affine`, its pixels are x · scale + shift.
typedef struct pool_source {
    const float *x;
    bool affine;
    __m512 scale, shift;
} pool_source;

// Loads the 16 channels of the pixel whose first element is number `at` of the plane.
CPU_INLINE __m512 source_pixel(pool_source from, int64_t at) {
    __m512 x = _mm512_loadu_ps(from.x + at);
    return from.affine ? _mm512_fmadd_ps(x, from.scale, from.shift) : x;
}

static CPU_AVX512 void widen_plane(const void *from, int64_t at, int64_t count, float *to) {
    for (int64_t i = 0; i < count; i += CPU_BLOCK)
        _mm512_storeu_ps(to + i, cpu_load(from, true, at + i, 0xFFFF));
}

// Replaces each pixel by pixel · scale + shift, rounded to BF16.
static CPU_AVX512 void affine_plane(float *plane, int64_t count, __m512 scale, __m512 shift) {
    for (int64_t i = 0; i < count; i += CPU_BLOCK) {
        __m512 value = _mm512_fmadd_ps(_mm512_loadu_ps(plane + i), scale, shift);
        _mm512_storeu_ps(plane + i, cpu_round_bf16(value));
    }
}

static CPU_AVX512 void narrow_plane(const float *from, void *to, int64_t at, int64_t count) {
    for (int64_t i = 0; i < count; i += CPU_BLOCK)
        cpu_store(to, true, at + i, 0xFFFF, _mm512_loadu_ps(from + i));
}

typedef struct pool_best {
    __m512 value;
    __m512i index;
} pool_best;

// Selects the vector lanes in which `value` replaces `best`: where `value` is larger, or where
// `value` is NaN and `best` is not (PyTorch's rule).
CPU_INLINE __mmask16 is_better(__m512 value, __m512 best) {
    __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    return _mm512_cmp_ps_mask(value, best, _CMP_GT_OQ) |
           _mm512_mask_cmp_ps_mask(nan, best, best, _CMP_ORD_Q);
}

CPU_INLINE pool_best window_max(pool_source x, const cpu_pool *s, int64_t row, int64_t column) {
    pool_best best = {.value = _mm512_setzero_ps(), .index = _mm512_setzero_si512()};
    bool first = true;
    for (int64_t kh = 0; kh < s->kernel[0]; kh++) {
        int64_t h = row * s->stride[0] - s->padding[0] + kh;
        if (h < 0 || h >= s->in[0]) continue;
        for (int64_t kw = 0; kw < s->kernel[1]; kw++) {
            int64_t w = column * s->stride[1] - s->padding[1] + kw;
            if (w < 0 || w >= s->in[1]) continue;
            __m512 value = source_pixel(x, (h * s->in[1] + w) * CPU_BLOCK);
            __mmask16 better = is_better(value, best.value);
            if (first) better = 0xFFFF;
            first = false;
            best.value = _mm512_mask_mov_ps(best.value, better, value);
            best.index = _mm512_mask_mov_epi32(best.index, better,
                                               _mm512_set1_epi32((int)(kh * s->kernel[1] + kw)));
        }
    }
    return best;
}

// The maximum of a 2 × 2 window, the most common size. A test for NaN comes first: if no value is
// NaN, ordinary comparisons are enough. With ReLU the search starts from the value 0 and the index
// TRI_POOL_NO_GRADIENT, which are the result if no value is positive.
CPU_INLINE pool_best window_max_2x2(pool_source x, const cpu_pool *s, int64_t row, int64_t column,
                                    bool relu) {
    int64_t top = (row * 2 * s->in[1] + column * 2) * CPU_BLOCK;
    int64_t bottom = top + s->in[1] * CPU_BLOCK;
    __m512 value[4] = {source_pixel(x, top), source_pixel(x, top + CPU_BLOCK),
                       source_pixel(x, bottom), source_pixel(x, bottom + CPU_BLOCK)};
    __mmask16 nan = _mm512_cmp_ps_mask(value[0], value[1], _CMP_UNORD_Q) |
                    _mm512_cmp_ps_mask(value[2], value[3], _CMP_UNORD_Q);
    if (__builtin_expect(nan != 0, 0)) return window_max(x, s, row, column);
    pool_best best = {.value = value[0], .index = _mm512_setzero_si512()};
    if (relu)
        best = (pool_best){.value = _mm512_setzero_ps(),
                           .index = _mm512_set1_epi32(TRI_POOL_NO_GRADIENT)};
#pragma GCC unroll 4
    for (int k = relu ? 0 : 1; k < 4; k++) {
        __mmask16 better = _mm512_cmp_ps_mask(value[k], best.value, _CMP_GT_OQ);
        best.value = _mm512_max_ps(value[k], best.value);
        best.index = _mm512_mask_mov_epi32(best.index, better, _mm512_set1_epi32(k));
    }
    return best;
}

CPU_INLINE void pool_plane(const cpu_pool_job *job, pool_source x, float *y, uint8_t *index,
                           const uint16_t *keep, bool small, bool relu) {
    const cpu_pool *s = job->pool;
    const __m512i none = _mm512_set1_epi32(TRI_POOL_NO_GRADIENT);
    __m512 scale = _mm512_set1_ps(job->dropout.scale);
    int64_t pixel = 0;
    for (int64_t row = 0; row < s->out[0]; row++) {
        for (int64_t column = 0; column < s->out[1]; column++, pixel++) {
            pool_best best =
                small ? window_max_2x2(x, s, row, column, relu) : window_max(x, s, row, column);
            if (relu) {
                __mmask16 off = _mm512_cmp_ps_mask(best.value, _mm512_setzero_ps(), _CMP_LE_OQ);
                best.value = _mm512_mask_mov_ps(best.value, off, _mm512_setzero_ps());
                best.index = _mm512_mask_mov_epi32(best.index, off, none);
            }
            if (keep) {
                best.value = _mm512_maskz_mul_ps(keep[pixel], best.value, scale);
                best.index = _mm512_mask_mov_epi32(none, keep[pixel], best.index);
            }
            _mm512_storeu_ps(y + pixel * CPU_BLOCK, best.value);
            if (!index) continue;
            _mm_storeu_si128((__m128i *)(index + pixel * CPU_BLOCK),
                             _mm512_cvtepi32_epi8(best.index));
        }
    }
}

bool cpu_pool_is_2x2(const cpu_pool *s) {
    for (int i = 0; i < 2; i++)
        if (s->kernel[i] != 2 || s->stride[i] != 2 || s->padding[i]) return false;
    return true;
}

// Makes the pool_source of plane i of x. If the job has a scale, the pixels are scaled and shifted:
// here if x is BF16, else when they are loaded.
CPU_INLINE pool_source source_of(const cpu_pool_job *job, int64_t i, pool_space space) {
    const cpu_pool *s = job->pool;
    int64_t plane = s->in[0] * s->in[1] * CPU_BLOCK, channel = i % s->blocks * CPU_BLOCK;
    pool_source source = {.x = s->bf16 ? space.whole : (const float *)job->from + i * plane};
    if (s->bf16) widen_plane(job->from, i * plane, plane, space.whole);
    if (!job->scale) return source;
    source.scale = _mm512_loadu_ps(job->scale + channel);
    source.shift = _mm512_loadu_ps(job->shift + channel);
    source.affine = !s->bf16;
    if (s->bf16) affine_plane(space.whole, plane, source.scale, source.shift);
    return source;
}

// Calls pool_plane with constants for `small` and `relu`, so that the compiler makes a version for
// each case, without the code that the case does not need.
CPU_INLINE void pool_forms(const cpu_pool_job *job, pool_source x, float *y, uint8_t *index,
                           const uint16_t *keep, bool small, bool affine) {
    bool relu = job->pool->relu;
    x.affine = affine;
    if (small && relu)
        pool_plane(job, x, y, index, keep, true, true);
    else if (small)
        pool_plane(job, x, y, index, keep, true, false);
    else
        pool_plane(job, x, y, index, keep, false, relu);
}

CPU_AVX512 void cpu_pool_planes(void *context, int64_t begin, int64_t end, int thread) {
    const cpu_pool_job *job = context;
    const cpu_pool *s = job->pool;
    int64_t pixels = cpu_pooled_pixels(s), y_plane = pixels * CPU_BLOCK;
    pool_space space = space_of_thread(job, thread);
    uint16_t *keep = NULL;
    bool small = cpu_pool_is_2x2(s);
    for (int64_t i = begin; i < end; i++) {
        if (s->has_dropout) {
            keep = space.masks;
            uint64_t first = (uint64_t)(i % s->blocks * CPU_BLOCK * pixels);
            cpu_dropout_block_masks(&job->dropout, job->first_sample + (uint32_t)(i / s->blocks),
                                    first, pixels, keep);
        }
        uint8_t *index = job->index ? job->index + i * y_plane : NULL;
        float *to = s->plain || s->bf16 ? space.pooled : (float *)job->to + i * y_plane;
        pool_source source = source_of(job, i, space);
        if (source.affine)
            pool_forms(job, source, to, index, keep, small, true);
        else
            pool_forms(job, source, to, index, keep, small, false);
        if (s->plain)
            cpu_block_to_rows(s->bf16, to, job->to, i * y_plane, pixels);
        else if (s->bf16)
            narrow_plane(to, job->to, i * y_plane, y_plane);
    }
}

const float *cpu_pool_dy(const cpu_pool_job *job, int64_t i, int thread) {
    const cpu_pool *s = job->pool;
    int64_t pixels = cpu_pooled_pixels(s), at = i * pixels * CPU_BLOCK;
    float *pooled = space_of_thread(job, thread).pooled;
    if (!s->plain && !s->bf16) return (const float *)job->from + at;
    if (s->plain)
        cpu_rows_to_block(s->bf16, job->from, at, pooled, pixels);
    else
        widen_plane(job->from, at, pixels * CPU_BLOCK, pooled);
    return pooled;
}

CPU_INLINE void scatter_2x2(const cpu_pool *s, const float *dy, const uint8_t *index, __m512 scale,
                            float *dx) {
    int64_t width = s->in[1];
    for (int64_t row = 0; row < s->out[0]; row++) {
        float *top = dx + row * 2 * width * CPU_BLOCK, *bottom = top + width * CPU_BLOCK;
        for (int64_t column = 0; column < s->out[1]; column++) {
            int64_t pixel = row * s->out[1] + column;
            __m512 value = _mm512_mul_ps(_mm512_loadu_ps(dy + pixel * CPU_BLOCK), scale);
            __m128i at = _mm_loadu_si128((const __m128i *)(index + pixel * CPU_BLOCK));
            for (int k = 0; k < 4; k++) {
                __mmask16 here = _mm_cmpeq_epi8_mask(at, _mm_set1_epi8((char)k));
                float *to = (k < 2 ? top : bottom) + (2 * column + k % 2) * CPU_BLOCK;
                _mm512_storeu_ps(to, _mm512_maskz_mov_ps(here, value));
            }
        }
        for (int64_t w = 2 * s->out[1]; w < width; w++) {
            _mm512_storeu_ps(top + w * CPU_BLOCK, _mm512_setzero_ps());
            _mm512_storeu_ps(bottom + w * CPU_BLOCK, _mm512_setzero_ps());
        }
    }
    for (int64_t i = 2 * s->out[0] * width; i < s->in[0] * width; i++)
        _mm512_storeu_ps(dx + i * CPU_BLOCK, _mm512_setzero_ps());
}

// The gradient of max pooling with windows that may overlap: sets the plane dx to zero, then adds
// each element of dy to the element of dx that was its window's maximum.
CPU_INLINE void scatter_any(const cpu_pool *s, const float *dy, const uint8_t *index, __m512 scale,
                            float *dx) {
    for (int64_t i = 0; i < s->in[0] * s->in[1]; i++)
        _mm512_storeu_ps(dx + i * CPU_BLOCK, _mm512_setzero_ps());
    for (int64_t pixel = 0; pixel < cpu_pooled_pixels(s); pixel++) {
        int64_t row = pixel / s->out[1], column = pixel % s->out[1];
        __m512 value = _mm512_mul_ps(_mm512_loadu_ps(dy + pixel * CPU_BLOCK), scale);
        __m128i at = _mm_loadu_si128((const __m128i *)(index + pixel * CPU_BLOCK));
        for (int64_t k = 0; k < s->kernel[0] * s->kernel[1]; k++) {
            __mmask16 here = _mm_cmpeq_epi8_mask(at, _mm_set1_epi8((char)k));
            if (!here) continue;
            int64_t h = row * s->stride[0] - s->padding[0] + k / s->kernel[1];
            int64_t w = column * s->stride[1] - s->padding[1] + k % s->kernel[1];
            float *to = dx + (h * s->in[1] + w) * CPU_BLOCK;
            __m512 old = _mm512_loadu_ps(to);
            _mm512_storeu_ps(to, _mm512_mask_add_ps(old, here, old, value));
        }
    }
}

static CPU_AVX512 void backward_range(void *context, int64_t begin, int64_t end, int thread) {
    const cpu_pool_job *job = context;
    const cpu_pool *s = job->pool;
    int64_t x_plane = s->in[0] * s->in[1] * CPU_BLOCK;
    int64_t y_plane = cpu_pooled_pixels(s) * CPU_BLOCK;
    pool_space space = space_of_thread(job, thread);
    __m512 scale = _mm512_set1_ps(s->has_dropout ? job->dropout.scale : 1);
    bool small = cpu_pool_is_2x2(s);
    for (int64_t i = begin; i < end; i++) {
        const float *dy = cpu_pool_dy(job, i, thread);
        const uint8_t *index = job->index + i * y_plane;
        float *dx = s->bf16 ? space.whole : (float *)job->to + i * x_plane;
        if (small)
            scatter_2x2(s, dy, index, scale, dx);
        else
            scatter_any(s, dy, index, scale, dx);
        if (s->bf16) narrow_plane(dx, job->to, i * x_plane, x_plane);
    }
}

static const tri_shape *x_shape_of(const tri_graph *graph, const tri_node *node) {
    if (node->op == &tri_op_max_pool2d) return cpu_in_shape(graph, node, 0);
    return &((const tri_max_pool2d_attr *)node->attr)->x_shape;
}

static bool pool_supports(const tri_device_description *device, const tri_graph *graph,
                          const tri_node *node) {
    int x = node->op == &tri_op_max_pool2d ? 0 : 1;
    tri_dtype dtype = tri_value_get(graph, node->inputs[x])->dtype;
    bool indexed = ((const tri_max_pool2d_attr *)node->attr)->indexed;
    return cpu_has(device, CPU_HAS_AVX512) && (dtype == TRI_F32 || dtype == TRI_BF16) && !indexed &&
           x_shape_of(graph, node)->dims[1] % CPU_BLOCK == 0;
}

bool cpu_is_read_blocked(const tri_graph *graph, tri_value value) {
    for (int i = 0; i < graph->pending_node_count; i++) {
        const tri_node *node = &graph->pending_nodes[i];
        const tri_op *op = tri_product_op(node);
        bool blocked = op == &tri_op_conv2d || op == &tri_op_conv2d_grad_weight ||
                       op == &tri_op_max_pool2d || op == &tri_op_avg_pool2d ||
                       op == &tri_op_batch_norm || op == &tri_op_batch_norm_inference ||
                       op == &tri_op_batch_norm_moments || op == &tri_op_batch_norm_shared;
        for (int k = 0; blocked && k < node->input_count; k++)
            if (node->inputs[k].id == value.id) return true;
    }
    return false;
}

static void pool_layouts(const tri_device_description *device, const tri_graph *graph,
                         const tri_node *node, tri_layout *in, tri_layout *out) {
    tri_layout blocked = cpu_format_layout(CPU_NCHW16C);
    if (node->op == &tri_op_max_pool2d) {
        in[0] = blocked;
        in[1] = TRI_LAYOUT_PLAIN;
        out[0] = cpu_is_read_blocked(graph, node->outputs[0]) ? blocked : TRI_LAYOUT_PLAIN;
        out[1] = blocked;
        return;
    }
    in[0] = blocked;
    if (!cpu_layout_is(&in[1], CPU_NCHW16C)) in[1] = TRI_LAYOUT_PLAIN;
    out[0] = blocked;
}

cpu_pool cpu_pool_of(const tri_max_pool2d_attr *attr, const tri_shape *x,
                     const tri_value_info *pooled) {
    cpu_pool pool = {.blocks = x->dims[1] / CPU_BLOCK,
                     .relu = attr->relu,
                     .plain = tri_layout_is_plain(&pooled->layout),
                     .bf16 = pooled->dtype == TRI_BF16,
                     .has_dropout = attr->dropout > 0,
                     .dropout = cpu_dropout_of(attr->dropout, attr->key)};
    pool.planes = x->dims[0] * pool.blocks;
    for (int i = 0; i < 2; i++) {
        pool.in[i] = x->dims[2 + i];
        pool.out[i] = pooled->shape.dims[2 + i];
        pool.kernel[i] = attr->kernel[i];
        pool.stride[i] = attr->stride[i];
        pool.padding[i] = attr->padding[i];
    }
    return pool;
}

static cpu_pool pool_of_node(const tri_graph *graph, const tri_node *node) {
    tri_value pooled = node->op == &tri_op_max_pool2d ? node->outputs[0] : node->inputs[1];
    return cpu_pool_of(node->attr, x_shape_of(graph, node), tri_value_get(graph, pooled));
}

size_t cpu_pool_workspace(const cpu_pool *pool, int threads) {
    return workspace_of_thread(pool) * (size_t)threads;
}

static tri_status pool_workspace(const tri_device_description *device, const tri_graph *graph,
                                 const tri_node *node, size_t *out) {
    cpu_pool pool = pool_of_node(graph, node);
    *out = cpu_pool_workspace(&pool, device->threads);
    return TRI_OK;
}

static tri_status pool_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                               tri_kernel *kernel) {
    pool_state *state = calloc(1, sizeof *state);
    if (!state) return TRI_FAIL(TRI_NO_MEMORY, "no memory for pooling");
    *state = (pool_state){.device = cpu_of(device), .pool = pool_of_node(graph, node)};
    kernel->state = state;
    return TRI_OK;
}

static tri_status forward_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const pool_state *state = kernel->state;
    cpu_pool_job job = {.pool = &state->pool,
                        .dropout = state->pool.dropout,
                        .from = args->in[0],
                        .to = args->out[0],
                        .index = args->out[1],
                        .workspace = args->workspace};
    if (state->pool.has_dropout) {
        const int64_t *position = args->in[1];
        job.dropout.step = (uint64_t)position[0];
        job.first_sample = (uint32_t)position[1];
    }
    cpu_parallel(state->device, state->pool.planes, 2, cpu_pool_planes, &job);
    return TRI_OK;
}

static tri_status backward_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const pool_state *state = kernel->state;
    cpu_pool_job job = {.pool = &state->pool,
                        .dropout = state->pool.dropout,
                        .index = args->in[0],
                        .from = args->in[1],
                        .to = args->out[0],
                        .workspace = args->workspace};
    cpu_parallel(state->device, state->pool.planes, 2, backward_range, &job);
    return TRI_OK;
}

static void pool_release(tri_kernel *kernel) { free(kernel->state); }

const tri_kernel_def cpu_max_pool2d_blocked = {
    .op = &tri_op_max_pool2d,
    .name = "avx512-blocked",
    .supports = pool_supports,
    .layouts = pool_layouts,
    .workspace = pool_workspace,
    .prepare = pool_prepare,
    .run = forward_run,
    .release = pool_release,
};

const tri_kernel_def cpu_max_pool2d_grad_blocked = {
    .op = &tri_op_max_pool2d_grad,
    .name = "avx512-blocked",
    .supports = pool_supports,
    .layouts = pool_layouts,
    .workspace = pool_workspace,
    .prepare = pool_prepare,
    .run = backward_run,
    .release = pool_release,
};
