// Files that have their whole size from the beginning: each sample is written to its place.
#include "data/target/places.h"

#include "base/os.h"
#include "data/convert.h"

#include <endian.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

target_places *target_places_begin(tri_target *target) {
    target_places *places = TRI_NEW(target->arena, target_places);
    for (int i = 0; i < TRI_MAX_DATA_FIELDS; i++) places->fds[i] = -1;
    target->state = places;
    return places;
}

void target_places_name(tri_target *target, const char *format, ...) {
    target_places *places = target->state;
    char rest[TRI_MAX_NAME_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(rest, sizeof rest, format, arguments);
    va_end(arguments);
    int file = places->file_count++;
    places->partial[file] = tri_arena_printf(target->arena, "%s/%s%s" TRI_TARGET_PART,
                                             target->folder, target->split, rest);
}

tri_status target_places_open(tri_target *target, tri_target_mark *mark) {
    target_places *places = target->state;
    for (int i = 0; i < places->file_count; i++) {
        tri_target_check_part(places->partial[i], mark);
        places->fds[i] = tri_os_open_or_create(places->partial[i], O_RDWR | O_CLOEXEC, 0666);
        if (places->fds[i] < 0) return tri_os_fail("open", places->partial[i]);
    }
    return TRI_OK;
}

tri_status target_places_size(const target_places *places, int file, int64_t bytes) {
    if (tri_os.ftruncate(places->fds[file], bytes) == 0) return TRI_OK;
    return tri_os_fail("write", places->partial[file]);
}

void target_places_put(tri_target *target, int field, int file, int64_t offset) {
    target_places_put_numbers(target, field, file, offset, (int64_t)target->fields[field].bytes, 0);
}

void target_places_put_numbers(tri_target *target, int field, int file, int64_t offset,
                               int64_t stride, int width) {
    target_places *places = target->state;
    places->fields[field].file = file;
    places->fields[field].offset = offset;
    places->fields[field].stride = stride;
    places->fields[field].width = width;
}

// Writes whole numbers as unsigned ones of `width` bytes, the least first.
static tri_status write_numbers(const tri_target *target, int field, int64_t sample,
                                const void *data, int64_t offset) {
    enum { PIECE = 512 };
    const target_places *places = target->state;
    const tri_target_field *from = &target->fields[field];
    int width = places->fields[field].width, file = places->fields[field].file;
    int64_t count = tri_shape_count(&from->shape), wide[PIECE];
    for (int64_t at = 0; at < count; at += PIECE) {
        char bytes[PIECE * 8];
        int64_t piece = count - at < PIECE ? count - at : PIECE;
        const char *numbers = (const char *)data + at * (int64_t)tri_dtype_bytes(from->dtype);
        tri_convert(from->dtype, numbers, TRI_I64, wide, piece);
        for (int64_t i = 0; i < piece; i++) {
            if (wide[i] < 0 || wide[i] >> (8 * width) != 0)
                return TRI_FAIL(TRI_BAD_INPUT, "sample %lld: '%s' is %lld, which does not fit",
                                (long long)sample, from->name, (long long)wide[i]);
            uint64_t number = htole64((uint64_t)wide[i]);
            memcpy(bytes + i * width, &number, (size_t)width);
        }
        TRI_TRY(tri_os_pwrite_all(places->fds[file], bytes, (size_t)(piece * width),
                                  offset + at * width, places->partial[file]));
    }
    return TRI_OK;
}

tri_status target_places_write(tri_target *target, int64_t sample, const tri_target_value *values) {
    const target_places *places = target->state;
    for (int i = 0; i < target->field_count; i++) {
        int file = places->fields[i].file;
        int64_t offset = places->fields[i].offset + sample * places->fields[i].stride;
        if (places->fields[i].width > 0)
            TRI_TRY(write_numbers(target, i, sample, values[i].data, offset));
        else
            TRI_TRY(tri_os_pwrite_all(places->fds[file], values[i].data, target->fields[i].bytes,
                                      offset, places->partial[file]));
    }
    return TRI_OK;
}

tri_status target_places_sync(tri_target *target, int64_t samples, tri_target_mark *mark) {
    mark->samples = samples;
    return TRI_OK;
}

tri_status target_places_end(tri_target *target) {
    const target_places *places = target->state;
    for (int i = 0; i < places->file_count; i++)
        if (tri_os.fsync(places->fds[i]) < 0) return tri_os_fail("write", places->partial[i]);
    return TRI_OK;
}

void target_places_close(tri_target *target) {
    const target_places *places = target->state;
    for (int i = 0; i < places->file_count; i++)
        if (places->fds[i] >= 0) tri_os.close(places->fds[i]);
}
