// The events of a run, and the sinks that write or show them. The training loop passes an event (a
// step of training, an evaluation, …) to an observer, which passes it to all sinks; so the loop
// knows no files. A sink that fails causes one warning and never stops the training.
#ifndef TRIREME_OBSERVE_OBSERVE_H
#define TRIREME_OBSERVE_OBSERVE_H

#include "base/tree.h"
#include "observe/options.h"

#include <trireme/tensor.h>

// What an evaluation has found of a metric: a number, or a list or matrix of `shape`.
typedef struct tri_metric_value {
    const char *name;
    double value;          // with `figures`, NaN
    const double *figures; // in row-major order; NULL: the metric is one number
    tri_shape shape;
    bool are_counts; // the figures are whole numbers
    // Of figures by class: the classes' names, in UTF-8, as far as they are known.
    tri_strings names;
} tri_metric_value;
// The metric as metrics.jsonl has it: a number, or lists of numbers, of which those that are not
// finite are strings.
tri_tree *tri_metric_tree(tri_arena *arena, const tri_metric_value *metric);
// Puts the metrics into a map, and the names of the classes, if one has figures by class.
void tri_metrics_put(tri_arena *arena, tri_tree *map, const tri_metric_value *metrics, int count);

// What is known before the first step. The pointers must stay valid until the observer is
// destroyed.
typedef struct tri_run_info {
    const char *name;       // name of the run
    const char *folder;     // the run folder, which exists; NULL: no files are written
    const tri_tree *recipe; // every option with its value; NULL allowed
    // What metrics.jsonl tells, besides the step, when this process begins; NULL: nothing.
    const tri_tree *start;
    int64_t first_step;  // number of steps done before this process: above 0 if the run is resumed
    int64_t total_steps; // the step at which the run ends; -1: not known
    int64_t steps_per_epoch;
    int64_t total_epochs; // epochs of the whole run; -1: not known
    int64_t log_every_n_steps;
    const char *const *metrics; // names of the evaluation's metrics, without the loss
    int metric_count;
    // The seconds that one sample would take at the peak of all ranks together: for its arithmetic
    // alone, and for reading and writing memory alone. MFU = samples/s × arithmetic_s, and MBU =
    // samples/s × traffic_s. 0: that peak is not known.
    double arithmetic_s, traffic_s;
} tri_run_info;

typedef enum tri_run_event_kind {
    TRI_EVENT_TRAIN,
    TRI_EVENT_VAL,
    TRI_EVENT_TEST,   // the evaluation of the test data at the end of a complete run
    TRI_EVENT_CHANGE, // a key of the recipe has another value than before the run was resumed
    TRI_EVENT_MESSAGE,
    TRI_EVENT_WARNING, // a warning that was printed meanwhile
    TRI_EVENT_END,
} tri_run_event_kind;

// What is reported after every step.
typedef struct tri_train_event {
    int64_t step;     // number of steps done, from 1
    int64_t epoch;    // number of the epoch, from 0
    double loss;      // mean over the step's global batch, before the update
    double lr;        // the learning rate of the update
    double grad_norm; // norm of all gradients together, before clipping
    int64_t samples;  // samples trained on so far, over all ranks
    double data_s;    // seconds for which the loader made a rank wait since the last event
    bool ends_run;    // loss or gradients are not finite, so that the run fails
    // tri_observe_train sets the members below.
    double samples_per_s; // rate since the last logged step, or since the last evaluation
    double mfu, mbu;   // fractions of the peak of arithmetic and of memory bandwidth; 0: not known
    double data_share; // fraction of that time in which training waited for data
    double wall_s;     // seconds since the observer was created
    bool is_logged;    // step is divisible by log_every_n_steps, or ends the run
} tri_train_event;

typedef struct tri_val_event {
    int64_t step, epoch;
    double loss;
    const tri_metric_value *metrics;
    int metric_count;
    int64_t samples; // number of samples that were evaluated
} tri_val_event;

typedef struct tri_change_event {
    int64_t step;              // steps that were done with the old value
    const char *key;           // the recipe's key
    const tri_tree *from, *to; // its values
} tri_change_event;

typedef struct tri_warning_event {
    int64_t step; // the latest step by then
    const char *text;
} tri_warning_event;

typedef struct tri_end_event {
    const char *status; // how the run ended: "completed", "stopped", "failed"
    const char *reason; // why before its last step, or why it failed; NULL: it made that one
    int64_t steps;
    double wall_s; // seconds since the observer was created; tri_observe_end sets it
    // What the ranks have spent their time in (tri_actions_tree); NULL: not known.
    const tri_tree *actions;
} tri_end_event;

typedef struct tri_run_event {
    tri_run_event_kind kind;
    union {
        tri_train_event train;
        tri_val_event val; // also for TRI_EVENT_TEST
        tri_change_event change;
        tri_warning_event warning;
        const char *message; // one line for the user, without a line feed
        tri_end_event end;
    };
} tri_run_event;

// Makes the object that an event becomes in metrics.jsonl; NULL: it has no line there.
tri_tree *tri_event_line(tri_arena *arena, const tri_run_event *event);

// A sink receives events, and writes them to a file or shows them on the progress line. All
// functions are required. Only one thread calls the functions of a sink.
typedef struct tri_event_sink {
    const char *name; // name of the sink, for the warning if it fails
    // Creates the sink's state, which `close` destroys. If it fails, the sink is not used.
    tri_status (*open)(const tri_run_info *info, void **state);
    // Writes an event. The first failure is reported; the sink still gets later events.
    tri_status (*event)(void *state, const tri_run_event *event);
    void (*close)(void *state);
} tri_event_sink;

// The sink that writes FOLDER/metrics.jsonl, where FOLDER is the run folder.
extern const tri_event_sink tri_sink_jsonl;
// The sink that writes FOLDER/tensorboard/events.out.tfevents.*, event files for TensorBoard.
extern const tri_event_sink tri_sink_tensorboard;
// The sink that shows the run's progress on standard error.
extern const tri_event_sink tri_sink_progress;

enum { TRI_MAX_SINKS = 8 };
// Chooses the sinks that `options` ask for, and returns their number. If the run has no folder,
// only tri_sink_progress can be chosen, because the others write files.
int tri_sinks_choose(const tri_log_options *options, const tri_run_info *info,
                     const tri_event_sink *sinks[TRI_MAX_SINKS]);

typedef struct tri_observer tri_observer;
// Opens the sinks, starts the clock, and from then on listens to warnings (tri_log_set_listener).
// If a sink cannot be opened, warns and leaves it out. If there is no memory, warns and returns
// NULL.
tri_observer *tri_observer_create(const tri_run_info *info, const tri_event_sink *const *sinks,
                                  int count);
void tri_observer_destroy(tri_observer *observer); // NULL allowed

// Each of these functions passes one event to all sinks. A NULL observer (on ranks other than 0)
// ignores it, so that callers need not check.
void tri_observe_train(tri_observer *observer, tri_train_event event);
void tri_observe_val(tri_observer *observer, tri_val_event event);
void tri_observe_test(tri_observer *observer, tri_val_event event);
void tri_observe_change(tri_observer *observer, tri_change_event event);
void tri_observe_message(tri_observer *observer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
// Excludes `seconds` without training, such as those of a checkpoint, from the rate of the next
// line, because they would look like slow steps. tri_observe_val excludes evaluations.
void tri_observe_pause(tri_observer *observer, double seconds);
void tri_observe_end(tri_observer *observer, tri_status status, const char *reason, int64_t steps,
                     const tri_tree *actions);

#endif
