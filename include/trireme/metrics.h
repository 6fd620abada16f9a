// Metrics beside the means of graph.h: F1, AUC, R² and their like. Evaluation adds up numbers over
// all samples, exactly and on any number of ranks and micro-batches, and computes each metric once
// from the sums; so it is the metric of the whole data, and no mean over batches.
#ifndef TRIREME_METRICS_H
#define TRIREME_METRICS_H

#include <trireme/api.h>
#include <trireme/graph.h>

TRI_API_BEGIN

// A metric compares a prediction with
// - classes: scores [.., K] with K ≥ 2, labels I64 [..]. The first largest score is the prediction.
// - targets: scores and targets of one shape, or scores [.., 1] and targets [..]; a target is 0 or
//   1, F32 or I64. The last axis has the labels of which a sample may have several; with one axis,
//   or the average TRI_AVERAGE_MICRO, all elements are one binary classification. The prediction is
//   1 where the score is above `threshold`.
// - numbers: predictions and targets F32 of one shape. With TRI_AVERAGE_MACRO, _WEIGHTED and _NONE,
//   all axes but the first are outputs, of at most 64; otherwise all elements are one.
// Labels and targets of -100 are left out, but not from sums of numbers (MAE to R2), of which it is
// one. A target that is neither 0 nor 1, as in soft labels, is refused. 0 / 0 is 0 for precision,
// recall and F1, as in scikit-learn.
typedef enum tri_metric_kind {
    TRI_METRIC_MEAN, // what tri_metric declares; tri_metric_of does not take it
    // Of classes: how often the prediction is the label; MACRO, WEIGHTED and NONE: the recall of
    // the classes, as torchmetrics' MulticlassAccuracy has it. Of targets: how often they are met.
    TRI_METRIC_ACCURACY,
    TRI_METRIC_BALANCED_ACCURACY, // of classes: the mean recall of those that are labels
    TRI_METRIC_EXACT_MATCH,       // of targets: samples that have all labels right
    TRI_METRIC_PRECISION,         // tp / (tp + fp)
    TRI_METRIC_RECALL,            // tp / (tp + fn)
    TRI_METRIC_F1,                // 2 tp / (2 tp + fp + fn)
    // [K, K] of classes, [2, 2] of one binary classification: samples by label (row) and
    // prediction.
    TRI_METRIC_CONFUSION,
    // The area under the ROC curve; of classes, of each against the others, by the probabilities of
    // softmax(scores). Scores are put into `bins` (below). NaN where a class has no positive or no
    // negative sample; means leave such classes out.
    TRI_METRIC_AUC,
    TRI_METRIC_PERPLEXITY, // of classes: exp of the mean cross-entropy of softmax(scores)
    TRI_METRIC_MAE,
    TRI_METRIC_MSE,
    TRI_METRIC_RMSE,
    TRI_METRIC_R2,      // 1 - Σ(target - prediction)² / Σ(target - mean target)²
    TRI_METRIC_SUPPORT, // of each class or label: the samples that have it, as scikit-learn counts
    TRI_METRIC_KIND_COUNT
} tri_metric_kind;

// What becomes of the values of several classes, labels or outputs.
typedef enum tri_metric_average {
    // MICRO for ACCURACY of classes, MAE, MSE and RMSE; NONE for SUPPORT; MACRO for all others.
    TRI_AVERAGE_USUAL,
    TRI_AVERAGE_MICRO, // one value of the sums over all of them
    // The mean. As in torchmetrics and scikit-learn, classes that are neither a label nor a
    // prediction do not count.
    TRI_AVERAGE_MACRO,
    TRI_AVERAGE_WEIGHTED, // the mean weighted by the labels of each; of R2: by variances
    TRI_AVERAGE_NONE,     // a number for each, in the order of classes
} tri_metric_average;

// Options that are 0 have the values that their comments say.
typedef struct tri_metric_options {
    tri_metric_average average;
    int64_t k;        // ACCURACY and RECALL of classes: the label is among the k largest; 0 means 1
    double threshold; // of targets: 0 suits logits, 0.5 probabilities
    // AUC: how many intervals the scores, or of classes log p / (1 - p), are sorted into; 0 means
    // 16384. These are 0.0002 wide at 0, 0.0007 at 1, 0.012 at 10, 0.3 at 100, 100 at 10,000 and
    // 30,000 at 1,000,000. A pair of samples in one interval counts one half, so that the error is
    // at most half the fraction of pairs (one positive, one negative) that share an interval.
    // Probabilities near 1 lie closer together than logits, which are the better scores.
    int64_t bins;
} tri_metric_options;

// Declares a metric, which evaluation reports under `name`, as tri_metric does; training does not
// compute it. One with a number for each class is a list in metrics.jsonl, and checkpoint.monitor
// and early stopping do not take it. Metrics of the same scores share what they add up.
void tri_metric_of(tri_graph *graph, const char *name, tri_metric_kind kind, tri_value prediction,
                   tri_value target, tri_metric_options options);

TRI_API_END

#endif
