// Metrics as data: numbers that are added up over samples, micro-batches and ranks, and a rule that
// computes the metric's figures from the sums, once, on the host. A figure is one number that is
// shown: a metric has one, one for each class, or a matrix of them.
#ifndef TRIREME_GRAPH_METRIC_H
#define TRIREME_GRAPH_METRIC_H

#include "graph/graph.h"

// What is added up. All but PAIR are made by the op metric_sums.
typedef enum tri_tally {
    TRI_TALLY_PAIR, // sum, count: what losses make
    // Of scores and labels, or of scores and targets: for each class a record (below), then the
    // samples that are right in all, and all samples.
    TRI_TALLY_CLASSES,
    TRI_TALLY_TARGETS,
    TRI_TALLY_CONFUSION, // [K, K]: samples by label and prediction
    // [K, bins, 2]: the negative and the positive samples of each class whose score is in a bin; of
    // scores and labels, or of scores and targets.
    TRI_TALLY_CLASS_BINS,
    TRI_TALLY_TARGET_BINS,
    TRI_TALLY_ERRORS, // for each output: elements, |error|, error², target, target²
    TRI_TALLY_COUNT
} tri_tally;

// A record of CLASSES and TARGETS: how often the class is the label, is the prediction, and is
// both, and how many samples count.
enum { TRI_CLASS_LABELS, TRI_CLASS_PREDICTIONS, TRI_CLASS_HITS, TRI_CLASS_SAMPLES, TRI_CLASS_SIZE };
enum {
    TRI_ERRORS_COUNT,
    TRI_ERRORS_ABSOLUTE,
    TRI_ERRORS_SQUARE,
    TRI_ERRORS_TARGET,
    TRI_ERRORS_TARGET_SQUARE,
    TRI_ERRORS_SIZE
};

enum { TRI_METRIC_STRIDE = 8 }; // numbers that a cache line has room for, and so a pair

// How many numbers a tally has.
int64_t tri_tally_numbers(tri_tally tally, int64_t classes, int64_t bins);
// Whether it is of scores and labels, and not of two tensors of one shape.
bool tri_tally_has_labels(tri_tally tally);
// Whether these numbers are counts. Their sums are exact in any order, so that only the sum over
// micro-batches is kept, however many numbers there are. Other numbers are kept for each
// micro-batch, because a deterministic run adds them in the order of the micro-batches.
bool tri_tally_counts(tri_tally tally);
// Where the numbers of a metric begin among those of all metrics that count, or of all that do not,
// in units of F64. Each begins a cache line, because kernels that write neighbouring metrics at the
// same time would slow each other down if these shared one. The same in all programs of a plan.
int64_t tri_metric_offset(const tri_graph *graph, int metric);
// How many numbers all metrics have that count, or that do not.
int64_t tri_metric_numbers(const tri_graph *graph, bool counts);

// How many figures a metric has.
int64_t tri_metric_figures(const tri_metric_info *metric);
// Computes the figures of a metric from its sums. What the data do not determine is NaN, such as
// a mean of no samples.
void tri_metric_finish(const tri_metric_info *metric, const double *sums, double *figures);
// By how much the metric may differ from that of the scores themselves, because intervals of scores
// were counted; equal scores count as different ones. 0: of other metrics.
double tri_metric_error(const tri_metric_info *metric, const double *sums);
// Notes that a metric is computed from the value, and so needs the graph's inputs from which the
// value is made, although no node of a training graph may read them.
void tri_metric_note_inputs(tri_graph *graph, tri_value value);
// Declares a metric whose value is none in training.
void tri_metric_declare(tri_graph *graph, const char *name, tri_metric_info metric);

#endif
