// Reads the labels of samples from the first to the last that data.limit leaves.
#include "data/ordered.h"

#include "data/kind.h"

#include <stdlib.h>
#include <string.h>

enum {
    LEAST = 8, // fewer samples may well be in order by chance
    MOST = 64,
};

static int find_labels(const tri_dataset *dataset) {
    for (int i = 0; i < dataset->field_count; i++) {
        const tri_data_field *field = &dataset->fields[i].field;
        if (!strcmp(field->name, "labels") && field->dtype == TRI_I64 && field->shape.rank == 0)
            return i;
    }
    return -1;
}

// Reads `count` labels, evenly between the first and the last sample. False: one cannot be read.
static bool read_labels(const tri_dataset *dataset, int field, int count, int64_t *labels) {
    void *values[TRI_MAX_DATA_FIELDS];
    tri_reader *reader;
    if (tri_reader_create(dataset, &reader) != TRI_OK) return false;
    tri_arena *arena = tri_arena_create(NULL, "labels");
    for (int i = 0; i < dataset->field_count; i++)
        values[i] = tri_arena_alloc(arena, dataset->fields[i].field.size_bytes);
    bool is_good = true;
    for (int i = 0; i < count && is_good; i++) {
        int64_t sample = (dataset->samples - 1) * i / (count - 1);
        is_good = tri_reader_try(reader, sample, 0, values) == TRI_OK;
        if (is_good) memcpy(&labels[i], values[field], sizeof *labels);
    }
    tri_arena_destroy(arena);
    tri_reader_destroy(reader);
    return is_good;
}

const char *tri_dataset_find_ordered(tri_arena *arena, const tri_dataset *dataset) {
    int64_t labels[MOST], classes = tri_dataset_classes(dataset, "labels");
    int count = dataset->samples < MOST ? (int)dataset->samples : MOST,
        field = find_labels(dataset);
    // Of the samples that data.val_fraction leaves, which keep the data's order, too.
    int64_t total = dataset->validation_split ? dataset->validation_split->total : dataset->samples;
    bool is_cut = dataset->options->limit > 0 && total == dataset->options->limit;
    if (!is_cut || field < 0 || count < LEAST || classes < 2) return NULL;
    if (!read_labels(dataset, field, count, labels)) return NULL;
    for (int i = 1; i < count; i++)
        if (labels[i] < labels[i - 1]) return NULL;
    int64_t first = labels[0], last = labels[count - 1];
    if (last - first + 1 >= classes) return NULL;
    const char *found = first == last
                            ? tri_arena_printf(arena, "class %lld", (long long)first)
                            : tri_arena_printf(arena, "the classes %lld to %lld, in their order",
                                               (long long)first, (long long)last);
    return tri_arena_printf(
        arena,
        "data.limit=%lld takes the first samples; the %d of them that were looked at are of %s, of "
        "%lld: if the data lie in the order of their classes, trainer.limit_train_batches takes "
        "samples of all",
        (long long)dataset->options->limit, count, found, (long long)classes);
}
