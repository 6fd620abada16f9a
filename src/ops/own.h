// Ops of a user's own program (trireme/own_op.h).
#ifndef TRIREME_OPS_OWN_H
#define TRIREME_OPS_OWN_H

#include <trireme/own_op.h>

// The attributes of own and own_grad.
typedef struct tri_own_attr {
    const tri_own_op *op; // registered, and stays until the program ends
    double settings[TRI_OWN_SETTINGS];
} tri_own_attr;

// Finds a registered op; NULL: there is none of this name.
const tri_own_op *ops_own_find(const char *name);
int ops_own_outputs(const tri_own_op *op);
// Finds the shapes of all outputs.
tri_status ops_own_shapes(const tri_own_op *op, const tri_shape *in, const double *settings,
                          tri_shape *out);

#endif
