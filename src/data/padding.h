// Checks attention masks of models that do not read them.
#ifndef TRIREME_DATA_PADDING_H
#define TRIREME_DATA_PADDING_H

#include "data/dataset.h"

// Checks that a causal model may ignore `attention_mask` after tri_dataset_move_padding: in each
// sample, the mask is 1 for all tokens, or 0 only for the first and last ones, and the labels of
// those are -100. Then no token that counts in the loss sees padding. Reads all samples.
// `predicts`: there is no loss, and the padding has not been moved, since a row of the outputs
// belongs to a position of the data: so the mask may be 0 only for the last tokens.
// TRI_BAD_INPUT: the message names the sample. `split` and `model` are names for messages.
tri_status tri_padding_check(const tri_dataset *dataset, const char *split, const char *model,
                             bool predicts);

#endif
