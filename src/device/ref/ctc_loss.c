// Connectionist temporal classification: the probability of a target is the sum over all paths, in
// which a class is repeated and blanks lie between classes. A path goes through states: the blanks
// before, between and behind the S labels, and the labels, 2 S + 1 in all. Everything is kept as
// logarithms, so that products of many probabilities do not vanish.
#include "device/ref/node.h"

#include <inttypes.h>
#include <math.h>

// One sample.
typedef struct ctc {
    ref_array scores; // [T, K]
    const int64_t *target;
    int64_t classes, times, labels, blank;
} ctc;

static int64_t class_of(const ctc *c, int64_t state) {
    return state % 2 ? c->target[state / 2] : c->blank;
}

REF_BODY double score_of(const ctc *c, int64_t time, int64_t state) {
    return get(c->scores, time * c->classes + class_of(c, state));
}

// Whether a path may go from `state` to the label behind the next blank. Equal labels need a blank
// between them.
static bool may_skip(const ctc *c, int64_t state) {
    return state % 2 && class_of(c, state) != class_of(c, state + 2);
}

static double log_add(double a, double b) {
    double most = fmax(a, b), least = fmin(a, b);
    return most == -HUGE_VAL ? most : most + log1p(exp(least - most));
}

// Fills alpha [T, states]: the logarithm of the probability of all paths that end in the state at
// this time. Returns that of the target.
REF_BODY double run_forward(const ctc *c, double *alpha) {
    int64_t states = 2 * c->labels + 1;
    for (int64_t s = 0; s < states; s++) alpha[s] = s < 2 ? score_of(c, 0, s) : -HUGE_VAL;
    for (int64_t t = 1; t < c->times; t++) {
        const double *before = alpha + (t - 1) * states;
        for (int64_t s = 0; s < states; s++) {
            double sum = before[s];
            if (s > 0) sum = log_add(sum, before[s - 1]);
            if (s > 1 && may_skip(c, s - 2)) sum = log_add(sum, before[s - 2]);
            alpha[t * states + s] = sum + score_of(c, t, s);
        }
    }
    const double *last = alpha + (c->times - 1) * states;
    return states > 1 ? log_add(last[states - 1], last[states - 2]) : last[0];
}

// Fills beta [states] for time t from that of time t + 1, `behind`: the logarithm of the
// probability that a path goes on from the state to the target's end.
REF_BODY void step_back(const ctc *c, int64_t t, const double *behind, double *beta) {
    int64_t states = 2 * c->labels + 1;
    for (int64_t s = 0; s < states; s++) {
        if (t == c->times - 1) {
            beta[s] = s >= states - 2 ? 0 : -HUGE_VAL;
            continue;
        }
        double sum = behind[s] + score_of(c, t + 1, s);
        if (s + 1 < states) sum = log_add(sum, behind[s + 1] + score_of(c, t + 1, s + 1));
        if (s + 2 < states && may_skip(c, s))
            sum = log_add(sum, behind[s + 2] + score_of(c, t + 1, s + 2));
        beta[s] = sum;
    }
}

static tri_status length_of(const int64_t *lengths, int64_t sample, int64_t most, const char *what,
                            int64_t *out) {
    *out = lengths ? lengths[sample] : most;
    if (*out >= 0 && *out <= most) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT,
                    "ctc_loss: the %s length of sample %" PRId64 " is %" PRId64
                    ", but must be from 0 to %" PRId64,
                    what, sample, *out, most);
}

// Finds sample n. `lengths` is the number of the input with the input lengths.
REF_BODY tri_status sample_of(const ref_node *node, const tri_kernel_args *args, bool f64,
                              int lengths, int64_t n, ctc *out) {
    const tri_shape *scores = &node->s.in[0];
    int64_t most = node->s.in[1].dims[1];
    const tri_ctc_loss_attr *attr = (const void *)node->attr;
    *out = (ctc){.classes = scores->dims[2],
                 .blank = attr->blank,
                 .target = (const int64_t *)args->in[1] + n * most};
    out->scores = ref_from(ref_input(args, 0, f64), n * scores->dims[1] * scores->dims[2]);
    TRI_TRY(length_of(args->in[lengths], n, scores->dims[1], "input", &out->times));
    TRI_TRY(length_of(args->in[lengths + 1], n, most, "target", &most));
    while (out->labels < most && out->target[out->labels] != TRI_IGNORED_LABEL) {
        int64_t label = out->target[out->labels++];
        TRI_TRY(ref_check_label(label, n, out->classes));
        if (label == attr->blank)
            return TRI_FAIL(TRI_BAD_INPUT,
                            "ctc_loss: the target of sample %" PRId64 " has the blank, %" PRId64, n,
                            label);
    }
    return TRI_OK;
}

// The logarithm of the probability of an input without times: only an empty target has it.
REF_BODY double log_probability(const ctc *c, double *alpha) {
    if (c->times == 0) return c->labels == 0 ? 0 : -HUGE_VAL;
    return run_forward(c, alpha);
}

static double per_label(const ctc *c) { return c->labels > 0 ? (double)c->labels : 1; }

REF_BODY tri_status ctc_loss_body(const ref_node *node, const tri_kernel_args *args, bool f64) {
    const tri_ctc_loss_attr *attr = (const void *)node->attr;
    double *sums = args->out[0];
    int64_t samples = node->s.in[0].dims[0];
    sums[0] = 0;
    sums[1] = (double)samples;
    for (int64_t n = 0; n < samples; n++) {
        ctc c;
        TRI_TRY(sample_of(node, args, f64, 2, n, &c));
        double loss = -log_probability(&c, args->workspace);
        if (!attr->zero_infinity || loss != HUGE_VAL) sums[0] += loss / per_label(&c);
    }
    return TRI_OK;
}

REF_BODY tri_status ctc_loss_grad_body(const ref_node *node, const tri_kernel_args *args,
                                       bool f64) {
    const tri_ctc_loss_attr *attr = (const void *)node->attr;
    ref_array dx = ref_output(args, 0, f64);
    int64_t samples = node->s.in[0].dims[0], times = node->s.in[0].dims[1];
    double seed = get(ref_input(args, 2, node->s.in_type[2] == TRI_F64), 0);
    for (int64_t i = 0, count = ref_count(&node->s.out[0]); i < count; i++) put(dx, i, 0);
    for (int64_t n = 0; n < samples; n++) {
        ctc c;
        TRI_TRY(sample_of(node, args, f64, 3, n, &c));
        int64_t states = 2 * c.labels + 1;
        double *alpha = args->workspace, *beta = alpha + times * states;
        double total = log_probability(&c, alpha);
        if (attr->zero_infinity && total == -HUGE_VAL) continue;
        for (int64_t t = c.times - 1; t >= 0; t--) {
            double *now = beta + t % 2 * states;
            step_back(&c, t, beta + (t + 1) % 2 * states, now);
            for (int64_t s = 0; s < states; s++) {
                int64_t at = (n * times + t) * c.classes + class_of(&c, s);
                double path = exp(alpha[t * states + s] + now[s] - total);
                put(dx, at, get(dx, at) - seed / per_label(&c) * path);
            }
        }
    }
    return TRI_OK;
}

// Room for alpha, and for beta at two times.
#define CTC_ROOM (s->in[0].dims[1] + 2) * (2 * s->in[1].dims[1] + 1)
REF_SUMMING_KERNEL(ctc_loss, CTC_ROOM)
REF_SUMMING_KERNEL(ctc_loss_grad, CTC_ROOM)
