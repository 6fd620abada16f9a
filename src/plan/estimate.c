// Estimates what each action costs, from rates or from measured kernels, and simulates the step.
// `trireme plan` shows the result, and the search for settings that fit the memory (fit.c) sorts by
// it.
#include "plan/estimate.h"

#include "device/gpus.h"
#include "ops/ops.h"
#include "tensor/half.h"

#include <string.h>

const tri_rates tri_rates_assumed = {60e9, 60e9, 10e9, 5e9, 1e9, 10e9, 40e9, 4, 0, 0};

// The rates of GPUs that gpus.h lists, in operations and bytes per second. The disk is assumed.
#define PEAK(name, driver, features, gigabytes, f32, half, memory, link, host, socket, sharing)    \
    {name,                                                                                         \
     {(f32)*1e12, (half)*1e12, (memory)*1e9, (link)*1e9, 1e9, (host)*1e9, (socket)*1e9, sharing,   \
      0, 0}},
static const struct {
    const char *model;
    tri_rates peak;
} peaks[] = {TRI_GPUS(PEAK)};

tri_rates tri_rates_of(const tri_device_description *device, const char **from) {
    if (from) *from = "assumed";
    const char *kind = device->model ? device->model->name : device->kind;
    for (size_t i = 0; kind && i < sizeof peaks / sizeof *peaks; i++) {
        if (strcmp(kind, peaks[i].model) != 0) continue;
        if (from) *from = "the maker's peak";
        return peaks[i].peak;
    }
    return tri_rates_assumed;
}

double tri_rates_of_host_memory(const tri_rates *rates, int ranks) {
    return rates->socket_bytes_per_s /
           (ranks < rates->socket_devices ? ranks : rates->socket_devices);
}

// How many bytes per second a rank sends to the others of its group along an axis. Between hosts,
// the groups that a host has ranks of share its network.
static double link_along(const tri_plan *plan, tri_axis axis, const tri_rates *rates) {
    int stride = 1, most = rates->host_ranks;
    for (int a = axis + 1; a < TRI_AXIS_COUNT; a++) stride *= plan->mesh.size[a];
    if (!(rates->network_bytes_per_s > 0) || stride * plan->mesh.size[axis] <= most)
        return rates->link_bytes_per_s;
    double shared = rates->network_bytes_per_s / (stride < most ? stride : most);
    return shared < rates->link_bytes_per_s ? shared : rates->link_bytes_per_s;
}

// How many seconds the compute actions of a program take: its segments (the nodes of one block in
// one phase), collective ops included, and the nodes of FORWARD that RECOMPUTE runs again.
typedef struct compute_costs {
    const tri_program *program;
    int tensor; // number of ranks that share each layer
    // By block and phase. Measurements leave out collective ops. So if the times are measured,
    // `sent` has the estimated time of the collective ops, and take_measured adds it to `seconds`.
    // Without measurements `seconds` includes collective ops, and `sent` is 0.
    double (*seconds)[TRI_PHASE_COUNT], (*sent)[TRI_PHASE_COUNT];
    double *recompute; // by block: how long the nodes run that RECOMPUTE repeats, in seconds
} compute_costs;

// Estimates how many seconds a collective op takes. Its elements pass around a ring of the ranks,
// as in GATHER and REDUCE. For a sum that all ranks get (all-reduce), they pass around the ring
// twice.
static double collective_seconds(const tri_graph *g, const tri_node *node, const tri_rates *rates) {
    const tri_collective_attr *attr = node->attr;
    double in = (double)tri_value_bytes(g, node->inputs[0]);
    double out = (double)tri_value_bytes(g, node->outputs[0]);
    double turns = node->op == &tri_op_all_reduce ? 2 : 1;
    return turns * (attr->slices - 1.0) / attr->slices * (in > out ? in : out) /
           rates->link_bytes_per_s;
}

static double arithmetic_seconds(const tri_graph *g, const tri_node *node, double flops,
                                 const tri_rates *rates) {
    bool half = node->input_count > 0 && tri_value_is(node->inputs[0]) &&
                tri_dtype_is_half(tri_value_get(g, node->inputs[0])->dtype);
    return flops / (half ? rates->half_flops_per_s : rates->flops_per_s);
}

static double traffic_seconds(const tri_graph *g, const tri_node *node, const tri_rates *rates) {
    double bytes = 0;
    for (int k = 0; k < node->input_count; k++)
        if (tri_value_is(node->inputs[k])) bytes += (double)tri_value_bytes(g, node->inputs[k]);
    for (int k = 0; k < node->output_count; k++)
        bytes += (double)tri_value_bytes(g, node->outputs[k]);
    return bytes / rates->memory_bytes_per_s;
}

static double node_seconds(const tri_graph *g, const tri_node *node, const tri_rates *rates) {
    if (node->op->flags & TRI_OP_VIEW) return 0;
    if (node->op->flags & TRI_OP_COLLECTIVE) return collective_seconds(g, node, rates);
    double compute = arithmetic_seconds(g, node, tri_node_cost(g, node).flops, rates);
    double move = traffic_seconds(g, node, rates);
    return compute > move ? compute : move;
}

void tri_estimate_least(const tri_plan *plan, const tri_rates *rates, tri_least_seconds *out) {
    const tri_program *p = plan->programs[0];
    const tri_graph *g = p->graph;
    double slices = (double)plan->mesh.size[TRI_AXIS_TENSOR_PARALLEL], elements = 0;
    *out = (tri_least_seconds){0};
    for (int i = 0; i < g->node_count; i++) {
        if (g->nodes[i].op->flags & (TRI_OP_VIEW | TRI_OP_COLLECTIVE)) continue;
        tri_cost cost = tri_node_cost(g, &g->nodes[i]);
        out->arithmetic += arithmetic_seconds(g, &g->nodes[i], cost.flops - cost.repeated, rates);
        out->traffic += traffic_seconds(g, &g->nodes[i], rates);
    }
    for (int u = 0; u < plan->flat.unit_count; u++)
        for (int k = 0; k < TRI_BUCKET_COUNT; k++)
            if (tri_bucket_is_trained((tri_bucket_kind)k))
                elements += (double)plan->flat.units[u].buckets[k].elements;
    // An update reads the gradient, and reads and writes the parameter and its optimizer states.
    double update = elements * (double)sizeof(float) * (3 + 2 * plan->optimizer_states) /
                    rates->memory_bytes_per_s;
    out->arithmetic *= slices / (double)p->batch;
    out->traffic = slices * (out->traffic / (double)p->batch +
                             update / (double)plan->steps[TRI_STEP_FULL].samples);
}

// Replaces the times that were computed from rates by measured ones. Those were measured with whole
// layers, so each of n tensor-parallel ranks needs 1/n of them. If the whole backward pass was
// measured as one, its time is divided between the phases BACKWARD and WEIGHT in the ratio that the
// rates give.
static void take_measured(const compute_costs *costs, int block, const tri_measured *measured) {
    double *s = costs->seconds[block], *sent = costs->sent[block];
    double scale = (double)costs->program->batch / (double)measured->batch / costs->tensor;
    double all = s[TRI_PHASE_BACKWARD] + s[TRI_PHASE_WEIGHT];
    double later = all > 0 ? s[TRI_PHASE_WEIGHT] / all : 0, forward = s[TRI_PHASE_FORWARD];
    for (int phase = 0; phase < TRI_PHASE_COUNT; phase++)
        s[phase] = scale * measured->seconds[block][phase];
    if (s[TRI_PHASE_WEIGHT] == 0) {
        s[TRI_PHASE_WEIGHT] = later * s[TRI_PHASE_BACKWARD];
        s[TRI_PHASE_BACKWARD] -= s[TRI_PHASE_WEIGHT];
    }
    if (forward > 0) costs->recompute[block] *= s[TRI_PHASE_FORWARD] / forward;
    for (int phase = 0; phase < TRI_PHASE_COUNT; phase++) s[phase] += sent[phase];
}

static void find_compute_costs(tri_arena *arena, const tri_plan *plan, const tri_program *p,
                               const tri_rates *rates, const tri_measured *measured,
                               compute_costs *out) {
    const tri_graph *g = p->graph;
    size_t bytes = (size_t)g->block_count * sizeof *out->seconds;
    tri_rates own = *rates; // of collective ops, which are along one axis
    own.link_bytes_per_s = link_along(plan, TRI_AXIS_TENSOR_PARALLEL, rates);
    *out = (compute_costs){.program = p,
                           .tensor = plan->mesh.size[TRI_AXIS_TENSOR_PARALLEL],
                           .seconds = tri_arena_alloc(arena, bytes),
                           .sent = tri_arena_alloc(arena, bytes),
                           .recompute = TRI_NEW_ARRAY(arena, double, g->block_count)};
    for (int i = 0; i < g->node_count; i++) {
        const tri_node *node = &g->nodes[i];
        double seconds = node_seconds(g, node, &own);
        bool sends = node->op->flags & TRI_OP_COLLECTIVE;
        (sends && measured ? out->sent : out->seconds)[node->block][node->phase] += seconds;
        if (p->recomputed && p->recomputed[i]) out->recompute[node->block] += seconds;
    }
    for (int b = 0; measured && b < g->block_count; b++) take_measured(out, b, measured);
}

static double compute_seconds(const compute_costs *costs, const tri_action *a) {
    const double *s = costs->seconds[a->subject];
    switch (a->kind) {
    case TRI_ACTION_FORWARD:
        return s[TRI_PHASE_FORWARD];
    case TRI_ACTION_RECOMPUTE:
        return costs->recompute[a->subject];
    case TRI_ACTION_BACKWARD:
        return s[TRI_PHASE_BACKWARD] + s[TRI_PHASE_WEIGHT];
    case TRI_ACTION_BACKWARD_INPUT:
        return s[TRI_PHASE_BACKWARD];
    default:
        return s[TRI_PHASE_WEIGHT];
    }
}

// Counts the elements of a unit (parameters that are reduced together). `own`: only those of this
// rank's shard. `trained_only`: only those of buckets with gradients, because only these are
// reduced.
static double unit_elements(const tri_plan *plan, int unit, bool own, bool trained_only) {
    double sum = 0;
    for (int k = 0; k < TRI_BUCKET_COUNT; k++) {
        const tri_flat_bucket *bucket = &plan->flat.units[unit].buckets[k];
        bool counts = trained_only ? tri_bucket_has_gradients((tri_bucket_kind)k) : true;
        if (counts) sum += (double)(own ? bucket->own : bucket->elements);
    }
    return sum;
}

// Bytes of a unit (parameters that are gathered together) in the types that kernels read, which is
// what GATHER sends.
static double gathered_bytes(const tri_plan *plan, int unit) {
    double sum = 0;
    for (int k = 0; k < TRI_BUCKET_COUNT; k++) {
        bool is_half = tri_bucket_is_half((tri_bucket_kind)k);
        size_t width = is_half ? tri_dtype_bytes(plan->flat.half_dtype) : sizeof(float);
        sum += (double)(plan->flat.units[unit].buckets[k].elements * (int64_t)width);
    }
    return sum;
}

static double unit_seconds(const tri_plan *plan, const tri_action *a, const tri_rates *rates) {
    const double f32 = sizeof(float);
    double own = f32 * unit_elements(plan, a->subject, true, true);
    double whole = f32 * unit_elements(plan, a->subject, false, true);
    double others = (plan->sharing.shards - 1.0) / plan->sharing.shards;
    double sent = (double)tri_dtype_bytes(plan->sharing.reduce_dtype) /
                  f32; // bytes that are sent for each byte of F32 gradients
    int holders = plan->units[a->subject].holder_count;
    switch (a->kind) {
    case TRI_ACTION_GATHER:
        return others * gathered_bytes(plan, a->subject) / link_along(plan, TRI_AXIS_SHARD, rates);
    case TRI_ACTION_SCATTER:
        return sent * others * whole / link_along(plan, TRI_AXIS_SHARD, rates);
    case TRI_ACTION_REDUCE:
        whole = tri_schedule_scatters(&plan->steps[TRI_STEP_FULL].request) ? own : whole;
        return sent * 2 * (plan->sharing.replicate_size - 1.0) / plan->sharing.replicate_size *
               whole / link_along(plan, TRI_AXIS_REPLICATE, rates);
    case TRI_ACTION_TIE:
        return holders < 2 ? 0
                           : 2 * (holders - 1.0) / holders * own /
                                 link_along(plan, TRI_AXIS_PIPELINE, rates);
    case TRI_ACTION_CLEAR:
        return whole / rates->memory_bytes_per_s;
    // For each element STEP reads the parameter, the gradient and the optimizer states, and writes
    // all of these except the gradient.
    case TRI_ACTION_STEP:
        return (3 + 2 * plan->optimizer_states) * own / rates->memory_bytes_per_s;
    case TRI_ACTION_PREPARE:
        return 1.5 * own / rates->memory_bytes_per_s;
    case TRI_ACTION_DOWNLOAD:
        return (double)tri_plan_host_step_bytes(plan, a->subject).down / rates->host_bytes_per_s;
    case TRI_ACTION_UPLOAD:
        return (double)tri_plan_host_step_bytes(plan, a->subject).up / rates->host_bytes_per_s;
    case TRI_ACTION_HOST_STEP:
        return (double)tri_plan_host_step_bytes(plan, a->subject).memory /
               tri_rates_of_host_memory(rates, plan->mesh.ranks);
    case TRI_ACTION_FETCH:
    case TRI_ACTION_LOAD:
    case TRI_ACTION_EVICT:
        return (double)tri_offload_bytes(&plan->offload.set, &plan->flat, a) /
               (plan->offload.in_host_memory ? rates->host_bytes_per_s : rates->disk_bytes_per_s);
    default:
        return 0;
    }
}

static double action_seconds(const tri_plan *plan, const tri_step_plan *step, const tri_action *a,
                             const compute_costs *costs, const tri_rates *rates) {
    const tri_program *p = a->round >= 0 ? step->round_items[a->round].program : NULL;
    switch (tri_action_subject(a->kind)) {
    case TRI_SUBJECT_BLOCK:
        while (p && costs->program != p) costs++;
        return p ? compute_seconds(costs, a) : 0;
    case TRI_SUBJECT_UNIT:
        return unit_seconds(plan, a, rates);
    case TRI_SUBJECT_EDGE:
        return (double)(step->request.edges[a->subject].bytes * step->round_items[a->round].size) /
               link_along(plan, TRI_AXIS_PIPELINE, rates);
    case TRI_SUBJECT_NONE:
        // A device that is not asynchronous (takes_ahead is false) copies the inputs before it
        // computes. Estimates leave this time out, because it is short compared with the computing.
        if (a->kind == TRI_ACTION_TAKE && plan->takes_ahead)
            return (double)p->input_bytes / rates->memory_bytes_per_s;
        break;
    }
    return 0;
}

static double model_flops(const tri_plan *plan, int64_t samples) {
    const tri_program *p = plan->programs[0];
    double flops = 0;
    for (int b = 0; b < plan->block_count; b++)
        for (int phase = 0; phase < TRI_PHASE_COUNT; phase++)
            flops += tri_program_flops(p, b, (tri_phase)phase);
    return flops * (double)plan->mesh.size[TRI_AXIS_TENSOR_PARALLEL] * (double)samples /
           (double)p->batch;
}

void tri_estimate_step(tri_arena *arena, const tri_pipeline_plans *pipeline, const tri_rates *rates,
                       const tri_measured *measured, tri_estimate *out) {
    tri_simulated_rank *ranks = TRI_NEW_ARRAY(arena, tri_simulated_rank, pipeline->count);
    *out = (tri_estimate){.moments = TRI_NEW_ARRAY(arena, tri_moment *, pipeline->count)};
    for (int pipeline_rank = 0; pipeline_rank < pipeline->count; pipeline_rank++) {
        const tri_plan *plan = pipeline->plans[pipeline_rank];
        const tri_step_plan *step = &plan->steps[TRI_STEP_FULL];
        const tri_schedule *s = &step->schedule;
        compute_costs costs[TRI_MAX_PROGRAMS];
        for (int i = 0; i < plan->program_count; i++)
            find_compute_costs(arena, plan, plan->programs[i], rates, measured, &costs[i]);
        double *seconds = TRI_NEW_ARRAY(arena, double, s->count);
        out->moments[pipeline_rank] = TRI_NEW_ARRAY(arena, tri_moment, s->count);
        for (int i = 0; i < s->count; i++)
            seconds[i] = action_seconds(plan, step, &s->actions[i], costs, rates);
        ranks[pipeline_rank] = (tri_simulated_rank){s, seconds, out->moments[pipeline_rank]};
    }
    // Ranks with the same pipeline rank differ only in their replica, shard or slice, and do the
    // same at the same time: collectives among them take time, but none of them waits for another.
    // So simulating one of them for each pipeline rank is enough.
    tri_mesh alone = {.size = {[TRI_AXIS_PIPELINE] = pipeline->count,
                               [TRI_AXIS_REPLICATE] = 1,
                               [TRI_AXIS_SHARD] = 1,
                               [TRI_AXIS_TENSOR_PARALLEL] = 1},
                      .ranks = pipeline->count};
    out->step_s = tri_simulate(&alone, ranks, &out->bubble);
    out->flops = model_flops(pipeline->plans[0], pipeline->plans[0]->steps[TRI_STEP_FULL].samples);
}
