// The option table of the recipe's section `log`, from which recipes are read, checked and
// documented.
#include "observe/options.h"

static const tri_option rows[] = {
    TRI_OPTION_BOOL(tri_log_options, tensorboard, "true", "write curves for TensorBoard"),
    TRI_OPTION_BOOL(tri_log_options, csv, "false", "write metrics.csv, a column for each figure"),
    TRI_OPTION_BOOL(tri_log_options, prometheus, "false",
                    "write metrics.prom, the latest figures for Prometheus"),
    TRI_OPTION_BOOL(tri_log_options, progress, "true", "show progress on standard error"),
    TRI_OPTION_BOOL(tri_log_options, summary, "true",
                    "show a table of the model's blocks at the start, on standard error"),
    TRI_OPTION_BOOL(tri_log_options, samples, "false",
                    "write which samples each step takes to logs/samples-rank-N.jsonl"),
};

const tri_option_table tri_log_table =
    TRI_OPTION_TABLE("log", tri_log_options, rows, "what to write besides metrics.jsonl");
