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

#endif
