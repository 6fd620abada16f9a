// Mixes the samples of a step: see mix.h.
#include "data/mix.h"

#include "base/philox.h"

#include <math.h>
#include <string.h>

// The random numbers of a step: block after block.
typedef struct step_random {
    uint64_t key;
    uint32_t counter[4];
} step_random;

static tri_philox_block next_block(step_random *random) {
    tri_philox_block block = tri_philox(random->key, random->counter);
    random->counter[3] += 1u << 16;
    return block;
}

// A number in (0, 1), never its ends.
static double inside(uint32_t word) { return ((double)word + 0.5) * 0x1p-32; }

// Draws from the Gamma distribution, whose shape is `alpha`: Marsaglia and Tsang, "A simple method
// for generating gamma variables", 2000; a shape below 1 follows from shape + 1 by their section 6.
static double draw_gamma(step_random *random, double alpha) {
    double d = (alpha < 1 ? alpha + 1 : alpha) - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        tri_philox_block block = next_block(random);
        double normal =
            sqrt(-2 * log(inside(block.word[0]))) * cos(2 * M_PI * inside(block.word[1]));
        double v = 1 + c * normal;
        if (v <= 0) continue;
        v = v * v * v;
        if (log(inside(block.word[2])) >= 0.5 * normal * normal + d - d * v + d * log(v)) continue;
        return d * v * (alpha < 1 ? pow(inside(block.word[3]), 1 / alpha) : 1);
    }
}

static double draw_beta(step_random *random, double alpha) {
    double a = draw_gamma(random, alpha), b = draw_gamma(random, alpha);
    return a + b > 0 ? a / (a + b) : 0.5;
}

static int64_t limited(int64_t value, int64_t most) {
    return value < 0 ? 0 : value > most ? most : value;
}

// The rectangle of CutMix: a part 1 - own of the image's area around a random pixel, cut off at
// the image's edges; `own` becomes what is left of the image.
static void draw_rectangle(step_random *random, const tri_shape *image, tri_mix_draw *out) {
    int64_t height = image->dims[1], width = image->dims[2];
    tri_philox_block block = next_block(random);
    int64_t x = (int64_t)((uint64_t)block.word[0] * (uint64_t)width >> 32);
    int64_t y = (int64_t)((uint64_t)block.word[1] * (uint64_t)height >> 32);
    double reach = 0.5 * sqrt(1 - out->own);
    int64_t half_width = (int64_t)(reach * (double)width),
            half_height = (int64_t)(reach * (double)height);
    out->top = limited(y - half_height, height);
    out->bottom = limited(y + half_height, height);
    out->left = limited(x - half_width, width);
    out->right = limited(x + half_width, width);
    int64_t area = (out->bottom - out->top) * (out->right - out->left);
    out->own = 1 - (double)area / (double)(height * width);
}

bool tri_mix_of_step(const tri_mix_options *options, uint64_t seed, int64_t epoch, int64_t step,
                     const tri_shape *image, tri_mix_draw *out) {
    step_random random = {.key = tri_philox_key(seed, "data/mix"),
                          .counter = {(uint32_t)step, (uint32_t)((uint64_t)step >> 32),
                                      (uint32_t)epoch, (uint32_t)((uint64_t)epoch >> 32)}};
    tri_philox_block first = next_block(&random);
    bool has_both = options->mixup > 0 && options->cutmix > 0;
    if (options->mixup == 0 && options->cutmix == 0) return false;
    if (inside(first.word[0]) >= options->probability) return false;
    *out = (tri_mix_draw){.is_cut = has_both ? first.word[1] >> 31 : options->cutmix > 0};
    out->own = draw_beta(&random, out->is_cut ? options->cutmix : options->mixup);
    if (out->is_cut) draw_rectangle(&random, image, out);
    return true;
}

static bool is_left_out(const float *labels, int64_t classes) {
    for (int64_t k = 0; k < classes; k++)
        if (labels[k] != 0) return false;
    return true;
}

static void mix_numbers(float *own, const float *other, int64_t count, double weight) {
    float of_own = (float)weight, of_other = (float)(1 - weight);
    for (int64_t i = 0; i < count; i++) own[i] = other[i] * of_other + own[i] * of_own;
}

static void cut_rectangle(const tri_mix_draw *draw, const tri_data_field *images, char *own,
                          const char *other) {
    const int64_t *dims = images->shape.dims;
    size_t bytes = tri_dtype_bytes(images->dtype),
           row_bytes = (size_t)(draw->right - draw->left) * bytes;
    for (int64_t c = 0; c < dims[0]; c++)
        for (int64_t row = draw->top; row < draw->bottom; row++) {
            size_t at = (size_t)((c * dims[1] + row) * dims[2] + draw->left) * bytes;
            memcpy(own + at, other + at, row_bytes);
        }
}

void tri_mix_sample(const tri_dataset *dataset, const tri_mix_draw *draw, void *const *sample,
                    void *const *partner) {
    int images = tri_dataset_find(dataset, "images"),
        labels = tri_dataset_find(dataset, "soft_labels");
    const tri_data_field *field = tri_dataset_field(dataset, images);
    int64_t classes = tri_shape_count(&tri_dataset_field(dataset, labels)->shape);
    if (is_left_out(sample[labels], classes) || is_left_out(partner[labels], classes)) return;
    mix_numbers(sample[labels], partner[labels], classes, draw->own);
    if (draw->is_cut)
        cut_rectangle(draw, field, sample[images], partner[images]);
    else
        mix_numbers(sample[images], partner[images], tri_shape_count(&field->shape), draw->own);
}
