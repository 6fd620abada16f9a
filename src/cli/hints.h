// After a run, prints the commands that a user may want next.
#ifndef TRIREME_CLI_HINTS_H
#define TRIREME_CLI_HINTS_H

#include "cli/cli.h"
#include "train/train.h"

typedef struct cli_hints {
    const cli_context *context;
    const tri_train_request *request;
    const tri_train_result *result;
    const cli_arguments *arguments; // the arguments of the command that made the run
} cli_hints;

void cli_print_hints(const cli_hints *hints);

#endif
