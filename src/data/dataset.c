#include "data/dataset.h"

#include "data/convert.h"
#include "data/kind.h"
#include "data/shapes.h"

#include <stdio.h>
#include <string.h>

// The same names as in the variants of tri_data_table.
static const tri_dataset_kind *const kinds[] = {&tri_dataset_idx, &tri_dataset_tensors,
                                                &tri_dataset_tokens, &tri_dataset_npy,
                                                &tri_dataset_synthetic};

static const tri_dataset_kind *kind_of(const tri_data_options *options) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i]->name, options->name) == 0) return kinds[i];
    return NULL;
}

// What a model can be fed with.
static const struct {
    const char *name;
    tri_dtype dtype;
    int least_rank, most_rank; // of one sample
    const char *shape;
} feeds[] = {
    {"images", TRI_F32, 3, 3, "[N, C, H, W]"},
    {"labels", TRI_I64, 0, 0, "[N]"},
    {"inputs", TRI_F32, 1, TRI_MAX_RANK - 1, "[N, ...]"},
    {"targets", TRI_F32, 1, TRI_MAX_RANK - 1, "[N, ...]"},
    {"input_ids", TRI_I64, 1, 1, "[N, T]"},
};

enum { FEEDS = sizeof feeds / sizeof *feeds };

static int feed_of(const char *name) {
    int row = 0;
    while (row < FEEDS && strcmp(feeds[row].name, name) != 0) row++;
    return row;
}

bool tri_data_is_field(const char *name) { return feed_of(name) < FEEDS; }

static tri_status fail_name(const char *source, const char *name) {
    const char *known[FEEDS];
    for (int i = 0; i < FEEDS; i++) known[i] = feeds[i].name;
    const char *nearest = tri_option_nearest(name, known, FEEDS);
    return TRI_FAIL(
        TRI_BAD_INPUT,
        "%s: '%s' is no input of a model (images, labels, inputs, targets, input_ids)%s%s%s",
        source, name, nearest ? "; did you mean '" : "", nearest ? nearest : "",
        nearest ? "'?" : "");
}

tri_status tri_dataset_add(tri_dataset *dataset, const char *source, const char *name,
                           tri_dtype stored, const tri_shape *shape) {
    int row = feed_of(name);
    if (row == FEEDS) return fail_name(source, name);
    TRI_ASSERT(dataset->field_count < TRI_MAX_DATA_FIELDS);
    tri_dataset_column *field = &dataset->fields[dataset->field_count];
    *field = (tri_dataset_column){.fed = {feeds[row].name, feeds[row].dtype, *shape, 0},
                                  .stored = stored,
                                  .stored_shape = *shape};
    if (shape->rank < feeds[row].least_rank || shape->rank > feeds[row].most_rank)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: '%s' has %d axes beside the samples'; its shape must be %s", source,
                        name, shape->rank, feeds[row].shape);
    if (!tri_convert_supported(stored, feeds[row].dtype))
        return TRI_FAIL(TRI_BAD_INPUT, "%s: '%s' is %s, which does not convert to %s", source, name,
                        tri_dtype_name(stored), tri_dtype_name(feeds[row].dtype));
    int64_t count = tri_shape_count(shape);
    if (count < 1 || count > TRI_MAX_SAMPLE_ELEMENTS)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: '%s' has %s elements per sample; 1 to %d are supported",
                        source, name, count == 0 ? "0" : "too many", TRI_MAX_SAMPLE_ELEMENTS);
    field->stored_bytes = (size_t)count * tri_dtype_bytes(stored);
    dataset->field_count++;
    return TRI_OK;
}

const tri_tree *tri_dataset_files(const tri_dataset *dataset) {
    const tri_data_options *options = dataset->options;
    if (dataset->files == TRI_DATA_TRAIN) return options->train;
    return dataset->files == TRI_DATA_VAL ? options->val : options->test;
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

// Transforms, sizes and scratch memory, once the kind has said what it stores.
static tri_status finish_fields(tri_dataset *dataset) {
    const tri_tree *list = dataset->options->transform;
    bool used = tri_tree_is_null(list) || list->count == 0;
    for (int i = 0; i < dataset->field_count; i++) {
        tri_dataset_column *field = &dataset->fields[i];
        size_t scratch = 0;
        if (strcmp(field->fed.name, "images") == 0) {
            tri_transforms *transforms;
            TRI_TRY(tri_transforms_create(dataset->arena, list, field->stored, &field->fed.shape,
                                          dataset->split == TRI_DATA_TRAIN, dataset->seed,
                                          &transforms));
            field->transforms = transforms;
            field->fed.shape = *tri_transforms_shape(transforms);
            scratch = tri_transforms_scratch_bytes(transforms);
            used = true;
        }
        int64_t fed = tri_shape_count(&field->fed.shape);
        if (fed < 1 || fed > TRI_MAX_SAMPLE_ELEMENTS)
            return tri_tree_fail(list,
                                 "data.transform makes samples of more than the %d elements that "
                                 "are supported",
                                 TRI_MAX_SAMPLE_ELEMENTS);
        field->fed.size_bytes =
            (size_t)tri_shape_count(&field->fed.shape) * tri_dtype_bytes(field->fed.dtype);
        if (scratch > dataset->scratch_bytes) dataset->scratch_bytes = scratch;
        if (field->stored_bytes > dataset->buffer_bytes)
            dataset->buffer_bytes = field->stored_bytes;
    }
    if (!used)
        return tri_tree_fail(list, "data.transform is for images, and this data set has none");
    dataset->buffer_bytes = (dataset->buffer_bytes + 63) / 64 * 64; // aligns what follows it
    return TRI_OK;
}

static tri_dataset *new_dataset(const tri_data_options *options, tri_data_split split,
                                uint64_t seed) {
    tri_arena *arena = tri_arena_create(NULL, "dataset");
    tri_dataset *dataset = TRI_NEW(arena, tri_dataset);
    dataset->arena = arena;
    dataset->kind = kind_of(options);
    TRI_ASSERT(dataset->kind && "every variant of tri_data_table has a kind");
    dataset->options = options;
    dataset->split = dataset->files = split;
    dataset->seed = seed;
    if (split == TRI_DATA_VAL && !options->val) dataset->files = TRI_DATA_TRAIN;
    return dataset;
}

// data.limit counts before data.val_fraction takes its part.
static tri_status take_part(tri_dataset *dataset) {
    const tri_data_options *options = dataset->options;
    if (dataset->files != TRI_DATA_TRAIN) return TRI_OK;
    int64_t total = dataset->samples;
    if (options->limit > 0 && options->limit < total) total = options->limit;
    dataset->samples = total;
    if (options->val_fraction == 0) return TRI_OK;
    tri_split *part = TRI_NEW(dataset->arena, tri_split);
    *part = tri_split_make(dataset->seed, total, options->val_fraction);
    if (part->held >= total)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "data.val_fraction=%g of %lld training samples leaves none to train on",
                        options->val_fraction, (long long)total);
    dataset->part = part;
    dataset->samples = dataset->split == TRI_DATA_VAL ? part->held : total - part->held;
    return TRI_OK;
}

static tri_shapes shapes_of(const tri_dataset *dataset) {
    tri_shapes shapes = {.count = dataset->field_count};
    for (int i = 0; i < shapes.count; i++) {
        shapes.names[i] = dataset->fields[i].fed.name;
        shapes.shapes[i] = dataset->fields[i].stored_shape;
    }
    return shapes;
}

// What the recipe says of the data, plans have believed.
static tri_status check_stated(tri_dataset *dataset) {
    tri_shapes stated, found = shapes_of(dataset);
    TRI_TRY(tri_shapes_read(dataset->options->shapes, &stated));
    if (stated.count == 0 || tri_shapes_equal(&stated, &found)) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT, "data.shapes is %s, but the %s data have %s",
                    tri_shapes_text(dataset->arena, &stated), tri_data_split_name(dataset->split),
                    tri_shapes_text(dataset->arena, &found));
}

static tri_status finish(tri_dataset *dataset, tri_status status, tri_dataset **out) {
    if (status == TRI_OK) status = check_stated(dataset);
    if (status == TRI_OK) status = take_part(dataset);
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

tri_status tri_dataset_open_validation(const tri_dataset *train, tri_dataset **out) {
    const tri_data_options *options = train->options;
    TRI_ASSERT(train->split == TRI_DATA_TRAIN);
    if (!train->part) return tri_dataset_open(options, TRI_DATA_VAL, train->seed, out);
    tri_dataset *dataset = new_dataset(options, TRI_DATA_VAL, train->seed);
    dataset->owner = train;
    dataset->state = train->state;
    dataset->samples = train->part->total;
    dataset->classes = train->classes;
    tri_status status = TRI_OK;
    for (int i = 0; i < train->field_count && status == TRI_OK; i++) {
        const tri_dataset_column *column = &train->fields[i];
        status = tri_dataset_add(dataset, "data", column->fed.name, column->stored,
                                 &column->stored_shape);
    }
    return finish(dataset, status, out);
}

void tri_dataset_close(tri_dataset *dataset) {
    if (!dataset) return;
    if (!dataset->owner) dataset->kind->close(dataset);
    tri_arena_destroy(dataset->arena);
}

bool tri_data_has(const tri_data_options *options, tri_data_split split) {
    if (split == TRI_DATA_VAL) return options->val || options->val_fraction > 0;
    return split == TRI_DATA_TRAIN || kind_of(options)->has_test(options);
}

const char *tri_data_split_name(tri_data_split split) {
    static const char *const names[] = {"training", "validation", "test"};
    return names[split];
}

static tri_status describe_stated(tri_dataset *dataset, const tri_shapes *stated) {
    for (int i = 0; i < stated->count; i++) {
        int row = feed_of(stated->names[i]);
        TRI_TRY(tri_dataset_add(dataset, "data.shapes", stated->names[i],
                                row < FEEDS ? feeds[row].dtype : TRI_F32, &stated->shapes[i]));
    }
    return TRI_OK;
}

static tri_status describe(tri_dataset *dataset, bool *is_guess) {
    tri_shapes stated;
    *is_guess = false;
    TRI_TRY(tri_shapes_read(dataset->options->shapes, &stated));
    if (stated.count > 0) {
        TRI_TRY(describe_stated(dataset, &stated));
    } else {
        if (!dataset->kind->describe) return TRI_OK;
        *is_guess = dataset->kind->describes_guess;
        TRI_TRY(dataset->kind->describe(dataset));
    }
    return finish_fields(dataset);
}

tri_status tri_data_describe(const tri_data_options *options, tri_data_field *fields, int *count,
                             bool *is_guess) {
    *count = 0;
    tri_dataset *dataset = new_dataset(options, TRI_DATA_TRAIN, 0);
    tri_status status = describe(dataset, is_guess);
    for (int i = 0; status == TRI_OK && i < dataset->field_count; i++)
        fields[(*count)++] = dataset->fields[i].fed;
    tri_arena_destroy(dataset->arena);
    return status;
}

const char *tri_dataset_shapes(const tri_dataset *dataset, tri_arena *arena) {
    tri_shapes shapes = shapes_of(dataset);
    return tri_shapes_text(arena, &shapes);
}

tri_dtype tri_dataset_stored(const tri_dataset *dataset, int index) {
    TRI_ASSERT(index >= 0 && index < dataset->field_count);
    return dataset->fields[index].stored;
}

// [H, W, C], as most Python programs keep images: 1, 3 or 4 last, and more before.
bool tri_dataset_warning(const tri_dataset *dataset, char *text, size_t size) {
    int index = tri_dataset_find(dataset, "images");
    if (index < 0) return false;
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

int64_t tri_dataset_samples(const tri_dataset *dataset) { return dataset->samples; }
int tri_dataset_field_count(const tri_dataset *dataset) { return dataset->field_count; }
int64_t tri_dataset_classes(const tri_dataset *dataset) { return dataset->classes; }

const tri_data_field *tri_dataset_field(const tri_dataset *dataset, int index) {
    TRI_ASSERT(index >= 0 && index < dataset->field_count);
    return &dataset->fields[index].fed;
}

int tri_dataset_find(const tri_dataset *dataset, const char *name) {
    for (int i = 0; i < dataset->field_count; i++)
        if (strcmp(dataset->fields[i].fed.name, name) == 0) return i;
    return -1;
}

size_t tri_dataset_scratch_bytes(const tri_dataset *dataset) {
    return dataset->buffer_bytes + dataset->scratch_bytes;
}

// The number of a sample of the split among all samples of the files.
static int64_t in_files(const tri_dataset *dataset, int64_t sample) {
    if (!dataset->part) return sample;
    return tri_split_at(dataset->part, dataset->split == TRI_DATA_VAL, sample);
}

tri_status tri_dataset_read(const tri_dataset *dataset, int field, int64_t sample, int64_t epoch,
                            void *scratch, void *out) {
    TRI_ASSERT(sample >= 0 && sample < dataset->samples);
    const tri_dataset_column *row = &dataset->fields[field];
    sample = in_files(dataset, sample);
    bool as_stored = !row->transforms && row->stored == row->fed.dtype;
    const void *stored;
    tri_status status =
        dataset->kind->read(dataset, field, sample, as_stored ? out : scratch, &stored);
    if (status == TRI_CORRUPT) // no bad input: the file was whole when it was opened
        return tri_status_context(TRI_IO, "a data file was changed while it was in use");
    TRI_TRY(status);
    if (row->transforms)
        tri_transforms_apply(row->transforms, stored, sample, epoch,
                             (char *)scratch + dataset->buffer_bytes, out);
    else if (stored != out)
        tri_convert(row->stored, stored, row->fed.dtype, out, tri_shape_count(&row->fed.shape));
    return TRI_OK;
}

void tri_dataset_hint(const tri_dataset *dataset, int field, int64_t sample) {
    if (dataset->kind->hint) dataset->kind->hint(dataset, field, in_files(dataset, sample));
}
