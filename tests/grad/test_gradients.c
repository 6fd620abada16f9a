// Compares the gradient rule of every op (which adds the nodes that compute its gradients) with
// central finite differences, on the reference device `ref` in F64.
#include "support/gradient_check.h"

static bool has_node(const tri_graph *g, const tri_op *op) {
    for (int i = 0; i < g->node_count; i++)
        if (g->nodes[i].op == op) return true;
    return false;
}

typedef struct conv_case {
    int64_t x[4], features, kernel[2], stride[2], padding[2], dilation[2], groups;
    bool bias;
} conv_case;

static const conv_case conv_cases[] = {
    {{2, 3, 5, 4}, 2, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1, true},
    {{1, 1, 1, 1}, 1, {1, 1}, {1, 1}, {0, 0}, {1, 1}, 1, true},
    {{2, 2, 7, 5}, 3, {3, 2}, {2, 3}, {0, 1}, {1, 1}, 1, false},
    {{1, 4, 6, 7}, 4, {2, 3}, {1, 2}, {2, 0}, {2, 1}, 2, true},
    {{2, 3, 5, 5}, 6, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 3, true},
    {{1, 2, 4, 9}, 2, {3, 3}, {3, 2}, {3, 2}, {2, 3}, 1, true},
    {{3, 1, 2, 3}, 2, {5, 5}, {1, 1}, {2, 2}, {1, 1}, 1, true},
};

static tri_value add_conv(subject *s, const conv_case *c, tri_value x) {
    tri_conv2d_attr attr = {.groups = c->groups};
    memcpy(attr.stride, c->stride, sizeof attr.stride);
    memcpy(attr.padding, c->padding, sizeof attr.padding);
    memcpy(attr.dilation, c->dilation, sizeof attr.dilation);
    tri_shape shape = tri_shape_of(c->features, c->x[1] / c->groups, c->kernel[0], c->kernel[1]);
    tri_value in[] = {x, trained(s, "weight", shape), {0}};
    if (c->bias) in[2] = trained(s, "bias", tri_shape_of(c->features));
    return tri_node_add(s->graph, &tri_op_conv2d, in, 3, &attr, "conv");
}

static void test_conv2d(void **state) {
    for (size_t i = 0; i < sizeof conv_cases / sizeof *conv_cases; i++) {
        subject s = begin();
        const int64_t *d = conv_cases[i].x;
        tri_value x = trained(&s, "x", tri_shape_of(d[0], d[1], d[2], d[3]));
        check(&s, distance(&s, add_conv(&s, &conv_cases[i], x)));
    }
}

// The first layer's input is data, so the gradient with respect to this input must not be computed.
static void test_unwanted(void **state) {
    subject s = begin();
    tri_value x = tri_input(s.graph, "images", TRI_F64, tri_shape_of(2, 3, 5, 4));
    tri_value y = add_conv(&s, &conv_cases[0], x);
    tri_value flat =
        tri_node_add(s.graph, &tri_op_reshape, &y, 1, &(tri_reshape_attr){tri_shape_of(2, 40)}, "");
    tri_loss(s.graph, distance(&s, flat));
    assert_int_equal(tri_pass_autodiff(s.graph), TRI_OK);
    assert_true(has_node(s.graph, &tri_op_conv2d_grad_weight));
    assert_false(has_node(s.graph, &tri_op_conv2d_grad_input));
    op_graph_close(s.graph);
    s = begin();
    x = tri_input(s.graph, "images", TRI_F64, tri_shape_of(2, 6));
    tri_value in[] = {x, trained(&s, "weight", tri_shape_of(3, 6))};
    y = tri_node_add(s.graph, &tri_op_linear, in, 2, &(tri_linear_attr){.axes = 1}, "fc");
    tri_loss(s.graph, distance(&s, y));
    assert_int_equal(tri_pass_autodiff(s.graph), TRI_OK);
    assert_true(has_node(s.graph, &tri_op_linear_grad_weight));
    assert_false(has_node(s.graph, &tri_op_linear_grad_input));
    op_graph_close(s.graph);
}

static void check_linear(tri_shape x_shape, int64_t axes, int64_t features, bool bias) {
    subject s = begin();
    int64_t inputs = 1;
    for (int i = x_shape.rank - (int)axes; i < x_shape.rank; i++) inputs *= x_shape.dims[i];
    tri_linear_attr attr = {.axes = axes};
    tri_value in[] = {
        trained(&s, "x", x_shape), trained(&s, "weight", tri_shape_of(features, inputs)), {0}};
    if (bias) in[2] = trained(&s, "bias", tri_shape_of(features));
    check(&s, distance(&s, tri_node_add(s.graph, &tri_op_linear, in, 3, &attr, "fc")));
}

static void test_linear(void **state) {
    check_linear(tri_shape_of(3, 5), 1, 4, true);
    check_linear(tri_shape_of(1, 1), 1, 1, false);
    check_linear(tri_shape_of(2, 3, 2, 2), 3, 3, true);
    check_linear(tri_shape_of(2, 3, 4), 1, 2, true);
    check_linear(tri_shape_of(7), 1, 3, true);
}

static void test_max_pool2d(void **state) {
    static const struct {
        int64_t x[4];
        tri_max_pool2d_attr attr;
    } cases[] = {
        {{2, 3, 4, 6}, {.kernel = {2, 2}, .stride = {2, 2}}},
        {{1, 1, 1, 1}, {.kernel = {1, 1}, .stride = {1, 1}}},
        {{2, 2, 5, 7}, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}, .relu = true}},
        {{1, 2, 7, 4}, {.kernel = {3, 2}, .stride = {1, 3}, .padding = {1, 0}}},
        {{3, 2, 6, 6},
         {.kernel = {2, 2}, .stride = {2, 2}, .relu = true, .dropout = 0.4, .key = 9}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        subject s = begin();
        const int64_t *d = cases[i].x;
        tri_value in[] = {trained(&s, "x", tri_shape_of(d[0], d[1], d[2], d[3])), {0}};
        if (cases[i].attr.dropout > 0) in[1] = tri_position(s.graph);
        check(&s, distance(&s, tri_node_add(s.graph, &tri_op_max_pool2d, in, 2, &cases[i].attr,
                                            "pool")));
    }
}

static void test_avg_pool2d(void **state) {
    static const struct {
        int64_t x[4];
        tri_avg_pool2d_attr attr;
    } cases[] = {
        {{2, 3, 4, 6}, {.kernel = {2, 2}, .stride = {2, 2}}},
        {{1, 1, 1, 1}, {.kernel = {1, 1}, .stride = {1, 1}}},
        {{2, 2, 5, 7}, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}},
        {{1, 2, 7, 4},
         {.kernel = {3, 2}, .stride = {1, 3}, .padding = {1, 0}, .exclude_padding = true}},
        {{1, 1, 5, 5}, {.kernel = {2, 2}, .stride = {3, 3}}}, // some elements are in no window
        {{2, 3, 5, 4}, {.out = {1, 1}}},
        {{1, 2, 5, 7}, {.out = {3, 2}}},
        {{1, 1, 2, 3}, {.out = {5, 3}}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        subject s = begin();
        const int64_t *d = cases[i].x;
        tri_value x = trained(&s, "x", tri_shape_of(d[0], d[1], d[2], d[3]));
        check(&s, distance(&s, tri_node_add(s.graph, &tri_op_avg_pool2d, &x, 1, &cases[i].attr,
                                            "pool")));
    }
}

static void check_batch_norm(tri_shape shape, bool relu, tri_max_pool2d_attr pool) {
    subject s = begin();
    tri_batch_norm_attr attr = {.eps = 1e-3, .relu = relu, .pool = pool};
    tri_value in[] = {trained(&s, "x", shape), trained(&s, "weight", tri_shape_of(shape.dims[1])),
                      trained(&s, "bias", tri_shape_of(shape.dims[1]))};
    check(&s, distance(&s, tri_node_add(s.graph, &tri_op_batch_norm, in, 3, &attr, "bn")));
}

// Checks the gradients of batch norm over all replicas (tri_op_batch_norm_shared), in a run of one
// replica.
static void check_batch_norm_shared(tri_shape shape, bool relu, tri_max_pool2d_attr pool) {
    subject s = begin();
    tri_batch_norm_attr attr = {.eps = 1e-3, .relu = relu, .pool = pool};
    tri_collective_attr alone = {.group = TRI_GROUP_REPLICAS, .slices = 1};
    tri_value in[] = {trained(&s, "x", shape), trained(&s, "weight", tri_shape_of(shape.dims[1])),
                      trained(&s, "bias", tri_shape_of(shape.dims[1]))};
    check(&s, distance(&s, ops_batch_norm_shared(s.graph, &(tri_node){.name = "bn", .attr = &attr},
                                                 in, &alone)));
}

static void test_batch_norm_shared(void **state) {
    tri_max_pool2d_attr none = {0}, pool = {.kernel = {2, 3}, .stride = {2, 2}, .relu = true};
    check_batch_norm_shared(tri_shape_of(3, 2, 2, 3), false, none);
    check_batch_norm_shared(tri_shape_of(4, 1, 3, 1), true, none);
    check_batch_norm_shared(tri_shape_of(3, 2, 4, 5), false, pool);
}

static void test_batch_norm(void **state) {
    tri_max_pool2d_attr none = {0}, pool = {.kernel = {2, 2}, .stride = {2, 2}, .relu = true};
    check_batch_norm(tri_shape_of(3, 2, 2, 3), false, none);
    check_batch_norm(tri_shape_of(5, 3), false, none);
    check_batch_norm(tri_shape_of(1, 2, 5), false, none);
    check_batch_norm(tri_shape_of(4, 1, 3, 1), true, none);
    check_batch_norm(tri_shape_of(3, 2, 4, 5), false, pool);
    pool = (tri_max_pool2d_attr){.kernel = {3, 2}, .stride = {1, 3}, .padding = {1, 0}};
    check_batch_norm(tri_shape_of(2, 2, 5, 6), false, pool);
}

static void test_dropout(void **state) {
    subject s = begin();
    tri_shape shape = tri_shape_of(4, 3, 5);
    tri_map_attr attr = tri_map_of_dropout(&shape, 0.3, 12);
    tri_value in[] = {trained(&s, "x", shape), tri_position(s.graph)};
    check(&s, distance(&s, tri_node_add(s.graph, &tri_op_map, in, 2, &attr, "")));
}

// Noise that is added, multiplied, and chosen by, in a map with two inputs of its own.
static void test_noise(void **state) {
    subject s = begin();
    tri_value x = trained(&s, "x", tri_shape_of(4, 3, 5)), y = trained(&s, "y", tri_shape_of(5));
    tri_value u = tri_rand_like(s.graph, "u", x), e = tri_randn_like(s.graph, "e", x);
    x = tri_map(s.graph, "x, y, u, e -> u > 0.4 ? x * y * e : y + sin(x)", x, y, u, e);
    check(&s, distance(&s, x));
}

static void test_add_and_reshape(void **state) {
    subject s = begin();
    tri_value in[] = {trained(&s, "a", tri_shape_of(2, 6)), trained(&s, "b", tri_shape_of(2, 6))};
    tri_value sum = tri_node_add(s.graph, &tri_op_add, in, 2, NULL, "");
    tri_value twice = tri_node_add(s.graph, &tri_op_add, (tri_value[]){sum, in[0]}, 2, NULL, "");
    tri_reshape_attr attr = {tri_shape_of(3, 1, 4)};
    // This cast keeps the type; tests/unit/test_precision.c tests casts between types.
    tri_cast_attr same = {.dtype = TRI_F64};
    tri_value cast = tri_node_add(s.graph, &tri_op_cast, &twice, 1, &same, "");
    check(&s, distance(&s, tri_node_add(s.graph, &tri_op_reshape, &cast, 1, &attr, "")));
}

// Checks the gradients of cross-entropy whose classes are divided among ranks, on one rank that has
// all classes.
static void test_vocab_parallel_cross_entropy(void **state) {
    subject s = begin();
    static const tri_classes_attr classes = {0, 3};
    tri_value in[4] = {trained(&s, "scores", tri_shape_of(2, 4, 3)),
                       tri_input(s.graph, "labels", TRI_I64, tri_shape_of(2, 4))};
    in[2] = tri_node_add(s.graph, &tri_op_row_max, in, 1, NULL, "");
    in[3] = tri_node_add(s.graph, &tri_op_vocab_parallel_softmax, in, 3, &classes, "");
    check(&s, tri_node_add(s.graph, &tri_op_vocab_parallel_cross_entropy, in, 4, &classes, ""));
}

static void test_concat(void **state) {
    static const int64_t sizes[][3] = {{1, 2, 4}, {3, 1, 1}, {5, 2, 2}};
    for (int dim = 0; dim < 3; dim++)
        for (int inputs = 1; inputs <= 3; inputs++) {
            subject s = begin();
            tri_value in[3];
            for (int i = 0; i < inputs; i++) {
                tri_shape shape = tri_shape_of(2, 1, 3);
                shape.dims[dim] = sizes[dim][i];
                in[i] = trained(&s, tri_name(s.graph, "x%d", i), shape);
            }
            tri_concat_attr attr = {.dim = dim};
            check(&s, distance(&s, tri_node_add(s.graph, &tri_op_concat, in, inputs, &attr, "")));
        }
}

static void test_add_bias(void **state) {
    subject s = begin();
    tri_value in[] = {trained(&s, "x", tri_shape_of(2, 3, 5)),
                      trained(&s, "bias", tri_shape_of(5))};
    check(&s, distance(&s, tri_node_add(s.graph, &tri_op_add_bias, in, 2, NULL, "")));
}

static void test_log_softmax(void **state) {
    subject s = begin();
    tri_value x = trained(&s, "x", tri_shape_of(3, 2, 5));
    check(&s, distance(&s, tri_node_add(s.graph, &tri_op_log_softmax, &x, 1, NULL, "")));
    s = begin();
    x = trained(&s, "x", tri_shape_of(2, 1));
    check(&s, distance(&s, tri_node_add(s.graph, &tri_op_log_softmax, &x, 1, NULL, "")));
    for (int axis = 0; axis < 3; axis++) {
        s = begin();
        x = trained(&s, "x", tri_shape_of(3, 2, 4));
        check(&s, distance(&s, tri_softmax(s.graph, x, axis)));
        s = begin();
        x = trained(&s, "x", tri_shape_of(3, 2, 4));
        check(&s, distance(&s, tri_log_softmax_along(s.graph, x, axis)));
    }
}

static void check_classes(const tri_op *op, tri_shape labels) {
    subject s = begin();
    tri_shape scores = labels;
    scores.dims[scores.rank++] = 3;
    tri_value in[] = {trained(&s, "scores", scores), tri_input(s.graph, "labels", TRI_I64, labels)};
    check(&s, tri_node_add(s.graph, op, in, 2, NULL, ""));
}

static void test_class_losses(void **state) {
    const tri_op *const ops[] = {&tri_op_nll_loss, &tri_op_cross_entropy};
    for (int i = 0; i < 2; i++) {
        check_classes(ops[i], tri_shape_of(7));
        check_classes(ops[i], tri_shape_of(1));
        check_classes(ops[i], tri_shape_of(2, 5));
    }
}

static void test_soft_labels(void **state) {
    static const double smoothing[] = {0, 0.1, 1};
    for (int i = 0; i < 3; i++) {
        subject s = begin();
        tri_soft_labels_attr attr = {.smoothing = smoothing[i]};
        tri_value in[] = {trained(&s, "scores", tri_shape_of(2, 3, 4)),
                          tri_input(s.graph, "labels", TRI_F64, tri_shape_of(2, 3, 4))};
        check(&s, tri_node_add(s.graph, &tri_op_soft_nll_loss, in, 2, &attr, ""));
    }
}

// Checks the gradient of an embedding whose table has 5 rows. Of the tokens, some occur several
// times, and others never, so that the gradients of their rows are 0. In the second case the table
// is a slice of a larger one, and some tokens have no row in it.
static void test_embedding(void **state) {
    static const tri_embedding_attr rows[] = {{0, 0}, {1, 7}};
    for (int i = 0; i < 2; i++) {
        subject s = begin();
        tri_value in[] = {tri_input(s.graph, "ids", TRI_I64, tri_shape_of(2, 3)),
                          trained(&s, "weight", tri_shape_of(5, 4))};
        check(&s, distance(&s, tri_node_add(s.graph, &tri_op_embedding, in, 2, &rows[i], "embed")));
    }
}

// Tests an embedding whose table is also the weight of the last layer. If both layers are in one
// block (a named group of nodes), the graph adds the two gradients up. If they are in different
// blocks, the graph has one gradient of the table for each block.
static void test_tied(void **state) {
    for (int blocks = 1; blocks <= 2; blocks++) {
        subject s = begin();
        tri_value ids = tri_input(s.graph, "ids", TRI_I64, tri_shape_of(2, 3));
        tri_value x = tri_embedding(s.graph, "embed", ids,
                                    (tri_embedding_options){.tokens = 5, .features = 4});
        if (blocks == 2) tri_block(s.graph, "head");
        tri_linear_options head = {.features = 5, .no_bias = true, .weight = "embed.weight"};
        tri_value labels = tri_next_token(s.graph, ids);
        tri_value logits = tri_linear_with(s.graph, "head", x, head);
        tri_value loss = tri_cross_entropy(s.graph, logits, labels);
        assert_int_equal(s.graph->parameter_count, 1);
        tri_graph *g = s.graph;
        check_open(&s, loss, -1, 1);
        assert_int_equal(g->gradient_count, blocks);
        for (int k = 0; k < blocks; k++) assert_int_equal(g->gradients[k].block, blocks - 1 - k);
        op_graph_close(g);
    }
}

static void test_norms(void **state) {
    static const tri_norm_attr attr = {.eps = 1e-3};
    const tri_shape shapes[] = {tri_shape_of(2, 3, 5), tri_shape_of(1, 1), tri_shape_of(7)};
    for (int i = 0; i < 3; i++)
        // x alone: layer norm; x and weight: RMS norm; x, weight and bias: layer norm.
        for (int inputs = 1; inputs <= 3; inputs++) {
            subject s = begin();
            const tri_op *op = inputs == 2 ? &tri_op_rms_norm : &tri_op_layer_norm;
            tri_shape width = tri_shape_of(shapes[i].dims[shapes[i].rank - 1]);
            tri_value in[3] = {trained(&s, "x", shapes[i])};
            if (inputs > 1) in[1] = trained(&s, "weight", width);
            if (inputs > 2) in[2] = trained(&s, "bias", width);
            check(&s, distance(&s, tri_node_add(s.graph, op, in, inputs, &attr, "norm")));
        }
}

// The gradient of a convolution with respect to its input is a layer too, the transpose.
static void test_conv_transpose2d(void **state) {
    const tri_conv_options options[] = {
        {.channels = 4, .kernel = 3, .stride = 2, .padding = 1, .output_padding = 1, .groups = 2},
        {.channels = 2, .kernels = {1, 2}, .strides = {3, 1}, .dilation = 2, .no_bias = true},
    };
    for (int i = 0; i < 2; i++) {
        subject s = begin();
        tri_value x = trained(&s, "x", tri_shape_of(2, 2, 3, 4));
        check(&s, distance(&s, tri_conv_transpose2d(s.graph, "conv", x, options[i])));
    }
}

static void test_interpolate(void **state) {
    for (int64_t axis = 0; axis < 3; axis++)
        for (int64_t size = 1; size <= 9; size += 2)
            for (int kind = 0; kind < 7; kind++) {
                static const int kinds[] = {0, 2, 2, 1, 3, 2, 3};
                subject s = begin();
                tri_interpolate_attr attr = {.axis = axis,
                                             .size = size,
                                             .kind = kinds[kind],
                                             .align_corners = kind == 2 || kind == 4,
                                             .antialias = kind > 4,
                                             .factor = kind == 3 ? 2.3 : 0};
                tri_value x = trained(&s, "x", tri_shape_of(2, 4, 1));
                check(&s,
                      distance(&s, tri_node_add(s.graph, &tri_op_interpolate, &x, 1, &attr, "")));
            }
}

static void test_group_norm(void **state) {
    const tri_shape shapes[] = {tri_shape_of(2, 6, 3), tri_shape_of(1, 2, 1, 1, 4),
                                tri_shape_of(3, 2)};
    for (int i = 0; i < 3; i++)
        for (int64_t groups = 1; groups <= shapes[i].dims[1]; groups++) {
            if (shapes[i].dims[1] % groups != 0) continue;
            subject s = begin();
            tri_group_norm_attr attr = {.norm.eps = 1e-2, .groups = groups};
            tri_shape channels = tri_shape_of(shapes[i].dims[1]);
            tri_value in[3] = {trained(&s, "x", shapes[i])};
            if (groups != 2) in[1] = trained(&s, "weight", channels);
            if (groups != 2) in[2] = trained(&s, "bias", channels);
            check(&s, distance(&s, tri_node_add(s.graph, &tri_op_group_norm, in, 3, &attr, "")));
        }
}

// The backward pass computes cheap values again instead of keeping them from the forward pass, once
// for all nodes of the block that read them. For example, it keeps only the statistics of a norm
// and computes the norm's output again. A value that another block reads is kept.
static void test_recomputed(void **state) {
    for (int blocks = 1; blocks <= 2; blocks++) {
        subject s = begin();
        tri_graph *g = s.graph;
        tri_value x = tri_rms_norm(g, "norm", trained(&s, "x", tri_shape_of(3, 4)), 1e-3);
        tri_value normed = x;
        if (blocks == 2) tri_block(g, "mlp");
        tri_linear_options wide = {.features = 5};
        tri_value gate = tri_linear_with(g, "gate", x, wide),
                  up = tri_linear_with(g, "up", x, wide);
        x = tri_linear_with(g, "down", tri_silu_mul(g, gate, up), wide);
        check_open(&s, distance(&s, x), -1, 1);
        int norms = 0, products = 0, kept = 0;
        for (int i = 0; i < g->node_count; i++) {
            const tri_node *node = &g->nodes[i];
            norms += node->op == &tri_op_rms_norm;
            products += node->op == &tri_op_map &&
                        ((const tri_map_attr *)node->attr)->formula.input_count == 2;
            for (int k = 0; k < node->input_count; k++)
                kept += node->phase == TRI_PHASE_BACKWARD && node->inputs[k].id == normed.id;
        }
        assert_int_equal(norms, blocks == 1 ? 2 : 1);
        assert_int_equal(kept, blocks == 1 ? 0 : 2);
        assert_int_equal(products, 2);
        op_graph_close(g);
    }
}

static void test_rotary(void **state) {
    for (int64_t first = 0; first < 4; first += 3) {
        subject s = begin();
        tri_value x = trained(&s, "x", tri_shape_of(2, 3, 2, 6));
        tri_rotary_attr attr = {.theta = 50, .first = first, .inverse = first > 0};
        check(&s, distance(&s, tri_node_add(s.graph, &tri_op_rotary, &x, 1, &attr, "")));
    }
}

static void check_attention(int64_t queries, int64_t keys, int64_t heads, int64_t kv_heads,
                            bool causal) {
    subject s = begin();
    tri_attention_attr attr = {.scale = 0.7, .causal = causal};
    tri_value in[] = {trained(&s, "q", tri_shape_of(2, queries, heads, 3)),
                      trained(&s, "k", tri_shape_of(2, keys, kv_heads, 3)),
                      trained(&s, "v", tri_shape_of(2, keys, kv_heads, 3))};
    check(&s, distance(&s, tri_node_add(s.graph, &tri_op_attention, in, 3, &attr, "attn")));
}

static void test_attention(void **state) {
    check_attention(5, 5, 2, 2, true);
    check_attention(3, 5, 4, 2, true);
    check_attention(4, 3, 3, 1, false);
    check_attention(1, 1, 1, 1, true);
}

static void test_distance_losses(void **state) {
    subject s = begin();
    tri_value in[] = {trained(&s, "a", tri_shape_of(3, 2)), trained(&s, "b", tri_shape_of(3, 2))};
    check(&s, tri_node_add(s.graph, &tri_op_mse_loss, in, 2, NULL, ""));
    s = begin();
    tri_value relative[] = {trained(&s, "x", tri_shape_of(3, 2, 5)),
                            tri_input(s.graph, "target", TRI_F64, tri_shape_of(3, 2, 5))};
    check(&s, tri_node_add(s.graph, &tri_op_relative_l2_loss, relative, 2, NULL, ""));
    s = begin();
    tri_value binary[] = {trained(&s, "x", tri_shape_of(3, 1, 5)),
                          tri_input(s.graph, "target", TRI_F64, tri_shape_of(3, 1, 5))};
    check_in(&s, tri_node_add(s.graph, &tri_op_binary_cross_entropy, binary, 2, NULL, ""), -3, 3);
}

// Checks the gradients of collective ops, and of the ops that cut tensors into chunks for them, on
// one rank. There collective ops copy their input. tests/ranks/test_collective.c runs them on
// several ranks.
static void test_collectives(void **state) {
    tri_shape shape = tri_shape_of(1, 2, 6, 3);
    for (int partial = 0; partial < 2; partial++) {
        subject s = begin();
        tri_collective_attr one = {.slices = 1, .dim = 1, .partial = partial};
        tri_collective_attr half = {.slices = 2, .index = 1, .dim = 2, .partial = true};
        tri_rechunk_attr chunks = {.from = 2, .to = 1, .chunks = 3};
        const struct {
            const tri_op *op;
            const void *attr;
        } chain[] = {{&tri_op_copy_to, &one},    {&tri_op_all_gather, &one},
                     {&tri_op_all_reduce, &one}, {&tri_op_reduce_scatter, &one},
                     {&tri_op_split, &one},      {&tri_op_split, &half},
                     {&tri_op_rechunk, &chunks}};
        tri_value x = trained(&s, "x", shape);
        for (size_t i = 0; i < sizeof chain / sizeof *chain; i++)
            x = tri_node_add(s.graph, chain[i].op, &x, 1, chain[i].attr, "");
        check(&s, distance(&s, x));
    }
}

// Every op with a gradient rule has a test above, except the two that are marked.
static void test_all_covered(void **state) {
    static const tri_op *const covered[] = {
        &tri_op_conv2d,
        &tri_op_linear,
        &tri_op_max_pool2d,
        &tri_op_avg_pool2d,
        &tri_op_batch_norm,
        &tri_op_add,
        &tri_op_add_bias,
        &tri_op_batch_norm_shared,
        &tri_op_vocab_parallel_cross_entropy,
        &tri_op_reshape,
        &tri_op_concat,
        &tri_op_softmax,
        &tri_op_log_softmax,
        &tri_op_embedding,
        &tri_op_rms_norm,
        &tri_op_layer_norm,
        &tri_op_group_norm,
        &tri_op_interpolate,
        &tri_op_conv2d_grad_input,
        &tri_op_rotary,
        &tri_op_attention,
        &tri_op_cast,
        &tri_op_nll_loss,
        &tri_op_soft_nll_loss,
        &tri_op_cross_entropy,
        &tri_op_mse_loss,
        &tri_op_binary_cross_entropy,
        &tri_op_relative_l2_loss,
        &tri_op_mean_loss,  // grad/test_functions
        &tri_op_ratio_loss, // grad/test_losses
        &tri_op_ctc_loss,   // grad/test_losses
        &tri_op_map,        // grad/test_functions
        &tri_op_reduce,     // grad/test_functions
        &tri_op_matmul,     // grad/test_products
        &tri_op_gather,     // grad/test_indexing
        &tri_op_scatter,    // grad/test_indexing
        &tri_op_sort,       // grad/test_indexing
        &tri_op_scan,       // grad/test_indexing
        &tri_op_recurrent,  // grad/test_recurrent
        &tri_op_own,        // grad/test_own_op
        &tri_op_copy_to,
        &tri_op_split,
        &tri_op_rechunk,
        &tri_op_all_reduce,
        &tri_op_all_gather,
        &tri_op_reduce_scatter,
        &tri_op_reorder,              // no test: its gradient rule returns dy
        &tri_op_batch_norm_inference, // no test: its gradient rule always fails
    };
    for (int i = 0; i < tri_op_count; i++) {
        bool found = tri_ops[i]->gradient == NULL;
        for (size_t k = 0; k < sizeof covered / sizeof *covered; k++)
            found = found || covered[k] == tri_ops[i];
        if (!found) fail_msg("%s has a gradient rule and no test", tri_ops[i]->name);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conv2d),
        cmocka_unit_test(test_unwanted),
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_max_pool2d),
        cmocka_unit_test(test_avg_pool2d),
        cmocka_unit_test(test_batch_norm),
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_noise),
        cmocka_unit_test(test_add_and_reshape),
        cmocka_unit_test(test_concat),
        cmocka_unit_test(test_log_softmax),
        cmocka_unit_test(test_class_losses),
        cmocka_unit_test(test_soft_labels),
        cmocka_unit_test(test_distance_losses),
        cmocka_unit_test(test_all_covered),
        cmocka_unit_test(test_embedding),
        cmocka_unit_test(test_tied),
        cmocka_unit_test(test_recomputed),
        cmocka_unit_test(test_norms),
        cmocka_unit_test(test_group_norm),
        cmocka_unit_test(test_interpolate),
        cmocka_unit_test(test_conv_transpose2d),
        cmocka_unit_test(test_rotary),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_collectives),
        cmocka_unit_test(test_add_bias),
        cmocka_unit_test(test_batch_norm_shared),
        cmocka_unit_test(test_vocab_parallel_cross_entropy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
