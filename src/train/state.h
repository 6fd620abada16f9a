// The state of a run as a checkpoint contains it: the engine's tensors, and the loop's progress.
#ifndef TRIREME_TRAIN_STATE_H
#define TRIREME_TRAIN_STATE_H

#include "checkpoint/checkpoint.h"
#include "train/session.h"
#include "train/watched.h"

// The result of an evaluation.
typedef struct tri_evaluation {
    bool is_known; // false: it was not made
    int64_t step;  // the step after which it was made
    int64_t samples;
    // By metric of the graph; 0 is the loss. NaN of a metric with several figures, which
    // tri_session.figures has until the next evaluation.
    double mean[TRI_MAX_METRICS];
} tri_evaluation;

// How far a run has come: what a resumed run has to know besides the tensors.
typedef struct tri_progress {
    int64_t step;               // number of steps done
    int64_t updates;            // number of steps that changed the weights
    tri_loss_scale scale;       // loss scale of 16-mixed; in other runs scale.scale is 0
    int64_t epoch;              // epoch of the next step, from 0
    int64_t step_in_epoch;      // number of the next step in its epoch, from 0
    int64_t samples;            // samples trained on so far, over all ranks
    int64_t data_samples;       // samples of the training data; 0: not known
    const tri_tree *data_names; // of the training data (train/numbering.h); NULL: none
    tri_watched stopping;       // what early stopping has seen
    tri_plateau plateau;        // what the schedule plateau has seen
    // The evaluation after the latest step has to be made: it comes after the checkpoint of its
    // step, or a signal has cut it short.
    bool evaluation_due;
    tri_evaluation val;  // the latest
    tri_evaluation test; // of the test data, at the end of the run
    // How many steps the averages of the weights have counted, of which kind the averages are
    // (NULL: none), and whether evaluations use them.
    int64_t averaged;
    const char *average_name;
    bool evaluates_average;
    // Sum and count of the training losses since the latest evaluation that counts or, if that is
    // later, the begin of the epoch: their mean is the metric train_loss.
    double loss_sum, loss_count;
} tri_progress;

typedef struct tri_state_view {
    tri_engine *engine;
    const tri_engine_tensor *tensors;
    tri_state_source source;
    tri_state_sink sink;
} tri_state_view;

// Make views of the model's tensors, the optimizer's and the averages. A save reads from a view's
// `source`, and a load writes to its `sink`. Source and sink point to *out, so it must stay at its
// address while they are in use, and to descriptions of the tensors, which live in `arena`. Files
// of weights have to have the running statistics of batch norm if the session `evaluates`.
void tri_state_view_model(tri_arena *arena, tri_engine *engine, bool evaluates,
                          tri_state_view *out);
void tri_state_view_optimizer(tri_arena *arena, tri_engine *engine, tri_state_view *out);
// As the model's, with the averages in place of the trained parameters. It has no tensors if the
// engine keeps no averages.
void tri_state_view_average(tri_arena *arena, tri_engine *engine, tri_state_view *out);

// Convert the progress to a map, with the names of the graph's metrics, and back. The map is the
// member `training` of state.json. TRI_CORRUPT: the map lacks a key.
tri_tree *tri_progress_tree(tri_arena *arena, const tri_progress *progress, const tri_graph *graph);
tri_status tri_progress_read(const tri_tree *tree, const tri_graph *graph, tri_progress *out);

#endif
