#include "data/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Sums of one field; the mean's own recurrence keeps precision over billions of values (Welford,
// 1962).
typedef struct moments {
    double min, max, mean, squares;
    int64_t count, not_finite;
} moments;

static void add_value(moments *sums, double value) {
    if (!isfinite(value)) {
        sums->not_finite++;
        return;
    }
    if (sums->count == 0 || value < sums->min) sums->min = value;
    if (sums->count == 0 || value > sums->max) sums->max = value;
    sums->count++;
    double delta = value - sums->mean;
    sums->mean += delta / (double)sums->count;
    sums->squares += delta * (value - sums->mean);
}

static void add_sample(moments *sums, const tri_data_field *field, const void *data) {
    int64_t count = tri_shape_count(&field->shape);
    const float *floats = data;
    const int64_t *numbers = data;
    for (int64_t i = 0; i < count; i++) {
        if (field->dtype == TRI_F32)
            add_value(sums, (double)floats[i]);
        else if (numbers[i] != TRI_IGNORED_LABEL)
            add_value(sums, (double)numbers[i]);
    }
}

static void report_field(const tri_data_field *field, const moments *sums, tri_data_summary *out) {
    *out = (tri_data_summary){
        .field = *field,
        .min = sums->min,
        .max = sums->max,
        .mean = sums->mean,
        .std = sums->count ? sqrt(sums->squares / (double)sums->count) : 0,
        .not_finite = sums->not_finite,
    };
}

static void report_classes(const int64_t *counts, int64_t classes, tri_data_report *out) {
    out->classes = classes;
    for (int64_t i = 0; i < classes; i++) {
        if (i == 0 || counts[i] < out->least_class) out->least_class = counts[i];
        if (counts[i] > out->most_class) out->most_class = counts[i];
    }
}

typedef struct reading {
    void *scratch, *sample;
    int64_t *classes; // samples of each; NULL: no labels
} reading;

static tri_status allocate(const tri_dataset *dataset, int labels, reading *out) {
    size_t most = 1, scratch = tri_dataset_scratch_bytes(dataset);
    for (int i = 0; i < tri_dataset_field_count(dataset); i++)
        if (tri_dataset_field(dataset, i)->size_bytes > most)
            most = tri_dataset_field(dataset, i)->size_bytes;
    out->scratch = malloc(scratch ? scratch : 1);
    out->sample = malloc(most);
    if (labels >= 0)
        out->classes = calloc((size_t)tri_dataset_classes(dataset) + 1, sizeof *out->classes);
    if (!out->scratch || !out->sample || (labels >= 0 && !out->classes))
        return TRI_FAIL(TRI_NO_MEMORY, "no memory to check the data");
    return TRI_OK;
}

static tri_status read_all(const tri_dataset *dataset, int labels, const reading *buffers,
                           tri_data_report *out) {
    out->samples = tri_dataset_samples(dataset);
    for (int field = 0; field < tri_dataset_field_count(dataset); field++) {
        moments sums = {0};
        const tri_data_field *row = tri_dataset_field(dataset, field);
        for (int64_t sample = 0; sample < out->samples; sample++) {
            TRI_TRY(tri_dataset_read(dataset, field, sample, 0, buffers->scratch, buffers->sample));
            add_sample(&sums, row, buffers->sample);
            if (field != labels) continue;
            int64_t label = *(const int64_t *)buffers->sample;
            if (label >= 0) buffers->classes[label]++;
        }
        report_field(row, &sums, &out->fields[out->field_count++]);
    }
    if (labels >= 0) report_classes(buffers->classes, tri_dataset_classes(dataset), out);
    return TRI_OK;
}

tri_status tri_data_check(const tri_data_options *options, tri_data_split split, uint64_t seed,
                          tri_data_report *out) {
    *out = (tri_data_report){0};
    tri_dataset *dataset;
    TRI_TRY(tri_dataset_open(options, split, seed, &dataset));
    int labels = tri_dataset_find(dataset, "labels");
    tri_arena *arena = tri_arena_create(NULL, "check");
    snprintf(out->shapes, sizeof out->shapes, "%s", tri_dataset_shapes(dataset, arena));
    tri_arena_destroy(arena);
    reading buffers = {0};
    tri_status status = allocate(dataset, labels, &buffers);
    if (status == TRI_OK) status = tri_dataset_verify(dataset);
    if (status == TRI_OK) status = read_all(dataset, labels, &buffers, out);
    free(buffers.scratch);
    free(buffers.sample);
    free(buffers.classes);
    tri_dataset_close(dataset);
    return status;
}
