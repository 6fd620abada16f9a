// What lies in storage between its uses: FETCH, LOAD and EVICT. The storage holds the states of all
// units that move, then the masters of low parts, then the others.
#include "engine/engine_internal.h"

bool engine_is_moved(const tri_engine *e, tri_part_kind part, int state) {
    return state < 0 ? e->plan->moves.masters[part] : e->plan->moves.states > 0;
}

// Of the part's masters (state -1) or of one of its states.
static int64_t offset_of(const tri_engine *e, int unit, tri_part_kind part, int state) {
    const tri_flat *flat = &e->plan->flat;
    const tri_flat_part *p = &flat->units[unit].parts[part];
    int64_t states = e->plan->moves.states, elements;
    if (state >= 0)
        elements = states * p->state_offset + state * p->own;
    else
        elements = states * flat->state_elements + p->own_offset +
                   (tri_part_is_low(part) ? 0 : flat->own_elements[1]);
    return elements * (int64_t)sizeof(float);
}

static int64_t own_bytes(const tri_engine *e, int unit, tri_part_kind part) {
    return e->plan->flat.units[unit].parts[part].own * (int64_t)sizeof(float);
}

tri_status engine_open_storage(tri_engine *e, tri_ledger *ledger) {
    int64_t bytes = e->plan->memory.offloaded;
    if (bytes == 0) return TRI_OK;
    if (!e->device->backend->host_memory)
        return TRI_FAIL(TRI_UNSUPPORTED,
                        "strategy.offload: the memory of device %s cannot be read from a file in "
                        "this version; use none",
                        e->device->backend->name);
    return tri_storage_open(&(tri_storage_config){.folder = e->plan->offload_path,
                                                  .size_bytes = bytes,
                                                  .rank = e->plan->rank,
                                                  .ledger = ledger},
                            &e->storage);
}

static tri_status wait_storage(void *lane, uint64_t number) {
    return tri_storage_wait(lane, number);
}

tri_status engine_start_storage(tri_engine *e, const tri_action *a, engine_ticket *ticket) {
    tri_storage_op ops[2 * TRI_PART_COUNT];
    const tri_moves *moves = &e->plan->moves;
    int count = 0, unit = a->subject;
    bool writes = a->kind == TRI_ACTION_EVICT;
    for (int k = 0; k < TRI_PART_COUNT; k++) {
        tri_part_kind part = (tri_part_kind)k;
        int64_t bytes = own_bytes(e, unit, part);
        if (bytes == 0) continue;
        if (tri_moves_masters(moves, a->kind, part))
            ops[count++] = (tri_storage_op){.writes = writes,
                                            .memory = e->slots[tri_slot_masters(unit, part)],
                                            .offset = offset_of(e, unit, part, -1),
                                            .size_bytes = bytes};
        if (tri_moves_states(moves, a->kind, part))
            ops[count++] = (tri_storage_op){.writes = writes,
                                            .memory = e->slots[tri_slot_states(unit, part)],
                                            .offset = offset_of(e, unit, part, 0),
                                            .size_bytes = bytes * moves->states};
    }
    if (count == 0) return TRI_OK;
    uint64_t number;
    TRI_TRY(tri_storage_start(e->storage, ops, count, e->unit_labels[a->kind][unit], &number));
    *ticket = (engine_ticket){wait_storage, e->storage, number};
    return TRI_OK;
}

tri_status engine_bring_masters(tri_engine *e, int unit) {
    int64_t elements = 0;
    const tri_flat_unit *u = &e->plan->flat.units[unit];
    for (int k = 0; k < TRI_PART_COUNT && u->here; k++)
        if (e->plan->moves.masters[k] && tri_part_is_low((tri_part_kind)k))
            elements += u->parts[k].own;
    if (elements == 0) return TRI_OK;
    float *to = engine_staging(e, elements);
    for (int k = 0; k < TRI_PART_COUNT; k++) {
        tri_part_kind part = (tri_part_kind)k;
        if (!tri_part_is_low(part) || u->parts[k].own == 0) continue;
        TRI_TRY(engine_read_own(e, unit, part, -1, to));
        e->slots[tri_slot_masters(unit, part)] = (char *)to;
        to += u->parts[k].own;
    }
    return TRI_OK;
}

static tri_status move(tri_engine *e, int unit, tri_part_kind part, int state, bool writes,
                       void *memory) {
    tri_storage_op op = {.writes = writes,
                         .memory = memory,
                         .offset = offset_of(e, unit, part, state),
                         .size_bytes = own_bytes(e, unit, part)};
    return tri_storage_run(e->storage, &op, e->plan->flat.units[unit].name);
}

static float *place_of(const tri_engine *e, int unit, tri_part_kind part, int state) {
    return state < 0 ? engine_master(e, unit, part) : engine_state(e, state, unit, part);
}

tri_status engine_read_own(tri_engine *e, int unit, tri_part_kind part, int state, float *to) {
    if (engine_is_moved(e, part, state)) return move(e, unit, part, state, false, to);
    e->device->backend->copy_out(e->device, to, place_of(e, unit, part, state),
                                 (size_t)own_bytes(e, unit, part));
    return TRI_OK;
}

tri_status engine_write_own(tri_engine *e, int unit, tri_part_kind part, int state,
                            const float *from) {
    if (engine_is_moved(e, part, state)) return move(e, unit, part, state, true, (void *)from);
    e->device->backend->copy_in(e->device, place_of(e, unit, part, state), from,
                                (size_t)own_bytes(e, unit, part));
    return TRI_OK;
}
