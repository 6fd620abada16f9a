// Searches the fastest micro-batch that fits into memory. Each one that is tried gets a session of
// its own, as in a run, which refuses it if its plan needs more memory than there is.
#include "train/batch_find.h"

#include "base/log.h"
#include "plan/fit.h"
#include "recipe/batch.h"
#include "train/tell.h"

typedef struct batch_finder {
    tri_arena *arena;
    const tri_session_request *request;
    double seconds;
    tri_batch_found *found;
} batch_finder;

// Lists the micro-batches to try. `given`: the recipe's own; 0: it has none.
static void list_trials(tri_batch_found *found, int64_t given) {
    int64_t global = found->global, replicas = found->replicas;
    // Where the replicas cannot share a step equally, micro-batches divide the step instead.
    int64_t shared = global % replicas == 0 ? global / replicas : global;
    int64_t most = (global + replicas - 1) / replicas, last = 2 * most;
    for (int64_t micro = most; micro >= 1 && found->count < TRI_MAX_BATCH_TRIALS; micro--) {
        bool is_next = shared % micro == 0 && 2 * micro <= last;
        if (!is_next && micro != given) continue;
        if (is_next) last = micro;
        found->trials[found->count++].micro = micro;
    }
}

static tri_status find_peak(const tri_session *s, int64_t *out) {
    *out = s->plan->memory.peak;
    return tri_comm_run(s->comm, &(tri_comm_op){.kind = TRI_COMM_ALL_REDUCE,
                                                .reduction = TRI_REDUCE_MAX,
                                                .dtype = TRI_I64,
                                                .count = 1,
                                                .send = out,
                                                .recv = out,
                                                .label = "memory of all ranks"});
}

static tri_status measure(const batch_finder *f, tri_session *s, tri_batch_trial *trial) {
    tri_bench_result speed;
    tri_status status = TRI_OK;
    if (tri_fit_keeps_micro(s->plan))
        status = TRI_FAIL(TRI_BAD_INPUT,
                          "batch-find: the model has batch norm, which normalises over a "
                          "micro-batch, so that another batch.micro gives another result; keep it, "
                          "and see what fits with trireme plan --fit");
    TRI_TRY(tri_tell_and_agree(s->comm, status, "search for a micro-batch"));
    TRI_TRY(find_peak(s, &trial->peak_bytes));
    TRI_TRY(tri_bench_session(s, f->seconds, NULL, &speed));
    trial->samples_per_s = speed.samples_per_s;
    trial->is_disturbed = speed.disturbed;
    if (s->identity.rank == 0)
        tri_log_line(TRI_LOG_INFO, "batch-find: batch.micro=%lld makes %.4g samples/s",
                     (long long)trial->micro, trial->samples_per_s);
    return TRI_OK;
}

static tri_status try_micro(const batch_finder *f, tri_batch_trial *trial) {
    tri_recipe recipe = *f->request->recipe;
    tri_session_request request = *f->request;
    tri_session *session;
    recipe.batch.global = f->found->global;
    recipe.batch.micro = trial->micro;
    recipe.trainer.accumulate_grad_batches = 1; // follows from the other two
    recipe.rounds = 0;
    request.recipe = &recipe;
    tri_status status = tri_session_open(&request, &session);
    // All ranks agree on this.
    if (status == TRI_BAD_INPUT || status == TRI_REFUSED) {
        trial->refusal = tri_arena_strdup(f->arena, tri_error_message());
        return TRI_OK;
    }
    TRI_TRY(status);
    f->found->rank = session->identity.rank;
    status = tri_session_tell(session, measure(f, session, trial));
    tri_session_close(session);
    return status;
}

tri_status tri_batch_find(tri_arena *arena, const tri_session_request *request, double seconds,
                          tri_batch_found *out) {
    batch_finder f = {arena, request, seconds, out};
    int ranks = request->comm ? request->comm->size : 1;
    tri_mesh mesh;
    tri_batch_options batch;
    *out = (tri_batch_found){.best = -1};
    TRI_TRY(tri_session_make_mesh(request->recipe, ranks, &mesh));
    out->replicas = tri_mesh_replicas(&mesh);
    TRI_TRY(tri_recipe_settle_batch(request->recipe, out->replicas, &batch));
    out->global = batch.global;
    out->gives_rounds = batch.gives_rounds;
    list_trials(out, batch.micro);
    for (int i = 0; i < out->count; i++) {
        tri_batch_trial *trial = &out->trials[i];
        TRI_TRY(try_micro(&f, trial));
        bool is_better =
            !trial->refusal &&
            (out->best < 0 || trial->samples_per_s > out->trials[out->best].samples_per_s);
        if (is_better) out->best = i;
    }
    if (out->best >= 0) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT, "%s", out->trials[out->count - 1].refusal);
}
