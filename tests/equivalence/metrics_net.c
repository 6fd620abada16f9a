// A model as a shared object, for test_metrics.py: metrics of every kind, in the first block and in
// the last one. It reads inputs, labels of four classes and targets.
#include <trireme/trireme.h>

enum { CLASSES = 4, OUTPUTS = 3 };

static const struct {
    const char *name;
    tri_metric_kind kind;
    tri_metric_options options;
} of_labels[] = {{"correct", TRI_METRIC_ACCURACY, {0}},
                 {"top2_accuracy", TRI_METRIC_ACCURACY, {.k = 2}},
                 {"recalls", TRI_METRIC_RECALL, {.average = TRI_AVERAGE_NONE}},
                 {"f1", TRI_METRIC_F1, {0}},
                 {"confusion", TRI_METRIC_CONFUSION, {0}},
                 {"auc", TRI_METRIC_AUC, {.bins = 1000}},
                 {"perplexity", TRI_METRIC_PERPLEXITY, {0}}},
  of_targets[] = {{"label_f1", TRI_METRIC_F1, {0}},
                  {"exact_match", TRI_METRIC_EXACT_MATCH, {0}},
                  {"label_aucs", TRI_METRIC_AUC, {.average = TRI_AVERAGE_NONE, .bins = 1000}}},
  of_numbers[] = {{"mae", TRI_METRIC_MAE, {0}},
                  {"rmse", TRI_METRIC_RMSE, {0}},
                  {"r2", TRI_METRIC_R2, {0}},
                  {"r2s", TRI_METRIC_R2, {.average = TRI_AVERAGE_NONE}}};

#define DECLARE(list, prediction, target)                                                          \
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)                                        \
    tri_metric_of(g, list[i].name, list[i].kind, prediction, target, list[i].options)

static void metrics_net(tri_graph *g, const tri_batch *batch) {
    tri_block(g, "first");
    tri_value x = tri_relu(g, tri_linear(g, "up", batch->inputs, 16));
    tri_split_layer(g, "up", TRI_SPLIT_COLUMN);
    x = tri_linear(g, "down", x, OUTPUTS);
    tri_split_layer(g, "down", TRI_SPLIT_ROW);
    DECLARE(of_numbers, x, batch->targets);
    DECLARE(of_targets, x, tri_map(g, "x > 0", batch->targets));
    tri_block(g, "middle");
    tri_value y = tri_relu(g, tri_linear(g, "middle", x, 12));
    tri_block(g, "head");
    tri_value scores = tri_linear(g, "head", y, CLASSES);
    tri_split_layer(g, "head", TRI_SPLIT_COLUMN);
    DECLARE(of_labels, scores, batch->labels);
    tri_loss(g, tri_cross_entropy(g, scores, batch->labels));
}

static const tri_task metrics = {.name = "metrics", .build = metrics_net};

TRI_EXPORT_TASK(metrics)
