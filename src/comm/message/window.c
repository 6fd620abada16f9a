// All-reduces and reduce-scatters of data that are too large to travel with the headers by which
// ranks tell each other what they call. A term is one rank's contribution to a sum. Each rank
// reduces one share of the data: it receives the terms of that share from all other ranks, one
// range of elements (a window) at a time, and adds them in rank order. In an all-reduce it then
// sends the sums to all others. So in each of these two halves a rank sends and receives
// (size - 1) / size of the data, which is the least possible. The halves overlap, because several
// windows are under way at one time.
//
// If values travel as a half type, terms and sums are narrowed before they are sent, and widened
// where they arrive.
#include "comm/message/window.h"

#include "comm/message/header.h"
#include "comm/reduce.h"

#include <string.h>

enum {
    // A rank's share, the elements of an all-reduce that it reduces, is a multiple of this many
    // elements, so that shares begin on cache lines if the buffer does.
    SHARE_GRAIN = 16,
    HALF_BYTES = 2,
};

static bool is_all(const tri_comm_op *op) { return op->kind == TRI_COMM_ALL_REDUCE; }
static bool narrows(const tri_comm_op *op) { return op->wire != TRI_F32; }

static int64_t longest_share(const message_comm *comm, const tri_comm_op *op) {
    if (!is_all(op)) return op->count;
    int64_t even = (op->count + message_size(comm) - 1) / message_size(comm);
    return (even + SHARE_GRAIN - 1) / SHARE_GRAIN * SHARE_GRAIN;
}

// Each rank's share is divided into windows: ranges of elements that are sent and added one after
// the other. Returns how many elements are in window w of the share that rank r reduces; *begin is
// the index of the first of them in `send`.
static int64_t window_of(const message_comm *comm, const tri_comm_op *op, int r, int64_t w,
                         int64_t *begin) {
    int64_t share = longest_share(comm, op), first = r * share, end = first + share;
    if (is_all(op) && end > op->count) end = op->count;
    *begin = first + w * comm->current.window;
    int64_t left = end - *begin;
    return left < 0 ? 0 : left < comm->current.window ? left : comm->current.window;
}

// The scratch memory of a reduction holds the ranges of elements (windows) that arrive. If values
// travel as half types, it also holds the values that are sent, and the terms that were widened to
// F32.

static size_t others(const message_comm *comm) { return (size_t)message_size(comm) - 1; }

size_t message_scratch_bytes(int size) {
    if (size < 2) return 0;
    size_t windows = (size_t)(size - 1) * MESSAGE_DEPTH;
    size_t window = TRI_MESSAGE_SCRATCH_BYTES / windows / 64 * 64;
    if (window < TRI_MESSAGE_LEAST_WINDOW_BYTES) window = TRI_MESSAGE_LEAST_WINDOW_BYTES;
    if (window > TRI_MESSAGE_WINDOW_BYTES) window = TRI_MESSAGE_WINDOW_BYTES;
    return windows * window;
}

// How many bytes of scratch memory all windows that are in flight at one time need together, for
// each element of a window's length. The length of a window is the size of the scratch memory,
// divided by this number and rounded down (begin).
static size_t scratch_of_element(const message_comm *comm, const tri_comm_op *op) {
    if (!narrows(op)) return others(comm) * MESSAGE_DEPTH * message_width(op);
    // The bytes that one element needs in each of the arrays TERMS_IN, TERMS_OUT and SUMS_IN.
    size_t terms = others(comm) * MESSAGE_DEPTH * HALF_BYTES;
    return 3 * terms + MESSAGE_DEPTH * HALF_BYTES + others(comm) * sizeof(float);
}

typedef enum scratch_kind { TERMS_IN, TERMS_OUT, SUMS_IN, SUMS_OUT, WIDE } scratch_kind;

// Finds the scratch memory for window w of the terms or sums that this rank exchanges with rank r.
// The memory is made of arrays, one after the other, whose elements are windows:
// - TERMS_IN, TERMS_OUT, SUMS_IN: [other rank][MESSAGE_DEPTH] each;
// - SUMS_OUT: [MESSAGE_DEPTH], because all ranks are sent the same sums;
// - WIDE: [other rank], in F32, because only one window at a time is widened and added.
// All but WIDE are in the half type. If values do not travel as half types, there is only TERMS_IN,
// in the values' own type.
static char *scratch(const message_comm *comm, const tri_comm_op *op, scratch_kind kind, int r,
                     int64_t w) {
    size_t window = (size_t)comm->current.window;
    size_t width = narrows(op) && kind != WIDE ? HALF_BYTES : message_width(op);
    size_t number =
        (size_t)((r + message_size(comm) - message_rank(comm) - 1) % message_size(comm));
    size_t slot = number * MESSAGE_DEPTH + (size_t)(w % MESSAGE_DEPTH);
    size_t all = others(comm) * MESSAGE_DEPTH * window * HALF_BYTES;
    char *at = comm->scratch + (size_t)kind * all; // each array before SUMS_OUT has `all` bytes
    if (kind == TERMS_IN) at = comm->scratch;
    if (kind == SUMS_OUT) slot = (size_t)(w % MESSAGE_DEPTH);
    if (kind == WIDE) {
        at = comm->scratch + 3 * all + MESSAGE_DEPTH * window * HALF_BYTES;
        slot = number;
    }
    return at + slot * window * width;
}

static size_t travelling(const tri_comm_op *op, int64_t count) {
    return (size_t)count * (narrows(op) ? HALF_BYTES : message_width(op));
}

static void post_terms(message_comm *comm, const tri_comm_op *op, int64_t w) {
    int64_t begin, slot = w % MESSAGE_DEPTH;
    int64_t own = window_of(comm, op, message_rank(comm), w, &begin);
    for (int i = 1; i < message_size(comm); i++) {
        int from = (message_rank(comm) + message_size(comm) - i) % message_size(comm);
        tri_transport_request *request = &comm->peers[from].data_in[slot];
        request->state = TRI_REQUEST_NONE;
        if (own)
            message_recv(comm, MESSAGE_DATA, from, scratch(comm, op, TERMS_IN, from, w),
                         travelling(op, own), request);
    }
    for (int i = 1; i < message_size(comm); i++) {
        int to = (message_rank(comm) + i) % message_size(comm);
        int64_t count = window_of(comm, op, to, w, &begin);
        const char *data = (const char *)op->send + (size_t)begin * message_width(op);
        comm->peers[to].data_out[slot].state = TRI_REQUEST_NONE;
        if (!count) continue;
        if (narrows(op)) {
            comm_narrow(op->wire, scratch(comm, op, TERMS_OUT, to, w), data, count);
            data = scratch(comm, op, TERMS_OUT, to, w);
        }
        message_send(comm, MESSAGE_DATA, to, data, travelling(op, count),
                     &comm->peers[to].data_out[slot]);
    }
}

// Whether the messages of window w may be started: the terms of window w - MESSAGE_DEPTH, which
// used the same memory, have been added up and sent.
static bool can_post(const message_comm *comm, int64_t w) {
    if (w >= comm->current.windows || w >= comm->current.reduced + MESSAGE_DEPTH) return false;
    for (int r = 0; r < message_size(comm); r++)
        if (!message_is_over(&comm->peers[r].data_out[w % MESSAGE_DEPTH])) return false;
    return true;
}

static bool terms_are_there(const message_comm *comm, int64_t w) {
    for (int r = 0; r < message_size(comm); r++)
        if (!message_is_over(&comm->peers[r].data_in[w % MESSAGE_DEPTH])) return false;
    return true;
}

static bool sums_can_leave(const message_comm *comm, const tri_comm_op *op, int64_t w) {
    for (int r = 0; is_all(op) && r < message_size(comm); r++)
        if (!message_is_over(&comm->peers[r].result_out[w % MESSAGE_DEPTH])) return false;
    return true;
}

static void reduce(message_comm *comm, const tri_comm_op *op, int64_t w) {
    int64_t begin, count = window_of(comm, op, message_rank(comm), w, &begin);
    size_t width = message_width(op);
    const void **in = comm->terms + 1;
    void *out = (char *)op->recv + (size_t)(is_all(op) ? begin : w * comm->current.window) * width;
    if (count == 0) return;
    for (int r = 0; r < message_size(comm); r++) {
        if (r == message_rank(comm)) {
            in[r] = (const char *)op->send + (size_t)begin * width;
        } else if (narrows(op)) {
            comm_widen(op->wire, scratch(comm, op, WIDE, r, w), scratch(comm, op, TERMS_IN, r, w),
                       count);
            in[r] = scratch(comm, op, WIDE, r, w);
        } else {
            in[r] = scratch(comm, op, TERMS_IN, r, w);
        }
    }
    comm->terms[0] = out;
    comm_reduce(op, message_size(comm) + op->accumulate, in - op->accumulate, 1, &out,
                (size_t)count, false);
    if (!is_all(op)) return;
    const void *sums = out;
    if (narrows(op)) {
        comm_narrow(op->wire, scratch(comm, op, SUMS_OUT, 0, w), out, count);
        sums = scratch(comm, op, SUMS_OUT, 0, w);
    }
    for (int i = 1; i < message_size(comm); i++) {
        int to = (message_rank(comm) + i) % message_size(comm);
        message_send(comm, MESSAGE_RESULT, to, sums, travelling(op, count),
                     &comm->peers[to].result_out[w % MESSAGE_DEPTH]);
    }
}

// Whether this rank's terms of window w have been sent to the peer. Window w + MESSAGE_DEPTH uses
// the same request, and is posted only after window w has been sent (can_post).
static bool terms_have_left(const message_comm *comm, const message_peer *peer, int64_t w) {
    return comm->current.posted > w + MESSAGE_DEPTH ||
           message_is_over(&peer->data_out[w % MESSAGE_DEPTH]);
}

// Takes those sums of rank r's share that have arrived, and requests the next ones. True when all
// sums of that share are there.
static bool take_sums(message_comm *comm, const tri_comm_op *op, int r, bool *advanced) {
    message_peer *peer = &comm->peers[r];
    int64_t begin, count;
    for (int64_t w = peer->results_taken; w < peer->results_asked; w++) {
        tri_transport_request *request = &peer->result_in[w % MESSAGE_DEPTH];
        if (request->state != TRI_REQUEST_DONE) break;
        count = window_of(comm, op, r, w, &begin);
        if (narrows(op))
            comm_widen(op->wire, (char *)op->recv + (size_t)begin * message_width(op),
                       scratch(comm, op, SUMS_IN, r, w), count);
        peer->results_taken = w + 1;
        *advanced = true;
    }
    // In an all-reduce in place, sums are received into the memory from which this rank's terms
    // were sent. So they are requested only after these terms have been sent.
    while (peer->results_asked < comm->current.posted &&
           peer->results_asked < peer->results_taken + MESSAGE_DEPTH &&
           terms_have_left(comm, peer, peer->results_asked)) {
        int64_t w = peer->results_asked;
        count = window_of(comm, op, r, w, &begin);
        char *to = narrows(op) ? scratch(comm, op, SUMS_IN, r, w)
                               : (char *)op->recv + (size_t)begin * message_width(op);
        // This window is empty, and so are all later ones.
        if (count == 0) return peer->results_taken == w;
        message_recv(comm, MESSAGE_RESULT, r, to, travelling(op, count),
                     &peer->result_in[w % MESSAGE_DEPTH]);
        peer->results_asked++;
        *advanced = true;
    }
    return peer->results_taken == comm->current.windows;
}

static void reset(tri_transport_request requests[MESSAGE_DEPTH]) {
    for (int d = 0; d < MESSAGE_DEPTH; d++) requests[d].state = TRI_REQUEST_NONE;
}

static void begin(message_comm *comm, progress_item *item) {
    const tri_comm_op *op = &item->op;
    int64_t share = longest_share(comm, op), window;
    window = (int64_t)(comm->scratch_bytes / scratch_of_element(comm, op) / 32 * 32);
    TRI_ASSERT(window > 0);
    comm->current.window = window;
    comm->current.windows = (share + comm->current.window - 1) / comm->current.window;
    for (int r = 0; r < message_size(comm); r++) {
        message_peer *peer = &comm->peers[r];
        peer->results_asked = peer->results_taken = 0;
        reset(peer->data_in);
        reset(peer->data_out);
        reset(peer->result_in);
        reset(peer->result_out);
    }
    message_headers_exchange(comm, item);
}

static bool all_sent(const message_comm *comm) {
    for (int r = 0; r < message_size(comm); r++)
        for (int d = 0; d < MESSAGE_DEPTH; d++)
            if (!message_is_over(&comm->peers[r].data_out[d]) ||
                !message_is_over(&comm->peers[r].result_out[d]))
                return false;
    return message_headers_sent(comm);
}

static bool advance(message_comm *comm, progress_item *item, bool *advanced) {
    const tri_comm_op *op = &item->op;
    message_current *current = &comm->current;
    while (can_post(comm, current->posted)) {
        post_terms(comm, op, current->posted++);
        *advanced = true;
    }
    bool done = message_headers_take(comm, item, advanced);
    if (done && current->reduced < current->posted && terms_are_there(comm, current->reduced) &&
        sums_can_leave(comm, op, current->reduced)) {
        reduce(comm, op, current->reduced++);
        *advanced = true;
    }
    for (int i = 1; is_all(op) && i < message_size(comm); i++) {
        int from = (message_rank(comm) + message_size(comm) - i) % message_size(comm);
        done &= take_sums(comm, op, from, advanced);
    }
    return done && current->reduced == current->windows && all_sent(comm);
}

const message_algorithm message_window = {.begin = begin, .advance = advance};
