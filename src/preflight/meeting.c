// The first check: whether all ranks arrive and can be connected, and which of them share a host.
// All other checks need this.
#include "preflight/state.h"

#include "base/os.h"
#include "base/quantity.h"

#include <string.h>

static void number_hosts(preflight *p, const tri_host_claim *claims) {
    int ranks = p->identity.size;
    p->host_of = TRI_NEW_ARRAY(p->arena, int, ranks);
    p->first = TRI_NEW_ARRAY(p->arena, int, ranks);
    p->local_ranks = TRI_NEW_ARRAY(p->arena, int, ranks);
    p->host_names = TRI_NEW_ARRAY(p->arena, const char *, ranks);
    for (int r = 0; r < ranks; r++) {
        int host = 0;
        while (host < p->host_count &&
               !tri_host_claim_is_same_host(&claims[r], &claims[p->first[host]]))
            host++;
        if (host == p->host_count) {
            p->first[p->host_count] = r;
            p->host_names[p->host_count++] = tri_arena_strdup(p->arena, claims[r].host);
        }
        p->host_of[r] = host;
        p->local_ranks[host]++;
    }
}

static tri_status measure(preflight *p) {
    tri_comm_options options = {.timeout_s = p->request->timeout_s};
    double begin = tri_os_seconds();
    tri_host_claim mine;
    if (p->identity.size == 1)
        TRI_TRY(tri_comm_self_open(&p->comm));
    else
        TRI_TRY(
            p->request->connect(&p->identity, &options, preflight_reach, p, &p->comm, &p->health));
    tri_host_claim_make(&p->identity, &mine);
    tri_host_claim *claims = TRI_NEW_ARRAY(p->arena, tri_host_claim, p->identity.size);
    TRI_TRY(preflight_gather(p, &mine, claims, sizeof mine, "hosts"));
    p->connect_s = tri_os_seconds() - begin;
    number_hosts(p, claims);
    return tri_identity_settle(claims, p->identity.size, &p->identity);
}

static void judge(preflight *p, preflight_row *row) {
    row->values = tri_tree_map(p->arena);
    tri_tree_put(p->arena, row->values, "seconds", tri_tree_double(p->arena, p->connect_s));
    if (p->identity.size == 1) {
        row->summary = "one rank, nobody to meet";
        return;
    }
    row->summary =
        tri_arena_printf(p->arena, "%d ranks on %s within %s", p->identity.size,
                         tri_counted(p->host_count, "host"), tri_duration_text(p->connect_s));
}

const preflight_check preflight_meeting = {
    .name = "meeting", .attempts = 1, .measure = measure, .judge = judge};
