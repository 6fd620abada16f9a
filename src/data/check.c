// `trireme data check`: reads a whole data set, computes statistics of each field, and warns of
// likely mistakes, such as images of bytes that are stored in another type.
#include "data/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Statistics of the values so far. Mean and squares are computed by Welford's recurrence (1962),
// which stays precise over billions of values; a plain sum would not.
typedef struct moments {
    double min, max, mean;
    double squares; // sum of the squared deviations from the mean
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

// The moments (statistics) of a field: over all samples, over the first sample, and for images over
// each channel, because the transform `normalize` takes mean and std of each channel.
typedef struct sums {
    moments all, first, channel[TRI_CHECK_CHANNELS];
    int64_t first_not_finite;
} sums;

static bool is_image(const tri_data_field *field) { return !strcmp(field->name, "images"); }

static int channel_count(const tri_data_field *field) {
    bool has_columns = !strcmp(field->name, "inputs") && field->shape.rank == 1;
    if ((!is_image(field) && !has_columns) || field->shape.dims[0] == 1) return 0;
    return field->shape.dims[0] < TRI_CHECK_CHANNELS ? (int)field->shape.dims[0]
                                                     : TRI_CHECK_CHANNELS;
}

static void add_sample(sums *to, const tri_data_field *field, int64_t sample, bool is_first,
                       const void *data) {
    int64_t count = tri_shape_count(&field->shape), channels = channel_count(field);
    int64_t plane = channels ? count / field->shape.dims[0] : count, before = to->all.not_finite;
    const float *floats = data;
    const int64_t *numbers = data;
    for (int64_t i = 0; i < count; i++) {
        bool is_float = field->dtype == TRI_F32;
        if (!is_float && numbers[i] == TRI_IGNORED_LABEL) continue;
        double value = is_float ? (double)floats[i] : (double)numbers[i];
        add_value(&to->all, value);
        if (is_first) add_value(&to->first, value);
        if (channels && i / plane < channels) add_value(&to->channel[i / plane], value);
    }
    if (to->first_not_finite < 0 && to->all.not_finite > before) to->first_not_finite = sample;
}

static tri_data_range range_of(const moments *m) {
    double std = m->count ? sqrt(m->squares / (double)m->count) : 0;
    return (tri_data_range){m->min, m->max, m->mean, std};
}

static void report_field(const tri_dataset *dataset, int index, const sums *from,
                         tri_data_summary *out) {
    const tri_data_field *field = tri_dataset_field(dataset, index);
    *out = (tri_data_summary){
        .field = *field,
        .stored_dtype = tri_dataset_stored(dataset, index),
        .all = range_of(&from->all),
        .first = range_of(&from->first),
        .not_finite = from->all.not_finite,
        .first_not_finite = from->first_not_finite,
        .channels = channel_count(field),
    };
    out->is_divided_by_255 = out->stored_dtype == TRI_U8 && is_image(field);
    for (int i = 0; i < out->channels; i++) out->channel[i] = range_of(&from->channel[i]);
}

// Warns of images whose values look like bytes (from 0 to a maximum above 16 and at most 255) but
// have another type: only bytes are divided by 255, so the model would get values 255 times too
// large.
static void warn_of_large(tri_data_report *out) {
    for (int i = 0; i < out->field_count; i++) {
        const tri_data_summary *s = &out->fields[i];
        if (!is_image(&s->field) || s->is_divided_by_255 || s->all.min < 0 || s->all.max <= 16 ||
            s->all.max > 255)
            continue;
        snprintf(out->warnings[out->warning_count++], sizeof *out->warnings,
                 "images are %s up to %g, and the model gets them unchanged: only U8 is divided by "
                 "255; save them as uint8, or divide them",
                 tri_dtype_name(s->stored_dtype), s->all.max);
    }
}

static void report_classes(const int64_t *counts, int64_t classes, tri_data_report *out) {
    out->classes = classes;
    for (int64_t i = 0; i < classes; i++) {
        if (i < TRI_CHECK_CLASSES) out->histogram[i] = counts[i];
        if (i == 0 || counts[i] < out->min_class_samples) out->min_class_samples = counts[i];
        if (counts[i] > out->max_class_samples) out->max_class_samples = counts[i];
    }
}

typedef struct reading {
    tri_reader *reader;
    void *sample[TRI_MAX_DATA_FIELDS]; // by field: one sample
    sums *fields;                      // by field
    int64_t *classes;                  // by class: its number of samples; NULL: there are no labels
} reading;

static tri_status allocate(const tri_dataset *dataset, int labels, reading *out) {
    TRI_TRY(tri_reader_create(dataset, &out->reader));
    int count = tri_dataset_field_count(dataset);
    bool is_complete = (out->fields = calloc((size_t)count, sizeof *out->fields)) != NULL;
    for (int i = 0; i < count && is_complete; i++) {
        out->fields[i].first_not_finite = -1;
        out->sample[i] = malloc(tri_dataset_field(dataset, i)->size_bytes);
        is_complete = out->sample[i] != NULL;
    }
    if (labels >= 0)
        out->classes =
            calloc((size_t)tri_dataset_classes(dataset, "labels") + 1, sizeof *out->classes);
    if (!is_complete || (labels >= 0 && !out->classes))
        return TRI_FAIL(TRI_NO_MEMORY, "no memory to check the data");
    return TRI_OK;
}

static void free_reading(reading *buffers) {
    tri_reader_destroy(buffers->reader);
    for (int i = 0; i < TRI_MAX_DATA_FIELDS; i++) free(buffers->sample[i]);
    free(buffers->fields);
    free(buffers->classes);
}

static void count_classes(const tri_data_field *field, const int64_t *numbers, int64_t *classes) {
    for (int64_t i = 0; i < tri_shape_count(&field->shape); i++)
        if (numbers[i] >= 0) classes[numbers[i]]++;
}

// The damages so far.
typedef struct damage_list {
    tri_arena *arena;
    const tri_data_options *options;
    tri_data_report *report;
    tri_data_damage *last;
} damage_list;

// Whether the failure is due to one sample, so that the others are worth reading.
static bool is_damage(tri_status status) {
    return status == TRI_CORRUPT || status == TRI_BAD_INPUT || status == TRI_NOT_FOUND;
}

// Adds a sample that could not be read, with the error message.
static void add_damage(damage_list *list, int64_t sample, tri_status status) {
    tri_data_report *report = list->report;
    bool is_left_out = status == TRI_CORRUPT && sample != TRI_CHECK_NO_SAMPLE &&
                       list->options->on_error == TRI_DATA_SKIP;
    report->damaged++;
    if (is_left_out) report->left_out++;
    bool is_first_refused = !is_left_out && !report->refused;
    if (report->damaged > TRI_CHECK_DAMAGES && !is_first_refused) return;
    tri_data_damage *damage = TRI_NEW(list->arena, tri_data_damage);
    *damage = (tri_data_damage){.sample = sample,
                                .reason = tri_arena_printf(list->arena, "%s", tri_error_message())};
    if (is_first_refused) report->refused = damage;
    if (list->last)
        list->last->next = damage;
    else
        report->damages = damage;
    list->last = damage;
}

static tri_status read_all(const tri_dataset *dataset, int labels, const reading *buffers,
                           damage_list *damages) {
    tri_data_report *out = damages->report;
    out->samples = tri_dataset_samples(dataset);
    out->field_count = tri_dataset_field_count(dataset);
    for (int64_t sample = 0; sample < out->samples; sample++) {
        tri_status status = tri_reader_try(buffers->reader, sample, 0, buffers->sample);
        if (is_damage(status)) {
            add_damage(damages, sample, status);
            continue;
        }
        TRI_TRY(status);
        bool is_first = sample == out->damaged; // all before it are damaged
        for (int i = 0; i < out->field_count; i++)
            add_sample(&buffers->fields[i], tri_dataset_field(dataset, i), sample, is_first,
                       buffers->sample[i]);
        if (labels >= 0)
            count_classes(tri_dataset_field(dataset, labels), buffers->sample[labels],
                          buffers->classes);
    }
    for (int i = 0; i < out->field_count; i++)
        report_field(dataset, i, &buffers->fields[i], &out->fields[i]);
    if (labels >= 0) report_classes(buffers->classes, tri_dataset_classes(dataset, "labels"), out);
    if (tri_dataset_warning(dataset, out->warnings[0], sizeof out->warnings[0]))
        out->warning_count++;
    warn_of_large(out);
    return TRI_OK;
}

static tri_status check_opened(const tri_dataset *dataset, damage_list *damages) {
    int labels = tri_dataset_find(dataset, "labels");
    snprintf(damages->report->shapes, sizeof damages->report->shapes, "%s",
             tri_dataset_shapes(dataset, damages->arena));
    bool is_usual;
    const char *rest = tri_dataset_rest(dataset, &is_usual);
    if (rest) damages->report->not_used = tri_arena_strdup(damages->arena, rest);
    TRI_TRY(tri_dataset_verify(dataset));
    reading buffers = {0};
    tri_status status = allocate(dataset, labels, &buffers);
    if (status == TRI_OK) status = read_all(dataset, labels, &buffers, damages);
    free_reading(&buffers);
    return status;
}

tri_status tri_data_check(tri_arena *arena, const tri_data_options *options, tri_data_split split,
                          uint64_t seed, tri_data_report *out) {
    *out = (tri_data_report){0};
    damage_list damages = {.arena = arena, .options = options, .report = out};
    tri_dataset *dataset;
    tri_status status = tri_dataset_open(options, split, seed, &dataset);
    if (status == TRI_OK) status = check_opened(dataset, &damages);
    tri_dataset_close(dataset);
    if (status != TRI_CORRUPT) return status;
    add_damage(&damages, TRI_CHECK_NO_SAMPLE, status);
    return TRI_OK;
}
