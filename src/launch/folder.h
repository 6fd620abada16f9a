// Where a run's log and error files are: DIR/<run id>_<random>/attempt_<n>/<local rank>/, where DIR
// is that of --log-dir. An attempt is one start of the run's workers (the ranks' processes). The
// paths are the same as torchrun's, so that tools for torchrun's files work here.
#ifndef TRIREME_LAUNCH_FOLDER_H
#define TRIREME_LAUNCH_FOLDER_H

#include "launch/worker.h"

typedef struct launch_folder {
    char path[2048];
    bool temporary; // contains only error files, and is removed at the end
} launch_folder;

// Creates the folder for the workers' log and error files: under --log-dir, or a temporary one if
// no log files were asked for.
tri_status launch_folder_create(const launch_options *options, const char *run_id,
                                launch_folder *out);
// Makes the worker's folder for an attempt, and sets its `folder` and `error_file`.
tri_status launch_folder_add(const launch_folder *folder, int attempt, launch_worker *worker);
void launch_folder_end(const launch_folder *folder);

#endif
