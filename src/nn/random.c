// Random numbers in a network: dropout, noise, and layers that draw. What an element draws depends
// on the layer's name, the step and the element (ops/draw.h).
#include "base/philox.h"
#include "base/quantity.h"
#include "graph/graph.h"
#include "nn/layers.h"
#include "ops/ops.h"

#include <inttypes.h>
#include <math.h>
#include <trireme/functions.h>
#include <trireme/more_layers.h>
#include <trireme/nn.h>

// SELU far below 0: -1.0507… · 1.6732…
static const double SELU_LEAST = -1.7580993408473766;

// Random numbers are those of samples, which may lie on the first axis in several rows: makes of
// the shape one whose first axis has a sample each. False: the graph has failed.
static bool find_samples(tri_graph *graph, const char *layer, const char *name, tri_shape shape,
                         tri_shape *out) {
    int64_t samples = tri_graph_samples(graph), elements = tri_shape_count(&shape);
    *out = shape;
    if (samples > 0 && shape.rank > 0 && shape.dims[0] == samples) return true;
    if (samples <= 0 && shape.rank > 0) return true;
    if (shape.rank == 0 || shape.dims[0] % samples != 0 || elements == 0) {
        char text[128];
        tri_graph_fail(graph, "%s %s: the first axis of %s has to be that of the %s", layer, name,
                       tri_shape_text(&shape, text, sizeof text), tri_counted(samples, "sample"));
        return false;
    }
    *out = tri_shape_of(samples, elements / samples);
    return true;
}

static tri_value as_shape(tri_graph *graph, tri_value x, tri_shape shape) {
    tri_shape from = tri_value_shape(graph, x);
    return tri_shape_equal(&from, &shape) ? x : tri_reshape(graph, x, shape);
}

// The key of the numbers of a layer's next call, of which it draws up to STREAMS for each element:
// each call has numbers of its own, also where layers of one name share their weights.
enum { STREAMS = 2 };

// 2^64 divided by the golden ratio: multiples are far from each other.
static uint64_t stream_of(uint64_t key, uint64_t stream) {
    return key + stream * UINT64_C(0x9e3779b97f4a7c15);
}

static uint64_t next_key(tri_graph *graph, const char *name) {
    uint64_t calls = (uint64_t)tri_layer_count(graph, name);
    return stream_of(tri_philox_key(graph->options.seed, name), calls * STREAMS);
}

static double rate_of(tri_graph *graph, const char *layer, const char *name, double p) {
    p = tri_model_float(graph, "dropout", p); // one rate for all layers, if the recipe has it
    if (p < 0 || p >= 1)
        tri_graph_fail(graph, "%s %s: the rate must lie in [0, 1), not %g", layer, name, p);
    return p;
}

tri_value tri_dropout(tri_graph *graph, const char *name, tri_value x, double p) {
    return nn_dropout(graph, name, x, rate_of(graph, "dropout", name, p));
}

tri_value nn_dropout(tri_graph *graph, const char *name, tri_value x, double p) {
    tri_shape shape = tri_value_shape(graph, x), samples;
    const uint64_t key = next_key(graph, name);
    if (graph->status != TRI_OK || !graph->options.training || p == 0) return x;
    if (!tri_graph_check_input(graph, "dropout", name, x) ||
        !find_samples(graph, "dropout", name, shape, &samples))
        return x;
    tri_map_attr attr = tri_map_of_dropout(&samples, p, key);
    tri_value in[] = {as_shape(graph, x, samples), tri_position(graph)};
    return as_shape(graph, tri_node_add(graph, &tri_op_map, in, 2, &attr, name), shape);
}

// Draws numbers of the shape, `count` streams of them, of which a formula makes one.
static tri_value draw(tri_graph *graph, const char *layer, const char *name, const char *formula,
                      int count, const tri_map_draw *how, tri_shape shape) {
    tri_shape samples;
    const uint64_t key = next_key(graph, name);
    if (!find_samples(graph, layer, name, shape, &samples)) return (tri_value){0};
    tri_map_attr attr = {
        .expands = true, .shape = samples, .drawn = (1 << count) - 1, .type = graph->options.dtype};
    tri_value in[] = {tri_position(graph), tri_position(graph)};
    for (int k = 0; k < count; k++) {
        attr.draws[k] = *how;
        attr.draws[k].key = stream_of(key, (uint64_t)k);
        attr.draws[k].shape = samples;
    }
    tri_status status = tri_formula_parse(formula, NULL, &attr.formula);
    TRI_ASSERT(status == TRI_OK);
    return as_shape(graph, tri_node_add(graph, &tri_op_map, in, count, &attr, name), shape);
}

tri_value nn_uniform(tri_graph *graph, const char *layer, const char *name, tri_shape shape) {
    return draw(graph, layer, name, "u", 1, &(tri_map_draw){.kind = TRI_DRAW_UNIFORM}, shape);
}

static tri_value uniform(tri_graph *graph, const char *layer, const char *name, tri_value x) {
    if (graph->status != TRI_OK || !tri_graph_check_input(graph, layer, name, x)) return x;
    return nn_uniform(graph, layer, name, tri_value_shape(graph, x));
}

tri_value tri_rand_like(tri_graph *graph, const char *name, tri_value x) {
    return uniform(graph, "rand_like", name, x);
}

// By Box and Muller.
tri_value tri_randn_like(tri_graph *graph, const char *name, tri_value x) {
    if (graph->status != TRI_OK || !tri_graph_check_input(graph, "randn_like", name, x)) return x;
    return draw(graph, "randn_like", name, "u, v -> sqrt(-2 * log1p(-u)) * cos(2 * pi * v)", 2,
                &(tri_map_draw){.kind = TRI_DRAW_UNIFORM}, tri_value_shape(graph, x));
}

tri_value tri_bernoulli(tri_graph *graph, const char *name, tri_value p) {
    return tri_map(graph, "p, u -> u < p", p, uniform(graph, "bernoulli", name, p));
}

tri_value tri_randint(tri_graph *graph, const char *name, tri_shape shape, int64_t low,
                      int64_t high) {
    const int64_t most = INT64_C(1) << 24, limit = INT64_C(1) << 53; // of drawn and exact numbers
    if (low <= -limit || high >= limit || high <= low || high - low > most) {
        tri_graph_fail(
            graph, "randint %s: needs low < high, at most 2^24 apart, not %" PRId64 " and %" PRId64,
            name, low, high);
        return (tri_value){0};
    }
    const char *formula = tri_name(graph, "u -> floor(u * %" PRId64 ")", high - low);
    tri_value drawn = tri_map(graph, formula, nn_uniform(graph, "randint", name, shape));
    formula = tri_name(graph, "k -> k + (%" PRId64 ")", low);
    return tri_map(graph, formula, tri_cast(graph, drawn, TRI_I64));
}

tri_value tri_randperm(tri_graph *graph, const char *name, tri_shape shape) {
    tri_value index = {0};
    tri_sort(graph, nn_uniform(graph, "randperm", name, shape), -1, false, &index);
    return index;
}

// The largest of weight / -log(u), with one u for each class, is class k in proportion to its
// weight: such a u is the arrival of an event at this rate. The next ones are draws without it.
tri_value tri_multinomial(tri_graph *graph, const char *name, tri_value weights, int64_t count,
                          bool replacement) {
    if (graph->status != TRI_OK || !tri_graph_check_input(graph, "multinomial", name, weights))
        return weights;
    tri_shape shape = tri_value_shape(graph, weights);
    int last = shape.rank - 1;
    if (last < 1 || count < 1 || (!replacement && count > shape.dims[last]) ||
        (replacement && shape.rank == TRI_MAX_RANK)) {
        char text[128];
        tri_graph_fail(graph, "multinomial %s: cannot draw %" PRId64 " classes of weights %s", name,
                       count, tri_shape_text(&shape, text, sizeof text));
        return weights;
    }
    tri_value index = {0};
    if (replacement) {
        weights = tri_unsqueeze(graph, weights, last);
        shape.dims[shape.rank++] = shape.dims[last];
        shape.dims[last] = count;
    }
    tri_value first = tri_map(graph, "w, u -> w / -log(max(u, 0.5 ^ 25))", weights,
                              nn_uniform(graph, "multinomial", name, shape));
    if (replacement) return tri_argmax(graph, first, -1, false);
    tri_topk(graph, first, count, -1, true, &index);
    return index;
}

// What a layer drops as one.
typedef enum drop_unit { ELEMENTS, CHANNELS, WHOLE_SAMPLES } drop_unit;

// Whether the layer drops anything, with probability p. Makes 0 for a unit that is dropped, else 1.
static bool drops(tri_graph *graph, const char *layer, const char *name, tri_value x, double p,
                  drop_unit unit, tri_value *kept) {
    char text[128];
    bool channels = unit == CHANNELS;
    if (graph->status != TRI_OK || !tri_graph_check_input(graph, layer, name, x)) return false;
    tri_shape shape = tri_value_shape(graph, x);
    if (shape.rank < 1 + channels || tri_shape_count(&shape) == 0)
        tri_graph_fail(graph, "%s %s: needs at least %s and no empty one, not %s", layer, name,
                       tri_counted(1 + channels, "axis"),
                       tri_shape_text(&shape, text, sizeof text));
    if (graph->status != TRI_OK || !graph->options.training || p == 0) return false;
    for (int i = channels ? 2 : 1; unit != ELEMENTS && i < shape.rank; i++) shape.dims[i] = 1;
    *kept =
        draw(graph, layer, name, "k", 1, &(tri_map_draw){.kind = TRI_DRAW_KEEPS, .p = p}, shape);
    return true;
}

// x with 0 in the units that are dropped, and the others divided by 1 − p.
static tri_value drop_units(tri_graph *graph, const char *layer, const char *name, tri_value x,
                            double p, drop_unit unit) {
    tri_value kept;
    if (!drops(graph, layer, name, x, p, unit, &kept)) return x;
    const char *formula = tri_name(graph, "x, kept -> kept ? x * %.17g : 0", 1 / (1 - p));
    return tri_map(graph, formula, x, kept);
}

tri_value tri_dropout_channels(tri_graph *graph, const char *name, tri_value x, double p) {
    p = rate_of(graph, "dropout_channels", name, p);
    return drop_units(graph, "dropout_channels", name, x, p, CHANNELS);
}

tri_value tri_drop_path(tri_graph *graph, const char *name, tri_value x, double p) {
    double given = rate_of(graph, "drop_path", name, p);
    return drop_units(graph, "drop_path", name, x, given == 0 ? 0 : p, WHOLE_SAMPLES);
}

static tri_value alpha_dropout(tri_graph *graph, const char *layer, const char *name, tri_value x,
                               double p, drop_unit unit) {
    tri_value kept;
    p = rate_of(graph, layer, name, p);
    if (!drops(graph, layer, name, x, p, unit, &kept)) return x;
    double a = 1 / sqrt((SELU_LEAST * SELU_LEAST * p + 1) * (1 - p)), b = -a * SELU_LEAST * p;
    const char *formula =
        tri_name(graph, "x, k -> %.17g * (k ? x : %.17g) + %.17g", a, SELU_LEAST, b);
    return tri_map(graph, formula, x, kept);
}

tri_value tri_alpha_dropout(tri_graph *graph, const char *name, tri_value x, double p) {
    return alpha_dropout(graph, "alpha_dropout", name, x, p, ELEMENTS);
}

tri_value tri_feature_alpha_dropout(tri_graph *graph, const char *name, tri_value x, double p) {
    return alpha_dropout(graph, "feature_alpha_dropout", name, x, p, CHANNELS);
}

tri_value tri_rrelu(tri_graph *graph, const char *name, tri_value x, double lower, double upper) {
    if (!(lower <= upper)) {
        tri_graph_fail(graph, "rrelu %s: the slopes must go up, not from %g to %g", name, lower,
                       upper);
        return x;
    }
    if (!tri_training(graph)) return tri_leaky_relu(graph, x, (lower + upper) / 2);
    const char *formula =
        tri_name(graph, "x, u -> x > 0 ? x : x * (%.17g + %.17g * u)", lower, upper - lower);
    return tri_map(graph, formula, x, uniform(graph, "rrelu", name, x));
}

tri_value tri_gumbel_softmax(tri_graph *graph, const char *name, tri_value logits,
                             double temperature, int axis) {
    if (!(temperature > 0)) {
        tri_graph_fail(graph, "gumbel_softmax %s: the temperature must be above 0, not %g", name,
                       temperature);
        return logits;
    }
    // The number 2^-25 stands for a random number that is 0, whose logarithm would be infinite.
    const char *formula =
        tri_name(graph, "x, u -> (x - log(-log(max(u, %.17g)))) / %.17g", 0x1p-25, temperature);
    tri_value u = uniform(graph, "gumbel_softmax", name, logits);
    return tri_softmax(graph, tri_map(graph, formula, logits, u), axis);
}

tri_value tri_gumbel_softmax_hard(tri_graph *graph, const char *name, tri_value logits,
                                  double temperature, int axis) {
    tri_value soft = tri_gumbel_softmax(graph, name, logits, temperature, axis);
    int rank = tri_value_shape(graph, soft).rank;
    if (graph->status != TRI_OK || (axis = nn_axis(graph, "gumbel_softmax", axis, rank)) < 0)
        return soft;
    tri_shape along = {.rank = rank};
    for (int i = 0; i < rank; i++) along.dims[i] = 1;
    along.dims[axis] = tri_value_shape(graph, soft).dims[axis];
    tri_value numbers = tri_reshape(graph, tri_arange(graph, along.dims[axis]), along);
    tri_value largest = tri_argmax(graph, soft, axis, true);
    tri_value hard = tri_mask(graph, "i, k -> i == k", largest, numbers);
    return tri_map(graph, "p, hard -> hard + (p - detach(p))", soft, hard);
}
