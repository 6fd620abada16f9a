// The actions FORWARD, RECOMPUTE and the kinds of BACKWARD: run a block's kernels over one
// micro-batch. The engine's main loop calls engine_run_compute for each of them.
//
// A block is a layer or a group of layers that is scheduled as one; a program is the model's graph
// with kernels, for one size of micro-batch. Gradients are kept by bucket: a contiguous range with
// those parameters of one unit (parameters that are reduced together) that have the same role (such
// as trained or frozen), that kernels read in the same type, and that lie in the same way on the
// tensor-parallel ranks. An action makes gradients where there may be some already, of an earlier
// micro-batch or of another block. A kernel that can add adds its gradients to them. Other kernels
// write to memory of their own, the round gradients, and the engine adds these after the action.
// Read next: communicate.c.
#include "engine/caches.h"
#include "engine/kept.h"

#include <string.h>

static void *address(const tri_engine *e, const tri_program *p, tri_value value) {
    if (!tri_value_is(value)) return NULL;
    tri_location location = p->locations[value.id];
    const tri_flat *flat = &e->plan->flat;
    const tri_flat_parameter *at;
    switch (location.kind) {
    case TRI_LOCATION_NONE:
        return NULL;
    case TRI_LOCATION_SCRATCH:
        return e->memory.slots[TRI_SLOT_SCRATCH] + location.offset;
    case TRI_LOCATION_BUNDLE:
        return e->memory.slots[tri_slot_bundle(flat, location.index)] + location.offset;
    case TRI_LOCATION_INPUT:
        return e->memory.slots[TRI_SLOT_INPUTS] + location.offset;
    case TRI_LOCATION_RESULT:
        return engine_results(e, e->run.round) + location.offset;
    case TRI_LOCATION_COUNTS:
        return (char *)engine_round_counts(e) + location.offset;
    case TRI_LOCATION_SCALAR:
        return e->memory.scalars[location.index];
    case TRI_LOCATION_CACHE:
        return e->memory.caches + engine_cache_row(e, p, location.index, e->run.round);
    case TRI_LOCATION_PARAMETER:
        if (engine_mapped_values(e, location.index)) return engine_mapped_values(e, location.index);
        at = &flat->parameters[location.index];
        return e->memory.slots[tri_slot_parameters(at->unit, at->bucket)] +
               at->offset * (int64_t)tri_dtype_bytes(engine_bucket_dtype(e, at->bucket));
    case TRI_LOCATION_GRADIENT:
        break;
    }
    at = &flat->parameters[location.index];
    if (e->run.round_address[location.index]) return e->run.round_address[location.index];
    return e->memory.slots[tri_slot_gradients(at->unit, at->bucket)] +
           at->offset * (int64_t)sizeof(float);
}

static uint64_t bit_of_unit(const tri_schedule_block *block, int unit) {
    for (int k = 0; k < block->unit_count; k++)
        if (block->units[k] == unit) return UINT64_C(1) << k;
    return 0;
}

// Finds to which outputs of node i its kernel has to add, because there are earlier gradients,
// which must not be overwritten: bit k is set for output k. a->adds tells for which units
// (parameters that are reduced together) there are earlier gradients, and p->adds[i] tells to which
// outputs the kernel can add.
static unsigned adds_of(const tri_engine *e, const tri_program *p, int i, const tri_action *a) {
    const tri_node *node = &p->graph->nodes[i];
    unsigned adds = 0;
    for (int k = 0; p->adds[i] >> k; k++) {
        if (!(p->adds[i] >> k & 1)) continue;
        int parameter = p->locations[node->outputs[k].id].index;
        int unit = e->plan->flat.parameters[parameter].unit;
        if (a->adds & bit_of_unit(&e->plan->blocks[a->subject], unit)) adds |= 1u << k;
    }
    return adds;
}

static tri_status run_segment(tri_engine *e, const tri_program *p, const tri_action *a,
                              tri_phase phase) {
    bool recompute = a->kind == TRI_ACTION_RECOMPUTE;
    tri_segment s = p->segments[a->subject][phase];
    const tri_kernel *kernels = engine_kernels_of(e, p);
    for (int i = s.first; i < s.end; i++) {
        const tri_kernel *kernel = &kernels[i];
        const tri_node *node = &p->graph->nodes[i];
        bool collective = node->op->flags & TRI_OP_COLLECTIVE;
        if (recompute && !p->recomputed[i]) continue;
        if (!kernel->def && !collective) continue; // a view: there is nothing to run
        if (e->run.is_cancelled && !collective) continue;
        engine_args args;
        for (int k = 0; k < node->input_count; k++) args.in[k] = address(e, p, node->inputs[k]);
        for (int k = 0; k < node->output_count; k++) args.out[k] = address(e, p, node->outputs[k]);
        if (collective)
            TRI_TRY(engine_run_collective(e, p, node, args.in, args.out));
        else
            TRI_TRY(tri_kernel_run(kernel, &(tri_kernel_args){.queue = e->queue,
                                                              .in = args.in,
                                                              .out = args.out,
                                                              .workspace = e->memory.workspace,
                                                              .adds = adds_of(e, p, i, a)}));
        TRI_TRY(engine_look_for_anomaly(e, p->graph, node, args.in, args.out));
    }
    return TRI_OK;
}

// Sets the padding between the parameters of a bucket to zero in the bucket's gradients, because
// kernels write only the gradients of the parameters, but reductions and the norm read the whole
// bucket.
static tri_status clear_gaps(const tri_engine *e, int unit, tri_bucket_kind bucket) {
    char *base = e->memory.slots[tri_slot_gradients(unit, bucket)];
    const int *first = &e->gaps.first[unit * TRI_BUCKET_COUNT + (int)bucket];
    for (int i = first[0]; i < first[1]; i++)
        TRI_TRY(e->device->backend->zero(e->queue,
                                         base + e->gaps.items[i].first * (int64_t)sizeof(float),
                                         (size_t)e->gaps.items[i].count * sizeof(float)));
    return TRI_OK;
}

// Allocates the tables for round gradients, and finds for which units (parameters that are reduced
// together) a block always makes gradients. A block always makes those of its own unit. But of a
// unit that it shares with other blocks it may make none, and programs may differ in this. In
// gradient_unit_bits[block], a unit's bit is set if the block makes the unit's gradients in all
// programs that train. If the bit is not set, perhaps no kernel writes these gradients, so their
// memory is set to zero before the action runs.
void engine_prepare_gradients(tri_engine *e) {
    const tri_plan *plan = e->plan;
    int limit = tri_round_range_limit(plan);
    e->run.ranges = TRI_NEW_ARRAY(e->arena, tri_round_range, limit);
    e->run.earlier = TRI_NEW_ARRAY(e->arena, char *, limit);
    e->run.round_address = TRI_NEW_ARRAY(e->arena, float *, plan->flat.parameter_count);
    e->gradient_unit_bits = TRI_NEW_ARRAY(e->arena, uint64_t, plan->block_count);
    uint64_t *made = TRI_NEW_ARRAY(e->arena, uint64_t, plan->block_count);
    memset(e->gradient_unit_bits, -1, (size_t)plan->block_count * sizeof *e->gradient_unit_bits);
    for (int i = 0; i < plan->program_count; i++) {
        const tri_graph *g = plan->programs[i]->graph;
        if (!plan->programs[i]->training) continue;
        for (int b = 0; b < plan->block_count; b++) made[b] = bit_of_unit(&plan->blocks[b], b);
        for (int k = 0; k < g->gradient_count; k++) {
            int block = g->gradients[k].block,
                unit = plan->flat.parameters[g->gradients[k].parameter].unit;
            made[block] |= bit_of_unit(&plan->blocks[block], unit);
        }
        for (int b = 0; b < plan->block_count; b++) e->gradient_unit_bits[b] &= made[b];
    }
}

static tri_status zero_gradients(tri_engine *e, int unit, tri_bucket_kind bucket) {
    int64_t elements = e->plan->flat.units[unit].buckets[bucket].elements;
    return e->device->backend->zero(e->queue, e->memory.slots[tri_slot_gradients(unit, bucket)],
                                    (size_t)elements * sizeof(float));
}

static bool always_makes(const tri_engine *e, const tri_action *a, int unit) {
    return e->gradient_unit_bits[a->subject] & bit_of_unit(&e->plan->blocks[a->subject], unit);
}

// Lets the action's kernels write the gradients of a range to the round gradients (memory of their
// own). The range is one parameter, or a whole bucket. For a bucket, the bucket's entry in the
// table of addresses (memory.slots) is replaced, and run.earlier keeps the old address.
static tri_status open_range(tri_engine *e, const tri_action *a, const tri_round_range *range) {
    float *made = e->memory.round_gradients + range->at;
    if (range->parameter >= 0) {
        e->run.round_address[range->parameter] = made;
        return TRI_OK;
    }
    char **slot = &e->memory.slots[tri_slot_gradients(range->unit, range->bucket)];
    e->run.earlier[range - e->run.ranges] = *slot;
    *slot = (char *)made;
    TRI_TRY(clear_gaps(e, range->unit, range->bucket));
    return always_makes(e, a, range->unit) ? TRI_OK : zero_gradients(e, range->unit, range->bucket);
}

// Prepares memory for gradients that the action overwrites, because there are no earlier ones. If
// memory.gradients is set, gradients have memory of their own for the whole run, with zeros in the
// padding between parameters (engine_gap) from the start. Else other buffers use the memory too and
// may leave anything in it, so the padding is set to zero here.
static tri_status open_first(tri_engine *e, const tri_action *a, int unit, tri_bucket_kind bucket) {
    if (e->plan->flat.units[unit].buckets[bucket].elements == 0) return TRI_OK;
    if (!e->memory.gradients) TRI_TRY(clear_gaps(e, unit, bucket));
    return always_makes(e, a, unit) ? TRI_OK : zero_gradients(e, unit, bucket);
}

// Prepares memory for the gradients that this action makes. FORWARD makes what the micro-batch adds
// to the statistics of batch norm, which is kept and summed like a gradient; BACKWARD makes all
// others. RECOMPUTE makes the statistics a second time; these are not used.
static tri_status open_gradients(tri_engine *e, const tri_action *a) {
    bool forward = a->kind == TRI_ACTION_FORWARD, recompute = a->kind == TRI_ACTION_RECOMPUTE;
    const tri_schedule_block *block = &e->plan->blocks[a->subject];
    e->run.range_count = 0;
    // Evaluation makes no gradients. Neither does BACKWARD_INPUT, because split_backward, which
    // rewrites the graph, leaves all gradients of parameters to BACKWARD_WEIGHT.
    if (a->kind == TRI_ACTION_BACKWARD_INPUT || !e->run.step->request.training) return TRI_OK;
    tri_round_gradients(e->plan, e->run.step, a, e->run.ranges, &e->run.range_count);
    for (int i = 0; i < e->run.range_count; i++) TRI_TRY(open_range(e, a, &e->run.ranges[i]));
    for (int k = 0; k < block->unit_count && !recompute; k++)
        for (int i = 0; i < TRI_BUCKET_COUNT; i++)
            if (!(a->adds >> k & 1) &&
                (forward ? i == TRI_BUCKET_STATISTIC : tri_bucket_is_trained((tri_bucket_kind)i)))
                TRI_TRY(open_first(e, a, block->units[k], (tri_bucket_kind)i));
    return TRI_OK;
}

// After the action: adds the round gradients, which its kernels have written, to the earlier
// gradients, and restores the addresses that open_range replaced. A range with `is_discarded` is
// not added: it has the statistics that RECOMPUTE makes a second time.
static tri_status close_gradients(tri_engine *e) {
    for (int i = 0; i < e->run.range_count; i++) {
        const tri_round_range *range = &e->run.ranges[i];
        char **slot = &e->memory.slots[tri_slot_gradients(range->unit, range->bucket)];
        if (range->parameter >= 0)
            e->run.round_address[range->parameter] = NULL;
        else
            *slot = e->run.earlier[i];
        if (!range->is_discarded)
            TRI_TRY(e->device->backend->add(e->queue, (float *)(void *)*slot + range->first,
                                            e->memory.round_gradients + range->at,
                                            range->elements));
    }
    return TRI_OK;
}

// Copies the outputs of the model that the block has made to the host.
static tri_status send_outputs(tri_engine *e, const tri_program *p, int block) {
    const tri_graph *g = p->graph;
    for (int i = 0; i < g->output_count; i++) {
        const tri_node *maker = tri_value_node(g, g->outputs[i].value);
        if (maker->block == block && tri_plan_hands_over(e->plan, maker))
            TRI_TRY(engine_send_output(e, p, i, address(e, p, g->outputs[i].value)));
    }
    return TRI_OK;
}

tri_status engine_run_compute(tri_engine *e, const tri_action *a) {
    const tri_program *p = e->run.step->round_items[a->round].program;
    e->run.round = a->round;
    TRI_TRY(open_gradients(e, a));
    if (a->kind == TRI_ACTION_FORWARD || a->kind == TRI_ACTION_RECOMPUTE)
        TRI_TRY(run_segment(e, p, a, TRI_PHASE_FORWARD));
    if (a->kind == TRI_ACTION_FORWARD) TRI_TRY(engine_add_counts(e, p, a->subject));
    if (a->kind == TRI_ACTION_FORWARD) TRI_TRY(send_outputs(e, p, a->subject));
    if (a->kind == TRI_ACTION_BACKWARD || a->kind == TRI_ACTION_BACKWARD_INPUT)
        TRI_TRY(run_segment(e, p, a, TRI_PHASE_BACKWARD));
    if (a->kind == TRI_ACTION_BACKWARD || a->kind == TRI_ACTION_BACKWARD_WEIGHT)
        TRI_TRY(run_segment(e, p, a, TRI_PHASE_WEIGHT));
    return close_gradients(e);
}
