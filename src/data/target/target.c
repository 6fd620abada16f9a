// What kinds of targets share: image files, classes, and which fields a target has.
#include "data/target/target.h"

#include "data/convert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { SHARD_SAMPLES = 10000, SHARD_DIGITS = 6 };

bool tri_target_is_shard_end(int64_t samples) { return samples % SHARD_SAMPLES == 0; }

void tri_target_shard(const tri_target *target, int64_t sample, const char *suffix,
                      char path[PATH_MAX]) {
    snprintf(path, PATH_MAX, "%s/%s-%0*lld.%s", target->folder, target->split, SHARD_DIGITS,
             (long long)(sample / SHARD_SAMPLES), suffix);
}

const char *tri_target_shards(const tri_target *target, const char *suffix) {
    return tri_arena_printf(target->arena, "'%s-{%0*d..%0*lld}.%s'", target->split, SHARD_DIGITS, 0,
                            SHARD_DIGITS, (long long)((target->samples - 1) / SHARD_SAMPLES),
                            suffix);
}

void tri_target_check_part(const char *path, tri_target_mark *mark) {
    struct stat found;
    if (stat(path, &found) < 0 || found.st_size < mark->bytes) *mark = (tri_target_mark){0};
}

bool tri_target_marks_at_times(int64_t samples) { return false; }

const char *tri_target_fields(const tri_target *target) {
    const char *text = "  fields: {";
    for (int i = 0; i < target->field_count; i++)
        text = tri_arena_printf(target->arena, "%s%s%s: %s", text, i ? ", " : "",
                                target->fields[i].name, target->fields[i].name);
    return tri_arena_printf(target->arena, "%s}\n", text);
}

int tri_target_find(const tri_target *target, const char *field) {
    for (int i = 0; i < target->field_count; i++)
        if (!strcmp(target->fields[i].name, field)) return i;
    return TRI_NO_FIELD;
}

tri_status tri_target_check_images(const tri_target *target, const char *kind) {
    int images = tri_target_find(target, "images"), labels = tri_target_find(target, "labels");
    for (int i = 0; i < target->field_count; i++)
        if (i != images && i != labels)
            return TRI_FAIL(TRI_BAD_INPUT, "--to %s: has images and labels, and no '%s'", kind,
                            target->fields[i].name);
    if (images == TRI_NO_FIELD)
        return TRI_FAIL(TRI_BAD_INPUT, "--to %s: has images, and the data have none", kind);
    const tri_target_field *field = &target->fields[images];
    bool is_image =
        field->dtype == TRI_U8 && (field->shape.dims[0] == 1 || field->shape.dims[0] == 3);
    if (!is_image)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "--to %s: has images of bytes with 1 or 3 channels, and no others", kind);
    if (labels == TRI_NO_FIELD || target->fields[labels].shape.rank == 0) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT, "--to %s: has one class an image, and no list of them", kind);
}

static const char *suffix_of(const uint8_t *file, size_t bytes) {
    static const struct {
        const char *bytes, *suffix;
        size_t size;
    } rows[] = {{"\xff\xd8\xff", "jpg", 3}, {"\x89PNG", "png", 4}, {"RIFF", "webp", 4},
                {"BM", "bmp", 2},           {"P5", "pgm", 2},      {"P6", "ppm", 2}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (bytes >= rows[i].size && !memcmp(file, rows[i].bytes, rows[i].size))
            return rows[i].suffix;
    return "jpg";
}

tri_status tri_target_make_file(const tri_image *image, char **made, size_t *bytes) {
    enum { HEADER_BYTES = 64 };
    int64_t channels = image->channels, plane = image->height * image->width;
    size_t size = (size_t)(channels * plane);
    if (image->dtype != TRI_U8 || (channels != 1 && channels != 3))
        return TRI_FAIL(TRI_BAD_INPUT,
                        "an image of %s with %lld channels has no image file: they "
                        "have bytes, and 1 or 3 channels",
                        tri_dtype_name(image->dtype), (long long)channels);
    char *planes = malloc(size), *out = malloc(size + HEADER_BYTES);
    if (!planes || !out) {
        free(planes);
        free(out);
        return TRI_FAIL(TRI_NO_MEMORY, "no memory for an image");
    }
    tri_image_read(image, planes);
    int header = snprintf(out, HEADER_BYTES, "P%d %lld %lld 255\n", channels == 1 ? 5 : 6,
                          (long long)image->width, (long long)image->height);
    for (int64_t i = 0; i < plane; i++)
        for (int64_t c = 0; c < channels; c++)
            out[header + i * channels + c] = planes[c * plane + i];
    free(planes);
    *made = out;
    *bytes = (size_t)header + size;
    return TRI_OK;
}

tri_status tri_target_image(const tri_target *target, const tri_target_value *value, char **made,
                            const void **file, size_t *bytes, const char **suffix) {
    const tri_target_field *field = &target->fields[tri_target_find(target, "images")];
    *made = NULL;
    *file = value->encoded;
    *bytes = value->encoded_bytes;
    if (!value->encoded) {
        tri_image image = tri_image_of_planes(value->data, field->dtype, &field->shape);
        TRI_TRY(tri_target_make_file(&image, made, bytes));
        *file = *made;
    }
    *suffix = suffix_of(*file, *bytes);
    return TRI_OK;
}

int64_t tri_target_label(const tri_target *target, const tri_target_value *values) {
    int index = tri_target_find(target, "labels");
    int64_t label = -1;
    if (index != TRI_NO_FIELD)
        tri_convert(target->fields[index].dtype, values[index].data, TRI_I64, &label, 1);
    return label;
}
