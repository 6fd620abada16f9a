// Texts that are generated, whose tokens do not come from data.
#ifndef TRIREME_TRAIN_TEXTS_H
#define TRIREME_TRAIN_TEXTS_H

#include "base/status.h"

#include <trireme/task.h>

typedef struct train_texts {
    int64_t count;  // how many texts; 0: none are generated
    int64_t length; // the most tokens of a text
    int64_t piece;  // how many tokens of each text TRI_STEP_PREFILL takes
    // The model has no caches: each call takes whole texts, and there is no TRI_STEP_DECODE.
    bool are_whole;
} train_texts;

// An exported network has no caches, so that it computes all of a text for each token. Behind the
// text stands padding, which tokens before it do not see; the last token is not computed. So sets
// `piece` and are_whole for such a model. TRI_BAD_INPUT: it does not take texts of that length.
tri_status train_settle_texts(const tri_task *task, train_texts *texts);

#endif
