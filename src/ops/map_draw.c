// Random numbers as inputs of the op map: where they come from, and the dropout, a map that devices
// have kernels of their own for.
#include "ops/ops.h"

#include <math.h>
#include <string.h>

static const char DROPOUT[] = "x, kept, scale = 2 -> kept ? x * scale : 0";

tri_draw_stream tri_map_stream_of(const tri_map_draw *draw) {
    tri_draw_stream stream = {.kind = draw->kind,
                              .key = draw->key,
                              .threshold = (uint64_t)ceil(draw->p * 0x1p32),
                              .elements = 1};
    for (int i = 1; i < draw->shape.rank; i++) stream.elements *= draw->shape.dims[i];
    return stream;
}

const tri_shape *tri_map_read_shape(const tri_map_attr *attr, int k, const tri_shape *x) {
    return attr->drawn >> k & 1 ? &attr->draws[k].shape : x;
}

static tri_status parse_dropout(double p, tri_formula *out) {
    double scale = p < 1 ? 1 / (1 - p) : 0;
    return tri_formula_parse(DROPOUT, &scale, out);
}

tri_map_attr tri_map_of_dropout(const tri_shape *shape, double p, uint64_t key) {
    tri_map_attr attr = {.drawn = 2};
    attr.draws[1] = (tri_map_draw){.kind = TRI_DRAW_KEEPS, .key = key, .p = p, .shape = *shape};
    tri_status status = parse_dropout(p, &attr.formula);
    TRI_ASSERT(status == TRI_OK);
    return attr;
}

// Finds which runs of each sample a slice of the shape `x` has. False: it is none along one axis.
static bool find_runs(const tri_map_attr *attr, const tri_shape *x, tri_map_dropout *out) {
    const tri_shape *full = &attr->draws[1].shape;
    const tri_map_view *view = &attr->views[1];
    int64_t behind = 1; // elements along the axes behind axis j
    if (full->rank != x->rank || x->rank < 1) return false;
    if (!(attr->viewed >> 1 & 1)) return tri_shape_equal(x, full);
    for (int j = x->rank - 1; j >= 0; behind *= full->dims[j--]) {
        if (view->axis[j] == j && view->sign[j] == 1 && view->start[j] == 0 &&
            x->dims[j] == full->dims[j])
            continue;
        bool inside = view->start[j] >= 0 && view->start[j] + x->dims[j] <= full->dims[j];
        if (j == 0 || out->run || view->axis[j] != j || view->sign[j] != 1 || !inside) return false;
        out->run = x->dims[j] * behind;
        out->stride = full->dims[j] * behind;
        out->first = view->start[j] * behind;
    }
    return true;
}

bool tri_map_is_dropout(const tri_graph *graph, const tri_node *node, tri_map_dropout *out) {
    const tri_map_attr *attr = node->attr;
    const tri_map_draw *draw = &attr->draws[1];
    tri_formula dropout;
    if (node->op != &tri_op_map || attr->drawn != 2 || draw->kind != TRI_DRAW_KEEPS) return false;
    tri_shape x = tri_value_shape(graph, node->inputs[0]);
    tri_shape y = tri_value_shape(graph, node->outputs[0]);
    *out = (tri_map_dropout){.p = draw->p, .key = draw->key};
    return !attr->mask && !(attr->viewed & 1) && tri_shape_equal(&x, &y) &&
           find_runs(attr, &x, out) && parse_dropout(draw->p, &dropout) == TRI_OK &&
           !memcmp(&dropout, &attr->formula, sizeof dropout);
}
