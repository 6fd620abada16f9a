// `trireme bench data`: how fast the training data are loaded, by number of workers; with --formats
// also as other kinds of data, as which a part of them is written into a temporary folder.
#include "cli/cli.h"

#include "base/cores.h"
#include "base/os.h"
#include "base/quantity.h"
#include "data/bench.h"
#include "data/kind.h"
#include "data/target/target.h"
#include "recipe/batch.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_WORKERS = 8, MOST_FORMATS = 16 };

// Of --formats: how many samples are written, at most.
enum { PART_SAMPLES = 4096, PART_BYTES = 256 << 20 };

// A row of the table: the data as one kind.
typedef struct format_row {
    const char *name;
    const char *refusal; // why the data cannot be of this kind; NULL: they can
    tri_data_rate rates[MOST_WORKERS];
    int count;
} format_row;

typedef struct data_bench {
    tri_arena *arena;
    const tri_recipe *recipe;
    double seconds;
    bool json;
    int64_t workers[MOST_WORKERS]; // the columns; the last one is the recipe's number
    int columns;
} data_bench;

static void print_data_rate(const char *format, const tri_data_rate *r, bool json) {
    if (!json) {
        printf("workers %lld: %s samples/s, %s/s, %s a micro-batch\n", (long long)r->workers,
               tri_grouped(r->samples_per_s), tri_bytes_text(r->bytes_per_s),
               tri_duration_text(r->time_us * 1e-6));
        return;
    }
    tri_arena *arena = tri_arena_create(NULL, "rate");
    tri_tree *map = tri_tree_map(arena);
    if (format) tri_tree_put_string(arena, map, "format", format);
    tri_tree_put_int(arena, map, "workers", r->workers);
    tri_tree_put_digits(arena, map, "samples_per_s", r->samples_per_s, 6);
    tri_tree_put_digits(arena, map, "bytes_per_s", r->bytes_per_s, 6);
    tri_tree_put_digits(arena, map, "time_us", r->time_us, 6);
    printf("%s\n", tri_json_emit(arena, map));
    tri_arena_destroy(arena);
}

// Finds the fewest workers that load nearly as fast as the best number of them. None (0) is no
// answer: without workers the thread that computes loads, so that training waits however fast it
// loads.
static const tri_data_rate *find_enough(const tri_data_rate *rates, int count) {
    double best = 0;
    for (int i = 0; i < count; i++)
        if (rates[i].workers > 0) best = fmax(best, rates[i].samples_per_s);
    const tri_data_rate *found = NULL;
    for (int i = 0; i < count; i++)
        if (rates[i].workers > 0 && rates[i].samples_per_s >= 0.9 * best &&
            !(found && found->workers < rates[i].workers))
            found = &rates[i];
    return found;
}

// Says how many workers are enough, and what else would help if all cores read. The last of the
// rates is that of the recipe.
static void advise(const tri_data_rate *rates, int count) {
    const tri_data_rate *now = &rates[count - 1], *enough = find_enough(rates, count);
    double gain = enough->samples_per_s / now->samples_per_s;
    if (now->workers == 0)
        printf("data.workers=%lld loads while the model computes; with the recipe's 0 training "
               "waits %s for each micro-batch\n",
               (long long)enough->workers, tri_duration_text(now->time_us * 1e-6));
    else if (gain > 1.1)
        printf("data.workers=%lld loads %.1f times as fast as the recipe's %lld\n",
               (long long)enough->workers, gain, (long long)now->workers);
    else
        printf("data.workers=%lld is enough\n", (long long)enough->workers);
    if (enough->workers >= tri_cores())
        printf("it takes all cores: if training still waits, use fewer or cheaper transforms, or "
               "files that take less to decode, such as smaller images\n");
}

// Finds the columns: 0, 1, 2, 4, … workers, as many as there are cores or the recipe has, and then
// the recipe's number.
static void find_columns(data_bench *b) {
    const int64_t asked = b->recipe->data.workers, workers[] = {0, 1, 2, 4, 8, 16, 32};
    for (size_t i = 0; i < sizeof workers / sizeof *workers; i++)
        if (workers[i] < asked || (workers[i] > asked && workers[i] <= tri_cores()))
            b->workers[b->columns++] = workers[i];
    b->workers[b->columns++] = asked;
}

// Measures all columns of a row. `shows`: each is printed at once.
static tri_status measure(const data_bench *b, const tri_data_options *options, bool shows,
                          format_row *row) {
    tri_dataset *dataset;
    tri_sampler sampler;
    uint64_t seed = (uint64_t)b->recipe->seed;
    tri_batch_options batch = tri_recipe_batch_without_steps(b->recipe);
    TRI_TRY(tri_dataset_open(options, TRI_DATA_TRAIN, seed, &dataset));
    const tri_sampler_options how = {.samples = tri_dataset_samples(dataset),
                                     .global = batch.global,
                                     .micro = batch.micro,
                                     .keep_order = !options->shuffle,
                                     .seed = seed};
    tri_status status = tri_sampler_make(&how, &sampler);
    for (row->count = 0; row->count < b->columns && status == TRI_OK; row->count++) {
        tri_data_rate *rate = &row->rates[row->count];
        status = tri_data_bench(dataset, &sampler, b->workers[row->count], b->seconds, rate);
        if (status == TRI_OK && shows) print_data_rate(b->json ? row->name : NULL, rate, b->json);
    }
    tri_dataset_close(dataset);
    return status;
}

// How many samples are compared: as many as take a limited room. *images, if all images have one
// size, is that of an image.
static tri_status find_part(const data_bench *b, int64_t *most, tri_shape *images) {
    tri_dataset *dataset;
    size_t bytes = 1;
    TRI_TRY(tri_dataset_open_stored(&b->recipe->data, TRI_DATA_TRAIN, &dataset));
    *images = (tri_shape){0};
    for (int i = 0; i < dataset->field_count; i++) {
        const tri_stored_field *field = &dataset->fields[i];
        bytes += field->stored_bytes;
        if (!strcmp(field->field.name, "images") && field->stored_bytes > 0)
            *images = field->stored_shape;
    }
    *most = (int64_t)(PART_BYTES / bytes) + 1;
    if (*most > PART_SAMPLES) *most = PART_SAMPLES;
    if (*most > dataset->samples) *most = dataset->samples;
    tri_dataset_close(dataset);
    return TRI_OK;
}

// The options that read the files with what else the recipe says. Image files have no common size
// before they are decoded, so that a transform has to say that it is the one they had.
static tri_status options_of(const data_bench *b, const tri_tree *section, const tri_shape *images,
                             tri_data_options *out) {
    static const char *const kept[] = {"shuffle", "on_error", "transform", "mix", "extra_fields"};
    tri_tree *map = tri_tree_copy(b->arena, section);
    const tri_tree *all = tri_option_encode(b->arena, &tri_data_table, &b->recipe->data);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        const tri_tree *value = tri_tree_get(all, kept[i]);
        if (value) tri_tree_put(b->arena, map, kept[i], tri_tree_copy(b->arena, value));
    }
    const char *name = tri_tree_get(section, "name")->text;
    bool is_files = !strcmp(name, "imagefolder") || !strcmp(name, "webdataset");
    if (is_files && images->rank == 3) {
        tri_tree *list = tri_tree_list(b->arena), *old = tri_tree_get(map, "transform");
        tri_tree *resize = tri_tree_map(b->arena), *size = tri_tree_list(b->arena);
        tri_tree_append(b->arena, size, tri_tree_int(b->arena, images->dims[1]));
        tri_tree_append(b->arena, size, tri_tree_int(b->arena, images->dims[2]));
        tri_tree_put(b->arena, resize, "resize", size);
        tri_tree_append(b->arena, list, resize);
        for (int i = 0; old && i < old->count; i++)
            tri_tree_append(b->arena, list, tri_tree_copy(b->arena, old->items[i]));
        tri_tree_put(b->arena, map, "transform", list);
    }
    return tri_option_decode(b->arena, &tri_data_table, map, out);
}

static bool is_refusal(tri_status status) {
    return status == TRI_BAD_INPUT || status == TRI_UNSUPPORTED || status == TRI_NOT_FOUND;
}

// Writes a part of the data as another kind, measures it, and removes it.
static tri_status measure_format(const data_bench *b, const char *folder, int64_t most,
                                 const tri_shape *images, format_row *row) {
    tri_tree *section;
    tri_data_options options;
    const char *place = tri_arena_printf(b->arena, "%s/%s", folder, row->name);
    tri_status status =
        tri_data_convert_part(b->arena, &b->recipe->data, row->name, place, most, &section);
    if (status == TRI_OK) status = options_of(b, section, images, &options);
    if (status == TRI_OK) status = measure(b, &options, b->json, row);
    if (is_refusal(status)) {
        row->refusal = tri_arena_strdup(b->arena, tri_error_message());
        row->count = 0;
        status = TRI_OK;
    }
    tri_status removed = access(place, F_OK) == 0 ? tri_os_remove_tree(place) : TRI_OK;
    return status == TRI_OK ? removed : status;
}

static void print_refusal(const format_row *row, bool json) {
    if (!json) {
        printf("%s: left out: %s\n", row->name, row->refusal);
        return;
    }
    tri_arena *arena = tri_arena_create(NULL, "refusal");
    tri_tree *map = tri_tree_map(arena);
    tri_tree_put_string(arena, map, "format", row->name);
    tri_tree_put_string(arena, map, "refusal", row->refusal);
    printf("%s\n", tri_json_emit(arena, map));
    tri_arena_destroy(arena);
}

static void print_table(const data_bench *b, const format_row *rows, int count) {
    printf("%-14s", "workers");
    for (int k = 0; k < b->columns; k++) printf(" %20lld", (long long)b->workers[k]);
    printf("\n");
    for (int i = 0; i < count; i++) {
        if (rows[i].count == 0) continue;
        printf("%-14s", rows[i].name);
        for (int k = 0; k < rows[i].count; k++) {
            char cell[64];
            snprintf(cell, sizeof cell, "%s (%.0f MB/s)",
                     tri_grouped(rows[i].rates[k].samples_per_s),
                     rows[i].rates[k].bytes_per_s * 1e-6);
            printf(" %20s", cell);
        }
        printf("\n");
    }
    for (int i = 0; i < count; i++)
        if (rows[i].refusal) print_refusal(&rows[i], false);
}

// Says which kind is the fastest with the recipe's workers, and what would help besides.
static void advise_format(const format_row *rows, int count) {
    const format_row *now = &rows[0], *best = now;
    for (int i = 1; i < count; i++)
        if (rows[i].count > 0 && rows[i].rates[rows[i].count - 1].samples_per_s >
                                     best->rates[best->count - 1].samples_per_s)
            best = &rows[i];
    double gain =
        best->rates[best->count - 1].samples_per_s / now->rates[now->count - 1].samples_per_s;
    if (gain > 1.1)
        printf("%s loads %.1f times as fast as %s: trireme data convert RECIPE --to %s --out "
               "FOLDER\n",
               best->name, gain, now->name, best->name);
    else
        printf("no other kind loads faster than %s\n", now->name);
    advise(best->rates, best->count);
}

// Finds the kinds of a list such as "npy,lmdb". The first row is that of the recipe's own kind.
static tri_status read_formats(tri_arena *arena, const char *text, format_row *rows, int *count) {
    bool is_all = !strcmp(text, "all");
    const char *known[MOST_FORMATS];
    int known_count = 0;
    while (known_count < MOST_FORMATS && tri_target_name(known_count)) {
        known[known_count] = tri_target_name(known_count);
        known_count++;
    }
    for (int i = 0; is_all && i < known_count; i++)
        if (strcmp(known[i], rows[0].name) != 0) rows[(*count)++].name = known[i];
    for (const char *at = text; !is_all && at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        const char *name = tri_arena_printf(arena, "%.*s", (int)strcspn(at, ","), at);
        int found = 0;
        while (found < known_count && strcmp(known[found], name) != 0) found++;
        if (found == known_count || *count > MOST_FORMATS) {
            const char *near = tri_option_nearest(name, known, known_count);
            return TRI_FAIL(TRI_BAD_INPUT, "--formats: data cannot be written as '%s'%s%s%s", name,
                            near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
        }
        rows[(*count)++].name = known[found];
    }
    return TRI_OK;
}

static tri_status make_folder(tri_arena *arena, char **out) {
    const char *temporary = getenv("TMPDIR");
    *out = tri_arena_printf(arena, "%s/trireme-formats-XXXXXX",
                            temporary && *temporary ? temporary : "/tmp");
    return mkdtemp(*out) ? TRI_OK : tri_os_fail("make", *out);
}

static tri_status bench_formats(const data_bench *b, const char *formats) {
    format_row rows[MOST_FORMATS + 2] = {{.name = b->recipe->data.name}};
    int count = 1;
    int64_t most;
    tri_shape images;
    char *folder;
    tri_data_options part = b->recipe->data;
    TRI_TRY(read_formats(b->arena, formats, rows, &count));
    TRI_TRY(find_part(b, &most, &images));
    part.limit = most;
    part.val_fraction = 0;
    if (!b->json) printf("the first %s as:\n", tri_counted(most, "training sample"));
    TRI_TRY(measure(b, &part, b->json, &rows[0]));
    TRI_TRY(make_folder(b->arena, &folder));
    tri_status status = TRI_OK;
    for (int i = 1; i < count && status == TRI_OK; i++) {
        status = measure_format(b, folder, most, &images, &rows[i]);
        if (status == TRI_OK && rows[i].refusal && b->json) print_refusal(&rows[i], true);
    }
    tri_status removed = tri_os_remove_tree(folder);
    TRI_TRY(status == TRI_OK ? removed : status);
    if (b->json) return TRI_OK;
    print_table(b, rows, count);
    advise_format(rows, count);
    return TRI_OK;
}

tri_status cli_bench_data(tri_arena *arena, const tri_recipe *recipe, double seconds,
                          const char *formats, bool json) {
    data_bench b = {.arena = arena, .recipe = recipe, .seconds = seconds, .json = json};
    find_columns(&b);
    if (formats) return bench_formats(&b, formats);
    format_row row = {0};
    TRI_TRY(measure(&b, &recipe->data, true, &row));
    if (!json) advise(row.rates, row.count);
    return TRI_OK;
}
