// A session: ranks, device, data, plan and engine, made from a recipe. The commands train, eval,
// plan, bench and checkpoint init share it, so that all treat a recipe alike.
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

// The backends that the program was built with; only the command line names concrete ones.
typedef struct tri_backends {
    const tri_device_backend *const
        *devices; // the best first, NULL at the end; "auto" takes the first that is there
    // Connects this rank to the others; only called for several ranks. `options` NULL: defaults.
    // *health, which ends after the communicator, finds lost ranks; NULL: all ranks are on one
    // host, where shared memory shows it.
    tri_status (*open_comm)(const tri_identity *identity, const tri_comm_options *options,
                            tri_comm **out, tri_health **health);
    // Reports `why` as at the end of a failed run, and ends the process although its main thread is
    // stuck in a collective that another rank will never join. NULL: the process stays as it is.
    void (*give_up)(tri_status why);
} tri_backends;

typedef struct tri_session_request {
    const tri_backends *backends;
    const tri_recipe *recipe;
    const tri_task *task; // the program's own; NULL: the recipe's
    const char *device;   // as tri_device_open takes it
    bool train, evaluate; // which data to open and plan for
    bool alone;           // one rank without a network, even if the environment describes more
    tri_comm *comm; // the ranks of the session, if they are not all ranks of the job; stays open
} tri_session_request;

// From where the data of evaluations come, during training and of `trireme eval`.
typedef enum tri_val_source {
    TRI_VAL_NONE,
    TRI_VAL_SPLIT,    // data.val or data.val_fraction; the test data are evaluated at the end
    TRI_VAL_TEST,     // the test data, because there is no validation data
    TRI_VAL_TRAINING, // the batches of trainer.overfit_batches
} tri_val_source;

typedef struct tri_session {
    tri_arena *arena;
    const tri_recipe *recipe; // the request's, with the batch sizes resolved for these ranks
    const tri_task *task;
    tri_identity identity;
    const tri_host_claim *claims; // by rank: its host
    tri_comm *comm;
    bool borrows_comm;
    tri_health *health; // NULL: all ranks are on one host
    tri_liveness *liveness;
    tri_device *device;
    // NULL: not requested, or the recipe has none. test_data is evaluated only at the end of the
    // run, so that no decision of the run depends on it.
    tri_dataset *train_data, *val_data, *test_data;
    tri_val_source val_source;
    tri_sampler train_sampler, val_sampler, test_sampler;
    tri_field fields[TRI_MAX_DATA_FIELDS];
    int field_count;
    tri_pixel_scale image_scale; // of model.image_scale
    tri_task_options task_options;
    tri_model_request model;
    tri_optimizer optimizer;
    tri_mesh mesh;
    tri_plan *plan;
    tri_engine *engine;
} tri_session;

// Opens everything up to the engine; writes no file, because nothing may be left if a later check
// fails. Collective. On failure *out is destroyed.
tri_status tri_session_open(const tri_session_request *request, tri_session **out);
// Tells the other ranks why this one ends, so that they report the cause instead of a lost rank;
// not if they end in the same step for the same reason. Keeps the error message. Returns the
// status: TRI_REFUSED if it comes of another rank's bad input.
tri_status tri_session_tell(tri_session *session, tri_status status);
void tri_session_close(tri_session *session); // NULL allowed

// The fields of a sample, found without opening the data, which may be on another machine: from the
// data's options, or from a task that is not built in. TRI_BAD_INPUT: only the data contain them,
// and data.shapes is not set.
tri_status tri_session_describe_fields(const tri_recipe *recipe, const tri_task *task,
                                       tri_field *fields, int *count);
// Logs what is suspicious about the data: the data set's own advice, and fields other than those of
// tri_session_describe_fields, for which plans and initial weights would be of another network.
void tri_session_warn(const tri_session *session);
// Makes the recipe's mesh for `ranks` ranks.
tri_status tri_session_make_mesh(const tri_recipe *recipe, int ranks, tri_mesh *out);
// Makes the plan request of a recipe: one function for a run, `trireme plan` and initial weights,
// so that all plan the same. The caller adds mesh, rank, step_samples and eval_micro. *out borrows
// all arguments.
void tri_session_plan_request(const tri_recipe *recipe, const tri_batch_options *batch,
                              const tri_model_request *model, const tri_optimizer *optimizer,
                              tri_plan_request *out);
// Steps of one epoch, as limited by trainer.limit_train_batches, overfit_batches and fast_dev_run.
int64_t tri_session_steps_per_epoch(const tri_session *session);
// Make loaders of this rank's micro-batches: of training from `step` of `epoch` on, or of one
// evaluation. The caller destroys them.
tri_status tri_session_train_loader(const tri_session *session, int64_t epoch, int64_t step,
                                    tri_loader **out);
tri_status tri_session_val_loader(const tri_session *session, tri_loader **out);
tri_status tri_session_test_loader(const tri_session *session, tri_loader **out);
// Seconds that this rank has spent so far in waits for other ranks during which it computed
// nothing. On a device that runs ahead of the host, also those in which the host waited for the
// device.
double tri_session_waited_s(const tri_session *session);

#endif
