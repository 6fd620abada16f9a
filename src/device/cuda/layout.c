// Decides where the channels of an image lie in memory. Tensor cores read tensors whose channels
// lie side by side ("channels last"), and cuDNN copies any other tensor before and after each
// convolution. So convolutions that run on tensor cores ask for this layout, for images and
// weights. The kernels that stand between convolutions keep the layout that an image has.
// docs/decisions/0023-channels-last.md counts the bytes that this saves.
#include "device/cuda/internal.h"
#include "ops/product_map.h"
#include "tensor/half.h"

static const tri_layout channels_last = {.order = {0, 2, 3, 1}};

// Whether the plain (row-major) layout and channels last are the same for this shape: an image of
// one channel or one pixel, or no image at all.
static bool is_either(const tri_shape *shape) {
    return shape->rank != 4 || shape->dims[1] == 1 || shape->dims[2] * shape->dims[3] == 1;
}

tri_layout cuda_channels_last(const tri_shape *shape) {
    return is_either(shape) ? TRI_LAYOUT_PLAIN : channels_last;
}

bool cuda_rounds_to_tf32(const tri_device_description *device, const tri_graph *graph,
                         tri_dtype type) {
    return type == TRI_F32 && graph->options.tf32 && device->features & CUDA_HAS_BF16;
}

bool cuda_convolves_channels_last(const tri_device_description *device, const tri_graph *graph,
                                  const tri_node *node) {
    tri_dtype type = cuda_in_type(graph, node, 0);
    return device->features & CUDA_HAS_DNN &&
           (tri_dtype_is_half(type) || cuda_rounds_to_tf32(device, graph, type));
}

static bool is_channels_last(const tri_layout *layout) {
    return tri_layout_equal(layout, &channels_last);
}

bool cuda_is_channels_last(const tri_graph *graph, const tri_node *node) {
    for (int i = 0; i < node->input_count; i++)
        if (tri_value_is(node->inputs[i]) &&
            is_channels_last(&tri_value_get(graph, node->inputs[i])->layout))
            return true;
    for (int i = 0; i < node->output_count; i++)
        if (is_channels_last(&tri_value_get(graph, node->outputs[i])->layout)) return true;
    return false;
}

// Whether the node reads this value and wants it with its channels last. A convolution on tensor
// cores does. A cast does if a reader of its output does. Any other op does if one of its inputs,
// of the same shape as the value, already has this layout.
static bool reads_channels_last(const tri_device_description *device, const tri_graph *graph,
                                const tri_node *node, tri_value value) {
    const tri_shape *shape = &tri_value_get(graph, value)->shape;
    const tri_op *op = tri_product_op(node);
    bool reads = false, convolves = op == &tri_op_conv2d || op == &tri_op_conv2d_grad_input ||
                                    op == &tri_op_conv2d_grad_weight;
    for (int k = 0; k < node->input_count; k++) reads = reads || node->inputs[k].id == value.id;
    if (!reads) return false;
    if (convolves) return cuda_convolves_channels_last(device, graph, node);
    if (node->op == &tri_op_cast)
        return cuda_is_read_channels_last(device, graph, node->outputs[0]);
    for (int k = 0; k < node->input_count; k++) {
        if (!tri_value_is(node->inputs[k])) continue;
        const tri_value_info *other = tri_value_get(graph, node->inputs[k]);
        if (is_channels_last(&other->layout) && tri_shape_equal(&other->shape, shape)) return true;
    }
    return false;
}

bool cuda_is_read_channels_last(const tri_device_description *device, const tri_graph *graph,
                                tri_value value) {
    for (int i = 0; i < graph->pending_node_count; i++)
        if (reads_channels_last(device, graph, &graph->pending_nodes[i], value)) return true;
    return false;
}

// Whether the kernel of an op on images works with channels last; `in` has the current layouts of
// its inputs. It does if one of them is channels last. Inputs for which both layouts are the same
// (is_either) do not matter. If all inputs are of this kind, the nodes that read the outputs
// decide.
static bool works_channels_last(const tri_device_description *device, const tri_graph *graph,
                                const tri_node *node, const tri_layout *in) {
    bool is_open = true;
    for (int k = 0; k < node->input_count; k++) {
        if (!tri_value_is(node->inputs[k])) continue;
        if (is_channels_last(&in[k])) return true;
        is_open = is_open && is_either(&tri_value_get(graph, node->inputs[k])->shape);
    }
    for (int k = 0; is_open && k < node->output_count; k++)
        if (!is_either(&tri_value_get(graph, node->outputs[k])->shape) &&
            cuda_is_read_channels_last(device, graph, node->outputs[k]))
            return true;
    return false;
}

void cuda_layouts_of_images(const tri_device_description *device, const tri_graph *graph,
                            const tri_node *node, tri_layout *in, tri_layout *out) {
    bool is_last = works_channels_last(device, graph, node, in);
    for (int k = 0; k < node->input_count; k++)
        in[k] = is_last && tri_value_is(node->inputs[k])
                    ? cuda_channels_last(&tri_value_get(graph, node->inputs[k])->shape)
                    : TRI_LAYOUT_PLAIN;
    for (int k = 0; k < node->output_count; k++)
        out[k] = is_last ? cuda_channels_last(&tri_value_get(graph, node->outputs[k])->shape)
                         : TRI_LAYOUT_PLAIN;
}
