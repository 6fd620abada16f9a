// Writes, exchanges and compares headers, by which ranks tell each other which operation they have
// called. A rank that waits in a SEND or RECV may receive the other rank's next header before it
// begins a collective itself, to find out whether the other rank has called a collective instead.
#include "comm/message/header.h"

#include "comm/message/turn.h"
#include "comm/progress/describe.h"

#include <stdio.h>

static uint32_t tag_of(const message_comm *comm, message_class class) {
    return comm->number * MESSAGE_CLASSES + (uint32_t) class;
}

void message_send(message_comm *comm, message_class class, int r, const void *data, size_t size,
                  tri_transport_request *request) {
    message_family *family = message_family_of(comm);
    family->transport->send(family->end, comm->member[r], tag_of(comm, class), data, size, request);
}

void message_recv(message_comm *comm, message_class class, int r, void *memory, size_t size,
                  tri_transport_request *request) {
    message_family *family = message_family_of(comm);
    family->transport->recv(family->end, comm->member[r], tag_of(comm, class), memory, size,
                            request);
}

void message_header_write(const progress_item *item, message_header *out) {
    tri_comm_call_of(&item->op, &out->call);
    out->sequence = item->sequence;
}

static void ask(message_comm *comm, int r) {
    tri_transport_request *request = &comm->peers[r].header_in;
    if (request->state == TRI_REQUEST_NONE)
        message_recv(comm, MESSAGE_HEADER, r, message_header_in(comm, r), message_slot_bytes(comm),
                     request);
}

void message_header_ask(message_comm *comm, int r) {
    ask(comm, r);
    comm->peers[r].needs_header = true;
    comm->current.headers++;
}

void message_headers_exchange(message_comm *comm, const progress_item *item) {
    message_header *out = message_header_out(comm, 0);
    message_header_write(item, out);
    for (int i = 1; i < message_size(comm); i++) {
        int r = (message_rank(comm) + i) % message_size(comm);
        message_header_ask(comm, r);
        message_send(comm, MESSAGE_HEADER, r, out, sizeof *out, &comm->peers[r].header_out);
    }
}

bool message_header_agrees(message_comm *comm, const progress_item *item, int r,
                           const message_header *theirs) {
    tri_comm_call mine, call = theirs->call;
    tri_comm_call_of(&item->op, &mine);
    if (tri_comm_calls_agree(&mine, &call)) return true;
    call.label[sizeof call.label - 1] = 0;
    progress_disagree(&comm->base, item->sequence,
                      (progress_caller){.rank = message_rank(comm), .call = &mine},
                      (progress_caller){.rank = r, .call = &call});
    return false;
}

bool message_report_length(message_comm *comm, const progress_item *item, int r) {
    tri_comm_call mine;
    tri_comm_call_of(&item->op, &mine);
    progress_disagree(&comm->base, item->sequence,
                      (progress_caller){.rank = message_rank(comm), .call = &mine},
                      (progress_caller){.rank = r, .text = "something else"});
    return false;
}

bool message_headers_take(message_comm *comm, const progress_item *item, bool *advanced) {
    for (int r = 0; r < message_size(comm) && comm->current.headers > 0; r++) {
        message_peer *peer = &comm->peers[r];
        if (!peer->needs_header || peer->header_in.state == TRI_REQUEST_PENDING) continue;
        if (peer->header_in.state == TRI_REQUEST_TOO_LARGE)
            return message_report_length(comm, item, r);
        if (peer->header_in.state != TRI_REQUEST_DONE) continue;
        if (!message_header_agrees(comm, item, r, message_header_in(comm, r))) return false;
        peer->header_in.state = TRI_REQUEST_NONE;
        peer->needs_header = false;
        comm->current.headers--;
        *advanced = true;
    }
    return comm->current.headers == 0;
}

bool message_headers_sent(const message_comm *comm) {
    for (int r = 0; r < message_size(comm); r++)
        if (!message_is_over(&comm->peers[r].header_out)) return false;
    return true;
}

bool message_collective_of(const progress_comm *base, int r, char *out, size_t size) {
    message_comm *comm = (message_comm *)base;
    message_family *family = message_family_of(comm);
    bool found = false;
    message_turn_begin(family);
    if (!family->stopped) {
        ask(comm, r);
        message_progress(family);
        found = comm->peers[r].header_in.state == TRI_REQUEST_DONE;
    }
    const message_header *header = message_header_in(comm, r);
    if (found)
        snprintf(out, size, "%s '%s'", tri_comm_kind_name((tri_comm_kind)header->call.whole.kind),
                 header->call.label);
    message_turn_end(family);
    return found;
}
