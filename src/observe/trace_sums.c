// Reads a trace file (observe/trace.c) and sums it up, for `trireme trace`. In the file a rank is a
// process, and an event is an action of the rank. A lane of a rank (computation, or one
// communicator) is a thread, or several threads if its actions overlap.
#include "observe/trace_sums.h"

#include "base/ledger.h"
#include "base/os.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_GAPS = 10, MOST_RANKS = 1 << 20, MOST_DEPTH = 64 };

typedef struct event {
    int rank, thread;
    double begin, end, self; // times in µs; `self` excludes nested events
    int64_t bytes;
    const char *kind, *name;
} event;

typedef struct reading {
    tri_arena *arena;
    event *events;
    int count, capacity;
    json_t *lanes; // from "RANK THREAD" to the name of the lane that this thread shows
} reading;

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static double number_of(const json_t *object, const char *key) {
    return json_number_value(json_object_get(object, key));
}

static const char *lane_key(char *out, size_t size, int rank, int thread) {
    snprintf(out, size, "%d %d", rank, thread);
    return out;
}

static bool read_event(reading *r, const json_t *item) {
    const char *phase = text_of(item, "ph");
    int rank = (int)json_integer_value(json_object_get(item, "pid"));
    int thread = (int)json_integer_value(json_object_get(item, "tid"));
    char key[64];
    if (rank < 0 || rank >= MOST_RANKS || thread < 0) return false;
    if (!strcmp(phase, "M") && !strcmp(text_of(item, "name"), "thread_name"))
        return json_object_set(r->lanes, lane_key(key, sizeof key, rank, thread),
                               json_object_get(json_object_get(item, "args"), "name")) == 0;
    if (strcmp(phase, "X") != 0) return true;
    double begin = number_of(item, "ts"), length = number_of(item, "dur");
    if (!isfinite(begin) || !isfinite(length) || length < 0) return false;
    TRI_PUSH(r->arena, r->events, r->count, r->capacity) =
        (event){.rank = rank,
                .thread = thread,
                .begin = begin,
                .end = begin + length,
                .self = length,
                .bytes = (int64_t)number_of(json_object_get(item, "args"), "bytes"),
                .kind = tri_arena_strdup(r->arena, text_of(item, "cat")),
                .name = tri_arena_strdup(r->arena, text_of(item, "name"))};
    return true;
}

static int by_thread_and_time(const void *left, const void *right) {
    const event *a = left, *b = right;
    if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
    if (a->thread != b->thread) return a->thread < b->thread ? -1 : 1;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    return a->end > b->end ? -1 : a->end < b->end; // the outer one first
}

static bool same_thread(const event *a, const event *b) {
    return a->rank == b->rank && a->thread == b->thread;
}

// Computes each event's time without the time of the events nested in it, so that sums over events
// count no time twice. The events are sorted, and any two of one thread are nested or disjoint.
static void find_own_time(event *events, int count) {
    int stack[MOST_DEPTH], depth = 0;
    for (int i = 0; i < count; i++) {
        event *e = &events[i];
        while (depth > 0 && (!same_thread(&events[stack[depth - 1]], e) ||
                             events[stack[depth - 1]].end <= e->begin))
            depth--;
        if (depth > 0) events[stack[depth - 1]].self -= e->end - e->begin;
        if (depth < MOST_DEPTH) stack[depth++] = i;
    }
}

static int by_seconds(const void *left, const void *right) {
    double a = ((const tri_trace_sum *)left)->seconds, b = ((const tri_trace_sum *)right)->seconds;
    return a > b ? -1 : a < b;
}

static const char *lane_of(const reading *r, const event *e) {
    char key[64];
    const char *lane =
        json_string_value(json_object_get(r->lanes, lane_key(key, sizeof key, e->rank, e->thread)));
    return lane ? lane : "";
}

// Adds up the events of all ranks: one sum for each lane and name of events or, if by_kind, for
// each lane and kind. Lanes of several ranks count as one if they have the same name. Returns the
// sums, those with the most time first.
static tri_trace_sum *add_up(const reading *r, bool by_kind, int *count) {
    tri_trace_sum *sums = NULL;
    int capacity = 0;
    json_t *indices = json_object(); // from a lane and a name to an index in `sums`, plus 1
    *count = 0;
    for (int i = 0; i < r->count; i++) {
        const event *e = &r->events[i];
        const char *lane = lane_of(r, e);
        size_t length = strcspn(lane, "("); // "compute (2)": lane "compute", second thread
        while (length > 0 && lane[length - 1] == ' ') length--;
        char *own = tri_arena_printf(r->arena, "%.*s", (int)length, lane);
        char *key = tri_arena_printf(r->arena, "%s\n%s", own, by_kind ? e->kind : e->name);
        json_int_t index = json_integer_value(json_object_get(indices, key));
        if (index == 0) {
            TRI_PUSH(r->arena, sums, *count, capacity) =
                (tri_trace_sum){.name = by_kind ? e->kind : e->name, .lane = own};
            index = *count;
            json_object_set_new(indices, key, json_integer(index));
        }
        tri_trace_sum *sum = &sums[index - 1];
        sum->count++;
        sum->bytes += e->bytes;
        sum->seconds += e->self > 0 ? e->self * 1e-6 : 0;
    }
    json_decref(indices);
    if (*count > 0) qsort(sums, (size_t)*count, sizeof *sums, by_seconds);
    return sums;
}

static void note_gap(tri_trace_sums *out, tri_trace_gap gap) {
    int at = out->gap_count < MOST_GAPS ? out->gap_count++ : MOST_GAPS - 1;
    if (at == MOST_GAPS - 1 && out->gap_count == MOST_GAPS && out->gaps[at].seconds >= gap.seconds)
        return;
    while (at > 0 && out->gaps[at - 1].seconds < gap.seconds) {
        out->gaps[at] = out->gaps[at - 1];
        at--;
    }
    out->gaps[at] = gap;
}

// Finds the thread of the trace that shows when a rank computes: the thread named "device" if the
// device works asynchronously, else thread 0, the compute lane. `first` is the index of the rank's
// first event.
static int computing_thread(const reading *r, int first) {
    for (int i = first; i < r->count && r->events[i].rank == r->events[first].rank; i++)
        if (!strcmp(lane_of(r, &r->events[i]), "device")) return r->events[i].thread;
    return 0;
}

// The compute thread of one rank, from its first event to its last.
typedef struct walk {
    const event *open[MOST_DEPTH]; // the actions that have begun and not ended, the outermost first
    int depth;
    double at;           // µs: what is before this time is summed up
    double covered;      // µs: when the rank last computed
    const event *before; // what it then did; NULL: nothing yet
    const event *wait;   // the longest WAIT since then; NULL: none
    double zero;
    tri_trace_rank *rank;
} walk;

// Goes on to the time `end`. Until then the rank was in the innermost action that is open. It
// computed, unless that action is a WAIT.
static void walk_to(walk *w, double end, tri_trace_sums *out) {
    const event *e = w->open[w->depth - 1];
    if (end <= w->at) return;
    if (!strcmp(e->kind, TRI_LEDGER_WAIT)) {
        if (!w->wait || w->wait->self < e->self) w->wait = e;
    } else {
        if (w->before && w->at > w->covered)
            note_gap(out, (tri_trace_gap){.rank = e->rank,
                                          .begin_s = (w->covered - w->zero) * 1e-6,
                                          .seconds = (w->at - w->covered) * 1e-6,
                                          .before = w->before->name,
                                          .after = e->name,
                                          .wait = w->wait ? w->wait->name : ""});
        w->rank->busy_s += (end - w->at) * 1e-6;
        w->covered = end;
        w->before = e;
        w->wait = NULL;
    }
    w->at = end;
}

// Ends the actions that end before `time`.
static void end_until(walk *w, double time, tri_trace_sums *out) {
    for (; w->depth > 0 && w->open[w->depth - 1]->end <= time; w->depth--)
        walk_to(w, w->open[w->depth - 1]->end, out);
}

// Sums up the actions of each rank's compute thread, and finds the gaps in which it computes
// nothing: between actions, and in WAIT.
static void sum_ranks(const reading *r, double zero, tri_trace_sums *out) {
    int capacity = 0;
    out->gaps = TRI_NEW_ARRAY(r->arena, tri_trace_gap, MOST_GAPS);
    for (int i = 0; i < r->count;) {
        int rank = r->events[i].rank, thread = computing_thread(r, i);
        TRI_PUSH(r->arena, out->ranks, out->rank_count, capacity) = (tri_trace_rank){.rank = rank};
        walk w = {.zero = zero, .at = zero, .rank = &out->ranks[out->rank_count - 1]};
        for (; i < r->count && r->events[i].rank == rank; i++) {
            const event *e = &r->events[i];
            if (e->thread != thread) continue;
            end_until(&w, e->begin, out);
            if (w.depth > 0) walk_to(&w, e->begin, out);
            if (e->begin > w.at) w.at = e->begin;
            if (w.depth < MOST_DEPTH) w.open[w.depth++] = e;
        }
        end_until(&w, INFINITY, out);
        w.rank->waiting_s = fmax(out->span_s - w.rank->busy_s, 0);
    }
}

static tri_status sum_events(reading *r, const json_t *root, const char *path,
                             tri_trace_sums *out) {
    const json_t *list = json_object_get(root, "traceEvents");
    if (!json_is_array(list))
        return TRI_FAIL(TRI_BAD_INPUT, "%s: is not a trace: it has no list traceEvents", path);
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!read_event(r, json_array_get(list, i)))
            return TRI_FAIL(TRI_BAD_INPUT, "%s: event %zu is damaged", path, i);
    if (r->count == 0) return TRI_FAIL(TRI_BAD_INPUT, "%s: the trace has no events", path);
    qsort(r->events, (size_t)r->count, sizeof *r->events, by_thread_and_time);
    double first = r->events[0].begin, last = r->events[0].end;
    for (int i = 0; i < r->count; i++) {
        if (r->events[i].begin < first) first = r->events[i].begin;
        if (r->events[i].end > last) last = r->events[i].end;
    }
    find_own_time(r->events, r->count);
    out->span_s = (last - first) * 1e-6;
    out->events = r->count;
    out->kinds = add_up(r, true, &out->kind_count);
    out->names = add_up(r, false, &out->name_count);
    sum_ranks(r, first, out);
    return TRI_OK;
}

tri_status tri_trace_sum_file(tri_arena *arena, const char *path, tri_trace_sums *out) {
    json_error_t error;
    int fd;
    *out = (tri_trace_sums){0};
    TRI_TRY(tri_os_open_input(path, &fd));
    json_t *root = json_loadfd(fd, 0, &error);
    tri_os.close(fd);
    if (!root)
        return TRI_FAIL(TRI_BAD_INPUT, "%s:%d: is not a trace that --trace wrote: %s", path,
                        error.line, error.text);
    reading r = {.arena = arena, .lanes = json_object()};
    tri_status status = sum_events(&r, root, path, out);
    json_decref(r.lanes);
    json_decref(root);
    return status;
}
