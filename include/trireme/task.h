// A user's own model (a task), with which all commands of `trireme` work: fill in a tri_task and
// hand it to tri_main, or build it into a shared object that a recipe names as its model.
#ifndef TRIREME_TASK_H
#define TRIREME_TASK_H

#include <trireme/api.h>
#include <trireme/graph.h>

TRI_API_BEGIN

// One tensor of a sample: "images", "labels", …, or a field that the task itself declares.
typedef struct tri_field {
    const char *name;
    tri_dtype dtype;
    tri_shape shape; // shape of one sample: {3, {1, 28, 28}} for images, {0} for labels
} tri_field;

enum { TRI_TASK_MAX_FIELDS = 4 };

typedef struct tri_task {
    const char *name;
    // Builds the model, and ends with tri_loss, or with tri_output where the recipe has the loss.
    // Each rank calls it once for each size of micro-batch, for training and for evaluation. All
    // these graphs must have the same blocks, parameters and metrics, on all ranks. So it must be a
    // pure function of its arguments.
    void (*build)(tri_graph *graph, const tri_batch *batch);
    // The fields of a sample, for commands that do not open the data (`trireme plan`, `checkpoint
    // init`). They take the shapes of a sample from the recipe: from data.shapes or, for the data
    // sets "synthetic" and "tokens", from their other settings. Only where the recipe does not
    // determine the shapes, they use these fields. May be left out (all zero). Data with a field
    // that `build` does not read are refused, unless it is one of these.
    tri_field fields[TRI_TASK_MAX_FIELDS];
} tri_task;

// The whole program: every command of `trireme` with this task as its model. Returns the exit code.
// Until then its threads use the C locale, whatever setlocale says: numbers have a decimal point,
// also those that the task's own functions print.
int tri_main(int argc, char **argv, const tri_task *task);

// Exports a task from a shared object, whose path a recipe gives as `model.name`. Write
// TRI_EXPORT_TASK(my_task) once in the object. The version of the headers is part of the symbol's
// name, so that an object built for another version is refused instead of crashing.
#ifdef __cplusplus
#define TRI_TASK_LINKAGE extern "C"
#else
#define TRI_TASK_LINKAGE extern
#endif
#define TRI_EXPORT_TASK(task)                                                                      \
    TRI_TASK_LINKAGE __attribute__((visibility("default"))) const tri_task *trireme_task_v1(void); \
    const tri_task *trireme_task_v1(void) { return &(task); }

TRI_API_END

#endif
