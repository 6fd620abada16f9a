// A device: memory, and kernels that compute operations. One table of functions and one of kernels
// per device (ref, null, cpu; cuda as a module).
#ifndef TRIREME_DEVICE_DEVICE_H
#define TRIREME_DEVICE_DEVICE_H

#include "base/ticket.h"
#include "graph/graph.h"

typedef struct tri_device tri_device;
typedef struct tri_kernel_def tri_kernel_def;

typedef struct tri_device_config {
    int index;   // of the device on this host
    int threads; // 0: the device's choice (OMP_NUM_THREADS, else the cores this process may use)
} tri_device_config;

// A kernel made ready for one node of one graph: shapes and layouts are fixed.
typedef struct tri_kernel {
    const tri_kernel_def *def;
    void *state;            // the def's own
    size_t workspace_bytes; // needed while it runs, shared with all others, aligned to 64 bytes
} tri_kernel;

// What is issued to a queue runs in order; queues of one device run side by side. A call that takes
// a queue issues its work and may return before that is done. What fails later is returned by the
// ticket that stands for it, and by every later call on the queue.
typedef struct tri_queue {
    tri_device *device; // a backend's own struct begins with this one
} tri_queue;

typedef struct tri_kernel_args {
    tri_queue *queue;
    void *const *in;  // one per input; NULL where an optional one was left out
    void *const *out; // one per output; may overlap an input as op->in_place says
    void *workspace;
} tri_kernel_args;

// One way to compute an op. A device lists its kernels fastest first, the plain ones last.
struct tri_kernel_def {
    const tri_op *op; // NULL: any op
    const char *name;
    // Whether this kernel computes this node. NULL: always. Depends on shapes, types and
    // attributes, never on time, on the number of ranks or on layouts.
    bool (*supports)(const tri_device *device, const tri_graph *graph, const tri_node *node);
    // `in` holds the layouts that the inputs have now; the kernel overwrites them with those that
    // it wants (a reorder is put in between where they differ) and sets those of the outputs, which
    // are plain before. What it wants of a parameter that has no home yet becomes its home order,
    // so it must be a function of the parameter's shape, type and the instruction set alone. Who
    // reads the outputs is among graph->ahead. NULL: all plain.
    void (*layouts)(const tri_device *device, const tri_graph *graph, const tri_node *node,
                    tri_layout *in, tri_layout *out);
    // Makes what `run` needs, once; all allocation happens here. NULL: nothing to make.
    tri_status (*prepare)(tri_device *device, const tri_graph *graph, const tri_node *node,
                          tri_kernel *kernel);
    // Issues the kernel to args->queue. The pointers of `args` are not kept.
    tri_status (*run)(const tri_kernel *kernel, const tri_kernel_args *args);
    void (*release)(tri_kernel *kernel); // NULL when prepare is NULL
};

typedef struct tri_device_backend {
    const char *name;
    const tri_kernel_def *const *kernels; // ends with NULL
    tri_status (*open)(const tri_device_config *config, tri_device **out);
    void (*close)(tri_device *device);
    // Memory aligned to 64 bytes, zeroed.
    tri_status (*alloc)(tri_device *device, size_t size_bytes, void **out);
    void (*free)(tri_device *device, void *memory);
    // A new queue. A device whose calls are done when they return takes the functions of
    // device/queue.h for this and the next three slots.
    tri_status (*open_queue)(tri_device *device, tri_queue **out);
    void (*close_queue)(tri_queue *queue); // after what was issued to it; NULL allowed
    // *out stands for what was issued to the queue so far.
    tri_status (*record)(tri_queue *queue, tri_ticket *out);
    // What is issued to the queue from now on starts after the ticket's work, whatever did that.
    tri_status (*wait)(tri_queue *queue, const tri_ticket *ticket);
    // Between device memory and the host's. The host's must stay as it is until the copy is done;
    // up to TRI_SMALL_COPY_BYTES of copy_in only until the call returns.
    tri_status (*copy_in)(tri_queue *queue, void *to, const void *from_host, size_t size_bytes);
    tri_status (*copy_out)(tri_queue *queue, void *to_host, const void *from, size_t size_bytes);
    tri_status (*zero)(tri_queue *queue, void *memory, size_t size_bytes);
    // to[i] += from[i], F32: accumulation of gradients over rounds.
    tri_status (*add)(tri_queue *queue, float *to, const float *from, int64_t count);
    // *sum, in device memory, becomes the sum of squares of F32 in F64, in an order that does not
    // depend on the number of threads.
    tri_status (*sum_of_squares)(tri_queue *queue, double *sum, const float *values, int64_t count);
    // True when host code may read and write device memory (then comm may use it as it is).
    bool host_memory;
} tri_device_backend;

enum { TRI_SMALL_COPY_BYTES = 256 };

// The head of every device; a backend's own struct begins with it.
struct tri_device {
    const tri_device_backend *backend;
    int threads;
};

// The first kernel of the device that supports the node; NULL: none, as for all collective ops.
const tri_kernel_def *tri_device_select(const tri_device *device, const tri_graph *graph,
                                        const tri_node *node);
// The layouts the kernel wants, see tri_kernel_def.layouts; with NULL there, or no kernel,
// everything plain.
void tri_kernel_layouts(const tri_kernel_def *def, const tri_device *device, const tri_graph *graph,
                        const tri_node *node, tri_layout *in, tri_layout *out);
tri_status tri_kernel_prepare(const tri_kernel_def *def, tri_device *device, const tri_graph *graph,
                              const tri_node *node, tri_kernel *out);
void tri_kernel_release(tri_kernel *kernel);

#endif
