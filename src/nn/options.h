// The settings of the recipe's sections `optimizer`, `loss` and `model`. An option table lists the
// options of a section; a recipe is read, checked and documented by it.
#ifndef TRIREME_NN_OPTIONS_H
#define TRIREME_NN_OPTIONS_H

#include "graph/graph.h"

// The options of all optimizers; comments name the optimizers that have the option, if not all have
// it. Options that the chosen optimizer does not have are zero.
typedef struct tri_optimizer_options {
    const char *name; // sgd | adam | adamw | adamax | adadelta | adagrad | rmsprop | lion
    double lr;
    double momentum;                            // for sgd and rmsprop
    double dampening;                           // for sgd
    bool nesterov;                              // for sgd
    tri_doubles betas;                          // two numbers, for adam, adamw, adamax and lion
    double eps;                                 // not for sgd and lion
    double rho;                                 // for adadelta
    double alpha;                               // for rmsprop
    bool centered;                              // for rmsprop
    double lr_decay, initial_accumulator_value; // for adagrad
    double weight_decay;
    tri_strings freeze;     // parameters whose names match one of these patterns are not trained
    const tri_tree *groups; // see tri_optimizer_groups_read; NULL: none
    bool decay_norms_and_biases;
} tri_optimizer_options;

enum { TRI_MAX_OPTIMIZER_GROUPS = 16 };

// One entry of optimizer.groups: settings of the parameters whose names match one of the patterns.
typedef struct tri_optimizer_group {
    tri_strings match;
    const char *lr;   // as written: a rate, or a factor as 0.1x; NULL: lr_factor holds
    double lr_factor; // of the learning rate
    double weight_decay;
    bool has_decay; // weight_decay is the group's own
    bool frozen;
} tri_optimizer_group;

// Reads optimizer.groups into out[0 … *count - 1], which has TRI_MAX_OPTIMIZER_GROUPS elements.
// TRI_BAD_INPUT: an entry has an unknown key or a bad value.
tri_status tri_optimizer_groups_read(tri_arena *arena, const tri_optimizer_options *options,
                                     tri_optimizer_group *out, int *count);

// Defaults are PyTorch's (https://pytorch.org/docs/stable/optim.html), so that scripts can be
// carried over unchanged.
extern const tri_option_table tri_optimizer_table;

// One loss of the recipe. The table of recipe_loss.c says which losses have which options, and what
// these mean; options that a loss does not have are zero.
typedef struct tri_loss_options {
    const char *name;            // "model": the model's own; "sum": those of `terms`
    const char *output, *target; // NULL: the first output, the usual field
    double weight;
    double label_smoothing; // from 0 to 1: how much of each label all classes share
    tri_doubles class_weights, pos_weight;
    int64_t ignore, blank;
    int class_axis, next_token;
    double delta, beta;
    bool log_target, batch_mean, zero_infinity;
    const char *input_lengths, *target_lengths;
    const tri_tree *terms;
} tri_loss_options;

extern const tri_option_table tri_loss_table;

// Reads the losses that the section gives in place of the model's own: none, one, or those of a
// sum. TRI_BAD_INPUT: an entry of the list has an unknown key or a bad value.
tri_status tri_losses_read(tri_arena *arena, const tri_loss_options *section,
                           const tri_loss_options **out, int *count);
// Of tri_lora (graph/graph.h).
extern const tri_option_table tri_lora_table;
// Checks the words of the recipe's `metrics`, which is at the node `at`. TRI_BAD_INPUT: there is no
// such metric; the message has the nearest one, and all.
tri_status tri_metric_words_check(const tri_strings *words, const tri_tree *at);

typedef struct tri_model_options {
    // A built-in model or the path of a shared object; NULL: the model that the program brings
    // itself (a tri_task).
    const char *name;
    const tri_tree *options; // a map of all other keys, which the model reads and checks
} tri_model_options;

extern const tri_option_table tri_model_table;

#endif
