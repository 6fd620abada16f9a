// `trireme trace`: sums up the times in a file that --trace has written, by kind of action
// (FORWARD), by action (FORWARD conv1) and by rank.
#include "base/quantity.h"
#include "cli/cli.h"
#include "observe/trace_sums.h"

#include <stdio.h>

enum { MOST_NAMES = 20 };

// Computes which fraction of all ranks' time `seconds` is.
static double fraction_of(const tri_trace_sums *s, double seconds) {
    double all = s->span_s * s->rank_count;
    return all > 0 ? seconds / all : 0;
}

static void print_sums(const tri_trace_sums *s, const char *what, const tri_trace_sum *sums,
                       int count) {
    printf("\n%-32s %-10s %10s %12s %11s %7s\n", what, "lane", "count", "ms", "us each", "of time");
    for (int i = 0; i < count && i < MOST_NAMES; i++)
        printf("%-32s %-10s %10s %12.3f %11.1f %6.1f%%\n", sums[i].name, sums[i].lane,
               tri_grouped((double)sums[i].count), sums[i].seconds * 1e3,
               sums[i].seconds * 1e6 / (double)sums[i].count,
               100 * fraction_of(s, sums[i].seconds));
    if (count > MOST_NAMES) printf("... %d more; --json has all\n", count - MOST_NAMES);
}

static void print_text(const char *path, const tri_trace_sums *s) {
    printf("%s: %s actions of %s in %s\n", path, tri_grouped((double)s->events),
           tri_counted(s->rank_count, "rank"), tri_duration_text(s->span_s));
    print_sums(s, "action", s->kinds, s->kind_count);
    print_sums(s, "action of", s->names, s->name_count);
    printf("\n%-6s %12s %12s %8s\n", "rank", "busy ms", "waiting ms", "waiting");
    for (int i = 0; i < s->rank_count; i++)
        printf("%-6d %12.3f %12.3f %7.1f%%\n", s->ranks[i].rank, s->ranks[i].busy_s * 1e3,
               s->ranks[i].waiting_s * 1e3,
               s->span_s > 0 ? 100 * s->ranks[i].waiting_s / s->span_s : 0);
    printf("\nlongest gaps of compute lanes\n%-6s %12s %12s   between\n", "rank", "at ms", "ms");
    for (int i = 0; i < s->gap_count; i++)
        printf("%-6d %12.3f %12.3f   %s and %s%s%s\n", s->gaps[i].rank, s->gaps[i].begin_s * 1e3,
               s->gaps[i].seconds * 1e3, s->gaps[i].before, s->gaps[i].after,
               *s->gaps[i].wait ? ": " : "", s->gaps[i].wait);
}

static tri_tree *sums_tree(tri_arena *arena, const tri_trace_sums *s, const tri_trace_sum *sums,
                           int count) {
    tri_tree *list = tri_tree_list(arena);
    for (int i = 0; i < count; i++) {
        tri_tree *map = tri_tree_map(arena);
        tri_tree_put(arena, map, "name", tri_tree_string(arena, sums[i].name));
        tri_tree_put(arena, map, "lane", tri_tree_string(arena, sums[i].lane));
        tri_tree_put(arena, map, "count", tri_tree_int(arena, sums[i].count));
        tri_tree_put(arena, map, "seconds", tri_tree_double(arena, sums[i].seconds));
        tri_tree_put(arena, map, "share", tri_tree_double(arena, fraction_of(s, sums[i].seconds)));
        tri_tree_put(arena, map, "bytes", tri_tree_int(arena, sums[i].bytes));
        tri_tree_append(arena, list, map);
    }
    return list;
}

static void print_json(tri_arena *arena, const tri_trace_sums *s) {
    tri_tree *map = tri_tree_map(arena), *ranks = tri_tree_list(arena);
    tri_tree *gaps = tri_tree_list(arena);
    tri_tree_put(arena, map, "span_s", tri_tree_double(arena, s->span_s));
    tri_tree_put(arena, map, "events", tri_tree_int(arena, s->events));
    tri_tree_put(arena, map, "actions", sums_tree(arena, s, s->kinds, s->kind_count));
    tri_tree_put(arena, map, "names", sums_tree(arena, s, s->names, s->name_count));
    for (int i = 0; i < s->rank_count; i++) {
        tri_tree *rank = tri_tree_map(arena);
        tri_tree_put(arena, rank, "rank", tri_tree_int(arena, s->ranks[i].rank));
        tri_tree_put(arena, rank, "busy_s", tri_tree_double(arena, s->ranks[i].busy_s));
        tri_tree_put(arena, rank, "waiting_s", tri_tree_double(arena, s->ranks[i].waiting_s));
        tri_tree_append(arena, ranks, rank);
    }
    tri_tree_put(arena, map, "ranks", ranks);
    for (int i = 0; i < s->gap_count; i++) {
        tri_tree *gap = tri_tree_map(arena);
        tri_tree_put(arena, gap, "rank", tri_tree_int(arena, s->gaps[i].rank));
        tri_tree_put(arena, gap, "begin_s", tri_tree_double(arena, s->gaps[i].begin_s));
        tri_tree_put(arena, gap, "seconds", tri_tree_double(arena, s->gaps[i].seconds));
        tri_tree_put(arena, gap, "before", tri_tree_string(arena, s->gaps[i].before));
        tri_tree_put(arena, gap, "after", tri_tree_string(arena, s->gaps[i].after));
        tri_tree_put(arena, gap, "wait", tri_tree_string(arena, s->gaps[i].wait));
        tri_tree_append(arena, gaps, gap);
    }
    tri_tree_put(arena, map, "gaps", gaps);
    printf("%s\n", tri_json_emit(arena, map));
}

static const cli_flag flags[] = {{"json", NULL, "print everything as one JSON object", 0}, {0}};

static int run(const cli_context *context, int argc, char **argv) {
    (void)context;
    cli_arguments a;
    int code = cli_parse(&cli_trace, argc, argv, &a);
    if (code >= 0) return code;
    if (a.count != 1) return cli_usage(&cli_trace, "trace: which file?");
    tri_arena *arena = tri_arena_create(NULL, "command");
    tri_trace_sums sums;
    tri_status status = tri_trace_sum_file(arena, a.words[0], &sums);
    if (status == TRI_OK && cli_has(&a, "json"))
        print_json(arena, &sums);
    else if (status == TRI_OK)
        print_text(a.words[0], &sums);
    code = status == TRI_OK ? 0 : cli_fail(status);
    tri_arena_destroy(arena);
    return code;
}

const cli_command cli_trace = {
    .name = "trace",
    .arguments = "FILE",
    .help = "Sum up a trace: time by action and rank, waiting, the longest gaps.",
    .flags = flags,
    .more =
        "FILE was written by train --trace or bench train --trace. An action's time leaves out\n"
        "the actions inside it; percentages are of the time of all ranks. A rank waits in WAIT,\n"
        "for other ranks or its device, and between its actions.\n",
    .examples = "trireme trace run.json\n"
                "trireme trace run.json --json\n",
    .run = run};
