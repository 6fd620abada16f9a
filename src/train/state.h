// The state of a run as a checkpoint contains it: the engine's tensors, and the loop's progress.
#ifndef TRIREME_TRAIN_STATE_H
#define TRIREME_TRAIN_STATE_H

#include "checkpoint/checkpoint.h"
#include "train/session.h"

// How far a run is: what a resumed run has to know besides the tensors.
typedef struct tri_progress {
    int64_t step;          // steps done
    int64_t updates;       // steps that changed the weights
    tri_loss_scale scale;  // of 16-mixed; scale.scale is 0 without
    int64_t epoch;         // of the next step, from 0
    int64_t step_in_epoch; // of the next step, from 0
    int64_t samples;       // trained on so far, over all ranks
    bool has_best;
    double best;    // early stopping: the best value of the monitored metric
    int64_t waited; // early stopping: evaluations since the best one
    bool has_val;   // the values below are those of the latest evaluation
    double val_loss, val[TRI_MAX_METRICS];
    int64_t val_samples;
    int64_t val_step; // the step after which it was made
} tri_progress;

typedef struct tri_state_view {
    tri_engine *engine;
    const tri_engine_tensor *tensors;
    tri_state_source source;
    tri_state_sink sink;
} tri_state_view;

// Make views of the model's and the optimizer's tensors, as sources to save and sinks to load; they
// live in `arena`.
void tri_state_view_model(tri_arena *arena, tri_engine *engine, tri_state_view *out);
void tri_state_view_optimizer(tri_arena *arena, tri_engine *engine, tri_state_view *out);

// The progress as a map, with the names of the graph's metrics, and back: the part `training` of
// state.json. TRI_CORRUPT: the map lacks a key.
tri_tree *tri_progress_tree(tri_arena *arena, const tri_progress *progress, const tri_graph *graph);
tri_status tri_progress_read(const tri_tree *tree, const tri_graph *graph, tri_progress *out);

#endif
