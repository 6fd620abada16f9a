// `trireme preflight`: checks, before a run, whether a job's hosts are fit for it, and prints for
// each check whether it says go or no-go. This file reads the command line and prints the results;
// src/preflight measures and judges. The store is the key-value service at which the ranks meet.
#include "cli/cli.h"
#include "cli/connect.h"

#include "base/log.h"
#include "device/choose.h"
#include "preflight/preflight.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *colour_of(preflight_verdict verdict) {
    return verdict == PREFLIGHT_NO_GO ? "\033[31m" : verdict == PREFLIGHT_GO ? "\033[32m" : "";
}

static void print_table(const preflight_report *report) {
    bool coloured = isatty(STDOUT_FILENO) && !getenv("NO_COLOR");
    printf("%s on %s", tri_counted(report->ranks, "rank"),
           report->hosts ? tri_counted(report->hosts, "host") : "unknown hosts");
    if (report->ranks > 1)
        printf(" (%s%s%s)", report->launcher, report->backend[0] ? ", " : "", report->backend);
    printf("\n");
    for (int i = 0; i < report->row_count; i++) {
        const preflight_row *row = &report->rows[i];
        const char *colour = coloured ? colour_of(row->verdict) : "";
        printf("  %-12s %s%-8s%s %s\n", row->name, colour, preflight_verdict_name(row->verdict),
               *colour ? "\033[0m" : "", row->summary);
    }
    if (report->failed)
        printf("no-go: %s failed\n", tri_counted(report->failed, "check"));
    else
        printf("go\n");
}

static void print_json(tri_arena *arena, const preflight_report *report) {
    tri_tree *root = tri_tree_map(arena), *hosts = tri_tree_list(arena),
             *checks = tri_tree_list(arena);
    tri_tree_put(arena, root, "go", tri_tree_bool(arena, report->failed == 0));
    tri_tree_put(arena, root, "ranks", tri_tree_int(arena, report->ranks));
    tri_tree_put(arena, root, "launcher", tri_tree_string(arena, report->launcher));
    tri_tree_put(arena, root, "backend", tri_tree_string(arena, report->backend));
    for (int h = 0; h < report->hosts; h++)
        tri_tree_append(arena, hosts, tri_tree_string(arena, report->host_names[h]));
    tri_tree_put(arena, root, "hosts", hosts);
    for (int i = 0; i < report->row_count; i++) {
        const preflight_row *row = &report->rows[i];
        tri_tree *entry = tri_tree_map(arena);
        tri_tree_put(arena, entry, "name", tri_tree_string(arena, row->name));
        tri_tree_put(arena, entry, "verdict",
                     tri_tree_string(arena, preflight_verdict_name(row->verdict)));
        tri_tree_put(arena, entry, "summary", tri_tree_string(arena, row->summary));
        tri_tree_put(arena, entry, "failure",
                     row->failure ? tri_tree_string(arena, row->failure) : tri_tree_null(arena));
        tri_tree_put(arena, entry, "values", row->values ? row->values : tri_tree_null(arena));
        tri_tree_append(arena, checks, entry);
    }
    tri_tree_put(arena, root, "checks", checks);
    printf("%s\n", tri_json_emit(arena, root));
}

static void print_limits(void) {
    const preflight_limit_row *row;
    for (int i = 0; (row = preflight_limit(i)); i++)
        printf("%-17s %6g  %s: %s\n", row->name, row->value, row->what, row->why);
}

static const cli_flag flags[] = {
    {"run-dir", "DIR", "the run folder of the run that follows (runs)", 0},
    CLI_DEVICE_FLAG("the device that will compute"),
    {"timeout", "S", "seconds to wait for ranks that do not arrive or answer (30)", 0},
    {"limits", NULL, "list the limits with their reasons", 0},
    {"json", NULL, "print one JSON object instead of the table", 0},
    {0}};

static tri_status read_request(const cli_arguments *a, preflight_request *out) {
    const char *timeout = cli_value(a, "timeout"), *folder = cli_value(a, "run-dir");
    *out = (preflight_request){.devices = cli_backends.devices,
                               .connect = cli_open_comm_after,
                               .device = cli_has(a, "device") ? cli_value(a, "device") : "auto",
                               .run_dir = folder ? folder : "runs",
                               .timeout_s = 30,
                               .limits = preflight_limits_default()};
    for (int i = 0; i < a->count; i++) TRI_TRY(preflight_limits_set(&out->limits, a->words[i]));
    // A wrong name of a device is bad usage, but a device that is missing is a failed check.
    tri_device_description device;
    if (tri_device_describe(cli_backends.devices, out->device, &device) == TRI_BAD_INPUT)
        return TRI_BAD_INPUT;
    if (!timeout) return TRI_OK;
    char *end;
    out->timeout_s = strtod(timeout, &end);
    if (*end || !(out->timeout_s >= 1 && out->timeout_s <= 86400))
        return TRI_FAIL(TRI_BAD_INPUT,
                        "--timeout: '%.40s' is not a number of seconds from 1 to "
                        "86400",
                        timeout);
    return TRI_OK;
}

// Whether this rank prints the failure. Rank 0 prints for all ranks of which it knows: those that
// have reached the store. If rank 0 itself is missing, rank 1 prints that. Of ranks that have not
// reached the store, the first one of each host prints its failure. It does not print that other
// ranks "did not arrive", because rank 0 or rank 1 does.
static bool prints(const preflight_report *report, const char *failure) {
    if (report->rank == 0 || report->status == TRI_OK) return report->rank == 0;
    bool lacks_rank_0 = !report->has_met || report->status == TRI_PEER_LOST;
    if (report->rank == 1 && lacks_rank_0 && strstr(failure, "rank 0 ")) return true;
    return !report->has_met && report->is_first && !strstr(failure, "did not arrive");
}

// Prints one line for each failed check. Returns one line about all of them; NULL: none has failed.
static const char *print_failures(tri_arena *arena, const preflight_report *report) {
    const char *all = NULL;
    for (int i = 0; i < report->row_count; i++) {
        const preflight_row *row = &report->rows[i];
        if (!row->failure) continue;
        if (prints(report, row->failure))
            tri_log_line(TRI_LOG_ERROR, "%s: %s%s%s", row->name, report->rank ? report->host : "",
                         report->rank ? ": " : "", row->failure);
        all = tri_arena_printf(arena, "%s %s", all ? all : "preflight: no-go:", row->name);
    }
    return all;
}

static tri_status check_job(tri_arena *arena, const cli_arguments *a, int *code) {
    preflight_request request;
    preflight_report report;
    preflight *session = NULL;
    int cores;
    TRI_TRY(read_request(a, &request));
    TRI_TRY(cli_bind_rank(&cores));
    TRI_TRY(preflight_run(arena, &request, &report, &session));
    if (report.rank == 0) {
        if (cli_has(a, "json"))
            print_json(arena, &report);
        else
            print_table(&report);
        fflush(stdout);
    }
    const char *failures = print_failures(arena, &report);
    // Called after printing: preflight_end lets all ranks go on and exit, and a launcher may stop
    // the remaining ranks as soon as one has exited with a failure.
    preflight_end(session);
    *code = failures ? cli_fail_printed(report.status ? report.status : TRI_IO, failures) : 0;
    return TRI_OK;
}

static int run(const cli_context *context, int argc, char **argv) {
    (void)context;
    cli_arguments a;
    int code = cli_parse(&cli_preflight, argc, argv, &a);
    if (code >= 0) return code;
    if (cli_has(&a, "limits")) return print_limits(), 0;
    tri_arena *arena = tri_arena_create(NULL, "command");
    tri_status status = check_job(arena, &a, &code);
    tri_arena_destroy(arena);
    return status == TRI_OK ? code : cli_fail(status);
}

const cli_command cli_preflight = {
    .name = "preflight",
    .arguments = "[LIMIT=VALUE ...]",
    .help = "Check within seconds whether the hosts of a job are fit for a run.",
    .flags = flags,
    .more =
        "Under any launcher, or alone. Exit code 0: go; 1: no-go, with one line for each check\n"
        "that failed. Nothing stays in the run folder; if it is missing, the nearest folder\n"
        "above it is used. --limits lists what separates go from no-go; space_gb=500 sets one.\n",
    .examples = "trireme preflight\n"
                "trireme preflight --run-dir runs/mnist-cnn space_gb=20 --json\n"
                "trireme run --standalone --nproc-per-node 2 trireme preflight\n",
    .run = run};
