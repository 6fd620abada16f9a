// Reads samples: calls the kind of data set, then converts and transforms each field.
// Read next: kind.h (the kinds), transform/transform.h.
#include "data/convert.h"
#include "data/kind.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN_BYTES = 64 };

struct tri_reader {
    const tri_dataset *dataset;
    void *worker; // of the kind; NULL: it needs none
    // The stored elements of one sample, field after field.
    tri_buffer stored;
    size_t offsets[TRI_MAX_DATA_FIELDS]; // by field, in `stored`
    tri_transform_memory memory;
    bool takes_all;   // tri_reader_take_all was called
    int64_t left_out; // how many samples tri_reader_read has left out
};

static size_t aligned(size_t bytes) {
    return (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

tri_status tri_reader_create(const tri_dataset *dataset, tri_reader **out) {
    *out = NULL;
    tri_reader *reader = calloc(1, sizeof *reader);
    if (!reader) return TRI_FAIL(TRI_NO_MEMORY, "no memory to read data");
    reader->dataset = dataset;
    size_t bytes = 0;
    for (int i = 0; i < dataset->field_count; i++) {
        reader->offsets[i] = bytes;
        bytes += aligned(dataset->fields[i].stored_bytes);
    }
    tri_status status = tri_buffer_reserve(&reader->stored, bytes);
    if (status == TRI_OK && dataset->kind->worker_create)
        status = dataset->kind->worker_create(dataset, &reader->worker);
    if (status == TRI_OK)
        *out = reader;
    else
        tri_reader_destroy(reader);
    return status;
}

void tri_reader_destroy(tri_reader *reader) {
    if (!reader) return;
    if (reader->worker) reader->dataset->kind->worker_destroy(reader->worker);
    tri_buffer_free(&reader->stored);
    tri_transform_memory_free(&reader->memory);
    free(reader);
}

// True if the model gets the stored elements as they are, so that they are read to their place.
static bool is_unchanged(const tri_stored_field *field) {
    return !field->transforms && !field->makes_soft && field->stored_dtype == field->field.dtype;
}

// Writes the number of a class as soft labels: 1 for the class, 0 for the others; all 0 for -100.
static tri_status write_soft(const tri_stored_field *field, const void *stored, float *out) {
    int64_t label, classes = field->field.shape.dims[0];
    tri_convert(field->stored_dtype, stored, TRI_I64, &label, 1);
    memset(out, 0, (size_t)classes * sizeof *out);
    if (label >= classes)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "data.transform: mixup and cutmix have classes: %lld, but a label is %lld",
                        (long long)classes, (long long)label);
    if (label >= 0) out[label] = 1;
    return TRI_OK;
}

static tri_status finish_field(tri_reader *reader, const tri_stored_field *field, int64_t sample,
                               int64_t epoch, const tri_sample_value *value, void *out) {
    if (field->transforms) {
        tri_shape shape = tri_stored_image_shape(field);
        tri_image image = field->stored_bytes
                              ? tri_image_of_planes(value->data, field->stored_dtype, &shape)
                              : value->image;
        if (field->row.is_per_pixel)
            return tri_transforms_apply_to_mask(field->transforms, &image, sample, epoch,
                                                &reader->memory, field->field.dtype, out);
        return tri_transforms_apply(field->transforms, &image, sample, epoch,
                                    field->field.dtype == TRI_U8, &reader->memory, out);
    }
    if (field->makes_soft) return write_soft(field, value->data, out);
    if (value->data != out)
        tri_convert(field->stored_dtype, value->data, field->field.dtype, out,
                    tri_shape_count(&field->field.shape));
    return TRI_OK;
}

static void reverse(char *items, int64_t count, size_t item_bytes) {
    for (int64_t i = 0; i < count / 2; i++) {
        char *a = items + (size_t)i * item_bytes, *b = items + (size_t)(count - 1 - i) * item_bytes;
        for (size_t k = 0; k < item_bytes; k++) {
            char byte = a[k];
            a[k] = b[k];
            b[k] = byte;
        }
    }
}

// Moves the first `first` of `count` items behind the others. The order of each part stays.
static void rotate(char *items, int64_t count, int64_t first, size_t item_bytes) {
    reverse(items, first, item_bytes);
    reverse(items + (size_t)first * item_bytes, count - first, item_bytes);
    reverse(items, count, item_bytes);
}

static void move_padding(const tri_dataset *dataset, void *const *out) {
    int mask_at = tri_dataset_find(dataset, "attention_mask");
    const tri_shape *shape = &dataset->fields[mask_at].field.shape;
    const float *mask = out[mask_at];
    int64_t tokens = shape->dims[0], padding = 0;
    while (padding < tokens && mask[padding] == 0) padding++;
    if (padding == 0 || padding == tokens) return;
    for (int i = 0; i < dataset->field_count; i++) {
        const tri_stored_field *field = &dataset->fields[i];
        if (field->row.is_per_token || tri_shape_equal(&field->field.shape, shape))
            rotate(out[i], tokens, padding, field->field.size_bytes / (size_t)tokens);
    }
}

tri_status tri_dataset_read(const tri_dataset *dataset, void *worker, int64_t sample,
                            tri_sample_value *values) {
    tri_status status = dataset->kind->read(dataset, worker, sample, values);
    if (status != TRI_CORRUPT || dataset->facts.is_decoded) return status;
    return tri_status_context(TRI_IO, "a data file was changed while it was in use");
}

// The number of a sample among all those of the split.
static int64_t number_of(const tri_reader *reader, int64_t sample, int64_t epoch) {
    return reader->takes_all ? sample : tri_dataset_at_epoch(reader->dataset, sample, epoch);
}

tri_status tri_reader_try(tri_reader *reader, int64_t sample, int64_t epoch, void *const *out) {
    const tri_dataset *dataset = reader->dataset;
    TRI_ASSERT(sample >= 0 && sample < dataset->samples);
    int64_t stored = tri_dataset_file_sample(dataset, number_of(reader, sample, epoch));
    sample = tri_dataset_file_sample(dataset, sample);
    tri_sample_value values[TRI_MAX_DATA_FIELDS] = {0};
    for (int i = 0; i < dataset->field_count; i++)
        values[i].buffer = is_unchanged(&dataset->fields[i])
                               ? out[i]
                               : (char *)reader->stored.data + reader->offsets[i];
    TRI_TRY(tri_dataset_read(dataset, reader->worker, stored, values));
    for (int i = 0; i < dataset->field_count; i++)
        TRI_TRY(finish_field(reader, &dataset->fields[i], sample, epoch, &values[i], out[i]));
    if (dataset->moves_padding) move_padding(dataset, out);
    return TRI_OK;
}

// Fills the sample with zeros, and its labels with -100.
static void leave_out(const tri_dataset *dataset, void *const *out) {
    for (int i = 0; i < dataset->field_count; i++) {
        const tri_data_field *field = &dataset->fields[i].field;
        memset(out[i], 0, field->size_bytes);
        int64_t *numbers = out[i];
        bool is_label = field->dtype == TRI_I64 && !dataset->fields[i].row.is_token;
        for (int64_t k = 0; is_label && k < tri_shape_count(&field->shape); k++)
            numbers[k] = TRI_IGNORED_LABEL;
    }
}

tri_status tri_reader_read(tri_reader *reader, int64_t sample, int64_t epoch, void *const *out) {
    const tri_dataset *dataset = reader->dataset;
    tri_status status = tri_reader_try(reader, sample, epoch, out);
    if (status != TRI_CORRUPT || dataset->options->on_error != TRI_DATA_SKIP) return status;
    tri_left_out_add(dataset->left_out, dataset->samples, number_of(reader, sample, epoch));
    leave_out(dataset, out);
    reader->left_out++;
    return TRI_OK;
}

void tri_reader_take_all(tri_reader *reader) { reader->takes_all = true; }

int64_t tri_reader_left_out(const tri_reader *reader) { return reader->left_out; }
