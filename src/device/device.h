// A device: memory, and kernels that compute operations. Each device is one table of functions and
// one of kernels, so that plan and engine name none; docs/adding-a-device.md adds one.
#ifndef TRIREME_DEVICE_DEVICE_H
#define TRIREME_DEVICE_DEVICE_H

#include "base/ticket.h"
#include "graph/graph.h"

typedef struct tri_device tri_device;
typedef struct tri_kernel_def tri_kernel_def;

typedef struct tri_device_backend tri_device_backend;

// A kind of device that a run can be planned for where there is none, such as a GPU on a login
// node.
typedef struct tri_device_model {
    const char *name;
    int64_t memory_bytes;
    int64_t alignment;
    unsigned features;
} tri_device_model;

typedef struct tri_device_config {
    const tri_device_model *model; // of the backend; NULL: the device that is here
    int index;                     // of the device on this host
    int threads; // 0: the device chooses (OMP_NUM_THREADS, else the cores this process may use)
} tri_device_config;

// What a plan has to know of a device: which kernels there are, the layouts that they want and the
// memory that they need follow from it alone. No device has to be open, or even there.
typedef struct tri_device_description {
    const tri_device_backend *backend;
    const tri_device_model *model; // NULL: the device that is here
    int threads;                   // that kernels run on
    unsigned features;    // instruction sets or the like; only the backend knows their meaning
    int64_t memory_bytes; // that a rank has for itself; 0: ranks share the host's
    const char *kind;     // whose rates it has, by a name such as "h200"; NULL: not known
    int64_t alignment;    // of the buffers that a plan places: a power of 2, at least 64
} tri_device_description;

// A kernel that is prepared for one node of one graph, whose shapes and layouts are fixed.
typedef struct tri_kernel {
    const tri_kernel_def *def;
    void *state;            // whatever the kernel's `prepare` makes
    size_t workspace_bytes; // needed while it runs: what was planned, or less
    char *what;             // op, layer and shapes, for messages; NULL: there was no memory for it
} tri_kernel;

// A queue: what is issued to it runs in order; queues of one device run side by side. A call that
// takes a queue issues its work and may return before that is done. What fails later is returned by
// the ticket that stands for it, and by every later call on the queue.
typedef struct tri_queue {
    tri_device *device; // a backend's own struct begins with this one
} tri_queue;

// Work that a queue has captured; only its backend knows what is in it.
typedef struct tri_captured tri_captured;

typedef struct tri_kernel_args {
    tri_queue *queue;
    void *const *in;  // one per input; NULL if an optional one is missing
    void *const *out; // one per output; may overlap an input as op->in_place says
    void *workspace;
} tri_kernel_args;

// One way to compute an op. A device lists its kernels from the fastest to the most general.
// `supports`, `layouts` and `workspace` are pure functions, asked while a run is planned; `prepare`
// is called once the run is to begin.
struct tri_kernel_def {
    const tri_op *op; // NULL: any op
    const char *name;
    // Whether this kernel can compute this node. NULL: always. Must depend only on shapes, types
    // and attributes, not on layouts, time or the number of ranks, so that all ranks choose the
    // same kernels.
    bool (*supports)(const tri_device_description *device, const tri_graph *graph,
                     const tri_node *node);
    // Chooses layouts. `in` holds the current layouts of the inputs; the kernel overwrites them
    // with those that it wants, and the layout pass inserts reorders where they differ. `out` holds
    // plain layouts, which the kernel overwrites with those of its outputs. What it wants for a
    // parameter without a home layout becomes that, and so must depend only on the parameter's
    // shape and type and on the instruction set. graph->pending_nodes has the nodes that read the
    // outputs. NULL: all layouts are plain.
    void (*layouts)(const tri_device_description *device, const tri_graph *graph,
                    const tri_node *node, tri_layout *in, tri_layout *out);
    // The bytes that `run` needs while it runs. All kernels share the memory, which is aligned as
    // the description says, because they run one after the other. Layouts are those that `layouts`
    // chose. NULL: none.
    tri_status (*workspace)(const tri_device_description *device, const tri_graph *graph,
                            const tri_node *node, size_t *out);
    // Makes what `run` needs, once. Does all allocation, so that steps allocate nothing. It may set
    // kernel->workspace_bytes to less than what `workspace` returned. NULL: nothing to make.
    tri_status (*prepare)(tri_device *device, const tri_graph *graph, const tri_node *node,
                          tri_kernel *kernel);
    // Issues the kernel to args->queue. The pointers of `args` are valid only during the call.
    tri_status (*run)(const tri_kernel *kernel, const tri_kernel_args *args);
    void (*release)(tri_kernel *kernel); // NULL when prepare is NULL
    // True if `run` reads or changes what the host keeps, or allocates: then what it issues cannot
    // be captured and repeated. Only asked where the device captures.
    bool uses_host;
};

struct tri_device_backend {
    const char *name;
    const tri_kernel_def *const *kernels; // ends with NULL
    // Device models that the backend can describe and open; a row without a name is the last. NULL:
    // none.
    const tri_device_model *models;
    // Describes the device that `open` would open, and opens nothing. TRI_NOT_FOUND: there is no
    // such device here, so that --device auto tries the next backend.
    tri_status (*describe)(const tri_device_config *config, tri_device_description *out);
    // Opens the device. Fails as `describe` does.
    tri_status (*open)(const tri_device_config *config, tri_device **out);
    void (*close)(tri_device *device);
    // How much a rank can still allocate, for the check that a plan fits. NULL: what the
    // description says or, where that says nothing, what is free on the host.
    int64_t (*free_memory)(tri_device *device);
    // Allocates zeroed memory, aligned as the description says.
    tri_status (*alloc)(tri_device *device, size_t size_bytes, void **out);
    void (*free)(tri_device *device, void *memory);
    // Memory of the host from which copies to the device are fastest (pinned pages, of a GPU), for
    // what is copied in every step. Aligned to 64 bytes, zeroed. Both NULL: any memory will do.
    tri_status (*alloc_host)(tri_device *device, size_t size_bytes, void **out);
    void (*free_host)(tri_device *device, void *memory);
    // Opens a new queue. A device whose calls are done when they return uses the functions of
    // device/queue.h for this and the next three slots.
    tri_status (*open_queue)(tri_device *device, tri_queue **out);
    void (*close_queue)(tri_queue *queue); // after what was issued to it; NULL allowed
    // Makes a ticket: *out stands for all work that was issued to the queue so far.
    tri_status (*record)(tri_queue *queue, tri_ticket *out);
    // Makes work that is issued to the queue from now on start after the ticket's work, which may
    // be of another queue or of the host.
    tri_status (*wait)(tri_queue *queue, const tri_ticket *ticket);
    // Sets *ns, memory of the host, to the time (CLOCK_MONOTONIC, in ns) at which the queue has
    // done what was issued so far. The caller leaves *ns alone until the queue is past this point.
    // NULL: the device is done when a call returns, so that the host's clock tells the time.
    tri_status (*time)(tri_queue *queue, int64_t *ns);
    // Copy between device memory and the host's. The caller leaves the host's memory alone until
    // the copy is done; for copy_in of at most TRI_SMALL_COPY_BYTES only until the call returns,
    // because the device keeps a copy of so little.
    tri_status (*copy_in)(tri_queue *queue, void *to, const void *from_host, size_t size_bytes);
    tri_status (*copy_out)(tri_queue *queue, void *to_host, const void *from, size_t size_bytes);
    tri_status (*zero)(tri_queue *queue, void *memory, size_t size_bytes);
    // Adds: to[i] += from[i], F32. Gradients of several rounds are accumulated by it.
    tri_status (*add)(tri_queue *queue, float *to, const float *from, int64_t count);
    // Whether host code may read and write device memory. Then communicators use it directly; else
    // what they send has to be copied through the host's memory or needs a library such as NCCL.
    bool host_memory;
    // Whether work goes on after a call has returned. If so, the engine issues a step before it
    // reads the results of the one before, so that the device never waits for the host, and
    // micro-batches are copied while the device computes, to memory of their own.
    bool runs_ahead;
    // Whether a queue can capture what it is issued, to repeat it as one (a CUDA graph), which
    // costs the host less. If not, the next four slots are NULL.
    bool captures;
    // Begins to capture: until end_capture, what is issued to the queue is not done but captured:
    // kernels without uses_host, `zero`, `add` and `time`. The caller does nothing else with the
    // device meanwhile.
    tri_status (*begin_capture)(tri_queue *queue);
    // Ends capturing. Called also after a call in between has failed. *out is NULL if this fails.
    tri_status (*end_capture)(tri_queue *queue, tri_captured **out);
    tri_status (*repeat)(tri_queue *queue, tri_captured *captured); // issues the captured work
    void (*close_capture)(tri_captured *captured);                  // all repeats of it are done
    // Shows the work that is issued from now on under a name to a profiler, if one is attached;
    // NULL ends that. The slot is NULL if no profiler knows this device.
    void (*mark)(tri_device *device, const char *name);
    // Whether images of bytes are copied as bytes and normalised by the device, which saves three
    // quarters of the copy. Else the loader's threads normalise them.
    bool takes_bytes;
};

enum { TRI_SMALL_COPY_BYTES = 256 };

// What every device has. A backend's own struct begins with it, so that callers need not know the
// backend.
struct tri_device {
    const tri_device_backend *backend;
    tri_device_description description;
    bool without_captures; // although the backend could: the user wants none
};

enum { TRI_DEVICE_ALIGNMENT = 64, TRI_DEVICE_NAME_BYTES = 64 };

// Describes the device model that `config` names; if it names none, a device that uses the host's
// memory.
tri_device_description tri_device_description_of(const tri_device_backend *backend,
                                                 const tri_device_config *config);
// Writes the name as --device takes it, "null:h200", and returns `text`.
const char *tri_device_name(const tri_device_description *device, char text[TRI_DEVICE_NAME_BYTES]);

// The memory that one of `sharers` ranks of a host may use.
typedef struct tri_device_memory {
    int64_t bytes;  // 0: not known
    bool is_own;    // the device's, not the host's
    char whose[80]; // completes "more than the 3 GB …"
} tri_device_memory;
// `opened` is the device; NULL: it is only described.
tri_device_memory tri_device_memory_of(const tri_device_description *device, tri_device *opened,
                                       int sharers);

// Returns the device's first kernel that supports the node; NULL if none does, and for collectives.
const tri_kernel_def *tri_device_select(const tri_device_description *device,
                                        const tri_graph *graph, const tri_node *node);
// Calls tri_kernel_def.layouts. If that or the kernel is NULL, all layouts are plain.
void tri_kernel_layouts(const tri_kernel_def *def, const tri_device_description *device,
                        const tri_graph *graph, const tri_node *node, tri_layout *in,
                        tri_layout *out);
// Calls tri_kernel_def.workspace; 0 if that is NULL.
tri_status tri_kernel_workspace(const tri_kernel_def *def, const tri_device_description *device,
                                const tri_graph *graph, const tri_node *node, size_t *out);
// Calls tri_kernel_def.prepare, and asserts that the kernel needs no more workspace than planned.
// The caller releases *out, after a failure too.
tri_status tri_kernel_prepare(const tri_kernel_def *def, tri_device *device, const tri_graph *graph,
                              const tri_node *node, tri_kernel *out);
// Selects a kernel for the node and prepares it. TRI_UNSUPPORTED names the op: the device has no
// kernel for it.
tri_status tri_kernel_make(tri_device *device, const tri_graph *graph, const tri_node *node,
                           tri_kernel *out);
// Calls tri_kernel_def.run. The message of a failure of this kernel itself (TRI_INTERNAL,
// TRI_NO_MEMORY) names op, layer and shapes. Other failures are of the kernel's input or of work
// that was issued before.
tri_status tri_kernel_run(const tri_kernel *kernel, const tri_kernel_args *args);
void tri_kernel_release(tri_kernel *kernel);

#endif
