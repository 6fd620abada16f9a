// The option tables of the recipe's section `data`, and of each kind of data set.
#include "data/options.h"

#include "base/limits.h"
#include "data/fields.h"
#include "data/kinds.h"
#include "data/shapes.h"
#include "data/transform/transform.h"

#include <string.h>

// What is made of the data once, and kept.
#define CACHE_ROW(what)                                                                            \
    TRI_OPTION_STRING(tri_data_options, cache, NULL,                                               \
                      "folder for " what ", which are made once; by default that of the data or, " \
                      "if nobody may write there, ~/.cache/trireme",                               \
                      .path = TRI_PATH_ANY, .change = TRI_CHANGE_FREELY)

static const char *const token_types[] = {"auto", "u8", "u16", "u32", NULL};

static const tri_option tokens_rows[] = {
    CACHE_ROW("the largest tokens of large files"),
    TRI_OPTION_CHOICE(tri_data_options, dtype, "auto", token_types,
                      "type of a token. auto: .bin and .u16 files are little-endian u16 (nanoGPT), "
                      ".u32 files u32, Megatron's index (.idx) beside a .bin file and the header "
                      "of llm.c name it, all others are text whose bytes are the tokens"),
};

static const tri_option webdataset_rows[] = {
    CACHE_ROW("the index and the unpacked copies of compressed archives"),
};

static const tri_option jsonl_rows[] = {
    TRI_OPTION_STRING(tri_data_options, field, "text", "key of a line's text"),
    TRI_OPTION_STRING(tri_data_options, tokenizer, NULL, "tokenizer.json or tokenizer.model",
                      .path = TRI_PATH_ANY),
    CACHE_ROW("the tokens"),
};

static const tri_option hdf5_rows[] = {
    TRI_OPTION_TREE(tri_data_options, fields, NULL,
                    "arrays in the file, by field: {images: x, labels: group/y}; by default each "
                    "field is the array of its name"),
};

static const tri_option parquet_rows[] = {
    TRI_OPTION_TREE(tri_data_options, fields, NULL,
                    "columns by field: {images: image, labels: label}, {inputs: [a, b]}; by "
                    "default those of such names"),
    TRI_OPTION_STRING(tri_data_options, tokenizer, NULL,
                      "tokenizer.json or tokenizer.model, which makes tokens of a column of text",
                      .path = TRI_PATH_ANY),
    TRI_OPTION_STRING(tri_data_options, field, "text", "with a tokenizer: the column of text"),
    CACHE_ROW("the tokens"),
};

static const tri_option csv_rows[] = {
    TRI_OPTION_TREE(tri_data_options, fields, NULL,
                    "columns by field: {labels: species}, {inputs: [a, b], targets: [c]}; by "
                    "default `label` or `target`; all others are inputs"),
    TRI_OPTION_STRING(tri_data_options, delimiter, "','", "what separates fields: , ; | or tab"),
    TRI_OPTION_BOOL(tri_data_options, header, "true",
                    "the first line names the columns; false: their names are 0, 1, ..."),
    TRI_OPTION_TREE(tri_data_options, missing, "refuse",
                    "empty fields, NA and NaN: refuse, or the number that they become, or such "
                    "numbers by column: {age: 29.7}; class: NA is a label's name"),
};

static const tri_option mixture_rows[] = {
    TRI_OPTION_TREE(tri_data_options, mix, NULL,
                    "sources, each with its settings of 'data' and a weight: [{name: webdataset, "
                    "train: a.tar, weight: 2}, ...]",
                    .holds_sections = true),
};

static const tri_option synthetic_rows[] = {
    TRI_OPTION_INTS(tri_data_options, shape, "[1, 28, 28]", 1, TRI_MAX_SAMPLE_ELEMENTS, 0,
                    "sizes of one sample, e.g. [C, H, W]; for text see data.sequence"),
    TRI_OPTION_INT(tri_data_options, samples, "1024", 1, TRI_MAX_SAMPLES, "training samples"),
    TRI_OPTION_INT(tri_data_options, test_samples, "0", 0, TRI_MAX_SAMPLES,
                   "test samples; 0: no test data"),
    TRI_OPTION_INT(tri_data_options, classes, "0", 0, TRI_MAX_CLASSES,
                   "labels below it for images; 0: inputs and targets of the same shape"),
    TRI_OPTION_INT(tri_data_options, vocabulary, "0", 0, TRI_MAX_CLASSES,
                   "not 0: input_ids, data.sequence token numbers below it"),
};

static const tri_option_variant kinds[] = {
#define ROW(word, array, number, words)                                                            \
    {.name = #word, .rows = (array), .count = (number), .help = (words)},
    TRI_DATASET_KINDS(ROW)
#undef ROW
};

const char *tri_data_choice_of_fields(const tri_data_options *data) {
    if (data->name && !strcmp(data->name, "npy"))
        return "name the arrays that it reads, data.train='{inputs: FILE.npz:ARRAY, ...}'";
    for (size_t i = 0; data->name && i < sizeof kinds / sizeof *kinds; i++)
        for (int k = 0; !strcmp(kinds[i].name, data->name) && k < kinds[i].count; k++)
            if (!strcmp(kinds[i].rows[k].key, "fields"))
                return "name the fields that it reads in data.fields";
    return NULL;
}

static const char *const on_error[] = {"refuse", "skip", NULL};

static const tri_option rows[] = {
    TRI_OPTION_NAME(tri_data_options, name, NULL, "kind of data set"),
    TRI_OPTION_STRING(tri_data_options, path, NULL, "folder with the training and the test files",
                      .path = TRI_PATH_ANY, .change = TRI_CHANGE_FREELY),
    TRI_OPTION_TREE(tri_data_options, train, NULL,
                    "training file (idx: what its files' names begin with)",
                    .path = TRI_PATH_IN_FOLDER),
    TRI_OPTION_TREE(tri_data_options, val, NULL,
                    "validation file (idx: what its files' names begin with): evaluated after "
                    "epochs, so that test data are read at the end alone",
                    .path = TRI_PATH_IN_FOLDER),
    TRI_OPTION_FLOAT(tri_data_options, val_fraction, "0", 0, 1,
                     "instead of val: this fraction of the training samples, chosen by the seed"),
    TRI_OPTION_TREE(tri_data_options, test, NULL,
                    "test file (idx: what its files' names begin with)",
                    .path = TRI_PATH_IN_FOLDER),
    TRI_OPTION_BOOL(tri_data_options, shuffle, "true",
                    "a new random order every epoch; false: the order of the files"),
    TRI_OPTION_BOOL(tri_data_options, drop_last, "false",
                    "leave out an epoch's partial last batch"),
    TRI_OPTION_CHOICE(tri_data_options, on_error, "refuse", on_error,
                      "a damaged sample. refuse: ends the run; skip: is left out of the loss, "
                      "counted and reported"),
    TRI_OPTION_INT(tri_data_options, workers, "2", 0, TRI_MAX_WORKERS, "loader threads; 0: none",
                   .change = TRI_CHANGE_FREELY),
    TRI_OPTION_ROW(tri_data_options, transform, const tri_tree *, TRI_OPTION_IS_TREE, "[]",
                   "list of transforms of images, in order: names, or {name: {option: value}}",
                   .kinds = tri_transform_tables),
    TRI_OPTION_TREE(tri_data_options, extra_fields, NULL,
                    "fields of your own model, by name and type: {sentiment: i64, token_weights: "
                    "{type: f32, per: token}}"),
    TRI_OPTION_TREE(tri_data_options, shapes, NULL,
                    "shapes of one stored sample, {images: [3, 32, 32], labels: []}, for commands "
                    "that do not open the data; trireme data check prints them",
                    .change = TRI_CHANGE_FREELY),
    TRI_OPTION_INT(tri_data_options, limit, "0", 0, TRI_MAX_SAMPLES,
                   "use only the first N training samples, val_fraction included; 0: all"),
    TRI_OPTION_INT(tri_data_options, sequence, "512", 2, TRI_MAX_SAMPLE_ELEMENTS,
                   "text: tokens per sample"),
};

// Checks data.train, data.val or data.test, which have to be text. For the kind npy they may also
// be maps from fields to files, because each array may have a file of its own.
static tri_status check_file(const tri_data_options *data, const tri_tree *file, const char *key) {
    bool maps = data->name && !strcmp(data->name, "npy");
    static const char *const with_lists[] = {"webdataset", "parquet", "jsonl"};
    bool lists = false;
    for (size_t i = 0; data->name && i < sizeof with_lists / sizeof *with_lists; i++)
        lists |= !strcmp(data->name, with_lists[i]);
    if (!file || file->kind == TRI_TREE_SCALAR || (maps && file->kind == TRI_TREE_MAP) ||
        (lists && file->kind == TRI_TREE_LIST))
        return TRI_OK;
    return tri_tree_fail(file, "'data.%s' has to be text%s", key,
                         maps ? ", or a map from fields to files: {images: x.npy, labels: y.npy}"
                              : "");
}

static bool is_name_list(const tri_tree *node) {
    bool is_list = node->kind == TRI_TREE_LIST && node->count > 0;
    for (int i = 0; is_list && i < node->count; i++)
        is_list = node->items[i]->kind == TRI_TREE_SCALAR;
    return is_list;
}

// Checks data.fields. A field of a table may have several columns.
static tri_status check_fields(const tri_data_options *data) {
    const tri_tree *fields = data->fields;
    if (data->tokenizer && !tri_tree_is_null(fields))
        return tri_tree_fail(fields, "'data.fields' has no effect with data.tokenizer, which takes "
                                     "the column of data.field");
    bool is_table = data->name && (!strcmp(data->name, "csv") || !strcmp(data->name, "parquet"));
    bool is_map = tri_tree_is_null(fields) ||
                  (fields->kind == TRI_TREE_MAP && fields->count <= TRI_MAX_DATA_FIELDS);
    for (int i = 0; is_map && !tri_tree_is_null(fields) && i < fields->count; i++)
        is_map = fields->items[i]->kind == TRI_TREE_SCALAR ||
                 (is_table && is_name_list(fields->items[i]));
    if (is_map) return TRI_OK;
    return tri_tree_fail(fields,
                         "'data.fields' has to be a map from at most %d fields to names%s: "
                         "{images: x, labels: y}",
                         TRI_MAX_DATA_FIELDS, is_table ? ", or lists of them" : "");
}

bool tri_data_missing_is_class(const tri_tree *value) {
    return value->kind == TRI_TREE_SCALAR && !strcmp(value->text, "class");
}

// Checks the options of tables as text.
static tri_status check_table(const tri_data_options *data) {
    const tri_tree *missing = data->missing;
    double number;
    bool is_delimiter = !data->delimiter || !strcmp(data->delimiter, "tab") ||
                        (strlen(data->delimiter) == 1 && !strpbrk(data->delimiter, "\"\r\n"));
    if (!is_delimiter)
        return TRI_FAIL(TRI_BAD_INPUT, "'data.delimiter' has to be one character, or tab");
    bool is_rule = tri_tree_is_null(missing) || tri_tree_to_double(missing, &number) ||
                   missing->kind == TRI_TREE_MAP ||
                   (missing->kind == TRI_TREE_SCALAR && !strcmp(missing->text, "refuse"));
    for (int i = 0; is_rule && missing && missing->kind == TRI_TREE_MAP && i < missing->count; i++)
        is_rule = tri_tree_to_double(missing->items[i], &number) ||
                  tri_data_missing_is_class(missing->items[i]);
    if (is_rule) return TRI_OK;
    return tri_tree_fail(missing, "'data.missing' has to be refuse, a number, or a map from "
                                  "columns to numbers, or of labels to class: {age: 29.7, "
                                  "country: class}");
}

static tri_status check(const void *options, const tri_tree *map) {
    const tri_data_options *data = options;
    tri_shapes shapes;
    TRI_TRY(tri_fields_check(data->extra_fields));
    TRI_TRY(tri_shapes_read(data->shapes, &shapes));
    TRI_TRY(check_file(data, data->train, "train"));
    TRI_TRY(check_file(data, data->val, "val"));
    TRI_TRY(check_file(data, data->test, "test"));
    const tri_tree *fraction = tri_tree_get(map, "val_fraction");
    if (data->val && data->val_fraction > 0)
        return tri_tree_fail(fraction, "'data.val' and 'data.val_fraction' exclude each other");
    if (data->val_fraction >= 1)
        return tri_tree_fail(fraction, "'data.val_fraction' has to be less than 1: 0.1 holds back "
                                       "every tenth training sample");
    if (data->val && data->name && !strcmp(data->name, "synthetic"))
        return tri_tree_fail(tri_tree_get(map, "val"),
                             "'data.val' names a file, and synthetic data "
                             "have none: use data.val_fraction");
    TRI_TRY(check_fields(data));
    TRI_TRY(check_table(data));
    return tri_transforms_check(data->transform);
}

const tri_option_table tri_data_table =
    TRI_OPTION_TABLE("data", tri_data_options, rows, "where samples come from and how they are fed",
                     .variants = kinds, .variant_count = TRI_OPTION_COUNT(kinds), .check = check);
