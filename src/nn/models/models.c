#include "nn/models/models.h"

#include <string.h>

const tri_task *const tri_models[] = {
    &tri_model_mnist_cnn,
    &tri_model_mnist_convnet,
    &tri_model_autoencoder,
    &tri_model_denoise_cnn,
    &tri_model_mlp_jax,
    &tri_model_llama,
    NULL,
};

const tri_task *tri_model_find(const char *name) {
    for (const tri_task *const *model = tri_models; *model; model++)
        if (!strcmp((*model)->name, name)) return *model;
    return NULL;
}
