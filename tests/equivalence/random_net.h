// What the parts of the network that random_net.c draws share: its values so far, and draws.
#ifndef TESTS_EQUIVALENCE_RANDOM_NET_H
#define TESTS_EQUIVALENCE_RANDOM_NET_H

#include <trireme/trireme.h>

enum {
    NET_VALUES = 64,
    NET_ELEMENTS = 400, // a sample has at most so many in a value
    NET_WIDTH = 6,      // features of the layers that share parameters
};

typedef struct net {
    tri_graph *graph;
    const tri_batch *batch;
    uint64_t state;               // of the draws
    tri_value values[NET_VALUES]; // F32 [samples, …], in the order in which they were made
    bool read[NET_VALUES];        // something is made of it
    tri_value data[NET_VALUES];   // fields of the batch that are F32
    int value_count, data_count, layer_count, block_count;
    bool mixes; // samples of a micro-batch may be mixed
    bool norms; // there may be batch norm
} net;

// The next number in [low, high].
int64_t net_draw(net *n, int64_t low, int64_t high);
bool net_chance(net *n, int percent);
// One of the values, mostly of the last ones.
tri_value net_value(net *n);
tri_value net_data(net *n);
// Data in this shape, to the bit as they are.
tri_value net_data_as(net *n, tri_shape shape);
// A name that no layer has.
const char *net_name(net *n);

// Elements of one sample, which the first axis counts.
int64_t net_elements(const net *n, tri_value x);
tri_shape net_shape(const net *n, tri_value x);
// The value with so many axes, whose sizes are drawn.
tri_value net_as(net *n, tri_value x, int rank);
// A value of this shape, which a linear layer makes of x if need be.
tri_value net_to(net *n, tri_value x, tri_shape shape);
// x, mostly behind a function whose results are small.
tri_value net_tamed(net *n, tri_value x);
// A linear layer over the last axis; ranks that share layers divide some of them.
tri_value net_linear(net *n, tri_value x, int64_t features);
// A function of x with a gradient that does not jump far.
tri_value net_function(net *n, tri_value x);
// A random formula of up to four values that are broadcast to x.
tri_value net_formula(net *n, tri_value x);

// Losses, of the features h.
tri_value net_target_loss(net *n, tri_value h);
tri_value net_label_loss(net *n, tri_value h, tri_value labels, int64_t classes);
tri_value net_soft_loss(net *n, tri_value h, tri_value labels);
tri_value net_masked_loss(net *n, tri_value h, tri_value mask);

// Adds a primitive. None: there was nothing that fits.
typedef tri_value (*net_primitive)(net *n, tri_value x);
extern const net_primitive net_layers[], net_functions[]; // a NULL ends each list
extern const net_primitive net_indices[];
extern const net_primitive net_mixers[]; // they mix the samples of a micro-batch

#endif
