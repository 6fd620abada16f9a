// Verifies that memory is used again only after everything that used it before, in whatever way the
// schedule's lanes (computation, communicators, …) overtake each other. A buffer is a range of a
// heap that some of the step's actions use. Read next: verify_values.c.
#include "plan/precedence.h"
#include "plan/step_memory.h"

#include <string.h>

// A range of a heap, and the latest buffer that was placed there. The actions that use the buffer
// must be done before the actions of the next buffer that is placed there.
typedef struct occupant {
    int64_t offset, end;
    int buffer;
} occupant;

// An entry of a linked list: the index of an action or a buffer, and the index of the next entry in
// check.links (-1: this entry is the last).
typedef struct link {
    int index, next;
} link;

typedef struct buffer_uses {
    int first; // the first action that used the buffer; -1: none yet
    // The list of the actions that used the buffer, latest first: the index of its first entry in
    // check.links; -1: none.
    int latest;
    int by_lane[TRI_LANE_COUNT]; // by lane (compute, …): the latest action that used it; -1: none
    // The list of the buffers that had this memory before, given like `latest`; -1: none.
    int earlier_buffers;
    bool is_replaced; // true: another buffer has taken over this memory
} buffer_uses;

typedef struct check {
    tri_arena *arena;
    const tri_schedule *s;
    const tri_step_memory *memory;
    const tri_precedence *precedence;
    buffer_uses *buffers;
    link *links;
    int link_count, link_capacity;
    // By heap: the buffers in it, sorted by offset, without overlap.
    occupant *occupants[TRI_HEAP_COUNT];
    int occupant_count[TRI_HEAP_COUNT], occupant_capacity[TRI_HEAP_COUNT];
} check;

static tri_lane lane_of(const check *c, int action) {
    return tri_action_lane(c->s->actions[action].kind);
}

static void push(check *c, int index, int *list) {
    TRI_PUSH(c->arena, c->links, c->link_count, c->link_capacity) = (link){index, *list};
    *list = c->link_count - 1;
}

// Checks that all actions that used `earlier`, a buffer that had the same memory before, are done
// before this action. In a lane that finishes in order (all but ALONG and BACK), it is enough to
// check the latest of them.
static tri_status check_after(const check *c, const buffer_uses *earlier, int action) {
    const char *rule = "uses the memory of, and does not wait for,";
    for (int lane = 0; lane < TRI_LANE_COUNT; lane++)
        if (tri_lane_is_in_order((tri_lane)lane) && earlier->by_lane[lane] >= 0 &&
            !tri_precedes(c->precedence, earlier->by_lane[lane], action))
            return tri_precedence_broken(c->precedence, action, rule, earlier->by_lane[lane]);
    for (int i = earlier->latest; i >= 0; i = c->links[i].next)
        if (!tri_lane_is_in_order(lane_of(c, c->links[i].index)) &&
            !tri_precedes(c->precedence, c->links[i].index, action))
            return tri_precedence_broken(c->precedence, action, rule, c->links[i].index);
    return TRI_OK;
}

static void insert_occupant(check *c, tri_heap heap, int at, occupant added) {
    int tail = c->occupant_count[heap] - at;
    TRI_PUSH(c->arena, c->occupants[heap], c->occupant_count[heap], c->occupant_capacity[heap]) =
        added;
    occupant *list = c->occupants[heap];
    memmove(list + at + 1, list + at, (size_t)tail * sizeof *list);
    list[at] = added;
}

// Gives the buffer its range of memory, and records which buffers used that memory before: the
// actions that use this buffer have to come after those that used the earlier ones.
static void begin_buffer(check *c, int index) {
    const tri_step_buffer *b = &c->memory->buffers[index];
    int64_t offset = b->offset, end = b->offset + b->size_bytes;
    int at = 0;
    while (at < c->occupant_count[b->heap] && c->occupants[b->heap][at].end <= offset) at++;
    while (at < c->occupant_count[b->heap] && c->occupants[b->heap][at].offset < end) {
        occupant *old = &c->occupants[b->heap][at], rest = *old;
        c->buffers[old->buffer].is_replaced = true;
        push(c, old->buffer, &c->buffers[index].earlier_buffers);
        if (old->offset < offset) {
            old->end = offset;
            at++;
            rest.offset = end;
            if (rest.end > end) insert_occupant(c, b->heap, at, rest);
        } else if (old->end > end) {
            old->offset = end;
        } else {
            c->occupant_count[b->heap]--;
            memmove(old, old + 1, (size_t)(c->occupant_count[b->heap] - at) * sizeof *old);
        }
        if (rest.end >= end) break;
    }
    insert_occupant(c, b->heap, at, (occupant){offset, end, index});
}

static tri_status follow_use(check *c, int action, int index) {
    buffer_uses *b = &c->buffers[index];
    if (b->first < 0) {
        b->first = action;
        begin_buffer(c, index);
    }
    if (b->is_replaced)
        return tri_precedence_broken(c->precedence, action, "uses memory that is no longer that of",
                                     b->first);
    if (b->first == action || !tri_precedes(c->precedence, b->first, action))
        for (int i = b->earlier_buffers; i >= 0; i = c->links[i].next)
            TRI_TRY(check_after(c, &c->buffers[c->links[i].index], action));
    b->by_lane[lane_of(c, action)] = action;
    push(c, action, &b->latest);
    return TRI_OK;
}

static tri_status follow(check *c) {
    c->buffers = TRI_NEW_ARRAY(c->arena, buffer_uses, c->memory->buffer_count);
    for (int i = 0; i < c->memory->buffer_count; i++) {
        c->buffers[i] = (buffer_uses){.first = -1, .latest = -1, .earlier_buffers = -1};
        for (int lane = 0; lane < TRI_LANE_COUNT; lane++) c->buffers[i].by_lane[lane] = -1;
    }
    for (int i = 0; i < c->s->count; i++)
        for (int k = c->memory->first[i]; k < c->memory->first[i + 1]; k++)
            TRI_TRY(follow_use(c, i, c->memory->settings[k].buffer));
    return TRI_OK;
}

tri_status tri_step_memory_verify(const tri_step_memory *memory, const tri_schedule *schedule) {
    tri_arena *arena = tri_arena_create(NULL, "check of memory");
    check c = {.arena = arena,
               .s = schedule,
               .memory = memory,
               .precedence = tri_precedence_make(arena, schedule)};
    tri_status status = follow(&c);
    tri_arena_destroy(arena);
    return status;
}
