// Random graphs of the losses that have no kernel of their own on a CPU: they run where the others
// do.
#include "graph/metric.h"
#include "support/op_families.h"

void op_build_ratio_loss(op_case *c) {
    int64_t classes = op_draw(c, 1, 30);
    tri_shape rows = tri_shape_of(op_draw(c, 1, 70)), all = rows;
    all.dims[all.rank++] = op_draw(c, 1, 5);
    tri_value terms = op_numbers(c, all, -2, 2), counts = op_numbers(c, rows, 0, 3);
    tri_value labels = op_labels(c, rows, classes);
    tri_value weights = op_numbers(c, tri_shape_of(classes), 0, 2);
    op_add(c, &tri_op_ratio_loss, (tri_value[]){terms, counts}, NULL);
    op_add(c, &tri_op_label_weights, (tri_value[]){labels, weights}, NULL);
    tri_ignore_label_attr attr = {.label = op_draw(c, 0, classes)};
    op_add(c, &tri_op_ignore_label, &labels, &attr);
}

// The blank is the class behind those of the targets.
void op_build_ctc_loss(op_case *c) {
    int64_t samples = op_draw(c, 1, 4), classes = op_draw(c, 1, 6), most = op_draw(c, 1, 4);
    tri_shape shape = tri_shape_of(samples, op_draw(c, 2 * most + 1, 12), classes + 1);
    tri_ctc_loss_attr attr = {.blank = classes, .zero_infinity = true};
    tri_value x = op_numbers(c, shape, -3, 0);
    tri_value targets = op_labels(c, tri_shape_of(samples, most), classes);
    tri_value seed = tri_scalar(c->graph, TRI_SCALAR_SEED);
    tri_node_add(c->graph, &tri_op_ctc_loss, (tri_value[]){x, targets}, 2, &attr, "");
    tri_node_add(c->graph, &tri_op_ctc_loss_grad, (tri_value[]){x, targets, seed}, 3, &attr, "");
}

void op_build_metric_sums(op_case *c) {
    tri_shape rows = tri_shape_of(op_draw(c, 1, 70)), all = rows;
    int64_t classes = all.dims[all.rank++] = op_draw(c, 2, 12);
    tri_value x = op_numbers(c, all, -2, 2), y = op_numbers(c, all, -2, 2);
    tri_value labels = op_labels(c, rows, classes), targets = op_tokens(c, all, 2);
    for (int i = TRI_TALLY_PAIR + 1; i < TRI_TALLY_COUNT; i++) {
        tri_metric_sums_attr attr = {
            .tally = i, .classes = classes, .bins = 9, .k = op_draw(c, 1, 3)};
        bool has_labels = tri_tally_has_labels((tri_tally)i);
        tri_value target = has_labels ? labels : i == TRI_TALLY_ERRORS ? y : targets;
        op_add(c, &tri_op_metric_sums, (tri_value[]){x, target}, &attr);
    }
}

void op_build_distance_loss(op_case *c) {
    tri_shape shape = {.rank = (int)op_draw(c, 1, 4)};
    for (int i = 0; i < shape.rank; i++) shape.dims[i] = op_draw(c, 1, 9);
    if (op_chance(c, 30)) shape = op_image(c, 3, 1, 1);
    tri_value in[] = {op_numbers(c, shape, -1, 1), op_numbers(c, shape, -1, 1),
                      tri_scalar(c->graph, TRI_SCALAR_SEED)};
    tri_value binary[] = {op_numbers(c, shape, -9, 9), op_numbers(c, shape, 0, 1), in[2]};
    op_add(c, &tri_op_binary_cross_entropy, binary, NULL);
    op_add(c, &tri_op_binary_cross_entropy_grad, binary, NULL);
    op_add(c, &tri_op_mse_loss, in, NULL);
    op_add(c, &tri_op_mse_loss_grad, in, NULL);
    op_add(c, &tri_op_relative_l2_loss, in, NULL);
    op_add(c, &tri_op_relative_l2_loss_grad, in, NULL);
}
