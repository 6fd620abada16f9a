// A network that is drawn at random from model.seed, through the public headers alone: some
// primitives (random_layers.c, random_functions.c) on values made before, cut into blocks, with
// branches and values that skip blocks, and several losses. test_random.py trains it in many ways.
// model.primitives says how many there are; the bits of model.skip leave some out, so that a test
// can shrink a network in which it has found a fault: each primitive has draws of its own.
#include "random_net.h"

#include <string.h>

static uint64_t next(uint64_t *state) { // splitmix64
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

int64_t net_draw(net *n, int64_t low, int64_t high) {
    if (high < low) return low; // after an error of the graph
    return low + (int64_t)(next(&n->state) % (uint64_t)(high - low + 1));
}

bool net_chance(net *n, int percent) { return net_draw(n, 0, 99) < percent; }

static void begin_draws(net *n, int64_t seed, int64_t part) {
    n->state = (uint64_t)seed * 1000003 + (uint64_t)part;
    next(&n->state);
}

const char *net_name(net *n) { return tri_name(n->graph, "l%d", n->layer_count++); }

static tri_value take(net *n, int i) {
    n->read[i] = true;
    return n->values[i];
}

tri_value net_value(net *n) {
    int64_t back = net_chance(n, 60) ? net_draw(n, 0, 2) : net_draw(n, 0, n->value_count - 1);
    int64_t i = n->value_count - 1 - back;
    return take(n, i < 0 ? 0 : (int)i);
}

tri_value net_data(net *n) { return n->data[net_draw(n, 0, n->data_count - 1)]; }

// After an error of the graph, values have no shape; the calls that follow do nothing.
tri_shape net_shape(const net *n, tri_value x) {
    tri_shape shape = tri_value_shape(n->graph, x);
    return shape.rank > 0 ? shape : tri_shape_of(n->batch->size, 1);
}

int64_t net_elements(const net *n, tri_value x) {
    tri_shape shape = net_shape(n, x);
    return tri_shape_count(&shape) / n->batch->size;
}

static void add(net *n, tri_value x) {
    if (n->value_count == NET_VALUES) return;
    n->values[n->value_count++] = x;
}

tri_value net_data_as(net *n, tri_shape shape) {
    tri_graph *g = n->graph;
    tri_value data = net_data(n);
    if (net_shape(n, data).rank > 2) data = tri_flatten(g, data);
    int64_t has = net_elements(n, data), needs = tri_shape_count(&shape) / shape.dims[0];
    if (needs > has) data = tri_repeat(g, data, 1, (needs + has - 1) / has);
    return tri_reshape(g, tri_slice(g, data, 1, 0, needs, 1), shape);
}

tri_value net_as(net *n, tri_value x, int rank) {
    tri_shape shape = net_shape(n, x), to = {.rank = rank, .dims = {n->batch->size}};
    if (shape.rank == rank && net_chance(n, 70)) return x;
    int64_t left = net_elements(n, x);
    for (int axis = 1; axis < rank; axis++) {
        int64_t size = axis + 1 == rank ? left : net_draw(n, 1, left < 12 ? left : 12);
        while (left % size) size--;
        to.dims[axis] = size;
        left /= size;
    }
    int other = (int)net_draw(n, 1, rank - 1);
    int64_t last = to.dims[rank - 1];
    to.dims[rank - 1] = to.dims[other];
    to.dims[other] = last;
    return tri_reshape(n->graph, x, to);
}

// How ranks that share layers divide a layer: only where two and four of them can.
static void split(net *n, const char *name, int64_t in, int64_t out) {
    tri_split how = net_chance(n, 50) ? TRI_SPLIT_COLUMN : TRI_SPLIT_ROW;
    bool fits = (how == TRI_SPLIT_COLUMN ? out : in) % 2 == 0;
    if (fits && net_chance(n, 50)) tri_split_layer(n->graph, name, how);
}

tri_value net_linear(net *n, tri_value x, int64_t features) {
    tri_shape shape = net_shape(n, x);
    const char *name = net_name(n);
    tri_linear_options options = {.features = features, .no_bias = net_chance(n, 20)};
    if (net_chance(n, 10)) options.std = 0.3;
    tri_value y = tri_linear_with(n->graph, name, x, options);
    split(n, name, shape.dims[shape.rank - 1], features);
    return y;
}

tri_value net_to(net *n, tri_value x, tri_shape shape) {
    tri_shape from = net_shape(n, x);
    if (tri_shape_equal(&from, &shape)) return x;
    int64_t elements = tri_shape_count(&shape) / shape.dims[0];
    if (from.rank > 1 && from.dims[from.rank - 1] <= 60 && net_chance(n, 30)) {
        // The last axis of another value, and then what the shape needs.
        x = net_linear(n, x, net_draw(n, 1, 4));
        if (net_chance(n, 50)) x = net_function(n, x);
    }
    if (net_elements(n, x) != elements || net_chance(n, 30))
        x = net_linear(n, tri_reshape(n->graph, x, tri_shape_of(shape.dims[0], -1)), elements);
    return tri_reshape(n->graph, x, shape);
}

tri_value net_tamed(net *n, tri_value x) {
    tri_graph *g = n->graph;
    if (net_shape(n, x).rank < 2) return tri_tanh(g, x); // its only axis is that of the samples
    switch (net_draw(n, 0, 6)) {
    case 0:
        return tri_tanh(g, x);
    case 1:
        return tri_softsign(g, x);
    case 2:
        return tri_map(g, "x * rsqrt(1 + x * x)", x);
    case 3:
        return tri_layer_norm(g, net_name(n), x, (tri_layer_norm_options){.eps = 0.1});
    case 4:
        return tri_clamp(g, x, -2, 2);
    case 5:
        return tri_mul_scalar(g, x, 0.3);
    default:
        return tri_erf(g, x);
    }
}

// Values that the batch has: all of them are read at the end, as data have to be.
static void add_fields(net *n, int64_t tokens) {
    static const char *const names[] = {"images", "inputs", "extra", "attention_mask"};
    for (int i = 0; i < 4; i++) {
        tri_value field = tri_batch_field(n->batch, names[i]);
        if (field.id == 0) continue;
        n->data[n->data_count++] = field;
        add(n, field);
    }
    if (n->batch->input_ids.id == 0) return;
    tri_embedding_options options = {.tokens = tokens, .features = net_draw(n, 1, 6), .std = 0.5};
    const char *name = net_name(n);
    add(n, tri_embedding(n->graph, name, n->batch->input_ids, options));
    if (tokens % 2 == 0 && net_chance(n, 50)) tri_split_layer(n->graph, name, TRI_SPLIT_COLUMN);
}

static void begin_block(net *n) {
    tri_block(n->graph, tri_name(n->graph, "block%d", n->block_count++));
}

static tri_value draw_primitive(net *n, tri_value x) {
    const net_primitive *list = net_chance(n, 50)   ? net_layers
                                : net_chance(n, 60) ? net_functions
                                                    : net_indices;
    if (n->mixes && net_chance(n, 12)) list = net_mixers;
    int count = 0;
    while (list[count]) count++;
    return list[net_draw(n, 0, count - 1)](n, x);
}

// A parameter that takes no part in the loss is refused, so a primitive that finds that nothing
// fits has not added any.
static void add_primitive(net *n) {
    net before = *n;
    for (int tries = 0; tries < 20; tries++) {
        tri_value x = net_value(n), y = draw_primitive(n, x);
        if (y.id == 0) {
            memcpy(n->read, before.read, sizeof n->read);
            continue;
        }
        bool alike = net_chance(n, 15);
        tri_shape of_x = net_shape(n, x), of_y = net_shape(n, y);
        if (alike && tri_shape_equal(&of_x, &of_y)) y = tri_add(n->graph, x, y);
        add(n, y);
        return;
    }
}

// The features from which the losses are computed: of all values that nothing has read, and a few
// others.
static tri_value features(net *n) {
    tri_graph *g = n->graph;
    int64_t width = net_draw(n, 1, 5) * 2;
    tri_value sum = {0};
    for (int i = 0; i < n->value_count; i++) {
        if (i + 1 < n->value_count && n->read[i] && net_chance(n, 85)) continue;
        tri_value x = take(n, i);
        x = net_shape(n, x).rank == 1 ? tri_unsqueeze(g, x, 1) : tri_flatten(g, x);
        if (net_elements(n, x) > 60) x = tri_mean(g, net_as(n, x, 3), (int[]){2}, 1, false);
        tri_value part = net_linear(n, net_tamed(n, x), width);
        sum = sum.id ? tri_add(g, sum, part) : part;
    }
    return tri_tanh(g, sum);
}

static void add_loss(net *n, tri_value *sum, tri_value loss) {
    if (loss.id == 0) return;
    if (sum->id || net_chance(n, 20)) loss = tri_weighted(n->graph, loss, 0.5);
    *sum = sum->id ? tri_add(n->graph, *sum, loss) : loss;
}

static void add_losses(net *n, int64_t classes, int64_t tokens) {
    tri_graph *g = n->graph;
    const tri_batch *batch = n->batch;
    tri_value h = features(n), sum = {0}, none = {0};
    tri_value soft = tri_batch_field(batch, "soft_labels");
    if (net_chance(n, 30)) begin_block(n);
    if (batch->labels.id) add_loss(n, &sum, net_label_loss(n, h, batch->labels, classes));
    if (soft.id) add_loss(n, &sum, net_soft_loss(n, h, soft));
    if (net_chance(n, 30)) begin_block(n);
    if (batch->targets.id) add_loss(n, &sum, net_target_loss(n, h));
    if (batch->input_ids.id && net_chance(n, 50))
        add_loss(n, &sum, net_label_loss(n, h, tri_next_token(g, batch->input_ids), tokens));
    tri_value mask = tri_batch_field(batch, "attention_mask");
    if (mask.id && net_chance(n, 50)) add_loss(n, &sum, net_masked_loss(n, h, mask));
    if (sum.id == 0 || net_chance(n, 30)) {
        tri_value penalty = tri_mean_loss(g, tri_map(g, "x -> x * x", net_tamed(n, net_value(n))));
        if (net_chance(n, 30)) tri_metric(g, "penalty", tri_training(g) ? none : penalty);
        add_loss(n, &sum, penalty);
    }
    tri_loss(g, sum);
}

static void build(tri_graph *g, const tri_batch *batch) {
    net n = {.graph = g, .batch = batch};
    int64_t seed = tri_model_int(g, "seed", 1), skip = tri_model_int(g, "skip", 0);
    int64_t primitives = tri_model_int(g, "primitives", 10);
    int64_t blocks = tri_model_int(g, "blocks", 4), tokens = tri_model_int(g, "tokens", 7);
    int64_t classes = tri_model_int(g, "classes", 5);
    n.mixes = tri_model_bool(g, "mixes", false);
    n.norms = tri_model_bool(g, "norms", false);
    begin_draws(&n, seed, 1000);
    tri_share_layer(g, "shared");
    tri_share_layer(g, "shared_norm");
    begin_block(&n);
    add_fields(&n, tokens);
    for (int64_t i = 0; i < primitives; i++) {
        begin_draws(&n, seed, i);
        int64_t left = primitives - i, missing = blocks - n.block_count;
        if (i > 0 && missing > 0 && net_draw(&n, 1, left) <= missing) begin_block(&n);
        if (!(skip >> i & 1)) add_primitive(&n);
    }
    begin_draws(&n, seed, 2000);
    if (net_chance(&n, 50) || n.block_count < blocks) begin_block(&n);
    add_losses(&n, classes, tokens);
}

static const tri_task random = {.name = "random", .build = build};

TRI_EXPORT_TASK(random)
