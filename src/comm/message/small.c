// Carries out collectives of little data. In `exchange` each rank sends its header and data to all
// others. This takes the time of one message. In step s of `gather`, each rank sends what it has so
// far to the rank that is 2^s before it (Bruck's algorithm; Bruck and others, 1997). So after
// log2(size) messages all ranks have all data. In both algorithms each rank then computes its
// result from the data, in rank order. The third algorithm, `tree`, is for broadcasts.
#include "comm/message/small.h"

#include "comm/message/header.h"
#include "comm/progress/failure.h"
#include "comm/reduce.h"

#include <string.h>

static size_t bytes_of(const tri_comm_op *op) {
    return op->kind == TRI_COMM_BARRIER ? 0 : (size_t)op->count * message_width(op);
}

// A function that finds the data that rank r sent to this rank; each algorithm keeps them somewhere
// else.
typedef const char *term_of(const message_comm *comm, const tri_comm_op *op, int r);

static void apply(message_comm *comm, const tri_comm_op *op, term_of *term) {
    int size = message_size(comm);
    size_t bytes = bytes_of(op);
    const void **in = comm->terms + 1;
    if (bytes == 0) return;
    for (int r = 0; r < size; r++) in[r] = term(comm, op, r);
    if (tri_comm_kind_reduces(op->kind)) {
        void *out = op->recv;
        comm->terms[0] = out;
        comm_reduce(op, size + op->accumulate, in - op->accumulate, 1, &out, (size_t)op->count,
                    false);
        return;
    }
    bool is_one = op->kind == TRI_COMM_BROADCAST;
    for (int r = is_one ? op->root : 0; r < (is_one ? op->root + 1 : size); r++) {
        char *to = (char *)op->recv + (is_one ? 0 : (size_t)r * bytes);
        if (to != in[r]) memcpy(to, in[r], bytes);
    }
}

// Finds the data that this rank, `r`, sends to itself: they lie in its own `send`.
static const char *own_term(const message_comm *comm, const tri_comm_op *op, int r) {
    return (const char *)op->send +
           (tri_comm_kind_scatters(op->kind) ? (size_t)r * bytes_of(op) : 0);
}

static void alone_begin(message_comm *comm, progress_item *item) {}

static bool alone_advance(message_comm *comm, progress_item *item, bool *advanced) {
    apply(comm, &item->op, own_term);
    *advanced = true;
    return true;
}

const message_algorithm message_alone = {.begin = alone_begin, .advance = alone_advance};

bool message_fits_exchange(const message_comm *comm, const tri_comm_op *op) {
    return bytes_of(op) <= comm->eager_bytes;
}

// Finds the header that goes to rank r. If all receivers get the same data, one header serves all
// of them, so that the data are copied only once.
static message_header *exchange_out(const message_comm *comm, const tri_comm_op *op, int r) {
    return message_header_out(comm, tri_comm_kind_scatters(op->kind) ? r : 0);
}

static void exchange_begin(message_comm *comm, progress_item *item) {
    const tri_comm_op *op = &item->op;
    bool is_silent = op->kind == TRI_COMM_BROADCAST && op->root != message_rank(comm);
    bool scatters = tri_comm_kind_scatters(op->kind);
    size_t bytes = is_silent ? 0 : bytes_of(op);
    for (int i = 1; i < message_size(comm); i++)
        message_header_ask(comm, (message_rank(comm) + i) % message_size(comm));
    for (int i = 1; i < message_size(comm); i++) {
        int r = (message_rank(comm) + i) % message_size(comm);
        message_header *out = exchange_out(comm, op, r);
        if (scatters || i == 1) {
            message_header_write(item, out);
            const char *send = op->send;
            if (bytes)
                memcpy(message_payload(out), send + (scatters ? (size_t)r * bytes : 0), bytes);
        }
        message_send(comm, MESSAGE_HEADER, r, out, sizeof *out + bytes, &comm->peers[r].header_out);
    }
}

static const char *exchange_term(const message_comm *comm, const tri_comm_op *op, int r) {
    if (r == message_rank(comm)) return own_term(comm, op, r);
    return message_payload(message_header_in(comm, r));
}

static bool exchange_advance(message_comm *comm, progress_item *item, bool *advanced) {
    if (!message_headers_take(comm, item, advanced) || !message_headers_sent(comm)) return false;
    apply(comm, &item->op, exchange_term);
    *advanced = true;
    return true;
}

const message_algorithm message_exchange = {
    .begin = exchange_begin, .advance = exchange_advance, .sends_at_once = true};

// The algorithm `gather`: in each of about log2(size) exchanges a rank sends on what it has so far.
// The communicator's scratch memory holds the headers and data of this rank and of the ranks after
// it, in this order, so that each exchange sends one contiguous message.

static size_t gather_bytes(const tri_comm_op *op) {
    return (sizeof(message_header) + bytes_of(op) + 7) / 8 * 8;
}

bool message_fits_gather(const message_comm *comm, const tri_comm_op *op) {
    return !tri_comm_kind_scatters(op->kind) && bytes_of(op) <= TRI_MESSAGE_GATHER_BYTES &&
           gather_bytes(op) * (size_t)message_size(comm) <= comm->scratch_bytes;
}

static message_header *gather_slot(const message_comm *comm, const tri_comm_op *op, int r) {
    int after = (r + message_size(comm) - message_rank(comm)) % message_size(comm);
    return (message_header *)(void *)(comm->scratch + (size_t)after * gather_bytes(op));
}

// Starts the step of `gather` with the number current.exchange. Each step doubles what this rank
// knows, because the rank that sends to it knows as much as this one.
static void gather_exchange(message_comm *comm, const tri_comm_op *op) {
    int size = message_size(comm), distance = 1 << comm->current.exchange;
    int from = (message_rank(comm) + distance) % size;
    int to = (message_rank(comm) + size - distance) % size;
    size_t count = (size_t)(distance < size - distance ? distance : size - distance);
    message_recv(comm, MESSAGE_HEADER, from, comm->scratch + (size_t)distance * gather_bytes(op),
                 count * gather_bytes(op), &comm->peers[from].header_in);
    message_send(comm, MESSAGE_HEADER, to, comm->scratch, count * gather_bytes(op),
                 &comm->peers[to].header_out);
}

static void gather_begin(message_comm *comm, progress_item *item) {
    message_header *own = gather_slot(comm, &item->op, message_rank(comm));
    message_header_write(item, own);
    if (bytes_of(&item->op)) memcpy(message_payload(own), item->op.send, bytes_of(&item->op));
    gather_exchange(comm, &item->op);
}

static const char *gather_term(const message_comm *comm, const tri_comm_op *op, int r) {
    return message_payload(gather_slot(comm, op, r));
}

static bool gather_advance(message_comm *comm, progress_item *item, bool *advanced) {
    int size = message_size(comm), distance = 1 << comm->current.exchange;
    int from = (message_rank(comm) + distance) % size;
    int to = (message_rank(comm) + size - distance) % size;
    tri_transport_request *in = &comm->peers[from].header_in, *out = &comm->peers[to].header_out;
    if (in->state == TRI_REQUEST_TOO_LARGE) return message_report_length(comm, item, from);
    if (in->state != TRI_REQUEST_DONE || !message_is_over(out)) return false;
    const message_header *theirs = gather_slot(comm, &item->op, from);
    if (!message_header_agrees(comm, item, from, theirs)) return false;
    *advanced = true;
    in->state = out->state = TRI_REQUEST_NONE;
    comm->current.exchange++;
    if (2 * distance < size) {
        gather_exchange(comm, &item->op);
        return false;
    }
    for (int r = 0; r < size; r++)
        if (!message_header_agrees(comm, item, r, gather_slot(comm, &item->op, r))) return false;
    apply(comm, &item->op, gather_term);
    return true;
}

const message_algorithm message_gather = {.begin = gather_begin, .advance = gather_advance};

// The algorithm `tree`. Ranks are numbered from the root, and number n gets the data from the
// number that is n with its lowest 1 bit cleared. So the data reach all ranks in as many steps as
// the largest number has bits.

static int tree_number(const message_comm *comm, const tri_comm_op *op) {
    return (message_rank(comm) + message_size(comm) - op->root) % message_size(comm);
}

static int tree_rank(const message_comm *comm, const tri_comm_op *op, int number) {
    return (number + op->root) % message_size(comm);
}

static void tree_pass_on(message_comm *comm, const progress_item *item, const void *data) {
    const tri_comm_op *op = &item->op;
    int number = tree_number(comm, op), lowest = number ? number & -number : message_size(comm);
    message_header *out = message_header_out(comm, 0);
    message_header_write(item, out);
    if (bytes_of(op)) memcpy(message_payload(out), data, bytes_of(op));
    int bit = 1;
    while (bit < lowest && number + bit < message_size(comm)) bit *= 2;
    for (bit /= 2; bit > 0; bit /= 2) { // sends to the largest subtree of ranks first
        int to = tree_rank(comm, op, number + bit);
        message_send(comm, MESSAGE_HEADER, to, out, sizeof *out + bytes_of(op),
                     &comm->peers[to].header_out);
    }
}

static void tree_begin(message_comm *comm, progress_item *item) {
    const tri_comm_op *op = &item->op;
    int number = tree_number(comm, op);
    if (number > 0) {
        message_header_ask(comm, tree_rank(comm, op, number & (number - 1)));
        return;
    }
    tree_pass_on(comm, item, op->send);
    comm->current.exchange = 1;
    if (op->recv != op->send && bytes_of(op)) memcpy(op->recv, op->send, bytes_of(op));
}

static bool tree_advance(message_comm *comm, progress_item *item, bool *advanced) {
    const tri_comm_op *op = &item->op;
    if (!message_headers_take(comm, item, advanced)) return false;
    if (comm->current.exchange == 0) {
        int number = tree_number(comm, op);
        int from = tree_rank(comm, op, number & (number - 1));
        const char *data = message_payload(message_header_in(comm, from));
        if (bytes_of(op)) memcpy(op->recv, data, bytes_of(op));
        tree_pass_on(comm, item, data);
        comm->current.exchange = 1;
        *advanced = true;
    }
    if (!message_headers_sent(comm)) return false;
    *advanced = true;
    return true;
}

const message_algorithm message_tree = {.begin = tree_begin, .advance = tree_advance};
