// Compares the fields of the data with each other and with what the model reads. A field that the
// model does not read would otherwise be left out without a word, and the run would train on
// something else than its user meant.
#ifndef TRIREME_TRAIN_FIELDS_H
#define TRIREME_TRAIN_FIELDS_H

#include "data/dataset.h"
#include "plan/program.h"

#include <trireme/task.h>

typedef struct train_named_data {
    tri_dataset *data;
    const char *name; // "training", …
} train_named_data;

// Checks that all data sets have the same fields, because they feed the same model.
tri_status train_fields_compare(const train_named_data *sets, int count);
// Warns of what the files of the data sets have and no sample uses.
void train_fields_warn_of_rest(const train_named_data *sets, int count);
// Logs a warning if images are stored as bytes in one data set and as other numbers in another one:
// the model then gets numbers of different sizes, unless the others are divided by 255 already.
// Also warns of files that two sets have, and of classes that data.limit leaves out of the first
// set, that of training.
void train_fields_warn(const train_named_data *sets, int count);
// Checks the data sets against the model and its graph, which the session trains or evaluates, and
// the graphs that no pass has changed (tri_plan.plain_graphs).
// TRI_BAD_INPUT: the model reads a field neither there nor in training, or reads more of a damaged
// sample that is left out than its label.
tri_status train_fields_check(const train_named_data *sets, int count, bool trains,
                              const tri_model_request *model, const tri_graph *graph,
                              const tri_graph *const plain[2]);
// Rejects tokens whose type is known from the file's name alone, if the model has more tokens than
// fit into it.
tri_status train_fields_check_guess(const tri_dataset *data, const char *field, int64_t tokens);

#endif
