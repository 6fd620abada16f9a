// A session: ranks, device, data, plan and engine, made from a recipe. A plan is all that a rank
// needs for its steps, and is made before the first one: schedules, kernels, memory. Training,
// evaluation and `trireme bench train` open a session. The commands plan and checkpoint init need
// none, but use the same functions of this header, so that all treat a recipe in the same way.
#ifndef TRIREME_TRAIN_SESSION_H
#define TRIREME_TRAIN_SESSION_H

#include "comm/comm.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "engine/engine.h"
#include "observe/liveness.h"
#include "recipe/recipe.h"
#include "rendezvous/health.h"
#include "rendezvous/rendezvous.h"
#include "train/task.h"
#include "train/texts.h"

// The backends with which the program was built. Only src/cli names concrete ones; all other code
// gets them by this struct.
typedef struct tri_backends {
    // The kinds of devices in order of preference, NULL at the end. The device "auto" is the first
    // of them that exists on this host.
    const tri_device_backend *const *devices;
    // Connects this rank to the others; only called if there are several. `options` NULL: defaults.
    // *health finds lost ranks; it must be stopped only after the communicator is closed. *health
    // NULL: the ranks use only shared memory, which shows lost ranks itself.
    tri_status (*open_comm)(const tri_identity *identity, const tri_comm_options *options,
                            tri_comm **out, tri_health **health);
    // Reports `why` as at the end of a failed run, and ends the process even if its main thread is
    // stuck in a collective that another rank will never join. NULL: the process is not ended.
    void (*give_up)(tri_status why);
    // Ends the process at once. A signal handler may call it. NULL: signals end the process.
    void (*end)(int code);
} tri_backends;

typedef struct tri_session_request {
    const tri_backends *backends;
    const tri_recipe *recipe;
    // A model that the program brings itself, used if the recipe names it or names none; NULL:
    // there is none, and the recipe names a model.
    const tri_task *task;
    const char *device; // the device's name, as tri_device_open expects it
    // train: open the training data, and plan training. evaluate: open the data of evaluations, and
    // plan evaluations.
    bool train, evaluate;
    bool alone; // one rank without a network, even if the environment describes several ranks
    // With `evaluate` and without `train`: plan the model's outputs for all samples of the data,
    // instead of its loss and metrics.
    bool predict;
    // The weights that will be loaded, if nothing is trained (train_load_weights). If their
    // matrices are BF16 or F16, a recipe that sets no precision computes in that type; NULL: not
    // known.
    const char *weights;
    // Plan a model with caches for these texts, and open no data. count 0: the session has none.
    train_texts texts;
    // With `predict`: the fields on which the model was trained, as far as that is known.
    const tri_field *trained;
    int trained_count;
    // A communicator of the session's ranks, which the caller closes. NULL: the session connects
    // all ranks of the job itself.
    tri_comm *comm;
} tri_session_request;

// Which data are evaluated, during training and by `trireme eval`.
typedef enum tri_val_source {
    TRI_VAL_NONE,
    // The validation data of data.val or data.val_fraction. If there are test data too, a run
    // evaluates the test data only at its end.
    TRI_VAL_SPLIT,
    // The test data: evaluated in a run without validation data, and by `trireme eval`, which
    // prefers them to validation data.
    TRI_VAL_TEST,
    TRI_VAL_TRAINING, // the training samples to which trainer.overfit_batches limits the run
} tri_val_source;
extern const char *const tri_val_source_names[]; // "nothing", "validation", …

typedef struct tri_session {
    tri_arena *arena;
    // The request's recipe, with the batch sizes that follow for these ranks.
    const tri_recipe *recipe;
    const tri_task *task;
    tri_identity identity;
    const tri_host_claim *host_claims; // by rank: what the rank has told about its host
    // A warning that the data has fewer classes than the model has outputs; NULL: it has not.
    const char *idle_outputs;
    tri_comm *comm;
    bool borrows_comm;
    bool predicts;     // the plan is for the model's outputs
    bool half_weights; // all matrices of the weights are of the half type of the precision
    train_texts texts;
    tri_field token_fields[2]; // of TRI_STEP_DECODE, which takes one token of each text
    tri_health *health;        // NULL: the ranks use only shared memory
    tri_liveness *liveness;
    tri_device *device;
    // The data sets; NULL: not requested, or the recipe has none. `val_source` tells which data
    // val_data are. test_data are set only in a run that has validation data. They are evaluated
    // only at the end of the run, so that no decision of the run depends on them.
    tri_dataset *train_data, *val_data, *test_data;
    tri_val_source val_source;
    tri_sampler train_sampler, val_sampler, test_sampler;
    tri_field fields[TRI_MAX_DATA_FIELDS];
    int field_count;
    // Fields of training that the data of a prediction lack (tri_model_request.absent).
    tri_field absent[TRI_MAX_DATA_FIELDS];
    // How the bytes of images become numbers, if the device normalises them; model.image_scale then
    // points to it.
    tri_pixel_scale image_scale;
    tri_task_options task_options;
    tri_model_request model;
    tri_optimizer optimizer;
    tri_mesh mesh;
    tri_plan *plan;
    tri_engine *engine;
    // By metric of the graph: the figures that the latest evaluation has found.
    double *figures[TRI_MAX_METRICS];
} tri_session;

// Opens everything including the engine. It writes no file, because nothing may be left behind if a
// later check fails. Collective. On failure everything is closed again, and *out is not set.
tri_status tri_session_open(const tri_session_request *request, tri_session **out);
// Tells the other ranks why this rank ends, so that they report the cause instead of a lost rank.
// Tells nothing if all ranks end in the same step for the same reason. Keeps the error message.
// Returns `status`, or TRI_REFUSED if the failure follows from another rank's bad input.
tri_status tri_session_tell(tri_session *session, tri_status status);
void tri_session_close(tri_session *session); // NULL allowed

// Logs what is suspicious about the data: the data set's own advice, and fields that differ from
// those of train_describe_fields, because plans and initial weights would then be for another
// network.
void tri_session_warn(const tri_session *session);
// Makes the recipe's mesh for `ranks` ranks.
tri_status tri_session_make_mesh(const tri_recipe *recipe, int ranks, tri_mesh *out);
// Makes the plan request of a recipe. A run, `trireme plan` and initial weights all use this
// function, so that all make the same plan. The caller sets the members mesh, rank, step_samples
// and eval_micro. *out keeps pointers into `recipe` and `model`, which must outlive it.
void tri_session_plan_request(const tri_recipe *recipe, const tri_batch_options *batch,
                              const tri_model_request *model, const tri_optimizer *optimizer,
                              tri_plan_request *out);
// Counts the steps of one epoch, as limited by trainer.limit_train_batches, overfit_batches and
// fast_dev_run.
int64_t tri_session_steps_per_epoch(const tri_session *session);
// Make loaders of this rank's micro-batches: for training from `step` of `epoch` on, or for one
// evaluation. The caller destroys them.
tri_status tri_session_train_loader(const tri_session *session, int64_t epoch, int64_t step,
                                    tri_loader **out);
tri_status tri_session_val_loader(const tri_session *session, tri_loader **out);
tri_status tri_session_test_loader(const tri_session *session, tri_loader **out);
// How many seconds this rank has waited so far for other ranks without computing anything. On a
// device that works asynchronously, the host's waits for the device count too.
double tri_session_waited_s(const tri_session *session);

#endif
