// Losses and accuracy. The ops vocab_parallel_… and row_max compute them where each rank has only a
// slice of the classes; collective ops in between combine the results of all ranks. A row has one
// score for each class. The result of a loss or metric is the pair (sum, count), whose quotient is
// the mean.
#include "device/ref/node.h"

#include <math.h>

// Reads the loss seed: the gradient of the whole loss with respect to this loss's sum. Its type may
// differ from that of the other inputs.
static double seed_of(const ref_node *node, const tri_kernel_args *args, int input) {
    return get(ref_input(args, input, node->s.in_type[input] == TRI_F64), 0);
}

// log(sum of exp(x)) of one row. The largest x is subtracted first, so that exp does not overflow.
REF_BODY double log_sum(ref_array x, int64_t count) {
    double largest = get(x, 0), sum = 0;
    for (int64_t k = 1; k < count; k++)
        if (get(x, k) > largest) largest = get(x, k);
    for (int64_t k = 0; k < count; k++) sum += exp(get(x, k) - largest);
    return largest + log(sum);
}

// Computes the term that one row of scores, whose label is `label`, adds to the sum over rows.
typedef double row_term(ref_array row, int64_t classes, int64_t label);

// Computes output 0 of a loss or metric: the sum of `term` over all rows whose label is not
// ignored, and the number of these rows.
REF_BODY tri_status sum_rows_of_labels(const ref_node *node, const tri_kernel_args *args, bool f64,
                                       row_term *term) {
    int64_t classes = ref_classes(&node->s.in[0]);
    int64_t rows = ref_count(&node->s.in[0]) / classes;
    ref_array scores = ref_input(args, 0, f64);
    const int64_t *labels = args->in[1];
    double *sum = args->out[0];
    sum[0] = sum[1] = 0;
    for (int64_t n = 0; n < rows; n++) {
        TRI_TRY(ref_check_label(labels[n], n, classes));
        if (labels[n] == TRI_IGNORED_LABEL) continue;
        sum[0] += term(ref_from(scores, n * classes), classes, labels[n]);
        sum[1] += 1;
    }
    return TRI_OK;
}

REF_BODY double nll_term(ref_array row, int64_t classes, int64_t label) { return -get(row, label); }

REF_BODY tri_status nll_loss_body(const ref_node *node, const tri_kernel_args *args, bool f64) {
    return sum_rows_of_labels(node, args, f64, nll_term);
}

REF_BODY tri_status nll_loss_grad_body(const ref_node *node, const tri_kernel_args *args,
                                       bool f64) {
    int64_t classes = ref_classes(&node->s.out[0]);
    int64_t rows = ref_count(&node->s.out[0]) / classes;
    const int64_t *labels = args->in[0];
    double seed = seed_of(node, args, 1);
    ref_array dx = ref_output(args, 0, f64);
    for (int64_t i = 0; i < rows * classes; i++) put(dx, i, 0);
    for (int64_t n = 0; n < rows; n++) {
        TRI_TRY(ref_check_label(labels[n], n, classes));
        if (labels[n] != TRI_IGNORED_LABEL) put(dx, n * classes + labels[n], -seed);
    }
    return TRI_OK;
}

// True unless all soft labels of the row are 0, with which losses and metrics leave it out.
REF_BODY bool has_labels(ref_array row, int64_t classes) {
    int64_t k = 0;
    while (k < classes && get(row, k) == 0) k++;
    return k < classes;
}

static double smoothed(double label, const tri_soft_labels_attr *a, int64_t classes) {
    return (1 - a->smoothing) * label + a->smoothing / (double)classes;
}

REF_BODY tri_status soft_nll_loss_body(const ref_node *node, const tri_kernel_args *args,
                                       bool f64) {
    const tri_soft_labels_attr *a = (const void *)node->attr;
    int64_t classes = ref_classes(&node->s.in[0]), rows = ref_count(&node->s.in[0]) / classes;
    double *loss = args->out[0];
    loss[0] = loss[1] = 0;
    for (int64_t n = 0; n < rows; n++) {
        ref_array y = ref_from(ref_input(args, 0, f64), n * classes);
        ref_array labels = ref_from(ref_input(args, 1, f64), n * classes);
        if (!has_labels(labels, classes)) continue;
        for (int64_t k = 0; k < classes; k++)
            loss[0] -= smoothed(get(labels, k), a, classes) * get(y, k);
        loss[1] += 1;
    }
    return TRI_OK;
}

REF_BODY tri_status soft_nll_loss_grad_body(const ref_node *node, const tri_kernel_args *args,
                                            bool f64) {
    const tri_soft_labels_attr *a = (const void *)node->attr;
    int64_t classes = ref_classes(&node->s.in[0]), rows = ref_count(&node->s.in[0]) / classes;
    double seed = seed_of(node, args, 1);
    for (int64_t n = 0; n < rows; n++) {
        ref_array labels = ref_from(ref_input(args, 0, f64), n * classes);
        ref_array dx = ref_from(ref_output(args, 0, f64), n * classes);
        bool counts = has_labels(labels, classes);
        for (int64_t k = 0; k < classes; k++)
            put(dx, k, counts ? -seed * smoothed(get(labels, k), a, classes) : 0);
    }
    return TRI_OK;
}

REF_BODY tri_status one_hot_body(const ref_node *node, const tri_kernel_args *args, bool f64) {
    int64_t classes = ref_classes(&node->s.out[0]), rows = ref_count(&node->s.in[0]);
    const int64_t *labels = args->in[0];
    ref_array out = ref_output(args, 0, f64);
    for (int64_t n = 0; n < rows; n++) {
        TRI_TRY(ref_check_label(labels[n], n, classes));
        for (int64_t k = 0; k < classes; k++) put(out, n * classes + k, k == labels[n]);
    }
    return TRI_OK;
}

REF_BODY tri_status top_class_body(const ref_node *node, const tri_kernel_args *args, bool f64) {
    int64_t classes = ref_classes(&node->s.in[0]), rows = ref_count(&node->s.in[0]) / classes;
    int64_t *labels = args->out[0];
    for (int64_t n = 0; n < rows; n++) {
        ref_array row = ref_from(ref_input(args, 0, f64), n * classes);
        int64_t best = 0;
        for (int64_t k = 1; k < classes; k++)
            if (get(row, k) > get(row, best)) best = k;
        labels[n] = has_labels(row, classes) ? best : TRI_IGNORED_LABEL;
    }
    return TRI_OK;
}

REF_BODY double cross_entropy_term(ref_array row, int64_t classes, int64_t label) {
    return log_sum(row, classes) - get(row, label);
}

REF_BODY tri_status cross_entropy_body(const ref_node *node, const tri_kernel_args *args,
                                       bool f64) {
    return sum_rows_of_labels(node, args, f64, cross_entropy_term);
}

REF_BODY tri_status cross_entropy_grad_body(const ref_node *node, const tri_kernel_args *args,
                                            bool f64) {
    int64_t classes = ref_classes(&node->s.in[0]);
    int64_t rows = ref_count(&node->s.in[0]) / classes;
    ref_array logits = ref_input(args, 0, f64);
    const int64_t *labels = args->in[1];
    double seed = seed_of(node, args, 2);
    for (int64_t n = 0; n < rows; n++) {
        ref_array row = ref_from(logits, n * classes);
        ref_array dx = ref_from(ref_output(args, 0, f64), n * classes);
        TRI_TRY(ref_check_label(labels[n], n, classes));
        if (labels[n] == TRI_IGNORED_LABEL) {
            for (int64_t k = 0; k < classes; k++) put(dx, k, 0);
            continue;
        }
        double norm = log_sum(row, classes);
        for (int64_t k = 0; k < classes; k++)
            put(dx, k, seed * (exp(get(row, k) - norm) - (k == labels[n])));
    }
    return TRI_OK;
}

REF_BODY tri_status mse_loss_body(const ref_node *node, const tri_kernel_args *args, bool f64) {
    ref_array prediction = ref_input(args, 0, f64), target = ref_input(args, 1, f64);
    int64_t count = ref_count(&node->s.in[0]);
    double *loss = args->out[0], sum = 0;
    for (int64_t i = 0; i < count; i++) {
        double d = get(prediction, i) - get(target, i);
        sum += d * d;
    }
    loss[0] = sum;
    loss[1] = (double)count;
    return TRI_OK;
}

REF_BODY tri_status mse_loss_grad_body(const ref_node *node, const tri_kernel_args *args,
                                       bool f64) {
    ref_array prediction = ref_input(args, 0, f64), target = ref_input(args, 1, f64);
    double seed = seed_of(node, args, 2);
    ref_array dx = ref_output(args, 0, f64);
    for (int64_t i = 0, count = ref_count(&node->s.in[0]); i < count; i++)
        put(dx, i, 2 * seed * (get(prediction, i) - get(target, i)));
    return TRI_OK;
}

REF_BODY tri_status binary_cross_entropy_body(const ref_node *node, const tri_kernel_args *args,
                                              bool f64) {
    ref_array logits = ref_input(args, 0, f64), target = ref_input(args, 1, f64);
    int64_t count = ref_count(&node->s.in[0]);
    double *loss = args->out[0], sum = 0;
    for (int64_t i = 0; i < count; i++) {
        double x = get(logits, i);
        sum += (x > 0 ? x : 0) - x * get(target, i) + log1p(exp(-fabs(x)));
    }
    loss[0] = sum;
    loss[1] = (double)count;
    return TRI_OK;
}

REF_BODY tri_status binary_cross_entropy_grad_body(const ref_node *node,
                                                   const tri_kernel_args *args, bool f64) {
    ref_array logits = ref_input(args, 0, f64), target = ref_input(args, 1, f64);
    double seed = seed_of(node, args, 2);
    ref_array dx = ref_output(args, 0, f64);
    for (int64_t i = 0, count = ref_count(&node->s.in[0]); i < count; i++)
        put(dx, i, seed * (1 / (1 + exp(-get(logits, i))) - get(target, i)));
    return TRI_OK;
}

// The L2 norms of prediction - target, and of target.
REF_BODY void norms(ref_array prediction, ref_array target, int64_t count, double out[2]) {
    out[0] = out[1] = 0;
    for (int64_t i = 0; i < count; i++) {
        double t = get(target, i), d = get(prediction, i) - t;
        out[0] += d * d;
        out[1] += t * t;
    }
    out[0] = sqrt(out[0]);
    out[1] = sqrt(out[1]);
}

REF_BODY tri_status relative_l2_loss_body(const ref_node *node, const tri_kernel_args *args,
                                          bool f64) {
    ref_array prediction = ref_input(args, 0, f64), target = ref_input(args, 1, f64);
    int64_t samples = node->s.in[0].dims[0];
    int64_t count = samples ? ref_count(&node->s.in[0]) / samples : 0;
    double *loss = args->out[0], norm[2];
    loss[0] = 0;
    loss[1] = (double)samples;
    for (int64_t n = 0; n < samples; n++) {
        norms(ref_from(prediction, n * count), ref_from(target, n * count), count, norm);
        loss[0] += norm[0] / norm[1];
    }
    return TRI_OK;
}

REF_BODY tri_status relative_l2_loss_grad_body(const ref_node *node, const tri_kernel_args *args,
                                               bool f64) {
    int64_t samples = node->s.in[0].dims[0];
    int64_t count = samples ? ref_count(&node->s.in[0]) / samples : 0;
    double seed = seed_of(node, args, 2), norm[2];
    for (int64_t n = 0; n < samples; n++) {
        ref_array prediction = ref_from(ref_input(args, 0, f64), n * count);
        ref_array target = ref_from(ref_input(args, 1, f64), n * count);
        ref_array dx = ref_from(ref_output(args, 0, f64), n * count);
        norms(prediction, target, count, norm);
        double factor = norm[0] == 0 ? 0 : seed / (norm[0] * norm[1]);
        for (int64_t i = 0; i < count; i++)
            put(dx, i, factor * (get(prediction, i) - get(target, i)));
    }
    return TRI_OK;
}

REF_BODY double is_hit(ref_array row, int64_t classes, int64_t label) {
    int64_t best = 0;
    for (int64_t k = 1; k < classes; k++)
        if (get(row, k) > get(row, best)) best = k;
    return best == label;
}

REF_BODY tri_status accuracy_body(const ref_node *node, const tri_kernel_args *args, bool f64) {
    return sum_rows_of_labels(node, args, f64, is_hit);
}

REF_BODY tri_status row_max_body(const ref_node *node, const tri_kernel_args *args, bool f64) {
    int64_t width = ref_classes(&node->s.in[0]), rows = ref_count(&node->s.out[0]);
    ref_array y = ref_output(args, 0, f64);
    for (int64_t r = 0; r < rows; r++) {
        ref_array x = ref_from(ref_input(args, 0, f64), r * width);
        put(y, r, get(x, 0));
        for (int64_t k = 1; k < width; k++)
            if (get(x, k) > get(y, r) || isnan(get(x, k))) put(y, r, get(x, k));
    }
    return TRI_OK;
}

REF_BODY tri_status vocab_parallel_softmax_body(const ref_node *node, const tri_kernel_args *args,
                                                bool f64) {
    const tri_classes_attr *a = (const void *)node->attr;
    int64_t width = ref_classes(&node->s.in[0]), rows = ref_count(&node->s.in[1]);
    const int64_t *labels = args->in[1];
    ref_array max = ref_input(args, 2, f64);
    ref_array sums = ref_output(args, 0, f64);
    for (int64_t r = 0; r < rows; r++) {
        ref_array x = ref_from(ref_input(args, 0, f64), r * width);
        double sum = 0;
        TRI_TRY(ref_check_label(labels[r], r, a->classes));
        for (int64_t k = 0; k < width; k++) sum += exp(get(x, k) - get(max, r));
        int64_t at = labels[r] - a->first;
        put(sums, 2 * r, sum);
        put(sums, 2 * r + 1, at >= 0 && at < width ? get(x, at) - get(max, r) : 0);
    }
    return TRI_OK;
}

REF_BODY tri_status vocab_parallel_cross_entropy_body(const ref_node *node,
                                                      const tri_kernel_args *args, bool f64) {
    int64_t rows = ref_count(&node->s.in[1]);
    const int64_t *labels = args->in[1];
    ref_array sums = ref_input(args, 3, f64);
    double *loss = args->out[0];
    loss[0] = loss[1] = 0;
    for (int64_t r = 0; r < rows; r++) {
        if (labels[r] == TRI_IGNORED_LABEL) continue;
        loss[0] += log(get(sums, 2 * r)) - get(sums, 2 * r + 1);
        loss[1] += 1;
    }
    return TRI_OK;
}

REF_BODY tri_status vocab_parallel_cross_entropy_grad_body(const ref_node *node,
                                                           const tri_kernel_args *args, bool f64) {
    const tri_classes_attr *a = (const void *)node->attr;
    int64_t width = ref_classes(&node->s.in[0]), rows = ref_count(&node->s.in[1]);
    const int64_t *labels = args->in[1];
    ref_array max = ref_input(args, 2, f64), sums = ref_input(args, 3, f64);
    double seed = seed_of(node, args, 4);
    for (int64_t r = 0; r < rows; r++) {
        ref_array x = ref_from(ref_input(args, 0, f64), r * width);
        ref_array dx = ref_from(ref_output(args, 0, f64), r * width);
        double factor = labels[r] == TRI_IGNORED_LABEL ? 0 : seed;
        for (int64_t k = 0; k < width; k++) {
            double p = exp(get(x, k) - get(max, r)) / get(sums, 2 * r);
            put(dx, k, factor == 0 ? 0 : factor * (p - (k == labels[r] - a->first)));
        }
    }
    return TRI_OK;
}

REF_BODY tri_status vocab_parallel_argmax_body(const ref_node *node, const tri_kernel_args *args,
                                               bool f64) {
    const tri_classes_attr *a = (const void *)node->attr;
    int64_t width = ref_classes(&node->s.in[0]), rows = ref_count(&node->s.out[0]);
    ref_array max = ref_input(args, 1, f64);
    ref_array y = ref_output(args, 0, f64);
    for (int64_t r = 0; r < rows; r++) {
        ref_array x = ref_from(ref_input(args, 0, f64), r * width);
        int64_t k = 0;
        while (k < width && get(x, k) != get(max, r)) k++;
        put(y, r, -(double)(k < width ? a->first + k : a->classes));
    }
    return TRI_OK;
}

REF_BODY tri_status vocab_parallel_accuracy_body(const ref_node *node, const tri_kernel_args *args,
                                                 bool f64) {
    const tri_classes_attr *a = (const void *)node->attr;
    ref_array best = ref_input(args, 0, f64);
    const int64_t *labels = args->in[1];
    double *hits = args->out[0];
    hits[0] = hits[1] = 0;
    for (int64_t r = 0, rows = ref_count(&node->s.in[1]); r < rows; r++) {
        TRI_TRY(ref_check_label(labels[r], r, a->classes));
        if (labels[r] == TRI_IGNORED_LABEL) continue;
        hits[0] += -get(best, r) == (double)labels[r];
        hits[1] += 1;
    }
    return TRI_OK;
}

// A linear layer with its loss: the tensors and sizes of the ops linear_cross_entropy and
// linear_cross_entropy_grad. Only the scores of a chunk of rows are in memory at a time. Scores and
// their gradients are rounded to the type of x, as if they lay in a tensor between separate ops.
typedef struct scored_rows {
    ref_array x, weight, bias, scores;
    const int64_t *labels;
    int64_t rows, chunk, classes, inputs;
} scored_rows;

REF_BODY scored_rows scored_rows_of(const ref_node *node, const tri_kernel_args *args, int bias,
                                    int scores, bool f64) {
    int64_t rows = ref_count(&node->s.in[2]);
    return (scored_rows){.x = ref_input(args, 0, f64),
                         .weight = ref_input(args, 1, f64),
                         .bias = ref_input(args, bias, f64),
                         .scores = ref_output(args, scores, f64),
                         .labels = args->in[2],
                         .rows = rows,
                         .chunk = tri_loss_chunk(rows),
                         .classes = node->s.in[1].dims[0],
                         .inputs = node->s.in[1].dims[1]};
}

// Computes the scores of row n. Stores them in the row that n has in the memory of its chunk, and
// returns that row.
REF_BODY ref_array score_row(const scored_rows *s, int64_t n) {
    ref_array row = ref_from(s->scores, n % s->chunk * s->classes);
    for (int64_t f = 0; f < s->classes; f++) {
        double sum = s->bias.at ? get(s->bias, f) : 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t k = 0; k < s->inputs; k++)
            sum += get(s->x, n * s->inputs + k) * get(s->weight, f * s->inputs + k);
        put(row, f, sum);
    }
    return row;
}

REF_BODY tri_status linear_cross_entropy_body(const ref_node *node, const tri_kernel_args *args,
                                              bool f64) {
    const tri_linear_cross_entropy_attr *a = (const void *)node->attr;
    scored_rows s = scored_rows_of(node, args, 3, 2, f64);
    double *loss = args->out[0], hits = 0;
    loss[0] = loss[1] = 0;
    for (int64_t n = 0; n < s.rows; n++) {
        TRI_TRY(ref_check_label(s.labels[n], n, s.classes));
        ref_array row = score_row(&s, n);
        if (s.labels[n] == TRI_IGNORED_LABEL) continue;
        loss[0] += cross_entropy_term(row, s.classes, s.labels[n]);
        loss[1] += 1;
        hits += is_hit(row, s.classes, s.labels[n]);
    }
    if (!a->accuracy) return TRI_OK;
    ((double *)args->out[1])[0] = hits;
    ((double *)args->out[1])[1] = loss[1];
    return TRI_OK;
}

// Adds the terms of row n to the gradients of the weight and of the bias. `gradient` is the
// gradient of the row's scores. `sums` has both results, first the weight's [classes, inputs], then
// the bias's [classes]. Also writes row n of dx, which it adds up in `row`.
REF_BODY void add_row_gradients(const scored_rows *s, int64_t n, ref_array gradient, double *sums,
                                double *row, ref_array dx) {
    for (int64_t k = 0; k < s->inputs; k++) row[k] = 0;
    for (int64_t f = 0; f < s->classes; f++) {
        double factor = get(gradient, f);
        sums[s->classes * s->inputs + f] += factor;
        for (int64_t k = 0; k < s->inputs; k++) {
            row[k] += factor * get(s->weight, f * s->inputs + k);
            sums[f * s->inputs + k] += factor * get(s->x, n * s->inputs + k);
        }
    }
    for (int64_t k = 0; k < s->inputs; k++) put(dx, n * s->inputs + k, row[k]);
}

REF_BODY tri_status linear_cross_entropy_grad_body(const ref_node *node,
                                                   const tri_kernel_args *args, bool f64) {
    scored_rows s = scored_rows_of(node, args, 4, 4, f64);
    int64_t weights = s.classes * s.inputs;
    double seed = seed_of(node, args, 3), *loss = args->out[3];
    double *sums = args->workspace, *row = sums + weights + s.classes;
    for (int64_t i = 0; i < weights + s.classes; i++) sums[i] = 0;
    loss[0] = loss[1] = 0;
    for (int64_t n = 0; n < s.rows; n++) {
        TRI_TRY(ref_check_label(s.labels[n], n, s.classes));
        ref_array scores = score_row(&s, n);
        bool counts = s.labels[n] != TRI_IGNORED_LABEL;
        double norm = log_sum(scores, s.classes);
        if (counts) loss[0] += norm - get(scores, s.labels[n]);
        loss[1] += counts;
        for (int64_t k = 0; k < s.classes; k++)
            put(scores, k, counts ? seed * (exp(get(scores, k) - norm) - (k == s.labels[n])) : 0);
        add_row_gradients(&s, n, scores, sums, row, ref_output(args, 0, f64));
    }
    for (int64_t i = 0; i < weights; i++) put(ref_output(args, 1, f64), i, sums[i]);
    for (int64_t f = 0; s.bias.at && f < s.classes; f++)
        put(ref_output(args, 2, f64), f, sums[weights + f]);
    return TRI_OK;
}

REF_KERNEL(nll_loss)
REF_KERNEL(nll_loss_grad)
REF_KERNEL(soft_nll_loss)
REF_KERNEL(soft_nll_loss_grad)
REF_KERNEL(one_hot)
REF_KERNEL(top_class)
REF_KERNEL(cross_entropy)
REF_KERNEL(cross_entropy_grad)
REF_KERNEL(mse_loss)
REF_KERNEL(mse_loss_grad)
REF_KERNEL(binary_cross_entropy)
REF_KERNEL(binary_cross_entropy_grad)
REF_KERNEL(relative_l2_loss)
REF_KERNEL(relative_l2_loss_grad)
REF_KERNEL(accuracy)
REF_KERNEL(row_max)
REF_KERNEL(vocab_parallel_softmax)
REF_KERNEL(vocab_parallel_cross_entropy)
REF_KERNEL(vocab_parallel_cross_entropy_grad)
REF_KERNEL(vocab_parallel_argmax)
REF_KERNEL(vocab_parallel_accuracy)
REF_KERNEL(linear_cross_entropy)
REF_SUMMING_KERNEL(linear_cross_entropy_grad,
                   s->in[1].dims[0] * (s->in[1].dims[1] + 1) + s->in[1].dims[1])
