// Packs buffers by size and lifetime into one range of memory. An interval is a buffer with the
// moments of its first and last use. memory.h has a picture.
#include "plan/memory.h"

#include <stdbool.h>
#include <stdlib.h>

// Up to this many intervals are packed one by one, which needs the least memory, but takes time
// that grows with the square of their number. If there are more, several intervals may get one
// offset (struct track).
enum { MOST_APART = 4096 };

// A track is a set of intervals that get the same offset. Usually it has one interval. If there are
// more than MOST_APART intervals, it may have several of the same size, each of which begins after
// the previous one has ended. The micro-batches of a step are alike, so there are then far fewer
// tracks than intervals.
typedef struct track {
    int64_t size_bytes, offset;
    int64_t after;   // the first offset after the track's memory
    int first, last; // first and last interval of the track, in the order of time
    int next_free;   // in the list of free tracks: the one that became free before this one
} track;

typedef struct packer {
    tri_interval *intervals;
    int64_t alignment;
    // Indices of the intervals. order: sorted as they are to be packed. by_end: sorted by size,
    // those of one size by their last moment.
    int *order, *by_end;
    // By interval: the next interval of its track, and the number of the track.
    int *next, *track_of;
    track *tracks;
    int track_count;
    int *packed; // numbers of those tracks whose offset has been chosen, sorted by offset
} packer;

static int compare(int64_t a, int64_t b) { return (a > b) - (a < b); }

static int by_size(const void *left, const void *right) {
    const tri_interval *a = *(const tri_interval *const *)left;
    const tri_interval *b = *(const tri_interval *const *)right;
    if (a->size_bytes != b->size_bytes) return compare(b->size_bytes, a->size_bytes);
    if (a->first != b->first) return compare(a->first, b->first);
    return a < b ? -1 : 1;
}

// The area of an interval: its bytes times the number of moments for which it uses them.
static double area_of(const tri_interval *a) {
    return (double)a->size_bytes * (1 + a->last - a->first);
}

static int by_area(const void *left, const void *right) {
    const tri_interval *a = *(const tri_interval *const *)left;
    const tri_interval *b = *(const tri_interval *const *)right;
    double x = area_of(a), y = area_of(b);
    return x != y ? (x < y) - (x > y) : by_size(left, right);
}

static int by_end(const void *left, const void *right) {
    const tri_interval *a = *(const tri_interval *const *)left;
    const tri_interval *b = *(const tri_interval *const *)right;
    if (a->size_bytes != b->size_bytes) return compare(b->size_bytes, a->size_bytes);
    if (a->last != b->last) return compare(a->last, b->last);
    return a < b ? -1 : 1;
}

static int *sort(tri_arena *scratch, tri_interval *intervals, int count,
                 int (*order)(const void *left, const void *right)) {
    tri_interval **pointers = TRI_NEW_ARRAY(scratch, tri_interval *, count);
    int *sorted = TRI_NEW_ARRAY(scratch, int, count);
    for (int i = 0; i < count; i++) pointers[i] = &intervals[i];
    if (count) qsort(pointers, (size_t)count, sizeof *pointers, order);
    for (int i = 0; i < count; i++) sorted[i] = (int)(pointers[i] - intervals);
    return sorted;
}

// Assigns the intervals to tracks (sets of intervals with one offset), to as few as possible, so
// that the search for offsets has few items. A track can take another interval when its last one
// has ended.
static void find_tracks(packer *p, int count) {
    int ended = 0, free_track = -1;
    for (int i = 0; i < count; i++) {
        int now = p->order[i];
        const tri_interval *item = &p->intervals[now];
        if (i == 0 || p->intervals[p->order[i - 1]].size_bytes != item->size_bytes) {
            free_track = -1;
            ended = i;
        }
        for (; count > MOST_APART; ended++) {
            const tri_interval *over = &p->intervals[p->by_end[ended]];
            if (over->size_bytes != item->size_bytes || over->last >= item->first) break;
            int freed = p->track_of[p->by_end[ended]];
            p->tracks[freed].next_free = free_track;
            free_track = freed;
        }
        p->next[now] = -1;
        int taken = free_track;
        if (taken < 0) {
            taken = p->track_count++;
            p->tracks[taken] = (track){.size_bytes = item->size_bytes, .first = now};
        } else {
            free_track = p->tracks[taken].next_free;
            p->next[p->tracks[taken].last] = now;
        }
        p->tracks[taken].last = now;
        p->track_of[now] = taken;
    }
}

static bool live_together(const packer *p, const track *a, const track *b) {
    int i = a->first, k = b->first;
    while (i >= 0 && k >= 0) {
        const tri_interval *x = &p->intervals[i], *y = &p->intervals[k];
        if (x->last < y->first)
            i = p->next[i];
        else if (y->last < x->first)
            k = p->next[k];
        else
            return true;
    }
    return false;
}

static void pack_track(packer *p, int index) {
    track *t = &p->tracks[index];
    int64_t at = 0;
    for (int k = 0; k < index; k++) {
        const track *other = &p->tracks[p->packed[k]];
        if (other->offset >= at + t->size_bytes) break;
        if (other->after > at && live_together(p, t, other)) at = other->after;
    }
    t->offset = at;
    t->after = tri_memory_round_up(at + t->size_bytes, p->alignment);
    int position = index; // `packed` stays sorted by offset
    for (; position > 0 && p->tracks[p->packed[position - 1]].offset > at; position--)
        p->packed[position] = p->packed[position - 1];
    p->packed[position] = index;
}

// Packs the intervals in the given order. Returns how many bytes are needed. If that is not less
// than `most`, returns `most` and leaves the offsets of the intervals as they were.
static int64_t pack(tri_arena *scratch, tri_interval *intervals, int count, int64_t alignment,
                    int *order, int64_t most) {
    packer p = {.intervals = intervals,
                .alignment = alignment,
                .order = order,
                .by_end = sort(scratch, intervals, count, by_end),
                .next = TRI_NEW_ARRAY(scratch, int, count),
                .track_of = TRI_NEW_ARRAY(scratch, int, count),
                .tracks = TRI_NEW_ARRAY(scratch, track, count)};
    find_tracks(&p, count);
    p.packed = TRI_NEW_ARRAY(scratch, int, p.track_count);
    int64_t end = 0;
    for (int i = 0; i < p.track_count; i++) {
        pack_track(&p, i);
        int64_t after = p.tracks[i].offset + p.tracks[i].size_bytes;
        if (after > end) end = after;
    }
    end = tri_memory_round_up(end, alignment);
    if (end >= most) return most;
    for (int i = 0; i < count; i++) intervals[i].offset = p.tracks[p.track_of[i]].offset;
    return end;
}

int64_t tri_memory_pack(tri_arena *scratch, tri_interval *intervals, int count, int64_t alignment) {
    int *order = sort(scratch, intervals, count, by_size);
    int64_t bytes = pack(scratch, intervals, count, alignment, order, INT64_MAX);
    // find_tracks needs intervals of one size next to each other if there are more than MOST_APART.
    // They are so in the order by size, but not in the order by area (size times duration).
    if (count > MOST_APART) return bytes;
    order = sort(scratch, intervals, count, by_area);
    return pack(scratch, intervals, count, alignment, order, bytes);
}
