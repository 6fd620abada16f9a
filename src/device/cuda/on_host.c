// The kernel for ops that have none on the GPU: copies the inputs to the host, runs the kernel of
// the reference device `ref` (plain C) there, and copies the outputs back. It is slow, because host
// and GPU wait for each other; `trireme bench kernels` shows where it is used.
#include "device/cuda/internal.h"

#include "device/queue.h"
#include "device/ref/ref.h"

#include <stdlib.h>

typedef struct host_tensor {
    size_t bytes;
    void *memory; // the copy on the host; NULL: an optional tensor that is left out
} host_tensor;

typedef struct on_host {
    tri_kernel inner; // the kernel of `ref`
    int input_count, output_count;
    bool updates; // the op writes some inputs too (an optimizer update)
    host_tensor in[TRI_MAX_INPUTS], out[TRI_MAX_OUTPUTS];
    void *workspace; // memory of the host that `inner` needs while it runs
} on_host;

static tri_device_description description_of_ref(void) {
    return tri_device_description_of(&tri_device_ref, &(tri_device_config){0});
}

static bool supports(const tri_device_description *device, const tri_graph *graph,
                     const tri_node *node) {
    tri_device_description ref = description_of_ref();
    return tri_device_select(&ref, graph, node) != NULL;
}

static void layouts(const tri_device_description *device, const tri_graph *graph,
                    const tri_node *node, tri_layout *in, tri_layout *out) {
    tri_device_description ref = description_of_ref();
    tri_kernel_layouts(tri_device_select(&ref, graph, node), &ref, graph, node, in, out);
}

static tri_status add_tensor(const tri_graph *graph, tri_value value, host_tensor *out) {
    if (!tri_value_is(value)) return TRI_OK;
    out->bytes = (size_t)tri_value_bytes(graph, value);
    out->memory = calloc(1, out->bytes + 1);
    return out->memory ? TRI_OK : TRI_FAIL(TRI_NO_MEMORY, "no memory for a kernel on the host");
}

static tri_status prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                          tri_kernel *kernel) {
    on_host *state = calloc(1, sizeof *state);
    if (!state) return TRI_FAIL(TRI_NO_MEMORY, "no memory for kernel %s", node->op->name);
    kernel->state = state;
    state->input_count = node->input_count;
    state->output_count = node->output_count;
    state->updates = node->op->flags & TRI_OP_UPDATE;
    for (int i = 0; i < node->input_count; i++)
        TRI_TRY(add_tensor(graph, node->inputs[i], &state->in[i]));
    for (int i = 0; i < node->output_count; i++)
        TRI_TRY(add_tensor(graph, node->outputs[i], &state->out[i]));
    TRI_TRY(tri_kernel_make(cuda_of(device)->host, graph, node, &state->inner));
    state->workspace = aligned_alloc(64, (state->inner.workspace_bytes + 127) / 64 * 64);
    kernel->workspace_bytes = 0;
    return state->workspace ? TRI_OK
                            : TRI_FAIL(TRI_NO_MEMORY, "no memory for a kernel's workspace");
}

static void release(tri_kernel *kernel) {
    on_host *state = kernel->state;
    if (!state) return;
    tri_kernel_release(&state->inner);
    for (int i = 0; i < state->input_count; i++) free(state->in[i].memory);
    for (int i = 0; i < state->output_count; i++) free(state->out[i].memory);
    free(state->workspace);
    free(state);
}

// Whether the op writes this input, so that it has to be copied back to the GPU. An update writes
// input 0, the parameter, and inputs 3 and up, the optimizer's states; it only reads the gradient
// and the step scalars.
static bool is_updated(const on_host *state, int input) {
    return state->updates && (input == 0 || input > 2);
}

static tri_status run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const on_host *state = kernel->state;
    tri_queue host = {cuda_of(args->queue->device)->host};
    void *in[TRI_MAX_INPUTS] = {0}, *out[TRI_MAX_OUTPUTS] = {0};
    for (int i = 0; i < state->input_count; i++) {
        in[i] = state->in[i].memory;
        if (in[i]) TRI_TRY(cuda_copy_out(args->queue, in[i], args->in[i], state->in[i].bytes));
    }
    TRI_TRY(tri_queue_finish(args->queue));
    for (int i = 0; i < state->output_count; i++) out[i] = state->out[i].memory;
    tri_kernel_args inner = {.queue = &host, .in = in, .out = out, .workspace = state->workspace};
    TRI_TRY(state->inner.def->run(&state->inner, &inner));
    for (int i = 0; i < state->output_count; i++)
        TRI_TRY(cuda_copy_in(args->queue, args->out[i], out[i], state->out[i].bytes));
    for (int i = 0; i < state->input_count; i++)
        if (is_updated(state, i))
            TRI_TRY(cuda_copy_in(args->queue, args->in[i], in[i], state->in[i].bytes));
    // The copies must be done before the next run writes the same memory of the host.
    return tri_queue_finish(args->queue);
}

const tri_kernel_def cuda_kernel_on_host = {.name = "on-host",
                                            .supports = supports,
                                            .layouts = layouts,
                                            .prepare = prepare,
                                            .run = run,
                                            .release = release,
                                            .uses_host = true};
