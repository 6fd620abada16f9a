// The built-in models, to the layer of their originals.
#ifndef TRIREME_NN_MODELS_MODELS_H
#define TRIREME_NN_MODELS_MODELS_H

#include <trireme/task.h>

extern const tri_task tri_model_mnist_cnn, tri_model_mnist_convnet, tri_model_autoencoder,
    tri_model_denoise_cnn, tri_model_mlp_jax, tri_model_llama;

// Fields of a sample: grey images of 28 by 28, a class.
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

// The built-in model of that name; NULL when there is none.
const tri_task *tri_model_find(const char *name);
// All built-in models, NULL at the end.
extern const tri_task *const tri_models[];

#endif
