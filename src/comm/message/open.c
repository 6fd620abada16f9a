// Opens communicators over messages: lets the ranks learn each other's addresses. A rank reads the
// addresses of a few ranks from the store, the job's key-value service (through a
// tri_comm_meeting), and gets all others from these ranks: each exchange doubles the number of
// known addresses. So the store answers log2(size) questions of each rank instead of size.
#include "comm/message/message.h"

#include "base/cores.h"
#include "base/hash.h"
#include "base/ledger.h"
#include "base/limits.h"
#include "base/os.h"
#include "base/quantity.h"
#include "comm/message/communicator.h"
#include "comm/message/turn.h"
#include "comm/progress/communicator.h"
#include "comm/progress/thread.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CARD_MAGIC = 0x54524d31 };

// A rank's card: what a rank tells all others about itself when a communicator is opened, so that
// they can reach it and see which ranks are on one host.
typedef struct message_card {
    uint32_t magic;
    uint32_t address_bytes;
    char host[64];
    uint64_t boot; // id of the host's current boot, which tells hosts of the same name apart
    cpu_set_t cpus;
    unsigned char address[TRI_MAX_TRANSPORT_ADDRESS_BYTES];
} message_card;

// The arguments of tri_comm_message_open, the prefix of the keys under which ranks exchange their
// addresses, the time by which the ranks have to be connected, and the family that is opened.
typedef struct open_call {
    const tri_transport *transport;
    int rank, size, timeout_ms;
    const tri_comm_meeting *meeting;
    const tri_message_config *config; // NULL: the defaults
    const int *job_ranks;
    tri_comm *control_comm;
    tri_ledger *ledger;
    char prefix[64];
    int64_t until_ns;
    message_family *family;
} open_call;

static int job_rank(const open_call *call, int rank) {
    return call->job_ranks ? call->job_ranks[rank] : rank;
}

static uint64_t boot_number(void) {
    char *text;
    size_t size;
    if (tri_os_read_file("/proc/sys/kernel/random/boot_id", 4096, &text, &size) != TRI_OK) return 0;
    uint64_t hash = tri_hash_bytes(TRI_HASH_OF_NOTHING, text, size);
    free(text);
    return hash;
}

static tri_status make_card(const open_call *call, message_card *out) {
    size_t size;
    const void *address = call->transport->address(call->family->end, &size);
    // The whole struct is sent, so its padding and unused bytes must be initialised.
    memset(out, 0, sizeof *out);
    if (size > sizeof out->address)
        return TRI_FAIL(TRI_UNSUPPORTED, "an address of %s has %zu bytes; at most %zu are possible",
                        call->transport->name, size, sizeof out->address);
    out->magic = CARD_MAGIC;
    out->address_bytes = (uint32_t)size;
    if (size) memcpy(out->address, address, size);
    if (gethostname(out->host, sizeof out->host - 1) != 0) out->host[0] = 0;
    out->boot = boot_number();
    (void)sched_getaffinity(0, sizeof out->cpus, &out->cpus);
    return TRI_OK;
}

static tri_status report_version(const open_call *call, int rank) {
    return TRI_FAIL(TRI_MISMATCH, "rank %d runs another version of this program",
                    job_rank(call, rank));
}

static tri_status know(const open_call *call, int rank, message_card *card) {
    char why[TRI_TRANSPORT_WHY_BYTES] = "";
    card->host[sizeof card->host - 1] = 0;
    if (card->magic != CARD_MAGIC || card->address_bytes > sizeof card->address)
        return report_version(call, rank);
    if (!call->transport->know) return TRI_OK;
    tri_status status =
        call->transport->know(call->family->end, rank, card->address, card->address_bytes, why);
    if (status == TRI_OK) return TRI_OK;
    return TRI_FAIL(status, "cannot reach rank %d (host %s) over %s: %s", job_rank(call, rank),
                    card->host, call->transport->name, why);
}

static int left_ms(const open_call *call) {
    int64_t left = (call->until_ns - tri_os.monotonic_ns()) / 1000000;
    return left < 1 ? 1 : (int)left;
}

// Returns the time limit for connecting. It is short if the config has the function `opened`. That
// function returned only after every rank had opened its end of the transport, so no rank has a
// reason to be late.
static int connect_ms(const open_call *call) {
    bool all_are_there = call->config && call->config->opened;
    if (!all_are_there || call->timeout_ms < TRI_MESSAGE_CONNECT_MS) return call->timeout_ms;
    return TRI_MESSAGE_CONNECT_MS;
}

static tri_status meet(const open_call *call, message_card *cards) {
    char key[96];
    size_t got = 0;
    if (!call->transport->know) return TRI_OK;
    snprintf(key, sizeof key, "%s/%d", call->prefix, call->rank);
    TRI_TRY(call->meeting->set(call->meeting->context, key, &cards[call->rank], sizeof *cards));
    for (int distance = 1; distance < call->size; distance *= 2) {
        int to = (call->rank + call->size - distance) % call->size;
        snprintf(key, sizeof key, "%s/%d", call->prefix, to);
        tri_status status = call->meeting->get(call->meeting->context, key, left_ms(call),
                                               &cards[to], sizeof *cards, &got);
        if (status != TRI_OK)
            return tri_status_context(status, "rank %d did not join over %s", job_rank(call, to),
                                      call->transport->name);
        if (got != sizeof *cards) cards[to].magic = 0;
        TRI_TRY(know(call, to, &cards[to]));
    }
    return TRI_OK;
}

// After an exchange that failed, finds the rank that does not take part: `from`, if nothing has
// come from it and sending to `to` has not failed; else `to`.
static int find_silent(const tri_transport_request requests[2], int from, int to) {
    bool has_sent = requests[1].state <= TRI_REQUEST_DONE;
    return has_sent && requests[0].state != TRI_REQUEST_DONE ? from : to;
}

// Writes " (host …)" for a rank whose message_card did not arrive over the transport, if the rank
// has left its card in the store (call->meeting); else "".
static void find_host(const open_call *call, int rank, char *out, size_t size) {
    char key[96];
    size_t got = 0;
    message_card card;
    *out = 0;
    if (!call->transport->know) return;
    snprintf(key, sizeof key, "%s/%d", call->prefix, rank);
    tri_status status =
        call->meeting->get(call->meeting->context, key, 1, &card, sizeof card, &got);
    if (status == TRI_OK && got == sizeof card) snprintf(out, size, " (host %.63s)", card.host);
}

// Reports that the network carries nothing between this rank and another one, although both are
// running.
static tri_status report_silence(const open_call *call, const char *host, int silent, bool late) {
    char their_host[80], limit[32] = "";
    find_host(call, silent, their_host, sizeof their_host);
    const char *what = call->transport->loss(call->family->end, silent);
    if (late)
        snprintf(limit, sizeof limit, " within %s", tri_seconds_text(connect_ms(call) * 1e-3));
    return TRI_FAIL(late ? TRI_TIMEOUT : TRI_NETWORK,
                    "rank %d (host %s) does not reach rank %d%s over %s%s%s%s; name a network that "
                    "all hosts share (UCX_NET_DEVICES, or MPI's own setting), and let it through "
                    "firewalls",
                    job_rank(call, call->rank), host, job_rank(call, silent), their_host,
                    call->transport->name, limit, what ? ": that rank " : "", what ? what : "");
}

// Reports why an exchange of addresses in `gather` has failed. In this exchange, this rank was to
// receive from rank `from` (requests[0]) and to send to rank `to` (requests[1]).
static tri_status report_exchange(const open_call *call, const char *host,
                                  const tri_transport_request requests[2], int from, int to) {
    // The network carries messages, but what rank `from` sent is larger than the same number of our
    // cards: that rank runs another version.
    if (requests[0].state == TRI_REQUEST_TOO_LARGE) return report_version(call, from);
    bool late = requests[0].state <= TRI_REQUEST_DONE && requests[1].state <= TRI_REQUEST_DONE;
    return report_silence(call, host, find_silent(requests, from, to), late);
}

// Gathers the cards of all ranks (message_card: address, host, CPUs). cards[i] is the card of rank
// call->rank + i, modulo the size, so that the cards that one exchange sends lie next to each
// other, and so do those that it receives.
static tri_status gather(const open_call *call, message_card *cards) {
    const tri_transport *transport = call->transport;
    for (int distance = 1; distance < call->size; distance *= 2) {
        tri_transport_request requests[2] = {{0}};
        int from = (call->rank + distance) % call->size;
        int to = (call->rank + call->size - distance) % call->size;
        int count = distance < call->size - distance ? distance : call->size - distance;
        int64_t until_ns = tri_os.monotonic_ns() + connect_ms(call) * (int64_t)1000000;
        transport->recv(call->family->end, from, MESSAGE_ADDRESS, cards + distance,
                        (size_t)count * sizeof *cards, &requests[0]);
        transport->send(call->family->end, to, MESSAGE_ADDRESS, cards,
                        (size_t)count * sizeof *cards, &requests[1]);
        if (message_await(transport, call->family->end, requests, 2, until_ns)) continue;
        tri_status status = report_exchange(call, cards[0].host, requests, from, to);
        if (call->config && call->config->failed)
            status = call->config->failed(call->config->context, status);
        // The requests lie on this function's stack, so the transport must not use them any more.
        transport->stop(call->family->end);
        call->family->stopped = true;
        return status;
    }
    return TRI_OK;
}

// A rank may spin while it waits only if every rank of its host has a core to itself: else it would
// take the core from the rank for which it waits.
static bool can_spin(const message_card *own, const message_card *cards, int size) {
    cpu_set_t all;
    int count = 0;
    CPU_ZERO(&all);
    for (int r = 0; r < size; r++) {
        if (strcmp(cards[r].host, own->host) != 0 || cards[r].boot != own->boot) continue;
        CPU_OR(&all, &all, &cards[r].cpus);
        count++;
    }
    return CPU_COUNT(&all) >= count && tri_cores_quota() >= count;
}

static tri_status exchange_cards(const open_call *call) {
    message_family *family = call->family;
    message_card *cards = calloc((size_t)call->size, 2 * sizeof *cards);
    if (!cards) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a communicator");
    message_card *turned = cards + call->size;
    tri_status status = make_card(call, &cards[call->rank]);
    if (status == TRI_OK) status = meet(call, cards);
    turned[0] = cards[call->rank];
    if (status == TRI_OK) status = gather(call, turned);
    for (int i = 0; i < call->size && status == TRI_OK; i++) {
        int r = (call->rank + i) % call->size;
        status = know(call, r, &turned[i]);
        memcpy(family->members[r].host, turned[i].host, sizeof family->members[r].host);
    }
    if (status == TRI_OK) family->base.can_spin = can_spin(&turned[0], turned, call->size);
    // A thread that waits may yield its core early (comm/progress/spin.c), except with MPI, which
    // is the only transport without a descriptor to sleep on. MPI's calls may themselves yield the
    // core, so a second yield after each of them would only cost time.
    family->base.yields_early = call->transport->event_fd(family->end) >= 0;
    free(cards);
    return status;
}

static tri_status make_family(open_call *call) {
    message_family *family = calloc(1, sizeof *family);
    if (family) family->members = calloc((size_t)call->size, sizeof *family->members);
    tri_ledger *ledger = NULL;
    tri_status status = family && family->members
                            ? TRI_OK
                            : TRI_FAIL(TRI_NO_MEMORY, "no memory for a communicator");
    if (status == TRI_OK && call->ledger)
        ledger = tri_ledger_retain(call->ledger);
    else if (status == TRI_OK)
        status = tri_ledger_open(NULL, &ledger);
    if (status != TRI_OK) {
        if (family) free(family->members);
        free(family);
        return status;
    }
    for (int r = 0; r < call->size; r++) family->members[r].job_rank = job_rank(call, r);
    progress_family_init(&family->base, &message_progress_backend, ledger, NULL);
    family->base.size = call->size;
    family->base.job_rank = family->members[call->rank].job_rank;
    family->base.timeout_ms = call->timeout_ms;
    family->base.control = call->control_comm;
    family->transport = call->transport;
    family->rank = call->rank;
    // The first communicator has the number 1. Messages of the family as a whole have 0.
    family->next_number = 2;
    call->family = family;
    return message_turn_init(family);
}

static tri_status open_end(const open_call *call) {
    char why[TRI_TRANSPORT_WHY_BYTES] = "";
    tri_transport_job job = {.rank = call->rank, .size = call->size};
    tri_status status = call->transport->open(&job, &call->family->end, why);
    if (status == TRI_OK) return TRI_OK;
    return TRI_FAIL(status, "rank %d: cannot open %s: %s", job_rank(call, call->rank),
                    call->transport->name, why);
}

static tri_status open_world(const open_call *call, tri_comm **out) {
    message_comm *comm;
    int *member = calloc((size_t)call->size, sizeof *member);
    if (!member) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a communicator");
    for (int r = 0; r < call->size; r++) member[r] = r;
    tri_status status = message_comm_create(call->family, 1, member, call->rank, call->size, &comm);
    free(member);
    TRI_TRY(status);
    *out = &comm->base.head;
    message_turn_begin(call->family);
    message_listen(call->family);
    message_turn_end(call->family);
    status = progress_thread_start(&call->family->base);
    // After this barrier all ranks know all addresses, so that no send has to wait for its
    // receiver's address.
    if (status == TRI_OK) status = tri_comm_barrier(*out, "join");
    if (status == TRI_OK) return TRI_OK;
    progress_close(*out); // also ends the family, which has no other communicator
    *out = NULL;
    return status;
}

tri_status tri_comm_message_open(const tri_transport *transport, int rank, int size,
                                 const tri_comm_meeting *meeting, const tri_message_config *config,
                                 tri_comm **out) {
    // Numbers the communicators that this function opens, so that the ranks leave the addresses of
    // each under keys of its own. All ranks open them in the same order, so their numbers agree.
    static _Atomic int opened;
    *out = NULL;
    if (size < 1 || size > TRI_MAX_RANKS || rank < 0 || rank >= size)
        return TRI_FAIL(TRI_BAD_INPUT, "rank %d of %d: %s serves 1 to %d ranks", rank, size,
                        transport->name, TRI_MAX_RANKS);
    open_call call = {.transport = transport,
                      .rank = rank,
                      .size = size,
                      .config = config,
                      .timeout_ms = TRI_DEFAULT_TIMEOUT_MS,
                      .meeting = meeting};
    if (config && config->timeout_ms > 0) call.timeout_ms = config->timeout_ms;
    if (config) call.job_ranks = config->job_ranks;
    if (config) call.control_comm = config->control;
    if (config) call.ledger = config->ledger;
    if (call.control_comm && !call.ledger) call.ledger = call.control_comm->ledger;
    if (config && config->group)
        snprintf(call.prefix, sizeof call.prefix, "%s/%s", transport->name, config->group);
    else
        snprintf(call.prefix, sizeof call.prefix, "%s/%d", transport->name,
                 atomic_fetch_add(&opened, 1));
    call.until_ns = tri_os.monotonic_ns() + call.timeout_ms * (int64_t)1000000;
    tri_status status = make_family(&call);
    if (!call.family) return status;
    if (status == TRI_OK) status = open_end(&call);
    if (status == TRI_OK && config && config->opened) status = config->opened(config->context);
    if (status == TRI_OK) status = exchange_cards(&call);
    if (status == TRI_OK && config && config->reached) status = config->reached(config->context);
    if (status != TRI_OK) {
        call.family->stopped |= call.family->end == NULL;
        progress_family_end(&call.family->base);
        return status;
    }
    status = open_world(&call, out);
    return status;
}
