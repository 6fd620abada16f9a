// Compares the classes of labels and tokens in the data with those that the model knows.
#ifndef TRIREME_TRAIN_CLASSES_H
#define TRIREME_TRAIN_CLASSES_H

#include "base/arena.h"
#include "train/fields.h"

typedef struct train_classes {
    tri_arena *arena; // of messages
    const tri_task *task;
    const tri_graph *graph;
} train_classes;

// Rejects data with labels or tokens for which the model has no class. Otherwise the run would fail
// at the first step that contains one. *idle becomes a warning if the model has outputs for classes
// that the data have not; else it stays.
tri_status train_check_classes(const train_classes *of, const train_named_data *sets, int count,
                               const char **idle);

#endif
