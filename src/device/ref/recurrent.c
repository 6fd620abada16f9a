// Recurrent layers: the steps of an LSTM, a GRU or a plain layer over whole sequences, and their
// gradient. One sample after the other; its steps in their order.
#include "device/ref/node.h"

#include <math.h>

typedef struct recurrent_sizes {
    int64_t steps, samples, units, gates; // gates: of one unit
    int64_t next_sample, next_step;       // distance in rows of a sequence
} recurrent_sizes;

// y: the shape of the sequence of states.
static recurrent_sizes sizes_of(const tri_recurrent_attr *a, const tri_shape *y) {
    recurrent_sizes z = {.steps = y->dims[!a->time_first],
                         .samples = y->dims[a->time_first],
                         .units = y->dims[2],
                         .gates = tri_recurrent_gates(a->kind)};
    z.next_sample = a->time_first ? 1 : z.steps;
    z.next_step = a->time_first ? z.samples : 1;
    return z;
}

// The row of a sequence that step number `step` in the order of computation reads and writes.
static int64_t row_of(const tri_recurrent_attr *a, const recurrent_sizes *z, int64_t sample,
                      int64_t step) {
    return sample * z->next_sample + (a->reverse ? z->steps - 1 - step : step) * z->next_step;
}

REF_BODY double sigmoid(double x) { return 1 / (1 + exp(-x)); }

// The state before a step: that of the step before, the first state, or 0.
REF_BODY double state_before(const tri_recurrent_attr *a, const recurrent_sizes *z, ref_array y,
                             ref_array h, int64_t sample, int64_t step, int64_t unit) {
    if (step > 0) return get(y, row_of(a, z, sample, step - 1) * z->units + unit);
    return h.at ? get(h, sample * z->units + unit) : 0;
}

// Computes unit u of a step. x: what the input adds to its gates; p: what the state before adds.
REF_BODY double recurrent_unit(int64_t kind, const double x[4], const double p[4], double h,
                               double *c, double kept[4]) {
    if (kind == TRI_RECURRENT_TANH) return tanh(x[0] + p[0]);
    if (kind == TRI_RECURRENT_RELU) return x[0] + p[0] <= 0 ? 0 : x[0] + p[0];
    kept[0] = sigmoid(x[0] + p[0]);
    kept[1] = sigmoid(x[1] + p[1]);
    if (kind == TRI_RECURRENT_GRU) {
        kept[2] = tanh(x[2] + kept[0] * p[2]);
        kept[3] = p[2];
        return (1 - kept[1]) * kept[2] + kept[1] * h;
    }
    kept[2] = tanh(x[2] + p[2]);
    kept[3] = sigmoid(x[3] + p[3]);
    *c = kept[1] * *c + kept[0] * kept[2];
    return kept[3] * tanh(*c);
}

REF_BODY tri_status recurrent_body(const ref_node *node, const tri_kernel_args *args, bool f64) {
    const tri_recurrent_attr *a = (const void *)node->attr;
    recurrent_sizes z = sizes_of(a, &node->s.out[0]);
    ref_array gates = ref_input(args, 0, f64), weight = ref_input(args, 1, f64);
    ref_array bias = ref_input(args, 2, f64), h = ref_input(args, 3, f64);
    ref_array c = ref_input(args, 4, f64), y = ref_output(args, 0, f64);
    ref_array last_h = ref_output(args, 1, f64), last_c = ref_output(args, 2, f64);
    ref_array saved = ref_output(args, 3, f64), cells = ref_output(args, 4, f64);
    bool is_lstm = a->kind == TRI_RECURRENT_LSTM, has_cells = is_lstm && a->keeps;
    bool has_saved = a->keeps && (is_lstm || a->kind == TRI_RECURRENT_GRU);
    double *product = args->workspace;
    for (int64_t n = 0; n < z.samples; n++) {
        for (int64_t u = 0; is_lstm && u < z.units; u++) {
            double first = c.at ? get(c, n * z.units + u) : 0;
            put(last_c, n * z.units + u, first);
            if (has_cells) put(cells, n * z.units + u, first);
        }
        for (int64_t s = 0; s < z.steps; s++) {
            int64_t row = row_of(a, &z, n, s), at = s * z.samples + n;
            for (int64_t g = 0; g < z.gates * z.units; g++) {
                product[g] = bias.at ? get(bias, g) : 0;
                for (int64_t k = 0; k < z.units; k++)
                    product[g] += get(weight, g * z.units + k) * state_before(a, &z, y, h, n, s, k);
            }
            for (int64_t u = 0; u < z.units; u++) {
                double x[4] = {0}, p[4] = {0}, kept[4] = {0}, cell = 0;
                for (int64_t g = 0; g < z.gates; g++) {
                    x[g] = get(gates, (row * z.gates + g) * z.units + u);
                    p[g] = product[g * z.units + u];
                }
                if (is_lstm) cell = get(last_c, n * z.units + u);
                double before = state_before(a, &z, y, h, n, s, u);
                double state = recurrent_unit(a->kind, x, p, before, &cell, kept);
                put(y, row * z.units + u, state);
                put(last_h, n * z.units + u, state);
                if (is_lstm) put(last_c, n * z.units + u, cell);
                if (has_cells) put(cells, (at + z.samples) * z.units + u, cell);
                for (int64_t g = 0; has_saved && g < 4; g++)
                    put(saved, (at * 4 + g) * z.units + u, kept[g]);
            }
        }
    }
    return TRI_OK;
}

// Computes the gradient of unit u of a step from dh and dc: d[0 to 3] of its gates (of the new gate
// of GRU: of the input, and in *dn of what h adds), and what passes by the product to the state and
// the cell before.
REF_BODY void recurrent_unit_grad(int64_t kind, const double kept[4], double y, double before,
                                  double cell_before, double cell, double dh, double *dc,
                                  double d[4], double *dn, double *passes) {
    *passes = 0;
    if (kind == TRI_RECURRENT_TANH) {
        d[0] = dh * (1 - y * y);
    } else if (kind == TRI_RECURRENT_RELU) {
        d[0] = y > 0 ? dh : 0;
    } else if (kind == TRI_RECURRENT_GRU) {
        d[1] = dh * (before - kept[2]) * kept[1] * (1 - kept[1]);
        d[2] = dh * (1 - kept[1]) * (1 - kept[2] * kept[2]);
        d[0] = d[2] * kept[3] * kept[0] * (1 - kept[0]);
        *dn = d[2] * kept[0];
        *passes = dh * kept[1];
    } else {
        double t = tanh(cell), sum = *dc + dh * kept[3] * (1 - t * t);
        d[0] = sum * kept[2] * kept[0] * (1 - kept[0]);
        d[1] = sum * cell_before * kept[1] * (1 - kept[1]);
        d[2] = sum * kept[0] * (1 - kept[2] * kept[2]);
        d[3] = dh * t * kept[3] * (1 - kept[3]);
        *dc = sum * kept[1];
    }
}

REF_BODY tri_status recurrent_grad_body(const ref_node *node, const tri_kernel_args *args,
                                        bool f64) {
    const tri_recurrent_attr *a = (const void *)node->attr;
    recurrent_sizes z = sizes_of(a, &node->s.in[1]);
    ref_array weight = ref_input(args, 0, f64), y = ref_input(args, 1, f64);
    ref_array saved = ref_input(args, 2, f64), cells = ref_input(args, 3, f64);
    ref_array dy = ref_input(args, 4, f64), dlast_h = ref_input(args, 5, f64);
    ref_array dlast_c = ref_input(args, 6, f64), h = ref_input(args, 7, f64);
    ref_array dgates = ref_output(args, 0, f64), dproduct = ref_output(args, 1, f64);
    ref_array before = ref_output(args, 2, f64), dh_out = ref_output(args, 3, f64);
    ref_array dc_out = ref_output(args, 4, f64);
    bool is_lstm = a->kind == TRI_RECURRENT_LSTM, is_gru = a->kind == TRI_RECURRENT_GRU;
    int64_t width = z.gates * z.units;
    double *dh = args->workspace, *dc = dh + z.units, *dp = dc + z.units;
    for (int64_t n = 0; n < z.samples; n++) {
        for (int64_t u = 0; u < z.units; u++) {
            dh[u] = dlast_h.at ? get(dlast_h, n * z.units + u) : 0;
            dc[u] = dlast_c.at ? get(dlast_c, n * z.units + u) : 0;
        }
        for (int64_t s = z.steps - 1; s >= 0; s--) {
            int64_t row = row_of(a, &z, n, s), at = s * z.samples + n;
            for (int64_t u = 0; u < z.units; u++) {
                double kept[4] = {0}, d[4] = {0}, dn = 0, cell_before = 0, cell = 0;
                for (int64_t g = 0; (is_lstm || is_gru) && g < 4; g++)
                    kept[g] = get(saved, (at * 4 + g) * z.units + u);
                if (is_lstm) {
                    cell_before = get(cells, at * z.units + u);
                    cell = get(cells, (at + z.samples) * z.units + u);
                }
                double state = state_before(a, &z, y, h, n, s, u);
                double sum = dh[u] + (dy.at ? get(dy, row * z.units + u) : 0);
                put(before, row * z.units + u, state);
                recurrent_unit_grad(a->kind, kept, get(y, row * z.units + u), state, cell_before,
                                    cell, sum, &dc[u], d, &dn, &dh[u]);
                for (int64_t g = 0; g < z.gates; g++) {
                    put(dgates, row * width + g * z.units + u, d[g]);
                    dp[g * z.units + u] = is_gru && g == 2 ? dn : d[g];
                    if (is_gru) put(dproduct, row * width + g * z.units + u, dp[g * z.units + u]);
                }
            }
            for (int64_t g = 0; g < width; g++)
                for (int64_t u = 0; u < z.units; u++) dh[u] += dp[g] * get(weight, g * z.units + u);
        }
        for (int64_t u = 0; u < z.units; u++) {
            put(dh_out, n * z.units + u, dh[u]);
            if (is_lstm) put(dc_out, n * z.units + u, dc[u]);
        }
    }
    return TRI_OK;
}

REF_SUMMING_KERNEL(recurrent, s->in[1].dims[0])
REF_SUMMING_KERNEL(recurrent_grad, 2 * s->in[0].dims[1] + s->in[0].dims[0])
