// What `trireme eval` prints of metrics that have a number for each class.
#ifndef TRIREME_CLI_CLASS_TABLE_H
#define TRIREME_CLI_CLASS_TABLE_H

#include "train/train.h"

// Prints a table with a row for each class and a column for each list. Of many classes, those with
// the lowest figures of the last list that is no count. Then the most frequent mistakes of each
// confusion matrix. Nothing if the evaluation has no such metrics.
void cli_print_classes(tri_arena *arena, const tri_train_result *result);

#endif
