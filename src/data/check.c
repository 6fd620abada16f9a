// `trireme data check`: reads a whole data set, computes statistics of each field, and warns of
// likely mistakes, such as images of bytes that are stored in another type.
#include "data/check.h"

#include "data/repeated.h"

#include <stdio.h>
#include <string.h>

static bool is_image(const tri_data_field *field) { return !strcmp(field->name, "images"); }

static void report_field(const tri_dataset *dataset, int index, const tri_field_stats *stats,
                         tri_data_summary *out) {
    *out = (tri_data_summary){.field = *tri_dataset_field(dataset, index),
                              .stored_dtype = tri_dataset_stored(dataset, index),
                              .stats = *stats};
    out->is_divided_by_255 = out->stored_dtype == TRI_U8 && is_image(&out->field);
}

// Warns of images whose values look like bytes (from 0 to a maximum above 16 and at most 255) but
// have another type: only bytes are divided by 255, so the model would get values 255 times too
// large.
static void warn_of_large(tri_data_report *out) {
    for (int i = 0; i < out->field_count; i++) {
        const tri_data_summary *s = &out->fields[i];
        if (!is_image(&s->field) || s->is_divided_by_255 || s->stats.all.min < 0 ||
            s->stats.all.max <= 16 || s->stats.all.max > 255)
            continue;
        snprintf(out->warnings[out->warning_count++], sizeof *out->warnings,
                 "images are %s up to %g, and the model gets them unchanged: only U8 is divided by "
                 "255; save them as uint8, or divide them",
                 tri_dtype_name(s->stored_dtype), s->stats.all.max);
    }
}

static void report_classes(const int64_t *counts, int64_t classes, tri_data_report *out) {
    out->classes = classes;
    out->class_counts = counts;
    for (int64_t i = 0; i < classes; i++) {
        if (i == 0 || counts[i] < out->min_class_samples) out->min_class_samples = counts[i];
        if (counts[i] > out->max_class_samples) out->max_class_samples = counts[i];
    }
}

// The damages so far.
typedef struct damage_list {
    tri_arena *arena;
    const tri_data_options *options;
    tri_data_report *report;
    tri_data_damage *last;
} damage_list;

// Adds a sample that could not be read, with the error message.
static void add_damage(void *context, int64_t sample, tri_status status, const char *message) {
    damage_list *list = context;
    tri_data_report *report = list->report;
    bool is_left_out = status == TRI_CORRUPT && sample != TRI_CHECK_NO_SAMPLE &&
                       list->options->on_error == TRI_DATA_SKIP;
    report->damaged++;
    if (is_left_out) report->left_out++;
    bool is_first_refused = !is_left_out && !report->refused;
    if (report->damaged > TRI_CHECK_DAMAGES && !is_first_refused) return;
    tri_data_damage *damage = TRI_NEW(list->arena, tri_data_damage);
    *damage = (tri_data_damage){.sample = sample, .reason = tri_arena_strdup(list->arena, message)};
    if (is_first_refused) report->refused = damage;
    if (list->last)
        list->last->next = damage;
    else
        report->damages = damage;
    list->last = damage;
}

static tri_status read_all(const tri_dataset *dataset, const char *split, damage_list *damages) {
    tri_data_report *out = damages->report;
    tri_data_stats stats;
    out->samples = tri_dataset_samples(dataset);
    out->field_count = tri_dataset_field_count(dataset);
    TRI_TRY(tri_data_stats_read(damages->arena, dataset, split, damages->options->workers,
                                add_damage, damages, &stats));
    for (int i = 0; i < out->field_count; i++)
        report_field(dataset, i, &stats.fields[i], &out->fields[i]);
    if (stats.class_counts)
        report_classes(stats.class_counts, tri_dataset_classes(dataset, "labels"), out);
    out->lengths = stats.lengths;
    out->documents = tri_dataset_documents(dataset);
    out->documents_left_out = tri_dataset_documents_left_out(dataset);
    if (tri_dataset_warning(dataset, out->warnings[0], sizeof out->warnings[0]))
        out->warning_count++;
    warn_of_large(out);
    const char *found[] = {tri_dataset_find_repeated(damages->arena, &dataset, 1),
                           tri_dataset_doubt(dataset)};
    for (size_t i = 0; i < sizeof found / sizeof *found; i++)
        if (found[i] && out->warning_count < TRI_CHECK_WARNINGS)
            snprintf(out->warnings[out->warning_count++], sizeof *out->warnings, "%s", found[i]);
    return TRI_OK;
}

static tri_status check_opened(const tri_dataset *dataset, const char *split,
                               damage_list *damages) {
    snprintf(damages->report->shapes, sizeof damages->report->shapes, "%s",
             tri_dataset_shapes(dataset, damages->arena));
    bool is_usual;
    const char *rest = tri_dataset_rest(dataset, &is_usual);
    if (rest) damages->report->not_used = tri_arena_strdup(damages->arena, rest);
    TRI_TRY(tri_dataset_verify(dataset));
    return read_all(dataset, split, damages);
}

tri_status tri_data_check(tri_arena *arena, const tri_data_options *options, tri_data_split split,
                          uint64_t seed, tri_data_report *out) {
    *out = (tri_data_report){0};
    damage_list damages = {.arena = arena, .options = options, .report = out};
    tri_dataset *dataset;
    tri_status status = tri_dataset_open(options, split, seed, &dataset);
    if (status == TRI_OK) status = check_opened(dataset, tri_data_split_key(split), &damages);
    tri_dataset_close(dataset);
    if (status != TRI_CORRUPT) return status;
    add_damage(&damages, TRI_CHECK_NO_SAMPLE, status, tri_error_message());
    return TRI_OK;
}
