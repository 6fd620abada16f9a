// The device `null` has real memory, but computes almost nothing. One kernel serves nearly all ops,
// and writes only losses and metrics. Two kernels of the reference device `ref` add these up and
// compute the step scalars (numbers that an update reads, such as the factor of the gradients) from
// the sums, so that means are not NaN and updates are counted as on any device. The device models
// of `null` have the memory sizes of GPUs, so that a run can be planned for a GPU, and the engine
// can be tested with a GPU's memory and alignment.
#include "device/null/null.h"

#include "device/gpus.h"
#include "device/queue.h"
#include "device/ref/ref.h"

#include <stdlib.h>
#include <string.h>

typedef struct null_node {
    bool is_loss; // the node is a loss or a metric
    double count; // the count of the loss or metric
} null_node;

// Recognises losses and metrics by their only output, which is F64 [2]: a sum and a count. The
// count must not be 0, because means would be NaN. The op's function `count` computes it; without
// that function it is the number of samples.
static tri_status null_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                               tri_kernel *kernel) {
    null_node *state = calloc(1, sizeof *state);
    if (!state) return TRI_FAIL(TRI_NO_MEMORY, "no memory for kernel %s", node->op->name);
    tri_op_signature s = tri_node_signature(graph, node);
    tri_shape pair = tri_shape_of(2);
    state->is_loss = s.output_count == 1 && s.input_count > 1 && s.out_type[0] == TRI_F64 &&
                     tri_shape_equal(&s.out[0], &pair) && s.in[0].rank > 0;
    if (state->is_loss)
        state->count = (double)(node->op->count ? node->op->count(&s) : s.in[0].dims[0]);
    kernel->state = state;
    return TRI_OK;
}

static void null_release(tri_kernel *kernel) { free(kernel->state); }

static tri_status null_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const null_node *node = kernel->state;
    if (!node->is_loss) return TRI_OK;
    double *loss = args->out[0];
    loss[0] = 0;
    loss[1] = node->count;
    return TRI_OK;
}

static const tri_kernel_def null_kernel = {
    .name = "null", .prepare = null_prepare, .run = null_run, .release = null_release};
static const tri_kernel_def *const kernels[] = {&ref_sum_rows, &ref_step_numbers, &null_kernel,
                                                NULL};

enum { GPU_ALIGNMENT = 256 };
#define MODEL(gpu_name, driver, features, gigabytes, ...)                                          \
    {.name = gpu_name, .memory_bytes = gigabytes * INT64_C(1000000000), .alignment = GPU_ALIGNMENT},
static const tri_device_model models[] = {TRI_GPUS(MODEL){0}};

static tri_status null_describe(const tri_device_config *config, tri_device_description *out) {
    *out = tri_device_description_of(&tri_device_null, config);
    out->threads = 1;
    return TRI_OK;
}

static tri_status null_open(const tri_device_config *config, tri_device **out) {
    *out = calloc(1, sizeof **out);
    if (!*out) return TRI_FAIL(TRI_NO_MEMORY, "device null: no memory");
    (*out)->backend = &tri_device_null;
    return null_describe(config, &(*out)->description);
}

static void null_close(tri_device *device) { free(device); }

// Uses calloc: the system then allocates pages only when they are touched, and this device touches
// few, because it computes almost nothing. The address that calloc returned is stored just before
// the aligned one, so that `free` finds it.
static tri_status null_alloc(tri_device *device, size_t size_bytes, void **out) {
    *out = NULL;
    size_t alignment = (size_t)device->description.alignment;
    char *whole =
        size_bytes > SIZE_MAX - 2 * alignment ? NULL : calloc(1, size_bytes + 2 * alignment);
    if (!whole) return TRI_FAIL(TRI_NO_MEMORY, "device null: no memory for %zu bytes", size_bytes);
    char *aligned = whole + alignment + (alignment - (uintptr_t)whole % alignment) % alignment;
    memcpy(aligned - sizeof whole, &whole, sizeof whole);
    *out = aligned;
    return TRI_OK;
}

static void null_free(tri_device *device, void *memory) {
    char *whole = NULL;
    if (memory) memcpy(&whole, (char *)memory - sizeof whole, sizeof whole);
    free(whole);
}

static tri_status null_copy(tri_queue *queue, void *to, const void *from, size_t size_bytes) {
    if (size_bytes) memcpy(to, from, size_bytes);
    return TRI_OK;
}

static tri_status null_zero(tri_queue *queue, void *memory, size_t size_bytes) {
    if (size_bytes) memset(memory, 0, size_bytes);
    return TRI_OK;
}

static tri_status null_add(tri_queue *queue, float *to, const float *from, int64_t count) {
    return TRI_OK;
}

const tri_device_backend tri_device_null = {
    .name = "null",
    .kernels = kernels,
    .models = models,
    .describe = null_describe,
    .open = null_open,
    .close = null_close,
    .alloc = null_alloc,
    .free = null_free,
    .open_queue = tri_queue_open_immediate,
    .close_queue = tri_queue_close_immediate,
    .record = tri_queue_record_nothing,
    .wait = tri_queue_wait_here,
    .copy_in = null_copy,
    .copy_out = null_copy,
    .zero = null_zero,
    .add = null_add,
    .host_memory = true,
};
