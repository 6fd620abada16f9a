// A task from a shared object.
#ifndef TRIREME_TRAIN_OBJECT_H
#define TRIREME_TRAIN_OBJECT_H

#include "base/status.h"

#include <trireme/task.h>

// Loads the object at `path`, which begins with "/", "./" or "../", and takes its task; it stays
// loaded. TRI_BAD_INPUT for a file that is no shared object, exports no task of this version, which
// is found out before any of its code runs, or whose task is incomplete.
tri_status tri_task_load_object(const char *path, const tri_task **out);

#endif
