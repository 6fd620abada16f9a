// Low-rank adapters (E. Hu and others, "LoRA: Low-Rank Adaptation of Large Language Models", 2021).
// Layers add them while a model is built (nn_adapt in layers.h), by the options of the graph
// (tri_lora).
#ifndef TRIREME_NN_LORA_H
#define TRIREME_NN_LORA_H

#include "graph/graph.h"

// Checks a graph that a model has built: TRI_BAD_INPUT if a pattern of tri_lora.match has found no
// layer. The message says why not, or has the nearest layer's name.
tri_status tri_lora_check(const tri_graph *graph);

#endif
