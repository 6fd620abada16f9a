// The file of an offline run of Weights & Biases, run-ID.wandb, which `wandb sync` uploads: a log
// of records in blocks of 32 KiB, as LevelDB has it (doc/log_format.md) but with a head of its own
// and the plain CRC-32. A record is a protobuf message of wandb/proto/wandb_internal.proto.
#ifndef TRIREME_FORMAT_WANDB_H
#define TRIREME_FORMAT_WANDB_H

#include "base/status.h"
#include "format/protobuf.h"

#include <stddef.h>
#include <stdint.h>

// A file that is made in memory. A zero-initialised struct is empty; the caller frees it by
// tri_wandb_free.
typedef struct tri_wandb {
    uint8_t *data;
    size_t size, capacity;
    protobuf record;
    uint64_t count; // records so far
    bool failed;    // an allocation has failed, so the file is incomplete
} tri_wandb;
void tri_wandb_free(tri_wandb *file);

// A key with its value as JSON; a number may be NaN, Infinity or -Infinity.
typedef struct tri_wandb_item {
    const char *key, *json;
} tri_wandb_item;

typedef struct tri_wandb_run {
    const char *id, *project, *name;
    const char *group; // NULL: none
    const tri_wandb_item *config;
    int config_count;
    double start_s; // Unix time
} tri_wandb_run;

// Each function adds a record. The run's comes first, its exit last. A row of the history has
// `_step`, which rises from row to row. The summary has the values that are shown for the run.
void tri_wandb_begin(tri_wandb *file, const tri_wandb_run *run);
void tri_wandb_history(tri_wandb *file, const tri_wandb_item *items, int count);
void tri_wandb_summary(tri_wandb *file, const tri_wandb_item *items, int count);
void tri_wandb_exit(tri_wandb *file, int code, double runtime_s);

#endif
