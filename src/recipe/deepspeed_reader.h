// Reads the keys of a DeepSpeed configuration by a table that says what each becomes in a recipe.
#ifndef TRIREME_RECIPE_DEEPSPEED_READER_H
#define TRIREME_RECIPE_DEEPSPEED_READER_H

#include "recipe/deepspeed_settings.h"

typedef struct deepspeed_reader {
    tri_arena *arena;
    const char *file;
    const tri_tree *root;
    tri_deepspeed *out;
    bool is_disabled; // inside a section with enabled: false, whose keys are checked but not used
    int64_t train, micro, accumulation; // sizes of a batch; 0: not given
    bool has_auto_train;                // train_batch_size is auto: the recipe's batch.global holds
    const char *precision, *precision_key;
    const char *offload_key; // NULL: none
    bool offloads_parameters, offloads_to_file;
    const char *nvme_path, *nvme_key; // NULL: not given
    const char **idle;                // keys that have no effect here
    int idle_count, idle_capacity;
    tri_strings notes;
} deepspeed_reader;

typedef struct deepspeed_row deepspeed_row;
typedef tri_status deepspeed_convert(deepspeed_reader *reader, const deepspeed_row *row,
                                     const char *path, tri_tree *node);

// One key of DeepSpeed's, and what becomes of it. A key without `to`, `convert` and `refusal` is
// accepted and has no effect.
struct deepspeed_row {
    const char *key;            // its path below the table's section; "section.*": all keys there
    const char *to;             // the recipe's key for the same value
    deepspeed_convert *convert; // reads a value that is not simply copied; also called for "auto"
    const char *refusal;        // not supported: what to do instead
    const char *harmless;       // the value that is accepted although the key is refused
};

typedef struct deepspeed_table {
    const deepspeed_row *rows;
    int count;
} deepspeed_table;

// Reads all keys of `map`, which lies at `section` ("zero_optimization." or "") of the
// configuration; `below` is its path within the table.
tri_status deepspeed_walk(deepspeed_reader *reader, const deepspeed_table *table,
                          const char *section, const char *below, const tri_tree *map);
// Adds a setting, unless the section is disabled, whose keys then mean nothing.
void deepspeed_add(deepspeed_reader *reader, tri_deepspeed_setting setting);
// Sets the recipe's `key`, because of the configuration's key at `path`.
void deepspeed_set(deepspeed_reader *reader, const char *key, const char *path, tri_tree *value);
// Sets the recipe's `key` to DeepSpeed's default where this program has another one, unless the
// recipe sets the key.
void deepspeed_fall_back(deepspeed_reader *reader, const char *key, tri_tree *value);
// Returns TRI_BAD_INPUT with the message "file: 'path' …".
tri_status deepspeed_fail(const deepspeed_reader *reader, const char *path, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool deepspeed_is_auto(const tri_tree *node);

#endif
