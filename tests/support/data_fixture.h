// A temporary folder for small data files, and options parsed as from a recipe.
#ifndef TESTS_UNIT_DATA_FIXTURE_H
#define TESTS_UNIT_DATA_FIXTURE_H

#include "base/limits.h"
#include "base/os.h"
#include "data/dataset.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char fixture_folder[64];
static tri_arena *fixture_arena;

static inline int fixture_setup(void **state) {
    snprintf(fixture_folder, sizeof fixture_folder, "/tmp/trireme-data-XXXXXX");
    fixture_arena = tri_arena_create(NULL, "test");
    return mkdtemp(fixture_folder) ? 0 : 1;
}

static inline int fixture_teardown(void **state) {
    tri_arena_destroy(fixture_arena);
    return tri_os_remove_tree(fixture_folder) == TRI_OK ? 0 : 1;
}

static inline const char *fixture_path(const char *name) {
    return tri_arena_printf(fixture_arena, "%s/%s", fixture_folder, name);
}

static inline tri_status fixture_try_options(const char *yaml, tri_data_options *out) {
    tri_tree *tree;
    tri_status status = tri_yaml_parse(fixture_arena, yaml, strlen(yaml), "test.yaml", &tree);
    if (status != TRI_OK) return status;
    return tri_option_decode(fixture_arena, &tri_data_table, tree, out);
}

// Reads field `field` of a sample to `out`.
static inline tri_status fixture_read(const tri_dataset *dataset, int field, int64_t sample,
                                      int64_t epoch, void *out) {
    void *fields[TRI_MAX_DATA_FIELDS] = {0};
    tri_reader *reader;
    tri_status status = tri_reader_create(dataset, &reader);
    if (status != TRI_OK) return status;
    for (int i = 0; i < tri_dataset_field_count(dataset); i++)
        fields[i] = malloc(tri_dataset_field(dataset, i)->size_bytes);
    status = tri_reader_read(reader, sample, epoch, fields);
    memcpy(out, fields[field], tri_dataset_field(dataset, field)->size_bytes);
    for (int i = 0; i < TRI_MAX_DATA_FIELDS; i++) free(fields[i]);
    tri_reader_destroy(reader);
    return status;
}

// Parses options. data.path is fixture_folder; `yaml` has the other keys in YAML's flow style,
// without braces: "name: idx, limit: 5".
static inline tri_data_options fixture_options(const char *yaml) {
    tri_data_options options;
    const char *text = tri_arena_printf(fixture_arena, "{path: %s, %s}", fixture_folder, yaml);
    if (fixture_try_options(text, &options) != TRI_OK) {
        fprintf(stderr, "%s\n", tri_error_message());
        abort();
    }
    return options;
}

static inline void fixture_put(const char *name, const void *data, size_t size) {
    if (tri_os_replace_file(fixture_path(name), data, size) != TRI_OK) abort();
}

// Writes `count` images of 2 x 3 pixels and their labels: pixel p of image i is
// (7 * i + p) mod 256, and the label of image i is i mod 10.
static inline void fixture_put_idx(const char *prefix, int count) {
    uint8_t *images = malloc(16 + 6 * (size_t)count), *labels = malloc(8 + (size_t)count);
    memcpy(images,
           (const uint8_t[]){0, 0, 8, 3, 0, 0, count >> 8, count & 255, 0, 0, 0, 2, 0, 0, 0, 3},
           16);
    memcpy(labels, (const uint8_t[]){0, 0, 8, 1, 0, 0, count >> 8, count & 255}, 8);
    for (int i = 0; i < count; i++) {
        for (int p = 0; p < 6; p++) images[16 + 6 * i + p] = (uint8_t)(7 * i + p);
        labels[8 + i] = (uint8_t)(i % 10);
    }
    char name[128];
    snprintf(name, sizeof name, "%s-images-idx3-ubyte", prefix);
    fixture_put(name, images, 16 + 6 * (size_t)count);
    snprintf(name, sizeof name, "%s-labels-idx1-ubyte", prefix);
    fixture_put(name, labels, 8 + (size_t)count);
    free(images);
    free(labels);
}

#endif
