// Targets of plain binary files, which hold unsigned numbers of fixed size: idx, cifar10 and
// tokens.
#include "base/os.h"
#include "data/target/places.h"

#include <endian.h>
#include <stdio.h>
#include <string.h>

enum { BYTE_CLASSES = 256, CIFAR_CLASSES = 10, CIFAR_BYTES = 3 * 32 * 32 };

// Checks that the data are images of bytes of this shape (0: any size) with one label each.
static tri_status check_images(const tri_target *target, const char *kind, const tri_shape *shape,
                               int classes) {
    int images = tri_target_find(target, "images"), labels = tri_target_find(target, "labels");
    char text[64], found_text[64];
    if (target->field_count != 2 || images == TRI_NO_FIELD || labels == TRI_NO_FIELD)
        return TRI_FAIL(TRI_BAD_INPUT, "--to %s: has images and labels, and no other fields", kind);
    const tri_target_field *found = &target->fields[images];
    bool fits = found->dtype == TRI_U8 && found->shape.rank == 3;
    for (int i = 0; i < 3 && fits; i++)
        fits = shape->dims[i] == 0 || shape->dims[i] == found->shape.dims[i];
    if (!fits)
        return TRI_FAIL(TRI_BAD_INPUT, "--to %s: has images of U8 %s, and these are %s %s", kind,
                        shape->dims[1] ? tri_shape_text(shape, text, sizeof text) : "[1, H, W]",
                        tri_dtype_name(found->dtype),
                        tri_shape_text(&found->shape, found_text, sizeof found_text));
    if (target->fields[labels].shape.rank == 0 && target->classes <= classes) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT, "--to %s: has one label below %d for each image", kind, classes);
}

static tri_status check_idx(const tri_target *target) {
    return check_images(target, "idx", &(tri_shape){.rank = 3, .dims = {1, 0, 0}}, BYTE_CLASSES);
}

// Writes the head of an IDX file of bytes: magic number and sizes, the greatest byte first.
static tri_status write_idx_head(const tri_target *target, int file, const int64_t *sizes, int axes,
                                 int64_t *bytes) {
    enum { TYPE_U8 = 8, MOST_AXES = 3 };
    const target_places *places = target->state;
    uint32_t head[1 + MOST_AXES] = {htobe32(TYPE_U8 << 8 | (uint32_t)axes)};
    int64_t elements = 1;
    for (int i = 0; i < axes; i++) {
        head[1 + i] = htobe32((uint32_t)sizes[i]);
        elements *= sizes[i];
        if (sizes[i] > UINT32_MAX)
            return TRI_FAIL(TRI_BAD_INPUT, "--to idx: has at most %u samples", UINT32_MAX);
    }
    *bytes = 4 * (1 + (int64_t)axes);
    TRI_TRY(tri_os_pwrite_all(places->fds[file], head, (size_t)*bytes, 0, places->partial[file]));
    return target_places_size(places, file, *bytes + elements);
}

static tri_status begin_idx(tri_target *target, tri_target_mark *mark) {
    int images = tri_target_find(target, "images"), labels = tri_target_find(target, "labels");
    const int64_t *shape = target->fields[images].shape.dims;
    const int64_t sizes[] = {target->samples, shape[1], shape[2]};
    int64_t images_at, labels_at;
    target_places_begin(target);
    target_places_name(target, "-images-idx3-ubyte");
    target_places_name(target, "-labels-idx1-ubyte");
    TRI_TRY(target_places_open(target, mark));
    TRI_TRY(write_idx_head(target, 0, sizes, 3, &images_at));
    TRI_TRY(write_idx_head(target, 1, sizes, 1, &labels_at));
    target_places_put(target, images, 0, images_at);
    target_places_put_numbers(target, labels, 1, labels_at, 1, 1);
    return TRI_OK;
}

static tri_status check_cifar10(const tri_target *target) {
    tri_shape shape = tri_shape_of(3, 32, 32);
    return check_images(target, "cifar10", &shape, CIFAR_CLASSES);
}

static tri_status begin_cifar10(tri_target *target, tri_target_mark *mark) {
    int images = tri_target_find(target, "images"), labels = tri_target_find(target, "labels");
    target_places *places = target_places_begin(target);
    target_places_name(target, ".bin");
    TRI_TRY(target_places_open(target, mark));
    target_places_put_numbers(target, labels, 0, 0, 1 + CIFAR_BYTES, 1);
    target_places_put(target, images, 0, 1);
    places->fields[images].stride = 1 + CIFAR_BYTES;
    return target_places_size(places, 0, target->samples * (1 + CIFAR_BYTES));
}

static tri_status check_tokens(const tri_target *target) {
    if (target->field_count == 1 && !strcmp(target->fields[0].name, "input_ids")) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT, "--to tokens: has input_ids, and no other fields");
}

static int token_bytes(const tri_target *target) { return target->tokens <= 1 << 16 ? 2 : 4; }

static tri_status begin_tokens(tri_target *target, tri_target_mark *mark) {
    int64_t bytes = tri_shape_count(&target->fields[0].shape) * token_bytes(target);
    target_places *places = target_places_begin(target);
    target_places_name(target, ".u%d", 8 * token_bytes(target));
    TRI_TRY(target_places_open(target, mark));
    target_places_put_numbers(target, 0, 0, 0, bytes, token_bytes(target));
    return target_places_size(places, 0, target->samples * bytes);
}

static const char *idx_value(const tri_target *target) { return target->split; }

static const char *cifar10_value(const tri_target *target) {
    return tri_arena_printf(target->arena, "%s.bin", target->split);
}

static const char *tokens_value(const tri_target *target) {
    return tri_arena_printf(target->arena, "%s.u%d", target->split, 8 * token_bytes(target));
}

static const char *tokens_keys(const tri_target *target) {
    return tri_arena_printf(target->arena, "  sequence: %lld\n",
                            (long long)target->fields[0].shape.dims[0]);
}

const tri_target_kind tri_target_idx = {.name = "idx",
                                        .needs_test = true,
                                        .check = check_idx,
                                        .begin = begin_idx,
                                        .end = target_places_end,
                                        .value = idx_value,
                                        TARGET_PLACES};
const tri_target_kind tri_target_cifar10 = {.name = "cifar10",
                                            .needs_test = true,
                                            .check = check_cifar10,
                                            .begin = begin_cifar10,
                                            .end = target_places_end,
                                            .value = cifar10_value,
                                            TARGET_PLACES};
const tri_target_kind tri_target_tokens = {.name = "tokens",
                                           .check = check_tokens,
                                           .begin = begin_tokens,
                                           .end = target_places_end,
                                           .value = tokens_value,
                                           .keys = tokens_keys,
                                           TARGET_PLACES};
