// The passes: rewrites of a graph, in the order in which they run (plan/program.c). A node is one
// use of an op; a block is a layer or a group of layers, whose nodes follow each other. Fusion runs
// before and after autodiff and last, and each time ends with a sweep, which removes nodes whose
// outputs nothing reads. The graph is verified after each pass. Read next: plan/locations.c, which
// assigns memory to the values of the final graph.
#ifndef TRIREME_PASS_PASS_H
#define TRIREME_PASS_PASS_H

#include "base/tree.h"
#include "device/device.h"
#include "mesh/mesh.h"
#include "tensor/pixels.h"

typedef struct tri_tensor_parallel_options {
    // The recipe's strategy.tensor: a map from patterns of layer names (`*`, `?`) to none, column
    // or row. These override the splits (how a layer's parameters are sliced) that the model sets.
    // NULL: not given.
    const tri_tree *layers;
    // Slices activations along the sequence between a row-parallel layer and the next
    // column-parallel one. Without this, all ranks would hold copies there, which take more memory
    // (Korthikanti et al. 2022).
    bool sequence_parallel;
    // Batch norm normalises over all replicas' micro-batches (trainer.sync_batchnorm). Each replica
    // then has one micro-batch in a step.
    bool sync_batch_norm;
} tri_tensor_parallel_options;

// Rewrites the graph that a model built into the graph of one rank of the mesh. Layers are sliced
// over the ranks of the tensor-parallel axis, with collective ops between them. With
// sync_batch_norm, batch norm is computed over all replicas. *out is made in `arena`; it is a copy
// of the graph if there is nothing to rewrite. Each parameter keeps its index, and its member
// `slice` says which slice of it this rank has. TRI_BAD_INPUT: some size cannot be divided; the
// message names it.
tri_status tri_pass_tensor_parallel(tri_arena *arena, const tri_graph *graph, const tri_mesh *mesh,
                                    int rank, const tri_tensor_parallel_options *options,
                                    tri_graph **out);
// Lets the input `input`, which the model reads as F32, arrive as U8. Each block that reads it, or
// a view of it, then begins with the op normalize_bytes, which makes F32 of it. Does nothing if
// there is no such input.
tri_status tri_pass_bytes(tri_graph *graph, const char *input, const tri_pixel_scale *scale);
// When a fusion is tried: before or after the pass that adds the backward nodes.
typedef enum tri_fusion_time {
    // Fusions of the forward pass: ReLU into batch norm, ReLU and dropout into max pooling, flatten
    // into linear, log-softmax into NLL. Autodiff then sees only the merged nodes, so that their
    // gradients are merged too.
    TRI_FUSE_BEFORE_AUTODIFF,
    // Fusions of the backward pass: a node that adds two gradients is merged into the node that
    // makes one of them.
    TRI_FUSE_AFTER_AUTODIFF,
    // Behind all passes but the layout's: maps into the products that they read.
    TRI_FUSE_LAST,
} tri_fusion_time;
// Merges nodes that the device can compute in one kernel, by the table in fusions.c. A fusion is
// not applied if the device has no kernel for a changed node; the device is asked for the types
// that tensors have when this pass runs. `device` NULL: every fusion is applied. Ends with a sweep.
tri_status tri_pass_fuse(tri_graph *graph, const tri_device_description *device,
                         tri_fusion_time time);
// Drops nodes whose outputs no node, metric, output of the model or gradient reads, so that no
// kernel computes them.
tri_status tri_pass_sweep(tri_graph *graph);
// Decides by the table in precision.c in which type each value is computed, and inserts casts. A
// parameter that kernels read in a half type is still stored in the type tri_parameter_info.dtype:
// the optimizer's master weights and the gradient have that type.
tri_status tri_pass_precision(tri_graph *graph, tri_precision precision);
// Adds the backward pass, for training: the gradient of the loss's sum with respect to every
// trained parameter. Each block that reads a parameter adds one contribution (tri_gradient_add).
// TRI_BAD_INPUT: there is no loss, or some parameter has no influence on it.
tri_status tri_pass_autodiff(tri_graph *graph);
// By value: whether it depends on a trained parameter, so that autodiff wants its gradient.
bool *pass_find_wanted(const tri_graph *graph);
// By value: whether it is computed of integers alone, as numbers of positions are.
bool *pass_find_of_integers(const tri_graph *graph);
// Replaces a linear layer, the cross-entropy of its scores and their gradients by one node that
// computes them chunk by chunk of rows, so that the scores of all rows are never in memory at once.
// Does so only where nothing else reads the scores, they are large, and the device has a kernel
// that keeps one chunk (tri_kernel_def.chunks_scores; `device` NULL: every kernel does). It runs
// after autodiff. It does not run if tri_pass_split_backward does, which needs the weight's
// gradient as a node of its own. Ends with a sweep.
tri_status tri_pass_chunk_loss(tri_graph *graph, const tri_device_description *device);
// Splits the backward pass, for pipeline orders that need this (zero-bubble): moves those of its
// nodes for which no other block waits (mostly gradients of parameters) into the phase WEIGHT, so
// that a pipeline can run them later.
tri_status tri_pass_split_backward(tri_graph *graph);
// Gives each value the layout in which its kernel writes it, and each parameter its home layout, in
// which it is kept between steps. Inserts a reorder where a kernel needs to read another layout.
tri_status tri_pass_layout(tri_graph *graph, const tri_device_description *device);

#endif
