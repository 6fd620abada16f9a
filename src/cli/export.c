// `trireme export`: writes a run in another form.
#include "cli/cli.h"
#include "cli/shown_runs.h"
#include "views/csv.h"
#include "views/wandb.h"

#include <stdio.h>

static const cli_flag flags[] = {
    {"csv", "FILE", "a table with a row for each kind and step, a column for each figure", 0},
    {"wandb", "DIR", "an offline run of Weights & Biases, in a folder of its own in DIR", 0},
    {0}};

static tri_status export_run(tri_arena *arena, const cli_arguments *a) {
    views_report_run *runs;
    const char *csv = cli_value(a, "csv"), *wandb = cli_value(a, "wandb"), *folder;
    if (csv) TRI_TRY(cli_check_output("csv", csv, NULL));
    TRI_TRY(cli_open_runs(arena, a->words, 1, &runs));
    const views_run *run = runs[0].run;
    if (csv) TRI_TRY(views_csv_write(run, csv));
    if (!wandb) return TRI_OK;
    TRI_TRY(views_wandb_write(arena, run, wandb, &folder));
    printf("%s\n", folder);
    return TRI_OK;
}

static int run(const cli_context *context, int argc, char **argv) {
    (void)context;
    cli_arguments a;
    int code = cli_parse(&cli_export, argc, argv, &a);
    if (code >= 0) return code;
    if (a.count != 1) return cli_usage(&cli_export, "export: which run folder?");
    if (!cli_has(&a, "csv") && !cli_has(&a, "wandb"))
        return cli_usage(&cli_export, "export: in which form? --csv FILE or --wandb DIR");
    tri_arena *arena = tri_arena_create(NULL, "command");
    tri_status status = export_run(arena, &a);
    code = status == TRI_OK ? 0 : cli_fail(status);
    tri_arena_destroy(arena);
    return code;
}

const cli_command cli_export = {
    .name = "export",
    .arguments = "RUN --csv FILE | --wandb DIR",
    .help = "Write a run's curves for other programs.",
    .flags = flags,
    .more =
        "RUN is the folder of a run, which may still be going on. The table's columns are\n"
        "kind (train, val, test), step, wall_s and the figures. log.csv=true writes the same\n"
        "table while a run goes on, as metrics.csv in its folder.\n"
        "The folder of an offline run is printed, for `wandb sync FOLDER`. Its project and group\n"
        "are log.wandb.project (else trireme) and log.wandb.group of the run's recipe; exported\n"
        "again, it has the same id.\n",
    .examples = "trireme export runs/mnist-cnn --csv curves.csv\n"
                "trireme export runs/mnist-cnn --wandb wandb\n",
    .run = run};
