// Checks the hosts' clocks: how far each differs from the clock of rank 0's host, measured by round
// trips as NTP does. Traces of several hosts are joined by these clocks.
#include "preflight/judge.h"
#include "preflight/state.h"

#include "base/os.h"
#include "base/quantity.h"

#include <math.h>

enum { ROUND_TRIPS = 16 };

static const char *skips(const preflight *p) { return p->host_count < 2 ? "one host" : NULL; }

// Measures, on rank 0, how far the clock of another host is ahead of this host's, by round trips
// with that host's first rank. If the check is measured again, the result with the smallest
// uncertainty is kept.
static tri_status ask(preflight *p, int rank, preflight_clock *best) {
    preflight_clock now;
    preflight_tick ticks[ROUND_TRIPS];
    for (int i = 0; i < ROUND_TRIPS; i++) {
        int64_t question = i, answer;
        ticks[i].sent_ns = tri_os.realtime_ns();
        TRI_TRY(preflight_send(p, rank, &question, sizeof question));
        TRI_TRY(preflight_recv(p, rank, &answer, sizeof answer));
        ticks[i].received_ns = tri_os.realtime_ns();
        ticks[i].other_ns = answer;
    }
    now.uncertainty_s = preflight_clock_offset(ticks, ROUND_TRIPS, &now.offset_s);
    if (now.uncertainty_s < best->uncertainty_s) *best = now;
    return TRI_OK;
}

static tri_status answer(preflight *p) {
    for (int i = 0; i < ROUND_TRIPS; i++) {
        int64_t question;
        TRI_TRY(preflight_recv(p, 0, &question, sizeof question));
        int64_t now_ns = tri_os.realtime_ns();
        TRI_TRY(preflight_send(p, 0, &now_ns, sizeof now_ns));
    }
    return TRI_OK;
}

static tri_status measure(preflight *p) {
    if (!p->clocks) {
        p->clocks = TRI_NEW_ARRAY(p->arena, preflight_clock, p->host_count);
        for (int h = 1; h < p->host_count; h++) p->clocks[h].uncertainty_s = INFINITY;
    }
    for (int h = 1; h < p->host_count; h++) {
        if (p->identity.rank == 0) TRI_TRY(ask(p, p->first[h], &p->clocks[h]));
        if (p->identity.rank == p->first[h]) TRI_TRY(answer(p));
    }
    return tri_comm_run(p->comm, &(tri_comm_op){.kind = TRI_COMM_BROADCAST,
                                                .dtype = TRI_U8,
                                                .count = p->host_count * (int)sizeof *p->clocks,
                                                .send = p->clocks,
                                                .recv = p->clocks,
                                                .label = "clocks"});
}

static void judge(preflight *p, preflight_row *row) {
    double most = 0, uncertainty = 0;
    preflight_list off = {.arena = p->arena};
    row->values = tri_tree_list(p->arena);
    for (int h = 0; h < p->host_count; h++) {
        const preflight_clock *c = &p->clocks[h];
        tri_tree *entry = tri_tree_map(p->arena);
        tri_tree_put(p->arena, entry, "host", tri_tree_string(p->arena, p->host_names[h]));
        tri_tree_put(p->arena, entry, "ahead_s", tri_tree_double(p->arena, c->offset_s));
        tri_tree_put(p->arena, entry, "uncertainty_s", tri_tree_double(p->arena, c->uncertainty_s));
        tri_tree_append(p->arena, row->values, entry);
        if (fabs(c->offset_s) > most) most = fabs(c->offset_s);
        if (c->uncertainty_s > uncertainty) uncertainty = c->uncertainty_s;
        if (fabs(c->offset_s) - c->uncertainty_s > p->request->limits.clock_s)
            preflight_list_add(&off, "that of %s is %s %s", p->host_names[h],
                               tri_duration_text(fabs(c->offset_s)),
                               c->offset_s > 0 ? "ahead" : "behind");
    }
    row->summary =
        tri_arena_printf(p->arena, "at most %s from that of %s, known to %s",
                         tri_duration_text(most), p->host_names[0], tri_duration_text(uncertainty));
    if (off.count)
        preflight_fail(p, row, "compared with the clock of %s, %s; set them by NTP",
                       p->host_names[0], preflight_list_text(&off));
}

const preflight_check preflight_clocks = {
    .name = "clock", .attempts = 2, .skips = skips, .measure = measure, .judge = judge};
