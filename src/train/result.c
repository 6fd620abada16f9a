// Fills in the result of a run or an evaluation, from which the command prints its summary.
#include "base/cpu_time.h"
#include "train/loop.h"

void train_fill_result(const tri_session *session, const tri_progress *progress,
                       tri_train_result *out) {
    const tri_graph *g = session->plan->graph;
    out->rank = session->identity.rank;
    out->ranks = session->identity.size;
    int local = session->identity.local_size;
    out->hosts = local > 0 ? (out->ranks + local - 1) / local : 1;
    out->threads = session->device->description.threads;
    out->device_is_host = session->device->backend->host_memory;
    for (int i = 0; i < g->parameter_count; i++)
        out->has_statistics = out->has_statistics || g->parameters[i].role == TRI_ROLE_STATISTIC;
    out->tail_samples = session->plan->steps[TRI_STEP_TAIL].samples;
    out->uses_averages = progress->averaged > 0 && progress->evaluates_average;
    out->steps = progress->step;
    out->samples = progress->samples;
    out->has_val = progress->val.is_known;
    out->val_loss = progress->val.mean[0];
    out->val_samples = progress->val.samples;
    out->val_step = progress->val.step;
    out->val_source = session->val_source;
    out->has_test = progress->test.is_known && progress->test.step == progress->step;
    out->test_loss = progress->test.mean[0];
    out->test_samples = progress->test.samples;
    for (int i = 1; i < g->metric_count; i++) {
        if (g->metrics[i].figures.rank > 0) continue;
        int k = out->val_count++;
        snprintf(out->names[k], sizeof out->names[k], "%s", g->metrics[i].name);
        out->val[k] = (tri_metric_value){.name = out->names[k], .value = progress->val.mean[i]};
        out->test[k] = progress->test.mean[i];
    }
}

void train_fill_starved_cores(const tri_cpu_time *before, tri_train_result *out) {
    tri_cpu_time now;
    if (!tri_cpu_time_read(&now)) return;
    tri_cpu_time passed = tri_cpu_time_between(before, &now);
    if (passed.wall_ns < 1000000000 || !tri_cpu_time_is_starved(&passed)) return;
    out->starved_cores = (double)passed.used_ns / (double)passed.wall_ns;
}

static void fill_best(const train_loop *loop, tri_train_result *out) {
    if (!loop->saves || loop->session->identity.rank != 0) return;
    out->has_best = loop->recipe->checkpoint.save_top_k != 0 &&
                    tri_checkpoint_find_best(loop->request->run_dir, &loop->ranked_by, &out->best);
}

static void fill_rates(const train_loop *loop, tri_train_result *out) {
    int64_t samples = loop->progress.samples - loop->started_samples;
    if (loop->training_s <= 0) return;
    out->samples_per_s = (double)samples / loop->training_s;
    out->data_fraction = loop->data_s / loop->training_s;
    if (tri_engine_steps_ahead(loop->session->engine) == 0)
        out->waiting_fraction = loop->waited_s / loop->training_s;
}

void train_fill_run_result(const train_loop *loop, tri_train_result *out) {
    out->epochs = loop->progress.epoch;
    out->stopped_by = train_stopped_by(loop);
    out->has_loss = loop->has_stepped;
    out->loss = loop->train_loss;
    out->grad_norm = loop->grad_norm;
    fill_best(loop, out);
    fill_rates(loop, out);
}
