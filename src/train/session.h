// A run's parts, put together from its recipe: ranks, device, data, plan, engine. What train, eval,
// plan, bench and checkpoint init have in common.
#ifndef TRIREME_TRAIN_SESSION_H
#define TRIREME_TRAIN_SESSION_H

#include "comm/comm.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "engine/engine.h"
#include "observe/liveness.h"
#include "recipe/recipe.h"
#include "rendezvous/rendezvous.h"
#include "train/task.h"

// The backends that the program was built with; only the command line names concrete ones.
typedef struct tri_backends {
    const tri_device_backend *const
        *devices; // the best first, NULL at the end; "auto" takes the first that opens
    // Meets the other ranks; a single rank needs no network. `options` NULL: defaults. Sets
    // identity->local_rank and local_size where the launcher did not tell the size.
    tri_status (*open_comm)(tri_identity *identity, const tri_comm_options *options,
                            tri_comm **out);
    // Says why, as at the end of a run that failed, and ends the process, whose main thread stands
    // still. NULL: nobody does.
    void (*give_up)(tri_status why);
} tri_backends;

typedef struct tri_session_request {
    const tri_backends *backends;
    const tri_recipe *recipe;
    const tri_task *task; // the program's own; NULL: the recipe's
    const char *device;   // "auto", or a backend's name
    bool train, evaluate; // which data to open and plan for
    bool alone;           // one rank whatever the environment says, no network
} tri_session_request;

// What epochs are evaluated on, or eval.
typedef enum tri_val_source {
    TRI_VAL_NONE,
    TRI_VAL_HELD,     // data.val or data.val_fraction; the test data wait for the end
    TRI_VAL_TEST,     // the test data, for want of others
    TRI_VAL_TRAINING, // the batches of trainer.overfit_batches
} tri_val_source;

typedef struct tri_session {
    tri_arena *arena;
    const tri_recipe *recipe; // the request's, with a batch for the ranks that there are
    const tri_task *task;
    tri_identity identity;
    tri_comm *comm;
    tri_liveness *liveness;
    tri_device *device;
    // NULL: not opened, or there is none. test_data are those that are kept for the end.
    tri_dataset *train_data, *val_data, *test_data;
    tri_val_source val_source;
    tri_sampler train_sampler, val_sampler, test_sampler;
    tri_field fields[TRI_MAX_DATA_FIELDS];
    int field_count;
    tri_task_options task_options;
    tri_model_request model;
    tri_optimizer optimizer;
    tri_mesh mesh;
    tri_plan *plan;
    tri_engine *engine;
} tri_session;

// Everything up to the engine, nothing written anywhere. On failure *out is destroyed.
tri_status tri_session_open(const tri_session_request *request, tri_session **out);
void tri_session_close(tri_session *session); // NULL allowed

// The fields of a sample without opening the data: from the data's options, or a task that is not
// built in. TRI_BAD_INPUT names data.shapes where the data alone could say it.
tri_status tri_session_describe_fields(const tri_recipe *recipe, const tri_task *task,
                                       tri_field *fields, int *count);
// Warns where the data are not as tri_session_describe_fields takes them, so that plans and
// initial weights are of another network.
void tri_session_warn(const tri_session *session);
// The recipe's mesh for so many ranks.
tri_status tri_session_make_mesh(const tri_recipe *recipe, int ranks, tri_mesh *out);
// What every plan of the recipe is made from, whoever asks for it: a run, `trireme plan` or initial
// weights. The caller adds mesh, rank, step_samples and eval_micro. *out borrows all arguments.
void tri_session_plan_request(const tri_recipe *recipe, const tri_batch_options *batch,
                              const tri_model_request *model, const tri_optimizer *optimizer,
                              tri_plan_request *out);
// `device` by name from the table; "auto" is the first that opens.
tri_status tri_session_open_device(const tri_backends *backends, const char *name, int index,
                                   tri_device **out);
// Steps of an epoch after trainer.limit_train_batches, overfit_batches and fast_dev_run.
int64_t tri_session_steps_per_epoch(const tri_session *session);
// A loader of this rank's micro-batches, from a position of the run; or of one evaluation.
tri_status tri_session_train_loader(const tri_session *session, int64_t epoch, int64_t step,
                                    tri_loader **out);
tri_status tri_session_val_loader(const tri_session *session, tri_loader **out);
tri_status tri_session_test_loader(const tri_session *session, tri_loader **out);

#endif
