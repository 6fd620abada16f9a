// Options described by tables. Each part of the program defines a struct, and a table with one row
// for each member. With a table, the functions below read a section of a recipe into the struct
// (with errors that name file, line, key and what is allowed), fill in defaults, and write the
// resolved recipe, in which every option has its value. option_manual.h prints a table's manual.
//
//   typedef struct tri_batch_options { int64_t global, micro; } tri_batch_options;
//   static const tri_option rows[] = {
//       TRI_OPTION_INT(tri_batch_options, global, "64", 1, TRI_MAX_BATCH, "samples per step"),
//       TRI_OPTION_INT(tri_batch_options, micro, "0", 0, TRI_MAX_BATCH, "… of a micro-batch"),
//   };
//   const tri_option_table tri_batch_table =
//       TRI_OPTION_TABLE("batch", tri_batch_options, rows, "how a step is cut");
#ifndef TRIREME_BASE_OPTION_H
#define TRIREME_BASE_OPTION_H

#include "base/tree.h"

// The type of an option: the C type of the struct's member, and what a recipe may write.
typedef enum tri_option_type {
    TRI_OPTION_IS_BOOL,          // a bool, written true or false
    TRI_OPTION_IS_INT,           // an int64_t, written 12 or 5e8
    TRI_OPTION_IS_INT_OR_AUTO,   // an int64_t, written 12, or auto (TRI_AUTO)
    TRI_OPTION_IS_BOOL_OR_INT,   // an int64_t, written false (0), true (1), or 12
    TRI_OPTION_IS_FLOAT,         // a double, written 1 or 1e-3
    TRI_OPTION_IS_FLOAT_OR_NULL, // a tri_number, written 1 or 1e-3, or null (not set)
    TRI_OPTION_IS_AMOUNT,        // a tri_amount, written 10 (a count), or 0.5 or 1.0 (a fraction)
    TRI_OPTION_IS_DURATION,      // a double in seconds, written 90, 30s, 10m, 2h or DD:HH:MM:SS
    TRI_OPTION_IS_STRING,        // a const char *, written as text, or as a number read as text
    TRI_OPTION_IS_CHOICE,        // an int or an enum, the index in `choices` of the name written
    TRI_OPTION_IS_INTS,          // a tri_ints, written [1, 2]
    TRI_OPTION_IS_FLOATS,        // a tri_doubles, written [0.9, 0.999]
    TRI_OPTION_IS_STRINGS,       // a tri_strings, written [a, b]
    TRI_OPTION_IS_TREE,          // a const tri_tree * of whatever is written; NULL if that is null
    TRI_OPTION_IS_TABLE,         // the struct of `table`, written as a map
    TRI_OPTION_IS_NAME,          // a const char *, the name of one of the table's variants
    TRI_OPTION_IS_REST,          // a const tri_tree *, a map of all keys without a row; never NULL
} tri_option_type;

enum { TRI_AUTO = -1 };

// Whether an option's text (a text, or each text of a list or map) names a file or folder.
// recipe/paths.h says how such a text is read.
typedef enum tri_option_path {
    TRI_PATH_NONE,      // it does not
    TRI_PATH_ANY,       // it does
    TRI_PATH_OR_NAME,   // it does if it begins with "/", "./", "../", "~/" or "$"
    TRI_PATH_IN_FOLDER, // it does; it starts at the folder of the option `path` beside it, if set
} tri_option_path;

// Whether a run may be continued with another value of the option. For a section, the rule holds
// for all options in it.
typedef enum tri_option_change {
    TRI_CHANGE_NEVER,    // no: the value defines the run
    TRI_CHANGE_ON_ORDER, // yes, if the user says so (train --resume-with)
    TRI_CHANGE_FREELY,   // yes: what the run computes does not depend on the value
} tri_option_change;

typedef struct tri_amount {
    double value; // a whole number if !is_fraction
    bool is_fraction;
} tri_amount;

// Converts the amount to a count: the fraction of `whole`, or the number itself, limited to 0 …
// `whole`.
int64_t tri_amount_of(tri_amount amount, int64_t whole);

// A number that may be missing.
typedef struct tri_number {
    bool is_set;
    double value;
} tri_number;

typedef struct tri_ints {
    const int64_t *items;
    int count;
} tri_ints;

typedef struct tri_doubles {
    const double *items;
    int count;
} tri_doubles;

typedef struct tri_strings {
    const char *const *items;
    int count;
} tri_strings;

typedef struct tri_option_table tri_option_table;

typedef struct tri_option {
    const char *key;
    tri_option_type type;
    size_t offset;
    const char *default_yaml; // YAML text of the default; NULL: the member stays zero
    double min, max; // limits of a number, or of the elements of a list; both are allowed values
    const char *const *choices;    // NULL at the end
    const tri_option_table *table; // table of a nested map
    // Tables of the keys below this row, if these keys depend on a name that the user chooses.
    // There is one table for each possible name, and `section` of the table is the name; NULL at
    // the end. For example, the keys of an element of data.transform depend on the transform's
    // name, and the keys that TRI_OPTION_IS_REST collects in the section `model` depend on
    // model.name. Only the manual reads these tables.
    const tri_option_table *const *kinds;
    int length;       // required length of a list; 0: any
    const char *help; // one line that describes the option
    tri_option_path path;
    tri_option_change change;
    // The value is a list of maps with keys of the section to which the row belongs; where one has
    // no `path`, that of the section holds. For paths and comparisons, which look into them.
    bool holds_sections;
} tri_option;

// A variant: a named kind of a section (optimizer: sgd, adam …) with additional rows for the same
// struct, because each kind has options of its own.
typedef struct tri_option_variant {
    const char *name;
    const tri_option *rows;
    int count;
    const char *help;
} tri_option_variant;

struct tri_option_table {
    const char *section; // "optimizer"; "": the top level of a document
    const char *help;
    size_t size; // size of the struct
    const tri_option *rows;
    int count;
    // The variants, if the table has a row of type TRI_OPTION_IS_NAME, which chooses one. Members
    // of the other variants stay zero.
    const tri_option_variant *variants;
    int variant_count;
    // Called after reading, to check what rows cannot express; may be NULL. `map` is what was read,
    // so that an error can name its line; NULL: the document has no such map.
    tri_status (*check)(const void *options, const tri_tree *map);
};

// Reads `map` (NULL or a null node: all defaults) into *options, which is overwritten. Texts and
// lists to which options point lie in `arena`. TRI_BAD_INPUT: a key is not known (the message has
// the nearest one), or a value has a wrong type or is out of bounds.
tri_status tri_option_decode(tri_arena *arena, const tri_option_table *table, const tri_tree *map,
                             void *options);
// The same for a table whose keys stand in a section of another name: errors name PREFIX.KEY.
tri_status tri_option_decode_under(tri_arena *arena, const char *prefix,
                                   const tri_option_table *table, const tri_tree *map,
                                   void *options);
// Makes a tree of all options with their values, defaults included, in the order of the rows: the
// resolved recipe. Reading this tree gives equal options.
tri_tree *tri_option_encode(tri_arena *arena, const tri_option_table *table, const void *options);
// Describes what a row allows, in words that follow "has to be": "a whole number of at least 1".
// `node`: the value that is rejected; NULL: none.
const char *tri_option_allowed(tri_arena *arena, const tri_option *row, const tri_tree *node);
// Finds the table's first row of this type; NULL: there is none.
const tri_option *tri_option_row_of_type(const tri_option_table *table, tri_option_type type);
// Finds the row of the option at `path`, such as "optimizer.lr", in the table or in any of its
// variants; of a path that leads into an option's own value, such as "data.train.images", that
// option's row. NULL: there is none. *change: whether it may change, by its row and the sections
// that contain it.
const tri_option *tri_option_find(const tri_option_table *table, const char *path,
                                  tri_option_change *change);

// Finds the word of `known` (NULL entries are skipped) that is nearest to `word` by edit distance;
// NULL: none is so near that a typing error is likely.
const char *tri_option_nearest(const char *word, const char *const *known, int count);

// The macros of rows take further members of tri_option behind the help text, such as
// .change = TRI_CHANGE_FREELY.

// A member's offset, with a check at compile time that the member has the type of its row, because
// a row is read through a void pointer.
#define TRI_OPTION_OFFSET(S, member, T)                                                            \
    (offsetof(S, member) +                                                                         \
     0 * sizeof(char[__builtin_types_compatible_p(__typeof__(((S *)0)->member), T) ? 1 : -1]))
#define TRI_OPTION_ROW(S, member, T, kind, text, words, ...)                                       \
    {                                                                                              \
        .key = #member, .type = (kind), .offset = TRI_OPTION_OFFSET(S, member, T),                 \
        .default_yaml = (text), .help = (words), __VA_ARGS__                                       \
    }

#define TRI_OPTION_BOOL(S, member, text, words, ...)                                               \
    TRI_OPTION_ROW(S, member, bool, TRI_OPTION_IS_BOOL, text, words, .max = 0, __VA_ARGS__)
#define TRI_OPTION_INT(S, member, text, least, most, words, ...)                                   \
    TRI_OPTION_ROW(S, member, int64_t, TRI_OPTION_IS_INT, text, words, .min = (double)(least),     \
                   .max = (double)(most), __VA_ARGS__)
#define TRI_OPTION_INT_OR_AUTO(S, member, text, least, most, words, ...)                           \
    TRI_OPTION_ROW(S, member, int64_t, TRI_OPTION_IS_INT_OR_AUTO, text, words,                     \
                   .min = (double)(least), .max = (double)(most), __VA_ARGS__)
#define TRI_OPTION_BOOL_OR_INT(S, member, text, least, most, words, ...)                           \
    TRI_OPTION_ROW(S, member, int64_t, TRI_OPTION_IS_BOOL_OR_INT, text, words,                     \
                   .min = (double)(least), .max = (double)(most), __VA_ARGS__)
#define TRI_OPTION_FLOAT(S, member, text, least, most, words, ...)                                 \
    TRI_OPTION_ROW(S, member, double, TRI_OPTION_IS_FLOAT, text, words, .min = (least),            \
                   .max = (most), __VA_ARGS__)
#define TRI_OPTION_FLOAT_OR_NULL(S, member, least, most, words, ...)                               \
    TRI_OPTION_ROW(S, member, tri_number, TRI_OPTION_IS_FLOAT_OR_NULL, NULL, words,                \
                   .min = (least), .max = (most), __VA_ARGS__)
#define TRI_OPTION_AMOUNT(S, member, text, words, ...)                                             \
    TRI_OPTION_ROW(S, member, tri_amount, TRI_OPTION_IS_AMOUNT, text, words, .max = 1e15,          \
                   __VA_ARGS__)
#define TRI_OPTION_DURATION(S, member, text, words, ...)                                           \
    TRI_OPTION_ROW(S, member, double, TRI_OPTION_IS_DURATION, text, words, .max = 1e9, __VA_ARGS__)
#define TRI_OPTION_STRING(S, member, text, words, ...)                                             \
    TRI_OPTION_ROW(S, member, const char *, TRI_OPTION_IS_STRING, text, words, .max = 0,           \
                   __VA_ARGS__)
#define TRI_OPTION_CHOICE(S, member, text, names, words, ...)                                      \
    {                                                                                              \
        .key = #member, .type = TRI_OPTION_IS_CHOICE, .default_yaml = (text), .choices = (names),  \
        .offset = offsetof(S, member) +                                                            \
                  0 * sizeof(char[sizeof(((S *)0)->member) == sizeof(int) ? 1 : -1]),              \
        .help = (words), __VA_ARGS__                                                               \
    }
#define TRI_OPTION_INTS(S, member, text, least, most, elements, words, ...)                        \
    TRI_OPTION_ROW(S, member, tri_ints, TRI_OPTION_IS_INTS, text, words, .min = (double)(least),   \
                   .max = (double)(most), .length = (elements), __VA_ARGS__)
#define TRI_OPTION_FLOATS(S, member, text, least, most, elements, words, ...)                      \
    TRI_OPTION_ROW(S, member, tri_doubles, TRI_OPTION_IS_FLOATS, text, words, .min = (least),      \
                   .max = (most), .length = (elements), __VA_ARGS__)
#define TRI_OPTION_STRINGS(S, member, text, words, ...)                                            \
    TRI_OPTION_ROW(S, member, tri_strings, TRI_OPTION_IS_STRINGS, text, words, .max = 0,           \
                   __VA_ARGS__)
#define TRI_OPTION_TREE(S, member, text, words, ...)                                               \
    TRI_OPTION_ROW(S, member, const tri_tree *, TRI_OPTION_IS_TREE, text, words, .max = 0,         \
                   __VA_ARGS__)
#define TRI_OPTION_NESTED(S, member, T, nested, words, ...)                                        \
    TRI_OPTION_ROW(S, member, T, TRI_OPTION_IS_TABLE, NULL, words, .table = (nested), __VA_ARGS__)
#define TRI_OPTION_NAME(S, member, text, words, ...)                                               \
    TRI_OPTION_ROW(S, member, const char *, TRI_OPTION_IS_NAME, text, words, .max = 0, __VA_ARGS__)
#define TRI_OPTION_REST(S, member, words)                                                          \
    TRI_OPTION_ROW(S, member, const tri_tree *, TRI_OPTION_IS_REST, NULL, words, .max = 0)

#define TRI_OPTION_COUNT(array) ((int)(sizeof(array) / sizeof *(array)))
#define TRI_OPTION_VARIANT(word, array, words)                                                     \
    { .name = (word), .rows = (array), .count = TRI_OPTION_COUNT(array), .help = (words) }
#define TRI_OPTION_TABLE(word, S, array, words, ...)                                               \
    {                                                                                              \
        .section = (word), .help = (words), .size = sizeof(S), .rows = (array),                    \
        .count = TRI_OPTION_COUNT(array), __VA_ARGS__                                              \
    }

#endif
