// Searches a learning rate for `trireme lr-find`, on any number of ranks.
#ifndef TRIREME_TRAIN_LR_FIND_H
#define TRIREME_TRAIN_LR_FIND_H

#include "train/lr_rule.h"
#include "train/session.h"

typedef struct tri_lr_search {
    double least, most; // the first step's rate and the last one's, 0 < least < most
    int steps;          // at least two
} tri_lr_search;

typedef struct tri_lr_found {
    int rank;
    bool ended; // before the last step, because the loss grew (tri_lr_curve_add)
    tri_lr_curve curve;
} tri_lr_found;

// Trains from the weights with which a run of the recipe would begin, at a rate that rises with
// each step in place of the recipe's rate and schedule. The rest is as in a run, but nothing is
// evaluated or written. Steps that change nothing, because a gradient overflowed or no label
// counts, are repeated with the next samples. *out lies in `arena` and is the same on all ranks.
// Collective. TRI_BAD_INPUT: hardly any step changes the weights.
tri_status tri_lr_find(tri_arena *arena, const tri_session_request *request,
                       const tri_lr_search *search, tri_lr_found *out);

#endif
