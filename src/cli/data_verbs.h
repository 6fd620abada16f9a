// The verbs of `trireme data` that have a file of their own.
#ifndef TRIREME_CLI_DATA_VERBS_H
#define TRIREME_CLI_DATA_VERBS_H

#include "cli/cli.h"

// Reads --split; without it, the training data.
tri_status cli_data_split(const cli_arguments *arguments, tri_data_split *out);

tri_status cli_data_check(const cli_arguments *arguments, const char *path,
                          const tri_recipe *recipe);
tri_status cli_data_stats(const cli_arguments *arguments, const char *path,
                          const tri_recipe *recipe);
// `path`: the recipe's file, which is not overwritten.
tri_status cli_data_dump(const cli_arguments *arguments, const char *path,
                         const tri_recipe *recipe);
// Makes tokens of the lines of standard input, or with --decode lines of tokens.
tri_status cli_data_tokenize(const cli_arguments *arguments);

tri_status cli_data_get(const cli_arguments *arguments);

tri_status cli_data_convert(const cli_arguments *arguments, const char *path,
                            const tri_recipe *recipe);

#endif
