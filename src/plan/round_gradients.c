// Lists the round gradients (a round is one micro-batch of a step): the gradients that kernels
// cannot add to earlier ones directly. A compute action often has to add the gradients that it
// makes to those that an earlier micro-batch or another block has left in memory. But most kernels
// overwrite their outputs. So the new gradients go into memory of their own and are added
// afterwards. Kernels that can add (tri_kernel_def.adds) do so directly, which spares this memory,
// and a write and a read of each gradient. docs/decisions/0028-what-products-take-over.md says
// more. A bucket is a contiguous range of parameters of a unit (parameters that are reduced
// together).
#include "plan/memory.h"
#include "plan/plan.h"

typedef struct listing {
    const tri_plan *plan;
    const tri_program *program;
    int block;
    tri_round_range *ranges; // NULL: ranges are only counted
    int count;
    int64_t elements;
} listing;

bool tri_round_adds(const tri_program *program, const tri_gradient_info *gradient) {
    const tri_value_info *info = tri_value_get(program->graph, gradient->value);
    return info->kind == TRI_VALUE_RESULT && program->adds[info->node] >> info->output & 1;
}

static void add_range(listing *l, tri_round_range range) {
    int64_t alignment = l->plan->device.alignment / (int64_t)sizeof(float);
    range.at = l->elements;
    l->elements += tri_memory_round_up(range.elements, alignment);
    if (l->ranges) l->ranges[l->count] = range;
    l->count++;
}

// Whether the block makes this gradient, and the gradient belongs to this bucket.
static bool is_of(const listing *l, const tri_gradient_info *gradient, int unit,
                  tri_bucket_kind bucket) {
    const tri_flat_parameter *p = &l->plan->flat.parameters[gradient->parameter];
    return gradient->block == l->block && p->unit == unit && p->bucket == bucket;
}

// Lists the gradients of a bucket that go into the round gradients. If kernels add some of the
// bucket's gradients directly, each of the others is a range of its own; else all are one range, so
// that one addition is enough.
static void list_bucket(listing *l, int unit, tri_bucket_kind bucket, bool is_discarded) {
    const tri_graph *g = l->program->graph;
    tri_round_range whole = {.unit = unit,
                             .bucket = bucket,
                             .parameter = -1,
                             .elements = l->plan->flat.units[unit].buckets[bucket].elements,
                             .is_discarded = is_discarded};
    bool any = false;
    for (int i = 0; i < g->gradient_count && !any; i++)
        any = is_of(l, &g->gradients[i], unit, bucket) &&
              tri_round_adds(l->program, &g->gradients[i]);
    if (!any && whole.elements > 0) add_range(l, whole);
    for (int i = 0; i < g->gradient_count && any; i++) {
        if (!is_of(l, &g->gradients[i], unit, bucket) ||
            tri_round_adds(l->program, &g->gradients[i]))
            continue;
        tri_round_range range = whole;
        range.parameter = g->gradients[i].parameter;
        range.first = l->plan->flat.parameters[range.parameter].offset;
        range.elements = l->plan->flat.parameters[range.parameter].elements;
        add_range(l, range);
    }
}

int64_t tri_round_gradients(const tri_plan *plan, const tri_step_plan *step, const tri_action *a,
                            tri_round_range *ranges, int *count) {
    if (count) *count = 0;
    // If the backward pass is split (tri_pass_split_backward), BACKWARD_INPUT makes only gradients
    // of activations, and BACKWARD_WEIGHT makes those of parameters.
    if (tri_action_subject(a->kind) != TRI_SUBJECT_BLOCK || a->kind == TRI_ACTION_BACKWARD_INPUT ||
        !step->round_items[a->round].program)
        return 0;
    bool recompute = a->kind == TRI_ACTION_RECOMPUTE;
    bool forward = recompute || a->kind == TRI_ACTION_FORWARD;
    const tri_schedule_block *block = &plan->blocks[a->subject];
    listing l = {.plan = plan,
                 .program = step->round_items[a->round].program,
                 .block = a->subject,
                 .ranges = ranges};
    for (int k = 0; k < block->unit_count; k++) {
        if (!recompute && !(a->adds >> k & 1)) continue;
        for (int i = 0; i < TRI_BUCKET_COUNT; i++)
            if (forward ? i == TRI_BUCKET_STATISTIC : tri_bucket_is_trained((tri_bucket_kind)i))
                list_bucket(&l, block->units[k], (tri_bucket_kind)i, recompute);
    }
    if (count) *count = l.count;
    return l.elements;
}

int tri_round_range_limit(const tri_plan *plan) {
    return plan->flat.parameter_count + TRI_MAX_BLOCK_UNITS * TRI_BUCKET_COUNT;
}
