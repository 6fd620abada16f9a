// The numbers that metrics add up over samples. Scores that are NaN make the number of samples NaN,
// and so every figure that follows.
#include "device/ref/node.h"
#include "graph/metric.h"

#include <inttypes.h>
#include <math.h>

// The class of the first largest score; -1: a score is NaN.
REF_BODY int64_t largest_of(ref_array row, int64_t classes) {
    int64_t best = 0;
    for (int64_t k = 0; k < classes; k++) {
        if (isnan(get(row, k))) return -1;
        if (get(row, k) > get(row, best)) best = k;
    }
    return best;
}

// How many scores come before the label's: larger ones, and equal ones of classes before it.
REF_BODY int64_t rank_of(ref_array row, int64_t classes, int64_t label) {
    int64_t before = 0;
    double own = get(row, label);
    for (int64_t k = 0; k < classes; k++)
        before += get(row, k) > own || (get(row, k) == own && k < label);
    return before;
}

// Which of the bins has the score. They have one width on a scale from -1 to 1 that is the mean of
// two: one tells small scores apart, the other large ones, as its intervals grow hardly faster than
// the scores.
static int64_t bin_of(double score, int64_t bins) {
    double size = fabs(score), rest = 1 / (1 + size);
    double small = isinf(score) ? 1 : size * rest, large = 1 - sqrt(sqrt(rest));
    double at = copysign((small + large) / 2, score);
    int64_t bin = (int64_t)((at + 1) / 2 * (double)bins);
    return bin < bins ? bin : bins - 1;
}

static void count_in_bin(double *sums, int64_t bins, double score, bool is_positive) {
    if (isnan(score))
        sums[0] = (double)NAN;
    else
        sums[2 * bin_of(score, bins) + is_positive]++;
}

// Counts the row in the bins of each class, by log p / (1 - p) of the class's probability p. It is
// the score less the logarithm of the sum of exp of all other scores, relative to the largest one.
REF_BODY void count_classes_in_bins(double *sums, const tri_metric_sums_attr *attr, ref_array row,
                                    int64_t label) {
    int64_t best = largest_of(row, attr->classes);
    double most = best < 0 ? (double)NAN : get(row, best), others = 0;
    for (int64_t k = 0; k < attr->classes; k++)
        if (k != best) others += exp(get(row, k) - most);
    for (int64_t k = 0; k < attr->classes; k++) {
        double own = get(row, k) - most, rest = k == best ? others : others + 1 - exp(own);
        count_in_bin(sums + k * attr->bins * 2, attr->bins, own - log(rest), k == label);
    }
}

REF_BODY void count_class(double *sums, const tri_metric_sums_attr *attr, ref_array row,
                          int64_t label) {
    double *all = sums + attr->classes * TRI_CLASS_SIZE;
    int64_t best = largest_of(row, attr->classes);
    bool is_hit = attr->k > 1 ? rank_of(row, attr->classes, label) < attr->k : best == label;
    sums[label * TRI_CLASS_SIZE + TRI_CLASS_LABELS]++;
    if (best >= 0) sums[best * TRI_CLASS_SIZE + TRI_CLASS_PREDICTIONS]++;
    sums[label * TRI_CLASS_SIZE + TRI_CLASS_HITS] += is_hit;
    all[0] += is_hit;
    all[1] += best < 0 ? (double)NAN : 1;
}

REF_BODY tri_status sum_labels(const ref_node *node, const tri_kernel_args *args, bool f64,
                               double *sums) {
    const tri_metric_sums_attr *attr = (const void *)node->attr;
    int64_t classes = attr->classes, rows = ref_count(&node->s.in[0]) / classes;
    const int64_t *labels = args->in[1];
    for (int64_t n = 0; n < rows; n++) {
        ref_array row = ref_from(ref_input(args, 0, f64), n * classes);
        TRI_TRY(ref_check_label(labels[n], n, classes));
        if (labels[n] == TRI_IGNORED_LABEL) continue;
        if (attr->tally == TRI_TALLY_CLASSES) count_class(sums, attr, row, labels[n]);
        if (attr->tally == TRI_TALLY_CLASS_BINS) count_classes_in_bins(sums, attr, row, labels[n]);
        if (attr->tally != TRI_TALLY_CONFUSION) continue;
        int64_t best = largest_of(row, classes);
        sums[labels[n] * classes + (best < 0 ? 0 : best)] += best < 0 ? (double)NAN : 1;
    }
    for (int64_t k = 0; attr->tally == TRI_TALLY_CLASSES && k < classes; k++)
        sums[k * TRI_CLASS_SIZE + TRI_CLASS_SAMPLES] = sums[classes * TRI_CLASS_SIZE + 1];
    return TRI_OK;
}

static double target_at(const ref_node *node, const tri_kernel_args *args, int64_t i) {
    if (node->s.in_type[1] == TRI_I64) return (double)((const int64_t *)args->in[1])[i];
    return get(ref_input(args, 1, node->s.in_type[1] == TRI_F64), i);
}

REF_BODY tri_status sum_targets(const ref_node *node, const tri_kernel_args *args, bool f64,
                                double *sums) {
    const tri_metric_sums_attr *attr = (const void *)node->attr;
    double *all = sums + attr->classes * TRI_CLASS_SIZE;
    bool is_right = true, counts = false;
    for (int64_t i = 0, count = ref_count(&node->s.in[0]); i < count; i++) {
        double target = target_at(node, args, i), score = get(ref_input(args, 0, f64), i);
        int64_t k = i % attr->classes;
        if (target != 0 && target != 1 && target != TRI_IGNORED_LABEL)
            return TRI_FAIL(TRI_BAD_INPUT,
                            "target %" PRId64 " of the micro-batch is %g: the metric takes 0, 1 "
                            "and %d (left out)",
                            i, target, TRI_IGNORED_LABEL);
        if (attr->tally == TRI_TALLY_TARGET_BINS) {
            if (target >= 0)
                count_in_bin(sums + k * attr->bins * 2, attr->bins, score, target == 1);
            continue;
        }
        if (k == 0) is_right = true, counts = false;
        if (target >= 0) {
            double *record = sums + k * TRI_CLASS_SIZE;
            bool is_one = score > attr->threshold;
            record[TRI_CLASS_LABELS] += target;
            record[TRI_CLASS_PREDICTIONS] += is_one;
            record[TRI_CLASS_HITS] += is_one && target == 1;
            record[TRI_CLASS_SAMPLES] += isnan(score) ? score : 1;
            is_right = is_right && is_one == (target == 1);
            counts = true;
        }
        all[0] += k == attr->classes - 1 && counts && is_right;
        all[1] += k == attr->classes - 1 && counts;
    }
    return TRI_OK;
}

REF_BODY tri_status sum_errors(const ref_node *node, const tri_kernel_args *args, bool f64,
                               double *sums) {
    const tri_metric_sums_attr *attr = (const void *)node->attr;
    for (int64_t i = 0, count = ref_count(&node->s.in[0]); i < count; i++) {
        double target = target_at(node, args, i);
        double error = get(ref_input(args, 0, f64), i) - target;
        double *record = sums + i % attr->classes * TRI_ERRORS_SIZE;
        record[TRI_ERRORS_COUNT]++;
        record[TRI_ERRORS_ABSOLUTE] += fabs(error);
        record[TRI_ERRORS_SQUARE] += error * error;
        record[TRI_ERRORS_TARGET] += target;
        record[TRI_ERRORS_TARGET_SQUARE] += target * target;
    }
    return TRI_OK;
}

REF_BODY tri_status metric_sums_body(const ref_node *node, const tri_kernel_args *args, bool f64) {
    const tri_metric_sums_attr *attr = (const void *)node->attr;
    double *sums = args->out[0];
    for (int64_t i = 0, count = ref_count(&node->s.out[0]); i < count; i++) sums[i] = 0;
    if (tri_tally_has_labels((tri_tally)attr->tally)) return sum_labels(node, args, f64, sums);
    return attr->tally == TRI_TALLY_ERRORS ? sum_errors(node, args, f64, sums)
                                           : sum_targets(node, args, f64, sums);
}

REF_KERNEL(metric_sums)
