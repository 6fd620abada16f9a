// `trireme data convert`: reads the samples of all splits as they are stored, and writes them as
// another kind of data. DIR/.convert.json says how far a conversion is, until it is complete.
#include "base/log.h"
#include "base/os.h"
#include "base/quantity.h"
#include "data/kind.h"
#include "data/progress.h"
#include "data/target/target.h"

#include <dirent.h>
#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NS_PER_MS = 1000000, MARK_MS = 500, HASH_DIGITS = 64, HASHED_SAMPLES = 8 };

static const tri_target_kind *const kinds[] = {
#define X(word) &tri_target_##word,
    TRI_TARGETS(X)
#undef X
};

// One split: what is read and what is written.
typedef struct split {
    tri_dataset *dataset; // NULL: the data have no such split
    void *worker;
    char *stored[TRI_MAX_DATA_FIELDS]; // by field: room for one sample as it is stored
    char *made;                        // the image file that was made of the last sample
    tri_target target;
    tri_target_mark mark;
    int64_t left_out;
    const char *rest; // what the files have and no sample uses; NULL: nothing
} split;

typedef struct conversion {
    tri_arena *arena;
    const tri_data_options *options;
    const tri_data_options *given; // the recipe's; options has no limits
    const tri_target_kind *kind;
    const char *folder, *progress_path, *source;
    int64_t most; // so many training samples, and nothing else; 0: all samples of all splits
    split splits[TRI_DATA_SPLITS];
    int64_t marked_ns;
} conversion;

static const tri_target_kind *find_kind(const char *name) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i]->name, name)) return kinds[i];
    return NULL;
}

// Kinds that can be read and not be written, and why.
static const struct {
    const char *name, *why;
} no_targets[] = {
    {"jsonl", "it has texts, of which samples are the tokens: --to tokens keeps these"},
    {"cifar100", "it has a superclass for each image, which no other kind has"},
    {"mixture", "it has no files of its own: convert each of its sources"},
    {"synthetic", "it has no files"},
};

static tri_status fail_kind(tri_arena *arena, const char *name) {
    for (size_t i = 0; i < sizeof no_targets / sizeof *no_targets; i++)
        if (!strcmp(no_targets[i].name, name))
            return TRI_FAIL(TRI_BAD_INPUT, "--to %s: %s", name, no_targets[i].why);
    char *all = tri_arena_strdup(arena, "");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        all = tri_arena_printf(arena, "%s%s%s", all, i ? ", " : "", kinds[i]->name);
    return TRI_FAIL(TRI_BAD_INPUT, "--to %s: has to be one of: %s", name, all);
}

// Gives a sample the image file that it was read from. Sources of a mixture that have no such
// files, unlike others, get one.
static tri_status take_file(split *s, const tri_sample_value *read, tri_target_value *value) {
    value->encoded = read->encoded;
    value->encoded_bytes = read->encoded_bytes;
    if (read->encoded) return TRI_OK;
    free(s->made);
    s->made = NULL;
    TRI_TRY(tri_target_make_file(&read->image, &s->made, &value->encoded_bytes));
    value->encoded = s->made;
    return TRI_OK;
}

// Reads a sample. Images that are files are decoded, which finds damage, and keep their bytes.
static tri_status read_sample(const conversion *c, split *s, int64_t sample,
                              tri_target_value *values) {
    tri_sample_value read[TRI_MAX_DATA_FIELDS] = {0};
    for (int i = 0; i < s->target.field_count; i++) read[i].buffer = s->stored[i];
    TRI_TRY(tri_dataset_read(s->dataset, s->worker, sample, read));
    for (int i = 0; i < s->target.field_count; i++) {
        tri_target_field *field = &s->target.fields[i];
        values[i] = (tri_target_value){.data = read[i].data};
        if (!field->is_encoded) continue;
        if (c->kind->keeps_encoded) {
            TRI_TRY(take_file(s, &read[i], &values[i]));
            continue;
        }
        const tri_image *image = &read[i].image;
        if (!s->stored[i]) { // of the first sample: its shape becomes that of all
            field->shape = tri_shape_of(image->channels, image->height, image->width);
            field->bytes = (size_t)tri_shape_count(&field->shape);
            s->stored[i] = malloc(field->bytes);
            if (!s->stored[i]) return TRI_FAIL(TRI_NO_MEMORY, "no memory for an image");
        }
        if (image->height != field->shape.dims[1] || image->width != field->shape.dims[2])
            return TRI_FAIL(TRI_BAD_INPUT,
                            "--to %s: the images differ in size, sample %lld from those before it: "
                            "webdataset, imagefolder and lmdb keep image files as they are",
                            c->kind->name, (long long)sample);
        tri_image_read(image, s->stored[i]);
        values[i].data = s->stored[i];
    }
    return TRI_OK;
}

static tri_status open_split(conversion *c, int index) {
    split *s = &c->splits[index];
    if (!tri_data_has(c->options, (tri_data_split)index)) return TRI_OK;
    if (c->most > 0 && index != TRI_DATA_TRAIN) return TRI_OK;
    TRI_TRY(tri_dataset_open_stored(c->options, (tri_data_split)index, &s->dataset));
    tri_dataset *dataset = s->dataset;
    if (dataset->kind->worker_create) TRI_TRY(dataset->kind->worker_create(dataset, &s->worker));
    s->target = (tri_target){
        .arena = c->arena,
        .folder = c->folder,
        .split = tri_data_split_key((tri_data_split)index),
        .samples = c->most > 0 && c->most < dataset->samples ? c->most : dataset->samples,
        .classes = tri_dataset_classes(dataset, "labels"),
        .tokens = tri_dataset_classes(dataset, "input_ids"),
        .field_count = dataset->field_count};
    if (dataset->facts.rest) s->rest = tri_arena_strdup(c->arena, dataset->facts.rest);
    bool is_encoded = false;
    for (int i = 0; i < dataset->field_count; i++) {
        const tri_stored_field *stored = &dataset->fields[i];
        s->target.fields[i] = (tri_target_field){.name = stored->field.name,
                                                 .dtype = stored->stored_dtype,
                                                 .shape = stored->stored_shape,
                                                 .bytes = stored->stored_bytes,
                                                 .is_encoded = stored->stored_bytes == 0};
        is_encoded |= s->target.fields[i].is_encoded;
        if (s->target.fields[i].is_encoded) continue;
        s->stored[i] = malloc(stored->stored_bytes);
        if (!s->stored[i]) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a sample");
    }
    tri_target_value values[TRI_MAX_DATA_FIELDS];
    if (is_encoded && !c->kind->keeps_encoded) TRI_TRY(read_sample(c, s, 0, values));
    return c->kind->check(&s->target);
}

static tri_status is_empty(const char *folder, bool *out) {
    DIR *list = opendir(folder);
    *out = true;
    if (!list) return errno == ENOENT ? TRI_OK : tri_os_fail("open", folder);
    for (struct dirent *entry; *out && (entry = readdir(list));)
        *out = !strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..");
    closedir(list);
    return TRI_OK;
}

static void add_sample(EVP_MD_CTX *hash, const split *s, const tri_target_value *values) {
    for (int i = 0; i < s->target.field_count; i++) {
        const tri_target_value *value = &values[i];
        size_t bytes = value->encoded ? value->encoded_bytes : s->target.fields[i].bytes;
        TRI_ASSERT(EVP_DigestUpdate(hash, value->encoded ? value->encoded : value->data, bytes));
    }
}

// Tells by some of the samples that are converted, the first and the last among them, and by the
// number of all, whether the data are still the same. A damaged sample has no bytes.
static tri_status hash_converted(const conversion *c, split *s, char out[HASH_DIGITS + 1]) {
    uint8_t digest[HASH_DIGITS / 2];
    int64_t converted = s->mark.samples;
    int64_t looks = converted < HASHED_SAMPLES ? converted : HASHED_SAMPLES;
    EVP_MD_CTX *hash = EVP_MD_CTX_new();
    tri_status status = TRI_OK;
    TRI_ASSERT(hash && EVP_DigestInit_ex(hash, EVP_sha256(), NULL));
    TRI_ASSERT(EVP_DigestUpdate(hash, &s->target.samples, sizeof s->target.samples));
    for (int64_t i = 0; i < looks && status == TRI_OK; i++) {
        tri_target_value values[TRI_MAX_DATA_FIELDS];
        int64_t sample = looks > 1 ? (converted - 1) * i / (looks - 1) : 0;
        status = read_sample(c, s, sample, values);
        if (status == TRI_OK) add_sample(hash, s, values);
        if (status == TRI_CORRUPT) status = TRI_OK;
    }
    TRI_ASSERT(EVP_DigestFinal_ex(hash, digest, NULL));
    EVP_MD_CTX_free(hash);
    for (int i = 0; i < HASH_DIGITS / 2; i++) snprintf(out + 2 * i, 3, "%02x", digest[i]);
    return status;
}

static tri_status save_marks(conversion *c, bool is_synced) {
    char hashes[TRI_DATA_SPLITS][HASH_DIGITS + 1] = {""};
    for (int i = 0; i < TRI_DATA_SPLITS; i++)
        if (c->splits[i].dataset) TRI_TRY(hash_converted(c, &c->splits[i], hashes[i]));
    tri_arena *arena = tri_arena_create(NULL, "marks");
    tri_tree *map = tri_tree_map(arena);
    tri_tree_put_string(arena, map, "source", c->source);
    for (int i = 0; i < TRI_DATA_SPLITS; i++) {
        tri_tree *mark = tri_tree_list(arena);
        tri_tree_append(arena, mark, tri_tree_int(arena, c->splits[i].mark.samples));
        tri_tree_append(arena, mark, tri_tree_int(arena, c->splits[i].mark.bytes));
        tri_tree_append(arena, mark, tri_tree_string(arena, hashes[i]));
        tri_tree_append(arena, mark, tri_tree_bool(arena, c->splits[i].mark.is_complete));
        tri_tree_put(arena, map, tri_data_split_key((tri_data_split)i), mark);
    }
    const char *text = tri_json_emit(arena, map);
    tri_status (*replace)(const char *, const void *, size_t) =
        is_synced ? tri_os_replace_file : tri_os_replace_fleeting;
    tri_status status = replace(c->progress_path, text, strlen(text));
    tri_arena_destroy(arena);
    return status;
}

static tri_status fail_other_data(const conversion *c) {
    return TRI_FAIL(
        TRI_BAD_INPUT,
        "%s: has an unfinished conversion of other data, or to another kind: remove the "
        "folder, or name another one",
        c->folder);
}

// Reads how far an earlier conversion came.
static tri_status load_marks(conversion *c) {
    tri_tree *map;
    TRI_TRY(tri_json_read_file(c->arena, c->progress_path, &map));
    const tri_tree *source = tri_tree_get(map, "source");
    if (!source || source->kind != TRI_TREE_SCALAR || strcmp(source->text, c->source) != 0)
        return fail_other_data(c);
    for (int i = 0; i < TRI_DATA_SPLITS; i++) {
        const tri_tree *mark = tri_tree_get(map, tri_data_split_key((tri_data_split)i));
        tri_target_mark *out = &c->splits[i].mark;
        bool is_good = mark && mark->kind == TRI_TREE_LIST && mark->count == 4 &&
                       mark->items[2]->kind == TRI_TREE_SCALAR &&
                       tri_tree_to_int(mark->items[0], &out->samples) &&
                       tri_tree_to_int(mark->items[1], &out->bytes) &&
                       tri_tree_to_bool(mark->items[3], &out->is_complete) && out->samples >= 0 &&
                       out->samples <= c->splits[i].target.samples && out->bytes >= 0;
        if (!is_good) return TRI_FAIL(TRI_BAD_INPUT, "%s: is damaged", c->progress_path);
        char hash[HASH_DIGITS + 1] = "";
        if (c->splits[i].dataset) TRI_TRY(hash_converted(c, &c->splits[i], hash));
        if (strcmp(hash, mark->items[2]->text) != 0) return fail_other_data(c);
    }
    return TRI_OK;
}

// Removes the temporary files of a conversion that was killed before it could rename them.
static void remove_temporaries(const conversion *c) {
    char path[PATH_MAX];
    DIR *list = opendir(c->folder);
    for (struct dirent *entry; list && (entry = readdir(list));)
        if (tri_os_is_temporary(entry->d_name) &&
            snprintf(path, sizeof path, "%s/%s", c->folder, entry->d_name) < (int)sizeof path)
            tri_os.unlink(path);
    if (list) closedir(list);
}

static tri_status prepare_folder(conversion *c) {
    bool is_begun, is_free;
    TRI_TRY(tri_os_exists(c->progress_path, &is_begun));
    if (is_begun) {
        TRI_TRY(load_marks(c));
        remove_temporaries(c);
        return TRI_OK;
    }
    TRI_TRY(is_empty(c->folder, &is_free));
    if (!is_free) return TRI_FAIL(TRI_BAD_INPUT, "%s: is not empty: name a new folder", c->folder);
    TRI_TRY(tri_os_make_folders(c->folder));
    return save_marks(c, false);
}

static tri_status mark(conversion *c, split *s, int64_t done) {
    int64_t before = s->mark.samples;
    TRI_TRY(c->kind->sync(&s->target, done, &s->mark));
    c->marked_ns = tri_os.monotonic_ns();
    return s->mark.samples > before ? save_marks(c, false) : TRI_OK;
}

// Writes one sample, unless it is damaged and may be left out.
static tri_status convert_sample(conversion *c, split *s, int64_t sample) {
    tri_target_value values[TRI_MAX_DATA_FIELDS];
    tri_status status = read_sample(c, s, sample, values);
    bool skips = c->options->on_error == TRI_DATA_SKIP && c->kind->may_leave_out;
    if (status != TRI_CORRUPT || !skips)
        return status == TRI_OK ? c->kind->put(&s->target, sample, values) : status;
    tri_log_line(TRI_LOG_WARNING, "%s: left out", tri_error_message());
    s->left_out++;
    return TRI_OK;
}

static tri_status write_split(conversion *c, split *s) {
    TRI_TRY(c->kind->begin(&s->target, &s->mark));
    tri_data_progress progress =
        tri_data_progress_begin(s->target.split, s->target.samples, c->most > 0);
    for (int64_t i = s->mark.samples; i < s->target.samples; i++) {
        TRI_TRY(convert_sample(c, s, i));
        bool is_due = tri_os.monotonic_ns() - c->marked_ns > (int64_t)MARK_MS * NS_PER_MS;
        if (is_due || c->kind->marks_at(i + 1)) TRI_TRY(mark(c, s, i + 1));
        tri_data_progress_show(&progress, i + 1);
    }
    TRI_TRY(c->kind->end(&s->target));
    s->mark.samples = s->target.samples;
    s->mark.is_complete = true;
    return save_marks(c, true);
}

// Takes TRI_TARGET_PART off the names of all files, or of those that a killed conversion left.
static tri_status name_files(const conversion *c) {
    char from[PATH_MAX], to[PATH_MAX];
    tri_status status = TRI_OK;
    DIR *list = opendir(c->folder);
    if (!list) return tri_os_fail("open", c->folder);
    for (struct dirent *entry; status == TRI_OK && (entry = readdir(list));) {
        int length = (int)strlen(entry->d_name) - (int)strlen(TRI_TARGET_PART);
        if (length <= 0 || strcmp(entry->d_name + length, TRI_TARGET_PART) != 0) continue;
        snprintf(from, sizeof from, "%s/%s", c->folder, entry->d_name);
        snprintf(to, sizeof to, "%s/%.*s", c->folder, length, entry->d_name);
        if (tri_os.rename(from, to) < 0) status = tri_os_fail("rename", from);
    }
    closedir(list);
    return status == TRI_OK ? tri_os_sync_folder(c->folder) : status;
}

static tri_status write_all(conversion *c) {
    for (int i = 0; i < TRI_DATA_SPLITS; i++) {
        split *s = &c->splits[i];
        if (!s->dataset || s->mark.is_complete) continue;
        tri_status status = write_split(c, s);
        if (s->target.state) c->kind->close(&s->target);
        TRI_TRY(status);
    }
    TRI_TRY(name_files(c));
    return tri_os.unlink(c->progress_path) == 0 ? TRI_OK : tri_os_fail("remove", c->progress_path);
}

static void tell_left_out(const conversion *c) {
    for (int i = 0; i < TRI_DATA_SPLITS; i++) {
        const split *s = &c->splits[i];
        const char *name = tri_data_split_key((tri_data_split)i);
        if (s->left_out > 0)
            tri_log_line(TRI_LOG_WARNING, "%s: %s left out", name,
                         tri_counted(s->left_out, "damaged sample"));
        // Whatever reads the copy later cannot see what it lacks.
        if (s->rest) tri_log_line(TRI_LOG_WARNING, "%s: not converted: %s", name, s->rest);
    }
}

static bool is_default(const tri_option *row, const tri_tree *value, const char *text) {
    double number;
    if (!row->default_yaml) return false;
    if (tri_tree_to_double(value, &number)) return strtod(row->default_yaml, NULL) == number;
    return !strcmp(text, row->default_yaml);
}

// The lines of the recipe's settings that hold for the result as they did for the source, where
// they are not the defaults.
static const char *kept_settings(const conversion *c) {
    static const char *const keys[] = {"extra_fields", "limit",    "val_fraction", "shuffle",
                                       "drop_last",    "on_error", "workers",      "transform"};
    size_t count = c->most > 0 ? 1 : sizeof keys / sizeof *keys; // of a part, what describes it
    const tri_tree *all = tri_option_encode(c->arena, &tri_data_table, c->given);
    const char *text = "";
    for (size_t k = 0; k < count; k++)
        for (int i = 0; i < tri_data_table.count; i++) {
            const tri_option *row = &tri_data_table.rows[i];
            const tri_tree *value = strcmp(row->key, keys[k]) ? NULL : tri_tree_get(all, keys[k]);
            if (tri_tree_is_null(value)) continue;
            const char *set = tri_yaml_flow(c->arena, value);
            if (!is_default(row, value, set))
                text = tri_arena_printf(c->arena, "%s  %s: %s\n", text, keys[k], set);
        }
    return text;
}

// The section `data` of a recipe that reads the result.
static const char *section_of(const conversion *c) {
    const char *name = c->kind->reads_as ? c->kind->reads_as : c->kind->name;
    const char *text =
        tri_arena_printf(c->arena, "data:\n  name: %s\n  path: %s\n", name, c->folder);
    for (int i = 0; i < TRI_DATA_SPLITS; i++)
        if (c->splits[i].dataset)
            text = tri_arena_printf(c->arena, "%s  %s: %s\n", text,
                                    tri_data_split_key((tri_data_split)i),
                                    c->kind->value(&c->splits[i].target));
    if (c->kind->keys)
        text = tri_arena_printf(c->arena, "%s%s", text,
                                c->kind->keys(&c->splits[TRI_DATA_TRAIN].target));
    return tri_arena_printf(c->arena, "%s%s", text, kept_settings(c));
}

static void close_split(split *s) {
    if (s->worker) s->dataset->kind->worker_destroy(s->worker);
    for (int i = 0; i < TRI_MAX_DATA_FIELDS; i++) free(s->stored[i]);
    free(s->made);
    tri_dataset_close(s->dataset);
}

const char *tri_target_name(int index) {
    return index < (int)(sizeof kinds / sizeof *kinds) ? kinds[index]->name : NULL;
}

// Converts; *section is the section `data` that reads the result.
static tri_status convert(conversion *c, const char *kind, const char **section) {
    tri_data_options all = *c->options; // every sample of the files
    c->given = c->options;
    all.val_fraction = 0;
    all.limit = 0;
    c->options = &all;
    c->kind = find_kind(kind);
    c->progress_path = tri_arena_printf(c->arena, "%s/.convert.json", c->folder);
    c->source = tri_arena_printf(
        c->arena, "%s %s", kind,
        tri_yaml_flow(c->arena, tri_option_encode(c->arena, &tri_data_table, &all)));
    tri_status status = c->kind ? TRI_OK : fail_kind(c->arena, kind);
    for (int i = 0; i < TRI_DATA_SPLITS && status == TRI_OK; i++) status = open_split(c, i);
    if (status == TRI_OK && c->kind->needs_test && c->most == 0 &&
        !c->splits[TRI_DATA_TEST].dataset)
        status = TRI_FAIL(TRI_BAD_INPUT, "--to %s: is read with test data, and there are none",
                          c->kind->name);
    if (status == TRI_OK) status = prepare_folder(c);
    if (status == TRI_OK) status = write_all(c);
    if (status == TRI_OK) *section = section_of(c);
    for (int i = 0; i < TRI_DATA_SPLITS; i++) close_split(&c->splits[i]);
    return status;
}

tri_status tri_data_convert(const tri_data_options *options, const char *kind, const char *folder) {
    conversion c = {
        .arena = tri_arena_create(NULL, "convert"), .options = options, .folder = folder};
    const char *section;
    tri_status status = convert(&c, kind, &section);
    if (status == TRI_OK) printf("%s", section);
    if (status == TRI_OK) tell_left_out(&c);
    tri_arena_destroy(c.arena);
    return status;
}

tri_status tri_data_convert_part(tri_arena *arena, const tri_data_options *options,
                                 const char *kind, const char *folder, int64_t most,
                                 tri_tree **out) {
    conversion c = {.arena = arena, .options = options, .folder = folder, .most = most};
    const char *section;
    tri_tree *tree;
    TRI_TRY(convert(&c, kind, &section));
    TRI_TRY(tri_yaml_parse(arena, section, strlen(section), "data convert", &tree));
    *out = tri_tree_get(tree, "data");
    return TRI_OK;
}
