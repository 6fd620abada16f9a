// The device `far`, which behaves like a GPU in tests (far.h): translates addresses of its memory,
// and issues the work of the inner device (the CPU) to queues with threads.
#include "device/far/far.h"

#include "base/os.h"
#include "base/variable.h"
#include "device/cpu/cpu.h"
#include "device/far/area.h"
#include "device/far/host.h"
#include "device/far/queue.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct far_device {
    tri_device head;
    tri_device *inner; // the CPU
    far_areas areas;   // the device's memory
    far_host host;     // the host's memory that alloc_host gave
    far_delays delays; // how long the queues' threads sleep before each item of work
} far_device;

static far_device *far_of(const tri_device *device) { return (far_device *)(uintptr_t)device; }

// A kernel of the inner device, and how many addresses have to be translated before it runs.
typedef struct far_kernel {
    tri_kernel inner;
    int inputs, outputs;
} far_kernel;

// Describes the inner device, which is the CPU: `far` runs its kernels.
static tri_device_description inner_of(const tri_device_description *device) {
    tri_device_description inner = *device;
    inner.backend = &tri_device_cpu;
    return inner;
}

static bool kernel_supports(const tri_device_description *device, const tri_graph *graph,
                            const tri_node *node) {
    tri_device_description inner = inner_of(device);
    return tri_device_select(&inner, graph, node) != NULL;
}

static void kernel_layouts(const tri_device_description *device, const tri_graph *graph,
                           const tri_node *node, tri_layout *in, tri_layout *out) {
    tri_device_description inner = inner_of(device);
    tri_kernel_layouts(tri_device_select(&inner, graph, node), &inner, graph, node, in, out);
}

static tri_status kernel_workspace(const tri_device_description *device, const tri_graph *graph,
                                   const tri_node *node, size_t *out) {
    tri_device_description inner = inner_of(device);
    return tri_kernel_workspace(tri_device_select(&inner, graph, node), &inner, graph, node, out);
}

static tri_status kernel_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                                 tri_kernel *kernel) {
    far_kernel *state = calloc(1, sizeof *state);
    if (!state) return TRI_FAIL(TRI_NO_MEMORY, "no memory for kernel %s", node->op->name);
    kernel->state = state;
    state->inputs = node->input_count;
    state->outputs = node->output_count;
    TRI_TRY(tri_kernel_make(far_of(device)->inner, graph, node, &state->inner));
    kernel->workspace_bytes = state->inner.workspace_bytes;
    return TRI_OK;
}

static void kernel_release(tri_kernel *kernel) {
    far_kernel *state = kernel->state;
    if (!state) return;
    tri_kernel_release(&state->inner);
    free(state);
}

static tri_status work_kernel(tri_queue *inner, far_work *work) {
    tri_kernel_args args = {
        .queue = inner, .in = work->in, .out = work->out, .workspace = work->workspace};
    return work->kernel->def->run(work->kernel, &args);
}

static tri_status kernel_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const far_kernel *state = kernel->state;
    far_areas *areas = &far_of(args->queue->device)->areas;
    far_work work = {.run = work_kernel,
                     .kernel = &state->inner,
                     .workspace = far_translate(areas, args->workspace)};
    for (int i = 0; i < state->inputs; i++) work.in[i] = far_translate(areas, args->in[i]);
    for (int i = 0; i < state->outputs; i++) work.out[i] = far_translate(areas, args->out[i]);
    return far_queue_push(args->queue, &work);
}

static const tri_kernel_def far_kernel_def = {.name = "far",
                                              .supports = kernel_supports,
                                              .layouts = kernel_layouts,
                                              .workspace = kernel_workspace,
                                              .prepare = kernel_prepare,
                                              .run = kernel_run,
                                              .release = kernel_release};
static const tri_kernel_def *const kernels[] = {&far_kernel_def, NULL};

static tri_status work_wait(tri_queue *inner, far_work *work) {
    (void)inner;
    return tri_ticket_wait(&work->ticket);
}

static tri_status work_copy_in(tri_queue *inner, far_work *work) {
    const void *from = work->from ? work->from : work->small;
    return inner->device->backend->copy_in(inner, work->to, from, work->size_bytes);
}

static tri_status work_copy_out(tri_queue *inner, far_work *work) {
    return inner->device->backend->copy_out(inner, work->to, work->from, work->size_bytes);
}

static tri_status work_zero(tri_queue *inner, far_work *work) {
    return inner->device->backend->zero(inner, work->to, work->size_bytes);
}

static tri_status work_add(tri_queue *inner, far_work *work) {
    return inner->device->backend->add(inner, work->to, work->from, work->count);
}

static tri_status work_time(tri_queue *inner, far_work *work) {
    (void)inner;
    *(int64_t *)work->to = tri_os.monotonic_ns();
    return TRI_OK;
}

static far_areas *areas_of(const tri_queue *queue) { return &far_of(queue->device)->areas; }

static tri_status far_wait(tri_queue *queue, const tri_ticket *ticket) {
    if (!ticket->kind) return TRI_OK;
    return far_queue_push(queue, &(far_work){.run = work_wait, .ticket = *ticket});
}

static tri_status far_time(tri_queue *queue, int64_t *ns) {
    return far_queue_push(queue, &(far_work){.run = work_time, .to = ns});
}

static tri_status far_copy_in(tri_queue *queue, void *to, const void *from_host,
                              size_t size_bytes) {
    far_work work = {.run = work_copy_in, .size_bytes = size_bytes};
    if (size_bytes == 0) return TRI_OK;
    work.to = far_translate(areas_of(queue), to);
    if (size_bytes <= sizeof work.small)
        memcpy(work.small, from_host, size_bytes);
    else
        work.from = from_host;
    if (work.from) far_host_count(&far_of(queue->device)->host, from_host, size_bytes);
    return far_queue_push(queue, &work);
}

static tri_status far_copy_in_later(tri_queue *queue, void *to, const void *from_host,
                                    size_t size_bytes) {
    if (size_bytes == 0) return TRI_OK;
    return far_queue_push(queue, &(far_work){.run = work_copy_in,
                                             .to = far_translate(areas_of(queue), to),
                                             .from = from_host,
                                             .size_bytes = size_bytes});
}

static tri_status far_copy_out(tri_queue *queue, void *to_host, const void *from,
                               size_t size_bytes) {
    if (size_bytes == 0) return TRI_OK;
    return far_queue_push(queue, &(far_work){.run = work_copy_out,
                                             .to = to_host,
                                             .from = far_translate(areas_of(queue), from),
                                             .size_bytes = size_bytes});
}

static tri_status far_zero(tri_queue *queue, void *memory, size_t size_bytes) {
    if (size_bytes == 0) return TRI_OK;
    return far_queue_push(queue, &(far_work){.run = work_zero,
                                             .to = far_translate(areas_of(queue), memory),
                                             .size_bytes = size_bytes});
}

static tri_status far_add(tri_queue *queue, float *to, const float *from, int64_t count) {
    return far_queue_push(queue, &(far_work){.run = work_add,
                                             .to = far_translate(areas_of(queue), to),
                                             .from = far_translate(areas_of(queue), from),
                                             .count = count});
}

static tri_status far_open_queue(tri_device *device, tri_queue **out) {
    far_device *far = far_of(device);
    return far_queue_open(device, far->inner, far->delays, out);
}

static tri_status read_delays(far_delays *out) {
    int64_t seed = 1;
    *out = (far_delays){0};
    TRI_TRY(tri_variable_whole(NULL, "TRIREME_FAR_DELAY_US", &out->most_us));
    TRI_TRY(tri_variable_whole(NULL, "TRIREME_FAR_SEED", &seed));
    out->seed = (uint64_t)seed;
    return TRI_OK;
}

static tri_status far_describe(const tri_device_config *config, tri_device_description *out) {
    TRI_TRY(tri_device_cpu.describe(config, out));
    out->backend = &tri_device_far;
    return TRI_OK;
}

static tri_status far_open(const tri_device_config *config, tri_device **out) {
    far_delays delays;
    *out = NULL;
    TRI_TRY(read_delays(&delays));
    far_device *far = calloc(1, sizeof *far);
    if (!far) return TRI_FAIL(TRI_NO_MEMORY, "device far: no memory");
    tri_status status = tri_device_cpu.open(config, &far->inner);
    if (status != TRI_OK) {
        free(far);
        return status;
    }
    far->head = (tri_device){.backend = &tri_device_far, .description = far->inner->description};
    far->head.description.backend = &tri_device_far;
    far->delays = delays;
    pthread_mutex_init(&far->areas.lock, NULL);
    pthread_mutex_init(&far->host.lock, NULL);
    *out = &far->head;
    return TRI_OK;
}

static void far_close(tri_device *device) {
    if (!device) return;
    far_device *far = far_of(device);
    if (getenv("TRIREME_FAR_REPORT"))
        fprintf(stderr, "far: copied %lld bytes from memory of alloc_host, %lld from other\n",
                (long long)far->host.from_list, (long long)far->host.from_others);
    TRI_ASSERT(!far->host.list && "memory of alloc_host is freed before its device is closed");
    far_areas_end(&far->areas, far->inner);
    pthread_mutex_destroy(&far->areas.lock);
    pthread_mutex_destroy(&far->host.lock);
    tri_device_cpu.close(far->inner);
    free(far);
}

static tri_status far_alloc(tri_device *device, size_t size_bytes, void **out) {
    return far_areas_add(&far_of(device)->areas, far_of(device)->inner, size_bytes, out);
}

static void far_free(tri_device *device, void *memory) {
    if (memory) far_areas_remove(&far_of(device)->areas, far_of(device)->inner, memory);
}

static tri_status far_alloc_host(tri_device *device, size_t size_bytes, void **out) {
    return far_host_add(&far_of(device)->host, size_bytes, out);
}

static void far_free_host(tri_device *device, void *memory) {
    if (memory) far_host_remove(&far_of(device)->host, memory);
}

const tri_device_backend tri_device_far = {
    .name = "far",
    .host = &tri_device_cpu,
    .kernels = kernels,
    .describe = far_describe,
    .open = far_open,
    .close = far_close,
    .alloc = far_alloc,
    .free = far_free,
    .alloc_host = far_alloc_host,
    .free_host = far_free_host,
    .open_queue = far_open_queue,
    .close_queue = far_queue_close,
    .record = far_queue_record,
    .wait = far_wait,
    .time = far_time,
    .copy_in = far_copy_in,
    .copy_in_later = far_copy_in_later,
    .copy_out = far_copy_out,
    .zero = far_zero,
    .add = far_add,
    .host_memory = false,
    .is_asynchronous = true,
    .takes_bytes = true,
};
