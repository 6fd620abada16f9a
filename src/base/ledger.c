// The ledger: records the actions of this rank, such as the forward pass of a block or a
// collective, each as one event in a ring buffer. Other processes read the buffer without locks,
// because a rank that is stuck may hold one. If an event's number is 0, or changes while a reader
// copies the event, the event is being written, and the copy is not used.
//
// A lane is a sequence of actions that runs beside other lanes. Lane 0, the compute lane, belongs
// to the thread that computes, and its actions can be nested. Communicators and storage have lanes
// of their own.
#include "base/ledger.h"

#include "base/os.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char TRI_LEDGER_WAIT[] = "WAIT";
const char TRI_LEDGER_ISSUE[] = "ISSUE";
const char TRI_LEDGER_COMMIT[] = "COMMIT";
const char TRI_LEDGER_METRICS[] = "writing metrics";

// What happens to an action of the compute lane (lane 0) that is still open when the next step
// begins. An action of a step's schedule is closed: its step failed and did not end it. An action
// such as "evaluation" stays open, because steps may begin inside it.
typedef enum ledger_span { ENDS_WITH_STEP, OUTLIVES_STEPS } ledger_span;

typedef struct ledger_open { // an action of the compute lane (lane 0) that has not ended
    uint64_t number;         // number of the action's event
    int64_t nested_ns;       // time spent in actions inside this one
    int kind;                // into kinds[] of the ledger
    ledger_span span;
} ledger_open;

struct tri_ledger {
    pthread_mutex_t lock;
    // `ring`: the ring buffer into which the ledger writes; `own`: the same, if the ledger has
    // allocated it itself, else NULL.
    tri_ledger_ring *ring, *own;
    int users; // how many users have not called tri_ledger_close yet
    // The names of the kinds of actions, as the pointers that callers passed, so that a known kind
    // is found by comparing pointers. The ring has copies of the texts.
    const char *kinds[TRI_MAX_LEDGER_KINDS];
    ledger_open open[TRI_LEDGER_DEPTH];
    pthread_t thread; // the thread that computes, if has_thread
    _Atomic bool has_thread;
    tri_ledger_event *trace;
    size_t trace_capacity;
    uint64_t trace_first; // number of the first event after the trace was started
};

tri_status tri_ledger_open(tri_ledger_ring *ring, tri_ledger **out) {
    tri_ledger *ledger = calloc(1, sizeof *ledger);
    tri_ledger_ring *own = ring ? NULL : calloc(1, sizeof *own);
    if (!ledger || (!ring && !own)) {
        free(ledger);
        free(own);
        return TRI_FAIL(TRI_NO_MEMORY, "no memory for a ledger of actions");
    }
    pthread_mutex_init(&ledger->lock, NULL);
    ledger->users = 1;
    ledger->own = own;
    ledger->ring = ring = ring ? ring : own;
    if (gethostname(ring->host, sizeof ring->host - 1) < 0)
        snprintf(ring->host, sizeof ring->host, "localhost");
    ring->pid = (int32_t)getpid();
    ring->realtime_offset_ns = tri_os.realtime_ns() - tri_os.monotonic_ns();
    tri_ledger_lane(ledger, "compute");
    *out = ledger;
    return TRI_OK;
}

tri_ledger *tri_ledger_retain(tri_ledger *ledger) {
    ledger->users++;
    return ledger;
}

void tri_ledger_close(tri_ledger *ledger) {
    if (!ledger || --ledger->users > 0) return;
    pthread_mutex_destroy(&ledger->lock);
    free(ledger->trace);
    free(ledger->own);
    free(ledger);
}

const tri_ledger_ring *tri_ledger_ring_of(const tri_ledger *ledger) { return ledger->ring; }

void tri_ledger_name_lane(tri_ledger *ledger, int lane, const char *name) {
    snprintf(ledger->ring->lane_names[lane], TRI_LEDGER_NAME_BYTES, "%s", name);
}

int tri_ledger_lane(tri_ledger *ledger, const char *name) {
    pthread_mutex_lock(&ledger->lock);
    int lanes = atomic_load(&ledger->ring->lanes);
    int lane = lanes < TRI_MAX_LANES ? lanes : TRI_MAX_LANES - 1;
    tri_ledger_name_lane(ledger, lane, name);
    atomic_store(&ledger->ring->lanes, lane + 1);
    pthread_mutex_unlock(&ledger->lock);
    return lane;
}

void tri_ledger_set_peers(tri_ledger *ledger, int peers) {
    atomic_store(&ledger->ring->peers, peers);
}

void tri_ledger_attach(tri_ledger *ledger) {
    // In every step but the first, this thread is the compute thread already. Then nothing is
    // written, because other threads may be reading `thread`.
    if (!ledger || tri_ledger_is_compute_thread(ledger)) return;
    ledger->thread = pthread_self();
    atomic_store_explicit(&ledger->has_thread, true, memory_order_release);
}

static int depth_of(const tri_ledger *ledger) {
    return atomic_load_explicit(&ledger->ring->depth, memory_order_relaxed);
}

static void set_depth(tri_ledger *ledger, int depth) {
    atomic_store_explicit(&ledger->ring->depth, depth, memory_order_release);
    atomic_fetch_add_explicit(&ledger->ring->progress_count, 1, memory_order_relaxed);
}

void tri_ledger_step(tri_ledger *ledger, int64_t step) {
    if (!ledger) return;
    tri_ledger_attach(ledger);
    atomic_store_explicit(&ledger->ring->step, step, memory_order_relaxed);
    atomic_fetch_add(&ledger->ring->steps, 1);
    int depth = depth_of(ledger);
    while (depth > 0 && ledger->open[depth - 1].span == ENDS_WITH_STEP) depth--;
    set_depth(ledger, depth);
}

bool tri_ledger_is_compute_thread(const tri_ledger *ledger) {
    return ledger && atomic_load_explicit(&ledger->has_thread, memory_order_acquire) &&
           pthread_equal(ledger->thread, pthread_self());
}

static int kind_of(tri_ledger *ledger, const char *kind) {
    int known = atomic_load_explicit(&ledger->ring->kinds, memory_order_relaxed);
    for (int i = 0; i < known; i++)
        if (ledger->kinds[i] == kind) return i;
    if (known == TRI_MAX_LEDGER_KINDS) return known - 1;
    ledger->kinds[known] = kind;
    snprintf(ledger->ring->kind_names[known], TRI_LEDGER_NAME_BYTES, "%s", kind);
    atomic_store_explicit(&ledger->ring->kinds, known + 1, memory_order_release);
    return known;
}

static void event_write(tri_ledger_event *event, uint64_t number, int64_t begin_ns, int64_t end_ns,
                        int kind, const tri_ledger_action *action) {
    // The acquire order keeps the writes below from moving before this one. So a reader that sees
    // one of them also sees the number 0, which says that the event is being written.
    atomic_exchange_explicit(&event->number, 0, memory_order_acq_rel);
    atomic_store_explicit(&event->end_ns, end_ns, memory_order_relaxed);
    event->begin_ns = begin_ns;
    event->bytes = action->bytes;
    event->sequence = action->sequence;
    event->lane = action->lane;
    event->kind = kind;
    event->subject = action->subject;
    event->round = action->round;
    size_t length = action->label ? strnlen(action->label, sizeof event->label - 1) : 0;
    if (length > 0) memcpy(event->label, action->label, length);
    event->label[length] = 0;
    atomic_store_explicit(&event->number, number, memory_order_release);
}

static tri_ledger_event *ring_slot(tri_ledger *ledger, uint64_t number) {
    return &ledger->ring->events[number % TRI_LEDGER_EVENTS];
}

static tri_ledger_event *trace_slot(const tri_ledger *ledger, uint64_t number) {
    if (!ledger->trace || number < ledger->trace_first) return NULL;
    return &ledger->trace[(number - ledger->trace_first) % ledger->trace_capacity];
}

// Writes a new event to the ring and, if tri_ledger_trace has started a trace, also to the trace.
// Returns the event's number. end_ns 0: the event has not ended. The caller holds the lock, because
// several threads write: one computes, others serve communicators or storage.
static uint64_t add_event(tri_ledger *ledger, const tri_ledger_action *action, int kind,
                          int64_t begin_ns, int64_t end_ns) {
    uint64_t number = atomic_load_explicit(&ledger->ring->begun, memory_order_relaxed) + 1;
    event_write(ring_slot(ledger, number), number, begin_ns, end_ns, kind, action);
    tri_ledger_event *traced = trace_slot(ledger, number);
    if (traced) event_write(traced, number, begin_ns, end_ns, kind, action);
    atomic_store_explicit(&ledger->ring->begun, number, memory_order_release);
    return number;
}

static tri_ledger_mark begin(tri_ledger *ledger, const tri_ledger_action *action,
                             ledger_span span) {
    if (!ledger) return (tri_ledger_mark){0};
    int64_t now = tri_os.monotonic_ns();
    pthread_mutex_lock(&ledger->lock);
    int kind = kind_of(ledger, action->kind);
    uint64_t number = add_event(ledger, action, kind, now, 0);
    int depth = depth_of(ledger);
    if (action->lane == TRI_LANE_OF_COMPUTE && depth < TRI_LEDGER_DEPTH) {
        ledger->open[depth] = (ledger_open){.number = number, .kind = kind, .span = span};
        event_write(&ledger->ring->open[depth], number, now, 0, kind, action);
        set_depth(ledger, depth + 1);
    }
    pthread_mutex_unlock(&ledger->lock);
    return (tri_ledger_mark){number, now};
}

tri_ledger_mark tri_ledger_begin(tri_ledger *ledger, const tri_ledger_action *action) {
    return begin(ledger, action, ENDS_WITH_STEP);
}

tri_ledger_mark tri_ledger_enter(tri_ledger *ledger, const char *kind, const char *label) {
    return begin(ledger,
                 &(tri_ledger_action){.kind = kind,
                                      .label = label,
                                      .lane = TRI_LANE_OF_COMPUTE,
                                      .subject = TRI_LEDGER_NONE,
                                      .round = TRI_LEDGER_NONE},
                 OUTLIVES_STEPS);
}

void tri_ledger_add(tri_ledger *ledger, const tri_ledger_action *action, int64_t begin_ns,
                    int64_t end_ns) {
    if (!ledger) return;
    pthread_mutex_lock(&ledger->lock);
    int kind = kind_of(ledger, action->kind);
    add_event(ledger, action, kind, begin_ns, end_ns);
    tri_ledger_total *total = &ledger->ring->totals[kind];
    atomic_fetch_add_explicit(&total->busy_ns, end_ns - begin_ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&total->count, 1, memory_order_relaxed);
    pthread_mutex_unlock(&ledger->lock);
}

// Ends an action of the computing thread (lane 0), and with it the actions inside it that are still
// open, because a function that fails does not end its own actions.
static void compute_end(tri_ledger *ledger, tri_ledger_mark mark, int64_t now) {
    int depth = depth_of(ledger) - 1; // after the loop: the index of this action in `open`
    while (depth >= 0 && ledger->open[depth].number != mark.number) depth--;
    if (depth < 0) return;
    int64_t took = now - mark.begin_ns;
    tri_ledger_total *total = &ledger->ring->totals[ledger->open[depth].kind];
    atomic_fetch_add_explicit(&total->busy_ns, took - ledger->open[depth].nested_ns,
                              memory_order_relaxed);
    atomic_fetch_add_explicit(&total->count, 1, memory_order_relaxed);
    if (depth > 0) ledger->open[depth - 1].nested_ns += took;
    set_depth(ledger, depth);
}

void tri_ledger_end(tri_ledger *ledger, tri_ledger_mark mark) {
    if (!ledger || !mark.number) return;
    int64_t now = tri_os.monotonic_ns();
    pthread_mutex_lock(&ledger->lock);
    tri_ledger_event *const slots[] = {ring_slot(ledger, mark.number),
                                       trace_slot(ledger, mark.number)};
    for (int i = 0; i < 2; i++)
        if (slots[i] &&
            atomic_load_explicit(&slots[i]->number, memory_order_relaxed) == mark.number)
            atomic_store_explicit(&slots[i]->end_ns, now, memory_order_release);
    compute_end(ledger, mark, now);
    pthread_mutex_unlock(&ledger->lock);
}

tri_status tri_ledger_trace(tri_ledger *ledger, size_t events) {
    tri_ledger_event *trace = calloc(events, sizeof *trace);
    if (!trace) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a trace of %zu actions", events);
    pthread_mutex_lock(&ledger->lock);
    free(ledger->trace);
    ledger->trace = trace;
    ledger->trace_capacity = events;
    ledger->trace_first = atomic_load(&ledger->ring->begun) + 1;
    pthread_mutex_unlock(&ledger->lock);
    return TRI_OK;
}

size_t tri_ledger_traced(const tri_ledger *ledger, uint64_t *dropped) {
    uint64_t begun = atomic_load(&ledger->ring->begun) + 1 - ledger->trace_first;
    *dropped = 0;
    if (!ledger->trace) return 0;
    if (begun > ledger->trace_capacity) *dropped = begun - ledger->trace_capacity;
    return (size_t)(begun - *dropped);
}

const tri_ledger_event *tri_ledger_traced_at(const tri_ledger *ledger, size_t index) {
    uint64_t dropped;
    TRI_ASSERT(index < tri_ledger_traced(ledger, &dropped));
    return &ledger->trace[(dropped + index) % ledger->trace_capacity];
}

// Copies an event. False: the event was being written, so the copy may be half new, or the number
// of its kind is impossible.
static bool event_read(const tri_ledger_event *event, tri_ledger_event *out) {
    uint64_t number = atomic_load_explicit(&event->number, memory_order_acquire);
    if (!number) return false;
    memcpy(out, event, sizeof *out);
    atomic_thread_fence(memory_order_acquire);
    out->label[sizeof out->label - 1] = 0;
    return atomic_load_explicit(&event->number, memory_order_relaxed) == number &&
           (unsigned)out->kind < TRI_MAX_LEDGER_KINDS;
}

bool tri_ledger_read(const tri_ledger_ring *ring, uint64_t number, tri_ledger_event *out) {
    const tri_ledger_event *event = &ring->events[number % TRI_LEDGER_EVENTS];
    return number && event_read(event, out) && out->number == number;
}

typedef struct ledger_view {
    // The innermost open action of the compute lane (lane 0) that is not a wait.
    tri_ledger_event computes;
    // Two actions among those of all lanes except the compute lane (communicators, storage, …):
    // the newest that is open, and the newest that has ended.
    tri_ledger_event running, latest_ended;
} ledger_view;

static bool waits(const tri_ledger_ring *ring, const tri_ledger_event *event) {
    return !strcmp(ring->kind_names[event->kind], TRI_LEDGER_WAIT);
}

// How many entries of ring->open can be read: ring->depth, limited to the array's bounds, because
// it comes from another process and may be any number.
static int open_actions(const tri_ledger_ring *ring) {
    int depth = atomic_load_explicit(&ring->depth, memory_order_acquire);
    return depth < 0 ? 0 : depth > TRI_LEDGER_DEPTH ? TRI_LEDGER_DEPTH : depth;
}

bool tri_ledger_waits(const tri_ledger_ring *ring) {
    tri_ledger_event event;
    tri_ledger_lock_unpacked();
    int depth = open_actions(ring);
    bool is_wait = depth > 0 && event_read(&ring->open[depth - 1], &event) && waits(ring, &event);
    tri_ledger_unlock_unpacked();
    return is_wait;
}

void tri_ledger_latest(const tri_ledger_ring *ring, tri_ledger_event *running,
                       tri_ledger_event *latest_ended) {
    atomic_store(&running->number, 0);
    atomic_store(&latest_ended->number, 0);
    uint64_t begun = atomic_load(&ring->begun);
    for (uint64_t n = begun; n > 0 && n + TRI_LEDGER_EVENTS > begun; n--) {
        tri_ledger_event event;
        if (!tri_ledger_read(ring, n, &event) || event.lane == TRI_LANE_OF_COMPUTE) continue;
        tri_ledger_event *to = event.end_ns ? latest_ended : running;
        if (!to->number) *to = event;
    }
}

static void find_events(const tri_ledger_ring *ring, ledger_view *view) {
    for (int i = open_actions(ring) - 1; i >= 0 && !view->computes.number; i--) {
        tri_ledger_event event;
        if (event_read(&ring->open[i], &event) && !waits(ring, &event)) view->computes = event;
    }
    tri_ledger_latest(ring, &view->running, &view->latest_ended);
}

// Writes "in FORWARD 'conv2' of step 17", for messages about what a rank does. Returns the length
// of the text; 0: there is no event.
static int describe(const tri_ledger_ring *ring, const tri_ledger_event *event,
                    const char *preposition, char *out, size_t size) {
    if (!event->number) return 0;
    bool named = event->label[0] || event->lane != TRI_LANE_OF_COMPUTE;
    int used = snprintf(out, size, named ? "%s %s '%s'" : "%s %s", preposition,
                        ring->kind_names[event->kind], event->label);
    if (event->sequence && used > 0 && (size_t)used < size)
        used += snprintf(out + used, size - (size_t)used, " (sequence %llu)",
                         (unsigned long long)event->sequence);
    bool in_step = event->lane == TRI_LANE_OF_COMPUTE && atomic_load(&ring->steps) > 0;
    if (in_step && used > 0 && (size_t)used < size)
        used += snprintf(out + used, size - (size_t)used, " of step %lld",
                         (long long)atomic_load(&ring->step));
    return used < 0 ? 0 : used;
}

static void describe_all(const tri_ledger_ring *ring, char *out, size_t size) {
    ledger_view view = {0};
    find_events(ring, &view);
    snprintf(out, size, "before its first action");
    int used = describe(ring, &view.computes, "in", out, size);
    if ((size_t)used >= size) return;
    const char *in = used > 0 ? ", in" : "in", *after = used > 0 ? ", after" : "after";
    if (!describe(ring, &view.running, in, out + used, size - (size_t)used))
        describe(ring, &view.latest_ended, after, out + used, size - (size_t)used);
}

char *tri_ledger_text(const tri_ledger_ring *ring, char *out, size_t size) {
    tri_ledger_lock_unpacked();
    describe_all(ring, out, size);
    tri_ledger_unlock_unpacked();
    return out;
}
