// More losses: with weights of classes, of pairs and triples, of sequences without alignment, and
// ratios of sums of your own. nn.h and functions.h have the others. Like those, each is the mean
// over all samples (or elements, labels) of a step, on any number of ranks. Options in structs that
// are 0 have PyTorch's defaults; an argument that is 0 is 0. Targets have the shape of predictions.
#ifndef TRIREME_LOSSES_H
#define TRIREME_LOSSES_H

#include <trireme/api.h>
#include <trireme/graph.h>

TRI_API_BEGIN

typedef struct tri_label_loss_options {
    // A weight for each class; NULL: 1. They are copied, and are in no checkpoint. As in PyTorch,
    // the mean divides by the sum of the labels' weights, of the whole step; soft labels are
    // weighted class by class, and the mean divides by their number.
    const float *class_weights;
    double label_smoothing; // as in tri_soft_cross_entropy; 0: the recipe's loss.label_smoothing
} tri_label_loss_options;

// tri_cross_entropy with options. logits [.., K], labels [..], or soft labels [.., K].
tri_value tri_cross_entropy_with(tri_graph *graph, tri_value logits, tri_value labels,
                                 tri_label_loss_options options);
// tri_nll_loss with options. log_probabilities [.., K].
tri_value tri_nll_loss_with(tri_graph *graph, tri_value log_probabilities, tri_value labels,
                            tri_label_loss_options options);
// The labels with -100 in place of `ignored`: what PyTorch calls ignore_index, for all losses and
// metrics on labels. The data may have that number although it is no class.
tri_value tri_ignore_label(tri_graph *graph, tri_value labels, int64_t ignored);

// A loss of your own that is divided by a number of your own: the sum of `terms` over the sum of
// `counts`, both over the whole step. tri_ratio_loss(g, tri_mul(g, x, mask), mask) is the mean of x
// where mask is 1. The counts are not trained. If the loss is one of a sum of losses, they have to
// be a field of the batch, or made of labels.
tri_value tri_ratio_loss(tri_graph *graph, tri_value terms, tri_value counts);

typedef struct tri_binary_options {
    // Factors of the terms, and of what a target of 1 counts in its term: both are broadcast to the
    // predictions, such as a tri_constant [K] of K classes or a field of the batch. None: 1. The
    // mean does not divide by them, as in PyTorch.
    tri_value weight, pos_weight;
} tri_binary_options;

// tri_binary_cross_entropy with options, PyTorch's BCEWithLogitsLoss. With a weight for each class
// it is MultiLabelSoftMarginLoss, too.
tri_value tri_binary_cross_entropy_with(tri_graph *graph, tri_value logits, tri_value targets,
                                        tri_binary_options options);
// tri_bce_loss with options, which has no pos_weight, as PyTorch's BCELoss.
tri_value tri_bce_loss_with(tri_graph *graph, tri_value probability, tri_value target,
                            tri_binary_options options);

// PyTorch's CosineEmbeddingLoss: 1 - cos(a, b) where the target is 1, max(0, cos(a, b) - margin)
// where it is -1. a and b [.., D], in which sizes of 1 are broadcast, target [..].
tri_value tri_cosine_embedding_loss(tri_graph *graph, tri_value a, tri_value b, tri_value target,
                                    double margin);

// PyTorch's HingeEmbeddingLoss: the distance where the target is 1, max(0, margin - distance) where
// it is -1. PyTorch's default for the margin is 1.
tri_value tri_hinge_embedding_loss(tri_graph *graph, tri_value distance, tri_value target,
                                   double margin);
// PyTorch's MarginRankingLoss, max(0, margin - target · (a - b)): a should be above b where the
// target is 1, and below it where it is -1. Sizes of 1 are broadcast.
tri_value tri_margin_ranking_loss(tri_graph *graph, tri_value a, tri_value b, tri_value target,
                                  double margin);

typedef struct tri_triplet_options {
    double margin; // 0 means 1
    double p;      // of the norm; 0 means 2
    double eps;    // is added to differences; 0 means 1e-6
    bool swap;     // takes the negative's distance from the positive, if that is smaller
} tri_triplet_options;

// PyTorch's TripletMarginLoss: max(0, |anchor - positive| - |anchor - negative| + margin), all
// [.., D], in which sizes of 1 are broadcast.
tri_value tri_triplet_margin_loss(tri_graph *graph, tri_value anchor, tri_value positive,
                                  tri_value negative, tri_triplet_options options);

typedef struct tri_multi_margin_options {
    double margin; // 0 means 1
    bool squared;  // PyTorch's p=2
    const float
        *class_weights; // a factor for each label's class, which the mean does not divide by
} tri_multi_margin_options;

// PyTorch's MultiMarginLoss: the sum over all classes k but the label's of max(0, margin -
// score[label] + score[k]), divided by the number of classes. scores [N, K], labels I64 [N].
tri_value tri_multi_margin_loss(tri_graph *graph, tri_value scores, tri_value labels,
                                tri_multi_margin_options options);

// PyTorch's MultiLabelMarginLoss: the sum over the sample's labels and all classes k that are none
// of them of max(0, 1 - score[label] + score[k]), divided by the number of classes. scores [N, K],
// labels I64 [N, K], of which those before the first negative one count.
tri_value tri_multilabel_margin_loss(tri_graph *graph, tri_value scores, tri_value labels);

typedef struct tri_gaussian_nll_options {
    bool full;  // with the constant log(2π) / 2
    double eps; // the least variance; its gradient is as if there were no least; 0 means 1e-6
} tri_gaussian_nll_options;

// tri_gaussian_nll_loss with options.
tri_value tri_gaussian_nll_loss_with(tri_graph *graph, tri_value mean, tri_value target,
                                     tri_value variance, tri_gaussian_nll_options options);

typedef struct tri_poisson_options {
    bool rates; // the prediction is a rate, and not its logarithm
    double eps; // is added to rates; 0 means 1e-8
    bool full;  // with Stirling's approximation of log(target!), where the target is above 1
} tri_poisson_options;

// tri_poisson_nll_loss with options.
tri_value tri_poisson_nll_loss_with(tri_graph *graph, tri_value prediction, tri_value target,
                                    tri_poisson_options options);

typedef struct tri_kl_div_options {
    bool log_target; // the target has logarithms, too
    bool batch_mean; // the mean over samples (the first axis), and not over elements
} tri_kl_div_options;

// tri_kl_div_loss with options.
tri_value tri_kl_div_loss_with(tri_graph *graph, tri_value log_probability, tri_value target,
                               tri_kl_div_options options);

typedef struct tri_ctc_options {
    int64_t blank; // the class that stands for no label
    // The lengths of inputs and targets, I64 [N]. Without them an input has all T times, and a
    // target ends before its first -100.
    tri_value input_lengths, target_lengths;
    bool zero_infinity; // what cannot be aligned, because the input is too short, counts 0
} tri_ctc_options;

// Connectionist temporal classification, PyTorch's CTCLoss with its mean: the loss of each sample
// is divided by the length of its target. log_probabilities [N, T, K] (PyTorch has [T, N, K]),
// targets I64 [N, S] without blanks.
tri_value tri_ctc_loss(tri_graph *graph, tri_value log_probabilities, tri_value targets,
                       tri_ctc_options options);

TRI_API_END

#endif
