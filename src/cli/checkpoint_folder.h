// Exports of checkpoints to folders.
#ifndef TRIREME_CLI_CHECKPOINT_FOLDER_H
#define TRIREME_CLI_CHECKPOINT_FOLDER_H

#include "cli/cli.h"

// Exports the checkpoint that words[1] names to the folder of --huggingface. TRI_BAD_INPUT: there
// is something, or no model of Hugging Face's has the options of this one.
tri_status cli_export_folder(const cli_context *context, tri_arena *arena, const cli_arguments *a);

#endif
