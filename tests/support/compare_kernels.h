// Runs one node of a graph on the reference device `ref` and on `cpu` with the same numbers and
// compares the results. Outputs and workspace are filled with NaN first, so that a test fails if a
// kernel does not write an element, or reads one that it has not written. For inclusion by test
// programs.
#ifndef TRIREME_TESTS_COMPARE_KERNELS_H
#define TRIREME_TESTS_COMPARE_KERNELS_H

#include "device/cpu/cpu.h"
#include "device/ref/ref.h"
#include "ops/ops.h"
#include "tensor/half.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// The tests' own random generator, so that a failure can be repeated.
static uint64_t compare_seed = 1;

static inline uint32_t compare_random(void) {
    compare_seed = compare_seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(compare_seed >> 33);
}
static inline int64_t compare_between(int64_t low, int64_t high) {
    return low + (int64_t)(compare_random() % (uint64_t)(high - low + 1));
}
static inline float compare_value(void) { return (float)(compare_random() % 20001) / 1e4f - 1; }

typedef struct compare_case {
    tri_arena *arena;
    tri_graph *graph;
    tri_device *ref, *cpu;
    // The largest allowed difference of two elements, divided by the largest element of the tensor.
    double tolerance;
    const char *kernel; // set by compare_run: name of the kernel that the device chose
    // Set by compare_run: the layouts that this kernel chose for its outputs.
    tri_layout out_layout[TRI_MAX_OUTPUTS];
} compare_case;

static inline compare_case compare_open(int threads) {
    compare_case c = {.arena = tri_arena_create(NULL, "compare"), .tolerance = 1e-5};
    c.graph = tri_graph_create(c.arena, &(tri_graph_options){.training = true});
    tri_block(c.graph, "block");
    assert_int_equal(tri_device_ref.open(&(tri_device_config){0}, &c.ref), TRI_OK);
    assert_int_equal(tri_device_cpu.open(&(tri_device_config){.threads = threads}, &c.cpu), TRI_OK);
    return c;
}

static inline void compare_close(compare_case *c) {
    tri_device_ref.close(c->ref);
    tri_device_cpu.close(c->cpu);
    tri_arena_destroy(c->arena);
}

static inline tri_value compare_input(compare_case *c, tri_dtype dtype, tri_shape shape) {
    static int number;
    return tri_input(c->graph, tri_arena_printf(c->arena, "x%d", number++), dtype, shape);
}

static inline void *compare_alloc(size_t bytes) {
    void *memory = aligned_alloc(64, (bytes + 127) / 64 * 64);
    memset(memory, 0xFF, (bytes + 127) / 64 * 64); // these bytes are NaN in F32 and F64
    return memory;
}

// Allocates row-major memory for a value and fills it with random numbers: F32, F64 and BF16 by
// compare_value, integers (labels, positions) from 0 to `limit`.
static inline void *compare_fill(const tri_value_info *info, int64_t limit) {
    int64_t count = tri_shape_count(&info->shape);
    void *plain = compare_alloc((size_t)count * tri_dtype_bytes(info->dtype));
    for (int64_t i = 0; i < count; i++) {
        if (info->dtype == TRI_F32) ((float *)plain)[i] = compare_value();
        if (info->dtype == TRI_F64) ((double *)plain)[i] = (double)compare_value();
        if (info->dtype == TRI_BF16) ((uint16_t *)plain)[i] = tri_float_to_bf16(compare_value());
        if (info->dtype == TRI_I64) ((int64_t *)plain)[i] = compare_between(0, limit);
        if (info->dtype == TRI_U8) ((uint8_t *)plain)[i] = (uint8_t)compare_between(0, limit);
    }
    return plain;
}

static inline void *compare_to_layout(const tri_layout *layout, const tri_value_info *info,
                                      const void *plain) {
    size_t bytes = tri_dtype_bytes(info->dtype);
    size_t size = (size_t)tri_layout_elements(layout, &info->shape) * bytes;
    void *memory = compare_alloc(size);
    memset(memory, 0, size);
    tri_layout_from_plain(layout, &info->shape, bytes, plain, memory, 0,
                          tri_shape_count(&info->shape));
    return memory;
}

// Copies the node's outputs from the kernel's layouts to row-major memory, which the caller frees.
static inline void compare_outputs(const compare_case *c, const tri_node *node,
                                   const tri_layout *layouts, void *const *data, void **plain) {
    for (int i = 0; i < node->output_count; i++) {
        const tri_value_info *info = tri_value_get(c->graph, node->outputs[i]);
        size_t bytes = tri_dtype_bytes(info->dtype);
        int64_t count = tri_shape_count(&info->shape);
        plain[i] = compare_alloc((size_t)count * bytes);
        tri_layout_to_plain(&layouts[i], &info->shape, bytes, data[i], plain[i], 0, count);
    }
}

// Runs a kernel a second time, into the outputs and workspace that its first run left. Its results
// have to be those of the first run, bit for bit.
static inline void compare_again(const compare_case *c, const tri_node *node,
                                 const tri_kernel *kernel, const tri_kernel_args *args,
                                 const tri_layout *layouts, void *const *first) {
    void *second[TRI_MAX_OUTPUTS] = {0};
    assert_int_equal(kernel->def->run(kernel, args), TRI_OK);
    compare_outputs(c, node, layouts, args->out, second);
    for (int i = 0; i < node->output_count; i++) {
        const tri_value_info *info = tri_value_get(c->graph, node->outputs[i]);
        size_t bytes = (size_t)tri_shape_count(&info->shape) * tri_dtype_bytes(info->dtype);
        assert_memory_equal(first[i], second[i], bytes);
        free(second[i]);
    }
}

static inline void compare_run(tri_device *device, compare_case *c, const tri_node *node,
                               void *const *plain_in, void **plain_out, void **plain_updated) {
    const tri_kernel_def *def = tri_device_select(&device->description, c->graph, node);
    assert_non_null(def);
    tri_layout in[TRI_MAX_INPUTS], out[TRI_MAX_OUTPUTS];
    for (int i = 0; i < node->input_count; i++)
        in[i] = tri_value_get(c->graph, node->inputs[i])->layout;
    tri_kernel_layouts(def, &device->description, c->graph, node, in, out);
    void *in_data[TRI_MAX_INPUTS] = {0}, *out_data[TRI_MAX_OUTPUTS] = {0};
    tri_layout before[TRI_MAX_INPUTS];
    for (int i = 0; i < node->input_count; i++) {
        if (!tri_value_is(node->inputs[i])) continue;
        tri_value_info *info = &c->graph->values[node->inputs[i].id];
        before[i] = info->layout;
        info->layout = in[i];
        in_data[i] = compare_to_layout(&in[i], info, plain_in[i]);
    }
    for (int i = 0; i < node->output_count; i++) {
        tri_value_info *info = &c->graph->values[node->outputs[i].id];
        info->layout = out[i];
        out_data[i] = compare_alloc((size_t)tri_layout_elements(&out[i], &info->shape) *
                                    tri_dtype_bytes(info->dtype));
    }
    tri_kernel kernel;
    assert_int_equal(tri_kernel_prepare(def, device, c->graph, node, &kernel), TRI_OK);
    void *workspace = compare_alloc(kernel.workspace_bytes);
    tri_queue queue = {device}; // enough for a device whose calls return when their work is done
    tri_kernel_args args = {
        .queue = &queue, .in = in_data, .out = out_data, .workspace = workspace};
    assert_int_equal(def->run(&kernel, &args), TRI_OK);
    compare_outputs(c, node, out, out_data, plain_out);
    // A node without outputs updates its inputs, so it cannot run again with the same inputs.
    if (node->output_count) compare_again(c, node, &kernel, &args, out, plain_out);
    tri_kernel_release(&kernel);
    free(workspace);
    for (int i = 0; i < node->output_count; i++) free(out_data[i]);
    for (int i = 0; i < node->input_count; i++) {
        if (!tri_value_is(node->inputs[i])) continue;
        tri_value_info *info = &c->graph->values[node->inputs[i].id];
        size_t bytes = tri_dtype_bytes(info->dtype);
        int64_t count = tri_shape_count(&info->shape);
        plain_updated[i] = compare_alloc((size_t)count * bytes);
        tri_layout_to_plain(&in[i], &info->shape, bytes, in_data[i], plain_updated[i], 0, count);
        free(in_data[i]);
        info->layout = before[i];
    }
    c->kernel = def->name;
    memcpy(c->out_layout, out, sizeof out);
}

static inline double compare_number(const tri_value_info *info, const void *data, int64_t i) {
    if (info->dtype == TRI_F32) return (double)((const float *)data)[i];
    if (info->dtype == TRI_F64) return ((const double *)data)[i];
    if (info->dtype == TRI_BF16) return (double)tri_bf16_to_float(((const uint16_t *)data)[i]);
    if (info->dtype == TRI_I64) return (double)((const int64_t *)data)[i];
    return ((const uint8_t *)data)[i];
}

static inline void compare_values(const compare_case *c, const tri_value_info *info,
                                  const void *expected, const void *actual, const char *what) {
    int64_t count = tri_shape_count(&info->shape);
    double largest = 1e-3;
    for (int64_t i = 0; i < count; i++)
        largest = fmax(largest, fabs(compare_number(info, expected, i)));
    for (int64_t i = 0; i < count; i++) {
        double a = compare_number(info, expected, i), b = compare_number(info, actual, i);
        if (fabs(a - b) <= c->tolerance * largest) continue;
        char shape[128];
        fail_msg("%s %s (kernel %s) differs at %lld: ref %.9g, cpu %.9g (largest %.3g)", what,
                 tri_shape_text(&info->shape, shape, sizeof shape), c->kernel, (long long)i, a, b,
                 largest);
    }
}

// Runs the last node of the graph on both devices and compares the results. The node's inputs are
// random numbers, in integer inputs from 0 to `limit`. If plain_in[i] is not NULL, input i is
// plain_in[i] (row-major) instead, which still belongs to the caller. Frees all other inputs and
// the results.
static inline void compare_last_node(compare_case *c, void *const *plain_in, int64_t limit) {
    const char *message = "";
    if (tri_graph_status(c->graph, &message) != TRI_OK) fail_msg("%s", message);
    const tri_node *node = &c->graph->nodes[c->graph->node_count - 1];
    void *in[TRI_MAX_INPUTS] = {0}, *expected[TRI_MAX_OUTPUTS], *actual[TRI_MAX_OUTPUTS];
    void *expected_in[TRI_MAX_INPUTS] = {0}, *actual_in[TRI_MAX_INPUTS] = {0};
    for (int i = 0; i < node->input_count; i++) {
        if (!tri_value_is(node->inputs[i])) continue;
        in[i] = plain_in && plain_in[i]
                    ? plain_in[i]
                    : compare_fill(tri_value_get(c->graph, node->inputs[i]), limit);
    }
    compare_run(c->ref, c, node, in, expected, expected_in);
    compare_run(c->cpu, c, node, in, actual, actual_in);
    for (int i = 0; i < node->output_count; i++) {
        char what[64];
        snprintf(what, sizeof what, "%s: output %d", node->op->name, i);
        compare_values(c, tri_value_get(c->graph, node->outputs[i]), expected[i], actual[i], what);
        free(expected[i]);
        free(actual[i]);
    }
    for (int i = 0; i < node->input_count; i++) {
        if (!tri_value_is(node->inputs[i])) continue;
        char what[64];
        snprintf(what, sizeof what, "%s: input %d", node->op->name, i);
        if (node->op->flags & TRI_OP_UPDATE)
            compare_values(c, tri_value_get(c->graph, node->inputs[i]), expected_in[i],
                           actual_in[i], what);
        free(expected_in[i]);
        free(actual_in[i]);
        if (!(plain_in && plain_in[i])) free(in[i]);
    }
}

#endif
