// The op product_map: a product and a map of its output. The kernel of the product calls the map on
// elements that it has just stored, which are still in a cache. The bits are those of the two
// kernels one after the other.
#include "device/cpu/product_map.h"

#include "device/cpu/map.h"
#include "ops/product_map.h"

#include <stdlib.h>

// Of the kernels of an op, the faster one comes first, as in CPU_KERNEL_LIST.
#define CONVOLUTIONS(op)                                                                           \
    {&cpu_##op##_winograd_avx512, cpu_winograd_compute_avx512},                                    \
        {&cpu_##op##_winograd_avx2, cpu_winograd_compute_avx2},                                    \
        {&cpu_##op##_blocked, cpu_conv_compute}, {&cpu_##op##_one_output, cpu_one_output_compute}, \
        {&cpu_##op##_depthwise, cpu_depthwise_compute}, {&cpu_##op##_grouped, cpu_conv_compute}, { \
        &cpu_##op##_plain, cpu_conv_compute                                                        \
    }

static const struct {
    const tri_kernel_def *def;
    cpu_product_compute *compute;
} products[] = {
    CONVOLUTIONS(conv2d),
    CONVOLUTIONS(conv2d_grad_input),
    {&cpu_linear_bf16, cpu_linear_bf16_compute},
    {&cpu_linear_bf16_grad_input, cpu_linear_bf16_compute},
    {&cpu_linear_forward, cpu_linear_compute},
    {&cpu_linear_grad_input, cpu_linear_compute},
    {&cpu_matmul_items, cpu_matmul_compute},
};
enum { PRODUCTS = sizeof products / sizeof *products };

// Room for a map of the longest formula, in floats. It lies on the stack of a thread, because
// kernels of products do not know the numbers of their threads.
enum {
    MOST_ROOM = TRI_OPERAND_CONSTANT * CPU_MAP_BLOCK +
                (TRI_FORMULA_INPUTS + TRI_FORMULA_OUTPUTS) * CPU_MAP_TILE
};

typedef struct product_map_state {
    tri_product_map_attr attr;
    cpu_product_compute *compute;
    tri_kernel product;
    cpu_compiled compiled; // with a range: computes the map
    cpu_map map;
} product_map_state;

// Finds the kernel of the product; PRODUCTS: there is none.
static int find_product(const tri_device_description *device, const tri_graph *graph,
                        const tri_node *product) {
    int k = 0;
    while (k < PRODUCTS && (products[k].def->op != product->op ||
                            !products[k].def->supports(device, graph, product)))
        k++;
    return k;
}

static bool product_map_supports(const tri_device_description *device, const tri_graph *graph,
                                 const tri_node *node) {
    tri_node product, map;
    bool mixed;
    tri_product_map_split(node, &product, &map);
    tri_dtype type = tri_map_plan_type(graph, &map, &mixed);
    // What a convolution makes may lie in blocks of channels, and other inputs of the map do not.
    bool convolves = product.op == &tri_op_conv2d || product.op == &tri_op_conv2d_grad_input;
    return (type == TRI_F32 || type == TRI_BF16) && !(convolves && map.input_count > 1) &&
           find_product(device, graph, &product) < PRODUCTS;
}

static void product_map_layouts(const tri_device_description *device, const tri_graph *graph,
                                const tri_node *node, tri_layout *in, tri_layout *out) {
    tri_node product, map;
    tri_product_map_split(node, &product, &map);
    tri_kernel_layouts(products[find_product(device, graph, &product)].def, device, graph, &product,
                       in, out);
    for (int k = 1; k < node->output_count; k++)
        out[k] = k < map.output_count ? out[0] : TRI_LAYOUT_PLAIN;
    for (int k = (int)((const tri_product_map_attr *)node->attr)->product_inputs;
         k < node->input_count; k++)
        in[k] = TRI_LAYOUT_PLAIN;
}

static tri_status product_map_workspace(const tri_device_description *device,
                                        const tri_graph *graph, const tri_node *node, size_t *out) {
    tri_node product, map;
    tri_product_map_split(node, &product, &map);
    return tri_kernel_workspace(products[find_product(device, graph, &product)].def, device, graph,
                                &product, out);
}

static tri_status product_map_prepare(tri_device *device, const tri_graph *graph,
                                      const tri_node *node, tri_kernel *kernel) {
    tri_node product, map;
    product_map_state *s = calloc(1, sizeof *s);
    if (!s) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a map of a product");
    kernel->state = s;
    s->attr = *(const tri_product_map_attr *)node->attr;
    tri_product_map_split(node, &product, &map);
    int found = find_product(&device->description, graph, &product);
    s->compute = products[found].compute;
    s->compiled = cpu_compiled_of(cpu_of(device), graph, &map);
    cpu_map_make(cpu_of(device), graph, &map, &s->map);
    s->map.streams = false; // what the product has stored is in a cache
    s->product.def = products[found].def;
    return s->product.def->prepare(device, graph, &product, &s->product);
}

static bool product_map_is_winograd(const tri_graph *graph, const tri_node *node) {
    tri_node product, map;
    tri_product_map_split(node, &product, &map);
    for (int k = 0; k < PRODUCTS; k++) {
        const tri_kernel_def *def = products[k].def;
        if (def->op == product.op && def->is_winograd && def->is_winograd(graph, &product))
            return true;
    }
    return false;
}

// What the kernel of the product calls for elements that it has stored.
typedef struct map_call {
    const product_map_state *state;
    const tri_kernel_args *args; // of the map
    cpu_compiled_job job;
} map_call;

static void run_compiled(const void *context, int64_t begin, int64_t stride, int64_t rows,
                         int64_t count) {
    const map_call *call = context;
    cpu_compiled_job job = call->job;
    for (int64_t i = 0; i < rows; i++, begin += stride)
        call->state->compiled.range(&job, begin, begin + count, 0);
}

static void run_steps(const void *context, int64_t begin, int64_t stride, int64_t rows,
                      int64_t count) {
    const map_call *call = context;
    float room[MOST_ROOM] __attribute__((aligned(64)));
    cpu_map_work w = cpu_map_begin(&call->state->map, call->args, room);
    for (int64_t i = 0; i < rows; i++, begin += stride) cpu_map_compute(&w, begin, begin + count);
}

static tri_status product_map_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const product_map_state *s = kernel->state;
    void *in[TRI_MAX_INPUTS], *map_in[TRI_FORMULA_INPUTS];
    tri_kernel_args product = *args, map = *args;
    tri_product_map_memory(&s->attr, args->in, args->out[0], in, map_in);
    product.in = in;
    map.in = map_in;
    map_call call = {.state = s, .args = &map};
    cpu_finish finish = {.run = run_steps, .context = &call};
    if (s->compiled.range) {
        cpu_compiled_begin(&s->compiled, &s->attr.map.formula, &map, &call.job);
        finish.run = run_compiled;
    }
    return s->compute(&s->product, &product, &finish);
}

static void product_map_release(tri_kernel *kernel) {
    product_map_state *s = kernel->state;
    if (s && s->product.def) s->product.def->release(&s->product);
    free(s);
}

const tri_kernel_def cpu_product_map_tiles = {
    .op = &tri_op_product_map,
    .name = "product-map",
    .supports = product_map_supports,
    .layouts = product_map_layouts,
    .workspace = product_map_workspace,
    .prepare = product_map_prepare,
    .run = product_map_run,
    .is_winograd = product_map_is_winograd,
    .release = product_map_release,
};
