// Functions that several checks use: gathering values of all ranks, and texts that name ranks and
// hosts.
#include "preflight/state.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { NAMED = 8 }; // how many items a list in one line shows at most

tri_status preflight_gather(preflight *p, const void *mine, void *all, size_t bytes,
                            const char *label) {
    return tri_comm_run(p->comm, &(tri_comm_op){.kind = TRI_COMM_ALL_GATHER,
                                                .dtype = TRI_U8,
                                                .count = (int64_t)bytes,
                                                .send = mine,
                                                .recv = all,
                                                .label = label});
}

tri_status preflight_send(preflight *p, int peer, const void *data, size_t bytes) {
    return tri_comm_run(p->comm, &(tri_comm_op){.kind = TRI_COMM_SEND,
                                                .dtype = TRI_U8,
                                                .count = (int64_t)bytes,
                                                .send = data,
                                                .peer = peer,
                                                .label = "preflight"});
}

tri_status preflight_recv(preflight *p, int peer, void *data, size_t bytes) {
    return tri_comm_run(p->comm, &(tri_comm_op){.kind = TRI_COMM_RECV,
                                                .dtype = TRI_U8,
                                                .count = (int64_t)bytes,
                                                .recv = data,
                                                .peer = peer,
                                                .label = "preflight"});
}

tri_status preflight_exchange(preflight *p, int peer, const void *out, void *in, size_t bytes) {
    tri_comm_op both[2] = {{.kind = TRI_COMM_SEND,
                            .dtype = TRI_U8,
                            .count = (int64_t)bytes,
                            .send = out,
                            .peer = peer,
                            .label = "preflight",
                            .waits_at_once = true},
                           {.kind = TRI_COMM_RECV,
                            .dtype = TRI_U8,
                            .count = (int64_t)bytes,
                            .recv = in,
                            .peer = peer,
                            .label = "preflight",
                            .waits_at_once = true}};
    tri_comm_ticket ticket;
    TRI_TRY(p->comm->backend->start(p->comm, both, 2, &ticket));
    return p->comm->backend->wait(p->comm, ticket);
}

const char *preflight_rank_text(const preflight *p, int rank) {
    const char *host = p->host_names[p->host_of[rank]];
    if (p->identity.size == 1) return host;
    return tri_arena_printf(p->arena, "rank %d (%s)", rank, host);
}

bool preflight_is_first(const preflight *p) {
    int rank = p->identity.rank;
    return p->first[p->host_of[rank]] == rank;
}

void preflight_list_add(preflight_list *list, const char *format, ...) {
    if (++list->count > NAMED) return;
    char item[2 * PREFLIGHT_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(item, sizeof item, format, arguments);
    va_end(arguments);
    list->text = tri_arena_printf(list->arena, "%s%s%s", list->text ? list->text : "",
                                  list->text ? ", " : "", item);
}

const char *preflight_list_text(const preflight_list *list) {
    if (list->count <= NAMED) return list->text ? list->text : "";
    return tri_arena_printf(list->arena, "%s and %d more", list->text, list->count - NAMED);
}

const char *preflight_by_host(const preflight *p, const char *const *texts) {
    bool are_equal = true;
    preflight_list list = {.arena = p->arena};
    for (int h = 0; h < p->host_count; h++) {
        are_equal = are_equal && !strcmp(texts[h], texts[0]);
        preflight_list_add(&list, "%s %s", p->host_names[h], texts[h]);
    }
    return are_equal ? texts[0] : preflight_list_text(&list);
}

void preflight_fail(preflight *p, preflight_row *row, const char *format, ...) {
    char text[TRI_MESSAGE_MAX_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    row->verdict = PREFLIGHT_NO_GO;
    row->failure = row->failure ? tri_arena_printf(p->arena, "%s; %s", row->failure, text)
                                : tri_arena_strdup(p->arena, text);
}
