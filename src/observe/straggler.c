// Finds a rank for which the others wait, by comparing the times of actions that all ranks have
// recorded (in their ledgers). Rank 0 compares after a step, over a window: the latest steps. A
// rank's peers are the ranks that do the same work. straggler.h explains the rule.
#include "observe/straggler.h"

#include "base/os.h"
#include "base/quantity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    // Ranks are compared over a window of the latest steps, which has WINDOW_STRIDES strides and
    // advances by one stride at a time. A stride has at least STRIDE_STEPS steps, and takes at
    // least STRIDE_MS.
    WINDOW_STRIDES = 5,
    STRIDE_STEPS = TRI_STRAGGLER_STEPS / WINDOW_STRIDES,
    STRIDE_MS = 200,
};

// What rank 0 alone does says nothing about the rank: it is not compared, but told by itself.
static const struct {
    const char *kind, *advice;
} alone[] = {
    {TRI_LEDGER_COMMIT, "save less often, or to a faster disk"},
    {TRI_LEDGER_METRICS, "log less often, or to a faster disk"},
};
enum { ALONE = sizeof alone / sizeof *alone };

// All actions of one kind that one rank has run: how many, and their time.
typedef struct straggler_work {
    double count, busy_s;
} straggler_work;

typedef struct straggler_moment { // what all ranks had done at one time
    double time_s;
    int64_t step;
    straggler_work *work; // [rank][kind]
    // [rank]: how many steps the rank had begun. For a rank of another host, the number is that of
    // its latest message, so it lags behind.
    double *steps;
} straggler_moment;

typedef struct straggler_rank {
    bool is_slow; // the rank was reported as slow, and has not caught up since
    int reports;  // how often it was reported as slow
    // For how many comparisons, one after the other, it has been other than is_slow says.
    int64_t changed;
} straggler_rank;

struct tri_straggler {
    tri_comm *comm;
    // How many kinds of actions there are. A kind is identified by its name, because ranks may
    // number kinds differently.
    int kinds;
    char names[TRI_MAX_LEDGER_KINDS][TRI_LEDGER_NAME_BYTES];
    straggler_moment moments[WINDOW_STRIDES + 1]; // in order of time, the latest last
    int moment_count;
    // [rank][kind]: the rank's mean time for an action of this kind, in the window where that mean
    // was smallest so far; 0: none yet.
    double *best_s;
    straggler_rank *ranks;
    bool has_told[ALONE];
    char line[512];
};

static size_t cell(int rank, int kind) {
    return (size_t)rank * TRI_MAX_LEDGER_KINDS + (size_t)kind;
}

void tri_straggler_destroy(tri_straggler *s) {
    if (!s) return;
    for (int i = 0; i <= WINDOW_STRIDES; i++) {
        free(s->moments[i].work);
        free(s->moments[i].steps);
    }
    free(s->best_s);
    free(s->ranks);
    free(s);
}

tri_straggler *tri_straggler_create(tri_comm *comm) {
    if (comm->size == 1 || comm->rank != 0) return NULL;
    for (int r = 0; r < comm->size; r++)
        if (!tri_comm_ledger_of(comm, r)) return NULL;
    size_t cells = cell(comm->size, 0);
    tri_straggler *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    *s = (tri_straggler){.comm = comm,
                         .best_s = calloc(cells, sizeof *s->best_s),
                         .ranks = calloc((size_t)comm->size, sizeof *s->ranks)};
    bool whole = s->best_s && s->ranks;
    for (int i = 0; i <= WINDOW_STRIDES; i++) {
        s->moments[i].work = calloc(cells, sizeof(straggler_work));
        s->moments[i].steps = calloc((size_t)comm->size, sizeof *s->moments[i].steps);
        whole = whole && s->moments[i].work && s->moments[i].steps;
    }
    if (whole) return s;
    tri_straggler_destroy(s);
    return NULL;
}

static const tri_ledger_ring *ring_of(const tri_straggler *s, int rank) {
    return tri_comm_ledger_of(s->comm, rank);
}

static int kind_named(tri_straggler *s, const char *name) {
    for (int k = 0; k < s->kinds; k++)
        if (!strncmp(s->names[k], name, TRI_LEDGER_NAME_BYTES - 1)) return k;
    if (s->kinds == TRI_MAX_LEDGER_KINDS) return -1;
    snprintf(s->names[s->kinds], TRI_LEDGER_NAME_BYTES, "%s", name);
    return s->kinds++;
}

static void read_rank(tri_straggler *s, straggler_moment *moment, int rank,
                      const tri_ledger_ring *ring) {
    moment->steps[rank] = (double)atomic_load(&ring->steps);
    int kinds = atomic_load(&ring->kinds);
    for (int i = 0; i < kinds && i < TRI_MAX_LEDGER_KINDS; i++) {
        int k = kind_named(s, ring->kind_names[i]);
        if (k < 0 || !strcmp(s->names[k], TRI_LEDGER_WAIT) ||
            !strcmp(s->names[k], TRI_LEDGER_ISSUE))
            continue;
        straggler_work *work = &moment->work[cell(rank, k)];
        work->count = (double)atomic_load(&ring->totals[i].count);
        work->busy_s = 1e-9 * (double)atomic_load(&ring->totals[i].busy_ns);
    }
}

static void read_work(tri_straggler *s, straggler_moment *moment) {
    memset(moment->work, 0, cell(s->comm->size, 0) * sizeof *moment->work);
    for (int r = 0; r < s->comm->size; r++) {
        const tri_ledger_ring *ring = ring_of(s, r);
        // Locks, so that no message of the rank changes its ledger while it is read here: steps,
        // counts and times have to be of the same moment.
        tri_ledger_lock_unpacked();
        read_rank(s, moment, r, ring);
        tri_ledger_unlock_unpacked();
    }
}

static void take_moment(tri_straggler *s, int64_t step, double now_s) {
    if (s->moment_count > WINDOW_STRIDES) {
        straggler_moment oldest = s->moments[0];
        memmove(s->moments, s->moments + 1, WINDOW_STRIDES * sizeof *s->moments);
        s->moments[WINDOW_STRIDES] = oldest;
        s->moment_count--;
    }
    straggler_moment *moment = &s->moments[s->moment_count++];
    moment->step = step;
    moment->time_s = now_s;
    read_work(s, moment);
}

// The mean time of a kind of action on a rank during the window of the latest steps; 0: the rank
// ran no such actions. *count: how many such actions it ran.
static double mean_s(const tri_straggler *s, int rank, int kind, double *count) {
    const straggler_work *from = &s->moments[0].work[cell(rank, kind)];
    const straggler_work *to = &s->moments[WINDOW_STRIDES].work[cell(rank, kind)];
    *count = to->count - from->count;
    return *count > 0 ? (to->busy_s - from->busy_s) / *count : 0;
}

static int ascending(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

// The expected mean time of a kind of action on a rank: the median of its peers' mean times. For a
// rank without peers it is the rank's own best time.
static double expected_s(tri_straggler *s, int rank, int kind, bool *has_peers) {
    double *means = malloc((size_t)s->comm->size * sizeof *means), count;
    double own = mean_s(s, rank, kind, &count), *best = &s->best_s[cell(rank, kind)];
    if (!means) return own;
    int peers = 0;
    for (int r = 0; r < s->comm->size; r++) {
        if (r == rank ||
            atomic_load(&ring_of(s, r)->peers) != atomic_load(&ring_of(s, rank)->peers))
            continue;
        double mean = mean_s(s, r, kind, &count);
        if (count > 0) means[peers++] = mean;
    }
    *has_peers = peers > 0;
    if (*best == 0 || own < *best) *best = own;
    double expected = *best;
    if (peers > 0) {
        qsort(means, (size_t)peers, sizeof *means, ascending);
        expected = 0.5 * (means[(peers - 1) / 2] + means[peers / 2]);
    }
    free(means);
    return expected;
}

typedef struct straggler_case { // how a rank's times compare with what is expected of it
    double busy_s, expected_s;
    int kind; // the kind of action with the largest excess
    double kind_s, kind_expected_s, kind_excess_s;
    bool has_peers;
} straggler_case;

static bool is_of_rank_0(const char *kind) {
    for (int i = 0; i < ALONE; i++)
        if (!strcmp(alone[i].kind, kind)) return true;
    return false;
}

static straggler_case judge(tri_straggler *s, int rank) {
    straggler_case c = {.kind = -1};
    for (int k = 0; k < s->kinds; k++) {
        double count, mean = mean_s(s, rank, k, &count);
        if (count == 0 || is_of_rank_0(s->names[k])) continue;
        bool has_peers = false;
        double expected = expected_s(s, rank, k, &has_peers), excess = count * (mean - expected);
        c.busy_s += count * mean;
        c.expected_s += count * expected;
        if (c.kind >= 0 && excess <= c.kind_excess_s) continue;
        c.kind = k;
        c.kind_s = mean;
        c.kind_expected_s = expected;
        c.kind_excess_s = excess;
        c.has_peers = has_peers;
    }
    return c;
}

static const char *report(tri_straggler *s, int rank, const straggler_case *c, double fraction) {
    long long steps = s->moments[WINDOW_STRIDES].step - s->moments[0].step;
    snprintf(s->line, sizeof s->line,
             "rank %d on host %s is %.1f times slower than %s: its %s takes %s, %s %s; the "
             "others waited for it %.0f%% of the last %lld steps",
             rank, ring_of(s, rank)->host, c->busy_s / c->expected_s,
             c->has_peers ? "the median of the others" : "it was before", s->names[c->kind],
             tri_duration_text(c->kind_s), c->has_peers ? "theirs" : "then",
             tri_duration_text(c->kind_expected_s), fraction * 100, steps);
    s->ranks[rank].is_slow = true;
    s->ranks[rank].changed = 0;
    s->ranks[rank].reports++;
    return s->line;
}

// The time that the rank took for those steps of the window (the steps that are compared now) of
// which rank 0 knows. If the rank is on another host, messages lag behind, and rank 0 may know only
// 40 of its steps while rank 0 itself has made 50. Then this is 0.8 of the window's time.
static double wall_s(const tri_straggler *s, int rank) {
    const straggler_moment *from = &s->moments[0], *to = &s->moments[WINDOW_STRIDES];
    double own = to->steps[0] - from->steps[0], theirs = to->steps[rank] - from->steps[rank];
    double wall = to->time_s - from->time_s;
    return own > 0 && theirs > 0 ? wall / own * theirs : wall;
}

// Whether anything is known about the rank in the steps that are compared now (the window). False:
// the rank is on another host, from which nothing new came during the window.
static bool has_news(const tri_straggler *s, int rank) {
    const straggler_moment *from = &s->moments[0], *to = &s->moments[WINDOW_STRIDES];
    return to->steps[0] == from->steps[0] || to->steps[rank] > from->steps[rank];
}

// Whether a rank has been other than is_slow says for long enough to say so. The first time, one
// comparison is enough. Each time that it was slow again, the change has to last for twice as many
// windows: where ranks share cores, now the one is slow and now the other, and each change of that
// kind would be two more lines.
static bool has_changed(straggler_rank *r, bool is_other) {
    enum { MOST_DOUBLINGS = 10 };
    int doublings = r->is_slow ? r->reports - 1 : r->reports;
    if (doublings > MOST_DOUBLINGS) doublings = MOST_DOUBLINGS;
    r->changed = is_other ? r->changed + 1 : 0;
    return r->changed > WINDOW_STRIDES * ((INT64_C(1) << doublings) - 1);
}

// Tells once for which work of rank 0 the others wait.
static const char *report_alone(tri_straggler *s) {
    const straggler_moment *from = &s->moments[0], *to = &s->moments[WINDOW_STRIDES];
    for (int i = 0; i < ALONE; i++) {
        int kind = kind_named(s, alone[i].kind);
        if (kind < 0 || s->has_told[i]) continue;
        double count, busy = mean_s(s, 0, kind, &count) * count;
        double percent = 100 * busy / (to->time_s - from->time_s);
        if (percent <= TRI_STRAGGLER_PERCENT) continue;
        s->has_told[i] = true;
        snprintf(
            s->line, sizeof s->line,
            "rank 0 was in %s for %.0f%% of the last %lld steps, and the others waited for it: "
            "%s",
            alone[i].kind, percent, (long long)(to->step - from->step), alone[i].advice);
        return s->line;
    }
    return NULL;
}

static const char *compare(tri_straggler *s) {
    double worst = 0;
    int slowest = -1;
    straggler_case worst_case = {0};
    const char *line = NULL;
    for (int r = 0; r < s->comm->size; r++) {
        if (!has_news(s, r)) continue;
        straggler_case c = judge(s, r);
        straggler_rank *rank = &s->ranks[r];
        double fraction = (c.busy_s - c.expected_s) / wall_s(s, r);
        bool slow = c.busy_s > c.expected_s * (1 + 0.01 * TRI_STRAGGLER_PERCENT) &&
                    fraction > 0.01 * TRI_STRAGGLER_PERCENT;
        // A rank counts as having caught up only when it is below half of the limit. Otherwise a
        // rank near the limit would be reported again and again.
        bool caught_up = fraction <= 0.005 * TRI_STRAGGLER_PERCENT;
        if (!has_changed(rank, rank->is_slow ? caught_up : slow)) continue;
        if (!rank->is_slow && fraction > worst) {
            worst = fraction;
            slowest = r;
            worst_case = c;
        }
        if (!rank->is_slow) continue;
        rank->is_slow = false;
        rank->changed = 0;
        snprintf(s->line, sizeof s->line, "rank %d on host %s keeps pace again", r,
                 ring_of(s, r)->host);
        line = s->line;
    }
    if (slowest >= 0) return report(s, slowest, &worst_case, worst);
    return line ? line : report_alone(s);
}

const char *tri_straggler_look(tri_straggler *s, int64_t step) {
    if (!s) return NULL;
    const straggler_moment *latest = s->moment_count ? &s->moments[s->moment_count - 1] : NULL;
    if (latest && step - latest->step < STRIDE_STEPS) return NULL;
    double now_s = tri_os_seconds();
    if (latest && now_s - latest->time_s < STRIDE_MS * 1e-3) return NULL;
    take_moment(s, step, now_s);
    return s->moment_count > WINDOW_STRIDES ? compare(s) : NULL;
}
