// The actions by which ranks communicate. On a unit, that is, parameters that are gathered and
// reduced together: GATHER (all-gather of parameters), SCATTER (reduce-scatter of gradients),
// REDUCE (all-reduce of gradients) and TIE (all-reduce over the pipeline stages that share a
// parameter). On an edge, that is, values that one pipeline stage sends another: SEND and RECV. A
// unit has several buckets, contiguous ranges of parameters of one role, type and placement, and an
// action has one operation for each of them. All operations of an action are started at once, so
// that the communicator can overlap or join them.
//
// This file also runs operations inside other actions (compute actions and NORM), which go on only
// after the operation. Read next: numbers.c.
#include "engine/engine_internal.h"

// The operations of one action, collected here and then started together. engine_size_communication
// has made room for the operations of any action, so that a step allocates nothing.
typedef struct op_list {
    tri_comm_op *ops;
    int count, most;
    const char *label;
} op_list;

static tri_comm_op *add(op_list *list, tri_comm_kind kind, tri_dtype dtype, int64_t count,
                        const void *send, void *recv) {
    TRI_ASSERT(list->count < list->most);
    tri_comm_op *op = &list->ops[list->count++];
    *op = (tri_comm_op){.kind = kind,
                        .reduction = TRI_REDUCE_SUM,
                        .dtype = dtype,
                        .count = count,
                        .send = send,
                        .recv = recv,
                        .label = list->label};
    return op;
}

// Lists the all-gathers of GATHER, one for each bucket of the unit: they put together whole
// parameters from the ranges of all shards, in the type in which kernels read them.
static void gather(const tri_engine *e, const tri_action *a, op_list *list) {
    for (int k = 0; k < TRI_BUCKET_COUNT; k++) {
        tri_bucket_kind bucket = (tri_bucket_kind)k;
        const tri_flat_bucket *p = &e->plan->flat.units[a->subject].buckets[bucket];
        if (p->own == 0) continue;
        add(list, TRI_COMM_ALL_GATHER, engine_bucket_dtype(e, bucket), p->own,
            engine_own(e, a->subject, bucket),
            e->memory.slots[tri_slot_parameters(a->subject, bucket)]);
    }
}

// The type in which ranks send a bucket's gradients to each other. The statistics of batch norm are
// always sent in F32: strategy.reduce_dtype is for gradients of trained parameters, and running
// averages would lose digits in a half type.
static tri_dtype wire_of(const tri_engine *e, tri_bucket_kind bucket) {
    return tri_bucket_is_trained(bucket) ? e->plan->sharing.reduce_dtype : TRI_F32;
}

static void scatter(const tri_engine *e, const tri_action *a, op_list *list) {
    for (int k = 0; k < TRI_BUCKET_COUNT; k++) {
        tri_bucket_kind bucket = (tri_bucket_kind)k;
        const tri_flat_bucket *p = &e->plan->flat.units[a->subject].buckets[bucket];
        if (p->own == 0 || !tri_bucket_has_gradients(bucket)) continue;
        tri_comm_op *op = add(list, TRI_COMM_REDUCE_SCATTER, TRI_F32, p->own,
                              e->memory.slots[tri_slot_gradients(a->subject, bucket)],
                              engine_own_gradients(e, a->subject, bucket));
        op->accumulate = a->accumulate;
        op->wire = wire_of(e, bucket);
    }
}

// Lists the all-reduces of REDUCE and TIE. They reduce this rank's own gradients: the range that
// SCATTER leaves on this rank or, without SCATTER, the whole bucket. If the ranges of two buckets
// are adjacent in memory, one operation reduces both, because each operation has a fixed cost.
static void reduce(const tri_engine *e, const tri_action *a, op_list *list) {
    for (int k = 0; k < TRI_BUCKET_COUNT; k++) {
        tri_bucket_kind bucket = (tri_bucket_kind)k;
        const tri_flat_bucket *p = &e->plan->flat.units[a->subject].buckets[bucket];
        if (p->own == 0 || !tri_bucket_has_gradients(bucket)) continue;
        float *own_gradients = engine_own_gradients(e, a->subject, bucket);
        tri_dtype wire = a->kind == TRI_ACTION_TIE ? TRI_F32 : wire_of(e, bucket);
        tri_comm_op *last = list->count ? &list->ops[list->count - 1] : NULL;
        if (last && last->wire == wire && (float *)last->recv + last->count == own_gradients)
            last->count += p->own;
        else
            add(list, TRI_COMM_ALL_REDUCE, TRI_F32, p->own, own_gradients, own_gradients)->wire =
                wire;
    }
}

static void *address_of(const tri_engine *e, const tri_program *p, tri_value value) {
    tri_location location = p->locations[value.id];
    return e->memory.slots[tri_slot_bundle(&e->plan->flat, location.index)] + location.offset;
}

static void send_or_receive(const tri_engine *e, const tri_action *a, op_list *list) {
    const tri_step_round *round = &e->run.step->round_items[a->round];
    const tri_edge *edge = &e->run.step->request.edges[a->subject];
    bool sends = a->kind == TRI_ACTION_SEND_ALONG || a->kind == TRI_ACTION_SEND_BACK;
    int pipeline = e->run.step->request.pipeline;
    for (int i = 0; i < round->edge_value_count; i++) {
        if (round->edge_of_value[i] != a->subject) continue;
        tri_value value = round->edge_values[i].value;
        const tri_value_info *info = tri_value_get(round->program->graph, value);
        void *at = address_of(e, round->program, value);
        tri_comm_op *op = add(list, sends ? TRI_COMM_SEND : TRI_COMM_RECV, info->dtype,
                              tri_layout_elements(&info->layout, &info->shape), at, at);
        op->peer = (sends ? edge->to_stage : edge->from_stage) % pipeline;
    }
}

// Makes room for the operations of any action, so that a step allocates nothing. An action on a
// unit (parameters that are reduced together) has at most one operation for each bucket; a SEND or
// RECV has one for each value that it carries between two stages.
void engine_size_communication(tri_engine *e) {
    e->run.most_ops = TRI_BUCKET_COUNT;
    for (int i = 0; i < TRI_STEP_SHAPE_COUNT; i++) {
        const tri_step_plan *step = &e->plan->steps[i];
        for (int k = 0; k < step->rounds; k++)
            if (step->round_items[k].edge_value_count > e->run.most_ops)
                e->run.most_ops = step->round_items[k].edge_value_count;
    }
    e->run.ops = TRI_NEW_ARRAY(e->arena, tri_comm_op, e->run.most_ops);
}

tri_comm *engine_group_of(const tri_engine *e, const tri_action *a) {
    if (a->kind == TRI_ACTION_TIE) return e->data.ties[a->subject];
    switch (tri_action_lane(a->kind)) {
    case TRI_LANE_SHARD:
        return e->data.shards;
    case TRI_LANE_REPLICATE:
        return e->data.replicate;
    case TRI_LANE_ALONG:
        return e->data.along;
    case TRI_LANE_BACK:
        return e->data.back;
    default:
        TRI_ASSERT(false);
    }
}

tri_status engine_start_communication(tri_engine *e, const tri_action *a, tri_ticket *ticket) {
    static void (*const list_ops[TRI_ACTION_KIND_COUNT])(const tri_engine *e, const tri_action *a,
                                                         op_list *list) = {
        [TRI_ACTION_GATHER] = gather,
        [TRI_ACTION_SCATTER] = scatter,
        [TRI_ACTION_REDUCE] = reduce,
        [TRI_ACTION_TIE] = reduce,
        [TRI_ACTION_SEND_ALONG] = send_or_receive,
        [TRI_ACTION_RECV_ALONG] = send_or_receive,
        [TRI_ACTION_SEND_BACK] = send_or_receive,
        [TRI_ACTION_RECV_BACK] = send_or_receive,
    };
    TRI_ASSERT(list_ops[a->kind]);
    op_list list = {.ops = e->run.ops, .most = e->run.most_ops};
    bool unit = tri_action_subject(a->kind) == TRI_SUBJECT_UNIT;
    list.label = unit ? e->labels.subjects[a->kind][a->subject] : e->labels.kinds[a->kind];
    list_ops[a->kind](e, a, &list);
    if (list.count == 0) return TRI_OK;
    tri_comm *comm = engine_group_of(e, a);
    tri_comm_ticket started;
    TRI_TRY(comm->backend->start(comm, list.ops, list.count, &started));
    *ticket = tri_comm_ticket_of(comm, started);
    return TRI_OK;
}

tri_status engine_run_between(tri_engine *e, tri_comm *comm, const tri_comm_op *op) {
    tri_ticket ticket;
    tri_comm_ticket started;
    TRI_TRY(e->device->backend->record(e->queue, &ticket));
    TRI_TRY(tri_comm_after(comm, &ticket));
    tri_comm_op waiting = *op;
    waiting.waits_at_once = true;
    TRI_TRY(comm->backend->start(comm, &waiting, 1, &started));
    ticket = tri_comm_ticket_of(comm, started);
    return engine_let_wait(e, e->queue, &ticket);
}
