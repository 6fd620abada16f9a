// What the kernels of convolutions and of their gradients share: sizes, layouts, and descriptions
// of oneDNN's primitives. A task (conv_task) is which of the three a kernel computes: the
// convolution, the gradient of its input, or that of its weight.
#ifndef TRIREME_DEVICE_CPU_CONV_H
#define TRIREME_DEVICE_CPU_CONV_H

#include "device/cpu/epilogue.h"

// The sizes of a convolution: n samples, c input channels, o output channels. Arrays hold the
// height's value and the width's.
typedef struct conv_shape {
    int64_t n, c, o, groups;
    int64_t in[2], out[2], kernel[2], stride[2], padding[2], dilation[2];
    bool direct;     // the model forbids Winograd's algorithm for this convolution
    tri_dtype dtype; // type of x, weight and y; the gradient of the weight is always F32
} conv_shape;

// The layouts of a convolution's tensors, and of their gradients.
typedef struct conv_formats {
    cpu_format x, weight, y;
} conv_formats;

// Reads the sizes from a node of conv2d, conv2d_grad_input or conv2d_grad_weight.
conv_shape conv_shape_of_node(const tri_graph *graph, const tri_node *node);
// Chooses layouts by the rules at the top of conv.c: all plain if no blocked layout applies.
conv_formats conv_formats_of(const conv_shape *s);
// Whether Winograd's algorithm F(4×4, 3×3) may compute the convolution (rules at the top of
// conv.c).
bool conv_is_winograd(const conv_shape *s);
// The same of a node: the member is_winograd (tri_kernel_def) of our own Winograd kernels.
bool conv_node_is_winograd(const tri_graph *graph, const tri_node *node);
// Sets the layouts of the node's inputs and outputs to those that `formats` has for them.
void conv_set_layouts(const tri_node *node, conv_formats formats, tri_layout *in, tri_layout *out);

// A request to oneDNN: the convolution of one node, or one of its gradients.
typedef struct conv_request {
    conv_task task;
    conv_shape shape;
    conv_formats formats;
    bool any;           // oneDNN computes in layouts of its choice, between reorders (conv_chain.c)
    bool bias;          // CONV_FORWARD adds a bias; CONV_GRAD_WEIGHT computes its gradient
    bool deterministic; // the bits must not depend on the number of threads
} conv_request;

// Makes the description of oneDNN's primitive for the request. Returns
// TRI_UNSUPPORTED if oneDNN has no such primitive.
tri_status conv_describe(const conv_request *request, dnnl_primitive_desc_t *out);
// Describes the layout that tensor i of the request has (conv_request.formats), in the order of the
// data of conv_primitives_run. The caller destroys the description, also after a failure.
tri_status conv_outer_md(const conv_request *request, int i, onednn_md *out);

// A primitive with the reorders of its first two tensors, which it reads, and of the third.
typedef struct conv_chain {
    cpu_primitive main, reorders[3]; // zeroed: there is no such reorder
    size_t copy_bytes[3];
    size_t scratchpad_bytes; // of all together
} conv_chain;

// The facts of the primitive, with the memory of all of the chain.
tri_status conv_chain_ask(const conv_request *request, cpu_primitive_facts *out);
// The caller releases *out, which is zeroed before, also after a failure.
tri_status conv_chain_make(const cpu_device *device, const conv_request *request, conv_chain *out);
void conv_chain_set_stream(conv_chain *chain, dnnl_stream_t stream);
tri_status conv_chain_run(conv_chain *chain, void *const *data, void *scratchpad);
void conv_chain_release(conv_chain *chain);

// Asks oneDNN whether it has one primitive for the request, whether that is fast, and how much
// memory it needs. The answers are kept in a cache.
cpu_primitive_facts conv_ask(const tri_device_description *device, const conv_request *request);
// The same facts of the primitives by which the request is computed (conv_primitives): whether all
// exist and are fast, and how much memory they need together.
cpu_primitive_facts conv_facts(const tri_device_description *device, const conv_request *request);

// The primitives that compute a request (conv_primitives.c). The caller releases *out, also after a
// failure.
typedef struct conv_primitives conv_primitives;
tri_status conv_primitives_make(const cpu_device *device, const conv_request *request,
                                conv_primitives **out);
// How much memory a run needs: at most the scratchpad_bytes of conv_facts.
size_t conv_primitives_workspace(const conv_primitives *primitives);
// Computes. `data` are x, weight, y and bias; for CONV_GRAD_INPUT dy, weight, dx; for
// CONV_GRAD_WEIGHT x, dy, dweight, dbias. A bias that the request does not have may be NULL.
// finish: what finishes y or dx; NULL: nothing does.
tri_status conv_primitives_run(conv_primitives *primitives, void *const *data, void *workspace,
                               const cpu_finish *finish);
void conv_primitives_release(conv_primitives *primitives); // NULL allowed

#endif
