// The list of built-in models, and how their options are read. The option table of a model lists
// the keys that the recipe's section `model` may have for it.
#include "nn/models/models.h"

#include "base/limits.h"
#include "graph/graph.h"
#include "nn/layers.h"

#include <string.h>
#include <trireme/nn.h>

const tri_task *const tri_models[] = {
    &tri_model_mnist_cnn,
    &tri_model_mnist_convnet,
    &tri_model_autoencoder,
    &tri_model_denoise_cnn,
    &tri_model_mlp_jax,
    &tri_model_resnet,
    &tri_model_vit,
    &tri_model_weather_vit,
    &tri_model_llama,
    &tri_model_gpt2,
    NULL,
};

const tri_task *tri_model_find(const char *name) {
    for (const tri_task *const *model = tri_models; *model; model++)
        if (!strcmp((*model)->name, name)) return *model;
    return NULL;
}

bool tri_model_is_causal(const tri_task *task) {
    return task == &tri_model_llama || task == &tri_model_gpt2;
}

static const tri_option_table autoencoder_options = {
    .section = "autoencoder", .help = "784-64-3-64-784, the image as its own target"};

#define CLASSES                                                                                    \
    TRI_OPTION_INT(model_classes_options, num_classes, "10", 1, TRI_MAX_CLASSES,                   \
                   "outputs of the last layer: labels are below it")
static const tri_option classes_rows[] = {CLASSES},
                        cnn_rows[] = {CLASSES, MODEL_DROPOUT(model_classes_options)};
const tri_option_table model_mnist_cnn_options = TRI_OPTION_TABLE(
    "mnist-cnn", model_classes_options, cnn_rows, "two convolutions, two linear layers");
const tri_option_table model_mnist_convnet_options =
    TRI_OPTION_TABLE("mnist-convnet", model_classes_options, classes_rows,
                     "two convolutions with batch norm, a linear layer");
const tri_option_table model_mlp_jax_options = TRI_OPTION_TABLE(
    "mlp-jax", model_classes_options, classes_rows, "three linear layers, 784-512-512-10");

int64_t model_classes(tri_graph *graph, const tri_option_table *table) {
    model_classes_options o;
    return model_read_options(graph, table, &o) ? o.num_classes : 1;
}

const tri_option_table *const tri_model_tables[] = {
    &model_mnist_cnn_options,
    &model_mnist_convnet_options,
    &autoencoder_options,
    &model_denoise_cnn_options,
    &model_mlp_jax_options,
    &model_resnet_options,
    &model_vit_options,
    &model_weather_vit_options,
    &model_llama_options,
    &model_gpt2_options,
    NULL,
};

tri_value model_labels(const tri_batch *batch) {
    return batch->labels.id ? batch->labels : tri_batch_field(batch, "soft_labels");
}

void model_decoder_loss(tri_graph *graph, const tri_batch *batch, tri_value logits) {
    tri_value labels = batch->labels.id ? batch->labels : batch->input_ids;
    labels = tri_next_token(graph, labels);
    tri_value loss = tri_cross_entropy(graph, logits, labels);
    if (graph->status == TRI_OK && !nn_has_metric(graph, "perplexity"))
        tri_metric_of(graph, "perplexity", TRI_METRIC_PERPLEXITY, logits, labels,
                      (tri_metric_options){0});
    tri_loss(graph, loss);
}

tri_status model_decode_options(tri_arena *arena, const tri_option_table *table,
                                const tri_tree *options, void *out) {
    bool has_dropout = false;
    for (int i = 0; i < table->count; i++)
        has_dropout = has_dropout || !strcmp(table->rows[i].key, MODEL_DROPOUT_KEY);
    tri_tree *map = options ? tri_tree_copy(arena, options) : NULL;
    // Every model accepts a rate of dropout, which sets those that it has.
    if (!has_dropout) tri_tree_remove(map, MODEL_DROPOUT_KEY);
    return tri_option_decode_under(arena, "model", table, map, out);
}

bool model_read_options(tri_graph *graph, const tri_option_table *table, void *out) {
    for (int i = 0; i < table->count; i++) tri_graph_model_option(graph, table->rows[i].key);
    if (model_decode_options(graph->arena, table, graph->options.model_options, out) != TRI_OK)
        tri_graph_fail(graph, "%s", tri_error_message());
    return tri_graph_status(graph, NULL) == TRI_OK;
}
