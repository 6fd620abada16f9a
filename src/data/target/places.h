// What targets share in which every sample has its place from the beginning: a file for each field,
// or one for all.
#ifndef TRIREME_DATA_TARGET_PLACES_H
#define TRIREME_DATA_TARGET_PLACES_H

#include "data/target/target.h"

typedef struct target_places {
    int file_count;
    const char *partial[TRI_MAX_DATA_FIELDS]; // by file: the name with TRI_TARGET_PART
    int fds[TRI_MAX_DATA_FIELDS];
    // By field: its file, where in it the first sample lies, and how far it is to the next one.
    struct {
        int file;
        int64_t offset, stride;
        int width; // bytes of a number; 0: samples are written as they are
    } fields[TRI_MAX_DATA_FIELDS];
} target_places;

// Makes the state of the target.
target_places *target_places_begin(tri_target *target);
// Adds a file, whose name is that of the split and this.
void target_places_name(tri_target *target, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
// Opens the files, or makes them; *mark as with tri_target_check_part.
tri_status target_places_open(tri_target *target, tri_target_mark *mark);
tri_status target_places_size(const target_places *places, int file, int64_t bytes);
// Places the samples of a field one behind the other, from `offset` on.
void target_places_put(tri_target *target, int field, int file, int64_t offset);
// Places the samples of a field of whole numbers, which become unsigned ones of `width` bytes.
void target_places_put_numbers(tri_target *target, int field, int file, int64_t offset,
                               int64_t stride, int width);

// Functions of tri_target_kind.
tri_status target_places_write(tri_target *target, int64_t sample, const tri_target_value *values);
tri_status target_places_sync(tri_target *target, int64_t samples, tri_target_mark *mark);
tri_status target_places_end(tri_target *target);
void target_places_close(tri_target *target);
#define TARGET_PLACES                                                                              \
    .marks_at = tri_target_marks_at_times, .put = target_places_write, .sync = target_places_sync, \
    .close = target_places_close

#endif
