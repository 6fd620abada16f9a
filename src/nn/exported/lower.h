// How nodes are computed, one after the other or when they are asked for.
#ifndef TRIREME_NN_EXPORTED_LOWER_H
#define TRIREME_NN_EXPORTED_LOWER_H

#include "nn/exported/build.h"

// Sets the arguments of a call by its row's schema.
void exported_bind(exported_call *call);
// The value of that number. What no parameter reaches is computed when a block asks for it first,
// in each block that does.
exported_value exported_get(exported_build *build, int value);

// Whether the name of an operation ends with "_", so that it changes its first argument.
bool exported_is_in_place(const char *target);
// Whether a node's results share memory with its first argument.
typedef enum exported_sharing {
    EXPORTED_OWN,
    EXPORTED_SHARES,
    EXPORTED_MAY_SHARE, // it is not known here
} exported_sharing;
exported_sharing exported_sharing_of(const tri_pt2 *file, const tri_pt2_node *node);
// The row that puts what a view has become into its base; NULL: there is none.
const char *exported_write_row(const char *target);
// Puts new values in the place of what is written in place, so that no value changes.
tri_status exported_write_views(nn_exported *network);

#endif
