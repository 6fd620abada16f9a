// What `trireme generate` needs of a model: its recipe, weights, tokenizer and end marks.
#ifndef TRIREME_CLI_GENERATE_MODEL_H
#define TRIREME_CLI_GENERATE_MODEL_H

#include "cli/cli.h"

enum { CLI_MAX_ENDS = 16 };

typedef struct cli_text_model {
    tri_recipe recipe;
    const char *checkpoint;
    const char *tokenizer;      // NULL: a token is a byte
    int64_t ends[CLI_MAX_ENDS]; // tokens behind which a text ends
    int end_count;
} cli_text_model;

// Finds the model that the command line names: a folder of Hugging Face's, a run's folder, or a
// recipe, with overrides behind it. TRI_BAD_INPUT: it has no weights or no tokenizer.
tri_status cli_find_text_model(tri_arena *arena, const cli_context *context, const cli_arguments *a,
                               cli_text_model *out);
// As cli_find_text_model, but finds no tokenizer and no end marks, because the tokens mean nothing.
tri_status cli_find_text_weights(tri_arena *arena, const cli_context *context,
                                 const cli_arguments *a, cli_text_model *out);

// The file `name` in the folder `path`, or beside the file `path`; NULL: it is not there.
const char *cli_beside(tri_arena *arena, const char *path, const char *name);
// The tokenizer there; NULL: there is none, or `path` is NULL.
const char *cli_find_tokenizer(tri_arena *arena, const char *path);
// Finds what generation_config.json or config.json says of a token such as eos_token_id, beside the
// weights or the tokenizer. *out: NULL or a null node if they say nothing.
tri_status cli_find_id(tri_arena *arena, const cli_text_model *model, const char *key,
                       const tri_tree **out);
// Fills in model->ends.
tri_status cli_find_ends(tri_arena *arena, cli_text_model *model);

#endif
