// What one unit of an LSTM or a GRU computes in one step, and its gradient, in F32. The CPU and
// kernels of a GPU use the same code; before they include it, they define RECURRENT_SIGMOID(x) and
// RECURRENT_TANH(x). All numbers are passed by value, so that loops over units can be vectorised.
#ifndef TRIREME_OPS_RECURRENT_STEP_H
#define TRIREME_OPS_RECURRENT_STEP_H

#include "base/kernel_inline.h"

// The gates, and the states after the step.
typedef struct recurrent_lstm_unit {
    float i, f, g, o, c, h;
} recurrent_lstm_unit;

// The gates r, z and n; what the state before adds to the gate n, which the gradient needs; and the
// state after the step.
typedef struct recurrent_gru_unit {
    float r, z, n, p, h;
} recurrent_gru_unit;

// i, f, g, o: the sums of the gates; c: the state before.
TRI_KERNEL_INLINE recurrent_lstm_unit recurrent_lstm(float i, float f, float g, float o, float c) {
    recurrent_lstm_unit u;
    u.i = RECURRENT_SIGMOID(i);
    u.f = RECURRENT_SIGMOID(f);
    u.g = RECURRENT_TANH(g);
    u.o = RECURRENT_SIGMOID(o);
    u.c = u.f * c + u.i * u.g;
    u.h = u.o * RECURRENT_TANH(u.c);
    return u;
}

// u: what recurrent_lstm has computed, without h; c: the state before; dh, dc: the gradients of the
// states after the step. Returns the gradients of the sums and of c.
TRI_KERNEL_INLINE recurrent_lstm_unit recurrent_lstm_grad(recurrent_lstm_unit u, float c, float dh,
                                                          float dc) {
    recurrent_lstm_unit d;
    float t = RECURRENT_TANH(u.c), sum = dc + dh * u.o * (1 - t * t);
    d.i = sum * u.g * u.i * (1 - u.i);
    d.f = sum * c * u.f * (1 - u.f);
    d.g = sum * u.i * (1 - u.g * u.g);
    d.o = dh * t * u.o * (1 - u.o);
    d.c = sum * u.f;
    d.h = 0;
    return d;
}

// r, z, n: what the input adds to the gates; p_r, p_z, p_n: what the state before adds, h.
TRI_KERNEL_INLINE recurrent_gru_unit recurrent_gru(float r, float z, float n, float p_r, float p_z,
                                                   float p_n, float h) {
    recurrent_gru_unit u;
    u.r = RECURRENT_SIGMOID(r + p_r);
    u.z = RECURRENT_SIGMOID(z + p_z);
    u.n = RECURRENT_TANH(n + u.r * p_n);
    u.p = p_n;
    u.h = (1 - u.z) * u.n + u.z * h;
    return u;
}

// u: what recurrent_gru has computed, without h; h: the state before; dh: the gradient of the state
// after the step. Returns the gradients of the sums, of p, and of h as far as it does not add to
// the gates.
TRI_KERNEL_INLINE recurrent_gru_unit recurrent_gru_grad(recurrent_gru_unit u, float h, float dh) {
    recurrent_gru_unit d;
    d.z = dh * (h - u.n) * u.z * (1 - u.z);
    d.n = dh * (1 - u.z) * (1 - u.n * u.n);
    d.r = d.n * u.p * u.r * (1 - u.r);
    d.p = d.n * u.r;
    d.h = dh * u.z;
    return d;
}

#endif
