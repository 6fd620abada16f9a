// Opens a data set of any kind (data.name: idx, npy, tokens, …), and selects the samples of a split
// (training, validation or test).
// Read next: kind.h (the kinds), split.h (data.val_fraction), reader.c.
#include "data/dataset.h"

#include "data/convert.h"
#include "data/kind.h"
#include "data/shapes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    const tri_dataset_kind *kind;
} kinds[] = {
#define ROW(word, rows, count, help) {#word, &tri_dataset_##word},
    TRI_DATASET_KINDS(ROW)
#undef ROW
};

static const tri_dataset_kind *kind_of(const tri_data_options *options) {
    if (options->tokenizer && !strcmp(options->name, "parquet")) return &tri_dataset_parquet_text;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].name, options->name) == 0) return kinds[i].kind;
    return NULL;
}

static tri_status fail_rank(const char *source, const char *name, const tri_shape *shape,
                            const char *wanted) {
    char sizes[128];
    tri_shape_text(shape, sizes, sizeof sizes); // the shape of one sample, such as "[3, 32]"
    return TRI_FAIL(TRI_BAD_INPUT, "%s: '%s' is [N%s%s, but must be %s%s", source, name,
                    shape->rank ? ", " : "", sizes + 1, wanted,
                    shape->rank ? "" : ": write x.reshape(-1, 1) in place of x");
}

static const char WHOLE[] = ": write x.astype('int64') in place of x",
                  ONE_HOT[] = ": if it has a number for each class, name it 'soft_labels' or write "
                              "x.argmax(-1) in place of x, else x.astype('int64')";

tri_status tri_dataset_add(tri_dataset *dataset, const char *source, const char *name,
                           tri_dtype stored, const tri_shape *shape) {
    tri_field_row row;
    if (!tri_field_find(dataset->options->extra_fields, name, &row))
        return tri_field_fail_name(dataset->options->extra_fields, source, name);
    TRI_ASSERT(dataset->field_count < TRI_MAX_DATA_FIELDS);
    tri_stored_field *field = &dataset->fields[dataset->field_count];
    *field = (tri_stored_field){.field = {row.name, row.dtype, *shape, 0},
                                .row = row,
                                .stored_dtype = stored,
                                .stored_shape = *shape};
    if (shape->rank < row.min_rank || shape->rank > row.max_rank)
        return fail_rank(source, name, shape, row.shape);
    if (!tri_convert_supported(stored, row.dtype))
        return TRI_FAIL(TRI_BAD_INPUT, "%s: '%s' is %s, which does not convert to %s%s", source,
                        name, tri_dtype_name(stored), tri_dtype_name(row.dtype),
                        row.dtype != TRI_I64                         ? ""
                        : shape->rank > 0 && !strcmp(name, "labels") ? ONE_HOT
                                                                     : WHOLE);
    bool is_any = shape->rank == 3 && shape->dims[1] == TRI_ANY_SIZE;
    int64_t count = is_any ? shape->dims[0] : tri_shape_count(shape);
    if (count < 1 || count > TRI_MAX_SAMPLE_ELEMENTS)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: '%s' has %s elements per sample; 1 to %d are supported",
                        source, name, count == 0 ? "0" : "too many", TRI_MAX_SAMPLE_ELEMENTS);
    field->stored_bytes = is_any ? 0 : (size_t)count * tri_dtype_bytes(stored);
    dataset->field_count++;
    return TRI_OK;
}

const tri_tree *tri_dataset_files(const tri_dataset *dataset) {
    const tri_data_options *options = dataset->options;
    if (dataset->file_split == TRI_DATA_TRAIN) return options->train;
    return dataset->file_split == TRI_DATA_VAL ? options->val : options->test;
}

const char *tri_dataset_file(const tri_dataset *dataset) {
    const tri_tree *file = tri_dataset_files(dataset);
    return file && file->kind == TRI_TREE_SCALAR ? file->text : NULL;
}

const char *tri_dataset_path(tri_dataset *dataset, const char *name) {
    const char *folder = dataset->options->path;
    if (name[0] == '/' || !folder) return name;
    size_t length = strlen(folder);
    return tri_arena_printf(dataset->arena, "%s%s%s", folder,
                            length && folder[length - 1] == '/' ? "" : "/", name);
}

tri_status tri_dataset_find_path(tri_dataset *dataset, const char *what, const char **out) {
    bool is_training = dataset->file_split == TRI_DATA_TRAIN;
    const char *name = tri_dataset_file(dataset);
    *out = name ? tri_dataset_path(dataset, name) : is_training ? dataset->options->path : NULL;
    if (*out) {
        tri_dataset_note_file(dataset, *out);
        tri_dataset_note_source(dataset, *out);
        return TRI_OK;
    }
    return TRI_FAIL(TRI_NOT_FOUND, "data.%s is not set: %s",
                    tri_data_split_key(dataset->file_split), what);
}

// Checks that all fields with a value for each token have the same number of tokens, because they
// describe the same sequence.
static tri_status check_tokens(const tri_dataset *dataset) {
    const tri_stored_field *first = NULL;
    for (int i = 0; i < dataset->field_count; i++) {
        const tri_stored_field *field = &dataset->fields[i];
        if (!field->row.is_per_token) continue;
        if (!first) first = field;
        if (field->stored_shape.dims[0] != first->stored_shape.dims[0])
            return TRI_FAIL(TRI_BAD_INPUT,
                            "data: '%s' has %lld tokens per sample, but '%s' has %lld: fields with "
                            "a value per token must be of one length",
                            field->field.name, (long long)field->stored_shape.dims[0],
                            first->field.name, (long long)first->stored_shape.dims[0]);
    }
    return TRI_OK;
}

// A field whose numbers may be -100, or all 0 in soft labels, so that losses leave out the sample.
static bool is_label(const tri_stored_field *field) {
    return (field->field.dtype == TRI_I64 && !field->row.is_token) ||
           strcmp(field->field.name, "soft_labels") == 0;
}

bool tri_dataset_leaves_out(const tri_dataset *dataset) {
    return dataset->facts.is_decoded && dataset->options->on_error == TRI_DATA_SKIP;
}

// With data.on_error: skip, any sample may become one without a label.
static tri_status allow_left_out(tri_dataset *dataset) {
    int labels = 0;
    if (!tri_dataset_leaves_out(dataset)) return TRI_OK;
    for (int i = 0; i < dataset->field_count; i++) {
        if (!is_label(&dataset->fields[i])) continue;
        dataset->fields[i].has_ignored = true;
        labels++;
    }
    if (labels > 0) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT, "data.on_error=skip needs labels: without them, a loss cannot "
                                   "leave out a damaged sample");
}

// True for a list of numbers, to which transforms of values apply as to the channels of an image.
static bool has_columns(const tri_dataset *dataset, const tri_stored_field *field) {
    return tri_dataset_find(dataset, "images") == TRI_NO_FIELD && field->stored_shape.rank == 1 &&
           strcmp(field->field.name, "inputs") == 0 && field->stored_dtype != TRI_U8;
}

// Whether random transforms act: in training alone.
static bool draws(const tri_dataset *dataset) {
    return dataset->split == TRI_DATA_TRAIN && !dataset->is_evaluated;
}

static tri_status transform_columns(tri_dataset *dataset, tri_stored_field *field) {
    const tri_tree *list = dataset->options->transform;
    for (int i = 0; list->kind == TRI_TREE_LIST && i < list->count; i++) {
        const tri_tree *item = list->items[i];
        const char *name =
            item->kind == TRI_TREE_MAP && item->count ? item->items[0]->key : item->text;
        if (name && strcmp(name, "normalize") != 0)
            return tri_tree_fail(item,
                                 "data.transform: %s is for images; inputs that are numbers in "
                                 "columns can only be normalised",
                                 name);
    }
    tri_shape channels = tri_stored_image_shape(field);
    tri_transforms *transforms;
    TRI_TRY(tri_transforms_create(dataset->arena, list, field->stored_dtype, &channels,
                                  draws(dataset), dataset->seed, &transforms));
    field->transforms = transforms;
    return TRI_OK;
}

static bool is_mixed(const tri_dataset *dataset) {
    return dataset->mixing.mixup > 0 || dataset->mixing.cutmix > 0;
}

// With mixup or cutmix, labels become soft labels: also in evaluation, where the model is the same.
static tri_status make_soft_labels(tri_dataset *dataset) {
    const tri_mix_options *mix = &dataset->mixing;
    TRI_TRY(tri_transforms_mixing(dataset->options->transform, &dataset->mixing));
    if (!is_mixed(dataset)) return TRI_OK;
    int images = tri_dataset_find(dataset, "images"), labels = tri_dataset_find(dataset, "labels"),
        soft = tri_dataset_find(dataset, "soft_labels");
    int at = labels != TRI_NO_FIELD ? labels : soft;
    if (images == TRI_NO_FIELD || at == TRI_NO_FIELD || dataset->field_count != 2 ||
        dataset->fields[at].stored_shape.rank != (at == soft))
        return TRI_FAIL(
            TRI_BAD_INPUT,
            "data.transform: mixup and cutmix take images with one label each: the data "
            "must have the fields images and labels [N], or images and soft_labels "
            "[N, classes], alone");
    if (soft != TRI_NO_FIELD) return TRI_OK;
    const tri_stored_field *target = &dataset->fields[labels];
    if (mix->classes == 0)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "data.transform: mixup and cutmix lack 'classes': set it to the number of "
                        "the model's classes, %lld or more, {cutmix: {alpha: 1, classes: %lld}}",
                        (long long)target->classes, (long long)target->classes);
    if (target->classes > mix->classes)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "data.transform: mixup and cutmix have classes: %lld, but labels go up to "
                        "%lld",
                        (long long)mix->classes, (long long)target->classes - 1);
    tri_data_field *field = &dataset->fields[labels].field;
    dataset->fields[labels].makes_soft = true;
    field->name = "soft_labels";
    field->dtype = TRI_F32;
    field->shape = tri_shape_of(mix->classes);
    return TRI_OK;
}

// Lets the numbers of a field move as the pixels of the images do.
static tri_status follow_images(tri_dataset *dataset, tri_stored_field *field) {
    int images = tri_dataset_find(dataset, "images");
    const tri_tree *list = dataset->options->transform;
    if (images == TRI_NO_FIELD || tri_tree_is_null(list) || list->count == 0) return TRI_OK;
    tri_shape mask = tri_stored_image_shape(field);
    tri_transforms *transforms;
    TRI_TRY(tri_transforms_of_masks(dataset->arena, dataset->fields[images].transforms,
                                    field->row.name, field->stored_dtype, &mask, &transforms));
    const tri_shape *moved = tri_transforms_shape(transforms);
    int64_t *last = &field->field.shape.dims[field->field.shape.rank - 2];
    field->transforms = transforms;
    last[0] = moved->dims[1];
    last[1] = moved->dims[2];
    return TRI_OK;
}

static tri_status set_size(const tri_tree *list, tri_stored_field *field) {
    int64_t elements = tri_shape_count(&field->field.shape);
    if (elements < 1 || elements > TRI_MAX_SAMPLE_ELEMENTS)
        return tri_tree_fail(list,
                             "data.transform makes samples of more than the %d elements that "
                             "are supported",
                             TRI_MAX_SAMPLE_ELEMENTS);
    field->field.size_bytes = (size_t)elements * tri_dtype_bytes(field->field.dtype);
    return TRI_OK;
}

// Sets up the fields' transforms and sizes. This happens after the kind of data set (data.name) has
// added its fields, because it depends on the fields' shapes.
static tri_status finish_fields(tri_dataset *dataset) {
    TRI_TRY(check_tokens(dataset));
    TRI_TRY(make_soft_labels(dataset));
    const tri_tree *list = dataset->options->transform;
    bool is_used = tri_tree_is_null(list) || list->count == 0;
    for (int i = 0; i < dataset->field_count; i++) {
        tri_stored_field *field = &dataset->fields[i];
        if (strcmp(field->field.name, "images") == 0) {
            tri_transforms *transforms;
            TRI_TRY(tri_transforms_create(dataset->arena, list, field->stored_dtype,
                                          &field->field.shape, draws(dataset), dataset->seed,
                                          &transforms));
            field->transforms = transforms;
            field->field.shape = *tri_transforms_shape(transforms);
            is_used = true;
        } else if (!is_used && has_columns(dataset, field)) {
            TRI_TRY(transform_columns(dataset, field));
            is_used = true;
        }
    }
    for (int i = 0; i < dataset->field_count; i++) {
        tri_stored_field *field = &dataset->fields[i];
        if (field->row.is_per_pixel) TRI_TRY(follow_images(dataset, field));
        TRI_TRY(set_size(list, field));
    }
    TRI_TRY(allow_left_out(dataset));
    if (!is_used)
        return tri_tree_fail(
            list, "data.transform is for images and columns of inputs, and this data set has none");
    return TRI_OK;
}

static tri_dataset *new_dataset(const tri_data_options *options, tri_data_split split,
                                uint64_t seed) {
    tri_arena *arena = tri_arena_create(NULL, "dataset");
    tri_dataset *dataset = TRI_NEW(arena, tri_dataset);
    dataset->arena = arena;
    dataset->left_out = TRI_NEW(arena, tri_left_out);
    dataset->kind = kind_of(options);
    TRI_ASSERT(dataset->kind && "every variant of tri_data_table has a kind");
    dataset->options = options;
    dataset->split = dataset->file_split = split;
    dataset->seed = seed;
    if (split == TRI_DATA_VAL && options->val_fraction > 0) dataset->file_split = TRI_DATA_TRAIN;
    dataset->facts = (tri_data_facts){.is_decoded = dataset->kind->is_decoded,
                                      .has_fixed_fields = dataset->kind->describe != NULL,
                                      .describes_guess = dataset->kind->describes_guess};
    return dataset;
}

// Selects the samples of the training files that are used: cuts the files off at data.limit, then
// divides what is left into training and validation samples (data.val_fraction).
static tri_status select_samples(tri_dataset *dataset) {
    const tri_data_options *options = dataset->options;
    if (dataset->file_split != TRI_DATA_TRAIN) return TRI_OK;
    int64_t total = dataset->samples;
    if (options->limit > 0 && options->limit < total) total = options->limit;
    dataset->samples = total;
    if (options->val_fraction == 0) return TRI_OK;
    tri_validation_split *split = TRI_NEW(dataset->arena, tri_validation_split);
    *split = tri_validation_split_make(dataset->seed, total, options->val_fraction);
    if (split->validation_samples >= total)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "data.val_fraction=%g of %lld training samples leaves none to train on",
                        options->val_fraction, (long long)total);
    dataset->validation_split = split;
    dataset->samples = dataset->split == TRI_DATA_VAL ? split->validation_samples
                                                      : total - split->validation_samples;
    return TRI_OK;
}

static tri_shapes shapes_of(const tri_dataset *dataset) {
    tri_shapes shapes = {.count = dataset->field_count};
    for (int i = 0; i < shapes.count; i++) {
        shapes.names[i] = dataset->fields[i].row.name;
        shapes.shapes[i] = dataset->fields[i].stored_shape;
    }
    return shapes;
}

// Rejects data whose shapes differ from data.shapes, by which `trireme plan` plans the network.
static tri_status check_declared_shapes(tri_dataset *dataset) {
    tri_shapes declared, found = shapes_of(dataset);
    TRI_TRY(tri_shapes_read(dataset->options->shapes, &declared));
    if (dataset->options->may_lack_fields) tri_shapes_keep(&declared, &found);
    if (declared.count == 0 || tri_shapes_equal(&declared, &found)) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT, "data.shapes is %s, but the %s data have %s",
                    tri_shapes_text(dataset->arena, &declared), tri_data_split_name(dataset->split),
                    tri_shapes_text(dataset->arena, &found));
}

static tri_status finish(tri_dataset *dataset, tri_status status, tri_dataset **out) {
    if (status == TRI_OK) status = check_declared_shapes(dataset);
    if (status == TRI_OK) status = select_samples(dataset);
    if (status == TRI_OK) status = finish_fields(dataset);
    *out = status == TRI_OK ? dataset : NULL;
    if (status != TRI_OK) tri_dataset_close(dataset);
    return status;
}

tri_status tri_dataset_open(const tri_data_options *options, tri_data_split split, uint64_t seed,
                            tri_dataset **out) {
    *out = NULL;
    if (!tri_data_has(options, split) && split == TRI_DATA_VAL)
        return TRI_FAIL(TRI_NOT_FOUND, "neither data.val nor data.val_fraction is set: there is no "
                                       "validation data");
    tri_dataset *dataset = new_dataset(options, split, seed);
    return finish(dataset, dataset->kind->open(dataset), out);
}

tri_status tri_dataset_open_training_as_evaluated(const tri_data_options *options, uint64_t seed,
                                                  tri_dataset **out) {
    tri_dataset *dataset = new_dataset(options, TRI_DATA_TRAIN, seed);
    dataset->is_evaluated = dataset->repeats_epoch = true;
    return finish(dataset, dataset->kind->open(dataset), out);
}

tri_status tri_dataset_open_validation(const tri_dataset *train, tri_dataset **out) {
    const tri_data_options *options = train->options;
    TRI_ASSERT(train->split == TRI_DATA_TRAIN);
    if (!train->validation_split) return tri_dataset_open(options, TRI_DATA_VAL, train->seed, out);
    tri_dataset *dataset = new_dataset(options, TRI_DATA_VAL, train->seed);
    dataset->owner = train;
    dataset->state = train->state;
    dataset->samples = train->validation_split->total;
    tri_status status = TRI_OK;
    for (int i = 0; i < train->field_count && status == TRI_OK; i++) {
        const tri_stored_field *column = &train->fields[i];
        status = tri_dataset_add(dataset, "data", column->row.name, column->stored_dtype,
                                 &column->stored_shape);
        dataset->fields[i].classes = column->classes;
        dataset->fields[i].has_ignored = column->has_ignored;
    }
    return finish(dataset, status, out);
}

tri_status tri_dataset_open_stored(const tri_data_options *options, tri_data_split split,
                                   tri_dataset **out) {
    tri_dataset *dataset = new_dataset(options, split, 0);
    tri_status status = dataset->kind->open(dataset);
    *out = status == TRI_OK ? dataset : NULL;
    if (status != TRI_OK) tri_dataset_close(dataset);
    return status;
}

tri_status tri_dataset_describe_stored(const tri_data_options *options, tri_dataset **out) {
    tri_dataset *dataset = new_dataset(options, TRI_DATA_TRAIN, 0);
    tri_status status = dataset->kind->describe ? dataset->kind->describe(dataset) : TRI_OK;
    *out = status == TRI_OK ? dataset : NULL;
    if (status != TRI_OK) tri_dataset_forget(dataset);
    return status;
}

void tri_dataset_forget(tri_dataset *dataset) {
    if (dataset) tri_arena_destroy(dataset->arena);
}

void tri_dataset_close(tri_dataset *dataset) {
    if (!dataset) return;
    tri_left_out_end(dataset->left_out, tri_data_split_name(dataset->split));
    if (!dataset->owner) dataset->kind->close(dataset);
    tri_arena_destroy(dataset->arena);
}

bool tri_data_names(const tri_data_options *options, tri_data_split split) {
    const tri_tree *files[] = {options->train, options->val, options->test};
    const tri_dataset_kind *kind = kind_of(options);
    return kind->names ? kind->names(options, split) : files[split] != NULL;
}

bool tri_data_has(const tri_data_options *options, tri_data_split split) {
    if (split == TRI_DATA_TRAIN || tri_data_names(options, split)) return true;
    return split == TRI_DATA_VAL ? options->val_fraction > 0 : kind_of(options)->has_usual_test;
}

bool tri_data_is_text(const tri_data_options *options) {
    const tri_dataset_kind *kind = kind_of(options);
    return kind->is_text && kind->is_text(options);
}

const char *tri_data_split_name(tri_data_split split) {
    static const char *const names[] = {"training", "validation", "test"};
    return names[split];
}

const char *tri_data_split_key(tri_data_split split) {
    static const char *const keys[TRI_DATA_SPLITS] = {"train", "val", "test"};
    return keys[split];
}

static tri_status describe_declared(tri_dataset *dataset, const tri_shapes *declared) {
    for (int i = 0; i < declared->count; i++) {
        // For a name that tri_field_find does not know, the type stays F32; tri_dataset_add then
        // rejects the name.
        tri_field_row row = {.dtype = TRI_F32};
        tri_field_find(dataset->options->extra_fields, declared->names[i], &row);
        TRI_TRY(tri_dataset_add(dataset, "data.shapes", declared->names[i], row.dtype,
                                &declared->shapes[i]));
    }
    return TRI_OK;
}

static tri_status describe(tri_dataset *dataset, bool *is_guess) {
    tri_shapes declared;
    *is_guess = false;
    TRI_TRY(tri_shapes_read(dataset->options->shapes, &declared));
    if (declared.count > 0) {
        TRI_TRY(describe_declared(dataset, &declared));
    } else {
        if (!dataset->kind->describe) return TRI_OK;
        TRI_TRY(dataset->kind->describe(dataset));
        if (dataset->field_count == 0) return TRI_OK;
        *is_guess = dataset->facts.describes_guess;
    }
    return finish_fields(dataset);
}

tri_status tri_data_describe(const tri_data_options *options, tri_data_field *fields, int *count,
                             bool *is_guess) {
    *count = 0;
    tri_dataset *dataset = new_dataset(options, TRI_DATA_TRAIN, 0);
    tri_status status = describe(dataset, is_guess);
    for (int i = 0; status == TRI_OK && i < dataset->field_count; i++)
        fields[(*count)++] = dataset->fields[i].field;
    tri_arena_destroy(dataset->arena);
    return status;
}

const char *tri_dataset_shapes(const tri_dataset *dataset, tri_arena *arena) {
    tri_shapes shapes = shapes_of(dataset);
    return tri_shapes_text(arena, &shapes);
}

tri_dtype tri_dataset_stored(const tri_dataset *dataset, int index) {
    TRI_ASSERT(index >= 0 && index < dataset->field_count);
    return dataset->fields[index].stored_dtype;
}

// Warns of images that seem to be [H, W, C], the usual order in Python: their last axis has size 1,
// 3 or 4, and the two others are larger than 4. Models read [C, H, W].
bool tri_dataset_warning(const tri_dataset *dataset, char *text, size_t size) {
    int index = tri_dataset_find(dataset, "images");
    if (index == TRI_NO_FIELD) return false;
    const int64_t *dims = dataset->fields[index].stored_shape.dims;
    bool is_last = dims[2] == 1 || dims[2] == 3 || dims[2] == 4;
    if (!is_last || dims[0] <= 4 || dims[1] <= 4) return false;
    char shape[128];
    snprintf(text, size,
             "images are %s, so [channels, height, width] with %lld channels; if the channels are "
             "last, save x.transpose(0, 3, 1, 2) (NumPy) or x.permute(0, 3, 1, 2) (PyTorch)",
             tri_shape_text(&dataset->fields[index].stored_shape, shape, sizeof shape),
             (long long)dims[0]);
    return true;
}

tri_status tri_dataset_verify(const tri_dataset *dataset) {
    return dataset->kind->verify ? dataset->kind->verify(dataset) : TRI_OK;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

const char **tri_dataset_field_order(tri_arena *arena, const char *const *names, int count) {
    const char **sorted = TRI_NEW_ARRAY(arena, const char *, count);
    for (int i = 0; i < count; i++) sorted[i] = names[i];
    if (count > 0) qsort(sorted, (size_t)count, sizeof *sorted, compare_names);
    return sorted;
}

const tri_mix_options *tri_dataset_mix(const tri_dataset *dataset) {
    bool is_mixing = is_mixed(dataset) && dataset->split == TRI_DATA_TRAIN;
    return is_mixing ? &dataset->mixing : NULL;
}

uint64_t tri_dataset_seed(const tri_dataset *dataset) { return dataset->seed; }

bool tri_dataset_scale(const tri_dataset *dataset, tri_pixel_scale *out) {
    // The weighted mean of two images is no longer made of bytes.
    if (dataset->mixing.mixup > 0) return false;
    int index = tri_dataset_find(dataset, "images");
    return index != TRI_NO_FIELD && tri_transforms_scale(dataset->fields[index].transforms, out);
}

void tri_dataset_keep_bytes(tri_dataset *dataset) {
    tri_data_field *field = &dataset->fields[tri_dataset_find(dataset, "images")].field;
    field->dtype = TRI_U8;
    field->size_bytes = (size_t)tri_shape_count(&field->shape);
}

void tri_dataset_move_padding(tri_dataset *dataset) { dataset->moves_padding = true; }

void tri_dataset_repeat_epoch(tri_dataset *dataset) { dataset->repeats_epoch = true; }

int64_t tri_dataset_at_epoch(const tri_dataset *dataset, int64_t sample, int64_t epoch) {
    if (!dataset->kind->at_epoch) return sample;
    return dataset->kind->at_epoch(dataset, sample, dataset->repeats_epoch ? 0 : epoch);
}

int64_t tri_dataset_file_sample(const tri_dataset *dataset, int64_t sample) {
    const tri_validation_split *split = dataset->validation_split;
    if (!split) return sample;
    return dataset->split == TRI_DATA_VAL ? tri_validation_sample(split, sample)
                                          : tri_training_sample(split, sample);
}

const tri_number_names *tri_dataset_names(const tri_dataset *dataset, int index) {
    return &dataset->fields[index].names;
}

void tri_dataset_hint(const tri_dataset *dataset, int64_t sample) {
    if (dataset->kind->hint) dataset->kind->hint(dataset, tri_dataset_file_sample(dataset, sample));
}
