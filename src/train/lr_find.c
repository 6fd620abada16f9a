// A short training whose learning rate rises with each step, by which a rate is chosen
// (lr_rule.h). It has no run folder, so that nothing is left of it.
#include "train/lr_find.h"

#include "base/log.h"
#include "base/os.h"
#include "train/loop.h"

static const double SAY_EVERY_S = 2;

typedef struct finder {
    tri_session *session;
    const tri_lr_search *search;
    tri_lr_found *found;
    train_feed feed;
    tri_progress progress;
    int in_flight;
    bool is_done;
    double said_s;
} finder;

static void say(finder *f) {
    const tri_lr_curve *curve = &f->found->curve;
    double now_s = tri_os_seconds();
    bool is_due = now_s - f->said_s >= SAY_EVERY_S && curve->count > 0;
    if (f->session->identity.rank != 0 || !is_due) return;
    f->said_s = now_s;
    const tri_lr_point *last = &curve->points[curve->count - 1];
    tri_log_line(TRI_LOG_INFO, "lr-find: step %d of %d, lr %.3g, loss %.4g", curve->count,
                 f->search->steps, last->lr, last->loss);
}

static double rate_of(const finder *f, int64_t update) {
    const tri_lr_search *search = f->search;
    int step = update < search->steps ? (int)update : search->steps;
    return tri_lr_of_step(search->least, search->most, search->steps, step);
}

// All ranks decide alike, by the step's sums over all of them.
static tri_status collect_step(finder *f) {
    tri_step_output out;
    tri_lr_curve *curve = &f->found->curve;
    int64_t update = f->progress.updates;
    f->in_flight--;
    tri_status status = tri_engine_collect(f->session->engine, &out);
    if (status == TRI_NOT_FINITE) f->in_flight = 0; // later steps changed nothing
    if (status == TRI_OK) status = train_take_carried(f->session, &f->progress, &out);
    if (status != TRI_OK && status != TRI_NOT_FINITE) return status;
    f->progress.step++;
    bool grew = status == TRI_NOT_FINITE;
    if (f->is_done || (!grew && f->progress.updates == update)) return TRI_OK;
    if (!grew) {
        grew = tri_lr_curve_add(curve, rate_of(f, update), train_mean(&out, 0));
        say(f);
    }
    f->found->ended = grew;
    f->is_done = grew || curve->count == f->search->steps;
    return TRI_OK;
}

static tri_status run_step(finder *f) {
    tri_session *s = f->session;
    int64_t step = f->progress.step + f->in_flight;
    tri_step_input input =
        train_step_input(s, &f->feed, step, step % tri_session_steps_per_epoch(s));
    int ahead = tri_engine_steps_ahead(s->engine);
    for (int i = 0; i <= ahead; i++) input.lr[i] = rate_of(f, f->progress.updates + i);
    TRI_TRY(tri_engine_issue(s->engine, &input));
    return ++f->in_flight > ahead ? collect_step(f) : TRI_OK;
}

static tri_status run_steps(finder *f) {
    // A loss scale needs some 20 overflows to settle; more would not end.
    const int64_t most = 2 * (int64_t)f->search->steps + 100;
    while (!f->is_done && f->progress.step < most) TRI_TRY(run_step(f));
    while (f->in_flight > 0) TRI_TRY(collect_step(f));
    if (f->is_done) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT,
                    "lr-find: only %d of %lld steps changed the weights: the others have no label "
                    "that counts, or gradients that overflow",
                    f->found->curve.count, (long long)f->progress.step);
}

static tri_status find(finder *f, const tri_session_request *request) {
    tri_session *s = f->session;
    tri_state_view model;
    tri_loader *loader;
    if (s->identity.rank == 0) {
        tri_recipe_log_notes(s->recipe);
        tri_session_warn(s);
    }
    tri_state_view_model(s->arena, s->engine, false, &model);
    TRI_TRY(train_initialize(s, request->task, &model));
    TRI_TRY(train_carry(s, &f->progress));
    TRI_TRY(tri_session_train_loader(s, 0, 0, &loader));
    f->feed = train_feed_make(s->arena, s, loader);
    f->said_s = tri_os_seconds();
    tri_status status = train_feed_end(&f->feed, run_steps(f));
    tri_loader_destroy(loader);
    f->found->rank = s->identity.rank;
    return status;
}

tri_status tri_lr_find(tri_arena *arena, const tri_session_request *request,
                       const tri_lr_search *search, tri_lr_found *out) {
    finder f = {.search = search, .found = out};
    *out = (tri_lr_found){.curve.points = TRI_NEW_ARRAY(arena, tri_lr_point, search->steps)};
    TRI_TRY(tri_session_open(request, &f.session));
    tri_status status = tri_session_tell(f.session, find(&f, request));
    tri_session_close(f.session);
    return status;
}
