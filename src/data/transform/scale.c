// Scales images of bytes as Pillow does, to the bit. Each value of the result is a weighted mean of
// the values beneath it: first along rows, rounded to bytes, then along columns. The weights are a
// filter's values, the filter made wider by the factor by which the image shrinks (antialiasing).
// They are integers with 22 bits behind the point, and sum to 1 before they are rounded
// (ImagingResample in Pillow's Resample.c).
#include "data/transform/scale.h"
#include "data/transform/affine.h"

#include <string.h>

enum { CHUNK = 32 };

// The filters and their support, the distance from which on they are 0.
static double filter_value(tri_resize_filter filter, double x) {
    x = fabs(x);
    if (filter == TRI_RESIZE_BILINEAR) return x < 1 ? 1 - x : 0;
    const double a = -0.5; // Keys' cubic convolution, with Pillow's choice of a
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
    return 0;
}

static double support_of(tri_resize_filter filter) { return filter == TRI_RESIZE_BILINEAR ? 1 : 2; }

static int64_t taps_of(int64_t inputs, int64_t outputs, tri_resize_filter filter) {
    double shrink = (double)inputs / (double)outputs;
    return (int64_t)ceil(support_of(filter) * (shrink > 1 ? shrink : 1)) * 2 + 1;
}

static size_t weights_bytes(int64_t outputs, int64_t taps) {
    return (size_t)(outputs * (taps + 2)) * sizeof(int32_t);
}

// Makes the weights of an axis in `memory`, which has weights_bytes. `scratch`: room for `taps`
// numbers.
static scale_axis make_weights(int64_t inputs, int64_t outputs, tri_resize_filter filter,
                               int32_t *memory, double *scratch) {
    int64_t taps = taps_of(inputs, outputs, filter);
    int32_t *first = memory, *count = first + outputs, *weights = count + outputs;
    double shrink = (double)inputs / (double)outputs, widen = shrink > 1 ? shrink : 1;
    double support = support_of(filter) * widen;
    for (int64_t i = 0; i < outputs; i++) {
        double center = ((double)i + 0.5) * shrink, sum = 0;
        int64_t begin = (int64_t)(center - support + 0.5), end = (int64_t)(center + support + 0.5);
        if (center - support + 0.5 < 0) begin = 0;
        if (end > inputs) end = inputs;
        for (int64_t k = 0; k < end - begin; k++) {
            scratch[k] = filter_value(filter, ((double)(begin + k) - center + 0.5) * (1 / widen));
            sum += scratch[k];
        }
        for (int64_t k = 0; k < taps; k++) {
            double w = k < end - begin ? scratch[k] : 0;
            if (sum != 0) w /= sum;
            weights[i * taps + k] =
                (int32_t)(w * (1 << SCALE_PRECISION_BITS) + (w < 0 ? -0.5 : 0.5));
        }
        first[i] = (int32_t)begin;
        count[i] = (int32_t)(end - begin);
    }
    return (scale_axis){inputs, outputs, taps,     first,
                        count,  weights, first[0], first[outputs - 1] + count[outputs - 1]};
}

static inline uint8_t to_byte(int32_t sum) {
    int32_t value = sum >> SCALE_PRECISION_BITS;
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

typedef int32_t four_ints __attribute__((vector_size(16)));
typedef uint8_t four_bytes __attribute__((vector_size(4)));

// One row: `from` is a row of pixels of SCALE_PIXEL_BYTES bytes, `to` the row of the result.
static inline __attribute__((always_inline)) void
scale_pixel_row(const scale_axis *axis, const uint8_t *from, uint8_t *to) {
    const int32_t half = 1 << (SCALE_PRECISION_BITS - 1);
    for (int64_t i = 0; i < axis->outputs; i++) {
        const int32_t *weights = axis->weights + i * axis->taps;
        const uint8_t *pixel = from + (int64_t)axis->first[i] * SCALE_PIXEL_BYTES;
        four_ints sum = {half, half, half, half};
        for (int32_t k = 0; k < axis->count[i]; k++, pixel += SCALE_PIXEL_BYTES) {
            four_bytes bytes;
            memcpy(&bytes, pixel, sizeof bytes);
            sum += __builtin_convertvector(bytes, four_ints) * weights[k];
        }
        for (int c = 0; c < SCALE_PIXEL_BYTES; c++) to[i * SCALE_PIXEL_BYTES + c] = to_byte(sum[c]);
    }
}

static inline __attribute__((always_inline)) void scale_byte_row(const scale_axis *axis,
                                                                 const uint8_t *from, uint8_t *to) {
    for (int64_t i = 0; i < axis->outputs; i++) {
        const int32_t *weights = axis->weights + i * axis->taps;
        const uint8_t *bytes = from + axis->first[i];
        int32_t sum = 1 << (SCALE_PRECISION_BITS - 1);
        for (int32_t k = 0; k < axis->count[i]; k++) sum += (int32_t)bytes[k] * weights[k];
        to[i] = to_byte(sum);
    }
}

// Row `row` of the result from rows of `row_bytes` bytes: sums columns of CHUNK bytes at a time,
// which stay in registers.
static inline __attribute__((always_inline)) void scale_column(const scale_axis *axis, int64_t row,
                                                               const uint8_t *from,
                                                               int64_t row_bytes, uint8_t *to) {
    const int32_t *weights = axis->weights + row * axis->taps;
    from += axis->first[row] * row_bytes;
    for (int64_t at = 0; at < row_bytes; at += CHUNK) {
        int32_t sums[CHUNK];
        int64_t size = row_bytes - at < CHUNK ? row_bytes - at : CHUNK;
        for (int c = 0; c < CHUNK; c++) sums[c] = 1 << (SCALE_PRECISION_BITS - 1);
        if (size == CHUNK) {
            for (int32_t k = 0; k < axis->count[row]; k++)
                for (int c = 0; c < CHUNK; c++)
                    sums[c] += (int32_t)from[k * row_bytes + at + c] * weights[k];
            for (int c = 0; c < CHUNK; c++) to[at + c] = to_byte(sums[c]);
        } else {
            for (int32_t k = 0; k < axis->count[row]; k++)
                for (int64_t c = 0; c < size; c++)
                    sums[c] += (int32_t)from[k * row_bytes + at + c] * weights[k];
            for (int64_t c = 0; c < size; c++) to[at + c] = to_byte(sums[c]);
        }
    }
}

// What both passes of an image, or of one of its planes, work on. `rows` holds the result of the
// first pass, for the input rows that the second pass needs.
typedef struct scaling {
    const scale_axis *across, *down;
    const uint8_t *from;
    int64_t row_stride;
    const scale_pairs *pairs_across, *pairs_down; // NULL: not in pairs
    bool is_pixels; // pixels of SCALE_PIXEL_BYTES; false: a plane of bytes
    uint8_t *rows, *to;
} scaling;

#define SCALE_BODY                                                                                 \
    int64_t row_bytes = s->across->outputs * (s->is_pixels ? SCALE_PIXEL_BYTES : 1);               \
    for (int64_t row = s->down->low; row < s->down->high; row++) {                                 \
        const uint8_t *from = s->from + row * s->row_stride;                                       \
        uint8_t *to = s->rows + row * row_bytes;                                                   \
        if (s->is_pixels)                                                                          \
            scale_pixel_row(s->across, from, to);                                                  \
        else                                                                                       \
            scale_byte_row(s->across, from, to);                                                   \
    }                                                                                              \
    for (int64_t row = 0; row < s->down->outputs; row++)                                           \
        scale_column(s->down, row, s->rows, row_bytes, s->to + row * row_bytes);

#ifdef __x86_64__
__attribute__((target("avx512f,avx512bw,avx512vl"))) static void scale_avx512(const scaling *s) {
    SCALE_BODY
}
__attribute__((target("avx2"))) static void scale_avx2(const scaling *s) { SCALE_BODY }
#endif
static void scale_plain(const scaling *s) { SCALE_BODY }

static void scale(const scaling *s) {
    if (s->pairs_across) {
        scale_pairs_rows(s->pairs_across, s->from, s->row_stride, s->down->low, s->down->high,
                         s->rows);
        scale_pairs_columns(s->pairs_down, s->rows, s->across->outputs * SCALE_PIXEL_BYTES, s->to);
        return;
    }
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
        scale_avx512(s);
        return;
    }
    if (__builtin_cpu_supports("avx2")) {
        scale_avx2(s);
        return;
    }
#endif
    scale_plain(s);
}

// How an image is scaled: as pixels of SCALE_PIXEL_BYTES if it has 2 to 4 channels that lie side by
// side, else plane by plane. Images that lie otherwise are copied to planes first.
typedef struct arrangement {
    bool is_pixels, is_copied;
} arrangement;

static arrangement arrange(const tri_image *image) {
    bool is_pixels = image->channel_stride == 1 && image->column_stride == SCALE_PIXEL_BYTES &&
                     image->channels > 1 && image->channels <= SCALE_PIXEL_BYTES;
    return (arrangement){is_pixels, !is_pixels && image->column_stride != 1};
}

// Parts of one buffer, one after the other.
static void *take(char **at, size_t bytes) {
    void *part = *at;
    *at += (bytes + 63) / 64 * 64;
    return part;
}

tri_status tri_transform_scale(tri_transform_call *call, tri_image *image, int64_t height,
                               int64_t width, tri_resize_filter filter) {
    enum { PARTS = 7, ALIGN_BYTES = 64 };
    if (image->height == height && image->width == width) return TRI_OK;
    if (call->is_mask) return tri_transform_nearest(call, image, height, width);
    if (image->dtype != TRI_U8)
        return TRI_FAIL(TRI_UNSUPPORTED, "images of %s cannot be scaled: store them as U8",
                        tri_dtype_name(image->dtype));
    arrangement how = arrange(image);
    int64_t values = how.is_pixels ? SCALE_PIXEL_BYTES : 1,
            copied_bytes = image->height * image->width;
    int64_t wide = taps_of(image->width, width, filter),
            tall = taps_of(image->height, height, filter);
    size_t across_bytes = weights_bytes(width, wide), down_bytes = weights_bytes(height, tall),
           pairs_across_bytes = scale_pairs_bytes(width, wide),
           pairs_down_bytes = scale_pairs_bytes(height, tall),
           scratch_bytes = (size_t)(wide > tall ? wide : tall) * sizeof(double),
           rows_bytes = (size_t)(image->height * width * values);
    TRI_TRY(tri_buffer_reserve(call->rows, across_bytes + down_bytes + pairs_across_bytes +
                                               pairs_down_bytes + scratch_bytes + rows_bytes +
                                               (how.is_copied ? (size_t)copied_bytes : 0) +
                                               PARTS * ALIGN_BYTES));
    int64_t planes = how.is_pixels ? 1 : image->channels, plane_bytes = height * width * values;
    TRI_TRY(tri_buffer_reserve(call->memory, (size_t)(planes * plane_bytes)));
    char *at = call->rows->data;
    int32_t *across_memory = take(&at, across_bytes), *down_memory = take(&at, down_bytes);
    double *scratch = take(&at, scratch_bytes);
    scale_axis across = make_weights(image->width, width, filter, across_memory, scratch);
    scale_axis down = make_weights(image->height, height, filter, down_memory, scratch);
    scaling s = {.across = &across, .down = &down, .is_pixels = how.is_pixels};
    scale_pairs pairs_across, pairs_down;
    void *across_pairs = take(&at, pairs_across_bytes), *down_pairs = take(&at, pairs_down_bytes);
    if (how.is_pixels && width * SCALE_PIXEL_BYTES >= SCALE_LEAST_BYTES &&
        scale_pairs_make(&across, across_pairs, &pairs_across) &&
        scale_pairs_make(&down, down_pairs, &pairs_down)) {
        s.pairs_across = &pairs_across;
        s.pairs_down = &pairs_down;
    }
    s.rows = take(&at, rows_bytes);
    uint8_t *copy = take(&at, 0);
    for (int64_t plane = 0; plane < planes; plane++) {
        s.from = image->pixels + plane * image->channel_stride;
        s.row_stride = image->row_stride;
        s.to = (uint8_t *)call->memory->data + plane * plane_bytes;
        if (how.is_copied) {
            for (int64_t row = 0; row < image->height; row++)
                tri_image_read_row(image, plane, row, 0, image->width, copy + row * image->width);
            s.from = copy;
            s.row_stride = image->width;
        }
        scale(&s);
    }
    tri_shape shape = tri_shape_of(image->channels, height, width);
    *image = how.is_pixels ? tri_image_of_pixels(call->memory->data, image->channels, height, width,
                                                 SCALE_PIXEL_BYTES)
                           : tri_image_of_planes(call->memory->data, TRI_U8, &shape);
    return TRI_OK;
}

void tri_transform_shorter_side(int64_t shorter, int64_t *height, int64_t *width) {
    int64_t *lesser = *height < *width ? height : width,
            *greater = lesser == height ? width : height;
    *greater = (int64_t)((double)shorter * (double)*greater / (double)*lesser);
    *lesser = shorter;
}
