// `trireme report`: a page that shows one run, or compares several.
#include "base/os.h"
#include "cli/cli.h"
#include "cli/shown_runs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const cli_flag flags[] = {
    {"html", "FILE", "where the page is written (default: RUN/report.html, of the first run)", 0},
    {"json", NULL, "print the data of the page; it is then written only with --html", 0},
    {0}};

static tri_status write_page(const char *path, const views_report_run *runs, int count) {
    char *page = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&page, &size);
    tri_status status = memory ? views_report_write_page(memory, runs, count) : TRI_NO_MEMORY;
    if ((!memory || fclose(memory) != 0) && status == TRI_OK)
        status = TRI_FAIL(TRI_NO_MEMORY, "%s: no memory for the page", path);
    if (status == TRI_OK) status = tri_os_replace_fleeting(path, page, size);
    free(page);
    return status;
}

static tri_status report(tri_arena *arena, const cli_arguments *a) {
    views_report_run *runs;
    const char *given = cli_value(a, "html");
    TRI_TRY(cli_open_runs(arena, a->words, a->count, &runs));
    const char *path =
        given ? given : tri_arena_printf(arena, "%s/report.html", runs[0].run->folder);
    bool has_page = given || !cli_has(a, "json");
    if (has_page) TRI_TRY(cli_check_output("html", path, NULL));
    if (cli_has(a, "json")) views_report_write_data(stdout, runs, a->count);
    if (has_page) TRI_TRY(write_page(path, runs, a->count));
    if (!cli_has(a, "json")) printf("%s\n", path);
    return TRI_OK;
}

static int run(const cli_context *context, int argc, char **argv) {
    (void)context;
    cli_arguments a;
    int code = cli_parse(&cli_report, argc, argv, &a);
    if (code >= 0) return code;
    if (a.count == 0) return cli_usage(&cli_report, "report: which run folder?");
    tri_arena *arena = tri_arena_create(NULL, "command");
    tri_status status = report(arena, &a);
    code = status == TRI_OK ? 0 : cli_fail(status);
    tri_arena_destroy(arena);
    return code;
}

const cli_command cli_report = {
    .name = "report",
    .arguments = "RUN...",
    .help = "Write a web page that shows a run, or compares several.",
    .flags = flags,
    .more =
        "RUN is the folder of a run, which may still be going on. The page needs no network: it\n"
        "has the curves with marks of resumes and checkpoints, best and last figures, the model,\n"
        "what happened, and the recipe with what differs from the defaults. Of several runs it\n"
        "lays the curves over each other and shows in what the recipes differ.\n",
    .examples = "trireme report runs/mnist-cnn\n"
                "trireme report runs/a runs/b --html compared.html\n"
                "trireme report runs/mnist-cnn --json\n",
    .run = run};
