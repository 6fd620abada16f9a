// Holds up actions, the entries of a schedule (FORWARD of a block, a collective, …). The engine
// starts an action on a queue of the device, of the storage or of a communicator, and gets a ticket
// that stands for the work. Before an action that is to be held up, this file makes the action's
// queue wait for another ticket (a `hold`), which is done when the test wants it. The functions
// __wrap_… replace the engine's functions of these names (the linker's option --wrap).
#include "support/held_run.h"

#include "base/philox.h"
#include "comm/op.h"
#include "comm/staged/group.h"
#include "device/far/far.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct {
    void *memory;
    size_t bytes;
} allocations[HELD_RUN_ALLOCATIONS];
static int allocation_count;

tri_device_backend held_run_device;

static tri_status describe(const tri_device_config *config, tri_device_description *out) {
    TRI_TRY(tri_device_far.describe(config, out));
    out->backend = &held_run_device;
    return TRI_OK;
}

static tri_status open_device(const tri_device_config *config, tri_device **out) {
    TRI_TRY(tri_device_far.open(config, out));
    (*out)->backend = (*out)->description.backend = &held_run_device;
    return TRI_OK;
}

static tri_status allocate(tri_device *device, size_t size_bytes, void **out) {
    TRI_TRY(tri_device_far.alloc(device, size_bytes, out));
    TRI_ASSERT(allocation_count < HELD_RUN_ALLOCATIONS);
    allocations[allocation_count].memory = *out;
    allocations[allocation_count++].bytes = size_bytes;
    return TRI_OK;
}

static void release(tri_device *device, void *memory) {
    for (int i = 0; i < allocation_count; i++)
        if (allocations[i].memory == memory) allocations[i].bytes = 0;
    tri_device_far.free(device, memory);
}

void held_run_make_device(void) {
    held_run_device = tri_device_far;
    held_run_device.describe = describe;
    held_run_device.open = open_device;
    held_run_device.alloc = allocate;
    held_run_device.free = release;
    device_notes_add(&held_run_device);
}

static int64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

// Delays a held action until all actions that it awaits have their tickets and these are done, but
// at most until `end_us`.
typedef struct hold {
    _Atomic int tickets_there; // how many tickets exist already
    int ticket_count;          // how many tickets there will be
    tri_ticket *tickets;
    // more_us: how long the action still waits once all tickets are done.
    int64_t end_us, more_us;
    _Atomic int64_t more_end_us; // when that wait ends; 0: it has not begun
    // is_open: the action may go on. expired: it goes on because `end_us` was reached first.
    _Atomic bool is_open, expired;
} hold;

// For one run: holds[s] holds up the chosen action in step s, and delays[s][a] delays action a.
static hold holds[HELD_RUN_STEPS], delays[HELD_RUN_STEPS][HELD_RUN_ACTIONS];
static tri_ticket tickets[HELD_RUN_STEPS][HELD_RUN_ACTIONS];

static bool is_done(void *source, uint64_t number) {
    hold *h = source;
    if (atomic_load(&h->is_open)) return true;
    bool is_over = now_us() >= h->end_us;
    bool done = h->ticket_count > 0 && atomic_load(&h->tickets_there) == h->ticket_count;
    for (int i = 0; i < h->ticket_count && done; i++) done = tri_ticket_is_done(&h->tickets[i]);
    if (done && h->more_us > 0) {
        int64_t end_us = now_us() + h->more_us;
        if (atomic_load(&h->more_end_us) == 0) atomic_store(&h->more_end_us, end_us);
        done = now_us() >= atomic_load(&h->more_end_us);
    }
    if (is_over && !done) atomic_store(&h->expired, true);
    if (is_over || done) atomic_store(&h->is_open, true);
    return is_over || done;
}

static tri_status wait_for(void *source, uint64_t number) {
    while (!is_done(source, number)) usleep(30);
    return TRI_OK;
}

static const tri_ticket_kind hold_ticket = {.wait = wait_for, .is_done = is_done};

// The step that the engine issues on this thread.
static struct {
    tri_engine *engine; // NULL: no step is being issued
    const held_run_plan *plan;
    // action: index of the next action. open_entries: how many calls of tri_ledger_begin and
    // tri_ledger_enter have not been followed by their tri_ledger_end yet.
    int action, open_entries;
    int step;
    bool is_action, orders_nothing;
} watched;

static tri_status start_after(tri_engine *e, const tri_action *a, const tri_ticket *ticket) {
    tri_lane lane = tri_action_lane(a->kind);
    if (!ticket->kind) return TRI_OK;
    if (lane == TRI_LANE_COMPUTE) return e->device->backend->wait(e->queue, ticket);
    if (lane == TRI_LANE_TAKE) return e->device->backend->wait(e->takes.queue, ticket);
    if (lane == TRI_LANE_DOWN) return e->device->backend->wait(e->host.down, ticket);
    if (lane == TRI_LANE_UP) return e->device->backend->wait(e->host.up, ticket);
    if (lane == TRI_LANE_STORE) return tri_storage_after(e->storage, ticket);
    return tri_comm_after(engine_group_of(e, a), ticket);
}

static tri_status hold_up(tri_engine *e, const tri_action *a, hold *h) {
    return start_after(e, a, &(tri_ticket){&hold_ticket, h, 0});
}

// Notes the memory that the action's operations (on a communicator) read and write. The
// communicator's thread will read and write it later, and that thread notes nothing itself.
static void note_operations(const tri_engine *e, const tri_action *a) {
    for (int i = 0; i < e->run.most_ops; i++) {
        const tri_comm_op *op = &e->run.ops[i];
        if (!op->label) break;
        int ranks = engine_group_of(e, a)->size;
        size_t width = tri_dtype_bytes(op->dtype);
        device_note(op->send, (size_t)tri_comm_send_count(op, ranks) * width, false);
        device_note(op->recv, (size_t)tri_comm_recv_count(op, ranks) * width, true);
    }
}

// Notes what HOST_STEP reads and writes, in which the host updates a unit (parameters that are
// updated together). No call of the device can note this: the host computes it itself, in memory
// that belongs to no device.
static void note_host_step(const tri_engine *e, int unit) {
    const tri_plan *plan = e->plan;
    for (int k = 0; k < TRI_BUCKET_COUNT; k++) {
        tri_bucket_kind bucket = (tri_bucket_kind)k;
        int64_t own = plan->flat.units[unit].buckets[k].own;
        if (!tri_bucket_has_gradients(bucket)) continue;
        int states = tri_bucket_is_trained(bucket) ? plan->optimizer_states : 0;
        for (int what = ENGINE_HOST_HALF; what < states; what++) {
            bool is_half = what == ENGINE_HOST_HALF;
            if (is_half && !tri_bucket_is_half(bucket)) continue;
            device_note(tri_storage_memory(e->storage) +
                            engine_storage_offset(e, unit, bucket, what),
                        (size_t)own * (is_half ? 2 : sizeof(float)), what != ENGINE_HOST_GRADIENTS);
        }
    }
    device_note(e->host.scalars, TRI_STEP_SCALAR_COUNT * sizeof(double), false);
}

tri_status __real_tri_storage_start(tri_storage *storage, const tri_storage_op *ops, int count,
                                    const char *label, uint64_t *ticket);
tri_status __wrap_tri_storage_start(tri_storage *storage, const tri_storage_op *ops, int count,
                                    const char *label, uint64_t *ticket);

tri_status __wrap_tri_storage_start(tri_storage *storage, const tri_storage_op *ops, int count,
                                    const char *label, uint64_t *ticket) {
    for (int i = 0; i < count; i++)
        device_note(ops[i].memory, (size_t)ops[i].size_bytes, !ops[i].writes);
    return __real_tri_storage_start(storage, ops, count, label, ticket);
}

// By step: one operation group (the operations that one call of a communicator's `start` begins
// together) whose results the test delays. While holds[step] is not done, the group does not see
// that its messages have arrived.
static struct {
    const char *label;
    _Atomic uint64_t number; // the group's number among those of its communicator; 0: none
    tri_comm proxy, *inner;
    tri_comm_backend backend;
} delayed_groups[HELD_RUN_STEPS];

static struct {
    const void *comm;
    uint64_t number; // number of the latest operation group of `comm`
} latest_groups[64];

static uint64_t *latest_group_of(const tri_comm *comm) {
    int i = 0;
    while (latest_groups[i].comm && latest_groups[i].comm != comm) i++;
    TRI_ASSERT(i < 63);
    latest_groups[i].comm = comm;
    return &latest_groups[i].number;
}

static int step_of_proxy(const tri_comm *proxy) {
    int step = 0;
    while (proxy != &delayed_groups[step].proxy) step++;
    return step;
}

static bool test_delayed(tri_comm *comm, tri_comm_ticket ticket) {
    int step = step_of_proxy(comm);
    tri_comm *inner = delayed_groups[step].inner;
    return is_done(&holds[step], 0) && inner->backend->test(inner, ticket);
}

static tri_status wait_delayed(tri_comm *comm, tri_comm_ticket ticket) {
    tri_comm *inner = delayed_groups[step_of_proxy(comm)].inner;
    return inner->backend->wait(inner, ticket);
}

static tri_status start_delayed(tri_comm *comm, const tri_comm_op *ops, int count,
                                tri_comm_ticket *out) {
    tri_comm *inner = delayed_groups[step_of_proxy(comm)].inner;
    return inner->backend->start(inner, ops, count, out);
}

tri_status __real_staged_group_advance(staged_group *group, const staged_route *route,
                                       bool may_begin, bool may_travel, bool *moved);
tri_status __wrap_staged_group_advance(staged_group *group, const staged_route *route,
                                       bool may_begin, bool may_travel, bool *moved);

tri_status __wrap_staged_group_advance(staged_group *group, const staged_route *route,
                                       bool may_begin, bool may_travel, bool *moved) {
    staged_route slow = *route;
    for (int i = 0; i < HELD_RUN_STEPS; i++) {
        if (group->base.number != atomic_load(&delayed_groups[i].number)) continue;
        if (group->op_count == 0 || group->ops[0].device.label != delayed_groups[i].label) continue;
        delayed_groups[i].inner = route->inner;
        delayed_groups[i].backend = *route->inner->backend;
        delayed_groups[i].backend.test = test_delayed;
        delayed_groups[i].backend.wait = wait_delayed;
        delayed_groups[i].backend.start = start_delayed;
        delayed_groups[i].proxy = *route->inner;
        delayed_groups[i].proxy.backend = &delayed_groups[i].backend;
        slow.inner = &delayed_groups[i].proxy;
    }
    return __real_staged_group_advance(group, &slow, may_begin, may_travel, moved);
}

static bool is_of_network(const tri_action *a) {
    tri_lane lane = tri_action_lane(a->kind);
    return lane == TRI_LANE_SHARD || lane == TRI_LANE_REPLICATE || lane == TRI_LANE_ALONG ||
           lane == TRI_LANE_BACK;
}

// Whether the action `noted`, whose begin the engine records, is the next action of the schedule.
// The engine also records work that is no such action: before a step, for example, it reads
// offloaded state.
static bool is_next(const tri_ledger_action *noted) {
    const tri_schedule *s = &watched.engine->run.step->schedule;
    if (watched.action == s->count) return false;
    const tri_action *a = &s->actions[watched.action];
    return noted->lane == TRI_LANE_OF_COMPUTE && noted->subject == a->subject &&
           noted->round == a->round &&
           (noted->kind == TRI_LEDGER_ISSUE || noted->kind == tri_action_name(a->kind));
}

static void before_action(void) {
    tri_engine *e = watched.engine;
    const held_run_plan *p = watched.plan;
    const tri_action *a = &e->run.step->schedule.actions[watched.action];
    if (p->notes && watched.step == 0) device_notes_now = &p->notes[watched.action];
    if (is_of_network(a)) memset(e->run.ops, 0, (size_t)e->run.most_ops * sizeof *e->run.ops);
    if (watched.action == p->held_action && p->delays_results) {
        delayed_groups[watched.step].label = e->labels.subjects[a->kind][a->subject];
        atomic_store(&delayed_groups[watched.step].number,
                     *latest_group_of(engine_group_of(e, a)) + 1);
    } else if (watched.action == p->held_action) {
        (void)hold_up(e, a, &holds[watched.step]);
    }
    if (p->last_before_dependency >= 0 && watched.action > p->last_before_dependency)
        (void)start_after(e, a, &e->run.tickets[p->dependency]);
    if (p->most_delay_us == 0) return;
    hold *h = &delays[watched.step][watched.action];
    uint32_t word = tri_philox_at(p->seed, 0, 0, (uint64_t)watched.action);
    h->end_us = now_us() + word % (uint32_t)p->most_delay_us;
    if (word >> 31) (void)hold_up(e, a, h);
}

static void after_action(void) {
    const held_run_plan *p = watched.plan;
    const tri_ticket *ticket = &watched.engine->run.tickets[watched.action];
    const tri_action *a = &watched.engine->run.step->schedule.actions[watched.action];
    if (is_of_network(a) && ticket->kind)
        *latest_group_of(engine_group_of(watched.engine, a)) = ticket->number;
    if (device_notes_now && is_of_network(a)) note_operations(watched.engine, a);
    if (a->kind == TRI_ACTION_HOST_STEP) note_host_step(watched.engine, a->subject);
    device_notes_now = NULL;
    bool is_of_wait = watched.action == p->waiter || watched.action == p->dependency;
    if (is_of_wait && !ticket->kind) watched.orders_nothing = true;
    if (p->held_action >= 0 && p->awaited[watched.action]) {
        hold *h = &holds[watched.step];
        int at = atomic_load(&h->tickets_there);
        h->tickets[at] = *ticket;
        atomic_store(&h->tickets_there, at + 1);
    }
    watched.action++;
}

tri_ledger_mark __real_tri_ledger_begin(tri_ledger *ledger, const tri_ledger_action *action);
tri_ledger_mark __wrap_tri_ledger_begin(tri_ledger *ledger, const tri_ledger_action *action);
tri_ledger_mark __real_tri_ledger_enter(tri_ledger *ledger, const char *kind, const char *label);
tri_ledger_mark __wrap_tri_ledger_enter(tri_ledger *ledger, const char *kind, const char *label);
void __real_tri_ledger_end(tri_ledger *ledger, tri_ledger_mark mark);
void __wrap_tri_ledger_end(tri_ledger *ledger, tri_ledger_mark mark);

static _Thread_local bool is_issuing;

tri_ledger_mark __wrap_tri_ledger_begin(tri_ledger *ledger, const tri_ledger_action *action) {
    if (is_issuing && watched.open_entries++ == 0 && (watched.is_action = is_next(action)))
        before_action();
    return __real_tri_ledger_begin(ledger, action);
}

tri_ledger_mark __wrap_tri_ledger_enter(tri_ledger *ledger, const char *kind, const char *label) {
    if (is_issuing) watched.open_entries++;
    return __real_tri_ledger_enter(ledger, kind, label);
}

void __wrap_tri_ledger_end(tri_ledger *ledger, tri_ledger_mark mark) {
    __real_tri_ledger_end(ledger, mark);
    if (!is_issuing || --watched.open_entries > 0 || !watched.is_action) return;
    watched.is_action = false;
    after_action();
}

static float number_of(const random_run *run, int step, int64_t sample, int at) {
    uint64_t element = (uint64_t)(sample * 32 + at);
    return 2 * tri_philox_uniform(tri_philox_at(run->seed, (uint64_t)step, 7, element)) - 1;
}

static tri_status make_numbers(held_run *r) {
    const tri_step_plan *step = &r->engine->plan->steps[r->run->shape];
    int width = r->run->width, sample_count = width + RANDOM_RUN_TARGETS;
    for (int k = 0; k < HELD_RUN_STEPS; k++)
        for (int i = 0; i < step->rounds; i++) {
            const tri_step_round *round = &step->round_items[i];
            float *to = calloc((size_t)(round->size * sample_count) + 1, sizeof *to);
            if (!to) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a micro-batch");
            r->numbers[k][i] = to;
            for (int64_t s = 0; s < round->size; s++)
                for (int at = 0; at < sample_count; at++) {
                    bool input = at < width;
                    int64_t index = input
                                        ? s * width + at
                                        : round->size * width + s * RANDOM_RUN_TARGETS + at - width;
                    to[index] = number_of(r->run, k, round->first + s, at);
                }
        }
    return TRI_OK;
}

typedef struct feed {
    const held_run *run;
    int step, round;
} feed;

static tri_status next_batch(void *context, tri_engine_batch *out) {
    feed *f = context;
    const tri_step_plan *step = &f->run->engine->plan->steps[f->run->run->shape];
    while (step->round_items[f->round].size == 0) f->round++;
    out->size = step->round_items[f->round].size;
    out->fields[0] = f->run->numbers[f->step][f->round];
    out->fields[1] = f->run->numbers[f->step][f->round] + out->size * f->run->run->width;
    f->round++;
    return TRI_OK;
}

#define FIRST_BITS UINT64_C(0xcbf29ce484222325)

static void add_bits(uint64_t *bits, const void *data, size_t bytes) {
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++) *bits = (*bits ^ at[i]) * UINT64_C(0x100000001b3);
}

static tri_status hash_tensor(held_run *r, const tri_engine_tensor *tensor, uint64_t *bits) {
    int64_t count = tri_shape_count(&tensor->shape);
    float *values = calloc((size_t)count + 1, sizeof *values);
    if (!values) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a tensor");
    tri_status status = tri_engine_fetch(r->engine, tensor);
    if (status == TRI_OK) tri_engine_read(r->engine, tensor, 0, count, values);
    add_bits(bits, values, (size_t)count * sizeof *values);
    free(values);
    return status;
}

// Adds all tensors of the training state that this rank holds to the hash *bits. Counters of
// batches are left out: begin_again does not restore them, so they would differ from run to run.
static tri_status hash_state(held_run *r, uint64_t *bits) {
    for (int states = 0; states < 2; states++) {
        const tri_engine_tensor *tensors;
        int index, count = states ? tri_engine_optimizer_tensors(r->engine, &tensors)
                                  : tri_engine_model_tensors(r->engine, &tensors);
        for (int i = 0; i < count; i++) {
            tri_engine_holders(r->engine, &tensors[i], &index);
            if (index >= 0 && tensors[i].dtype == TRI_F32)
                TRI_TRY(hash_tensor(r, &tensors[i], bits));
        }
    }
    return TRI_OK;
}

// Copies the offloaded state, which lies in a file or in the host's memory between steps, to `kept`
// or, with `back`, from `kept` to where it lies.
static tri_status copy_offloaded(held_run *r, float *kept, bool back) {
    const tri_plan *plan = r->engine->plan;
    for (int i = 0; i < plan->flat.unit_count * TRI_BUCKET_COUNT; i++) {
        int unit = i / TRI_BUCKET_COUNT;
        tri_bucket_kind bucket = (tri_bucket_kind)(i % TRI_BUCKET_COUNT);
        int64_t own = plan->flat.units[unit].buckets[bucket].own;
        if (!plan->flat.units[unit].here || own == 0) continue;
        for (int state = TRI_STATE_MASTERS; state < plan->optimizer_states; state++) {
            bool has_state = state == TRI_STATE_MASTERS || tri_bucket_is_trained(bucket);
            if (!has_state || !(engine_is_offloaded(r->engine, bucket, state) ||
                                engine_has_host_copy(r->engine, bucket, state)))
                continue;
            TRI_TRY(back ? engine_write_own(r->engine, unit, bucket, state, 0, own, kept)
                         : engine_read_own(r->engine, unit, bucket, state, 0, own, kept));
            kept += own;
        }
    }
    return TRI_OK;
}

// Whether the engine keeps nothing in this memory from one step to the next (activations, …).
static bool is_passing(const tri_engine *e, const void *memory) {
    const engine_memory *m = &e->memory;
    const void *const passing[] = {m->heaps[TRI_HEAP_ACTIVATIONS],
                                   m->heaps[TRI_HEAP_STATE],
                                   m->inputs[0],
                                   m->inputs[1],
                                   m->scratch,
                                   m->workspace,
                                   m->round_gradients,
                                   m->own_gradients};
    for (size_t i = 0; i < sizeof passing / sizeof *passing; i++)
        if (memory == passing[i]) return true;
    return false;
}

static tri_status save_memory(held_run *r) {
    for (int i = 0; i < allocation_count; i++) {
        size_t bytes = allocations[i].bytes;
        if (bytes == 0) continue;
        r->saved_memory[i] = malloc(bytes);
        if (!r->saved_memory[i]) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a copy of memory");
        TRI_TRY(tri_queue_read(r->engine->queue, r->saved_memory[i], allocations[i].memory, bytes));
        if (is_passing(r->engine, allocations[i].memory)) memset(r->saved_memory[i], 0x47, bytes);
    }
    return TRI_OK;
}

tri_status held_run_open(const random_run *run, const tri_plan *plan,
                         const tri_device_backend *backend, tri_comm *comm, held_run *out) {
    *out = (held_run){.run = run, .rank = plan->rank};
    TRI_TRY(backend->open(&(tri_device_config){.threads = 1}, &out->device));
    TRI_TRY(tri_engine_create(
        &(tri_engine_config){
            .plan = plan, .device = out->device, .world = comm, .optimizer = &run->optimizer},
        &out->engine));
    TRI_TRY(tri_engine_initialize(out->engine, run->seed));
    TRI_TRY(make_numbers(out));
    if (backend != &held_run_device) return TRI_OK;
    out->offloaded = calloc(1, (size_t)plan->memory.offloaded + 1);
    if (!out->offloaded) return TRI_FAIL(TRI_NO_MEMORY, "no memory for the state");
    TRI_TRY(copy_offloaded(out, out->offloaded, false));
    return save_memory(out);
}

void held_run_close(held_run *r) {
    tri_engine_destroy(r->engine);
    r->device->backend->close(r->device);
    free(r->offloaded);
    for (int i = 0; i < HELD_RUN_ALLOCATIONS; i++) free(r->saved_memory[i]);
    for (int k = 0; k < HELD_RUN_STEPS; k++)
        for (int i = 0; i < TRI_MAX_ROUNDS; i++) free(r->numbers[k][i]);
}

// Restores all of the device's memory, and the offloaded state, to what it was before the first
// run.
static tri_status begin_again(held_run *r) {
    for (int i = 0; i < allocation_count; i++)
        if (allocations[i].bytes && r->saved_memory[i])
            TRI_TRY(tri_queue_write(r->engine->queue, allocations[i].memory, r->saved_memory[i],
                                    allocations[i].bytes));
    r->engine->is_stale = true;
    if (r->engine->host.device) {
        size_t bytes = (size_t)r->engine->plan->memory.offloaded;
        memset(tri_storage_memory(r->engine->storage), 0x47, bytes);
        memset(r->engine->host.scalars, 0x47, TRI_STEP_SCALAR_COUNT * sizeof(double));
    }
    TRI_TRY(copy_offloaded(r, r->offloaded, true));
    return tri_engine_carry(r->engine, &(tri_carried){.updates = 0});
}

// Removes from the schedule the wait that the test leaves out: that of action p->waiter for action
// p->dependency. With `back`, adds it again at the end of the waiter's list of dependencies.
static void leave_out(tri_engine *e, const held_run_plan *p, tri_step_shape shape, bool back) {
    const tri_schedule *s = &e->plan->steps[shape].schedule;
    if (p->waiter < 0) return;
    tri_action *a = &s->actions[p->waiter];
    int *list = &s->dependencies[a->first_dependency];
    if (back) {
        TRI_ASSERT(list[a->dependency_count] == p->dependency);
        a->dependency_count++;
        return;
    }
    int at = 0;
    while (at < a->dependency_count && list[at] != p->dependency) at++;
    TRI_ASSERT(at < a->dependency_count);
    list[at] = list[--a->dependency_count];
    list[a->dependency_count] = p->dependency;
}

// Prepares the delays of step `step` by the plan, and watches the actions that the engine issues
// from now on. Only used if the device has queues.
static void watch(held_run *r, const held_run_plan *p, int step) {
    int actions = r->engine->plan->steps[r->run->shape].schedule.count;
    TRI_ASSERT(actions <= HELD_RUN_ACTIONS);
    hold *h = &holds[step];
    *h = (hold){.tickets = tickets[step], .end_us = now_us() + p->limit_us, .more_us = p->more_us};
    for (int i = 0; p->held_action >= 0 && i < actions; i++) h->ticket_count += p->awaited[i];
    if (h->ticket_count == 0) h->end_us = now_us() + p->more_us;
    for (int i = 0; i < actions; i++) delays[step][i] = (hold){.ticket_count = 0};
    watched.engine = r->engine;
    watched.plan = p;
    watched.step = step;
    watched.action = watched.open_entries = 0;
    watched.is_action = false;
}

static tri_status issue(held_run *r, const held_run_plan *p, int number) {
    feed f = {.run = r, .step = number};
    tri_step_input input = {.shape = r->run->shape,
                            .step = number,
                            .clip = 1,
                            .lr = {0.01, 0.01},
                            .next = next_batch,
                            .context = &f};
    bool is_far = r->device->backend == &held_run_device;
    is_issuing = is_far;
    if (is_far) watch(r, p, number);
    tri_status status = tri_engine_issue(r->engine, &input);
    is_issuing = false;
    int actions = r->engine->plan->steps[r->run->shape].schedule.count;
    TRI_ASSERT(!is_far || status != TRI_OK || watched.action == actions);
    return status;
}

static tri_status run_steps(held_run *r, const held_run_plan *p, uint64_t *bits) {
    tri_step_output out;
    int ahead = tri_engine_steps_ahead(r->engine), issued = 0;
    for (int done = 0; done < HELD_RUN_STEPS; done++) {
        while (issued < HELD_RUN_STEPS && issued - done <= ahead) TRI_TRY(issue(r, p, issued++));
        TRI_TRY(tri_engine_collect(r->engine, &out));
        add_bits(bits, out.sum, sizeof out.sum);
        add_bits(bits, out.count, sizeof out.count);
        add_bits(bits, &out.gradient_norm, sizeof out.gradient_norm);
    }
    return tri_engine_release_batches(r->engine);
}

static tri_status hash_memory(held_run *r, uint64_t *bits) {
    for (int i = 0; i < allocation_count; i++) {
        size_t bytes = r->saved_memory[i] ? allocations[i].bytes : 0;
        char *copy = malloc(bytes + 1);
        if (!copy) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a copy of memory");
        tri_status status =
            bytes ? tri_queue_read(r->engine->queue, copy, allocations[i].memory, bytes) : TRI_OK;
        add_bits(bits, copy, bytes);
        free(copy);
        TRI_TRY(status);
    }
    return TRI_OK;
}

tri_status held_run_steps(held_run *r, const held_run_plan *p, held_run_result *out) {
    bool is_far = r->device->backend == &held_run_device;
    *out = (held_run_result){.bits = FIRST_BITS, .memory = FIRST_BITS};
    watched.orders_nothing = false;
    if (is_far) TRI_TRY(begin_again(r));
    leave_out(r->engine, p, r->run->shape, false);
    out->status = run_steps(r, p, &out->bits);
    leave_out(r->engine, p, r->run->shape, true);
    for (int i = 0; i < HELD_RUN_STEPS; i++) atomic_store(&delayed_groups[i].number, 0);
    out->orders_nothing = watched.orders_nothing;
    for (int i = 0; i < HELD_RUN_STEPS; i++) out->expired |= atomic_load(&holds[i].expired);
    if (is_far) TRI_TRY(hash_memory(r, &out->memory));
    return hash_state(r, &out->bits);
}
