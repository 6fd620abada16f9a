// FORWARD, RECOMPUTE and the kinds of BACKWARD: runs a block's kernels over one micro-batch.
// Read next: communicate.c.
#include "engine/engine_internal.h"

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
    case TRI_LOCATION_SCALAR:
        return e->memory.scalars[location.index];
    case TRI_LOCATION_PARAMETER:
        at = &flat->parameters[location.index];
        return e->memory.slots[tri_slot_parameters(at->unit, at->bucket)] +
               at->offset * (int64_t)tri_dtype_bytes(engine_bucket_dtype(e, at->bucket));
    case TRI_LOCATION_GRADIENT:
        break;
    }
    at = &flat->parameters[location.index];
    return e->memory.slots[tri_slot_gradients(at->unit, at->bucket)] +
           at->offset * (int64_t)sizeof(float);
}

static tri_status run_segment(tri_engine *e, const tri_program *p, int block, tri_phase phase,
                              bool recompute) {
    tri_segment s = p->segments[block][phase];
    const tri_kernel *kernels = engine_kernels_of(e, p);
    for (int i = s.first; i < s.end; i++) {
        const tri_kernel *kernel = &kernels[i];
        const tri_node *node = &p->graph->nodes[i];
        bool collective = node->op->flags & TRI_OP_COLLECTIVE;
        if (recompute && !p->recomputed[i]) continue;
        if (!kernel->def && !collective) continue; // a view: there is nothing to run
        engine_args args;
        for (int k = 0; k < node->input_count; k++) args.in[k] = address(e, p, node->inputs[k]);
        for (int k = 0; k < node->output_count; k++) args.out[k] = address(e, p, node->outputs[k]);
        if (collective)
            TRI_TRY(engine_run_collective(e, p, node, args.in, args.out));
        else
            TRI_TRY(tri_kernel_run(kernel, &(tri_kernel_args){.queue = e->queue,
                                                              .in = args.in,
                                                              .out = args.out,
                                                              .workspace = e->memory.workspace}));
        TRI_TRY(engine_look_for_anomaly(e, p->graph, node, args.in, args.out));
    }
    return TRI_OK;
}

// Sets the padding between the parameters of a bucket to zero, because a reduction and the norm
// cover the whole bucket, and kernels write only the parameters.
static tri_status clear_gaps(const tri_engine *e, int unit, tri_bucket_kind bucket) {
    char *base = e->memory.slots[tri_slot_gradients(unit, bucket)];
    const int *first = &e->gaps.first[unit * TRI_BUCKET_COUNT + (int)bucket];
    for (int i = first[0]; i < first[1]; i++)
        TRI_TRY(e->device->backend->zero(e->queue,
                                         base + e->gaps.items[i].first * (int64_t)sizeof(float),
                                         (size_t)e->gaps.items[i].count * sizeof(float)));
    return TRI_OK;
}

// Where a bucket's gradients go while a compute action runs. Kernels overwrite their outputs. So if
// there is a sum already (of earlier rounds, or of another block), kernels write to
// `round_gradients`, which is then added to the sum. RECOMPUTE makes the statistics of FORWARD a
// second time; these are not used.
typedef struct gradient_buffer {
    int slot;
    int64_t elements;
    char *sum; // the sum to which they are added; NULL: kernels write them to their final memory
    bool drop;
} gradient_buffer;

enum { MOST_BUFFERS = 2 * TRI_MAX_BLOCK_UNITS };

static uint64_t bit_of_unit(const tri_schedule_block *block, int unit) {
    for (int k = 0; k < block->unit_count; k++)
        if (block->units[k] == unit) return UINT64_C(1) << k;
    return 0;
}

// Finds for which units a block always makes gradients. A block always makes the gradients of its
// own unit, but it may make none of a unit that it shares with other blocks, and programs may
// differ in this. A unit's bit is set if the block makes its gradients in all programs. If not, the
// unit's buffer is set to zero before the action runs, because perhaps no kernel writes it.
void engine_find_gradient_units(tri_engine *e) {
    const tri_plan *plan = e->plan;
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

// Points the slots of gradients, through which kernels find their outputs, to the memory into which
// this action has to write. FORWARD makes the gradients of statistics, BACKWARD all others.
static tri_status open_gradients(tri_engine *e, const tri_action *a, gradient_buffer *buffers,
                                 int *count) {
    bool forward = a->kind == TRI_ACTION_FORWARD, recompute = a->kind == TRI_ACTION_RECOMPUTE;
    const tri_schedule_block *block = &e->plan->blocks[a->subject];
    int64_t used = 0;
    *count = 0;
    // After tri_pass_split_backward, BACKWARD_INPUT makes no gradients of parameters; only
    // BACKWARD_WEIGHT does.
    if (a->kind == TRI_ACTION_BACKWARD_INPUT) return TRI_OK;
    for (int k = 0; k < block->unit_count && e->run.step->request.training; k++)
        for (int i = 0; i < TRI_BUCKET_COUNT; i++) {
            tri_bucket_kind bucket = (tri_bucket_kind)i;
            int64_t elements = e->plan->flat.units[block->units[k]].buckets[bucket].elements;
            bool mine = bucket == TRI_BUCKET_STATISTIC
                            ? forward || recompute
                            : tri_bucket_is_trained(bucket) && !forward && !recompute;
            if (!mine || elements == 0) continue;
            bool adds = recompute || (a->adds >> k & 1);
            gradient_buffer *p = &buffers[(*count)++];
            *p = (gradient_buffer){.slot = tri_slot_gradients(block->units[k], bucket),
                                   .elements = elements,
                                   .drop = recompute};
            if (adds) {
                p->sum = e->memory.slots[p->slot];
                e->memory.slots[p->slot] = (char *)(e->memory.round_gradients + used);
                used += elements;
            }
            // Gradients that have memory of their own for the whole run have zeros in the padding
            // between parameters (engine_gap) from the start. Memory that other buffers use too may
            // contain anything.
            if (adds || !e->memory.gradients) TRI_TRY(clear_gaps(e, block->units[k], bucket));
            if (!(e->gradient_unit_bits[a->subject] >> k & 1))
                TRI_TRY(e->device->backend->zero(e->queue, e->memory.slots[p->slot],
                                                 (size_t)elements * sizeof(float)));
        }
    return TRI_OK;
}

static tri_status close_gradients(tri_engine *e, const gradient_buffer *buffers, int count) {
    for (int i = 0; i < count; i++) {
        const gradient_buffer *p = &buffers[i];
        if (!p->sum) continue;
        const float *made = (const float *)e->memory.slots[p->slot];
        e->memory.slots[p->slot] = p->sum;
        if (!p->drop)
            TRI_TRY(e->device->backend->add(e->queue, (float *)p->sum, made, p->elements));
    }
    return TRI_OK;
}

tri_status engine_run_compute(tri_engine *e, const tri_action *a) {
    const tri_round *round = &e->run.step->items[a->round];
    const tri_program *p = round->program;
    gradient_buffer buffers[MOST_BUFFERS];
    e->run.round = a->round;
    int count;
    TRI_TRY(open_gradients(e, a, buffers, &count));
    bool forward = a->kind == TRI_ACTION_FORWARD, recompute = a->kind == TRI_ACTION_RECOMPUTE;
    if (forward || recompute) TRI_TRY(run_segment(e, p, a->subject, TRI_PHASE_FORWARD, recompute));
    if (a->kind == TRI_ACTION_BACKWARD || a->kind == TRI_ACTION_BACKWARD_INPUT)
        TRI_TRY(run_segment(e, p, a->subject, TRI_PHASE_BACKWARD, false));
    if (a->kind == TRI_ACTION_BACKWARD || a->kind == TRI_ACTION_BACKWARD_WEIGHT)
        TRI_TRY(run_segment(e, p, a->subject, TRI_PHASE_WEIGHT, false));
    return close_gradients(e, buffers, count);
}
