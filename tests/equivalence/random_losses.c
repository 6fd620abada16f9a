// The losses of the networks of random_net.c.
#include "random_net.h"

static tri_value scores(net *n, tri_value h, tri_shape shape) {
    int64_t elements = tri_shape_count(&shape) / shape.dims[0];
    return tri_reshape(n->graph, net_linear(n, h, elements), shape);
}

// Losses of two or three values.
static tri_value pair_loss(net *n, tri_value h, tri_value sign) {
    tri_graph *g = n->graph;
    tri_shape shape = net_shape(n, sign);
    tri_shape rows = shape;
    rows.dims[rows.rank++] = net_draw(n, 1, 3);
    double margin = net_chance(n, 30) ? 0 : 0.3;
    tri_triplet_options o = {
        .margin = margin, .p = net_chance(n, 30) ? 3 : 0, .eps = 0.1, .swap = net_chance(n, 40)};
    switch (net_draw(n, 0, 3)) {
    case 0:
        rows.dims[rows.rank - 1]++;
        return tri_cosine_embedding_loss(g, scores(n, h, rows), scores(n, h, rows), sign, margin);
    case 1:
        return tri_hinge_embedding_loss(g, tri_square(g, scores(n, h, shape)), sign, margin);
    case 2:
        return tri_margin_ranking_loss(g, scores(n, h, shape), scores(n, h, shape), sign, margin);
    default:
        return tri_triplet_margin_loss(g, scores(n, h, rows),
                                       tri_add(g, scores(n, h, rows), tri_unsqueeze(g, sign, -1)),
                                       scores(n, h, rows), o);
    }
}

static tri_value divergence(net *n, tri_value p, tri_value t) {
    tri_graph *g = n->graph;
    tri_kl_div_options o = {.log_target = net_chance(n, 50), .batch_mean = net_chance(n, 50)};
    tri_value target = o.log_target ? tri_log_softmax(g, t) : tri_softmax(g, t, -1);
    return tri_kl_div_loss_with(g, tri_log_softmax(g, p), target, o);
}

static tri_value counts_loss(net *n, tri_value p, tri_value unit) {
    tri_graph *g = n->graph;
    tri_poisson_options o = {.rates = net_chance(n, 50), .full = net_chance(n, 50)};
    p = o.rates ? tri_map(g, "x -> 0.2 + log1p(exp(x))", p) : tri_tanh(g, p);
    return tri_poisson_nll_loss_with(g, p, tri_mul_scalar(g, unit, 3), o);
}

// A loss on targets: numbers of any size. Some losses take numbers from 0 to 1, or -1 and 1.
tri_value net_target_loss(net *n, tri_value h) {
    tri_graph *g = n->graph;
    tri_value t = n->batch->targets;
    tri_shape shape = net_shape(n, t);
    tri_value p = scores(n, h, shape), unit = tri_map(g, "t -> sin(3 * t) ^ 2", t);
    tri_value sign = tri_map(g, "t -> t > 0.4 ? 1 : -1", t);
    switch (net_draw(n, 0, 17)) {
    case 0:
        return tri_mse_loss(g, p, t);
    case 1:
        return tri_l1_loss(g, p, t);
    case 2:
        return tri_smooth_l1_loss(g, p, t, 0.7);
    case 3:
        return tri_huber_loss(g, p, t, 0.5);
    case 4:
        return tri_bce_loss_with(g, tri_sigmoid(g, p), unit, (tri_binary_options){.weight = unit});
    case 5:
        return tri_poisson_nll_loss(g, tri_tanh(g, p), unit);
    case 6:
        return tri_kl_div_loss(g, tri_log_softmax(g, p), tri_softmax(g, t, -1));
    case 7:
        return tri_gaussian_nll_loss(g, p, t,
                                     tri_map(g, "x -> 0.2 + log1p(exp(x))", scores(n, h, shape)));
    case 8:
        return tri_soft_margin_loss(g, p, sign);
    case 9:
        return tri_hinge_loss(g, p, sign);
    case 10:
        if (net_chance(n, 50)) return tri_binary_cross_entropy(g, p, unit);
        return tri_binary_cross_entropy_with(
            g, p, unit, (tri_binary_options){.weight = unit, .pos_weight = tri_exp(g, unit)});
    case 11:
        return tri_multilabel_soft_margin_loss(g, p, unit);
    case 12:
        return divergence(n, p, t);
    case 13:
        return counts_loss(n, p, unit);
    case 14:
    case 15:
    case 16: // of p, which is a parameter's value
        return pair_loss(n, tri_concat(g, (tri_value[]){h, tri_flatten(g, p)}, 2, 1), sign);
    default:
        return tri_relative_l2_loss(g, p, t);
    }
}

// The labels may be shorter than what is aligned with them, or longer.
static tri_value ctc_loss(net *n, tri_value h, tri_value labels, tri_shape shape, int64_t classes) {
    tri_graph *g = n->graph;
    int64_t times = net_draw(n, 1, 2 * shape.dims[1] + 2);
    tri_shape of = tri_shape_of(shape.dims[0], times, classes + 1);
    tri_ctc_options o = {.blank = classes, .zero_infinity = true};
    return tri_ctc_loss(g, tri_log_softmax(g, scores(n, h, of)), labels, o);
}

// The loss of labels: one for each sample, or one for each of some tokens.
tri_value net_label_loss(net *n, tri_value h, tri_value labels, int64_t classes) {
    tri_graph *g = n->graph;
    tri_shape shape = net_shape(n, labels);
    if (shape.rank == 2 && net_chance(n, 30)) return ctc_loss(n, h, labels, shape, classes);
    shape.dims[shape.rank++] = classes;
    tri_value s;
    static const float weights[] = {0.5f, 2, 1, 0, 3, 0.25f, 1, 1, 4, 0.5f, 1, 2};
    tri_label_loss_options o = {.class_weights = net_chance(n, 60) ? weights : NULL,
                                .label_smoothing = net_chance(n, 50) ? 0.2 : 0};
    if (labels.id == n->batch->labels.id && net_chance(n, 25))
        labels = tri_ignore_label(g, labels, net_draw(n, 0, classes - 1));
    if (shape.rank == 2) {
        const char *name = net_name(n);
        s = tri_linear(g, name, h, classes);
        if (classes % 2 == 0 && net_chance(n, 50)) tri_split_layer(g, name, TRI_SPLIT_COLUMN);
    } else {
        s = scores(n, h, shape);
        if (net_chance(n, 50)) s = net_linear(n, s, classes);
    }
    if (net_chance(n, 30)) tri_metric(g, net_name(n), tri_accuracy(g, s, labels));
    if (net_chance(n, 20)) return tri_nll_loss_with(g, tri_log_softmax(g, s), labels, o);
    if (net_chance(n, 30)) return tri_cross_entropy_with(g, s, labels, o);
    if (net_chance(n, 30)) return tri_nll_loss(g, tri_log_softmax(g, s), labels);
    return tri_cross_entropy(g, s, labels);
}

tri_value net_soft_loss(net *n, tri_value h, tri_value labels) {
    tri_value s = scores(n, h, net_shape(n, labels));
    if (net_chance(n, 50)) return tri_soft_cross_entropy(n->graph, s, labels, 0.1);
    if (net_chance(n, 30)) {
        static const float weights[] = {0.5f, 2, 1, 0, 3};
        tri_label_loss_options o = {.class_weights = weights, .label_smoothing = 0.1};
        return tri_cross_entropy_with(n->graph, s, labels, o);
    }
    return tri_cross_entropy(n->graph, s, labels);
}

// The mean of squares where a mask is 1.
tri_value net_masked_loss(net *n, tri_value h, tri_value mask) {
    tri_value s = scores(n, h, net_shape(n, mask));
    return tri_ratio_loss(n->graph, tri_map(n->graph, "x, m -> x * x * m", s, mask), mask);
}
