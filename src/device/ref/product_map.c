// A map of a product: the product, and then the map in its place.
#include "ops/product_map.h"

#include "device/ref/node.h"

#include <stdlib.h>

// By tri_product.
static const tri_kernel_def *const products[] = {
#define X(op, attr) &ref_##op,
    TRI_PRODUCT_LIST(X)
#undef X
};

typedef struct product_map_state {
    tri_product_map_attr attr;
    tri_kernel product, map;
} product_map_state;

static const tri_kernel_def *product_kernel(const tri_node *node) {
    return products[((const tri_product_map_attr *)node->attr)->product];
}

static tri_status product_map_workspace(const tri_device_description *device,
                                        const tri_graph *graph, const tri_node *node, size_t *out) {
    tri_node product, map;
    tri_product_map_split(node, &product, &map);
    return tri_kernel_workspace(product_kernel(node), device, graph, &product, out);
}

static void product_map_release(tri_kernel *kernel) {
    product_map_state *s = kernel->state;
    if (!s) return;
    ref_release(&s->product);
    ref_release(&s->map);
    free(s);
}

static tri_status product_map_prepare(tri_device *device, const tri_graph *graph,
                                      const tri_node *node, tri_kernel *kernel) {
    tri_node product, map;
    product_map_state *s = calloc(1, sizeof *s);
    if (!s) return TRI_FAIL(TRI_NO_MEMORY, "no memory for kernel %s", node->op->name);
    kernel->state = s;
    s->attr = *(const tri_product_map_attr *)node->attr;
    tri_product_map_split(node, &product, &map);
    TRI_TRY(ref_prepare(device, graph, &product, &s->product));
    s->product.def = product_kernel(node);
    return ref_prepare(device, graph, &map, &s->map);
}

static tri_status product_map_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const product_map_state *s = kernel->state;
    void *in[TRI_MAX_INPUTS], *map_in[TRI_FORMULA_INPUTS];
    tri_kernel_args product = *args, map = *args;
    tri_product_map_memory(&s->attr, args->in, args->out[0], in, map_in);
    product.in = in;
    map.in = map_in;
    TRI_TRY(s->product.def->run(&s->product, &product));
    return ref_map.run(&s->map, &map);
}

const tri_kernel_def ref_product_map = {.op = &tri_op_product_map,
                                        .name = "ref",
                                        .supports = ref_supports,
                                        .workspace = product_map_workspace,
                                        .prepare = product_map_prepare,
                                        .run = product_map_run,
                                        .release = product_map_release};
