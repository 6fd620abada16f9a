// The layers that convolve.
#include "nn/layers.h"
#include "ops/ops.h"

#include <trireme/nn.h>

static int64_t or_one(int64_t value) { return value ? value : 1; }

tri_value tri_conv2d(tri_graph *graph, const char *name, tri_value x, tri_conv2d_options o) {
    if (!tri_layer_begin(graph, name)) return (tri_value){0};
    if (!tri_graph_check_input(graph, "conv2d", name, x)) return x;
    tri_shape shape = tri_value_shape(graph, x);
    int64_t groups = or_one(o.groups), stride = or_one(o.stride), dilation = or_one(o.dilation);
    if (shape.rank != 4 || o.channels < 1 || o.kernel < 1 || groups < 1 || shape.dims[1] % groups ||
        o.channels % groups) {
        char text[128];
        tri_graph_fail(graph,
                       "conv2d %s: needs [N, C, H, W] with C and channels divisible by groups, "
                       "not %s with channels %lld, kernel %lld, groups %lld",
                       name, tri_shape_text(&shape, text, sizeof text), (long long)o.channels,
                       (long long)o.kernel, (long long)groups);
        return (tri_value){0};
    }
    int64_t in = shape.dims[1] / groups;
    tri_init init = nn_fan_in_uniform(in * o.kernel * o.kernel);
    tri_value weight = tri_parameter(graph, nn_parameter_name(graph, name, "weight"),
                                     tri_shape_of(o.channels, in, o.kernel, o.kernel), init);
    tri_value bias = {0};
    if (!o.no_bias)
        bias = tri_parameter(graph, nn_parameter_name(graph, name, "bias"),
                             tri_shape_of(o.channels), init);
    tri_conv2d_attr attr = {.stride = {stride, stride},
                            .padding = {o.padding, o.padding},
                            .dilation = {dilation, dilation},
                            .groups = groups,
                            .direct = graph->options.direct_convolution};
    return tri_node_add(graph, &tri_op_conv2d, (tri_value[]){x, weight, bias}, 3, &attr, name);
}
