// Wraps the functions of a device (a tri_device_backend), so that each call notes which memory it
// reads and writes. The device must have a single kernel definition that runs all ops, as the test
// device `far` does.
#include "support/device_notes.h"

#include <string.h>

enum { MOST_KERNELS = 8192 };

_Thread_local device_notes *device_notes_now;

static tri_device_backend noted; // the device's own functions, which write no notes
static tri_kernel_def kernel_def;
static const tri_kernel_def *const kernels[] = {&kernel_def, NULL};

static struct {
    const void *state; // the kernel's state, by which `run` finds the kernel in this table
    bool updates;      // an optimizer's update: the kernel overwrites the parameter and its states
    size_t in[TRI_MAX_INPUTS], out[TRI_MAX_OUTPUTS];
} sizes[MOST_KERNELS];

void device_note(const void *memory, size_t size_bytes, bool writes) {
    device_notes *notes = device_notes_now;
    if (!notes || !memory || size_bytes == 0) return;
    TRI_ASSERT(notes->count < DEVICE_NOTES_RANGES);
    notes->ranges[notes->count++] =
        (device_range){memory, (const char *)memory + size_bytes, writes};
}

static tri_status prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                          tri_kernel *kernel) {
    TRI_TRY(noted.kernels[0]->prepare(device, graph, node, kernel));
    int at = 0;
    while (at < MOST_KERNELS && sizes[at].state) at++;
    TRI_ASSERT(at < MOST_KERNELS);
    // The op first_not_finite looks for the first gradient that is NaN or infinite. It is noted as
    // reading nothing, because it reads gradients only if the step has such a number.
    bool reads = strcmp(node->op->name, "first_not_finite") != 0;
    sizes[at].state = kernel->state;
    sizes[at].updates = (node->op->flags & TRI_OP_UPDATE) != 0;
    for (int i = 0; i < TRI_MAX_INPUTS; i++)
        sizes[at].in[i] = i < node->input_count && node->inputs[i].id && reads
                              ? (size_t)tri_value_bytes(graph, node->inputs[i])
                              : 0;
    for (int i = 0; i < TRI_MAX_OUTPUTS; i++)
        sizes[at].out[i] =
            i < node->output_count ? (size_t)tri_value_bytes(graph, node->outputs[i]) : 0;
    return TRI_OK;
}

static tri_status run(const tri_kernel *kernel, const tri_kernel_args *args) {
    for (int k = 0; k < MOST_KERNELS && sizes[k].state && device_notes_now; k++) {
        if (sizes[k].state != kernel->state) continue;
        for (int i = 0; i < TRI_MAX_INPUTS; i++)
            if (sizes[k].in[i])
                device_note(args->in[i], sizes[k].in[i], sizes[k].updates && (i == 0 || i > 2));
        for (int i = 0; i < TRI_MAX_OUTPUTS; i++)
            if (sizes[k].out[i]) device_note(args->out[i], sizes[k].out[i], true);
    }
    return noted.kernels[0]->run(kernel, args);
}

static tri_status copy_in(tri_queue *queue, void *to, const void *from_host, size_t size_bytes) {
    device_note(to, size_bytes, true);
    return noted.copy_in(queue, to, from_host, size_bytes);
}

static tri_status copy_in_later(tri_queue *queue, void *to, const void *from_host,
                                size_t size_bytes) {
    device_note(to, size_bytes, true);
    device_note(from_host, size_bytes, false);
    return noted.copy_in_later(queue, to, from_host, size_bytes);
}

static tri_status copy_out(tri_queue *queue, void *to_host, const void *from, size_t size_bytes) {
    device_note(from, size_bytes, false);
    device_note(to_host, size_bytes, true);
    return noted.copy_out(queue, to_host, from, size_bytes);
}

static tri_status zero(tri_queue *queue, void *memory, size_t size_bytes) {
    device_note(memory, size_bytes, true);
    return noted.zero(queue, memory, size_bytes);
}

static tri_status add(tri_queue *queue, float *to, const float *from, int64_t count) {
    device_note(to, (size_t)count * sizeof *to, true);
    device_note(from, (size_t)count * sizeof *from, false);
    return noted.add(queue, to, from, count);
}

void device_notes_add(tri_device_backend *backend) {
    noted = *backend;
    TRI_ASSERT(!noted.kernels[1]);
    kernel_def = *noted.kernels[0];
    kernel_def.prepare = prepare;
    kernel_def.run = run;
    backend->kernels = kernels;
    backend->copy_in = copy_in;
    backend->copy_in_later = copy_in_later;
    backend->copy_out = copy_out;
    backend->zero = zero;
    backend->add = add;
}

bool device_notes_conflict(const device_notes *a, const device_notes *b) {
    for (int i = 0; i < a->count; i++)
        for (int k = 0; k < b->count; k++) {
            const device_range *x = &a->ranges[i], *y = &b->ranges[k];
            if ((x->writes || y->writes) && x->from < y->end && y->from < x->end) return true;
        }
    return false;
}
