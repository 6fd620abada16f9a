// Exports of checkpoints to folders, and of exported networks.
#ifndef TRIREME_CLI_CHECKPOINT_FOLDER_H
#define TRIREME_CLI_CHECKPOINT_FOLDER_H

#include "cli/cli.h"

// Exports the checkpoint that words[1] names to the folder of --huggingface. TRI_BAD_INPUT: there
// is something, or no model of Hugging Face's has the options of this one.
tri_status cli_export_folder(const cli_context *context, tri_arena *arena, const cli_arguments *a);
// Finds the file of the exported network of which the checkpoint that words[1] names is: what
// --program says, or the recipe. *out NULL: it is of another model. TRI_NOT_FOUND: the file is not
// there.
tri_status cli_find_program(const cli_context *context, tri_arena *arena, const cli_arguments *a,
                            const char **out);

#endif
