// Runs a model on one rank to measure its blocks (layers or groups of layers that are scheduled as
// one), so that `trireme plan --measure` estimates steps from times of this host.
#include "train/measure.h"

#include "base/os.h"
#include "engine/engine.h"

#include <stdlib.h>
#include <string.h>

enum { WARM_STEPS = 2, LEAST_STEPS = 3, MOST_STEPS = 200 };

typedef struct measuring {
    tri_arena *arena;
    tri_plan *plan;
    tri_engine *engine;
    tri_comm *comm;
    tri_engine_batch batch;
    int steps;
} measuring;

static tri_status next_batch(void *context, tri_engine_batch *out) {
    *out = ((const measuring *)context)->batch;
    return TRI_OK;
}

static tri_status look_at_batch(void *context, int64_t ahead, tri_engine_batch *out) {
    (void)ahead;
    return next_batch(context, out);
}

static tri_status run_step(measuring *m) {
    tri_step_input input = {.shape = TRI_STEP_FULL,
                            .step = m->steps,
                            .next = next_batch,
                            .look = look_at_batch,
                            .context = m};
    tri_step_output output;
    m->steps++;
    return tri_engine_step(m->engine, &input, &output);
}

static void make_batch(measuring *m, const tri_model_request *model, int64_t size) {
    m->batch.size = size;
    for (int i = 0; i < model->field_count; i++) {
        const tri_field *field = &model->fields[i];
        size_t bytes =
            (size_t)(size * tri_shape_count(&field->shape)) * tri_dtype_bytes(field->dtype);
        m->batch.fields[i] = tri_arena_alloc(m->arena, bytes + 1);
    }
}

static tri_status check_room(const tri_plan *plan, tri_device *device) {
    tri_device_memory there = tri_device_memory_of(&device->description, device, 1);
    int64_t peak = plan->memory.peak;
    if (there.bytes == 0 || peak <= there.bytes) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT,
                    "--measure: one rank of the whole model needs %lld MB, more than the %lld MB "
                    "%s; a smaller batch.micro needs less",
                    (long long)(peak / 1000000), (long long)(there.bytes / 1000000), there.whose);
}

static int ascending(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

// Stores the median time of each block's actions of one kind ("FORWARD" or "BACKWARD"), as recorded
// in the communicator's ledger, the rank's record of its actions. It is the median because single
// actions may be disturbed.
static void take_medians(const measuring *m, const char *kind, tri_phase phase, tri_measured *out) {
    const tri_ledger *ledger = m->comm->ledger;
    const tri_ledger_ring *ring = tri_ledger_ring_of(ledger);
    uint64_t dropped;
    size_t count = tri_ledger_traced(ledger, &dropped);
    double *found = TRI_NEW_ARRAY(m->arena, double, count);
    for (int b = 0; b < m->plan->block_count; b++) {
        size_t actions = 0;
        for (size_t i = 0; i < count; i++) {
            const tri_ledger_event *e = tri_ledger_traced_at(ledger, i);
            if (e->subject == b && e->end_ns && !strcmp(ring->kind_names[e->kind], kind))
                found[actions++] = (double)(e->end_ns - e->begin_ns) * 1e-9;
        }
        qsort(found, actions, sizeof *found, ascending);
        if (actions > 0) out->seconds[b][phase] = found[actions / 2];
    }
}

static tri_status measure(measuring *m, double seconds) {
    for (int i = 0; i < WARM_STEPS; i++) TRI_TRY(run_step(m));
    TRI_TRY(tri_ledger_trace(m->comm->ledger, TRI_MAX_TRACE_EVENTS));
    double started = tri_os_seconds();
    for (int i = 0; i < LEAST_STEPS || (i < MOST_STEPS && tri_os_seconds() - started < seconds);
         i++)
        TRI_TRY(run_step(m));
    return TRI_OK;
}

// Plans the run whose actions are measured: one rank has whole layers, and computes every block
// once in each step. The measured times then serve for every mesh: where ranks share a layer, the
// estimate divides the layer's time by their number.
static tri_status make_plan(measuring *m, tri_device *device, const tri_plan_request *request,
                            int64_t batch) {
    tri_strategy_options options = *request->options;
    options.name = TRI_STRATEGY_SINGLE;
    options.recompute = TRI_RECOMPUTE_NONE;
    options.offload = TRI_OFFLOAD_NONE;
    options.stages = (tri_strings){0};
    tri_plan_request one = *request;
    one.options = &options;
    one.mesh = (tri_mesh){.size = {1, 1, 1, 1}, .ranks = 1};
    one.rank = 0;
    one.reuse_graphs_of = NULL;
    one.deterministic = false;
    // The whole step is one micro-batch: the time of a single micro-batch is all that is measured,
    // and batch norm over a whole step (sync_batchnorm) allows only one micro-batch.
    one.micro = 0;
    for (int shape = 0; shape < TRI_STEP_SHAPE_COUNT; shape++)
        one.step_samples[shape] = shape == TRI_STEP_FULL ? batch : 0;
    return tri_plan_create(m->arena, &device->description, &one, &m->plan);
}

tri_status tri_measure_compute(tri_arena *arena, tri_device *device,
                               const tri_plan_request *request, const tri_optimizer *optimizer,
                               int64_t batch, double seconds, tri_measured *out) {
    measuring m = {.arena = tri_arena_create(NULL, "measuring")};
    tri_status status = make_plan(&m, device, request, batch);
    if (status == TRI_OK) status = check_room(m.plan, device);
    if (status == TRI_OK) status = tri_comm_self_open(&m.comm);
    tri_engine_config config = {
        .plan = m.plan, .device = device, .world = m.comm, .optimizer = optimizer};
    if (status == TRI_OK) status = tri_engine_create(&config, &m.engine);
    if (status == TRI_OK) {
        make_batch(&m, request->model, batch);
        status = tri_engine_initialize(m.engine, 1);
        if (status == TRI_OK) status = measure(&m, seconds);
    }
    if (status == TRI_OK) {
        size_t blocks = (size_t)m.plan->block_count;
        *out = (tri_measured){.batch = batch,
                              .seconds = tri_arena_alloc(arena, blocks * sizeof *out->seconds)};
        take_medians(&m, "FORWARD", TRI_PHASE_FORWARD, out);
        take_medians(&m, "BACKWARD", TRI_PHASE_BACKWARD, out);
    }
    tri_engine_destroy(m.engine);
    tri_comm_close(m.comm);
    tri_plan_destroy(m.plan);
    tri_arena_destroy(m.arena);
    return status;
}
