// Formulas of the op map that devices compile ahead: those that networks use most, each as one loop
// over all elements, without the steps between which results are stored. The text that the parser
// makes a formula of is also the expression of the loop, in C and C++. A node has such a kernel if
// its formula takes the same steps, so gradients are found here as well.
#ifndef TRIREME_DEVICE_MAP_COMPILED_H
#define TRIREME_DEVICE_MAP_COMPILED_H

#include "ops/formula.h"

#include <stdint.h>

// ONE(NAME, A, PARTS, Y): a formula of one input; TWO(NAME, A, B, PARTS, Y): of two; PAIR(NAME, A,
// B, C, PARTS, Y, Z): of three, with two outputs. PART(NAME, VALUE) computes what is needed several
// times. AS(TEXT, SAME): the loop computes SAME in place of TEXT, from which it differs in its
// rounding, because that is faster. `slope` is a parameter with any value. Who uses the list
// defines PART, AS, NUMBER(…), a number in the type of the elements, and the functions of formulas.
// clang-format off
#define TRI_COMPILED_LIST(ONE, TWO, PAIR)                                                          \
    ONE(sigmoid, x, , sigmoid(x))                                                                  \
    TWO(sigmoid_grad, dy, y, , dy * (y * (1 - y)))                                                 \
    ONE(tanh, x, , tanh(x))                                                                        \
    TWO(tanh_grad, dy, y, , dy * (1 - y * y))                                                      \
    ONE(relu, x, , relu(x))                                                                        \
    TWO(relu_grad, dy, y, , y <= 0 ? 0 : dy)                                                       \
    TWO(add_relu, a, b, , relu(a + b))                                                             \
    ONE(leaky_relu, x, , leaky_relu(x, slope))                                                     \
    TWO(leaky_relu_grad, dy, y, , dy * (y <= 0 ? slope : 1))                                       \
    ONE(gelu, x, , x * normal_cdf(x))                                                              \
    TWO(gelu_grad, dy, x,                                                                          \
        PART(density, NUMBER(0.398942280401432678) * exp(NUMBER(-0.5) * (x * x))),                 \
        dy * (normal_cdf(x) + x * density))                                                        \
    ONE(gelu_tanh, x, ,                                                                            \
        x * sigmoid(x * (NUMBER(1.595769121605730712) + NUMBER(0.0713548162726002488) * (x * x)))) \
    TWO(gelu_tanh_grad, dy, x,                                                                     \
        PART(bend, NUMBER(1.595769121605730712) + NUMBER(0.0713548162726002488) * (x * x))         \
        PART(s, sigmoid(x * bend)),                                                                \
        AS(dy * (s + x * (s * (1 - s)) * bend                                                      \
                 + x * (s * (1 - s)) * x * NUMBER(0.0713548162726002488) * x                       \
                 + x * (s * (1 - s)) * x * NUMBER(0.0713548162726002488) * x),                     \
           dy * (s + x * s * (1 - s) * (3 * bend - NUMBER(3.191538243211461424)))))                \
    TWO(silu_mul, gate, up, , gate * sigmoid(gate) * up)                                           \
    PAIR(silu_mul_grad, gate, up, dy, PART(s, sigmoid(gate)),                                      \
         AS(dy * (up * s + up * gate * (s * (1 - s))), dy * up * s * (1 + gate * (1 - s))),        \
         AS(dy * (gate * s), dy * gate * s))
// clang-format on

enum { TRI_COMPILED_INPUTS = 3, TRI_COMPILED_OUTPUTS = 2 };

typedef enum tri_compiled {
#define X(name, ...) TRI_COMPILED_##name,
    TRI_COMPILED_LIST(X, X, X)
#undef X
        TRI_COMPILED_COUNT
} tri_compiled;

// Finds the row of the list that has this formula, and its slope. TRI_COMPILED_COUNT: there is
// none.
tri_compiled tri_compiled_find(const tri_formula *formula, double *slope);

#endif
