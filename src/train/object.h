// Loads a user's model (a task) from a shared object that the recipe names, so that a new model
// needs no new build of the program.
#ifndef TRIREME_TRAIN_OBJECT_H
#define TRIREME_TRAIN_OBJECT_H

#include "base/status.h"

#include <trireme/task.h>

// Loads the object at `path`, which begins with "/", "./" or "../", and returns its task. The
// object stays loaded, because graphs point into it. TRI_BAD_INPUT: it is not a shared object, or
// has no task of this version (both are checked before any of its code runs). The caller checks
// that the task is complete.
tri_status tri_task_load_object(const char *path, const tri_task **out);

#endif
