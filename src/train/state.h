// The state of a run as a checkpoint holds it: tensors from the engine, and the loop's own numbers.
#ifndef TRIREME_TRAIN_STATE_H
#define TRIREME_TRAIN_STATE_H

#include "checkpoint/checkpoint.h"
#include "engine/loss_scale.h"
#include "train/session.h"

// Where a run stands.
typedef struct tri_progress {
    int64_t step;          // steps of data done
    int64_t updates;       // of them, those that changed the weights
    tri_loss_scale scale;  // of 16-mixed
    int64_t epoch;         // of the next step
    int64_t step_in_epoch; // likewise
    int64_t samples;       // seen, over all ranks
    bool has_best;         // of early stopping
    double best;
    int64_t waited; // evaluations since
    bool has_val;   // the latest evaluation
    double val_loss, val[TRI_MAX_METRICS];
    int64_t val_samples;
    int64_t val_step; // at which it was made
} tri_progress;

typedef struct tri_state_view {
    tri_engine *engine;
    const tri_engine_tensor *tensors;
    tri_state_source source;
    tri_state_sink sink;
} tri_state_view;

// The model's and the optimizer's tensors as sources and sinks; they live in `arena`.
void tri_state_view_model(tri_arena *arena, tri_engine *engine, tri_state_view *out);
void tri_state_view_optimizer(tri_arena *arena, tri_engine *engine, tri_state_view *out);

tri_tree *tri_progress_tree(tri_arena *arena, const tri_progress *progress, const tri_graph *graph);
tri_status tri_progress_read(const tri_tree *tree, const tri_graph *graph, tri_progress *out);

#endif
