// The data set "csv" (data.name): a table as text. Opening reads it once, checks every record, and
// keeps where each begins; a sample is then read from its place. columns.h says which columns are
// which field.
#include "base/index.h"
#include "base/os.h"
#include "base/quantity.h"
#include "base/search.h"
#include "data/columns.h"
#include "data/content.h"
#include "data/convert.h"
#include "format/csv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_NAMES = 1 << 20 };

// How a column `labels` writes classes.
typedef enum label_form { LABELS_UNKNOWN, LABELS_NUMBERS, LABELS_NAMES } label_form;

// The names of classes. They are numbered in the order of the sorted names.
typedef struct class_names {
    tri_index found; // by name: its position in `names`
    const char **names;
    int count, capacity;
    int32_t *classes;    // by position in `names`: the class
    const char **sorted; // by class
} class_names;

typedef struct csv_state {
    const char *path;
    int fd;
    char delimiter;
    const char *const *column_names;
    int column_count;
    double *missing; // by column: what missing values become; NaN: they are refused
    bool *has_words; // by column: words that stand for missing values are names of classes
    tri_columns columns;
    label_form form;
    class_names names;
    const char *named; // the field that has names; NULL: none
    int64_t *offsets;  // by sample: where its record begins; [samples]: the end of the last one
    int64_t capacity;
    // The samples that are damaged (data.on_error: skip), and their lines, for messages.
    struct damaged {
        int64_t sample, line;
    } * damaged;
    int damaged_count, damaged_capacity;
} csv_state;

// What one thread needs: a record, and its fields.
typedef struct csv_worker {
    tri_buffer text;
    char **fields;
} csv_worker;

// A pass over a file's records.
typedef struct csv_pass {
    tri_dataset *dataset;
    csv_state *state;
    char **fields;
    bool names_only; // only the names of classes are wanted, of the training data
    bool has_header; // false: the next record may be the header
    tri_sample_value values[TRI_MAX_DATA_FIELDS];
} csv_pass;

static tri_status fail_at(const csv_state *state, int64_t line, const char *why) {
    return TRI_FAIL(TRI_CORRUPT, "%s:%lld: %s", state->path, (long long)line, why);
}

static tri_status fail_value(const csv_state *state, int64_t line, int column, const char *text,
                             const char *wanted) {
    enum { SHOWN = 40 };
    return TRI_FAIL(TRI_CORRUPT, "%s:%lld: column '%s' has '%.*s%s', which is %s", state->path,
                    (long long)line, state->column_names[column], SHOWN, text,
                    strlen(text) > SHOWN ? "..." : "", wanted);
}

static bool is_label(const tri_field_columns *field) {
    return field->row.dtype == TRI_I64 && !field->row.is_token;
}

static bool is_whole(double value) { return value == floor(value) && fabs(value) < 0x1p53; }

// Adds the name of a class of the training data.
static tri_status add_name(tri_arena *arena, class_names *names, const char *text) {
    if (tri_index_find(&names->found, text, strlen(text)) != TRI_NOT_IN_INDEX) return TRI_OK;
    if (names->count == MOST_NAMES)
        return TRI_FAIL(TRI_BAD_INPUT, "labels with more than %d names", MOST_NAMES);
    const char *name = tri_arena_strdup(arena, text);
    tri_index_put(arena, &names->found, name, strlen(name), names->count);
    TRI_PUSH(arena, names->names, names->count, names->capacity) = name;
    return TRI_OK;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

// Numbers the classes by the order of their names.
static void number_names(tri_arena *arena, class_names *names) {
    if (names->count == 0) return; // all lines are left out
    const char **sorted = names->sorted = TRI_NEW_ARRAY(arena, const char *, names->count);
    names->classes = TRI_NEW_ARRAY(arena, int32_t, names->count);
    memcpy(sorted, names->names, (size_t)names->count * sizeof *sorted);
    qsort(sorted, (size_t)names->count, sizeof *sorted, compare_names);
    for (int i = 0; i < names->count; i++)
        names->classes[tri_index_find(&names->found, sorted[i], strlen(sorted[i]))] = i;
}

// Warns of two names that differ only by blanks around them: they may be meant as one class.
static void doubt_blanks(tri_dataset *dataset, const csv_state *state) {
    tri_arena *arena = dataset->arena;
    const class_names *names = &state->names;
    tri_index trimmed = {0};
    for (int i = 0; i < names->count && !dataset->facts.doubt; i++) {
        const char *begin = names->names[i] + strspn(names->names[i], " \t");
        size_t size = strlen(begin);
        while (size > 0 && strchr(" \t", begin[size - 1])) size--;
        int other = tri_index_find(&trimmed, begin, size);
        if (other == TRI_NOT_IN_INDEX)
            tri_index_put(arena, &trimmed, begin, size, i);
        else
            dataset->facts.doubt = tri_arena_printf(
                arena,
                "%s: '%.40s' and '%.40s' are two classes, which differ only by blanks around them",
                state->path, names->names[other], names->names[i]);
    }
}

// Reads a label. While the training data are opened, names are only collected, because classes are
// numbered once all names are known; *out is then 0.
static tri_status read_label(const csv_state *state, int64_t line, int column, const char *text,
                             int64_t *out) {
    double number = 0;
    bool is_number = tri_csv_number(text, &number);
    *out = 0;
    if (state->form == LABELS_NUMBERS) {
        if (!is_number || !is_whole(number))
            return fail_value(state, line, column, text, "no whole number");
        *out = (int64_t)number;
        bool is_class = *out >= 0 && *out < TRI_MAX_CLASSES;
        if (is_class || *out == TRI_IGNORED_LABEL) return TRI_OK;
        return fail_value(state, line, column, text, "no class, a whole number from 0");
    }
    if (is_number)
        return fail_value(state, line, column, text, "a number, but other labels are names");
    if (!state->names.classes) return TRI_OK;
    int at = tri_index_find(&state->names.found, text, strlen(text));
    if (at == TRI_NOT_IN_INDEX)
        return fail_value(state, line, column, text, "no class of the training data");
    *out = state->names.classes[at];
    return TRI_OK;
}

static tri_status read_whole(const csv_state *state, int64_t line, int column, const char *text,
                             int64_t *out) {
    double number;
    if (!tri_csv_number(text, &number) || !is_whole(number) || number < 0 ||
        number >= TRI_MAX_CLASSES)
        return fail_value(state, line, column, text, "no whole number from 0");
    *out = (int64_t)number;
    return TRI_OK;
}

static tri_status read_number(const csv_state *state, int64_t line, int column, const char *text,
                              float *out) {
    double number;
    if (tri_csv_is_missing(text)) {
        if (isnan(state->missing[column]))
            return fail_value(state, line, column, text,
                              "missing: data.missing says what it becomes");
        number = state->missing[column];
    } else if (!tri_csv_number(text, &number)) {
        return fail_value(state, line, column, text, "no number");
    }
    *out = (float)number;
    if (isfinite(*out)) return TRI_OK;
    return fail_value(state, line, column, text, "too large");
}

static tri_status read_field(const csv_state *state, const tri_field_columns *field, int64_t line,
                             char *const *texts, void *out) {
    for (int i = 0; i < field->count; i++) {
        int column = field->columns[i];
        int64_t *wholes = out;
        float *numbers = out;
        tri_status status = is_label(field)
                                ? read_label(state, line, column, texts[column], &wholes[i])
                            : field->row.dtype == TRI_I64
                                ? read_whole(state, line, column, texts[column], &wholes[i])
                                : read_number(state, line, column, texts[column], &numbers[i]);
        TRI_TRY(status);
    }
    return TRI_OK;
}

// Splits a record into texts. `line`: for messages.
static tri_status split(const csv_state *state, char *text, int64_t size, int64_t line,
                        char **fields) {
    int count;
    const char *why =
        tri_csv_split(text, size, state->delimiter, fields, state->column_count, &count);
    if (why) return fail_at(state, line, why);
    if (count == state->column_count) return TRI_OK;
    return TRI_FAIL(TRI_CORRUPT, "%s:%lld: has %s, but there are %s", state->path, (long long)line,
                    tri_counted(count, "field"), tri_counted(state->column_count, "column"));
}

static bool is_label_column(const csv_state *state, int column) {
    for (int i = 0; i < state->columns.count; i++) {
        const tri_field_columns *field = &state->columns.fields[i];
        for (int k = 0; is_label(field) && k < field->count; k++)
            if (field->columns[k] == column) return true;
    }
    return false;
}

// Reads what data.missing says about each column.
static tri_status read_missing(tri_dataset *dataset, csv_state *state) {
    const tri_tree *rule = dataset->options->missing;
    double all = NAN;
    state->missing = TRI_NEW_ARRAY(dataset->arena, double, state->column_count);
    state->has_words = TRI_NEW_ARRAY(dataset->arena, bool, state->column_count);
    tri_tree_to_double(rule, &all);
    for (int i = 0; i < state->column_count; i++) state->missing[i] = all;
    if (!rule || rule->kind != TRI_TREE_MAP) return TRI_OK;
    for (int i = 0; i < rule->count; i++) {
        int column = 0;
        while (column < state->column_count &&
               strcmp(state->column_names[column], rule->items[i]->key) != 0)
            column++;
        if (column == state->column_count)
            return tri_tree_fail(rule->items[i], "'data.missing': %s has no column '%s'",
                                 state->path, rule->items[i]->key);
        tri_tree_to_double(rule->items[i], &state->missing[column]);
        state->has_words[column] = tri_data_missing_is_class(rule->items[i]);
        if (state->has_words[column] && !is_label_column(state, column))
            return tri_tree_fail(rule->items[i],
                                 "'data.missing': column '%s' has no labels, so no class is there: "
                                 "give a number",
                                 rule->items[i]->key);
    }
    return TRI_OK;
}

// Whether the first line is a sample rather than a header: most of it are numbers, and not such as
// number the columns or name years, which are whole and grow.
static bool looks_like_sample(char *const *texts, int count) {
    int numbers = 0;
    bool grows = true;
    double number, last = -1;
    for (int i = 0; i < count; i++) {
        if (!tri_csv_number(texts[i], &number)) continue;
        grows = grows && is_whole(number) && number > last;
        last = number;
        numbers++;
    }
    return 2 * numbers > count && !grows;
}

// Finds the columns of the fields. A header that looks like a sample is worth a warning, unless it
// names fields itself, as one of wavelengths does: label, 400.5, 401, ... Where no field is found,
// the names of columns in the message would mislead.
static tri_status find_columns(tri_dataset *dataset, csv_state *state, char *const *texts) {
    bool is_doubtful = dataset->options->header && looks_like_sample(texts, state->column_count);
    tri_status status = tri_columns_find(dataset, state->path, state->column_names,
                                         state->column_count, &state->columns);
    bool names_fields = status == TRI_OK && tri_tree_is_null(dataset->options->fields);
    if (!is_doubtful || names_fields) return status;
    if (status != TRI_OK)
        return TRI_FAIL(status,
                        "%s: its first line has to name the columns, but looks like a sample "
                        "('%.40s', ...): if it is one, set data.header=false, and "
                        "data.fields='{labels: %d}' or another column's number",
                        state->path, texts[0], state->column_count - 1);
    if (state == dataset->state) // and not that of the training data, for another split
        dataset->facts.doubt = tri_arena_printf(
            dataset->arena,
            "%s: its first line names the columns, but looks like a sample ('%.40s', ...): if it "
            "is one, set data.header=false",
            state->path, texts[0]);
    return TRI_OK;
}

// Learns the columns from the first record.
static tri_status read_header(csv_pass *pass, const tri_csv_record *record) {
    csv_state *state = pass->state;
    tri_arena *arena = pass->dataset->arena;
    char *copy = tri_arena_alloc(arena, (size_t)record->size + 1), *none[1];
    int count;
    memcpy(copy, record->text, (size_t)record->size);
    const char *why = tri_csv_split(copy, record->size, state->delimiter, none, 0, &count);
    if (why) return fail_at(state, record->line, why);
    const char **names = TRI_NEW_ARRAY(arena, const char *, count);
    pass->fields = TRI_NEW_ARRAY(arena, char *, count);
    memcpy(copy, record->text, (size_t)record->size);
    tri_csv_split(copy, record->size, state->delimiter, pass->fields, count, &count);
    for (int i = 0; i < count; i++)
        names[i] =
            pass->dataset->options->header ? pass->fields[i] : tri_arena_printf(arena, "%d", i);
    state->column_names = names;
    state->column_count = count;
    TRI_TRY(find_columns(pass->dataset, state, pass->fields));
    return read_missing(pass->dataset, state);
}

// The file of the training data; NULL: the recipe does not name it.
static const char *training_path(tri_dataset *dataset) {
    const tri_tree *train = dataset->options->train;
    return train && train->kind == TRI_TREE_SCALAR ? tri_dataset_path(dataset, train->text)
                                                   : dataset->options->path;
}

static tri_status learn_names(tri_dataset *dataset, csv_state *state);

// Finds out from the first label whether classes are numbers or names.
static tri_status see_form(csv_pass *pass, const char *text) {
    double number;
    csv_state *state = pass->state;
    bool is_number = tri_csv_number(text, &number);
    state->form = is_number ? LABELS_NUMBERS : LABELS_NAMES;
    bool is_training = pass->dataset->file_split == TRI_DATA_TRAIN || pass->names_only;
    if (is_number || is_training) return TRI_OK;
    if (training_path(pass->dataset)) return learn_names(pass->dataset, state);
    return TRI_FAIL(TRI_BAD_INPUT,
                    "%s: its labels are names, which the training data number: set data.train",
                    state->path);
}

static tri_status check_label(const csv_state *state, int64_t line, int column, const char *text) {
    bool is_blank = !text[strspn(text, " \t")];
    if (!tri_csv_is_missing(text) || (state->has_words[column] && !is_blank)) return TRI_OK;
    return fail_value(state, line, column, text,
                      is_blank ? "missing"
                               : "missing; if it is the name of a class, data.missing='{COLUMN: "
                                 "class}'");
}

// Looks at the labels of a record before they are read: their form is that of the first one.
static tri_status see_labels(csv_pass *pass, const tri_csv_record *record) {
    csv_state *state = pass->state;
    for (int i = 0; i < state->columns.count; i++) {
        const tri_field_columns *field = &state->columns.fields[i];
        for (int k = 0; is_label(field) && k < field->count; k++) {
            const char *text = pass->fields[field->columns[k]];
            TRI_TRY(check_label(state, record->line, field->columns[k], text));
            if (state->form == LABELS_UNKNOWN) TRI_TRY(see_form(pass, text));
        }
    }
    return TRI_OK;
}

// Adds the names of the classes of a record that is a sample: one that is left out has none.
static tri_status add_names(csv_pass *pass, int64_t line) {
    csv_state *state = pass->state;
    if (state->form != LABELS_NAMES || state->names.classes) return TRI_OK;
    for (int i = 0; i < state->columns.count; i++) {
        const tri_field_columns *field = &state->columns.fields[i];
        for (int k = 0; is_label(field) && k < field->count; k++) {
            const char *text = pass->fields[field->columns[k]];
            double number;
            if (tri_csv_number(text, &number)) continue;
            if (!state->named) state->named = field->row.name;
            // One numbering of two kinds of names would be that of neither.
            if (strcmp(state->named, field->row.name) != 0)
                return fail_value(state, line, field->columns[k], text,
                                  "a name, but another field has names already: number these");
            TRI_TRY(add_name(pass->dataset->arena, &state->names, text));
        }
    }
    return TRI_OK;
}

static tri_status add_offset(csv_state *state, int64_t samples, int64_t offset) {
    if (samples >= state->capacity) {
        int64_t capacity = state->capacity ? 2 * state->capacity : 1024;
        int64_t *offsets = realloc(state->offsets, (size_t)capacity * sizeof *offsets);
        if (!offsets)
            return TRI_FAIL(TRI_NO_MEMORY, "%s: no memory for the places of its records",
                            state->path);
        state->offsets = offsets;
        state->capacity = capacity;
    }
    state->offsets[samples] = offset;
    return TRI_OK;
}

static void count_labels(tri_dataset *dataset, int index, const int64_t *numbers) {
    const csv_state *state = dataset->state;
    tri_stored_field *field = &dataset->fields[index];
    for (int i = 0; i < state->columns.fields[index].count; i++) {
        field->has_ignored |= numbers[i] == TRI_IGNORED_LABEL;
        if (numbers[i] >= field->classes) field->classes = numbers[i] + 1;
    }
}

static tri_status check_record(csv_pass *pass, const tri_csv_record *record) {
    csv_state *state = pass->state;
    tri_dataset *dataset = pass->dataset;
    TRI_TRY(split(state, record->text, record->size, record->line, pass->fields));
    TRI_TRY(see_labels(pass, record));
    // Where names alone are wanted, other values matter if they decide what is left out.
    bool reads = !pass->names_only || dataset->options->on_error == TRI_DATA_SKIP;
    for (int i = 0; i < state->columns.count && reads; i++)
        TRI_TRY(read_field(state, &state->columns.fields[i], record->line, pass->fields,
                           pass->values[i].buffer));
    TRI_TRY(add_names(pass, record->line));
    for (int i = 0; i < state->columns.count && !pass->names_only; i++)
        if (dataset->fields[i].field.dtype == TRI_I64)
            count_labels(dataset, i, pass->values[i].buffer);
    return TRI_OK;
}

static tri_status add_fields(csv_pass *pass) {
    csv_state *state = pass->state;
    tri_dataset *dataset = pass->dataset;
    for (int i = 0; i < state->columns.count; i++) {
        const tri_field_columns *field = &state->columns.fields[i];
        size_t bytes = (size_t)field->count * tri_dtype_bytes(field->row.dtype);
        pass->values[i].buffer = tri_arena_alloc(dataset->arena, bytes);
        if (pass->names_only) continue;
        tri_shape shape = tri_columns_shape(dataset, field);
        TRI_TRY(tri_dataset_add(dataset, state->path, field->row.name, field->row.dtype, &shape));
    }
    return TRI_OK;
}

static tri_status visit(void *context, const tri_csv_record *record) {
    csv_pass *pass = context;
    csv_state *state = pass->state;
    tri_dataset *dataset = pass->dataset;
    if (!pass->has_header) {
        TRI_TRY(read_header(pass, record));
        TRI_TRY(add_fields(pass));
        pass->has_header = true;
        if (dataset->options->header) return TRI_OK;
    }
    if (!pass->names_only) {
        TRI_TRY(add_offset(state, dataset->samples, record->offset));
        TRI_TRY(add_offset(state, dataset->samples + 1, record->offset + record->size));
    }
    tri_status status = check_record(pass, record);
    if (status == TRI_CORRUPT && dataset->options->on_error == TRI_DATA_SKIP) {
        if (!pass->names_only)
            TRI_PUSH(dataset->arena, state->damaged, state->damaged_count,
                     state->damaged_capacity) = (struct damaged){dataset->samples, record->line};
        status = TRI_OK;
    }
    if (status == TRI_OK && !pass->names_only) dataset->samples++;
    return status;
}

static tri_status open_file(tri_dataset *dataset, csv_state *state) {
    const char *delimiter = dataset->options->delimiter;
    state->delimiter = !delimiter ? ',' : !strcmp(delimiter, "tab") ? '\t' : delimiter[0];
    TRI_TRY(tri_os_check_file(state->path));
    TRI_TRY(tri_content_check(state->path, "csv"));
    return tri_os_open_input(state->path, &state->fd);
}

// Makes a pass over the first `most` records of the training data, for another split.
static tri_status read_training(csv_pass *pass, int64_t most) {
    csv_state *known = pass->state;
    known->fd = -1;
    known->path = training_path(pass->dataset);
    tri_status status = open_file(pass->dataset, known);
    if (status == TRI_OK)
        status = tri_csv_list(known->fd, known->path, known->delimiter, most, visit, pass);
    if (known->fd >= 0) tri_os.close(known->fd);
    return status;
}

// Refuses test data whose columns are others than those of the training data, or in another order,
// or whose labels are numbers where those of the training data are names.
static tri_status compare_with_training(tri_dataset *dataset, const csv_state *state) {
    csv_state known = {0};
    csv_pass pass = {.dataset = dataset, .state = &known, .names_only = true};
    // The first sample shows what labels are, unless it may be damaged.
    bool may_skip = dataset->options->on_error == TRI_DATA_SKIP;
    TRI_TRY(read_training(&pass, may_skip ? INT64_MAX : 1 + dataset->options->header));
    TRI_TRY(tri_columns_compare(dataset, &known.columns, known.path, &state->columns, state->path));
    if (known.form == state->form || known.form == LABELS_UNKNOWN) return TRI_OK;
    if (state->form == LABELS_UNKNOWN) return TRI_OK; // it has none
    return TRI_FAIL(TRI_BAD_INPUT,
                    "%s: its labels are numbers, and no classes of %s, which have "
                    "names",
                    state->path, known.path);
}

// Collects the names of the classes in the training data, by which those of other splits are
// numbered.
static tri_status learn_names(tri_dataset *dataset, csv_state *state) {
    csv_state known = {.form = LABELS_NAMES};
    csv_pass pass = {.dataset = dataset, .state = &known, .names_only = true};
    TRI_TRY(read_training(&pass, INT64_MAX));
    state->names = known.names;
    number_names(dataset->arena, &state->names);
    return TRI_OK;
}

static tri_status csv_open(tri_dataset *dataset) {
    csv_state *state = TRI_NEW(dataset->arena, csv_state);
    dataset->state = state;
    state->fd = -1;
    bool is_training = dataset->file_split == TRI_DATA_TRAIN;
    TRI_TRY(tri_dataset_find_path(dataset, "the CSV file with the samples", &state->path));
    TRI_TRY(open_file(dataset, state));
    csv_pass pass = {.dataset = dataset, .state = state};
    TRI_TRY(tri_csv_list(state->fd, state->path, state->delimiter, INT64_MAX, visit, &pass));
    if (dataset->samples == 0)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: has no samples: only %s", state->path,
                        pass.has_header ? "a header" : "blank lines");
    if (!is_training && training_path(dataset)) TRI_TRY(compare_with_training(dataset, state));
    tri_columns_name_fields(dataset, &state->columns);
    if (state->form != LABELS_NAMES) return TRI_OK;
    if (is_training) {
        number_names(dataset->arena, &state->names);
        doubt_blanks(dataset, state);
    }
    for (int i = 0; i < dataset->field_count; i++)
        if (is_label(&state->columns.fields[i])) {
            dataset->fields[i].classes = state->names.count;
            dataset->fields[i].names.classes =
                (tri_strings){state->names.sorted, state->names.count};
        }
    return TRI_OK;
}

static void csv_close(tri_dataset *dataset) {
    csv_state *state = dataset->state;
    free(state->offsets);
    if (state->fd >= 0) tri_os.close(state->fd);
}

static void csv_worker_destroy(void *context) {
    csv_worker *worker = context;
    tri_buffer_free(&worker->text);
    free(worker->fields);
    free(worker);
}

static tri_status csv_worker_create(const tri_dataset *dataset, void **out) {
    const csv_state *state = dataset->state;
    csv_worker *worker = calloc(1, sizeof *worker);
    *out = worker;
    if (worker) worker->fields = calloc((size_t)state->column_count, sizeof *worker->fields);
    if (worker && worker->fields) return TRI_OK;
    return TRI_FAIL(TRI_NO_MEMORY, "no memory to read data");
}

static bool is_below(const void *context, int index, int64_t sample) {
    const csv_state *state = context;
    return state->damaged[index].sample < sample;
}

// The line of a damaged sample; 0: it was not damaged when the file was opened.
static int64_t line_of(const csv_state *state, int64_t sample) {
    int at = tri_lower_bound(state->damaged_count, is_below, state, sample);
    bool is_found = at < state->damaged_count && state->damaged[at].sample == sample;
    return is_found ? state->damaged[at].line : 0;
}

static tri_status csv_read(const tri_dataset *dataset, void *context, int64_t sample,
                           tri_sample_value *values) {
    const csv_state *state = dataset->state;
    csv_worker *worker = context;
    int64_t offset = state->offsets[sample], size = state->offsets[sample + 1] - offset;
    TRI_TRY(tri_buffer_reserve(&worker->text, (size_t)size + 1));
    TRI_TRY(tri_os_pread_all(state->fd, worker->text.data, (size_t)size, offset, state->path));
    char *text = worker->text.data;
    text[size] = 0;
    int64_t line = line_of(state, sample);
    TRI_TRY(split(state, text, size, line, worker->fields));
    for (int i = 0; i < state->columns.count; i++) {
        values[i].data = values[i].buffer;
        TRI_TRY(
            read_field(state, &state->columns.fields[i], line, worker->fields, values[i].buffer));
    }
    return TRI_OK;
}

const tri_dataset_kind tri_dataset_csv = {
    .open = csv_open,
    .close = csv_close,
    .worker_create = csv_worker_create,
    .worker_destroy = csv_worker_destroy,
    .read = csv_read,
    .is_decoded = true,
};
