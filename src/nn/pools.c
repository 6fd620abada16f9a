// The layers that pool: the largest or the mean of each window.
#include "graph/graph.h"
#include "ops/ops.h"

#include <trireme/nn.h>

tri_value tri_max_pool2d(tri_graph *graph, tri_value x, tri_pool2d_options o) {
    int64_t stride = o.stride ? o.stride : o.kernel;
    tri_max_pool2d_attr attr = {.kernel = {o.kernel, o.kernel},
                                .stride = {stride, stride},
                                .padding = {o.padding, o.padding}};
    return tri_node_add(graph, &tri_op_max_pool2d, &x, 1, &attr, "");
}

tri_value tri_avg_pool2d(tri_graph *graph, tri_value x, tri_pool2d_options o) {
    int64_t stride = o.stride ? o.stride : o.kernel;
    tri_avg_pool2d_attr attr = {.kernel = {o.kernel, o.kernel},
                                .stride = {stride, stride},
                                .padding = {o.padding, o.padding}};
    return tri_node_add(graph, &tri_op_avg_pool2d, &x, 1, &attr, "");
}

tri_value tri_adaptive_avg_pool2d(tri_graph *graph, tri_value x, int64_t size) {
    if (size < 1)
        tri_graph_fail(graph, "adaptive_avg_pool2d: the size must be at least 1, not %lld",
                       (long long)size);
    tri_avg_pool2d_attr attr = {.out = {size, size}};
    return tri_node_add(graph, &tri_op_avg_pool2d, &x, 1, &attr, "");
}
