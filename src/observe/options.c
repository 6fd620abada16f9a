// The option table of the recipe's section `log`, from which recipes are read, checked and
// documented.
#include "observe/options.h"

#include <string.h>

static const tri_option wandb_rows[] = {
    TRI_OPTION_STRING(tri_wandb_options, project, "\"\"",
                      "write an offline run of W&B of this project; empty: none"),
    TRI_OPTION_STRING(tri_wandb_options, group, "\"\"", "the group of the run; empty: none"),
};

static tri_status check_wandb(const void *options, const tri_tree *map) {
    const tri_wandb_options *o = options;
    if (*o->group && !*o->project)
        return tri_tree_fail(map, "log.wandb.group has no effect without log.wandb.project");
    if (strpbrk(o->project, "/\\#?%:"))
        return tri_tree_fail(map, "log.wandb.project: W&B takes no name with one of / \\ # ? %% :");
    return TRI_OK;
}

static const tri_option_table wandb_table =
    TRI_OPTION_TABLE("wandb", tri_wandb_options, wandb_rows,
                     "an offline run in RUN/wandb, for `wandb sync`", .check = check_wandb);

static const tri_option rows[] = {
    TRI_OPTION_BOOL(tri_log_options, tensorboard, "true", "write curves for TensorBoard"),
    TRI_OPTION_BOOL(tri_log_options, csv, "false", "write metrics.csv, a column for each figure"),
    TRI_OPTION_BOOL(tri_log_options, prometheus, "false",
                    "write metrics.prom, the latest figures for Prometheus"),
    TRI_OPTION_NESTED(tri_log_options, wandb, tri_wandb_options, &wandb_table,
                      "an offline run of W&B in RUN/wandb, for `wandb sync`"),
    TRI_OPTION_BOOL(tri_log_options, progress, "true", "show progress on standard error"),
    TRI_OPTION_BOOL(tri_log_options, summary, "true",
                    "show a table of the model's blocks at the start, on standard error"),
    TRI_OPTION_BOOL(tri_log_options, samples, "false",
                    "write which samples each step takes to logs/samples-rank-N.jsonl"),
};

const tri_option_table tri_log_table =
    TRI_OPTION_TABLE("log", tri_log_options, rows, "what to write besides metrics.jsonl");
