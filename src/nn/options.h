// The settings of the recipe's sections `optimizer` and `model`.
#ifndef TRIREME_NN_OPTIONS_H
#define TRIREME_NN_OPTIONS_H

#include "base/option.h"

// The options of all optimizers. Members that do not apply to the named one are zero.
typedef struct tri_optimizer_options {
    const char *name; // sgd | adam | adamw | adadelta
    double lr;
    double momentum, dampening; // sgd
    bool nesterov;              // sgd
    tri_doubles betas;          // adam, adamw: two
    double eps;                 // adam, adamw, adadelta
    double rho;                 // adadelta
    double weight_decay;
    tri_strings freeze; // patterns of the names of parameters that are not trained
} tri_optimizer_options;

// Defaults are PyTorch's (https://pytorch.org/docs/stable/optim.html), so that scripts can be
// carried over unchanged.
extern const tri_option_table tri_optimizer_table;

typedef struct tri_model_options {
    const char *name; // a built-in model or a path of a shared object; NULL: the program's own task
    const tri_tree *options; // a map of all other keys, which the model reads and checks
} tri_model_options;

extern const tri_option_table tri_model_table;

#endif
