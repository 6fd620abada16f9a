// A run as its folder tells it, for everything that shows a run without being part of it: reports,
// tables, exports. Such a form is a view of the run. It is made from metrics.jsonl, and only reads
// the folder, so it may be made while the run writes there. A figure is a number that a run logs
// again and again, such as train/loss; its curve has all its values.
#ifndef TRIREME_VIEWS_RUN_H
#define TRIREME_VIEWS_RUN_H

#include "base/index.h"
#include "base/tree.h"

typedef struct views_point {
    int64_t step;
    double value;  // may be NaN or infinite
    double wall_s; // seconds of training up to here, in all processes of the run
    int64_t line;  // its line in metrics.jsonl, from 1
} views_point;

typedef struct views_curve {
    const char *kind, *key; // "train", "loss"
    const char *name;       // the figure's name, KIND/KEY
    views_point *points;    // by increasing step
    int count, capacity;
    bool is_unordered; // inside the reader: a step came again, or came late
} views_curve;

// An object of metrics.jsonl that belongs to no curve ("start", "change", "end" and others), or the
// latest one of its kind that has a list, such as a matrix of confusions.
typedef struct views_event {
    const char *kind;
    int64_t step;
    const tri_tree *line;
} views_event;

typedef struct views_resume {
    int64_t step; // steps that were done before
    double wall_s;
} views_resume;

typedef struct views_checkpoint {
    int64_t step;
    const char *name;      // "step-00000938"
    bool is_best, is_last; // the link of that name leads to it
} views_checkpoint;

typedef enum views_status {
    VIEWS_RUNNING,
    VIEWS_COMPLETED,
    VIEWS_STOPPED,
    VIEWS_FAILED, // also if its process has ended without writing how
} views_status;

typedef struct views_run {
    const char *folder; // as the user wrote it
    const char *name;   // of the run, by its recipe; else the folder's
    views_curve *curves;
    int curve_count, curve_capacity;
    views_event *events; // in the order of the file
    int event_count, event_capacity;
    views_event *lists; // one a kind
    int list_count, list_capacity;
    views_resume *resumes;
    int resume_count, resume_capacity;
    views_checkpoint *checkpoints; // by increasing step
    int checkpoint_count;
    const tri_tree *recipe; // as recipe.yaml has it; NULL: it has none that can be read
    const char *no_recipe;  // why there is none; NULL: there is one
    views_status status;
    const char *reason;    // why it ended before its last step; NULL: no reason is known
    int64_t step;          // the latest step that a line tells of
    double wall_s;         // seconds of training up to the latest line, in all processes of the run
    int64_t damaged_lines; // lines that are no objects of JSON, which are left out
    int64_t first_damaged; // the number of the first of them, from 1

    // For the reader. `state` has what each update reads again.
    tri_arena *arena, *state;
    tri_index index; // of the curves, by name
    int64_t read_bytes, file_id;
    int64_t line_count;
    double earlier_s, process_s; // time of earlier processes, and of the latest one
    bool has_ended;              // the latest process has written its end
} views_run;

// Reads the run in a folder, given by its path or that of its metrics.jsonl. All memory is in
// `arena`. TRI_BAD_INPUT, TRI_NOT_FOUND: there is no such folder, it has no metrics.jsonl, or that
// file is of another program.
//
// A last line without a line feed is left out, because the run is writing it, or was killed then.
// After a resume the later of two values of a step holds. A resume takes back the values after the
// step from which it went on.
tri_status views_run_open(tri_arena *arena, const char *path, views_run **out);
// Reads what was written since then; pointers into the run are then no longer valid. If the file
// was replaced, reads all of it again. *is_changed: there were new lines, or the status is another.
tri_status views_run_update(views_run *run, bool *is_changed);

// The two steps of these functions, for tests. views_run_create makes a run without lines.
views_run *views_run_create(tri_arena *arena, const char *folder);
// Takes the complete lines of a part of metrics.jsonl; *taken: how many bytes they have.
// TRI_BAD_INPUT: the file's first line is not one of a run.
tri_status views_run_take(views_run *run, const char *text, size_t size, size_t *taken);

// Removes the points after `step`, because the run goes on from there once more.
void views_run_take_back(views_run *run, int64_t step);

const char *views_status_name(views_status status);
bool views_status_find(const char *name, views_status *out); // false: there is none of that name
// Finds a curve; NULL: there is none of that name.
const views_curve *views_curve_find(const views_run *run, const char *name);
// Whether the figure is one to be shown: not the number of an epoch or of samples, which rise by
// themselves.
bool views_curve_is_shown(const views_curve *curve);
// Finds the best finite point, the first of equals; NULL: nothing says which value is better.
// Lower losses are better, and otherwise what checkpoint.mode takes as better; higher rates are.
const views_point *views_curve_best(const views_curve *curve);
// The latest event of the kind; NULL: there is none.
const views_event *views_event_last(const views_run *run, const char *kind);

#endif
