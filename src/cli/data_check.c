// `trireme data check` and `trireme data stats`: read all samples. The first reports what a model
// gets and what is damaged, the second the numbers that the transform `normalize` and other
// settings need.
#include "base/quantity.h"
#include "cli/data_verbs.h"
#include "data/check.h"

#include <stdio.h>
#include <string.h>

// Significant digits: what a model gets is rounded to F32, whose sums are not.
enum { CHECK_DIGITS = 6, STATS_DIGITS = 12, SHOWN_CLASSES = 20, SHOWN_CHANNELS = 64 };

static tri_tree *range_tree(tri_arena *arena, const tri_data_range *r, int digits) {
    tri_tree *map = tri_tree_map(arena);
    tri_tree_put_digits(arena, map, "min", r->min, digits);
    tri_tree_put_digits(arena, map, "max", r->max, digits);
    tri_tree_put_digits(arena, map, "mean", r->mean, digits);
    return map;
}

static tri_tree *range_tree_with_std(tri_arena *arena, const tri_data_range *r, int digits) {
    tri_tree *map = range_tree(arena, r, digits);
    tri_tree_put_digits(arena, map, "std", r->std, digits);
    return map;
}

static tri_tree *field_tree(tri_arena *arena, const tri_data_summary *s, int digits) {
    tri_tree *map = tri_tree_map(arena), *shape = tri_tree_list(arena);
    tri_tree_put_string(arena, map, "name", s->field.name);
    tri_tree_put_string(arena, map, "dtype", tri_dtype_name(s->field.dtype));
    for (int i = 0; i < s->field.shape.rank; i++)
        tri_tree_append(arena, shape, tri_tree_int(arena, s->field.shape.dims[i]));
    tri_tree_put(arena, map, "shape", shape);
    const tri_tree *all = range_tree_with_std(arena, &s->stats.all, digits);
    for (int i = 0; i < all->count; i++)
        tri_tree_put(arena, map, all->items[i]->key, all->items[i]);
    tri_tree_put_int(arena, map, "not_finite", s->stats.not_finite);
    tri_tree_put_string(arena, map, "stored", tri_dtype_name(s->stored_dtype));
    tri_tree_put(arena, map, "by_255", tri_tree_bool(arena, s->is_divided_by_255));
    tri_tree_put(arena, map, "first", range_tree(arena, &s->stats.first, digits));
    tri_tree *channels = tri_tree_list(arena);
    for (int i = 0; i < s->stats.channels; i++)
        tri_tree_append(arena, channels, range_tree_with_std(arena, &s->stats.channel[i], digits));
    tri_tree_put(arena, map, "channels", channels);
    return map;
}

static tri_tree *damage_tree(tri_arena *arena, const tri_data_damage *d) {
    tri_tree *map = tri_tree_map(arena);
    if (d->sample != TRI_CHECK_NO_SAMPLE) tri_tree_put_int(arena, map, "sample", d->sample);
    tri_tree_put_string(arena, map, "reason", d->reason);
    return map;
}

static double mean_length(const tri_data_lengths *l) { return (double)l->sum / (double)l->count; }

static void put_lengths(tri_arena *arena, tri_tree *map, const char *key,
                        const tri_data_lengths *lengths, int digits) {
    if (lengths->count == 0) return;
    tri_tree *entry = tri_tree_map(arena);
    tri_tree_put_int(arena, entry, "count", lengths->count);
    tri_tree_put_int(arena, entry, "least", lengths->least);
    tri_tree_put_int(arena, entry, "most", lengths->most);
    tri_tree_put_digits(arena, entry, "mean", mean_length(lengths), digits);
    tri_tree_put(arena, map, key, entry);
}

static tri_tree *counts_tree(tri_arena *arena, const tri_data_report *r) {
    tri_tree *list = tri_tree_list(arena);
    for (int64_t i = 0; i < r->classes; i++)
        tri_tree_append(arena, list, tri_tree_int(arena, r->class_counts[i]));
    return list;
}

// `normalize`: the options of the transform that the statistics are for; NULL: none.
static void print_json(const char *split, const tri_data_report *r, tri_tree *normalize,
                       int digits) {
    tri_arena *arena = tri_arena_create(NULL, "report");
    tri_tree *map = tri_tree_map(arena);
    tri_tree *fields = tri_tree_list(arena), *warnings = tri_tree_list(arena);
    tri_tree_put_string(arena, map, "split", split);
    tri_tree_put_int(arena, map, "samples", r->samples);
    if (r->classes) {
        tri_tree_put_int(arena, map, "classes", r->classes);
        tri_tree_put_int(arena, map, "least", r->min_class_samples);
        tri_tree_put_int(arena, map, "most", r->max_class_samples);
    }
    for (int i = 0; i < r->field_count; i++)
        tri_tree_append(arena, fields, field_tree(arena, &r->fields[i], digits));
    for (int i = 0; i < r->warning_count; i++)
        tri_tree_append(arena, warnings, tri_tree_string(arena, r->warnings[i]));
    tri_tree_put(arena, map, "fields", fields);
    tri_tree_put_string(arena, map, "shapes", r->shapes);
    tri_tree_put(arena, map, "warnings", warnings);
    if (r->not_used) tri_tree_put_string(arena, map, "not_used", r->not_used);
    tri_tree *damages = tri_tree_list(arena);
    for (const tri_data_damage *d = r->damages; d; d = d->next)
        tri_tree_append(arena, damages, damage_tree(arena, d));
    put_lengths(arena, map, "lengths", &r->lengths, digits);
    put_lengths(arena, map, "documents", &r->documents, digits);
    if (r->classes) tri_tree_put(arena, map, "class_counts", counts_tree(arena, r));
    if (normalize) tri_tree_put(arena, map, "normalize", tri_tree_copy(arena, normalize));
    tri_tree_put_int(arena, map, "documents_left_out", r->documents_left_out);
    tri_tree_put_int(arena, map, "damaged", r->damaged);
    tri_tree_put_int(arena, map, "left_out", r->left_out);
    tri_tree_put(arena, map, "damages", damages);
    printf("%s\n", tri_json_emit(arena, map));
    tri_arena_destroy(arena);
}

static void print_field(const tri_data_summary *s) {
    char shape[128];
    printf("  %-10s %s %s, %.4g to %.4g, mean %.4g, std %.4g, %lld not finite\n", s->field.name,
           tri_dtype_name(s->field.dtype), tri_shape_text(&s->field.shape, shape, sizeof shape),
           s->stats.all.min, s->stats.all.max, s->stats.all.mean, s->stats.all.std,
           (long long)s->stats.not_finite);
    printf("             %s in the files%s\n", tri_dtype_name(s->stored_dtype),
           s->is_divided_by_255 ? ": bytes are divided by 255, then data.transform" : "");
    for (int i = 0; i < s->stats.channels && i < SHOWN_CHANNELS; i++)
        printf("             channel %d: %.4g to %.4g, mean %.4g, std %.4g\n", i,
               s->stats.channel[i].min, s->stats.channel[i].max, s->stats.channel[i].mean,
               s->stats.channel[i].std);
    if (s->field.shape.rank == 0)
        printf("             first sample: %.4g\n", s->stats.first.mean);
    else
        printf("             first sample: %.4g to %.4g, mean %.4g\n", s->stats.first.min,
               s->stats.first.max, s->stats.first.mean);
}

static void print_damages(const tri_data_report *r) {
    enum { MOST_NAMED = 20 };
    if (!r->damaged) return;
    printf("  damaged: %s", tri_counted(r->damaged, "sample"));
    if (r->left_out)
        printf(", of which training leaves out %lld (data.on_error)", (long long)r->left_out);
    printf("\n");
    int named = 0;
    for (const tri_data_damage *d = r->damages; d && named < MOST_NAMED; d = d->next, named++)
        if (d->sample == TRI_CHECK_NO_SAMPLE)
            printf("    %s\n", d->reason);
        else
            printf("    sample %lld: %s\n", (long long)d->sample, d->reason);
    if (r->damaged > named)
        printf("    %lld more; --json lists them\n", (long long)(r->damaged - named));
}

static void print_classes(const tri_data_report *r) {
    if (r->classes == 0) return;
    printf("  samples of each class:");
    for (int64_t i = 0; i < r->classes && i < SHOWN_CLASSES; i++)
        printf(" %lld", (long long)r->class_counts[i]);
    printf("%s\n", r->classes > SHOWN_CLASSES ? " ..." : "");
}

static void print_lengths(const char *what, const tri_data_lengths *l) {
    if (l->count > 0)
        printf("  %s: %s to %s, %.1f on average\n", what, tri_grouped((double)l->least),
               tri_counted(l->most, "token"), mean_length(l));
}

static void print_heading(const char *split, const tri_data_report *r) {
    printf("%s: %s", split, tri_counted(r->samples, "sample"));
    if (r->classes)
        printf(", %lld classes of %lld to %lld samples", (long long)r->classes,
               (long long)r->min_class_samples, (long long)r->max_class_samples);
    printf("\n");
}

// Prints what the model gets, after the transforms.
static void print_check(const char *split, const tri_data_report *r) {
    print_heading(split, r);
    for (int i = 0; i < r->field_count; i++) print_field(&r->fields[i]);
    print_classes(r);
    if (r->shapes[0]) printf("  data.shapes: %s\n", r->shapes);
    for (int i = 0; i < r->warning_count; i++) printf("  warning: %s\n", r->warnings[i]);
    if (r->not_used) printf("  not used: %s\n", r->not_used);
    print_damages(r);
}

static void print_range(const char *name, const char *shape, const tri_data_range *r) {
    printf("  %-12s %-16s %.6g to %.6g, mean %.7g, std %.7g\n", name, shape, r->min, r->max,
           r->mean, r->std);
}

static void print_stats(const char *split, const tri_data_report *r) {
    print_heading(split, r);
    for (int i = 0; i < r->field_count; i++) {
        char shape[128], channel[32];
        const tri_data_summary *s = &r->fields[i];
        print_range(s->field.name, tri_shape_text(&s->field.shape, shape, sizeof shape),
                    &s->stats.all);
        for (int k = 0; k < s->stats.channels && k < SHOWN_CHANNELS; k++) {
            snprintf(channel, sizeof channel, "channel %d", k);
            print_range("", channel, &s->stats.channel[k]);
        }
        if (s->stats.channels > SHOWN_CHANNELS) printf("  ... --json has all channels\n");
    }
    print_classes(r);
    print_lengths("text of a sample", &r->lengths);
    print_lengths(tri_counted(r->documents.count, "document"), &r->documents);
    if (r->documents_left_out > 0)
        printf("  left out: %s\n", tri_counted(r->documents_left_out, "damaged document"));
    print_damages(r);
}

// Fails if a run would end at a damaged sample. Both functions run after all splits are printed,
// so that the report is complete.
static tri_status judge_damage(const char *split, const tri_data_report *r) {
    if (!r->refused) return TRI_OK;
    if (r->refused->sample == TRI_CHECK_NO_SAMPLE)
        return TRI_FAIL(TRI_CORRUPT, "%s data: %s", split, r->refused->reason);
    char others[64] = "";
    if (r->damaged - r->left_out > 1)
        snprintf(others, sizeof others, ", and %s more",
                 tri_counted(r->damaged - r->left_out - 1, "sample"));
    return TRI_FAIL(TRI_CORRUPT, "%s data: sample %lld%s: %s", split, (long long)r->refused->sample,
                    others, r->refused->reason);
}

// Fails if there are values from which no model can learn.
static tri_status judge_values(const char *split, const tri_data_report *r) {
    for (int i = 0; i < r->field_count; i++)
        if (r->fields[i].stats.not_finite > 0)
            return TRI_FAIL(TRI_NOT_FINITE,
                            "%s data: '%s' has %lld values that are NaN or infinite, the first in "
                            "sample %lld",
                            split, r->fields[i].field.name,
                            (long long)r->fields[i].stats.not_finite,
                            (long long)r->fields[i].stats.first_not_finite);
    return TRI_OK;
}

// Whether an entry of data.transform is `normalize`.
static bool is_named(const tri_tree *entry, const char *wanted) {
    bool is_map = entry->kind == TRI_TREE_MAP && entry->count > 0;
    const char *name = is_map ? entry->items[0]->key : entry->text;
    return name && !strcmp(name, wanted);
}

static bool is_normalize(const tri_tree *entry) { return is_named(entry, "normalize"); }

static bool is_mixing(const tri_tree *entry) {
    return is_named(entry, "mixup") || is_named(entry, "cutmix");
}

// The transforms, in which `entry` takes the place of `normalize` or is the last; NULL: without
// both, and without what mixes samples.
static const tri_tree *with_normalize(tri_arena *arena, const tri_tree *transforms,
                                      tri_tree *entry) {
    tri_tree *list = tri_tree_list(arena);
    bool keeps_mixing = entry != NULL;
    for (int i = 0; transforms->kind == TRI_TREE_LIST && i < transforms->count; i++) {
        const tri_tree *item = transforms->items[i];
        if (!is_normalize(item) && (keeps_mixing || !is_mixing(item)))
            tri_tree_append(arena, list, tri_tree_copy(arena, item));
        if (is_normalize(item) && entry) {
            tri_tree_append(arena, list, entry);
            entry = NULL;
        }
    }
    if (entry) tri_tree_append(arena, list, entry);
    return list;
}

// The options of `normalize` that give the field that it takes a mean of 0 and a deviation of 1.
// NULL: it takes none of the fields.
static tri_tree *normalize_options(tri_arena *arena, const tri_data_report *r) {
    enum { PASTED_DIGITS = 7 };
    const tri_data_summary *found = NULL;
    for (int i = 0; i < r->field_count; i++) {
        const tri_data_summary *s = &r->fields[i];
        bool is_columns = !strcmp(s->field.name, "inputs") && s->field.shape.rank == 1 &&
                          s->stored_dtype != TRI_U8;
        if (!strcmp(s->field.name, "images") || (is_columns && !found)) found = s;
    }
    if (!found || found->field.dtype != TRI_F32) return NULL;
    int count = found->stats.channels ? found->stats.channels : 1;
    if (count < found->field.shape.dims[0]) return NULL; // more than there are statistics of
    tri_tree *map = tri_tree_map(arena), *means = tri_tree_list(arena),
             *stds = tri_tree_list(arena);
    for (int i = 0; i < count; i++) {
        const tri_data_range *range =
            found->stats.channels ? &found->stats.channel[i] : &found->stats.all;
        double std = range->std > 0 ? range->std : 1; // a constant becomes 0
        tri_tree_append(arena, means, tri_tree_digits(arena, range->mean, PASTED_DIGITS));
        tri_tree_append(arena, stds, tri_tree_digits(arena, std, PASTED_DIGITS));
    }
    tri_tree_put(arena, map, "mean", means);
    tri_tree_put(arena, map, "std", stds);
    return map;
}

static void print_transform(tri_arena *arena, const tri_tree *transforms, tri_tree *normalize) {
    tri_tree *entry = tri_tree_map(arena), *data = tri_tree_map(arena);
    tri_tree *section = tri_tree_map(arena);
    tri_tree_put(arena, entry, "normalize", normalize);
    tri_tree_put(arena, section, "transform",
                 tri_tree_copy(arena, with_normalize(arena, transforms, entry)));
    tri_tree_put(arena, data, "data", section);
    printf("%s", tri_yaml_emit(arena, data));
}

typedef struct reading {
    tri_arena *arena;
    const tri_data_options *options;
    uint64_t seed;
    bool is_json, is_stats;
    const tri_tree *transforms; // of the recipe
    tri_data_report *reports;   // by split
} reading;

static tri_status read_split(const reading *r, tri_data_split split) {
    tri_data_report *report = &r->reports[split];
    const char *name = tri_data_split_key(split);
    if (!tri_data_has(r->options, split)) return TRI_OK;
    TRI_TRY(tri_data_check(r->arena, r->options, split, r->seed, report));
    bool is_normalized =
        r->is_stats && split == TRI_DATA_TRAIN && report->damaged < report->samples;
    tri_tree *normalize = is_normalized ? normalize_options(r->arena, report) : NULL;
    if (r->is_json)
        print_json(name, report, normalize, r->is_stats ? STATS_DIGITS : CHECK_DIGITS);
    else
        (r->is_stats ? print_stats : print_check)(name, report);
    if (normalize && !r->is_json) print_transform(r->arena, r->transforms, normalize);
    return TRI_OK;
}

// Reads all splits, or one of them; then fails if they are damaged.
static tri_status read_splits(reading *r, int only) {
    r->reports = TRI_NEW_ARRAY(r->arena, tri_data_report, TRI_DATA_SPLITS);
    for (int i = 0; i < TRI_DATA_SPLITS; i++)
        if (only < 0 || only == i) TRI_TRY(read_split(r, (tri_data_split)i));
    for (int i = 0; i < TRI_DATA_SPLITS; i++)
        TRI_TRY(judge_damage(tri_data_split_key((tri_data_split)i), &r->reports[i]));
    for (int i = 0; i < TRI_DATA_SPLITS; i++)
        TRI_TRY(judge_values(tri_data_split_key((tri_data_split)i), &r->reports[i]));
    return TRI_OK;
}

tri_status cli_data_check(const cli_arguments *a, const char *path, const tri_recipe *recipe) {
    reading r = {.arena = tri_arena_create(NULL, "check"),
                 .options = &recipe->data,
                 .seed = (uint64_t)recipe->seed,
                 .is_json = cli_has(a, "json")};
    tri_status status = read_splits(&r, -1);
    tri_arena_destroy(r.arena);
    return status;
}

tri_status cli_data_stats(const cli_arguments *a, const char *path, const tri_recipe *recipe) {
    tri_data_split only = TRI_DATA_SPLITS;
    tri_data_options options = recipe->data; // what `normalize` gets, and labels as numbers
    if (cli_has(a, "split")) TRI_TRY(cli_data_split(a, &only));
    if (only != TRI_DATA_SPLITS && !tri_data_has(&options, only))
        return TRI_FAIL(TRI_BAD_INPUT, "--split %s: the recipe has no such data",
                        tri_data_split_key(only));
    reading r = {.arena = tri_arena_create(NULL, "stats"),
                 .options = &options,
                 .seed = (uint64_t)recipe->seed,
                 .is_json = cli_has(a, "json"),
                 .is_stats = true,
                 .transforms = recipe->data.transform};
    options.transform = with_normalize(r.arena, r.transforms, NULL);
    tri_status status = read_splits(&r, only == TRI_DATA_SPLITS ? -1 : (int)only);
    tri_arena_destroy(r.arena);
    return status;
}
