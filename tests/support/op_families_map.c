// Builds random graphs of the general ops: functions of elements, with inputs that are broadcast,
// and products of matrices, both with their gradients; and reductions.
#include "ops/product_map.h"
#include "support/op_families.h"

#include <string.h>
#include <trireme/functions.h>

// The rows of the list, and expressions with a gradient in many steps or several outputs.
static const struct {
    const char *expression;
    double low, high; // where the inputs lie
} expressions[] = {
#define X(name, declared, values, parameters, expression, doc) {expression, 0.3, 3},
    TRI_FUNCTION_LIST(X)
#undef X
#define X(name, declared, values, parameters, expression, doc) {expression, 0.1, 0.9},
        TRI_LOSS_LIST(X)
#undef X
            {"x", -1, 1},
    {"a, b, c -> a * b + c", -1, 1},
    {"x * sigmoid(1.702 * x)", -6, 6},
    {"sigmoid(x)", -8, 8},
    {"tanh(x)", -8, 8},
    {"relu(x)", -1, 1},
    {"leaky_relu(x, 0.01)", -1, 1},
    {"x, slope -> leaky_relu(x, slope)", -1, 1},
    {"x * normal_cdf(x)", -6, 6},
    {"x * sigmoid(x * (1.595769121605730712 + 0.0713548162726002488 * (x * x)))", -6, 6},
    {"gate, up -> gate * sigmoid(gate) * up", -6, 6},
    {"dy, y -> dy * (y * (1 - y))", -1, 1},
    {"dy, y -> dy * (1 - y * y)", -1, 1},
    {"a, b, c, d, e -> a * b + sin(c) * d / (1 + e * e) - tanh(a * d)", -2, 2},
    {"a, b, c, d, e, f, g -> a + b * c - d * (e + f * g)", -1, 1},
    {"a, b, c, d, e, f, g, h -> a * b + sin(c) * d - e * f * g + 3 * h", -1, 1},
    {"a, b, c, d, e, f, g, h -> a * b, exp(c) * d + e, f * g - a, h + 2 * a", -1, 1},
    {"a, b, c, d, e -> a * b, c, d * a, tanh(e) * b", -1, 1},
    {"x -> x > 1 ? log(x) : expm1(x) * 2 - abs(x)", -5, 5},
    {"x, y -> atan(x) - atan(1e4 * y)", -6, 6},
    {"x, y -> x >= y && x != 0 || y < -1 ? erf(x) : cos(y)", -3, 3},
};

// The names of the first rows.
static const char *const names[] = {
#define X(name, declared, values, parameters, expression, doc) #name,
    TRI_FUNCTION_LIST(X)
#undef X
};

// Functions that have no value for some of these numbers.
static const struct {
    const char *name;
    double low, high;
} domains[] = {{"logit", 0.3, 0.9}, {"asin", 0.3, 0.9},    {"acos", 0.3, 0.9},
               {"atanh", 0.3, 0.9}, {"erfinv", -0.9, 0.9}, {"acosh", 1.2, 3}};

static tri_value numbers_of(op_case *c, int64_t row, tri_shape shape) {
    double low = expressions[row].low, high = expressions[row].high;
    for (size_t i = 0; i < sizeof domains / sizeof *domains; i++) {
        if (row >= (int64_t)(sizeof names / sizeof *names) || strcmp(domains[i].name, names[row]))
            continue;
        low = domains[i].low;
        high = domains[i].high;
    }
    return op_numbers(c, shape, low, high);
}

// Draws a shape that fits `shape`: the same, or with axes of size 1, or without the first axes.
static tri_shape fitting(op_case *c, const tri_shape *shape) {
    tri_shape fit = {0};
    if (op_chance(c, 40)) return *shape;
    for (int i = (int)op_draw(c, 0, shape->rank - 1); i < shape->rank; i++)
        fit.dims[fit.rank++] = op_chance(c, 40) ? 1 : shape->dims[i];
    return fit;
}

// Draws a view and the shape of an input that is read by it: axes of the output in any order, some
// of them left out, parts of an axis, in either direction, with zeros around it.
static tri_shape viewed(op_case *c, const tri_shape *out, tri_map_view *view) {
    int axes[TRI_MAX_RANK];
    tri_shape x = {0};
    for (int i = 0; i < out->rank; i++) axes[i] = i;
    for (int i = out->rank - 1; i > 0; i--) {
        int other = (int)op_draw(c, 0, i), axis = axes[i];
        axes[i] = axes[other];
        axes[other] = axis;
    }
    for (int i = 0; i < out->rank; i++) {
        if (op_chance(c, 20) && (x.rank > 0 || i + 1 < out->rank)) continue;
        bool fixed = op_chance(c, 10);
        int64_t size = fixed ? 3 : op_draw(c, 1, out->dims[axes[i]] + 2);
        view->axis[x.rank] = (int8_t)(fixed ? -1 : axes[i]);
        view->sign[x.rank] = op_chance(c, 30) ? -1 : 1;
        view->start[x.rank] = fixed ? op_draw(c, 0, 2) : op_draw(c, -2, size);
        x.dims[x.rank++] = size;
    }
    return x;
}

static tri_shape draw_shape(op_case *c) {
    tri_shape shape = {.rank = (int)op_draw(c, 1, 5)};
    for (int i = 0; i < shape.rank; i++) shape.dims[i] = op_draw(c, 1, shape.rank > 3 ? 5 : 9);
    if (op_chance(c, 20)) shape.dims[shape.rank - 1] = op_draw(c, 250, 600);
    return shape;
}

void op_build_map(op_case *c) {
    int rows = (int)(sizeof expressions / sizeof *expressions),
        others = 18; // those behind the list
    int row = (int)op_draw(c, op_chance(c, 50) ? rows - others : 0, rows - 1);
    tri_map_attr attr = {0};
    tri_shape shape = draw_shape(c);
    tri_value in[TRI_MAX_INPUTS], out_grads[TRI_MAX_OUTPUTS] = {{0}};
    tri_value in_grads[TRI_MAX_INPUTS] = {{0}};
    bool wanted[TRI_MAX_INPUTS];
    TRI_ASSERT(tri_formula_parse(expressions[row].expression, NULL, &attr.formula) == TRI_OK);
    attr.expands = op_chance(c, 60);
    attr.shape = shape;
    for (int k = 0; k < attr.formula.input_count; k++) {
        // Outside of an input there are zeros, at which not every function has a value.
        bool views = attr.expands && expressions[row].low < 0 && op_chance(c, 70);
        tri_shape x = views ? viewed(c, &shape, &attr.views[k]) : fitting(c, &shape);
        attr.viewed |= (int64_t)views << k;
        in[k] = numbers_of(c, row, x);
        // Random numbers, which are read as the input was.
        if (k == 0 || expressions[row].low > 0 || !op_chance(c, 20)) continue;
        attr.drawn |= (int64_t)1 << k;
        attr.draws[k] = (tri_map_draw){.kind = TRI_DRAW_UNIFORM + op_draw(c, 0, 1),
                                       .key = (uint64_t)op_draw(c, 0, 1 << 30),
                                       .p = 0.3,
                                       .shape = x};
        in[k] = op_position(c);
    }
    for (int k = 0; k < TRI_MAX_INPUTS; k++) wanted[k] = op_chance(c, 80) && !(attr.drawn >> k & 1);
    tri_value y = tri_node_add(c->graph, &tri_op_map, in, attr.formula.input_count, &attr, "");
    for (int k = 0; k < attr.formula.output_count; k++)
        if (k == 0 || op_chance(c, 70))
            out_grads[k] = op_numbers(c, tri_value_shape(c->graph, y), -1, 1);
    tri_node node = *tri_value_node(c->graph, y);
    node.op->gradient(c->graph, &node, out_grads, wanted, in_grads);
}

// Adds a reduction of a map, whose inputs are repeated, or read by views.
static void add_map_reduce(op_case *c, const tri_shape *shape, const tri_reduce_attr *reduce) {
    static const char *const formulas[] = {"x", "x, y -> x * y", "x, y -> max(x, y)",
                                           "x, y, z -> x * y - z", "x -> exp(x) - 1"};
    tri_map_reduce_attr attr = {.map = {.expands = true, .shape = *shape}, .reduce = *reduce};
    bool is_product = reduce->kind == TRI_REDUCTION_PROD;
    const char *text = formulas[op_draw(c, 0, is_product ? 1 : 4)];
    tri_value in[TRI_FORMULA_INPUTS];
    TRI_ASSERT(tri_formula_parse(text, NULL, &attr.map.formula) == TRI_OK);
    for (int k = 0; k < attr.map.formula.input_count; k++) {
        // A product of equal factors would add up their rounding.
        bool views = !is_product && op_chance(c, 30);
        tri_shape x = views ? viewed(c, shape, &attr.map.views[k]) : fitting(c, shape);
        if (is_product) x = *shape;
        attr.map.viewed |= (int64_t)views << k;
        in[k] = op_numbers(c, x, is_product ? 0.99 : -1, is_product ? 1.01 : 1);
    }
    tri_node_add(c->graph, &tri_op_map_reduce, in, attr.map.formula.input_count, &attr, "");
}

void op_build_reduce(op_case *c) {
    tri_shape shape = draw_shape(c);
    if (op_chance(c, 8)) // columns that are more than a kernel takes at a time
        shape = tri_shape_of(op_draw(c, 1, 3), op_draw(c, 2, 9), op_draw(c, 1000, 5000));
    if (op_chance(c, 3)) shape = tri_shape_of(1, op_draw(c, 4000, 20000));
    tri_reduce_attr attr = {.kind = op_draw(c, TRI_REDUCTION_SUM, TRI_REDUCTION_LOGSUMEXP),
                            .axes = op_draw(c, 0, (1 << shape.rank) - 1)};
    if (op_chance(c, 20)) shape.dims[0] = op_draw(c, 30, 300);
    bool is_product = attr.kind == TRI_REDUCTION_PROD;
    tri_value x = op_numbers(c, shape, is_product ? 0.98 : -1, is_product ? 1.02 : 1);
    tri_node_add(c->graph, &tri_op_reduce, &x, 1, &attr, "");
    tri_node_add(c->graph, &tri_op_mean_loss, &x, 1, NULL, "");
    if (attr.kind <= TRI_REDUCTION_PROD) add_map_reduce(c, &shape, &attr);
}

// Draws an order of axes whose last one in memory is an axis of the matrix.
static void draw_order(op_case *c, int rank, int k, tri_matmul_attr *attr) {
    int8_t *axes = attr->axes[k];
    int last = rank - 1 - (int)op_draw(c, 0, 1);
    for (int i = 0; i < rank; i++) axes[i] = (int8_t)i;
    if (op_chance(c, 30)) return;
    attr->permuted |= (int64_t)1 << k;
    for (int i = rank - 1; i > 0; i--) {
        int other = (int)op_draw(c, 0, i);
        int8_t axis = axes[i];
        axes[i] = axes[other];
        axes[other] = axis;
    }
    for (int i = 0; i < rank; i++) {
        if (axes[i] != rank - 1) continue;
        axes[i] = axes[last];
        axes[last] = (int8_t)(rank - 1);
        return;
    }
}

void op_build_matmul(op_case *c) {
    static const int64_t sizes[] = {1, 2, 3, 5, 8, 16, 17, 64, 70, 130};
    tri_matmul_attr attr = {.wide = op_chance(c, 20)};
    tri_shape shapes[2] = {{.rank = (int)op_draw(c, 2, 5)}};
    int rank = shapes[1].rank = shapes[0].rank;
    int64_t m = sizes[op_draw(c, 0, 9)], n = sizes[op_draw(c, 0, 9)], k = sizes[op_draw(c, 0, 9)];
    for (int i = 0; i < TRI_MATMUL_OPERANDS; i++) draw_order(c, rank, i, &attr);
    for (int i = 0; i < rank; i++) {
        int64_t size = op_draw(c, 1, rank > 3 ? 3 : 5);
        for (int x = 0; x < 2; x++) shapes[x].dims[attr.axes[x][i]] = op_chance(c, 25) ? 1 : size;
    }
    shapes[0].dims[attr.axes[0][rank - 2]] = m;
    shapes[0].dims[attr.axes[0][rank - 1]] = k;
    shapes[1].dims[attr.axes[1][rank - 2]] = k;
    shapes[1].dims[attr.axes[1][rank - 1]] = n;
    tri_value in[] = {op_numbers(c, shapes[0], -1, 1), op_numbers(c, shapes[1], -1, 1)};
    tri_value y = tri_node_add(c->graph, &tri_op_matmul, in, 2, &attr, "");
    tri_value out_grads[] = {op_numbers(c, tri_value_shape(c->graph, y), -1, 1)};
    tri_value in_grads[2] = {{0}};
    tri_node node = *tri_value_node(c->graph, y);
    node.op->gradient(c->graph, &node, out_grads, (bool[]){true, true}, in_grads);
}

// Draws a product of which a map may read the output. Returns how many inputs it has.
static int draw_product(op_case *c, tri_product_map_attr *attr, bool wide, tri_value *in,
                        tri_shape *y) {
    static const int64_t sizes[] = {1, 2, 7, 16, 64, 65, 130, 320, 600};
    int64_t rows = op_draw(c, 1, op_chance(c, 30) ? 70 : 9), inputs = sizes[op_draw(c, 0, 8)];
    int64_t features = sizes[op_draw(c, 0, 8)];
    tri_shape x = tri_shape_of(rows, 2, inputs), weight = tri_shape_of(features, inputs);
    attr->product = op_draw(c, TRI_PRODUCT_linear, TRI_PRODUCT_COUNT - 1);
    *y = tri_shape_of(rows, 2, features);
    if (attr->product == TRI_PRODUCT_matmul) {
        attr->of.matmul = (tri_matmul_attr){.wide = wide};
        bool heads = op_chance(c, 50); // rows of y lie further apart than they are long
        if (heads) {
            attr->of.matmul.permuted = 1 << TRI_MATMUL_Y | 1 << TRI_MATMUL_A;
            for (int i = 0; i < 3; i++) {
                int8_t axis = (int8_t)(i < 2 ? 1 - i : i);
                attr->of.matmul.axes[TRI_MATMUL_Y][i] = attr->of.matmul.axes[TRI_MATMUL_A][i] =
                    axis;
            }
        }
        in[0] = op_numbers(c, x, -1, 1);
        in[1] = op_numbers(c, tri_shape_of(heads ? 2 : rows, inputs, features), -1, 1);
        return 2;
    }
    in[1] = op_numbers(c, weight, -1, 1);
    if (attr->product == TRI_PRODUCT_linear_grad_input) {
        attr->of.linear_grad_input = (tri_linear_grad_attr){.axes = 1, .shape = x, .wide = wide};
        in[0] = op_numbers(c, *y, -1, 1);
        *y = x;
        return 2;
    }
    attr->of.linear = (tri_linear_attr){.axes = 1, .wide = wide};
    in[0] = op_numbers(c, x, -1, 1);
    if (op_chance(c, 50)) return 2;
    in[2] = op_numbers(c, tri_shape_of(features), -1, 1);
    return 3;
}

void op_build_product_map(op_case *c) {
    static const char *const formulas[] = {
        "relu(x)",
        "x, y -> x + y",
        "x * sigmoid(x)",
        "gate, up -> gate * sigmoid(gate) * up",
        "x -> x, exp(-x * x)",
        "gate, up, dy, s = sigmoid(gate) -> dy * up * s, dy * gate * s",
        "x, y, z -> max(x * y + z, 0) * 0.5",
    };
    tri_product_map_attr attr = {0};
    tri_value in[TRI_MAX_INPUTS] = {{0}};
    tri_shape y;
    TRI_ASSERT(tri_formula_parse(formulas[op_draw(c, 0, 6)], NULL, &attr.map.formula) == TRI_OK);
    bool wide = c->dtype == TRI_BF16 && op_chance(c, 20);
    int count = draw_product(c, &attr, wide, in, &y), inputs = attr.map.formula.input_count;
    attr.product_inputs = count;
    attr.reads = op_draw(c, 0, inputs - 1);
    attr.map.expands = true;
    attr.map.shape = y;
    for (int k = 0; k < inputs; k++) {
        tri_shape shape = op_chance(c, 60) ? y : fitting(c, &y);
        if (k != attr.reads)
            in[count++] = wide ? op_wide(c, shape, -1, 1) : op_numbers(c, shape, -1, 1);
    }
    tri_node_add(c->graph, &tri_op_product_map, in, count, &attr, "");
}
