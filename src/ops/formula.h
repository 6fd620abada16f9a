// A formula computes numbers element by element: what the op `map` does with each element of its
// inputs. It is made from an expression such as "gate, up -> gate / (1 + exp(-gate)) * up", has no
// branches or loops, and is data: devices run it step by step, and its derivative is again a
// program. So one kernel computes every elementwise function.
#ifndef TRIREME_OPS_FORMULA_H
#define TRIREME_OPS_FORMULA_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

// X(NAME, ARITY, VALUE) for each kind of step: how many operands it has, and its value as an
// expression of them, A, B and C. Each device compiles these expressions in its own number type,
// with its own functions MAP_…. Comparisons yield 1 or 0; what is not 0 counts as true. min and max
// of NaN and a number are NaN, as in PyTorch.
#define TRI_STEP_LIST(X)                                                                           \
    X(add, 2, A + B)                                                                               \
    X(sub, 2, A - B)                                                                               \
    X(mul, 2, A *B)                                                                                \
    X(div, 2, A / B)                                                                               \
    X(min, 2, B != B ? B : B < A ? B : A)                                                          \
    X(max, 2, B != B ? B : B > A ? B : A)                                                          \
    X(pow, 2, MAP_POW(A, B))                                                                       \
    X(neg, 1, -A)                                                                                  \
    X(abs, 1, MAP_ABS(A))                                                                          \
    X(sign, 1, A > 0 ? 1 : A < 0 ? -1 : 0)                                                         \
    X(relu, 1, A <= 0 ? 0 : A)                                                                     \
    X(leaky_relu, 2, A > 0 ? A : A * B)                                                            \
    X(detach, 1, A)                                                                                \
    X(floor, 1, MAP_FLOOR(A))                                                                      \
    X(ceil, 1, MAP_CEIL(A))                                                                        \
    X(round, 1, MAP_ROUND(A))                                                                      \
    X(sqrt, 1, MAP_SQRT(A))                                                                        \
    X(rsqrt, 1, 1 / MAP_SQRT(A))                                                                   \
    X(exp, 1, MAP_EXP(A))                                                                          \
    X(expm1, 1, MAP_EXPM1(A))                                                                      \
    X(log, 1, MAP_LOG(A))                                                                          \
    X(log1p, 1, MAP_LOG1P(A))                                                                      \
    X(sin, 1, MAP_SIN(A))                                                                          \
    X(cos, 1, MAP_COS(A))                                                                          \
    X(atan, 1, MAP_ATAN(A))                                                                        \
    X(erf, 1, MAP_ERF(A))                                                                          \
    X(erfinv, 1, MAP_ERFINV(A))                                                                    \
    X(lgamma, 1, MAP_LGAMMA(A))                                                                    \
    X(digamma, 1, MAP_DIGAMMA(A))                                                                  \
    X(trigamma, 1, MAP_TRIGAMMA(A))                                                                \
    X(normal_cdf, 1, MAP_NORMAL_CDF(A))                                                            \
    X(tanh, 1, MAP_TANH(A))                                                                        \
    X(sigmoid, 1, MAP_SIGMOID(A))                                                                  \
    X(floor_div, 2, MAP_FLOOR_DIV(A, B))                                                           \
    X(remainder, 2, MAP_REMAINDER(A, B))                                                           \
    X(fmod, 2, MAP_FMOD(A, B))                                                                     \
    X(less, 2, A < B ? 1 : 0)                                                                      \
    X(less_equal, 2, A <= B ? 1 : 0)                                                               \
    X(equal, 2, A == B ? 1 : 0)                                                                    \
    X(not, 1, A == 0 ? 1 : 0)                                                                      \
    X(select, 3, A != 0 ? B : C)

// The steps that only integers have, computed in 64 bits. A shift by more bits than there are, or
// by a negative number, shifts all of them out.
#define TRI_BIT_STEP_LIST(X)                                                                       \
    X(bit_and, 2, A &B)                                                                            \
    X(bit_or, 2, A | B)                                                                            \
    X(bit_xor, 2, A ^ B)                                                                           \
    X(shift_left, 2, B & ~(int64_t)63 ? 0 : (int64_t)((uint64_t)A << B))                           \
    X(shift_right, 2, A >> (B & ~(int64_t)63 ? 63 : B))

typedef enum tri_step_kind {
#define X(name, arity, value) TRI_STEP_##name,
    TRI_STEP_LIST(X) TRI_BIT_STEP_LIST(X)
#undef X
        TRI_STEP_KIND_COUNT
} tri_step_kind;

// An operand is a number: below TRI_OPERAND_INPUT the result of the step of that number, then the
// inputs, then the constants.
enum {
    TRI_FORMULA_STEPS = 128,
    TRI_FORMULA_INPUTS = 8,
    TRI_FORMULA_OUTPUTS = 4,
    TRI_FORMULA_CONSTANTS = 32,
    TRI_EXPRESSION_STEPS = 64, // the most steps of an expression; its derivative may have more
    TRI_OPERAND_INPUT = TRI_FORMULA_STEPS,
    TRI_OPERAND_CONSTANT = TRI_OPERAND_INPUT + TRI_FORMULA_INPUTS,
};

typedef struct tri_formula_step {
    uint8_t kind; // a tri_step_kind
    uint8_t a, b, c;
} tri_formula_step;

typedef struct tri_formula {
    uint8_t input_count, output_count, step_count, constant_count;
    uint8_t outputs[TRI_FORMULA_OUTPUTS]; // operands
    tri_formula_step steps[TRI_FORMULA_STEPS];
    double constants[TRI_FORMULA_CONSTANTS];
} tri_formula;

int tri_step_arity(tri_step_kind kind);
const char *tri_step_name(tri_step_kind kind);
// Whether only integers have this step.
bool tri_step_is_of_bits(tri_step_kind kind);
// The value of a step with these operands; of a step of bits NaN.
double tri_step_value(tri_step_kind kind, double a, double b, double c);

// Makes the formula of an expression. Before an arrow stand the names of the inputs in their order,
// parameters with their values, and parts with what they are computed from: "x, y, scale = 2, d = x
// - y -> scale * d * d". An expression of one input needs no arrow. It has numbers, the operators +
// - * / ^ (power) // % & | << >> ~, comparisons, && || ! and a ? b : c, and the functions of the
// lists of steps, of which `select` is written as a ? b : c. The operators bind as in Python, with
// `bit_xor` as a function. Several expressions, with commas between them, are the outputs of one
// formula. `values`: the values of the parameters in their order, instead of those in the text;
// NULL: those of the text. TRI_BAD_INPUT: the message quotes the expression and the place.
tri_status tri_formula_parse(const char *expression, const double *values, tri_formula *out);

// Makes the formula of the derivative. It may read the gradients of those outputs of `f` for which
// has_gradient is true, the inputs of `f`, and its outputs: these where fewer
// values have to be kept so, or no input, as for a sigmoid. Its outputs are the gradients of the
// inputs k with wanted[k], in their order, for which *differs* says that there is one: an input on
// which no output depends smoothly has none. At most TRI_FORMULA_OUTPUTS inputs may be wanted.
// uses[i]: what its input number i is, by a number that counts the inputs of `f`, then all its
// outputs, then the gradients. The first output may be written over the first input: that is the
// gradient if there is one output, else an input of `f`. The number of outputs is 0 if there is no
// gradient at all. If `f` has TRI_FORMULA_INPUTS inputs and one output, there is no room for its
// gradient: the outputs are factors of it.
// TRI_BAD_INPUT: the derivative is too long for a formula, or has too many inputs.
tri_status tri_formula_derive(const tri_formula *f, const bool *has_gradient, const bool *wanted,
                              tri_formula *out, int uses[TRI_FORMULA_INPUTS], bool *differs);

// Prints the formula as text, one step after the other.
void tri_formula_print(const tri_formula *formula, FILE *out);

// What follows is for code that makes formulas step by step (formula.c): a formula, and the first
// error, with which it went on as if nothing had happened.
typedef struct tri_formula_maker {
    tri_formula *formula;
    int most_steps;
    const char *error; // NULL: none
} tri_formula_maker;

// Gets the operand of a constant.
int tri_formula_constant(tri_formula_maker *maker, double value);
// Gets the operand of a step. Steps on constants are computed at once, what multiplies by 1 or adds
// 0 is left out, and a step that the formula has already is not added again.
int tri_formula_step_add(tri_formula_maker *maker, tri_step_kind kind, int a, int b, int c);
// Whether the operand is a constant, and which.
bool tri_formula_is_constant(const tri_formula *formula, int operand, double *value);
// Removes steps, constants and inputs that no output needs, and has the inputs begin with input
// `first`; those in front of it come last. uses[i]: which input was kept as number i. The rest gets
// an order that depends on what is computed alone: formulas that take the same steps, however they
// were made, have the same bytes.
void tri_formula_sweep(tri_formula *formula, int first, int uses[TRI_FORMULA_INPUTS]);

#endif
