// Divides loops among OpenMP threads. Also has what many kernels ask about a node, such as its
// types and shapes.
#include "device/cpu/internal.h"
#include "device/cpu/pace.h"

#include <omp.h>

void cpu_use_threads(const tri_device_description *device) {
    // OpenMP keeps the number of threads for each calling thread, and the calling thread need not
    // be the one that opened the device.
    if (omp_get_max_threads() != device->threads) omp_set_num_threads(device->threads);
}

void cpu_parallel(const cpu_device *device, int64_t count, int64_t grain, cpu_range range,
                  void *context) {
    if (count <= 0) return;
    static _Thread_local cpu_pace pace;
    int64_t range_count = device->head.description.threads;
    if (range_count == 1 || count < 2 * grain) {
        range(context, 0, count, 0);
        return;
    }
    if (cpu_pace_is_alone(&pace)) {
        for (int64_t i = 0; i < range_count; i++)
            range(context, count * i / range_count, count * (i + 1) / range_count, (int)i);
        return;
    }
#pragma omp parallel for num_threads((int)range_count) schedule(static, 1)
    for (int64_t range_index = 0; range_index < range_count; range_index++)
        range(context, count * range_index / range_count, count * (range_index + 1) / range_count,
              (int)range_index);
}

bool cpu_is_f32(const tri_device_description *device, const tri_graph *graph,
                const tri_node *node) {
    return tri_value_get(graph, node->inputs[0])->dtype == TRI_F32 &&
           !tri_node_has_half(graph, node);
}

bool cpu_has_avx512_f32(const tri_device_description *device, const tri_graph *graph,
                        const tri_node *node) {
    return cpu_has(device, CPU_HAS_AVX512) && cpu_is_f32(device, graph, node);
}

bool cpu_is_bf16(const tri_graph *graph, const tri_node *node) {
    return tri_value_get(graph, node->inputs[0])->dtype == TRI_BF16;
}

bool cpu_is_float(const tri_device_description *device, const tri_graph *graph,
                  const tri_node *node) {
    return cpu_is_f32(device, graph, node) || cpu_is_bf16(graph, node);
}

bool cpu_has_avx512_float(const tri_device_description *device, const tri_graph *graph,
                          const tri_node *node) {
    return cpu_has(device, CPU_HAS_AVX512) && cpu_is_float(device, graph, node);
}

const tri_shape *cpu_in_shape(const tri_graph *graph, const tri_node *node, int input) {
    return &tri_value_get(graph, node->inputs[input])->shape;
}

const tri_shape *cpu_out_shape(const tri_graph *graph, const tri_node *node, int output) {
    return &tri_value_get(graph, node->outputs[output])->shape;
}

void cpu_layouts_of_first(const tri_device_description *device, const tri_graph *graph,
                          const tri_node *node, tri_layout *in, tri_layout *out) {
    const tri_shape *shape = cpu_in_shape(graph, node, 0);
    for (int i = 1; i < node->input_count; i++) {
        bool like =
            tri_value_is(node->inputs[i]) && tri_shape_equal(cpu_in_shape(graph, node, i), shape);
        in[i] = like ? in[0] : TRI_LAYOUT_PLAIN;
    }
    for (int i = 0; i < node->output_count; i++) {
        bool like = tri_shape_equal(cpu_out_shape(graph, node, i), shape);
        out[i] = like ? in[0] : TRI_LAYOUT_PLAIN;
    }
}
