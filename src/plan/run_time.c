// Simulates a rank's loader and its steps over a whole run: see run_time.h.
#include "plan/run_time.h"

#include "base/limits.h"

#include <math.h>

// Beyond so many epochs each takes as long as the mean of these; beyond so many micro-batches of a
// phase each takes as long as a loader and a rank need that have begun long ago.
enum { MOST_EPOCHS = 16, MOST_BATCHES = 1 << 20 };

// Micro-batches count from the beginning of the loader. It has buffers for `ahead` of them, and a
// worker begins one when it has made its last one and a buffer is free.
typedef struct loader {
    const tri_run_model *model;
    int64_t workers, ahead, count;
    double began_s, now_s;
    double made_s[2 * TRI_MAX_WORKERS], used_s[2 * TRI_MAX_WORKERS]; // by number mod `ahead`
} loader;

static void begin(loader *l) {
    l->began_s = l->now_s;
    l->count = 0;
}

// One micro-batch: waits until it is made, then computes for `batch_s`. Returns how long it waited.
static double use(loader *l, double samples, double batch_s) {
    double free_s = l->began_s;
    int64_t at = l->count % l->ahead;
    if (l->count >= l->ahead) free_s = fmax(free_s, l->used_s[at]);
    if (l->count >= l->workers)
        free_s = fmax(free_s, l->made_s[(l->count - l->workers) % l->ahead]);
    // Without workers the rank loads by itself, when it needs the samples.
    if (l->model->workers == 0) free_s = l->now_s;
    l->made_s[at] = free_s + samples * l->model->sample_s;
    double waited = fmax(0, l->made_s[at] - l->now_s);
    l->now_s += waited + batch_s;
    l->used_s[at] = l->now_s;
    l->count++;
    return waited;
}

static void run_phase(loader *l, const tri_run_phase *phase, double *busy_s, double *data_s) {
    if (!(phase->samples > 0) || !(phase->batch > 0)) return;
    if (l->model->is_cold) begin(l);
    double left = phase->samples;
    for (int64_t i = 0; left > 1e-9 && i < MOST_BATCHES; i++) {
        double samples = fmin(left, phase->batch),
               batch_s = phase->batch_s * samples / phase->batch;
        *data_s += use(l, samples, batch_s);
        *busy_s += batch_s;
        left -= samples;
    }
    if (!(left > 1e-9)) return;
    double load_s = left * l->model->sample_s / (double)l->workers;
    double batches_s = left / phase->batch * phase->batch_s;
    *busy_s += batches_s;
    *data_s += fmax(0, load_s - batches_s);
    l->now_s += fmax(load_s, batches_s);
    begin(l); // with nothing loaded
}

tri_run_time tri_run_time_of(const tri_run_model *model) {
    tri_run_time t = {.start_s = model->start_s};
    loader l = {.model = model, .now_s = model->start_s};
    l.workers = model->workers > 0 ? model->workers : 1;
    l.ahead = 2 * l.workers;
    begin(&l);
    int64_t simulated = model->epochs < MOST_EPOCHS ? model->epochs : MOST_EPOCHS;
    for (int64_t epoch = 0; epoch < simulated; epoch++) {
        run_phase(&l, &model->train, &t.train_s, &t.data_s);
        bool evaluates = model->epochs_between > 0 && (epoch + 1) % model->epochs_between == 0;
        if (evaluates) run_phase(&l, &model->evaluate, &t.evaluate_s, &t.data_s);
    }
    if (simulated < model->epochs) {
        double factor = (double)model->epochs / (double)simulated;
        t.train_s *= factor;
        t.evaluate_s *= factor;
        t.data_s *= factor;
    }
    t.total_s = t.start_s + t.train_s + t.evaluate_s + t.data_s;
    return t;
}
