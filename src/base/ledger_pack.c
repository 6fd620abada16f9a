// Packs a ledger (the record of a rank's latest actions) as bytes for processes that share no
// memory: the totals, the open actions of the compute lane (lane 0), and two actions of all other
// lanes (communicators, copies, …) together: the newest that has not ended, and the newest that has
// ended. The bytes need no conversion, because the ranks that send and receive them run the same
// program on machines with the same byte order.
#include "base/ledger.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { MAGIC = 0x544c4731, PACKED_EVENTS = TRI_LEDGER_DEPTH + 2 };

typedef struct packed_head {
    uint32_t magic;
    int32_t pid, peers;
    // How many kinds (packed_kind) and events (packed_event) follow this head. The first `depth`
    // events are the open actions of the compute lane.
    int32_t kinds, depth, events;
    int64_t realtime_offset_ns, steps, step;
    uint64_t begun, progress_count;
    char host[64];
} packed_head;

typedef struct packed_kind {
    char name[TRI_LEDGER_NAME_BYTES];
    int64_t count, busy_ns;
} packed_kind;

typedef struct packed_event {
    uint64_t number, sequence;
    int64_t begin_ns, end_ns, bytes;
    int32_t lane, kind, subject, round;
    char label[TRI_LEDGER_LABEL_BYTES];
} packed_event;

_Static_assert(sizeof(packed_head) + TRI_MAX_LEDGER_KINDS * sizeof(packed_kind) +
                       PACKED_EVENTS * sizeof(packed_event) <=
                   TRI_LEDGER_PACKED_BYTES,
               "the largest ring fits");

static int within(int value, int most) { return value < 0 ? 0 : value > most ? most : value; }

static void pack_event(const tri_ledger_event *event, packed_event *out) {
    memset(out, 0, sizeof *out);
    out->number = atomic_load(&event->number);
    out->sequence = event->sequence;
    out->begin_ns = event->begin_ns;
    out->end_ns = atomic_load(&event->end_ns);
    out->bytes = event->bytes;
    out->lane = event->lane;
    out->kind = event->kind;
    out->subject = event->subject;
    out->round = event->round;
    memcpy(out->label, event->label, sizeof out->label);
}

size_t tri_ledger_pack(const tri_ledger_ring *ring, void *out) {
    packed_head head;
    memset(&head, 0, sizeof head);
    head.magic = MAGIC;
    head.pid = ring->pid;
    head.peers = atomic_load(&ring->peers);
    head.kinds = within(atomic_load(&ring->kinds), TRI_MAX_LEDGER_KINDS);
    head.depth = within(atomic_load(&ring->depth), TRI_LEDGER_DEPTH);
    head.realtime_offset_ns = ring->realtime_offset_ns;
    head.steps = atomic_load(&ring->steps);
    head.step = atomic_load(&ring->step);
    head.begun = atomic_load(&ring->begun);
    head.progress_count = atomic_load(&ring->progress_count);
    memcpy(head.host, ring->host, sizeof head.host);
    char *at = (char *)out + sizeof head;
    for (int i = 0; i < head.kinds; i++, at += sizeof(packed_kind)) {
        packed_kind kind;
        memcpy(kind.name, ring->kind_names[i], sizeof kind.name);
        kind.count = atomic_load(&ring->totals[i].count);
        kind.busy_ns = atomic_load(&ring->totals[i].busy_ns);
        memcpy(at, &kind, sizeof kind);
    }
    tri_ledger_event latest[2];
    tri_ledger_latest(ring, &latest[0], &latest[1]);
    for (int i = 0; i < head.depth + 2; i++) {
        packed_event event;
        pack_event(i < head.depth ? &ring->open[i] : &latest[i - head.depth], &event);
        if (i >= head.depth && event.number == 0) continue;
        memcpy(at, &event, sizeof event);
        at += sizeof event;
        head.events++;
    }
    memcpy(out, &head, sizeof head);
    return (size_t)(at - (char *)out);
}

static bool is_valid(const packed_head *head, size_t size) {
    return head->magic == MAGIC && head->kinds >= 0 && head->kinds <= TRI_MAX_LEDGER_KINDS &&
           head->depth >= 0 && head->depth <= TRI_LEDGER_DEPTH && head->events >= head->depth &&
           head->events <= head->depth + 2 &&
           size == sizeof *head + (size_t)head->kinds * sizeof(packed_kind) +
                       (size_t)head->events * sizeof(packed_event);
}

static void unpack_event(const packed_event *event, tri_ledger_event *out) {
    atomic_exchange_explicit(&out->number, 0, memory_order_acq_rel);
    out->begin_ns = event->begin_ns;
    out->bytes = event->bytes;
    out->sequence = event->sequence;
    out->lane = event->lane;
    out->kind = event->kind;
    out->subject = event->subject;
    out->round = event->round;
    memcpy(out->label, event->label, sizeof out->label);
    out->label[sizeof out->label - 1] = 0;
    atomic_store_explicit(&out->end_ns, event->end_ns, memory_order_relaxed);
    atomic_store_explicit(&out->number, event->number, memory_order_release);
}

// Removes the events that earlier calls of tri_ledger_unpack stored in the ring, because they may
// have ended since. Does not write to entries that were never used, because the system allocates
// their memory only at the first write.
static void forget_events(tri_ledger_ring *ring) {
    for (int i = 0; i < TRI_LEDGER_EVENTS; i++)
        if (atomic_load_explicit(&ring->events[i].number, memory_order_relaxed))
            atomic_store(&ring->events[i].number, 0);
}

// tri_ledger_unpack overwrites a whole ring, field by field. A reader that looked meanwhile would
// find some old fields and some new ones; this lock prevents that. One lock serves all unpacked
// rings, because only threads of this process unpack and read them, and none of them blocks while
// it holds the lock.
static pthread_mutex_t unpacked = PTHREAD_MUTEX_INITIALIZER;

void tri_ledger_lock_unpacked(void) { pthread_mutex_lock(&unpacked); }
void tri_ledger_unlock_unpacked(void) { pthread_mutex_unlock(&unpacked); }

static void unpack(const packed_head *head, const char *at, tri_ledger_ring *ring) {
    forget_events(ring);
    ring->pid = head->pid;
    ring->realtime_offset_ns = head->realtime_offset_ns;
    memcpy(ring->host, head->host, sizeof ring->host);
    ring->host[sizeof ring->host - 1] = 0;
    for (int i = 0; i < head->kinds; i++, at += sizeof(packed_kind)) {
        packed_kind kind;
        memcpy(&kind, at, sizeof kind);
        memcpy(ring->kind_names[i], kind.name, sizeof kind.name);
        ring->kind_names[i][sizeof kind.name - 1] = 0;
        atomic_store(&ring->totals[i].count, kind.count);
        atomic_store(&ring->totals[i].busy_ns, kind.busy_ns);
    }
    for (int i = 0; i < head->events; i++, at += sizeof(packed_event)) {
        packed_event event;
        memcpy(&event, at, sizeof event);
        // Readers look up the name of an event's kind. An event whose kind has no name gets the
        // number 0, so that readers ignore it. If such an event is an open action, it is stored all
        // the same, because its index in `open` says how deep the action is nested. Any other such
        // event is left out: the number of an event decides where in `events` it is stored, so an
        // event with the number 0 would overwrite another one.
        if (event.kind < 0 || event.kind >= head->kinds) event.number = 0;
        if (i < head->depth)
            unpack_event(&event, &ring->open[i]);
        else if (event.number)
            unpack_event(&event, &ring->events[event.number % TRI_LEDGER_EVENTS]);
    }
    atomic_store(&ring->peers, head->peers);
    atomic_store(&ring->kinds, head->kinds);
    atomic_store(&ring->steps, head->steps);
    atomic_store(&ring->step, head->step);
    atomic_store(&ring->begun, head->begun);
    atomic_store(&ring->depth, head->depth);
    atomic_store(&ring->progress_count, head->progress_count);
}

bool tri_ledger_unpack(const void *data, size_t size, tri_ledger_ring *ring) {
    packed_head head;
    if (size < sizeof head) return false;
    memcpy(&head, data, sizeof head);
    if (!is_valid(&head, size)) return false;
    pthread_mutex_lock(&unpacked);
    unpack(&head, (const char *)data + sizeof head, ring);
    pthread_mutex_unlock(&unpacked);
    return true;
}
