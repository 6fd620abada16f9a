// The transforms of images (one row of `kinds` for each), and how they are applied to a sample.
#include "data/transform.h"

#include "base/limits.h"
#include "base/option.h"
#include "base/philox.h"
#include "base/quantity.h"
#include "data/convert.h"

#include <stdio.h>
#include <string.h>

// One kind of transform. `params` is a struct that is read from the recipe by the table `options`.
typedef struct transform_kind {
    const tri_option_table *options;
    // Checks `params` against the shape *image, and replaces that by the output's shape. NULL: any
    // shape is allowed and stays the same.
    tri_status (*output_shape)(const void *params, tri_shape *image);
    // Transforms `count` values of a channel in place. Values of U8 images lie in [0, 1] before the
    // first transform. NULL: values stay the same.
    void (*map_values)(const void *params, int channel, float *values, int64_t count);
    // If map_values is (x - shift) / divisor: returns these two numbers, with which U8 images are
    // converted faster. NULL: it is another function.
    void (*affine)(const void *params, int channel, float *shift, float *divisor);
    // Copies the pixels of `from` [C, H, W] to their new positions in `to`, which has the output's
    // shape. `draw` holds the random words of this sample. NULL: pixels stay where they are.
    void (*move_pixels)(const void *params, const tri_philox_block *draw, const tri_shape *image,
                        size_t pixel_bytes, const uint8_t *from, uint8_t *to);
} transform_kind;

typedef struct normalize_options {
    tri_doubles mean, std;
} normalize_options;

static const tri_option normalize_rows[] = {
    TRI_OPTION_FLOATS(normalize_options, mean, "[0.5]", -1e6, 1e6, 0,
                      "subtracted from each channel; one value for all, or C values"),
    TRI_OPTION_FLOATS(normalize_options, std, "[0.5]", 1e-30, 1e6, 0,
                      "divides each channel; one value for all, or C values"),
};

static const tri_option_table normalize_table = TRI_OPTION_TABLE(
    "normalize", normalize_options, normalize_rows, "(x - mean) / std per channel");

static tri_status normalize_output_shape(const void *params, tri_shape *image) {
    const normalize_options *options = params;
    const tri_doubles *lists[] = {&options->mean, &options->std};
    long long channels = image->dims[0];
    for (int i = 0; i < 2; i++) {
        if (lists[i]->count == 1 || lists[i]->count == channels) continue;
        char wanted[32] = "1";
        if (channels != 1) snprintf(wanted, sizeof wanted, "1 or %lld", channels);
        return TRI_FAIL(TRI_BAD_INPUT, "normalize: %s of '%s' for images of %s: give %s",
                        tri_counted(lists[i]->count, "value"), i ? "std" : "mean",
                        tri_counted(channels, "channel"), wanted);
    }
    return TRI_OK;
}

static void normalize_affine(const void *params, int channel, float *shift, float *divisor) {
    const normalize_options *options = params;
    *shift = (float)options->mean.items[options->mean.count > 1 ? channel : 0];
    *divisor = (float)options->std.items[options->std.count > 1 ? channel : 0];
}

// Normalises values. Like torchvision it uses single precision and divisions (instead of
// multiplications by 1 / std), so that the bits are the same.
static void normalize_map_values(const void *params, int channel, float *values, int64_t count) {
    float mean, std;
    normalize_affine(params, channel, &mean, &std);
    for (int64_t i = 0; i < count; i++) values[i] = (values[i] - mean) / std;
}

typedef struct flip_options {
    double probability;
} flip_options;

static const tri_option flip_rows[] = {
    TRI_OPTION_FLOAT(flip_options, probability, "0.5", 0, 1, "of a training sample to be flipped"),
};

static const tri_option_table flip_table = TRI_OPTION_TABLE(
    "horizontal_flip", flip_options, flip_rows, "exchanges left and right, at random");

static void flip_move_pixels(const void *params, const tri_philox_block *draw,
                             const tri_shape *image, size_t pixel_bytes, const uint8_t *from,
                             uint8_t *to) {
    const flip_options *options = params;
    int64_t rows = image->dims[0] * image->dims[1], width = image->dims[2];
    if (tri_philox_uniform(draw->word[0]) >= options->probability) {
        memcpy(to, from, (size_t)(rows * width) * pixel_bytes);
        return;
    }
    for (int64_t row = 0; row < rows; row++)
        for (int64_t x = 0; x < width; x++)
            memcpy(to + (size_t)(row * width + x) * pixel_bytes,
                   from + (size_t)(row * width + width - 1 - x) * pixel_bytes, pixel_bytes);
}

typedef struct crop_options {
    int64_t size, padding;
} crop_options;

static const tri_option crop_rows[] = {
    TRI_OPTION_INT(crop_options, size, "32", 1, 65536, "height and width of the result"),
    TRI_OPTION_INT(crop_options, padding, "0", 0, 65536, "zeros put around the image first"),
};

static const tri_option_table crop_table = TRI_OPTION_TABLE(
    "random_crop", crop_options, crop_rows, "cuts a square out of the padded image, at random");

static tri_status crop_output_shape(const void *params, tri_shape *image) {
    const crop_options *options = params;
    for (int axis = 1; axis <= 2; axis++) {
        if (image->dims[axis] + 2 * options->padding < options->size)
            return TRI_FAIL(
                TRI_BAD_INPUT,
                "random_crop: size %lld is larger than images of %lld x %lld with padding %lld",
                (long long)options->size, (long long)image->dims[1], (long long)image->dims[2],
                (long long)options->padding);
    }
    image->dims[1] = image->dims[2] = options->size;
    return TRI_OK;
}

// Maps a random word to an integer in [0, range), without a division.
static int64_t random_below(uint32_t word, int64_t range) {
    return (int64_t)((uint64_t)word * (uint64_t)range >> 32);
}

static void crop_move_pixels(const void *params, const tri_philox_block *draw,
                             const tri_shape *image, size_t pixel_bytes, const uint8_t *from,
                             uint8_t *to) {
    const crop_options *options = params;
    int64_t height = image->dims[1], width = image->dims[2], size = options->size;
    int64_t top =
        random_below(draw->word[0], height + 2 * options->padding - size + 1) - options->padding;
    int64_t left =
        random_below(draw->word[1], width + 2 * options->padding - size + 1) - options->padding;
    int64_t first = left < 0 ? -left : 0, last = width - left < size ? width - left : size;
    memset(to, 0, (size_t)(image->dims[0] * size * size) * pixel_bytes);
    for (int64_t channel = 0; channel < image->dims[0]; channel++) {
        for (int64_t y = 0; y < size && first < last; y++) {
            if (top + y < 0 || top + y >= height) continue;
            memcpy(to + (size_t)((channel * size + y) * size + first) * pixel_bytes,
                   from +
                       (size_t)((channel * height + top + y) * width + left + first) * pixel_bytes,
                   (size_t)(last - first) * pixel_bytes);
        }
    }
}

static const transform_kind kinds[] = {
    {.options = &normalize_table,
     .output_shape = normalize_output_shape,
     .map_values = normalize_map_values,
     .affine = normalize_affine},
    {.options = &flip_table, .move_pixels = flip_move_pixels},
    {.options = &crop_table, .output_shape = crop_output_shape, .move_pixels = crop_move_pixels},
};

enum { KINDS = TRI_OPTION_COUNT(kinds), MAX_TRANSFORMS = 32 };

const tri_option_table *const tri_transform_tables[] = {&normalize_table, &flip_table, &crop_table,
                                                        NULL};

typedef struct transform {
    const transform_kind *kind;
    const void *params;
    tri_shape image; // shape of the transform's input
    uint64_t key;    // key of its random words
} transform;

struct tri_transforms {
    int count;
    transform items[MAX_TRANSFORMS];
    tri_dtype stored;
    tri_shape shape;           // shape of the output of all transforms
    size_t intermediate_bytes; // size in bytes of the largest image that a move_pixels writes
    tri_pixels *pixels;        // for U8 images, by channel: the value that each byte becomes
};

// Reads an entry of data.transform: `name`, or a map with one key, `name: {option: value}`.
static tri_status parse_entry(tri_arena *arena, const tri_tree *entry, transform *out) {
    const char *name = NULL;
    const tri_tree *options = NULL;
    if (entry->kind == TRI_TREE_SCALAR) name = entry->text;
    if (entry->kind == TRI_TREE_MAP && entry->count == 1) {
        options = entry->items[0];
        name = options->key;
    }
    if (!name)
        return tri_tree_fail(entry,
                             "a transform is a name, or one name with its options: {name: {...}}");
    const char *known[KINDS];
    for (int i = 0; i < KINDS; i++) {
        known[i] = kinds[i].options->section;
        if (strcmp(name, known[i]) == 0) out->kind = &kinds[i];
    }
    if (!out->kind) {
        const char *nearest = tri_option_nearest(name, known, KINDS);
        if (nearest)
            return tri_tree_fail(entry, "unknown transform '%s': did you mean '%s'?", name,
                                 nearest);
        char *all = tri_arena_strdup(arena, known[0]);
        for (int i = 1; i < KINDS; i++) all = tri_arena_printf(arena, "%s, %s", all, known[i]);
        return tri_tree_fail(entry, "unknown transform '%s' (known: %s)", name, all);
    }
    void *params = tri_arena_alloc(arena, out->kind->options->size);
    TRI_TRY(tri_option_decode(arena, out->kind->options, options, params));
    out->params = params;
    return TRI_OK;
}

static tri_status parse_list(tri_arena *arena, const tri_tree *list, transform *items, int *count) {
    *count = 0;
    if (tri_tree_is_null(list)) return TRI_OK;
    if (list->kind != TRI_TREE_LIST)
        return tri_tree_fail(list, "data.transform must be a list of transforms");
    if (list->count > MAX_TRANSFORMS)
        return tri_tree_fail(list, "more than %d transforms", MAX_TRANSFORMS);
    for (; *count < list->count; ++*count)
        TRI_TRY(parse_entry(arena, list->items[*count], &items[*count]));
    return TRI_OK;
}

tri_status tri_transforms_check(const tri_tree *list) {
    tri_arena *arena = tri_arena_create(NULL, "transforms");
    transform items[MAX_TRANSFORMS] = {0};
    int count;
    tri_status status = parse_list(arena, list, items, &count);
    tri_arena_destroy(arena);
    return status;
}

static size_t bytes_of(const tri_transforms *transforms, const tri_shape *shape) {
    return (size_t)tri_shape_count(shape) * tri_dtype_bytes(transforms->stored);
}

// Applies the transforms of values to all 256 bytes, so that converting a pixel takes at most one
// look-up.
static void make_pixels(tri_arena *arena, tri_transforms *transforms) {
    int64_t channels = transforms->shape.dims[0];
    transforms->pixels = TRI_NEW_ARRAY(arena, tri_pixels, channels);
    for (int channel = 0; channel < channels; channel++) {
        tri_pixels *pixels = &transforms->pixels[channel];
        float shift = 0, divisor = 1;
        for (int byte = 0; byte < 256; byte++) pixels->values[byte] = (float)byte / 255.0f;
        for (int i = 0; i < transforms->count; i++) {
            const transform *item = &transforms->items[i];
            if (item->kind->map_values)
                item->kind->map_values(item->params, channel, pixels->values, 256);
            if (item->kind->affine) item->kind->affine(item->params, channel, &shift, &divisor);
        }
        tri_pixels_hint(pixels, shift, divisor);
    }
}

tri_status tri_transforms_create(tri_arena *arena, const tri_tree *list, tri_dtype stored,
                                 const tri_shape *image, bool training, uint64_t seed,
                                 tri_transforms **out) {
    TRI_ASSERT(image->rank == 3);
    tri_transforms *transforms = TRI_NEW(arena, tri_transforms);
    transforms->stored = stored;
    transforms->shape = *image;
    int count;
    transform items[MAX_TRANSFORMS] = {0};
    TRI_TRY(parse_list(arena, list, items, &count));
    for (int i = 0; i < count; i++) {
        transform *item = &items[i];
        if (item->kind->move_pixels && !training) continue;
        item->image = transforms->shape;
        if (item->kind->output_shape)
            TRI_TRY(item->kind->output_shape(item->params, &transforms->shape));
        item->key = tri_philox_key(
            seed, tri_arena_printf(arena, "data/transform/%d/%s", i, item->kind->options->section));
        size_t bytes = bytes_of(transforms, &transforms->shape);
        if (item->kind->move_pixels && bytes > transforms->intermediate_bytes)
            transforms->intermediate_bytes = bytes;
        transforms->items[transforms->count++] = *item;
    }
    if (stored == TRI_U8) make_pixels(arena, transforms);
    *out = transforms;
    return TRI_OK;
}

const tri_shape *tri_transforms_shape(const tri_transforms *transforms) {
    return &transforms->shape;
}
size_t tri_transforms_scratch_bytes(const tri_transforms *transforms) {
    return 2 * transforms->intermediate_bytes;
}

bool tri_transforms_scale(const tri_transforms *transforms, tri_pixel_scale *out) {
    int64_t channels = transforms->shape.dims[0];
    const transform *affine = NULL;
    if (transforms->stored != TRI_U8 || channels > TRI_MAX_PIXEL_CHANNELS) return false;
    for (int i = 0; i < transforms->count; i++) {
        const transform *item = &transforms->items[i];
        if (!item->kind->map_values) continue;
        if (affine || !item->kind->affine) return false;
        affine = item;
    }
    *out = (tri_pixel_scale){.channels = channels};
    for (int channel = 0; channel < channels; channel++) {
        float shift = 0, divisor = 1;
        if (affine) affine->kind->affine(affine->params, channel, &shift, &divisor);
        out->mean[channel] = (double)shift;
        out->std[channel] = (double)divisor;
    }
    return true;
}

// Lets each transform that moves pixels do so, and returns where the pixels are afterwards.
static const uint8_t *move_pixels(const tri_transforms *transforms, const void *stored,
                                  int64_t sample, int64_t epoch, void *scratch) {
    const uint8_t *from = stored;
    uint8_t *to = scratch, *other = (uint8_t *)scratch + transforms->intermediate_bytes;
    for (int i = 0; i < transforms->count; i++) {
        const transform *item = &transforms->items[i];
        if (!item->kind->move_pixels) continue;
        const uint32_t counter[4] = {(uint32_t)sample, (uint32_t)((uint64_t)sample >> 32),
                                     (uint32_t)epoch, (uint32_t)((uint64_t)epoch >> 32)};
        tri_philox_block draw = tri_philox(item->key, counter);
        item->kind->move_pixels(item->params, &draw, &item->image,
                                tri_dtype_bytes(transforms->stored), from, to);
        from = to;
        to = other;
        other = (uint8_t *)(uintptr_t)from;
    }
    return from;
}

void tri_transforms_move(const tri_transforms *transforms, const void *stored, int64_t sample,
                         int64_t epoch, void *scratch, uint8_t *out) {
    TRI_ASSERT(transforms->stored == TRI_U8);
    memcpy(out, move_pixels(transforms, stored, sample, epoch, scratch),
           bytes_of(transforms, &transforms->shape));
}

void tri_transforms_apply(const tri_transforms *transforms, const void *stored, int64_t sample,
                          int64_t epoch, void *scratch, float *out) {
    const uint8_t *from = move_pixels(transforms, stored, sample, epoch, scratch);
    int64_t plane = transforms->shape.dims[1] * transforms->shape.dims[2];
    for (int channel = 0; channel < transforms->shape.dims[0]; channel++) {
        float *values = out + channel * plane;
        if (transforms->pixels) {
            tri_pixels_apply(&transforms->pixels[channel], from + channel * plane, values, plane);
            continue;
        }
        size_t skip = (size_t)(channel * plane) * tri_dtype_bytes(transforms->stored);
        tri_convert(transforms->stored, from + skip, TRI_F32, values, plane);
        for (int i = 0; i < transforms->count; i++) {
            const transform *item = &transforms->items[i];
            if (item->kind->map_values)
                item->kind->map_values(item->params, channel, values, plane);
        }
    }
}
