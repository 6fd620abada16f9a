// Which columns of a table belong to which field (data.fields), for the kinds csv and parquet.
//
// data.fields maps a field to a column, or to a list of columns. Without it, a column named
// `label`, `labels` or `class` is the field `labels`, and one named `target` or `targets` the field
// `targets`. If neither `inputs`, `images` nor `input_ids` is mapped, all columns that belong to no
// field are the inputs, in the order of the table.
#ifndef TRIREME_DATA_COLUMNS_H
#define TRIREME_DATA_COLUMNS_H

#include "data/kind.h"

typedef struct tri_field_columns {
    tri_field_row row;
    const int *columns; // their numbers in the table
    int count;
    bool is_list;           // false: data.fields names one column, and no list
    tri_number_names names; // of the columns
} tri_field_columns;

typedef struct tri_columns {
    int count;
    tri_field_columns fields[TRI_MAX_DATA_FIELDS];
} tri_columns;

// Finds the columns among the `count` names of the table in file `path`. *out lies in the data
// set's arena. TRI_BAD_INPUT: a column that is not there or is there twice, a field that nobody
// knows, or no field is found; the message names the file.
tri_status tri_columns_find(tri_dataset *dataset, const char *path, const char *const *names,
                            int count, tri_columns *out);
// Compares the fields of a file with those of a file of the training data. TRI_BAD_INPUT: the
// columns of a field have other names, or another order, or a field is missing that has to be
// there.
tri_status tri_columns_compare(const tri_dataset *dataset, const tri_columns *known,
                               const char *known_path, const tri_columns *columns,
                               const char *path);
// Gives the fields of the data set, which are those of `columns`, the names of their columns.
void tri_columns_name_fields(tri_dataset *dataset, const tri_columns *columns);
// The shape of one sample of a field that has one number from each of its columns: that of
// data.shapes if it has as many numbers; else a list of numbers, or a single one.
tri_shape tri_columns_shape(const tri_dataset *dataset, const tri_field_columns *field);

#endif
