// What the files of layers share: names of parameters and PyTorch's default initial weights.
#ifndef TRIREME_NN_LAYERS_H
#define TRIREME_NN_LAYERS_H

#include "graph/graph.h"

// Joins "conv1" and "weight" to "conv1.weight", the name that PyTorch gives the parameter.
const char *nn_parameter_name(tri_graph *graph, const char *layer, const char *parameter);

// PyTorch's default for linear layers and convolutions: Kaiming uniform with a = √5, which is
// uniform in ±1/√fan_in, for the weight and for the bias.
tri_init nn_fan_in_uniform(int64_t fan_in);

// How a parameter of a layer begins: as the layer's options say, or else by the layer's default.
tri_init nn_init_or(tri_init given, tri_init otherwise);

#endif
