// Collects the recorded actions of all ranks on rank 0, and writes them as a trace file, which
// Perfetto and Chrome can show. An event is one recorded action. A lane is a sequence of actions
// that runs beside the others: computation, or one communicator.
#include "observe/trace.h"

#include "base/log.h"
#include "base/os.h"
#include "base/quantity.h"
#include "base/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    TRACE_ROWS = 64,    // the most rows in which overlapping actions of one lane are shown
    TRACE_DEPTH = 16,   // how deep actions can be nested
    TRACE_BATCH = 4096, // how many events one message has at most
};

struct tri_trace {
    tri_comm *comm;
    FILE *file; // NULL on ranks other than 0
    char *path;
};

typedef struct trace_head { // sent before a rank's events, which it describes
    uint64_t count, dropped;
    int64_t realtime_offset_ns, begin_ns;
    int32_t pid, lanes;
    char host[64];
    char lane_names[TRI_MAX_LANES][TRI_LEDGER_NAME_BYTES];
    char kind_names[TRI_MAX_LEDGER_KINDS][TRI_LEDGER_NAME_BYTES];
} trace_head;

static const char first_bytes[] = "{\"displayTimeUnit\"";

// Checks that an existing file is a trace before it is replaced: with a mistyped path, a file of
// weights or data could be lost.
static tri_status check_replaced(const char *path) {
    struct stat info;
    char begin[sizeof first_bytes - 1];
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == 0) return TRI_OK;
    int fd = tri_os.open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) return tri_os_fail("open", path);
    bool same = tri_os_pread_most(fd, begin, sizeof begin, 0) == (ssize_t)sizeof begin &&
                !memcmp(begin, first_bytes, sizeof begin);
    tri_os.close(fd);
    if (same) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT, "--trace: %s is there and is no trace: name another file", path);
}

static FILE *open_file(const char *path) {
    int fd = tri_os_open_or_create(path, O_WRONLY | O_TRUNC | O_CLOEXEC, 0666);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (fd >= 0 && !file) tri_os.close(fd);
    return file;
}

tri_status tri_trace_open(tri_comm *comm, const char *path, tri_trace **out) {
    *out = NULL;
    tri_trace *trace = calloc(1, sizeof *trace);
    char *copy = strdup(path);
    tri_status status = TRI_OK;
    if (!trace || !copy) status = TRI_FAIL(TRI_NO_MEMORY, "no memory for a trace");
    if (status == TRI_OK) {
        *trace = (tri_trace){.comm = comm, .path = copy};
        if (comm->rank == 0) status = check_replaced(path);
        if (status == TRI_OK && comm->rank == 0 && !(trace->file = open_file(path)))
            status =
                TRI_FAIL(TRI_BAD_INPUT, "--trace: cannot write '%s': %s", path, strerror(errno));
    }
    if (status == TRI_OK) status = tri_ledger_trace(comm->ledger, TRI_MAX_TRACE_EVENTS);
    if (status == TRI_OK) {
        *out = trace;
        return TRI_OK;
    }
    if (trace && trace->file) fclose(trace->file);
    free(trace);
    free(copy);
    return status;
}

// Copies this rank's recorded events. An action that has not ended gets the present time as its
// end, so that the trace shows where a rank is stuck.
static tri_status trace_copy(const tri_ledger *ledger, trace_head *head, tri_ledger_event **out) {
    const tri_ledger_ring *ring = tri_ledger_ring_of(ledger);
    *head = (trace_head){.realtime_offset_ns = ring->realtime_offset_ns,
                         .begin_ns = INT64_MAX,
                         .pid = ring->pid,
                         .lanes = atomic_load(&ring->lanes)};
    memcpy(head->host, ring->host, sizeof head->host);
    memcpy(head->lane_names, ring->lane_names, sizeof head->lane_names);
    memcpy(head->kind_names, ring->kind_names, sizeof head->kind_names);
    head->count = tri_ledger_traced(ledger, &head->dropped);
    tri_ledger_event *events = malloc((head->count + 1) * sizeof *events);
    if (!events) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a trace");
    int64_t now = tri_os.monotonic_ns();
    for (size_t i = 0; i < head->count; i++) {
        memcpy(&events[i], tri_ledger_traced_at(ledger, i), sizeof *events);
        if (!events[i].end_ns) events[i].end_ns = now;
        if (events[i].begin_ns < head->begin_ns) head->begin_ns = events[i].begin_ns;
    }
    *out = events;
    return TRI_OK;
}

static tri_status trace_transfer(tri_comm *comm, tri_comm_kind kind, int peer,
                                 tri_ledger_event *events, uint64_t count) {
    for (uint64_t done = 0; done < count; done += TRACE_BATCH) {
        uint64_t batch = count - done < TRACE_BATCH ? count - done : TRACE_BATCH;
        tri_comm_op op = {.kind = kind,
                          .dtype = TRI_U8,
                          .count = (int64_t)(batch * sizeof *events),
                          .send = events + done,
                          .recv = events + done,
                          .peer = peer,
                          .label = "trace"};
        TRI_TRY(tri_comm_run(comm, &op));
    }
    return TRI_OK;
}

static tri_status trace_receive(tri_comm *comm, int peer, uint64_t count, tri_ledger_event **out) {
    *out = malloc((count + 1) * sizeof **out);
    if (!*out) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a trace");
    return trace_transfer(comm, TRI_COMM_RECV, peer, *out, count);
}

// Writes text as JSON. (A trace is too long for a tree.)
static void write_text(FILE *file, const char *text) {
    char character[TRI_JSON_CHARACTER_BYTES];
    while (*text) {
        text += tri_json_character(text, character);
        fputs(character, file);
    }
}

static int by_lane_and_time(const void *left, const void *right) {
    const tri_ledger_event *a = left, *b = right;
    if (a->lane != b->lane) return a->lane < b->lane ? -1 : 1;
    if (a->begin_ns != b->begin_ns) return a->begin_ns < b->begin_ns ? -1 : 1;
    if (a->end_ns != b->end_ns) return a->end_ns > b->end_ns ? -1 : 1; // the outer one first
    return a->number < b->number ? -1 : 1;
}

// One of the rows in which a trace viewer shows a lane (computation, one communicator, …). A row
// takes actions that nest or follow each other. An action is open if it has not ended when the next
// one begins. `ends`: the end times of the row's open actions, the outermost first. While there are
// any, another action fits into the row only if it ends no later than the innermost of them.
typedef struct trace_row {
    int64_t ends[TRACE_DEPTH];
    int depth;
} trace_row;

static bool row_takes(trace_row *row, const tri_ledger_event *event) {
    while (row->depth > 0 && row->ends[row->depth - 1] <= event->begin_ns) row->depth--;
    if (row->depth == TRACE_DEPTH) return false;
    if (row->depth > 0 && row->ends[row->depth - 1] < event->end_ns) return false;
    row->ends[row->depth++] = event->end_ns;
    return true;
}

static int thread_of(int lane, int row) { return lane * TRACE_ROWS + row; }

static void write_name(FILE *file, int rank, int thread, const char *what, const char *name,
                       const char *more) {
    fprintf(file, ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"%s\",\"args\":{\"name\":\"",
            rank, thread, what);
    write_text(file, name);
    write_text(file, more);
    fputs("\"}}", file);
}

static void write_event(FILE *file, int rank, int row, const trace_head *head,
                        const tri_ledger_event *event, int64_t zero_ns) {
    const char *kind = head->kind_names[event->kind];
    fprintf(file, ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"cat\":\"",
            rank, thread_of(event->lane, row), (double)(event->begin_ns - zero_ns) * 1e-3,
            (double)(event->end_ns - event->begin_ns) * 1e-3);
    write_text(file, kind);
    fputs("\",\"name\":\"", file);
    write_text(file, kind);
    if (*event->label) fputc(' ', file);
    write_text(file, event->label);
    fputs("\",\"args\":{", file);
    const struct {
        const char *name;
        int64_t value;
        bool has;
    } args[] = {{"subject", event->subject, event->subject >= 0},
                {"round", event->round, event->round >= 0},
                {"bytes", event->bytes, event->bytes > 0},
                {"sequence", (int64_t)event->sequence, event->sequence > 0}};
    const char *between = "";
    for (int i = 0; i < 4; i++) {
        if (!args[i].has) continue;
        fprintf(file, "%s\"%s\":%lld", between, args[i].name, (long long)args[i].value);
        between = ",";
    }
    fputs("}}", file);
}

static void write_rank(FILE *file, int rank, const trace_head *head, tri_ledger_event *events,
                       int64_t zero_ns) {
    char name[128];
    snprintf(name, sizeof name, "rank %d (%s, pid %d)", rank, head->host, head->pid);
    write_name(file, rank, 0, "process_name", name, "");
    // used[lane]: in how many rows of the trace the lane is shown. Lane 0, which computes, always
    // has a row.
    int used[TRI_MAX_LANES] = {1};
    trace_row rows[TRACE_ROWS] = {{{0}, 0}};
    qsort(events, head->count, sizeof *events, by_lane_and_time);
    for (size_t i = 0; i < head->count; i++) {
        const tri_ledger_event *event = &events[i];
        if (i == 0 || events[i - 1].lane != event->lane) memset(rows, 0, sizeof rows);
        int row = 0;
        while (row < TRACE_ROWS - 1 && !row_takes(&rows[row], event)) row++;
        write_event(file, rank, row, head, event, zero_ns);
        if (used[event->lane] <= row) used[event->lane] = row + 1;
    }
    for (int lane = 0; lane < head->lanes; lane++)
        for (int row = 0; row < used[lane]; row++) {
            char more[16] = "";
            if (row > 0) snprintf(more, sizeof more, " (%d)", row + 1);
            write_name(file, rank, thread_of(lane, row), "thread_name", head->lane_names[lane],
                       more);
        }
}

// What to add to a rank's times to get times of rank 0's clock. Times come from the host's
// monotonic clock, so nothing is added for ranks of rank 0's host. For another host, the difference
// between the two monotonic clocks follows from the real-time clocks, which should be equal.
static int64_t clock_offset(const trace_head *heads, int rank) {
    if (!strcmp(heads[0].host, heads[rank].host)) return 0;
    return heads[rank].realtime_offset_ns - heads[0].realtime_offset_ns;
}

static tri_status write_end(tri_trace *trace, const trace_head *heads, int ranks) {
    fprintf(trace->file, "\n],\"otherData\":{\"ranks\":%d,\"dropped\":[", ranks);
    for (int r = 0; r < ranks; r++)
        fprintf(trace->file, r ? ",%llu" : "%llu", (unsigned long long)heads[r].dropped);
    fputs("]}}\n", trace->file);
    bool failed = ferror(trace->file) != 0;
    failed = fclose(trace->file) != 0 || failed;
    trace->file = NULL;
    if (!failed) return TRI_OK;
    return TRI_FAIL(TRI_IO, "cannot write the trace '%s': %s", trace->path, strerror(errno));
}

// On rank 0: writes its own events, then receives and writes the events of the other ranks, one
// rank after the other, so that memory for one rank is enough.
static tri_status write_all(tri_trace *trace, const trace_head *heads, int ranks,
                            tri_ledger_event *own) {
    int64_t zero_ns = INT64_MAX;
    for (int r = 0; r < ranks; r++)
        if (heads[r].count > 0 && heads[r].begin_ns + clock_offset(heads, r) < zero_ns)
            zero_ns = heads[r].begin_ns + clock_offset(heads, r);
    fputs(first_bytes, trace->file);
    fputs(":\"ms\",\"traceEvents\":[\n"
          "{\"ph\":\"M\",\"pid\":0,\"tid\":0,\"name\":\"trace_name\",\"args\":{\"name\":"
          "\"trireme\"}}",
          trace->file);
    for (int r = 0; r < ranks; r++) {
        tri_ledger_event *events = own;
        tri_status status = TRI_OK;
        if (r > 0) status = trace_receive(trace->comm, r, heads[r].count, &events);
        if (status == TRI_OK)
            write_rank(trace->file, r, &heads[r], events, zero_ns - clock_offset(heads, r));
        if (r > 0) free(events);
        TRI_TRY(status);
    }
    return write_end(trace, heads, ranks);
}

static void log_written(const tri_trace *trace, const trace_head *heads, int ranks) {
    unsigned long long actions = 0, dropped = 0;
    for (int r = 0; r < ranks; r++) {
        actions += heads[r].count;
        dropped += heads[r].dropped;
    }
    tri_log_line(TRI_LOG_INFO, "trace: %s has %llu actions of %s; open it in ui.perfetto.dev",
                 trace->path, actions, tri_counted(ranks, "rank"));
    if (dropped > 0)
        tri_log_line(
            TRI_LOG_WARNING,
            "trace: the %llu actions before these are left out: a trace has at most the last "
            "%d actions of each rank",
            dropped, TRI_MAX_TRACE_EVENTS);
}

static tri_status trace_write(tri_trace *trace, bool gather) {
    tri_comm *comm = trace->comm;
    int ranks = gather ? comm->size : 1;
    trace_head own, *heads = calloc((size_t)ranks, sizeof *heads);
    tri_ledger_event *events = NULL;
    if (!heads) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a trace");
    tri_status status = trace_copy(comm->ledger, &own, &events), gathered = TRI_OK;
    if (status != TRI_OK) own.count = 0; // has no events to send, but still joins the all-gather
    *heads = own;
    if (ranks > 1)
        gathered = tri_comm_run(comm, &(tri_comm_op){.kind = TRI_COMM_ALL_GATHER,
                                                     .dtype = TRI_U8,
                                                     .count = sizeof own,
                                                     .send = &own,
                                                     .recv = heads,
                                                     .label = "trace"});
    if (status == TRI_OK) status = gathered;
    if (status == TRI_OK && comm->rank > 0)
        status = trace_transfer(comm, TRI_COMM_SEND, 0, events, own.count);
    else if (status == TRI_OK)
        status = write_all(trace, heads, ranks, events);
    if (status == TRI_OK && comm->rank == 0) log_written(trace, heads, ranks);
    free(events);
    free(heads);
    return status;
}

void tri_trace_finish(tri_trace *trace, bool gather) {
    if (!trace) return;
    tri_status status = TRI_OK;
    if (gather || trace->comm->rank == 0) status = trace_write(trace, gather);
    if (status != TRI_OK) tri_log_line(TRI_LOG_WARNING, "trace: %s", tri_error_message());
    if (trace->file) fclose(trace->file);
    free(trace->path);
    free(trace);
}
