// A run as an offline run of Weights & Biases, which `wandb sync FOLDER` uploads.
#ifndef TRIREME_VIEWS_WANDB_H
#define TRIREME_VIEWS_WANDB_H

#include "observe/observe.h"
#include "views/run.h"

// Writes HOME/offline-run-TIME-ID/run-ID.wandb, which is replaced, and gives that folder. TIME
// (UTC) is when the run began. ID is made of that line of metrics.jsonl and the name of the run
// folder, so the same run has the same one again, also after a resume. A row of the history has all
// figures of a step, the summary the latest ones. The recipe becomes the config; its
// log.wandb.project (else "trireme") and log.wandb.group are those of the run. While the run goes
// on, the file has no exit, so that W&B shows it as not finished. wandb's mark that the file was
// uploaded is removed.
tri_status views_wandb_write(tri_arena *arena, const views_run *run, const char *home,
                             const char **folder);

// The sink of `log.wandb`: the same in FOLDER/wandb, made again at the end, and at lines of metrics
// so seldom that it takes a hundredth of the time at most.
extern const tri_event_sink views_sink_wandb;

#endif
