// Builds a session from a recipe: ranks, data, device, plan and engine, in this order, so that each
// part finds the parts on which it depends. A run or a command that needs all of them calls
// tri_session_open. Also makes the samplers and loaders, which begin at any step of an epoch. A
// field is a named tensor of a sample, such as "images". Read next: plan/plan.c, then
// engine/engine.c; for resuming, data/sampler.c.
#include "train/session.h"

#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "device/choose.h"
#include "nn/models/models.h"
#include "plan/fit.h"
#include "recipe/batch.h"
#include "recipe/steps.h"
#include "tensor/half.h"
#include "train/classes.h"
#include "train/compare.h"
#include "train/fields.h"
#include "train/known_fields.h"
#include "train/tell.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trireme/trireme.h>

enum { SETS = 3 }; // data sets that a session may have

static const char *val_name(const tri_session *s) {
    return tri_data_split_name(s->val_source == TRI_VAL_SPLIT ? TRI_DATA_VAL : TRI_DATA_TEST);
}

// Lists the data sets that are open. Returns their number.
static int list_data(const tri_session *s, train_named_data out[SETS]) {
    const train_named_data all[SETS] = {{s->train_data, tri_data_split_name(TRI_DATA_TRAIN)},
                                        {s->val_data, val_name(s)},
                                        {s->test_data, tri_data_split_name(TRI_DATA_TEST)}};
    int count = 0;
    for (int i = 0; i < SETS; i++)
        if (all[i].data) out[count++] = all[i];
    return count;
}

// Logs the data set's own advice if its images look as if their channels came last, because the
// model would then read them in the wrong order.
static void warn_of_images(const tri_session *s) {
    char advice[512];
    if (s->train_data && tri_dataset_warning(s->train_data, advice, sizeof advice))
        tri_log_line(TRI_LOG_WARNING, "data: %s", advice);
}

void tri_session_warn(const tri_session *s) {
    tri_field fields[TRI_MAX_DATA_FIELDS];
    int count, same = 0;
    train_named_data sets[SETS];
    train_fields_warn_of_rest(sets, list_data(s, sets));
    if (!s->train_data) return;
    warn_of_images(s);
    train_fields_warn(sets, list_data(s, sets));
    if (train_known_fields(s->arena, s->recipe, s->task, fields, &count) != TRI_OK || count == 0)
        return;
    for (int i = 0; i < count; i++)
        for (int k = 0; k < s->field_count; k++)
            same += !strcmp(fields[i].name, s->fields[k].name) &&
                    tri_shape_equal(&fields[i].shape, &s->fields[k].shape);
    if (same == s->field_count) return;
    char text[128];
    tri_log_line(
        TRI_LOG_WARNING,
        "the commands plan and checkpoint init do not open the data and assume other samples "
        "than these, %s %s: write data.shapes: %s into the recipe",
        s->fields[0].name, tri_shape_text(&s->fields[0].shape, text, sizeof text),
        tri_dataset_shapes(s->train_data, s->arena));
}

// Opens the data of the evaluations during the run (val_data), and of the one at its end
// (test_data).
static tri_status open_evaluated(tri_session *s, bool train) {
    const tri_recipe *recipe = s->recipe;
    uint64_t seed = (uint64_t)recipe->seed;
    bool has_val = tri_data_has(&recipe->data, TRI_DATA_VAL);
    bool has_test = tri_data_has(&recipe->data, TRI_DATA_TEST);
    if (train && recipe->trainer.overfit_batches.value > 0) { // evaluates on the training samples
        s->val_source = TRI_VAL_TRAINING;
        return tri_dataset_open_training_as_evaluated(&recipe->data, seed, &s->val_data);
    }
    if (train && has_val) {
        s->val_source = TRI_VAL_SPLIT;
        TRI_TRY(tri_dataset_open_validation(s->train_data, &s->val_data));
        return has_test ? tri_dataset_open(&recipe->data, TRI_DATA_TEST, seed, &s->test_data)
                        : TRI_OK;
    }
    if (train && !has_test) return TRI_OK;
    bool use_val = !has_test && has_val; // `trireme eval` prefers the test data
    s->val_source = use_val ? TRI_VAL_SPLIT : TRI_VAL_TEST;
    return tri_dataset_open(&recipe->data, use_val ? TRI_DATA_VAL : TRI_DATA_TEST, seed,
                            &s->val_data);
}

static tri_status open_data(tri_session *s, const tri_session_request *r) {
    const tri_recipe *recipe = s->recipe;
    if (r->train)
        TRI_TRY(tri_dataset_open(&recipe->data, TRI_DATA_TRAIN, (uint64_t)recipe->seed,
                                 &s->train_data));
    if (r->train && recipe->trainer.overfit_batches.value > 0)
        tri_dataset_repeat_epoch(s->train_data);
    if (r->evaluate) TRI_TRY(open_evaluated(s, r->train));
    const tri_dataset *data = s->train_data ? s->train_data : s->val_data;
    s->field_count = tri_dataset_field_count(data);
    for (int i = 0; i < s->field_count; i++) {
        const tri_data_field *f = tri_dataset_field(data, i);
        s->fields[i] = (tri_field){f->name, f->dtype, f->shape};
    }
    train_named_data sets[SETS];
    return train_fields_compare(sets, list_data(s, sets));
}

// Makes the sampler of one evaluation of *data. If the recipe's limits leave no samples, closes
// *data and sets it to NULL, so that nothing is evaluated.
static tri_status make_evaluation(tri_session *s, tri_dataset **data, tri_sampler *out) {
    const tri_recipe *r = s->recipe;
    const tri_trainer_options *t = &r->trainer;
    int64_t replicas = tri_mesh_replicas(&s->mesh);
    if (!*data) return TRI_OK;
    int64_t samples = tri_dataset_samples(*data);
    int64_t trained = s->train_data ? tri_session_steps_per_epoch(s) * r->batch.global : 0;
    if (s->train_data && t->overfit_batches.value > 0 && trained < samples) samples = trained;
    TRI_TRY(tri_sampler_make_evaluation(samples, r->batch.eval, r->batch.global, r->batch.micro,
                                        replicas, out));
    int64_t micro = out->options.micro, batches = samples / micro + (samples % micro != 0);
    int64_t most = t->limit_val_batches.is_fraction
                       ? tri_amount_of(t->limit_val_batches, samples)
                       : tri_amount_of(t->limit_val_batches, batches) * micro;
    // Evaluate at least one micro-batch.
    if (most == 0 && t->limit_val_batches.value > 0) most = micro;
    if (t->fast_dev_run > 0 && t->fast_dev_run < batches && t->fast_dev_run * micro < most)
        most = t->fast_dev_run * micro;
    if (most >= samples || s->predicts) return TRI_OK;
    if (most == 0) { // limit_val_batches is 0: nothing is evaluated
        tri_dataset_close(*data);
        *data = NULL;
        return TRI_OK;
    }
    return tri_sampler_make_evaluation(most, r->batch.eval, r->batch.global, r->batch.micro,
                                       replicas, out);
}

static tri_status make_samplers(tri_session *s) {
    const tri_recipe *r = s->recipe;
    int64_t replicas = tri_mesh_replicas(&s->mesh);
    bool in_order = !r->data.shuffle || r->trainer.overfit_batches.value > 0;
    if (s->train_data) {
        tri_sampler_options options = {.samples = tri_dataset_samples(s->train_data),
                                       .global = r->batch.global,
                                       .micro = r->batch.micro,
                                       .replicas = replicas,
                                       .keep_order = in_order,
                                       .drop_last = r->data.drop_last,
                                       .seed = (uint64_t)r->seed};
        TRI_TRY(tri_sampler_make(&options, &s->train_sampler));
    }
    TRI_TRY(make_evaluation(s, &s->val_data, &s->val_sampler));
    if (!s->train_data && !s->val_data)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "trainer.limit_val_batches is 0, so that there is nothing to evaluate");
    return make_evaluation(s, &s->test_data, &s->test_sampler);
}

tri_status tri_session_make_mesh(const tri_recipe *recipe, int ranks, tri_mesh *out) {
    const tri_mesh_options *m = &recipe->strategy.mesh;
    const int64_t asked[TRI_AXIS_COUNT] = {[TRI_AXIS_REPLICATE] = m->replicate,
                                           [TRI_AXIS_SHARD] = m->shard,
                                           [TRI_AXIS_TENSOR_PARALLEL] = m->tensor,
                                           [TRI_AXIS_PIPELINE] = m->pipeline};
    int size[TRI_AXIS_COUNT];
    for (int i = 0; i < TRI_AXIS_COUNT; i++) size[i] = asked[i] == TRI_AUTO ? 0 : (int)asked[i];
    const tri_strategy *strategy = tri_strategy_of(recipe->strategy.name);
    return tri_mesh_make(size, strategy->own_axis, ranks, out);
}

void tri_session_plan_request(const tri_recipe *recipe, const tri_batch_options *batch,
                              const tri_model_request *model, const tri_optimizer *optimizer,
                              tri_plan_request *out) {
    tri_loader_options loader = {.workers = recipe->data.workers};
    *out = (tri_plan_request){.model = model,
                              .options = &recipe->strategy,
                              .micro = batch->micro,
                              .micro_follows = batch->micro_follows,
                              .gives_rounds = batch->gives_rounds,
                              .sync_batchnorm = recipe->trainer.sync_batchnorm,
                              .deterministic = recipe->trainer.deterministic,
                              .comm = recipe->comm.backend,
                              .groups = optimizer->groups,
                              .group_count = optimizer->group_count,
                              .optimizer_states = optimizer->state_count,
                              .loader_batches = tri_loader_batches(&loader)};
}

// Rejects a plan that does not fit into memory, before the memory is allocated. Otherwise the
// system would kill the process later, without telling the user why. If strategy.memory is set, or
// the device has memory of its own, every rank checks the largest peak of all ranks, so that all
// get the same result.
static tri_status check_memory(tri_session *s, const tri_plan_request *request) {
    const tri_device_description *device = &s->device->description;
    tri_device_memory there = tri_device_memory_of(device, s->device, s->identity.local_size);
    tri_device_memory memory = tri_fit_memory(request, &there);
    int64_t peak = s->plan->memory.peak;
    if (s->mesh.ranks > 1 && (memory.is_own || tri_strategy_memory(request->options))) {
        tri_pipeline_plans pipeline;
        TRI_TRY(tri_pipeline_plans_create(s->arena, device, request, &pipeline));
        peak = tri_pipeline_plans_fullest(&pipeline)->memory.peak;
        tri_pipeline_plans_destroy(&pipeline);
    }
    TRI_TRY(tri_fit_check(device, request, peak, &memory));
    return tri_fit_check_host(s->plan, s->identity.local_size);
}

// Adds one evaluation to the request for a plan. Evaluation and test share one program (a compiled
// model), because each program takes memory. It is made for the larger of their two micro-batches.
static void plan_evaluation(const tri_dataset *data, const tri_sampler *sampler,
                            tri_step_shape shape, tri_plan_request *request) {
    if (!data) return;
    request->step_samples[shape] = tri_sampler_step_size(sampler, 0);
    if (sampler->options.micro > request->eval_micro) request->eval_micro = sampler->options.micro;
}

// Sets the fields of texts that are generated: the tokens of a call, and where they stand.
static void describe_texts(tri_session *s) {
    const tri_field spans = {"spans", TRI_I64, {1, {2}}};
    s->fields[0] = (tri_field){"input_ids", TRI_I64, {1, {s->texts.piece}}};
    s->token_fields[0] = (tri_field){"input_ids", TRI_I64, {1, {1}}};
    s->fields[1] = s->token_fields[1] = spans;
    s->field_count = 2;
}

static void plan_texts(const tri_session *s, tri_plan_request *request) {
    request->step_samples[TRI_STEP_PREFILL] = s->texts.count;
    if (!s->texts.are_whole) request->step_samples[TRI_STEP_DECODE] = s->texts.count;
    request->step_fields[TRI_STEP_DECODE] = s->token_fields;
    request->eval_micro = s->recipe->batch.eval > 0 ? s->recipe->batch.eval : 0;
}

static bool has_field(const tri_field *fields, int count, const char *name) {
    for (int i = 0; i < count; i++)
        if (!strcmp(fields[i].name, name)) return true;
    return false;
}

// Adds to the model's absent fields those of `fields` that neither these nor the data have.
static void add_absent(tri_session *s, const tri_field *fields, int count) {
    for (int i = 0; i < count && s->model.absent_count < TRI_MAX_DATA_FIELDS; i++)
        if (!has_field(s->fields, s->field_count, fields[i].name) &&
            !has_field(s->absent, s->model.absent_count, fields[i].name))
            s->absent[s->model.absent_count++] = (tri_field){
                tri_arena_strdup(s->arena, fields[i].name), fields[i].dtype, fields[i].shape};
}

// Finds the fields that the data of a prediction lack: by what the checkpoint says of its training,
// else by the recipe or by what the task declares.
static tri_status find_absent(tri_session *s, const tri_session_request *r) {
    tri_field known[TRI_MAX_DATA_FIELDS];
    int count;
    s->model.absent = s->absent;
    add_absent(s, r->trained, r->trained_count);
    TRI_TRY(train_known_fields(s->arena, s->recipe, s->task, known, &count));
    add_absent(s, known, count);
    return TRI_OK;
}

static tri_status make_plan(tri_session *s) {
    TRI_TRY(tri_task_graph_options(s->arena, s->recipe, &s->task_options, &s->model.options));
    s->model.options.predicts = s->predicts;
    s->model.options.half_weights = s->half_weights;
    s->model.options.cache_length = s->texts.length;
    s->model.task = s->task;
    s->model.fields = s->fields;
    s->model.field_count = s->field_count;
    TRI_TRY(tri_optimizer_make(s->arena, &s->recipe->optimizer, &s->optimizer));
    if (s->train_data) tri_optimizer_add_average(&s->optimizer, &s->recipe->average);
    tri_plan_request request;
    tri_session_plan_request(s->recipe, &s->recipe->batch, &s->model, &s->optimizer, &request);
    request.mesh = s->mesh;
    request.rank = s->identity.rank;
    if (s->train_data) {
        const tri_sampler *sampler = &s->train_sampler;
        int64_t last = tri_sampler_step_size(sampler, sampler->steps - 1);
        bool whole = last == sampler->options.global;
        if (sampler->steps > 1 || whole)
            request.step_samples[TRI_STEP_FULL] = sampler->options.global;
        bool comes = tri_session_steps_per_epoch(s) == sampler->steps; // no limit cuts it off
        if (!whole && comes) request.step_samples[TRI_STEP_TAIL] = last;
    }
    plan_evaluation(s->val_data, &s->val_sampler, TRI_STEP_EVALUATE, &request);
    plan_evaluation(s->test_data, &s->test_sampler, TRI_STEP_TEST, &request);
    if (s->texts.count > 0) plan_texts(s, &request);
    TRI_TRY(tri_plan_create(s->arena, &s->device->description, &request, &s->plan));
    TRI_TRY(check_memory(s, &request));
    return tri_task_check_options(&s->task_options, s->task->name);
}

// Tells the other ranks about this rank's host, so that all know which ranks are on the same host.
static tri_status exchange_hosts(tri_session *s) {
    int ranks = s->comm->size;
    tri_host_claim own, *all = tri_arena_alloc(s->arena, (size_t)ranks * sizeof *all);
    s->host_claims = all;
    tri_host_claim_make(&s->identity, &own);
    tri_comm_op op = {.kind = TRI_COMM_ALL_GATHER,
                      .dtype = TRI_U8,
                      .count = sizeof own,
                      .send = &own,
                      .recv = all,
                      .label = "exchange of hosts"};
    TRI_TRY(tri_comm_run(s->comm, &op));
    return tri_tell_and_agree(s->comm, tri_identity_settle(all, ranks, &s->identity),
                              "comparison of the hosts");
}

// Connects the ranks. From then on other ranks can read this rank's ledger (what it has done and
// what it is doing), for messages about ranks that hang.
static tri_status connect_ranks(tri_session *s, const tri_session_request *r) {
    const tri_comm_options *options = &s->recipe->comm;
    TRI_TRY(tri_comm_check_ranks(options, s->identity.size));
    if (r->comm)
        s->comm = r->comm;
    else if (s->identity.size == 1)
        TRI_TRY(tri_comm_self_open(&s->comm));
    else
        TRI_TRY(r->backends->open_comm(&s->identity, options, &s->comm, &s->health));
    tri_log_stage("connected");
    tri_ledger_attach(s->comm->ledger);
    TRI_TRY(tri_liveness_start(&(tri_liveness_config){.comm = s->comm,
                                                      .timeout_s = options->timeout_s,
                                                      .give_up = r->backends->give_up},
                               &s->liveness));
    return exchange_hosts(s);
}

// Decides whether images are copied to the device as bytes, which are a quarter of their size in
// F32. This is possible if the device can normalise bytes and all data sets have bytes with the
// same scale: training and evaluation normalise images by the same numbers.
static void choose_bytes(tri_session *s) {
    tri_dataset *const sets[] = {s->train_data, s->val_data, s->test_data};
    bool found = false;
    if (!s->device->backend->takes_bytes) return;
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        tri_pixel_scale scale;
        if (!sets[i]) continue;
        if (!tri_dataset_scale(sets[i], &scale)) return;
        if (found && memcmp(&scale, &s->image_scale, sizeof scale) != 0) return;
        s->image_scale = scale;
        found = true;
    }
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        if (sets[i]) tri_dataset_keep_bytes(sets[i]);
    if (found) s->model.image_scale = &s->image_scale;
}

static tri_status open_data_and_plan(tri_session *s, const tri_session_request *r) {
    tri_ledger_mark opening = tri_ledger_enter(s->comm->ledger, "opening data", NULL);
    tri_status status = TRI_OK;
    if (s->texts.count > 0) {
        status = train_settle_texts(s->task, &s->texts);
        describe_texts(s);
    } else {
        status = open_data(s, r);
    }
    tri_ledger_end(s->comm->ledger, opening);
    TRI_TRY(status);
    if (s->texts.count == 0) TRI_TRY(make_samplers(s));
    tri_log_stage("data opened");
    tri_ledger_mark planning = tri_ledger_enter(s->comm->ledger, "planning", NULL);
    status = tri_device_open_of_rank(r->backends->devices, r->device, s->identity.local_rank,
                                     s->identity.launcher_local_rank, &s->device);
    if (status == TRI_OK) choose_bytes(s);
    if (status == TRI_OK && r->predict) status = find_absent(s, r);
    if (status == TRI_OK) status = make_plan(s);
    tri_ledger_end(s->comm->ledger, planning);
    // Images whose channels are last may be the reason why no plan could be made, so the user is
    // warned of them.
    if (status == TRI_BAD_INPUT && s->identity.rank == 0) warn_of_images(s);
    TRI_TRY(status);
    if (s->texts.count > 0) return TRI_OK;
    train_named_data sets[SETS];
    int count = list_data(s, sets);
    TRI_TRY(train_fields_check(sets, count, s->train_data != NULL, &s->model, s->plan->graph,
                               s->plan->plain_graphs));
    train_classes classes = {s->arena, s->task, s->plan->graph};
    const char *idle = NULL;
    TRI_TRY(train_check_classes(&classes, sets, count, &idle));
    if (s->train_data && idle) s->idle_outputs = idle;
    return TRI_OK;
}

// Settles the precision by the type of the weights. Whatever is wrong with their files, loading
// them reports it.
static void settle_precision(tri_session *s, const char *weights, tri_recipe *resolved) {
    static const tri_precision mixed[] = {
        [TRI_BF16] = TRI_PRECISION_BF16_MIXED, [TRI_F16] = TRI_PRECISION_16_MIXED};
    tri_dtype dtype;
    if (!weights || tri_checkpoint_weights_dtype(weights, &dtype) != TRI_OK ||
        !tri_dtype_is_half(dtype))
        return;
    tri_precision *precision = &resolved->trainer.precision;
    if (resolved->has_default_precision) *precision = mixed[dtype];
    bool is_bf16_true = *precision == TRI_PRECISION_BF16_TRUE && dtype == TRI_BF16;
    s->half_weights = *precision == mixed[dtype] || is_bf16_true;
}

// Limits the session to the ranks of `comm`, because `trireme scale` trains on one number of ranks
// after another. The launcher's local ranks count all ranks of a host, so they are marked as not
// given. exchange_hosts then numbers the ranks of `comm` on each host.
static void take_group(tri_session *s, const tri_comm *comm) {
    s->identity.rank = comm->rank;
    s->identity.size = comm->size;
    s->identity.given.local_rank = s->identity.given.local_size = false;
    s->borrows_comm = true;
}

static tri_status compare_ranks(const tri_session *s) {
    train_named_data sets[SETS];
    train_findings own = {.recipe = s->recipe,
                          .task = s->task,
                          .plan = s->plan,
                          .data = sets,
                          .data_count = list_data(s, sets)};
    return train_compare_ranks(&(train_ranks){s->arena, s->comm, s->host_claims}, &own);
}

static tri_status open_session(tri_session *s, const tri_session_request *r) {
    TRI_TRY(tri_task_find(s->arena, s->recipe, r->task, &s->task));
    if (r->alone)
        s->identity = (tri_identity){.launcher = "none", .size = 1, .local_size = 1};
    else
        TRI_TRY(tri_identity_read((const char *(*)(const char *))getenv, &s->identity));
    if (r->comm) take_group(s, r->comm);
    if (r->train || s->identity.size > 1)
        TRI_TRY(tri_session_make_mesh(s->recipe, s->identity.size, &s->mesh));
    else // a single rank can evaluate a model that was trained on any mesh
        s->mesh = (tri_mesh){.size = {1, 1, 1, 1}, .ranks = 1};
    tri_recipe *resolved = TRI_NEW(s->arena, tri_recipe);
    *resolved = *s->recipe;
    resolved->batch = tri_recipe_batch_without_steps(s->recipe);
    settle_precision(s, r->weights, resolved);
    if (r->train)
        TRI_TRY(tri_recipe_settle_batch(s->recipe, tri_mesh_replicas(&s->mesh), &resolved->batch));
    s->recipe = resolved;
    if (s->recipe->batch.global && r->train)
        TRI_TRY(tri_sampler_check_step(s->recipe->batch.global, s->recipe->batch.micro,
                                       tri_mesh_replicas(&s->mesh)));
    TRI_TRY(connect_ranks(s, r));
    TRI_TRY(tri_tell_and_agree(s->comm, open_data_and_plan(s, r), "opening of the data"));
    TRI_TRY(compare_ranks(s));
    tri_log_stage("planned");
    tri_ledger_mark making = tri_ledger_enter(s->comm->ledger, "preparing kernels", NULL);
    tri_status status =
        tri_engine_create(&(tri_engine_config){.plan = s->plan,
                                               .device = s->device,
                                               .world = s->comm,
                                               .optimizer = &s->optimizer,
                                               .loss_scale = &s->recipe->trainer.loss_scale,
                                               .detect_anomaly = s->recipe->trainer.detect_anomaly},
                          &s->engine);
    tri_ledger_end(s->comm->ledger, making);
    tri_log_stage("engine made");
    return status;
}

tri_status tri_session_open(const tri_session_request *request, tri_session **out) {
    tri_arena *arena = tri_arena_create(NULL, "session");
    tri_session *s = TRI_NEW(arena, tri_session);
    *s = (tri_session){.arena = arena,
                       .recipe = request->recipe,
                       .predicts = request->predict || request->texts.count > 0,
                       .texts = request->texts};
    tri_status status = open_session(s, request);
    if (status == TRI_OK) {
        *out = s;
        return TRI_OK;
    }
    status = tri_session_tell(s, status);
    tri_session_close(s);
    return status;
}

tri_status tri_session_tell(tri_session *s, tri_status status) {
    if (s->borrows_comm) return status; // the communicator's owner tells the other ranks
    return tri_tell_failure(s->comm, &s->identity, status);
}

void tri_session_close(tri_session *session) {
    if (!session) return;
    tri_engine_destroy(session->engine);
    tri_plan_destroy(session->plan);
    tri_liveness_stop(session->liveness);
    // The thread of session->health reads this rank's latest actions from memory that
    // tri_comm_close frees, so it has to stop reading them first.
    tri_health_drop_ring(session->health);
    if (!session->borrows_comm) tri_comm_close(session->comm);
    tri_health_stop(session->health);
    if (session->device) session->device->backend->close(session->device);
    // The validation data are closed before the training data, because they may use files and
    // memory of the training data (tri_dataset_open_validation).
    tri_dataset_close(session->val_data);
    tri_dataset_close(session->test_data);
    tri_dataset_close(session->train_data);
    tri_arena_destroy(session->arena);
}

int64_t tri_session_steps_per_epoch(const tri_session *session) {
    return tri_steps_of_epoch(&session->recipe->trainer, session->train_sampler.steps);
}

static tri_status alloc_host(void *context, size_t size_bytes, void **out) {
    tri_device *device = context;
    return device->backend->alloc_host(device, size_bytes, out);
}

static void free_host(void *context, void *memory) {
    tri_device *device = context;
    device->backend->free_host(device, memory);
}

// Chooses the loader's memory: the kind from which the device copies fastest, if the device has
// such memory.
static tri_loader_memory memory_for_copies(const tri_session *session) {
    if (!session->device->backend->alloc_host) return (tri_loader_memory){.alloc = NULL};
    return (tri_loader_memory){alloc_host, free_host, session->device};
}

tri_status tri_session_train_loader(const tri_session *session, int64_t epoch, int64_t step,
                                    tri_loader **out) {
    tri_loader_options options = {.replica =
                                      tri_mesh_replica(&session->mesh, session->identity.rank),
                                  .workers = session->recipe->data.workers,
                                  .hold = tri_plan_held_batches(session->plan),
                                  .epoch = epoch,
                                  .step = step,
                                  .steps_per_epoch = tri_session_steps_per_epoch(session),
                                  .memory = memory_for_copies(session)};
    return tri_loader_create(session->train_data, &session->train_sampler, &options, out);
}

static tri_status evaluation_loader(const tri_session *session, const tri_dataset *data,
                                    const tri_sampler *sampler, tri_loader **out) {
    tri_loader_options options = {.replica =
                                      tri_mesh_replica(&session->mesh, session->identity.rank),
                                  .workers = session->recipe->data.workers,
                                  .hold = session->plan->takes_ahead ? TRI_TAKEN_BATCHES : 1,
                                  .as_stored = true,
                                  .memory = memory_for_copies(session)};
    return tri_loader_create(data, sampler, &options, out);
}

tri_status tri_session_val_loader(const tri_session *session, tri_loader **out) {
    return evaluation_loader(session, session->val_data, &session->val_sampler, out);
}

tri_status tri_session_test_loader(const tri_session *session, tri_loader **out) {
    return evaluation_loader(session, session->test_data, &session->test_sampler, out);
}

double tri_session_waited_s(const tri_session *session) {
    const tri_ledger_ring *ring = tri_ledger_ring_of(session->comm->ledger);
    for (int i = 0; i < atomic_load(&ring->kinds) && i < TRI_MAX_LEDGER_KINDS; i++)
        if (!strcmp(ring->kind_names[i], TRI_LEDGER_WAIT))
            return 1e-9 * (double)atomic_load(&ring->totals[i].busy_ns);
    return 0;
}
