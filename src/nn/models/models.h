// The built-in models: each has the layers and parameter names of the published example it follows.
#ifndef TRIREME_NN_MODELS_MODELS_H
#define TRIREME_NN_MODELS_MODELS_H

#include "base/option.h"

#include <trireme/task.h>

extern const tri_task tri_model_mnist_cnn, tri_model_mnist_convnet, tri_model_autoencoder,
    tri_model_denoise_cnn, tri_model_mlp_jax, tri_model_resnet, tri_model_vit,
    tri_model_weather_vit, tri_model_llama, tri_model_gpt2;

// The fields of a sample of MNIST and similar data: grey images of 28 by 28, and a class.
#define MODEL_IMAGES_28                                                                            \
    {                                                                                              \
        "images", TRI_F32, {                                                                       \
            3, { 1, 28, 28 }                                                                       \
        }                                                                                          \
    }
#define MODEL_LABELS                                                                               \
    {                                                                                              \
        "labels", TRI_I64, { 0 }                                                                   \
    }

// The option tables of those models that have options of their own. Each table has the name of its
// model.
extern const tri_option_table model_denoise_cnn_options, model_resnet_options, model_vit_options,
    model_weather_vit_options, model_llama_options, model_gpt2_options;

// Fills in those of llama's options that follow from others: head_dim, num_key_value_heads.
void model_llama_complete(void *options);
// Fills in gpt2's n_inner, and gives the activation function one name.
void model_gpt2_complete(void *options);

// The options of models whose last layer has one output for each class.
typedef struct model_classes_options {
    int64_t num_classes;
    double dropout;
} model_classes_options;
// The number of outputs of such a model's last layer, by its table.
int64_t model_classes(tri_graph *graph, const tri_option_table *table);
extern const tri_option_table model_mnist_cnn_options, model_mnist_convnet_options,
    model_mlp_jax_options;

// The targets of a classification: `labels` or, where the data have none, `soft_labels`.
tri_value model_labels(const tri_batch *batch);
// Declares the loss of a decoder's logits [N, T, V], and its perplexity. As in Hugging Face's
// models, labels belong to the tokens at their own positions, and are shifted here.
void model_decoder_loss(tri_graph *graph, const tri_batch *batch, tri_value logits);

// Reads the recipe's options of the model by the table into the struct `out`. The graph fails if a
// key is not known, or a value has a wrong type or is out of bounds. Returns false if the graph has
// failed; `out` then holds nothing to compute with.
bool model_read_options(tri_graph *graph, const tri_option_table *table, void *out);
// The same without a graph. `options`: the recipe's map; NULL: all defaults.
tri_status model_decode_options(tri_arena *arena, const tri_option_table *table,
                                const tri_tree *options, void *out);

// The row `dropout` of models that have dropout layers. tri_dropout itself reads it for each layer.
#define MODEL_DROPOUT(S)                                                                           \
    TRI_OPTION_FLOAT(S, dropout, NULL, 0, 1,                                                       \
                     "replaces the rate of every dropout layer; less than 1")
#define MODEL_DROPOUT_KEY "dropout"
// The row `config` of models that have config.json files. The recipe puts the file's values in its
// place (recipe/config.h), so that no graph sees it.
#define MODEL_CONFIG(S)                                                                            \
    TRI_OPTION_STRING(S, config, NULL,                                                             \
                      "a config.json of Hugging Face: its values hold where the recipe has none")
#define MODEL_CONFIG_KEY "config"

// How a model says that a text which is generated would be too long.
#define MODEL_TEXT_HAS "prompt and --max-new-tokens together have"

// The built-in model of that name; NULL if there is none.
const tri_task *tri_model_find(const char *name);
// True if the model is a built-in one whose tokens see only the tokens before them, so that padding
// at the end of a sample changes nothing as long as its labels are ignored.
bool tri_model_is_causal(const tri_task *task);
// All built-in models, NULL at the end.
extern const tri_task *const tri_models[];
// The option tables of all built-in models, NULL at the end.
extern const tri_option_table *const tri_model_tables[];

#endif
