// The passes: rewrites of a graph, here in the order in which they run (plan/program.c). Fusion
// runs twice, before and after autodiff, and each time ends with a sweep. Each pass keeps what the
// graph computes and leaves it verified. Next: plan/locations.c, which assigns memory to
// the values of the final graph.
#ifndef TRIREME_PASS_PASS_H
#define TRIREME_PASS_PASS_H

#include "base/tree.h"
#include "device/device.h"
#include "mesh/mesh.h"
#include "tensor/pixels.h"

typedef struct tri_tensor_parallel_options {
    // strategy.tensor: a map of patterns of layer names (`*`, `?`) to none, column or row, which
    // replaces what layers are annotated with; NULL: none.
    const tri_tree *layers;
    // Slices activations along the sequence between a row-parallel layer and the next
    // column-parallel one, where ranks would else hold copies: that saves memory (Korthikanti et
    // al. 2022).
    bool sequence_parallel;
    // Batch norm normalises over the step, in which each replica has one micro-batch
    // (trainer.sync_batchnorm).
    bool sync_batch_norm;
} tri_tensor_parallel_options;

// Rewrites a graph, as a model built it, into what one rank of the mesh computes of it: layers are
// sliced over the ranks of the tensor-parallel axis, with collective ops between them, and with
// sync_batch_norm batch norm is over all replicas. *out is made in `arena`; parameters keep their
// numbers, those that are sliced have a tri_parameter_slice. Not called where there is nothing to
// rewrite. TRI_BAD_INPUT names what does not divide.
tri_status tri_pass_tensor_parallel(tri_arena *arena, const tri_graph *graph, const tri_mesh *mesh,
                                    int rank, const tri_tensor_parallel_options *options,
                                    tri_graph **out);
// Lets the input `input`, which the model reads as F32, arrive as U8: each block that reads it, or
// a view of it, begins with normalize_bytes. Does nothing if there is no such input.
tri_status tri_pass_bytes(tri_graph *graph, const char *input, const tri_pixel_scale *scale);
// When a fusion is tried: its nodes exist only then.
typedef enum tri_fusion_time {
    // Fusions of the forward pass: activations into the node that makes their input, ReLU and
    // dropout into max pooling, flatten into linear, log-softmax into NLL. Autodiff then sees only
    // the merged nodes, whose gradients are merged too.
    TRI_FUSE_BEFORE_AUTODIFF,
    // Fusions of the backward pass: the sum of two gradients into the node that makes one of them.
    TRI_FUSE_AFTER_AUTODIFF,
} tri_fusion_time;
// Merges nodes that the device computes in one go, by the table of fusions.c. A fusion is left out
// if the device has no kernel for a node that would change, with the types that the graph has when
// this is called. `device` NULL: every fusion is applied. Ends with a sweep.
tri_status tri_pass_fuse(tri_graph *graph, const tri_device_description *device,
                         tri_fusion_time time);
// Drops nodes whose outputs no node, metric or gradient reads, so that no kernel computes them.
tri_status tri_pass_sweep(tri_graph *graph);
// Gives every value the type in which it is computed and puts casts in between, by the table of
// precision.c. A parameter that kernels read in a half type keeps its stored type (info.dtype): the
// optimizer's masters have it, and its gradient too.
tri_status tri_pass_precision(tri_graph *graph, tri_precision precision);
// For training: adds the backward pass: the gradient of the loss's sum with respect to every
// trained parameter, one contribution (tri_gradient_add) for each block that reads it.
// TRI_BAD_INPUT when there is no loss or a parameter takes no part in it.
tri_status tri_pass_autodiff(tri_graph *graph);
// For orders that split the backward pass: moves its nodes that no other block waits for (gradients
// of parameters, mostly) into the phase WEIGHT, so that a pipeline can run them later.
tri_status tri_pass_split_backward(tri_graph *graph);
// Gives each value the layout in which its kernel makes it, and each parameter its home layout.
// Puts a reorder where a kernel wants to read another layout.
tri_status tri_pass_layout(tri_graph *graph, const tri_device_description *device);

// Whether the table of tensor_parallel_rules.c, or that of precision.c, has a row for the op. Every
// op that a model can use needs a row in both: an op that ranks cannot divide has one that says so,
// and so has an op that stays F32.
bool tri_pass_tensor_parallel_has(const tri_op *op);
bool tri_pass_precision_has(const tri_op *op);

#endif
