// `trireme export`: writes a run in another form.
#include "cli/cli.h"
#include "cli/shown_runs.h"
#include "views/csv.h"

static const cli_flag flags[] = {
    {"csv", "FILE", "a table with a row for each kind and step, a column for each figure", 0}, {0}};

static tri_status export_run(tri_arena *arena, const cli_arguments *a) {
    views_report_run *runs;
    const char *csv = cli_value(a, "csv");
    TRI_TRY(cli_check_output("csv", csv, NULL));
    TRI_TRY(cli_open_runs(arena, a->words, 1, &runs));
    return views_csv_write(runs[0].run, csv);
}

static int run(const cli_context *context, int argc, char **argv) {
    (void)context;
    cli_arguments a;
    int code = cli_parse(&cli_export, argc, argv, &a);
    if (code >= 0) return code;
    if (a.count != 1) return cli_usage(&cli_export, "export: which run folder?");
    if (!cli_has(&a, "csv")) return cli_usage(&cli_export, "export: in which form? --csv FILE");
    tri_arena *arena = tri_arena_create(NULL, "command");
    tri_status status = export_run(arena, &a);
    code = status == TRI_OK ? 0 : cli_fail(status);
    tri_arena_destroy(arena);
    return code;
}

const cli_command cli_export = {
    .name = "export",
    .arguments = "RUN --csv FILE",
    .help = "Write a run's curves as a table for other programs.",
    .flags = flags,
    .more = "RUN is the folder of a run, which may still be going on. The table's columns are\n"
            "kind (train, val, test), step, wall_s and the figures. log.csv=true writes the same\n"
            "table while a run goes on, as metrics.csv in its folder.\n",
    .examples = "trireme export runs/mnist-cnn --csv curves.csv\n",
    .run = run};
