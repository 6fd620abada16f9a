// What the files of layers share: names of parameters, PyTorch's default initial weights, and
// numbers of axes.
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

// Defined in weight_norms.c. The layer's weight: `given`, which has to have the shape, or if it is
// none the parameter NAME.weight. A value none: the graph has failed.
tri_value nn_weight(tri_graph *graph, const char *layer, const char *name, tri_value given,
                    tri_shape shape, tri_init init);

// The same of the bias, NAME.bias.
tri_value nn_bias(tri_graph *graph, const char *layer, const char *name, tri_value given,
                  tri_shape shape, tri_init init);
// Defined in lora.c. What a linear layer with the parameter `weight` makes of x: y, or its sum with
// what an adapter makes of x, if the graph's options want one for the layer.
tri_value nn_adapt(tri_graph *graph, const char *layer, tri_value x, tri_value weight, tri_value y);

// Defined in random.c. tri_dropout of a rate that the recipe's model.dropout does not replace.
tri_value nn_dropout(tri_graph *graph, const char *name, tri_value x, double p);

// Defined in losses.c. The recipe's loss.label_smoothing, of which the caller makes use.
double nn_take_smoothing(tri_graph *graph);
// Takes the place of a loss where the graph drops losses. It reads no labels, so that the data need
// none.
tri_value nn_stand_in(tri_graph *graph, tri_value prediction);
// The loss on labels of which a part is spread over all classes.
tri_value nn_smoothed_loss(tri_graph *graph, tri_value log_probabilities, tri_value labels,
                           double smoothing);
// How the shape of what a loss compares with its prediction may differ from the prediction's.
typedef enum nn_fit {
    NN_SAME,    // not at all
    NN_WITHIN,  // it is broadcast to the prediction's shape
    NN_ALIGNED, // it has as many axes; sizes may be 1 on either side
} nn_fit;
// Checks that shape. Without it, a target [N] and a prediction [N, 1] would be broadcast to all
// pairs of samples. A value of one element fits everything. False: the graph has failed.
bool nn_check_target(tri_graph *graph, const char *loss, const char *what, tri_value target,
                     tri_value prediction, nn_fit fit);
// Defined in random.c. Uniform numbers in [0, 1) of a shape whose first axis is that of the
// samples.
tri_value nn_uniform(tri_graph *graph, const char *layer, const char *name, tri_shape shape);
// Adds the metric "accuracy", unless the network has one. Training reports only the loss, so there
// the metric is declared but not computed, which saves time. It has to be declared because the
// graphs of training and evaluation must have the same metrics.
// Also declares what the recipe's `metrics` asks for.
void nn_report_accuracy(tri_graph *graph, tri_value scores, tri_value labels);
// Defined in asked_metrics.c, as the next one. Declares the metrics that the recipe asks for, of
// the scores and labels of the network's first loss on labels.
void nn_report_asked(tri_graph *graph, tri_value scores, tri_value labels);
bool nn_has_metric(const tri_graph *graph, const char *name);
// Finds the number of an axis of `rank`; a negative one counts from the last. -1: there is none,
// and the graph has failed.
int nn_axis(tri_graph *graph, const char *name, int axis, int rank);

// Checks that x is [N, C, …] with `least` to `most` more axes, none of them empty. False: the graph
// has failed.
bool nn_takes_pixels(tri_graph *graph, const char *layer, tri_value x, int least, int most);

#endif
