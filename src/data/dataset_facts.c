// What an opened data set says of itself: its samples, its fields, and what its files had more or
// less than was asked for.
#include "data/dataset.h"
#include "data/kind.h"

#include <stdatomic.h>
#include <string.h>

const char *tri_dataset_rest(const tri_dataset *dataset, bool *is_usual) {
    *is_usual = dataset->facts.rest_is_usual;
    return dataset->facts.rest;
}

const char *tri_dataset_guessed(const tri_dataset *dataset) { return dataset->facts.guessed; }
const char *tri_dataset_choice_of_fields(const tri_dataset *dataset) {
    return tri_data_choice_of_fields(dataset->options);
}
const char *tri_dataset_doubt(const tri_dataset *dataset) { return dataset->facts.doubt; }

tri_data_lengths tri_dataset_documents(const tri_dataset *dataset) {
    return dataset->facts.documents;
}

int64_t tri_dataset_samples(const tri_dataset *dataset) { return dataset->samples; }

int64_t tri_dataset_left_to_train(const tri_dataset *dataset) {
    const tri_validation_split *split = dataset->validation_split;
    return split ? split->total - split->validation_samples : 0;
}

// Where the fields follow from the options alone, no file can add one.
bool tri_dataset_has_fixed_fields(const tri_dataset *dataset) {
    return dataset->facts.has_fixed_fields;
}

int tri_dataset_field_count(const tri_dataset *dataset) { return dataset->field_count; }

int64_t tri_dataset_classes(const tri_dataset *dataset, const char *field) {
    int index = tri_dataset_find(dataset, field);
    return index == TRI_NO_FIELD ? 0 : dataset->fields[index].classes;
}

bool tri_dataset_has_ignored(const tri_dataset *dataset, const char *field) {
    int index = tri_dataset_find(dataset, field);
    return index != TRI_NO_FIELD && dataset->fields[index].has_ignored;
}

int64_t tri_dataset_left_out(const tri_dataset *dataset) {
    return atomic_load(&dataset->left_out->count);
}

bool tri_dataset_has_left_out(const tri_dataset *dataset, int64_t sample) {
    return tri_left_out_has(dataset->left_out, sample);
}

int64_t tri_dataset_documents_left_out(const tri_dataset *dataset) {
    return dataset->facts.documents_left_out;
}

const tri_data_field *tri_dataset_field(const tri_dataset *dataset, int index) {
    TRI_ASSERT(index >= 0 && index < dataset->field_count);
    return &dataset->fields[index].field;
}

int tri_dataset_find(const tri_dataset *dataset, const char *name) {
    for (int i = 0; i < dataset->field_count; i++)
        if (strcmp(dataset->fields[i].field.name, name) == 0) return i;
    return TRI_NO_FIELD;
}
