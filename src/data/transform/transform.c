// Lists of transforms: reads them from a recipe, checks them against the images' shape, and applies
// them to a sample.
#include "data/transform/transform.h"

#include "base/limits.h"
#include "data/convert.h"
#include "data/transform/kind.h"

#include <stdio.h>
#include <string.h>

static const tri_transform_kind *const kinds[] = {
#define X(word) &tri_transform_##word,
    TRI_TRANSFORM_LIST(X)
#undef X
};

const tri_option_table *const tri_transform_tables[] = {
#define X(word) &tri_transform_##word##_table,
    TRI_TRANSFORM_LIST(X)
#undef X
        NULL};

enum { KINDS = TRI_OPTION_COUNT(kinds), MAX_TRANSFORMS = 32 };

typedef struct transform {
    const tri_transform_kind *kind;
    const void *params;
    tri_transform_apply apply; // what it does to pixels in this split; NULL: nothing
    uint64_t key;              // key of its random numbers
} transform;

struct tri_transforms {
    int count;
    transform items[MAX_TRANSFORMS];
    tri_dtype stored;
    bool is_mask;
    tri_shape from;     // shape of an image as it is stored
    tri_shape shape;    // shape of the output of all transforms
    tri_pixels *pixels; // for U8 images, by channel: the value that each byte becomes
};

// Makes a map of options from the value of an entry. A number or a list belongs to the first
// option: {resize: 256}.
static const tri_tree *options_of(tri_arena *arena, const tri_option_table *table,
                                  const tri_tree *value) {
    if (!value || (value->kind != TRI_TREE_SCALAR && value->kind != TRI_TREE_LIST)) return value;
    tri_tree *map = tri_tree_map(arena);
    map->file = value->file;
    map->line = value->line;
    tri_tree_put(arena, map, table->rows[0].key, tri_tree_copy(arena, value));
    return map;
}

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
        known[i] = kinds[i]->options->section;
        if (strcmp(name, known[i]) == 0) out->kind = kinds[i];
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
    options = options_of(arena, out->kind->options, options);
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

// Adds how an entry, mixup or cutmix, mixes a step.
static tri_status add_mixing(const tri_tree *entry, const transform *item, tri_mix_options *out) {
    const tri_mixing_options *options = item->params;
    bool is_mixup = item->kind == &tri_transform_mixup, is_second = out->mixup + out->cutmix > 0;
    double *alpha = is_mixup ? &out->mixup : &out->cutmix;
    if (*alpha > 0)
        return tri_tree_fail(entry, "'%s' stands twice in data.transform",
                             item->kind->options->section);
    if (is_second && options->probability != out->probability)
        return tri_tree_fail(entry, "mixup and cutmix need the same 'probability': each step that "
                                    "is mixed takes one of them");
    if (is_second && options->classes && out->classes && options->classes != out->classes)
        return tri_tree_fail(entry, "mixup and cutmix need the same 'classes', the model's");
    *alpha = options->alpha;
    out->probability = options->probability;
    if (options->classes) out->classes = options->classes;
    return TRI_OK;
}

tri_status tri_transforms_mixing(const tri_tree *list, tri_mix_options *out) {
    tri_arena *arena = tri_arena_create(NULL, "transforms");
    transform items[MAX_TRANSFORMS] = {0};
    int count;
    tri_status status = parse_list(arena, list, items, &count);
    *out = (tri_mix_options){0};
    for (int i = 0; i < count && status == TRI_OK; i++)
        if (items[i].kind->role == TRI_TRANSFORM_STEP)
            status = add_mixing(list->items[i], &items[i], out);
    tri_arena_destroy(arena);
    return status;
}

tri_status tri_transforms_check(const tri_tree *list) {
    tri_mix_options mixing;
    return tri_transforms_mixing(list, &mixing);
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

// Refuses a transform that makes new pixels from values that another one has changed: a crop would
// surround a normalised image with what byte 0 becomes, and not with 0.
static tri_status check_order(const tri_tree *list, const transform *items, int count) {
    const char *before = NULL;
    for (int i = 0; i < count; i++) {
        const tri_transform_kind *kind = items[i].kind;
        const char *name = kind->options->section;
        bool makes_pixels = kind->output_shape && (kind->train || kind->evaluate);
        if (makes_pixels && before)
            return tri_tree_fail(list->items[i],
                                 "'%s' stands behind '%s' in data.transform: put it "
                                 "before it",
                                 name, before);
        if (kind->map_values) before = name;
    }
    return TRI_OK;
}

static bool needs_bytes(const tri_transform_kind *kind) {
    return kind->role == TRI_TRANSFORM_COLOUR || kind->role == TRI_TRANSFORM_MIXED;
}

tri_status tri_transforms_create(tri_arena *arena, const tri_tree *list, tri_dtype stored,
                                 const tri_shape *image, bool training, uint64_t seed,
                                 tri_transforms **out) {
    TRI_ASSERT(image->rank == 3);
    tri_transforms *transforms = TRI_NEW(arena, tri_transforms);
    transforms->stored = stored;
    transforms->from = transforms->shape = *image;
    int count;
    transform items[MAX_TRANSFORMS] = {0};
    TRI_TRY(parse_list(arena, list, items, &count));
    TRI_TRY(check_order(list, items, count));
    for (int i = 0; i < count; i++) {
        transform *item = &items[i];
        const tri_transform_kind *kind = item->kind;
        item->apply = training ? kind->train : kind->evaluate;
        if (!item->apply && !kind->map_values) continue;
        if (stored != TRI_U8 && needs_bytes(kind))
            return tri_tree_fail(list->items[i], "'%s' takes images of bytes (U8), not %s",
                                 kind->options->section, tri_dtype_name(stored));
        if (kind->output_shape) TRI_TRY(kind->output_shape(item->params, &transforms->shape));
        item->key = tri_philox_key(
            seed, tri_arena_printf(arena, "data/transform/%d/%s", i, kind->options->section));
        transforms->items[transforms->count++] = *item;
    }
    if (transforms->shape.dims[1] == TRI_ANY_SIZE || transforms->shape.dims[2] == TRI_ANY_SIZE)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "images are decoded when they are read, and may differ in size: let "
                        "data.transform give all of them one, such as [{resize: 256}, "
                        "{center_crop: 224}], or [{resize: [H, W]}], which does not change images "
                        "that have it");
    if (stored == TRI_U8) make_pixels(arena, transforms);
    *out = transforms;
    return TRI_OK;
}

tri_status tri_transforms_of_masks(tri_arena *arena, const tri_transforms *images, const char *name,
                                   tri_dtype stored, const tri_shape *mask, tri_transforms **out) {
    tri_transforms *transforms = TRI_NEW(arena, tri_transforms);
    const int64_t *of_mask = mask->dims, *of_image = images->from.dims;
    if (of_mask[1] != of_image[1] || of_mask[2] != of_image[2])
        return TRI_FAIL(TRI_BAD_INPUT,
                        "data: '%s' is %lld x %lld, but images are %lld x %lld: data.transform "
                        "moves the pixels of both alike, so they must have one size",
                        name, (long long)of_mask[1], (long long)of_mask[2], (long long)of_image[1],
                        (long long)of_image[2]);
    *transforms = (tri_transforms){.stored = stored, .is_mask = true, .from = *mask};
    transforms->shape = tri_shape_of(of_mask[0], images->shape.dims[1], images->shape.dims[2]);
    for (int i = 0; i < images->count; i++) {
        const transform *item = &images->items[i];
        if (item->kind->role == TRI_TRANSFORM_MIXED)
            return TRI_FAIL(TRI_BAD_INPUT,
                            "data.transform: '%s' cannot be used with '%s', which has a number for "
                            "each pixel: use random_rotation, color_jitter and the like",
                            item->kind->options->section, name);
        if (item->kind->role == TRI_TRANSFORM_GEOMETRY)
            transforms->items[transforms->count++] = *item;
    }
    *out = transforms;
    return TRI_OK;
}

const tri_shape *tri_transforms_shape(const tri_transforms *transforms) {
    return &transforms->shape;
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

void tri_transform_memory_free(tri_transform_memory *memory) {
    tri_buffer_free(&memory->images[0]);
    tri_buffer_free(&memory->images[1]);
    tri_buffer_free(&memory->rows);
    tri_buffer_free(&memory->spare);
}

// Applies the transforms of pixels. Two memories are enough, because each transform reads only what
// the one before has written.
static tri_status apply_to_pixels(const tri_transforms *transforms, int64_t sample, int64_t epoch,
                                  tri_transform_memory *memory, tri_image *image) {
    int next = 0;
    for (int i = 0; i < transforms->count; i++) {
        const transform *item = &transforms->items[i];
        if (!item->apply) continue;
        tri_transform_call call = {.random = {item->key, sample, epoch, 0},
                                   .is_mask = transforms->is_mask,
                                   .memory = &memory->images[next],
                                   .rows = &memory->rows,
                                   .spare = &memory->spare};
        TRI_TRY(item->apply(item->params, &call, image));
        const uint8_t *made = memory->images[next].data;
        if (made && image->pixels >= made && image->pixels < made + memory->images[next].size_bytes)
            next = 1 - next;
    }
    return TRI_OK;
}

// Converts the values of a channel to floats, and applies the transforms of values.
static void read_floats(const tri_transforms *transforms, const tri_image *image, int channel,
                        float *out) {
    enum { CHUNK = 1024 };
    _Alignas(64) uint8_t values[CHUNK * sizeof(double)];
    int64_t plane = image->height * image->width;
    for (int64_t row = 0; row < image->height; row++)
        for (int64_t first = 0; first < image->width; first += CHUNK) {
            int64_t left = image->width - first, count = left < CHUNK ? left : CHUNK;
            float *to = out + row * image->width + first;
            tri_image_read_row(image, channel, row, first, count, values);
            if (transforms->pixels)
                tri_pixels_apply(&transforms->pixels[channel], values, to, count);
            else
                tri_convert(transforms->stored, values, TRI_F32, to, count);
        }
    for (int i = 0; i < transforms->count && !transforms->pixels; i++) {
        const transform *item = &transforms->items[i];
        if (item->kind->map_values) item->kind->map_values(item->params, channel, out, plane);
    }
}

static bool is_plane(const tri_image *image) {
    return image->column_stride == 1 && image->row_stride == image->width;
}

tri_status tri_transforms_apply(const tri_transforms *transforms, const tri_image *stored,
                                int64_t sample, int64_t epoch, bool as_bytes,
                                tri_transform_memory *memory, void *out) {
    tri_image image = *stored;
    TRI_TRY(apply_to_pixels(transforms, sample, epoch, memory, &image));
    TRI_ASSERT(image.height == transforms->shape.dims[1] &&
               image.width == transforms->shape.dims[2]);
    if (as_bytes) {
        TRI_ASSERT(transforms->stored == TRI_U8);
        tri_image_read(&image, out);
        return TRI_OK;
    }
    int64_t plane = image.height * image.width;
    for (int channel = 0; channel < image.channels; channel++) {
        float *to = (float *)out + channel * plane;
        if (transforms->pixels && is_plane(&image))
            tri_pixels_apply(&transforms->pixels[channel],
                             image.pixels + channel * image.channel_stride, to, plane);
        else
            read_floats(transforms, &image, channel, to);
    }
    return TRI_OK;
}

tri_status tri_transforms_apply_to_mask(const tri_transforms *transforms, const tri_image *stored,
                                        int64_t sample, int64_t epoch, tri_transform_memory *memory,
                                        tri_dtype dtype, void *out) {
    tri_image mask = *stored;
    char *to = out;
    TRI_TRY(apply_to_pixels(transforms, sample, epoch, memory, &mask));
    TRI_ASSERT(mask.height == transforms->shape.dims[1] && mask.width == transforms->shape.dims[2]);
    TRI_TRY(tri_buffer_reserve(&memory->rows, (size_t)mask.width * tri_dtype_bytes(mask.dtype)));
    for (int64_t channel = 0; channel < mask.channels; channel++)
        for (int64_t row = 0; row < mask.height; row++) {
            tri_image_read_row(&mask, channel, row, 0, mask.width, memory->rows.data);
            tri_convert(mask.dtype, memory->rows.data, dtype, to, mask.width);
            to += (size_t)mask.width * tri_dtype_bytes(dtype);
        }
    return TRI_OK;
}
