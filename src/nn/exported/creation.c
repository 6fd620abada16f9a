// Operations that make tensors: of one number, of counted numbers, or random ones.
#include "nn/exported/build.h"

#include <math.h>
#include <trireme/more_layers.h>
#include <trireme/nn.h>

static exported_value filled(exported_call *c, int sizes, double value) {
    int64_t list[EXPORTED_MAX_RANK];
    int rank = exported_ints(c, sizes, list, EXPORTED_MAX_RANK);
    return exported_host_fill(c->build, list, rank, value, exported_result_type(c, 0));
}

static exported_value filled_like(exported_call *c, double value) {
    exported_value x = exported_operand(c, 0);
    int64_t sizes[EXPORTED_MAX_RANK];
    int rank = exported_rank(c->build, &x);
    for (int i = 0; i < rank; i++) sizes[i] = exported_size(c->build, &x, i);
    return exported_host_fill(c->build, sizes, rank, value, exported_result_type(c, 0));
}

static void zeros(exported_call *c) { exported_give(c, filled(c, 0, 0)); }
static void ones(exported_call *c) { exported_give(c, filled(c, 0, 1)); }
static void full(exported_call *c) { exported_give(c, filled(c, 0, exported_real(c, 1))); }
static void new_zeros(exported_call *c) { exported_give(c, filled(c, 1, 0)); }
static void new_ones(exported_call *c) { exported_give(c, filled(c, 1, 1)); }
static void new_full(exported_call *c) { exported_give(c, filled(c, 1, exported_real(c, 2))); }
static void zeros_like(exported_call *c) { exported_give(c, filled_like(c, 0)); }
static void ones_like(exported_call *c) { exported_give(c, filled_like(c, 1)); }
static void full_like(exported_call *c) { exported_give(c, filled_like(c, exported_real(c, 1))); }

static void scalar(exported_call *c) {
    exported_give(
        c, exported_host_fill(c->build, NULL, 0, exported_real(c, 0), exported_result_type(c, 0)));
}

static void arange(exported_call *c) {
    double start = exported_is_none(c, 0) ? 0 : exported_real(c, 0), end = exported_real(c, 1),
           step = exported_real(c, 2), *data;
    int64_t count = step != 0 ? (int64_t)ceil((end - start) / step) : -1;
    if (count < 0 || isnan(step)) {
        exported_fail(c, "there are no numbers from %g to %g by %g", start, end, step);
        return;
    }
    exported_value v = exported_host_new(c->build, &count, 1, exported_result_type(c, 0), &data);
    for (int64_t i = 0; v.kind == EXPORTED_HOST && i < count; i++)
        data[i] = start + (double)i * step;
    v.is_sized = exported_is_sized(c, 0);
    exported_give(c, v);
}

static void linspace(exported_call *c) {
    double start = exported_real(c, 0), end = exported_real(c, 1), *data;
    int64_t count = exported_int(c, 2);
    exported_value v = exported_host_new(c->build, &count, 1, exported_result_type(c, 0), &data);
    for (int64_t i = 0; v.kind == EXPORTED_HOST && i < count; i++)
        data[i] = count > 1 ? start + (end - start) * (double)i / (double)(count - 1) : start;
    exported_give(c, v);
}

static void eye(exported_call *c) {
    int64_t n = exported_int(c, 0), sizes[] = {n, exported_is_none(c, 1) ? n : exported_int(c, 1)};
    double *data;
    exported_value v = exported_host_new(c->build, sizes, 2, exported_result_type(c, 0), &data);
    for (int64_t i = 0; v.kind == EXPORTED_HOST && i < sizes[0] && i < sizes[1]; i++)
        data[i * sizes[1] + i] = 1;
    exported_give(c, v);
}

// Random numbers are named by their module, which tri_layer_count counts.
static const char *name_of(exported_call *c) {
    tri_graph *g = c->build->graph;
    const char *name = tri_name(g, "%s.random", *c->node->call ? c->node->call : "network");
    return tri_name(g, "%s.%lld", name, (long long)tri_layer_count(g, name));
}

// Stochastic depth draws for each sample whether a layer counts, with the probability p that it
// does, and divides by p. In evaluation every layer counts: p in place of a draw.
static void bernoulli(exported_call *c) {
    exported_value shape = filled_like(c, exported_real(c, 1));
    if (!tri_training(c->build->graph)) {
        exported_give(c, shape);
        return;
    }
    shape.name = tri_name(c->build->graph, "bernoulli.%.17g", exported_real(c, 1));
    shape.dtype = TRI_PT2_FLOAT32;
    exported_give_graph(
        c, tri_bernoulli(c->build->graph, name_of(c), exported_as_graph(c->build, &shape)));
}

static void random_like(exported_call *c, tri_value (*draw)(tri_graph *, const char *, tri_value)) {
    exported_value shape = filled_like(c, 0);
    shape.name = "random";
    shape.dtype = TRI_PT2_FLOAT32;
    exported_give_graph(c, draw(c->build->graph, name_of(c), exported_as_graph(c->build, &shape)));
}

static void randn_like(exported_call *c) { random_like(c, tri_randn_like); }
static void rand_like(exported_call *c) { random_like(c, tri_rand_like); }

// Random numbers of the sizes of argument `sizes`, -1: of the first argument's. The first axis has
// to be that of the samples.
static tri_value drawn(exported_call *c, int sizes,
                       tri_value (*draw)(tri_graph *, const char *, tri_value)) {
    exported_value shape = sizes < 0 ? filled_like(c, 0) : filled(c, sizes, 0);
    shape.name = "random";
    shape.dtype = TRI_PT2_FLOAT32;
    return draw(c->build->graph, name_of(c), exported_as_graph(c->build, &shape));
}

static void randn(exported_call *c) { exported_give_graph(c, drawn(c, 0, tri_randn_like)); }
static void rand_of(exported_call *c) { exported_give_graph(c, drawn(c, 0, tri_rand_like)); }

// self mean std
static void normal(exported_call *c) {
    tri_graph *g = c->build->graph;
    const char *formula =
        tri_name(g, "x -> %.17g + %.17g * x", exported_real(c, 1), exported_real(c, 2));
    exported_give_graph(c, tri_map(g, formula, drawn(c, -1, tri_randn_like)));
}

// self from to
static void uniform(exported_call *c) {
    tri_graph *g = c->build->graph;
    double from = exported_real(c, 1);
    const char *formula = tri_name(g, "x -> %.17g + %.17g * x", from, exported_real(c, 2) - from);
    exported_give_graph(c, tri_map(g, formula, drawn(c, -1, tri_rand_like)));
}

// self lambd
static void exponential(exported_call *c) {
    tri_graph *g = c->build->graph;
    const char *formula = tri_name(g, "x -> -log1p(-x) / %.17g", exported_real(c, 1));
    exported_give_graph(c, tri_map(g, formula, drawn(c, -1, tri_rand_like)));
}

// low high size
static void randint(exported_call *c) {
    int64_t sizes[EXPORTED_MAX_RANK];
    tri_shape shape = {.rank = exported_ints(c, 2, sizes, TRI_MAX_RANK)};
    for (int i = 0; i < shape.rank; i++) shape.dims[i] = sizes[i];
    exported_give_graph(c, tri_randint(c->build->graph, name_of(c), shape,
                                       exported_is_none(c, 0) ? 0 : exported_int(c, 0),
                                       exported_int(c, 1)));
}

static void bernoulli_of(exported_call *c) {
    exported_give_graph(c, tri_bernoulli(c->build->graph, name_of(c), exported_tensor(c, 0)));
}

// The rows and columns of a triangle's elements: row column offset.
static void triangle_places(exported_call *c, bool upper) {
    int64_t rows = exported_int(c, 0), columns = exported_int(c, 1), offset = exported_int(c, 2),
            sizes[] = {2, 0}, next = 0;
    double *data;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) sizes[1] += upper ? j - i >= offset : j - i <= offset;
    exported_value v = exported_host_new(c->build, sizes, 2, exported_result_type(c, 0), &data);
    for (int64_t i = 0; v.kind == EXPORTED_HOST && i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            if (upper ? j - i < offset : j - i > offset) continue;
            data[next] = (double)i;
            data[sizes[1] + next++] = (double)j;
        }
    exported_give(c, v);
}

static void tril_indices(exported_call *c) { triangle_places(c, false); }
static void triu_indices(exported_call *c) { triangle_places(c, true); }

const exported_row exported_creation_rows[] = {
    ROW("aten.zeros", "size", zeros),
    ROW("aten.ones", "size", ones),
    ROW("aten.empty", "size", zeros),
    ROW("aten.full", "size fill_value", full),
    ROW("aten.new_zeros", "self size", new_zeros),
    ROW("aten.new_ones", "self size", new_ones),
    ROW("aten.new_empty", "self size", new_zeros),
    ROW("aten.new_full", "self size fill_value", new_full),
    ROW("aten.zeros_like", "self", zeros_like),
    ROW("aten.ones_like", "self", ones_like),
    ROW("aten.empty_like", "self", zeros_like),
    ROW("aten.full_like", "self fill_value", full_like),
    ROW("aten.fill", "self value", full_like),
    ROW("aten.zero", "self", zeros_like),
    ROW("aten.scalar_tensor", "s", scalar),
    ROW("aten.arange.default", "start=None end step=1", arange),
    ROW("aten.arange", "start end step=1", arange),
    ROW("aten.linspace", "start end steps", linspace),
    ROW("aten.eye", "n m=None", eye),
    DRAW("aten.bernoulli.float", "self p=0.5", bernoulli, NULL),
    DRAW("aten.bernoulli.p", "self p", bernoulli, NULL),
    DRAW("aten.bernoulli.default", "self", bernoulli_of, NULL),
    DRAW("aten.randn.default", "size", randn, NULL),
    DRAW("aten.rand.default", "size", rand_of, NULL),
    DRAW("aten.randint.default", "low=None high size", randint, NULL),
    DRAW("aten.randint.low", "low high size", randint, NULL),
    DRAW("aten.normal.default", "self mean=0 std=1", normal, NULL),
    DRAW("aten.uniform", "self from=0 to=1", uniform, NULL),
    DRAW("aten.exponential", "self lambd=1", exponential, NULL),
    ROW("aten.tril_indices", "row col offset=0", tril_indices),
    ROW("aten.triu_indices", "row col offset=0", triu_indices),
    DRAW("aten.randn_like", "self", randn_like, NULL),
    DRAW("aten.rand_like", "self", rand_like, NULL),
    {NULL, NULL, NULL, NULL, NULL, false},
};
