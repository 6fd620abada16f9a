// Passes a run's events (a step of training, an evaluation, …) to its sinks. A sink writes events
// to a file or shows them. Rates and times are computed here, so that all sinks show the same
// numbers.
#include "observe/observe.h"

#include "base/log.h"
#include "base/os.h"

#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_WARNINGS = 32 }; // between two events; more are not kept

typedef struct open_sink {
    const tri_event_sink *sink;
    void *state;
    bool has_warned;
} open_sink;

struct tri_observer {
    int64_t log_every_n_steps;
    double arithmetic_s, traffic_s; // times for one sample: see tri_run_info
    double start_s;
    double line_s;        // when the last line of metrics was written
    int64_t line_samples; // how many samples were trained on when that line was written
    double line_data_s;   // how long training has waited for data since then
    int64_t samples;      // how many samples were trained on so far
    bool has_samples;
    int64_t step; // the latest one
    int count;
    open_sink sinks[TRI_MAX_SINKS];
    // Warnings that other threads print, too, wait here for the next event, because sinks have one
    // user.
    pthread_mutex_t mutex;
    char *warnings[MOST_WARNINGS];
    int warning_count;
};

static void hear(void *context, const char *text) {
    tri_observer *o = context;
    pthread_mutex_lock(&o->mutex);
    char *copy = o->warning_count < MOST_WARNINGS ? strdup(text) : NULL;
    if (copy) o->warnings[o->warning_count++] = copy;
    pthread_mutex_unlock(&o->mutex);
}

int tri_sinks_choose(const tri_log_options *options, const tri_run_info *info,
                     const tri_event_sink *sinks[TRI_MAX_SINKS]) {
    int count = 0;
    if (info->folder) sinks[count++] = &tri_sink_jsonl;
    if (info->folder && options->tensorboard) sinks[count++] = &tri_sink_tensorboard;
    if (options->progress) sinks[count++] = &tri_sink_progress;
    return count;
}

tri_observer *tri_observer_create(const tri_run_info *info, const tri_event_sink *const *sinks,
                                  int count) {
    TRI_ASSERT(count <= TRI_MAX_SINKS);
    tri_observer *o = calloc(1, sizeof *o);
    if (!o) {
        tri_log_line(TRI_LOG_WARNING,
                     "no memory for what reports a run; training continues without its "
                     "metrics and its progress");
        return NULL;
    }
    o->log_every_n_steps = info->log_every_n_steps > 0 ? info->log_every_n_steps : 1;
    o->arithmetic_s = info->arithmetic_s;
    o->traffic_s = info->traffic_s;
    for (int i = 0; i < count; i++) {
        open_sink *s = &o->sinks[o->count];
        s->sink = sinks[i];
        if (s->sink->open(info, &s->state) == TRI_OK)
            o->count++;
        else
            tri_log_line(TRI_LOG_WARNING, "%s; training continues without %s", tri_error_message(),
                         s->sink->name);
    }
    o->start_s = o->line_s = tri_os_seconds();
    o->step = info->first_step;
    pthread_mutex_init(&o->mutex, NULL);
    tri_log_set_listener(hear, o);
    return o;
}

static void emit(tri_observer *o, const tri_run_event *event) {
    for (int i = 0; i < o->count; i++) {
        open_sink *s = &o->sinks[i];
        if (s->sink->event(s->state, event) == TRI_OK || s->has_warned) continue;
        s->has_warned = true;
        tri_log_line(TRI_LOG_WARNING, "%s; training continues, with gaps in %s",
                     tri_error_message(), s->sink->name);
    }
}

static void emit_warnings(tri_observer *o) {
    char *warnings[MOST_WARNINGS];
    pthread_mutex_lock(&o->mutex);
    int count = o->warning_count;
    memcpy(warnings, o->warnings, sizeof warnings);
    o->warning_count = 0;
    pthread_mutex_unlock(&o->mutex);
    for (int i = 0; i < count; i++) {
        emit(o, &(tri_run_event){.kind = TRI_EVENT_WARNING, .warning = {o->step, warnings[i]}});
        free(warnings[i]);
    }
}

void tri_observer_destroy(tri_observer *o) {
    if (!o) return;
    tri_log_set_listener(NULL, NULL);
    emit_warnings(o);
    pthread_mutex_destroy(&o->mutex);
    for (int i = 0; i < o->count; i++) o->sinks[i].sink->close(o->sinks[i].state);
    free(o);
}

void tri_observe_train(tri_observer *o, tri_train_event event) {
    if (!o) return;
    double now = tri_os_seconds();
    // If this is the first event of a resumed run, `samples` also counts the samples of earlier
    // processes, which must not count in this process's rate. How many samples this step had is not
    // known, so the mean of all steps is assumed.
    if (!o->has_samples && event.step > 1 && event.samples > 0)
        o->line_samples = event.samples - event.samples / event.step;
    o->has_samples = true;
    o->samples = event.samples;
    double passed = now - o->line_s;
    event.samples_per_s = passed > 0 ? (double)(event.samples - o->line_samples) / passed : 0;
    o->line_data_s += event.data_s;
    event.data_share = passed > 0 ? fmin(o->line_data_s / passed, 1) : 0;
    event.mfu = event.samples_per_s * o->arithmetic_s;
    event.mbu = event.samples_per_s * o->traffic_s;
    event.wall_s = now - o->start_s;
    event.is_logged = event.ends_run || event.step % o->log_every_n_steps == 0;
    if (event.is_logged) {
        o->line_s = now;
        o->line_samples = event.samples;
        o->line_data_s = 0;
    }
    o->step = event.step;
    emit_warnings(o);
    emit(o, &(tri_run_event){.kind = TRI_EVENT_TRAIN, .train = event});
}

void tri_observe_val(tri_observer *o, tri_val_event event) {
    if (!o) return;
    emit(o, &(tri_run_event){.kind = TRI_EVENT_VAL, .val = event});
    // Restarts the clock, so that the rate of the next line does not include the evaluation.
    o->line_s = tri_os_seconds();
    o->line_samples = o->samples;
    o->line_data_s = 0;
}

void tri_observe_test(tri_observer *o, tri_val_event event) {
    if (o) emit(o, &(tri_run_event){.kind = TRI_EVENT_TEST, .val = event});
}

void tri_observe_change(tri_observer *o, tri_change_event event) {
    if (o) emit(o, &(tri_run_event){.kind = TRI_EVENT_CHANGE, .change = event});
}

void tri_observe_pause(tri_observer *o, double seconds) {
    if (o) o->line_s += seconds;
}

void tri_observe_message(tri_observer *o, const char *format, ...) {
    if (!o) return;
    char text[TRI_MESSAGE_MAX_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    emit(o, &(tri_run_event){.kind = TRI_EVENT_MESSAGE, .message = text});
}

void tri_observe_end(tri_observer *o, tri_status status, const char *reason, int64_t steps,
                     const tri_tree *actions) {
    if (!o) return;
    emit_warnings(o);
    tri_end_event end = {.status = status == TRI_OK        ? "completed"
                                   : status == TRI_STOPPED ? "stopped"
                                                           : "failed",
                         .reason = reason,
                         .actions = actions,
                         .steps = steps,
                         .wall_s = tri_os_seconds() - o->start_s};
    emit(o, &(tri_run_event){.kind = TRI_EVENT_END, .end = end});
}
