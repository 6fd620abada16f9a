// A temporary folder for each test: cmocka's setup and teardown.
#ifndef TESTS_SUPPORT_RUN_FOLDER_H
#define TESTS_SUPPORT_RUN_FOLDER_H

#include "base/os.h"

#include <stdio.h>
#include <stdlib.h>

static char run_dir[64];

static inline int setup(void **state) {
    snprintf(run_dir, sizeof run_dir, "/tmp/trireme-checkpoint-XXXXXX");
    return mkdtemp(run_dir) == NULL;
}

static inline int teardown(void **state) { return tri_os_remove_tree(run_dir) != TRI_OK; }

// The path of RUN/name, valid until the fourth call after this one.
static inline const char *in_run(const char *name) {
    static char paths[4][256];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", run_dir, name);
    return path;
}

#endif
