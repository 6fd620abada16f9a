// A device: memory, and kernels that compute operations. Each kind of device (a CPU, a GPU) is a
// backend: one table of functions and one of kernels. So the plan, which chooses the kernels of a
// run before the run begins, and the engine, which runs the plan, need not know any device by name.
// docs/adding-a-device.md shows how to add a device.
#ifndef TRIREME_DEVICE_DEVICE_H
#define TRIREME_DEVICE_DEVICE_H

#include "base/ticket.h"
#include "graph/graph.h"

typedef struct tri_device tri_device;
typedef struct tri_kernel_def tri_kernel_def;

typedef struct tri_device_backend tri_device_backend;

// A kind of device for which a run can be planned on a host that has none, such as a GPU on a login
// node.
typedef struct tri_device_model {
    const char *name;
    // As the members of tri_device_description with the same names.
    int64_t memory_bytes;
    int64_t alignment;
    unsigned features;
    const char *module; // the module without which this build cannot drive it; NULL: it needs none
} tri_device_model;

typedef struct tri_device_config {
    const tri_device_model *model; // the backend's model to use; NULL: the device of this host
    int index;                     // number of the device among those of this host
    // On how many threads kernels run; 0: the device chooses (OMP_NUM_THREADS, else the number of
    // cores that this process may use).
    int threads;
    bool is_optional; // another device is taken if this one is not here (--device auto)
} tri_device_config;

// What a plan has to know of a device. From it alone follows which kernels there are, which layouts
// they need and how much memory. So the device need not be open, or even exist.
typedef struct tri_device_description {
    const tri_device_backend *backend;
    const tri_device_model *model; // NULL: the device of this host
    int threads;                   // number of threads on which kernels run
    // Instruction sets or other abilities, as bits; only the backend knows their meaning.
    unsigned features;
    int64_t memory_bytes; // memory that a rank has for itself; 0: the ranks share the host's memory
    // Of that memory, what libraries and the driver may take while a run goes on, and no plan may
    // use.
    int64_t reserve_bytes;
    // A name such as "h200", by which the estimate of a step's time finds the peak rates of the
    // device; NULL: not known.
    const char *kind;
    // Alignment of the buffers that a plan arranges: a power of 2, at least 64 bytes.
    int64_t alignment;
} tri_device_description;

// A kernel that is prepared for one node of one graph, whose shapes and layouts are fixed.
typedef struct tri_kernel {
    const tri_kernel_def *def;
    void *state;            // made by the kernel's `prepare`, and known only to the kernel
    size_t workspace_bytes; // how many bytes `run` needs: as many as planned, or fewer
    char *what; // the node's op, layer and shapes, for messages; NULL: this text is not known
} tri_kernel;

// A queue: work that is issued to it is done in order; queues of one device run side by side. A
// call with a queue issues its work and may return before the work is done. A failure after that is
// returned by the ticket that stands for the work, and by every later call on the queue.
typedef struct tri_queue {
    // The device to which the queue belongs; a backend's own struct begins with tri_queue.
    tri_device *device;
} tri_queue;

// Work that a queue has captured: recorded instead of done, to be repeated as one (a CUDA graph).
// Only the backend knows what is in it.
typedef struct tri_captured tri_captured;

typedef struct tri_kernel_args {
    tri_queue *queue;
    void *const *in;  // by input: its memory; NULL if an optional input is missing
    void *const *out; // by output: its memory, which may overlap an input, as op->in_place allows
    void *workspace;
    // Bit k: output k is added to what its memory holds. Only bits that the function `adds` of the
    // kernel's tri_kernel_def has returned may be set.
    unsigned adds;
} tri_kernel_args;

// One way to compute an op. A device lists its kernels from the fastest to the most general.
// `supports`, `layouts` and `workspace` are pure functions, called while a run is planned.
// `prepare` is called before the run begins.
struct tri_kernel_def {
    const tri_op *op; // NULL: the kernel computes any op
    const char *name;
    // Whether this kernel can compute this node. NULL: always. The answer must depend only on
    // shapes, types and attributes, not on layouts, time or the number of ranks, so that all ranks
    // choose the same kernels.
    bool (*supports)(const tri_device_description *device, const tri_graph *graph,
                     const tri_node *node);
    // Chooses layouts. `in` holds the current layouts of the inputs. The kernel overwrites them
    // with the layouts that it needs. Where these differ, the layout pass (pass/layout.c) inserts
    // reorders, which copy a tensor into another layout. `out` holds plain layouts, which the
    // kernel overwrites with those of its outputs.
    // If an input is a parameter without a home layout (the layout in which the parameter, its
    // gradient and its optimizer states are kept), the layout chosen here becomes the home layout.
    // So this choice must depend only on the parameter's shape and type, on the device and on the
    // precision of the run.
    // A kernel may look at the nodes that read its outputs, to choose a layout that they can read
    // without a reorder: they are among graph->pending_nodes, for which layouts are not chosen yet.
    // NULL: all layouts are plain (row-major).
    void (*layouts)(const tri_device_description *device, const tri_graph *graph,
                    const tri_node *node, tri_layout *in, tri_layout *out);
    // How many bytes of memory `run` needs while it runs. All kernels of a run use the same memory
    // for this, because they run one after the other. It is aligned as the description says. The
    // node's layouts are those that `layouts` has chosen. NULL: `run` needs no such memory.
    tri_status (*workspace)(const tri_device_description *device, const tri_graph *graph,
                            const tri_node *node, size_t *out);
    // Which outputs `run` can add to what their memory holds, in F32, instead of overwriting it:
    // bit k is output k. So gradients of several micro-batches are summed as they are computed, and
    // need not be read and written once more for the sum. NULL: `run` overwrites all outputs.
    unsigned (*adds)(const tri_device_description *device, const tri_graph *graph,
                     const tri_node *node);
    // Makes, once, kernel->state with all that `run` needs. All allocation happens here, so that
    // steps allocate nothing. It may set kernel->workspace_bytes to less than `workspace` has
    // returned. NULL: nothing has to be made.
    tri_status (*prepare)(tri_device *device, const tri_graph *graph, const tri_node *node,
                          tri_kernel *kernel);
    // Issues the kernel to args->queue. The pointers in `args` are valid only during the call.
    tri_status (*run)(const tri_kernel *kernel, const tri_kernel_args *args);
    void (*release)(tri_kernel *kernel); // NULL if `prepare` is NULL
    // For linear_cross_entropy (a linear layer's scores and their loss, in one op) and its gradient
    // linear_cross_entropy_grad: true if the kernel takes one chunk of rows after the other, so
    // that it needs memory only for the scores of one chunk. The pass chunk_loss adds these ops
    // only where the device has such a kernel; on all other devices, each product and the loss keep
    // a node of their own.
    bool chunks_scores;
    // For convolutions and their gradients: whether the kernel computes this node by Winograd's
    // algorithm, which the attribute `direct` would turn off. NULL: it never does.
    bool (*is_winograd)(const tri_graph *graph, const tri_node *node);
    // True if `run` reads or changes memory of the host, or allocates: then its work cannot be
    // captured and repeated. Only kernels of devices that capture set it. Two nodes are not fused
    // if the kernel for the fused node sets it, because the device's two kernels for them are
    // faster.
    bool uses_host;
};

struct tri_device_backend {
    const char *name;
    // For a device with memory of its own (a GPU): the device that computes in the memory of its
    // host. It runs the optimizer if strategy.offload keeps the optimizer's states in that memory.
    // NULL: this device itself computes in the host's memory.
    const tri_device_backend *host;
    const tri_kernel_def *const *kernels; // the fastest first; NULL marks the end
    // Device models that the backend can describe and open; a row without a name marks the end.
    // NULL: the backend has no models.
    const tri_device_model *models;
    // Describes the device that `open` would open, without opening it. TRI_NOT_FOUND: this host has
    // no such device, so --device auto tries the next backend.
    tri_status (*describe)(const tri_device_config *config, tri_device_description *out);
    // Opens the device. Fails as `describe` does.
    tri_status (*open)(const tri_device_config *config, tri_device **out);
    void (*close)(tri_device *device);
    // How much memory a rank can still allocate, to check that a plan fits. NULL: as much as the
    // description says or, if it says nothing, as much as is free on the host.
    int64_t (*free_memory)(tri_device *device);
    // Allocates zeroed memory, aligned as the description says.
    tri_status (*alloc)(tri_device *device, size_t size_bytes, void **out);
    void (*free)(tri_device *device, void *memory);
    // Allocates memory of the host from which copies to the device are fastest (for a GPU: pinned
    // pages), for data that are copied in every step. Aligned to 64 bytes, zeroed. Both functions
    // NULL: copies are equally fast from any memory.
    tri_status (*alloc_host)(tri_device *device, size_t size_bytes, void **out);
    void (*free_host)(tri_device *device, void *memory);
    // Opens a new queue. A device whose work is done when a call returns uses the functions of
    // device/queue.h for this member and the next three.
    tri_status (*open_queue)(tri_device *device, tri_queue **out);
    void (*close_queue)(tri_queue *queue); // waits until the queue's work is done; NULL allowed
    // Makes a ticket: *out stands for all work that was issued to the queue so far.
    tri_status (*record)(tri_queue *queue, tri_ticket *out);
    // Makes work that is issued to the queue from now on start after the ticket's work, which may
    // belong to another queue or to the host.
    tri_status (*wait)(tri_queue *queue, const tri_ticket *ticket);
    // Sets *ns, which lies in memory of alloc_host, to the time (CLOCK_MONOTONIC, in ns) at which
    // the queue has done everything issued so far. The caller must not use *ns until then. NULL:
    // the device's work is done when a call returns, so the host's clock tells the time.
    tri_status (*time)(tri_queue *queue, int64_t *ns);
    // Copies from the host's memory to the device's; copy_out copies the other way. The caller must
    // not change the host's memory until the copy is done. Exception: after a copy_in of at most
    // TRI_SMALL_COPY_BYTES it may do so as soon as the call returns, because the device has kept a
    // copy.
    tri_status (*copy_in)(tri_queue *queue, void *to, const void *from_host, size_t size_bytes);
    // As copy_in, but even a small copy reads the host's memory only when the queue reaches it,
    // because work for which the queue waits may write that memory until then. NULL if `host` is
    // NULL.
    tri_status (*copy_in_later)(tri_queue *queue, void *to, const void *from_host,
                                size_t size_bytes);
    tri_status (*copy_out)(tri_queue *queue, void *to_host, const void *from, size_t size_bytes);
    tri_status (*zero)(tri_queue *queue, void *memory, size_t size_bytes);
    // Adds: to[i] += from[i], in F32. In this way gradients of several micro-batches are
    // accumulated, except those that kernels add as they compute them (tri_kernel_def.adds).
    tri_status (*add)(tri_queue *queue, float *to, const float *from, int64_t count);
    // Whether host code may read and write device memory. If so, communicators use it directly. If
    // not, what they send has to be copied through the host's memory, or a library such as NCCL
    // sends it.
    bool host_memory;
    // Whether work goes on after a call has returned. If so, the engine issues a step before it
    // reads the results of the previous one, so that the device never waits for the host; and
    // micro-batches are copied while the device computes, to memory of their own.
    bool is_asynchronous;
    // Whether a queue can capture work that is issued to it, to repeat it as one (a CUDA graph),
    // which takes the host less time than to issue it again. If not, the next four members are
    // NULL.
    bool captures;
    // Begins to capture: until end_capture, work that is issued to the queue is not done but
    // captured. Only this can be captured: kernels that do not set uses_host, and the calls `zero`,
    // `add` and `time`. The caller does nothing else with the device meanwhile.
    tri_status (*begin_capture)(tri_queue *queue);
    // Ends capturing. It is called even if a call in between has failed. *out is NULL if this call
    // fails.
    tri_status (*end_capture)(tri_queue *queue, tri_captured **out);
    tri_status (*repeat)(tri_queue *queue, tri_captured *captured); // issues the captured work
    // Frees captured work. The caller calls it when the device has done all repeats.
    void (*close_capture)(tri_captured *captured);
    // Sets the name under which a profiler, if one is attached, shows the work that is issued from
    // now on; name NULL: such work has no name any more. The member `mark` is NULL if no profiler
    // knows this device.
    void (*mark)(tri_device *device, const char *name);
    // Whether images of bytes are copied to the device as bytes and normalised to F32 there, which
    // saves three quarters of the bytes to copy. If not, the loader's threads normalise them.
    bool takes_bytes;
};

enum { TRI_SMALL_COPY_BYTES = 256 };

// The head of every device. A backend's own struct begins with it, so that callers can use a device
// without knowing its backend.
struct tri_device {
    const tri_device_backend *backend;
    tri_device_description description;
    bool without_captures; // the user does not want captures, although the backend could make them
};

// The alignment of buffers unless a device demands more, and the most bytes of a device's name.
enum { TRI_DEVICE_ALIGNMENT = 64, TRI_DEVICE_NAME_BYTES = 64 };

// Describes the device model that `config` names. If it names none, describes a device that uses
// the host's memory.
tri_device_description tri_device_description_of(const tri_device_backend *backend,
                                                 const tri_device_config *config);
// Writes the name as the option --device expects it, for example "null:h200", and returns `text`.
const char *tri_device_name(const tri_device_description *device, char text[TRI_DEVICE_NAME_BYTES]);

// The memory that a rank may use.
typedef struct tri_device_memory {
    int64_t bytes; // size of this memory, without the device's reserve; 0: not known
    bool is_own;   // true: it is the device's memory; false: the host's
    // Text that completes the message "more than the 3 GB …", such as "of null:h200".
    char whose[80];
} tri_device_memory;
// Finds how much memory a rank may use if `sharers` ranks share the host. `opened` is the device;
// NULL: it is only described.
tri_device_memory tri_device_memory_of(const tri_device_description *device, tri_device *opened,
                                       int sharers);

// Returns the device's first kernel that supports the node; NULL if none does, or if the node is a
// collective, which communicators compute.
const tri_kernel_def *tri_device_select(const tri_device_description *device,
                                        const tri_graph *graph, const tri_node *node);
// Calls def->layouts. If that or `def` itself is NULL, all layouts are plain.
void tri_kernel_layouts(const tri_kernel_def *def, const tri_device_description *device,
                        const tri_graph *graph, const tri_node *node, tri_layout *in,
                        tri_layout *out);
// Calls def->workspace; if that is NULL, *out is 0.
tri_status tri_kernel_workspace(const tri_kernel_def *def, const tri_device_description *device,
                                const tri_graph *graph, const tri_node *node, size_t *out);
// Calls def->adds; if that is NULL, returns 0.
unsigned tri_kernel_adds(const tri_kernel_def *def, const tri_device_description *device,
                         const tri_graph *graph, const tri_node *node);
// Calls def->prepare, and asserts that the kernel needs no more workspace than planned. The caller
// releases *out, also after a failure.
tri_status tri_kernel_prepare(const tri_kernel_def *def, tri_device *device, const tri_graph *graph,
                              const tri_node *node, tri_kernel *out);
// Selects a kernel for the node and prepares it. TRI_UNSUPPORTED: the device has no kernel for the
// op; the message names it.
tri_status tri_kernel_make(tri_device *device, const tri_graph *graph, const tri_node *node,
                           tri_kernel *out);
// Calls kernel->def->run. If this kernel itself fails (TRI_INTERNAL, TRI_NO_MEMORY), the message
// names op, layer and shapes. Other failures concern the kernel's input or work that was issued
// before.
tri_status tri_kernel_run(const tri_kernel *kernel, const tri_kernel_args *args);
void tri_kernel_release(tri_kernel *kernel);

#endif
