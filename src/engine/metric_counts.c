// The counts of metrics (graph/metric.h), such as a confusion matrix, in an evaluation: there may
// be millions, so there is no row of them for each micro-batch, as numbers.c has of losses. Kernels
// write those of a micro-batch, which are then added to the step's; at its end the ranks add
// theirs. Sums of counts are exact, so that their order does not matter.
//
//   counts of the step | counts of the running micro-batch
#include "engine/engine_internal.h"
#include "graph/metric.h"

tri_status engine_make_counts(tri_engine *e) {
    engine_counts *c = &e->counts;
    const tri_device_backend *device = e->device->backend;
    c->count = tri_metric_numbers(e->plan->graph, true);
    if (c->count == 0) return TRI_OK;
    size_t bytes = (size_t)c->count * sizeof(double);
    void *memory, *host = device->alloc_host ? NULL : TRI_NEW_ARRAY(e->arena, double, c->count);
    TRI_TRY(device->alloc(e->device, 2 * bytes, &memory));
    c->sums = memory;
    if (device->alloc_host) TRI_TRY(device->alloc_host(e->device, bytes, &host));
    c->host = host;
    return engine_make_number_kernel(e, &tri_op_sum_rows, NULL, &(tri_shape){2, {2, c->count}}, 1,
                                     &c->add);
}

void engine_release_counts(tri_engine *e) {
    const tri_device_backend *device = e->device->backend;
    tri_kernel_release(&e->counts.add);
    if (e->counts.sums) device->free(e->device, e->counts.sums);
    if (e->counts.host && device->alloc_host) device->free_host(e->device, e->counts.host);
}

double *engine_round_counts(const tri_engine *e) { return e->counts.sums + e->counts.count; }

static tri_status clear(tri_engine *e, double *counts, int64_t count) {
    return e->device->backend->zero(e->queue, counts, (size_t)count * sizeof(double));
}

tri_status engine_begin_counts(tri_engine *e) {
    if (e->counts.count == 0 || tri_step_trains(e->run.input->shape)) return TRI_OK;
    return clear(e, e->counts.sums, 2 * e->counts.count);
}

// Whether the block makes counts in this program.
static bool makes_counts(const tri_program *p, int block) {
    const tri_graph *g = p->graph;
    for (int i = 0; i < g->metric_count; i++) {
        if (!tri_value_is(g->metrics[i].value)) continue;
        if (p->locations[g->metrics[i].value.id].kind != TRI_LOCATION_COUNTS) continue;
        if (tri_value_node(g, g->metrics[i].value)->block == block) return true;
    }
    return false;
}

tri_status engine_add_counts(tri_engine *e, const tri_program *program, int block) {
    engine_counts *c = &e->counts;
    if (c->count == 0 || !makes_counts(program, block)) return TRI_OK;
    void *in[] = {c->sums}, *out[] = {c->sums};
    TRI_TRY(engine_run_numbers(e, &c->add, in, out));
    return clear(e, engine_round_counts(e), c->count);
}

tri_status engine_send_counts(tri_engine *e) {
    engine_counts *c = &e->counts;
    if (c->count == 0) return TRI_OK;
    // All tensor-parallel ranks have the same counts, of which those of the first rank are summed.
    if (e->groups.tensor_parallel->rank > 0) TRI_TRY(clear(e, c->sums, c->count));
    TRI_TRY(engine_reduce_numbers(e, c->sums, c->count));
    return e->device->backend->copy_out(e->queue, c->host, c->sums,
                                        (size_t)c->count * sizeof(double));
}
