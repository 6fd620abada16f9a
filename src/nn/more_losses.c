// The losses of losses.h, of which most are formulas and sums.
#include "base/quantity.h"
#include "nn/layers.h"
#include "ops/ops.h"
#include "tensor/half.h"

#include <string.h>
#include <trireme/functions.h>
#include <trireme/losses.h>
#include <trireme/nn.h>
#include <trireme/parameters.h>

// The name is that of the metric if the loss is one of a sum.
static tri_value mean_of(tri_graph *g, const char *name, tri_value terms) {
    return tri_node_add(g, &tri_op_mean_loss, &terms, 1, NULL, name);
}

tri_value tri_ratio_loss(tri_graph *graph, tri_value terms, tri_value counts) {
    return tri_node_add(graph, &tri_op_ratio_loss, (tri_value[]){terms, counts}, 2, NULL, "");
}

tri_value tri_ignore_label(tri_graph *graph, tri_value labels, int64_t ignored) {
    tri_ignore_label_attr attr = {.label = ignored};
    if (graph->drops_losses && !tri_value_is(labels)) return labels;
    return tri_node_add(graph, &tri_op_ignore_label, &labels, 1, &attr, "");
}

static bool has_parameter(const tri_graph *g, const char *name) {
    return tri_index_find(&g->parameter_index, name, strlen(name)) != TRI_NOT_IN_INDEX;
}

// The weights as a constant, whose name no other parameter has.
static tri_value weights_of(tri_graph *g, const float *weights, int64_t classes) {
    const char *name = "class_weights";
    for (int again = 2; has_parameter(g, name); again++)
        name = tri_name(g, "class_weights_%d", again);
    for (int64_t k = 0; k < classes; k++)
        if (!(weights[k] >= 0 && weights[k] - weights[k] == 0))
            tri_graph_fail(g,
                           "class_weights: the weight of class %lld is %g: it must be at least 0",
                           (long long)k, (double)weights[k]);
    return tri_constant(g, name, tri_shape_of(classes), weights);
}

// The weighted loss on labels. With smoothing ε, each class k has the part ε / K of each label,
// with its own weight, as in PyTorch.
static tri_value weighted_nll(tri_graph *g, const char *name, tri_value scores, tri_value labels,
                              tri_value weights, double smoothing) {
    tri_shape shape = tri_value_shape(g, scores);
    int last = shape.rank - 1;
    tri_one_hot_attr attr = {.classes = shape.dims[last], .dtype = tri_value_get(g, scores)->dtype};
    tri_value hot = tri_node_add(g, &tri_op_one_hot, &labels, 1, &attr, "");
    tri_value terms;
    if (smoothing > 0) {
        tri_value counts = tri_sum(g, hot, &last, 1, true); // 0 where the label is ignored
        const char *formula =
            tri_name(g, "p, h, w, n -> n > 0 ? -(w * p) * (%.17g * h + %.17g) : 0", 1 - smoothing,
                     smoothing / (double)attr.classes);
        terms = tri_map(g, formula, scores, hot, weights, counts);
    } else {
        terms = tri_map(g, "p, h, w -> h > 0 ? -(w * p) : 0", scores, hot, weights);
    }
    tri_value in[] = {
        tri_sum(g, terms, &last, 1, false),
        tri_node_add(g, &tri_op_label_weights, (tri_value[]){labels, weights}, 2, NULL, "")};
    return tri_node_add(g, &tri_op_ratio_loss, in, 2, NULL, name);
}

static tri_value weighted_loss(tri_graph *g, const char *name, tri_value scores, tri_value labels,
                               tri_label_loss_options o) {
    if (g->drops_losses) return nn_stand_in(g, scores);
    if (!tri_graph_check_input(g, name, NULL, scores) ||
        !tri_graph_check_input(g, name, NULL, labels))
        return (tri_value){0};
    tri_shape shape = tri_value_shape(g, scores);
    double smoothing = o.label_smoothing > 0 ? o.label_smoothing : nn_take_smoothing(g);
    if (shape.rank < 2 || !(smoothing >= 0 && smoothing <= 1)) {
        tri_graph_fail(g,
                       "%s: needs scores [.., K] and a label smoothing from 0 to 1, not %s and "
                       "%g",
                       name, tri_counted(shape.rank, "axis"), smoothing);
        return (tri_value){0};
    }
    tri_value weights = {0};
    if (o.class_weights) weights = weights_of(g, o.class_weights, shape.dims[shape.rank - 1]);
    if (tri_dtype_is_float(tri_value_get(g, labels)->dtype)) {
        if (tri_value_is(weights)) scores = tri_mul(g, scores, weights);
        tri_soft_labels_attr attr = {.smoothing = smoothing};
        return tri_node_add(g, &tri_op_soft_nll_loss, (tri_value[]){scores, labels}, 2, &attr, "");
    }
    if (!tri_value_is(weights)) return nn_smoothed_loss(g, scores, labels, smoothing);
    return weighted_nll(g, name, scores, labels, weights, smoothing);
}

tri_value tri_nll_loss_with(tri_graph *graph, tri_value log_probabilities, tri_value labels,
                            tri_label_loss_options options) {
    if (!options.class_weights && !(options.label_smoothing != 0))
        return tri_nll_loss(graph, log_probabilities, labels);
    tri_value loss = weighted_loss(graph, "nll_loss", log_probabilities, labels, options);
    nn_report_accuracy(graph, log_probabilities, labels);
    return loss;
}

tri_value tri_cross_entropy_with(tri_graph *graph, tri_value logits, tri_value labels,
                                 tri_label_loss_options options) {
    if (!options.class_weights && !(options.label_smoothing != 0))
        return tri_cross_entropy(graph, logits, labels);
    tri_value scores = tri_log_softmax(graph, logits);
    tri_value loss = weighted_loss(graph, "cross_entropy", scores, labels, options);
    nn_report_accuracy(graph, scores, labels);
    return loss;
}

// The mean of the terms of x and t, of which a factor for each may be given.
static tri_value binary_loss(tri_graph *g, const char *name, const char *terms, tri_value x,
                             tri_value t, tri_binary_options o) {
    tri_value in[4] = {x, t}, factors[] = {o.pos_weight, o.weight};
    const char *names[] = {", q", ", w"}, *formula = "x, t";
    int count = 2;
    if (g->drops_losses) return nn_stand_in(g, x);
    if (!nn_check_target(g, name, "the target", t, x, NN_SAME)) return x;
    for (int i = 0; i < 2; i++) {
        if (!tri_value_is(factors[i])) continue;
        if (!nn_check_target(g, name, i ? "weight" : "pos_weight", factors[i], x, NN_WITHIN))
            return x;
        formula = tri_name(g, "%s%s", formula, names[i]);
        in[count++] = factors[i];
    }
    formula = tri_name(g, "%s%s -> %s(%s)", formula, tri_value_is(o.pos_weight) ? "" : ", q = 1",
                       tri_value_is(o.weight) ? "w * " : "", terms);
    return mean_of(g, name, tri_map_values(g, formula, in, count));
}

tri_value tri_binary_cross_entropy_with(tri_graph *graph, tri_value logits, tri_value targets,
                                        tri_binary_options options) {
    return binary_loss(graph, "binary_cross_entropy",
                       "(1 - t) * x + (1 + (q - 1) * t) * (log1p(exp(-abs(x))) + max(-x, 0))",
                       logits, targets, options);
}

tri_value tri_bce_loss_with(tri_graph *graph, tri_value probability, tri_value target,
                            tri_binary_options options) {
    if (tri_value_is(options.pos_weight)) {
        tri_graph_fail(graph,
                       "bce_loss: pos_weight belongs to logits: tri_binary_cross_entropy_with");
        return probability;
    }
    return binary_loss(graph, "bce_loss",
                       "-(t * max(log(x), -100) + (1 - t) * max(log1p(-x), -100))", probability,
                       target, options);
}

// PyTorch adds 1e-12 to the squares of the norms.
tri_value tri_cosine_embedding_loss(tri_graph *graph, tri_value a, tri_value b, tri_value target,
                                    double margin) {
    int last = -1;
    if (graph->drops_losses) return nn_stand_in(graph, a);
    if (!nn_check_target(graph, "cosine_embedding_loss", "b", b, a, NN_ALIGNED)) return a;
    tri_value product = tri_sum(graph, tri_mul(graph, a, b), &last, 1, false);
    tri_value of_a = tri_sum(graph, tri_square(graph, a), &last, 1, false);
    tri_value of_b = tri_sum(graph, tri_square(graph, b), &last, 1, false);
    tri_value cosine =
        tri_map(graph, "p, a, b -> p * rsqrt((a + 1e-12) * (b + 1e-12))", product, of_a, of_b);
    if (!nn_check_target(graph, "cosine_embedding_loss", "the target", target, cosine, NN_SAME))
        return cosine;
    const char *formula =
        tri_name(graph, "c, t -> t == 1 ? 1 - c : t == -1 ? max(c - %.17g, 0) : 0", margin);
    return mean_of(graph, "cosine_embedding_loss", tri_map(graph, formula, cosine, target));
}

tri_value tri_hinge_embedding_loss(tri_graph *graph, tri_value distance, tri_value target,
                                   double margin) {
    if (graph->drops_losses) return nn_stand_in(graph, distance);
    if (!nn_check_target(graph, "hinge_embedding_loss", "the target", target, distance, NN_SAME))
        return distance;
    const char *formula =
        tri_name(graph, "p, t -> (t != -1 ? p : 0) + (t != 1 ? max(%.17g - p, 0) : 0)", margin);
    return mean_of(graph, "hinge_embedding_loss", tri_map(graph, formula, distance, target));
}

tri_value tri_margin_ranking_loss(tri_graph *graph, tri_value a, tri_value b, tri_value target,
                                  double margin) {
    if (graph->drops_losses) return nn_stand_in(graph, a);
    if (!nn_check_target(graph, "margin_ranking_loss", "b", b, a, NN_ALIGNED) ||
        !nn_check_target(graph, "margin_ranking_loss", "the target", target, a, NN_ALIGNED))
        return a;
    const char *formula = tri_name(graph, "a, b, t -> max(%.17g - t * (a - b), 0)", margin);
    return mean_of(graph, "margin_ranking_loss", tri_map(graph, formula, a, b, target));
}

// The p-norm of a - b + eps over the last axis.
static tri_value distance_of(tri_graph *g, tri_value a, tri_value b, double p, double eps) {
    int last = -1;
    if (p == 2) {
        const char *square = tri_name(g, "a, b -> (a - b + %.17g) ^ 2", eps);
        return tri_sqrt(g, tri_sum(g, tri_map(g, square, a, b), &last, 1, false));
    }
    const char *power = tri_name(g, "a, b -> abs(a - b + %.17g) ^ %.17g", eps, p);
    return tri_pow_scalar(g, tri_sum(g, tri_map(g, power, a, b), &last, 1, false), 1 / p);
}

tri_value tri_triplet_margin_loss(tri_graph *graph, tri_value anchor, tri_value positive,
                                  tri_value negative, tri_triplet_options o) {
    double p = o.p > 0 ? o.p : 2, eps = o.eps > 0 ? o.eps : 1e-6;
    if (!nn_check_target(graph, "triplet_margin_loss", "positive", positive, anchor, NN_ALIGNED) ||
        !nn_check_target(graph, "triplet_margin_loss", "negative", negative, anchor, NN_ALIGNED))
        return anchor;
    tri_value near = distance_of(graph, anchor, positive, p, eps);
    tri_value far = distance_of(graph, anchor, negative, p, eps);
    if (o.swap) far = tri_minimum(graph, far, distance_of(graph, positive, negative, p, eps));
    const char *formula =
        tri_name(graph, "near, far -> max(near - far + %.17g, 0)", o.margin > 0 ? o.margin : 1);
    return mean_of(graph, "triplet_margin_loss", tri_map(graph, formula, near, far));
}

tri_value tri_poisson_nll_loss_with(tri_graph *graph, tri_value prediction, tri_value target,
                                    tri_poisson_options o) {
    if (graph->drops_losses) return nn_stand_in(graph, prediction);
    if (!nn_check_target(graph, "poisson_nll_loss", "the target", target, prediction, NN_SAME))
        return prediction;
    const char *terms = o.rates
                            ? tri_name(graph, "p - t * log(p + %.17g)", o.eps > 0 ? o.eps : 1e-8)
                            : "exp(p) - t * p";
    const char *stirling = o.full ? " + (t > 1 ? t * log(t) - t + 0.5 * log(2 * pi * t) : 0)" : "";
    const char *formula = tri_name(graph, "p, t -> %s%s", terms, stirling);
    return mean_of(graph, "poisson_nll_loss", tri_map(graph, formula, prediction, target));
}

tri_value tri_kl_div_loss_with(tri_graph *graph, tri_value log_probability, tri_value target,
                               tri_kl_div_options o) {
    if (graph->drops_losses) return nn_stand_in(graph, log_probability);
    if (!nn_check_target(graph, "kl_div_loss", "the target", target, log_probability, NN_SAME))
        return log_probability;
    const char *formula =
        o.log_target ? "p, t -> exp(t) * (t - p)" : "p, t -> t > 0 ? t * (log(t) - p) : 0 * p";
    tri_value terms = tri_map(graph, formula, log_probability, target);
    int axes[TRI_MAX_RANK], rank = tri_value_shape(graph, terms).rank;
    for (int i = 1; i < rank; i++) axes[i - 1] = i;
    if (o.batch_mean && rank > 1) terms = tri_sum(graph, terms, axes, rank - 1, false);
    return mean_of(graph, "kl_div_loss", terms);
}

tri_value tri_ctc_loss(tri_graph *graph, tri_value log_probabilities, tri_value targets,
                       tri_ctc_options o) {
    if (graph->drops_losses) return nn_stand_in(graph, log_probabilities);
    tri_ctc_loss_attr attr = {.blank = o.blank, .zero_infinity = o.zero_infinity};
    tri_value in[] = {log_probabilities, targets, o.input_lengths, o.target_lengths};
    return tri_node_add(graph, &tri_op_ctc_loss, in, 4, &attr, "");
}

// Checks scores [N, K] with labels [N], or [N, K] where a sample has several. False: the graph has
// failed.
static bool check_labels(tri_graph *g, const char *loss, tri_value scores, tri_value labels,
                         bool several) {
    if (!tri_graph_check_input(g, loss, NULL, scores) ||
        !tri_graph_check_input(g, loss, NULL, labels))
        return false;
    tri_shape shape = tri_value_shape(g, scores), wanted = shape,
              given = tri_value_shape(g, labels);
    if (!several) wanted = tri_shape_of(shape.dims[0]);
    if (shape.rank == 2 && tri_shape_equal(&given, &wanted)) return true;
    char of_scores[128], of_labels[128];
    tri_graph_fail(g, "%s: scores [N, K] and labels %s are %s and %s", loss,
                   several ? "[N, K]" : "[N]", tri_shape_text(&shape, of_scores, sizeof of_scores),
                   tri_shape_text(&given, of_labels, sizeof of_labels));
    return false;
}

tri_value tri_multi_margin_loss(tri_graph *graph, tri_value scores, tri_value labels,
                                tri_multi_margin_options o) {
    if (graph->drops_losses) return nn_stand_in(graph, scores);
    if (!check_labels(graph, "multi_margin_loss", scores, labels, false)) return scores;
    int64_t classes = tri_value_shape(graph, scores).dims[1];
    tri_value column = tri_unsqueeze(graph, labels, 1);
    tri_value own = tri_gather(graph, scores, 1, column);
    tri_value others = tri_cast(
        graph, tri_map(graph, "label, k -> label != k", column, tri_arange(graph, classes)),
        TRI_F32);
    const char *formula = tri_name(graph, "x, own, others -> others * max(0, %.17g - own + x)%s",
                                   o.margin != 0 ? o.margin : 1, o.squared ? " ^ 2" : "");
    // The mean over all elements is the sum over the classes, divided by their number.
    tri_value terms = tri_map(graph, formula, scores, own, others);
    if (o.class_weights) {
        tri_value weights = weights_of(graph, o.class_weights, classes);
        terms = tri_mul(graph, terms,
                        tri_unsqueeze(graph, tri_index_select(graph, weights, 0, labels), 1));
    }
    return mean_of(graph, "multi_margin_loss", terms);
}

tri_value tri_multilabel_margin_loss(tri_graph *graph, tri_value scores, tri_value labels) {
    if (graph->drops_losses) return nn_stand_in(graph, scores);
    if (!check_labels(graph, "multilabel_margin_loss", scores, labels, true)) return scores;
    // Labels behind the end count as class 0, of no weight.
    tri_value least = tri_cummin(graph, labels, 1, NULL);
    tri_value counts = tri_cast(graph, tri_map(graph, "k -> k >= 0", least), TRI_F32);
    tri_value index = tri_map(graph, "label, k -> k >= 0 ? label : 0", labels, least);
    tri_value none = tri_map(graph, "x -> 0 * detach(x)", counts);
    tri_value is_label = tri_scatter_add(graph, none, 1, index, counts);
    tri_value own = tri_unsqueeze(graph, tri_gather(graph, scores, 1, index), 2);
    counts = tri_unsqueeze(graph, counts, 2);
    scores = tri_unsqueeze(graph, scores, 1);
    is_label = tri_unsqueeze(graph, is_label, 1);
    tri_value terms =
        tri_map(graph, "x, own, n, own_class -> own_class > 0 ? 0 : n * max(0, 1 - own + x)",
                scores, own, counts, is_label); // [N, labels, classes]
    return mean_of(graph, "multilabel_margin_loss", tri_sum(graph, terms, (int[]){1}, 1, false));
}

tri_value tri_gaussian_nll_loss_with(tri_graph *graph, tri_value mean, tri_value target,
                                     tri_value variance, tri_gaussian_nll_options o) {
    if (graph->drops_losses) return nn_stand_in(graph, mean);
    if (!nn_check_target(graph, "gaussian_nll_loss", "the target", target, mean, NN_WITHIN) ||
        !nn_check_target(graph, "gaussian_nll_loss", "the variance", variance, mean, NN_WITHIN))
        return mean;
    const char *formula = tri_name(graph,
                                   "p, t, v, w = detach(max(v, %.17g)) + (v - detach(v)) -> "
                                   "0.5 * (log(w) + (p - t) ^ 2 / w)%s",
                                   o.eps > 0 ? o.eps : 1e-6, o.full ? " + 0.5 * log(2 * pi)" : "");
    return mean_of(graph, "gaussian_nll_loss", tri_map(graph, formula, mean, target, variance));
}
