// Carries out all-gather, all-to-all and broadcast of data that are too long to travel in the same
// message as the operation's header. Each rank sends its data directly to the rank that needs them,
// without a copy on the way; a range longer than the transport's longest message takes several
// messages.
//
// A broadcast over n ranks has two halves: first the root sends each other rank one slice, 1/(n-1)
// of the data, then each of them passes its slice on to all others. So no rank sends much more
// than the data once. A root that sent all data to everybody would send them n-1 times.
#include "comm/message/spread.h"

#include "comm/message/header.h"
#include "comm/reduce.h"

#include <string.h>

typedef struct spread_range {
    char *memory;
    size_t bytes;
} spread_range;

static size_t next_bytes(const message_comm *comm, size_t size, int64_t at) {
    size_t left = size - (size_t)at, most = message_family_of(comm)->transport->most_bytes;
    return left < most ? left : most;
}

// Whether a request is complete. If so, marks it as free, so that the next message can use it.
static bool ended(tri_transport_request *request, bool *advanced) {
    if (request->state == TRI_REQUEST_DONE) {
        request->state = TRI_REQUEST_NONE;
        *advanced = true;
    }
    return request->state == TRI_REQUEST_NONE;
}

bool message_send_range(message_comm *comm, message_class class, int r, const void *data,
                        size_t size, int64_t *at, tri_transport_request *request, bool *advanced) {
    while (ended(request, advanced)) {
        if ((size_t)*at == size) return true;
        size_t bytes = next_bytes(comm, size, *at);
        message_send(comm, class, r, (const char *)data + *at, bytes, request);
        *at += (int64_t)bytes;
        *advanced = true;
    }
    return false;
}

bool message_recv_range(message_comm *comm, message_class class, int r, void *memory, size_t size,
                        int64_t *at, tri_transport_request *request, bool *advanced) {
    while (ended(request, advanced)) {
        if ((size_t)*at == size) return true;
        size_t bytes = next_bytes(comm, size, *at);
        message_recv(comm, class, r, (char *)memory + *at, bytes, request);
        *at += (int64_t)bytes;
        *advanced = true;
    }
    return false;
}

// Finds the slice of a broadcast's data that the root sends to rank r, which later passes it on to
// all others; the root itself gets none.
static spread_range slice(const message_comm *comm, const tri_comm_op *op, const void *memory,
                          int r) {
    int size = message_size(comm), number = (r + size - op->root - 1) % size;
    spread_range out = {.memory = (char *)(uintptr_t)memory};
    if (r == op->root) return out;
    int64_t most = (op->count + size - 2) / (size - 1), begin = number * most;
    int64_t count = op->count - begin < most ? op->count - begin : most;
    if (count <= 0) return out;
    out.memory += (size_t)begin * message_width(op);
    out.bytes = (size_t)count * message_width(op);
    return out;
}

static spread_range data_to(const message_comm *comm, const tri_comm_op *op, int r) {
    size_t bytes = (size_t)op->count * message_width(op);
    char *send = (char *)(uintptr_t)op->send;
    if (op->kind == TRI_COMM_ALL_GATHER) return (spread_range){send, bytes};
    if (op->kind == TRI_COMM_ALL_TO_ALL) return (spread_range){send + (size_t)r * bytes, bytes};
    if (message_rank(comm) == op->root) return slice(comm, op, op->send, r);
    return (spread_range){0};
}

static spread_range data_from(const message_comm *comm, const tri_comm_op *op, int r) {
    size_t bytes = (size_t)op->count * message_width(op);
    if (op->kind != TRI_COMM_BROADCAST)
        return (spread_range){(char *)op->recv + (size_t)r * bytes, bytes};
    if (r == op->root) return slice(comm, op, op->recv, message_rank(comm));
    return (spread_range){0};
}

// Finds what this rank sends to rank r in the second half of a broadcast: the slice that it got
// from the root.
static spread_range result_to(const message_comm *comm, const tri_comm_op *op, int r) {
    if (op->kind != TRI_COMM_BROADCAST || r == op->root) return (spread_range){0};
    return slice(comm, op, op->recv, message_rank(comm));
}

static spread_range result_from(const message_comm *comm, const tri_comm_op *op, int r) {
    if (op->kind != TRI_COMM_BROADCAST || message_rank(comm) == op->root) return (spread_range){0};
    return slice(comm, op, op->recv, r);
}

static void begin(message_comm *comm, progress_item *item) {
    for (int r = 0; r < message_size(comm); r++) {
        message_peer *peer = &comm->peers[r];
        peer->data_sent = peer->data_received = peer->results_sent = peer->results_taken = 0;
        peer->data_in[0].state = peer->data_out[0].state = TRI_REQUEST_NONE;
        peer->result_in[0].state = peer->result_out[0].state = TRI_REQUEST_NONE;
    }
    message_headers_exchange(comm, item);
}

static bool recv_both(message_comm *comm, const tri_comm_op *op, int r, bool *advanced) {
    message_peer *peer = &comm->peers[r];
    spread_range data = data_from(comm, op, r), result = result_from(comm, op, r);
    bool has_data = message_recv_range(comm, MESSAGE_DATA, r, data.memory, data.bytes,
                                       &peer->data_received, &peer->data_in[0], advanced);
    return message_recv_range(comm, MESSAGE_RESULT, r, result.memory, result.bytes,
                              &peer->results_taken, &peer->result_in[0], advanced) &&
           has_data;
}

static bool send_both(message_comm *comm, const tri_comm_op *op, int r, bool *advanced) {
    message_peer *peer = &comm->peers[r];
    spread_range data = data_to(comm, op, r), result = result_to(comm, op, r);
    bool sent = message_send_range(comm, MESSAGE_DATA, r, data.memory, data.bytes, &peer->data_sent,
                                   &peer->data_out[0], advanced);
    const message_peer *root = &comm->peers[op->root];
    size_t whole = op->kind == TRI_COMM_BROADCAST && message_rank(comm) != op->root
                       ? data_from(comm, op, op->root).bytes
                       : 0;
    if ((size_t)root->data_received < whole || root->data_in[0].state != TRI_REQUEST_NONE)
        return result.bytes == 0 && sent;
    return message_send_range(comm, MESSAGE_RESULT, r, result.memory, result.bytes,
                              &peer->results_sent, &peer->result_out[0], advanced) &&
           sent;
}

static void copy_own(const message_comm *comm, const tri_comm_op *op) {
    size_t bytes = (size_t)op->count * message_width(op), own = (size_t)message_rank(comm) * bytes;
    const char *send = op->send;
    char *recv = op->recv;
    if (op->kind == TRI_COMM_ALL_GATHER) recv += own;
    if (op->kind == TRI_COMM_ALL_TO_ALL) recv += own, send += own;
    if (op->kind == TRI_COMM_BROADCAST && message_rank(comm) != op->root) return;
    comm_copy(recv, send, bytes, false);
}

static bool advance(message_comm *comm, progress_item *item, bool *advanced) {
    const tri_comm_op *op = &item->op;
    bool done = true;
    for (int i = 1; i < message_size(comm); i++) {
        int from = (message_rank(comm) + message_size(comm) - i) % message_size(comm);
        done &= recv_both(comm, op, from, advanced);
    }
    for (int i = 1; i < message_size(comm); i++)
        done &= send_both(comm, op, (message_rank(comm) + i) % message_size(comm), advanced);
    done &= message_headers_take(comm, item, advanced) && message_headers_sent(comm);
    if (!done) return false;
    copy_own(comm, op);
    *advanced = true;
    return true;
}

const message_algorithm message_spread = {.begin = begin, .advance = advance};
