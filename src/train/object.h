// A task from a shared object.
#ifndef TRIREME_TRAIN_OBJECT_H
#define TRIREME_TRAIN_OBJECT_H

#include "base/status.h"

#include <trireme/task.h>

// Loads the object at `path`, which begins with "/", "./" or "../", and returns its task. The
// object stays loaded. TRI_BAD_INPUT: not a shared object, or no task of this version (both found
// out before any of its code runs). Whether the task is complete is not looked at.
tri_status tri_task_load_object(const char *path, const tri_task **out);

#endif
