// Reads the keys of a DeepSpeed configuration by a table that tells what each key becomes in a
// recipe.
#ifndef TRIREME_RECIPE_DEEPSPEED_READER_H
#define TRIREME_RECIPE_DEEPSPEED_READER_H

#include "recipe/deepspeed_settings.h"

typedef struct deepspeed_reader {
    tri_arena *arena;
    const char *file;
    const tri_tree *root;
    tri_deepspeed *out;
    bool is_disabled; // the section being read has enabled: false: keys are only checked, not used
    // The values of train_batch_size, train_micro_batch_size_per_gpu and
    // gradient_accumulation_steps; 0: not given.
    int64_t train, micro, accumulation;
    bool has_auto_train; // train_batch_size is auto, so the recipe's batch.global is used
    const char *precision, *precision_key;
    const char *offload_key; // path of the key that asks for offload; NULL: none does
    bool offloads_parameters, offloads_to_file;
    // The folder for offloaded state, and the path of the key that names it; NULL: not given.
    const char *nvme_path, *nvme_key;
    const char **idle; // keys that have no effect in this program
    int idle_count, idle_capacity;
    tri_strings notes;
} deepspeed_reader;

typedef struct deepspeed_row deepspeed_row;
typedef tri_status deepspeed_convert(deepspeed_reader *reader, const deepspeed_row *row,
                                     const char *path, tri_tree *node);

// One key of DeepSpeed, and what it becomes. A key without `to`, `convert` and `refusal` is
// accepted and has no effect.
struct deepspeed_row {
    // Path of the key, counted from the part of the configuration that the table covers:
    // "zero_optimization.stage" in the table of the whole configuration, "lr" in a table for
    // "optimizer.params.". A path that ends with ".*", such as "pipeline.*", stands for all keys of
    // that section that no earlier row has.
    const char *key;
    const char *to;             // the recipe's key that gets the same value
    deepspeed_convert *convert; // handles a value that is not simply copied; also called for "auto"
    const char *refusal;        // what to do instead, if the key is not supported
    const char *harmless;       // a value that is accepted although the key is not supported
};

typedef struct deepspeed_table {
    const deepspeed_row *rows;
    int count;
} deepspeed_table;

// Reads all keys of `map`, which is one section of the configuration. Two prefixes, which end with
// a dot or are "", say where the section is: `section` in the configuration, for messages; `below`
// in the table's keys. Usually they are equal, for example "zero_optimization.". But each optimizer
// has a table of its own for "optimizer.params.", in which `below` is "".
tri_status deepspeed_walk(deepspeed_reader *reader, const deepspeed_table *table,
                          const char *section, const char *below, const tri_tree *map);
// Adds a setting, unless it comes from a disabled section, whose keys have no effect.
void deepspeed_add(deepspeed_reader *reader, tri_deepspeed_setting setting);
// Sets the recipe's `key`, because the configuration has the key at `path`.
void deepspeed_set(deepspeed_reader *reader, const char *key, const char *path, tri_tree *value);
// Sets the recipe's `key` to DeepSpeed's default, for keys whose default is different in this
// program. It has no effect if the recipe sets the key.
void deepspeed_fall_back(deepspeed_reader *reader, const char *key, tri_tree *value);
// Notes that the key at `path`, which sets the recipe's `key`, is "auto".
void deepspeed_leave(deepspeed_reader *reader, const char *key, const char *path);
// Returns TRI_BAD_INPUT with the message "file: 'path' …".
tri_status deepspeed_fail(const deepspeed_reader *reader, const char *path, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool deepspeed_is_auto(const tri_tree *node);

#endif
