// The machine that runs formulas, compiled for each instruction set.
#include "device/cpu/map_steps.h"

#include "device/cpu/functions.h"
#include "ops/formula_division.h"
#include "ops/formula_erfinv.h"
#include "ops/formula_gamma.h"
#include "tensor/half.h"

#include <math.h>

FORMULA_DIVISION(float, floorf)
FORMULA_ERFINV(float, erff, erfcf, expf, logf, sqrtf)

#define MAP_POW(a, b) powf(a, b)
#define MAP_ABS(a) __builtin_fabsf(a)
#define MAP_FLOOR(a) floorf(a)
#define MAP_CEIL(a) ceilf(a)
#define MAP_ROUND(a) nearbyintf(a)
#define MAP_SQRT(a) sqrtf(a)
#define MAP_EXP(a) cpu_exp_scalar(a)
#define MAP_EXPM1(a) cpu_expm1_scalar(a)
#define MAP_LOG(a) cpu_log_scalar(a)
#define MAP_LOG1P(a) cpu_log1p_scalar(a)
#define MAP_SIN(a) cpu_sine_scalar(a, 0)
#define MAP_COS(a) cpu_sine_scalar(a, 1)
#define MAP_ATAN(a) cpu_atan_scalar(a)
#define MAP_ERF(a) cpu_erf_scalar(a)
#define MAP_ERFINV(a) formula_erfinv(a)
#define MAP_LGAMMA(a) ((float)formula_lgamma((double)(a)))
#define MAP_DIGAMMA(a) ((float)formula_digamma((double)(a)))
#define MAP_TRIGAMMA(a) ((float)formula_trigamma((double)(a)))
#define MAP_NORMAL_CDF(a) cpu_normal_cdf_scalar(a)
#define MAP_TANH(a) cpu_tanh_scalar(a)
#define MAP_SIGMOID(a) cpu_sigmoid_scalar(a)
#define MAP_FLOOR_DIV(a, b) formula_floor_div(a, b, cpu_fmod_scalar(a, b))
#define MAP_REMAINDER(a, b) formula_remainder(b, cpu_fmod_scalar(a, b))
#define MAP_FMOD(a, b) cpu_fmod_scalar(a, b)

// A fourth of the accumulator: a register of AVX-512, or several smaller ones.
enum { VECTOR = 16, VECTORS = CPU_MAP_BLOCK / VECTOR };
typedef float vector __attribute__((vector_size(4 * VECTOR)));
typedef uint32_t bits __attribute__((vector_size(4 * VECTOR)));
typedef float loose __attribute__((vector_size(4 * VECTOR), aligned(4), may_alias));

// Whether an element is too large for the function of the step in functions.h.
CPU_SCALAR bool needs_libc(tri_step_kind kind, const float *x, const float *y) {
    int32_t any = 0;
    for (int k = 0; k < CPU_MAP_BLOCK; k++)
        any |= kind == TRI_STEP_sin || kind == TRI_STEP_cos ? __builtin_fabsf(x[k]) > CPU_MOST_ANGLE
                                                            : !cpu_fmod_fits(x[k], y[k]);
    return any;
}

static __attribute__((noinline)) void use_libc(tri_step_kind kind, const float *x, const float *y,
                                               float *out) {
    for (int k = 0; k < CPU_MAP_BLOCK; k++) {
        float rest = kind == TRI_STEP_sin || kind == TRI_STEP_cos ? 0 : fmodf(x[k], y[k]);
        out[k] = kind == TRI_STEP_sin         ? sinf(x[k])
                 : kind == TRI_STEP_cos       ? cosf(x[k])
                 : kind == TRI_STEP_fmod      ? rest
                 : kind == TRI_STEP_remainder ? formula_remainder(y[k], rest)
                                              : formula_floor_div(x[k], y[k], rest);
    }
}

CPU_SCALAR bool has_limits(tri_step_kind kind) {
    return kind == TRI_STEP_sin || kind == TRI_STEP_cos || kind == TRI_STEP_fmod ||
           kind == TRI_STEP_remainder || kind == TRI_STEP_floor_div;
}

// A step on whole vectors.
#define Z (*(const loose *)(c + i * VECTOR))
#define QUICK(name, value)                                                                         \
    case CPU_MAP_##name:                                                                           \
        for (int i = 0; i < VECTORS; i++) {                                                        \
            vector x = acc[i], y = *(const loose *)(b + i * VECTOR);                               \
            const float *c = operands[p->third].at + (at & operands[p->third].moves);              \
            (void)y, (void)c;                                                                      \
            acc[i] = value;                                                                        \
        }                                                                                          \
        break;

// Any other step: through memory, element by element, as the compiler vectorises it.
#define A t[k]
#define B b[k]
#define C operands[p->third].at[(at & operands[p->third].moves) + k]
#define X(name, arity, value)                                                                      \
    case TRI_STEP_##name:                                                                          \
        for (int i = 0; i < VECTORS; i++) *(loose *)(t + i * VECTOR) = acc[i];                     \
        /* so that no step is computed before it is known which one it is */                       \
        __asm__("" : "+m"(t));                                                                     \
        _Pragma("GCC ivdep") for (int k = 0; k < CPU_MAP_BLOCK; k++) t[k] = value;                 \
        if (has_limits(TRI_STEP_##name)) {                                                         \
            float x[CPU_MAP_BLOCK];                                                                \
            for (int i = 0; i < VECTORS; i++) *(loose *)(x + i * VECTOR) = acc[i];                 \
            if (needs_libc(TRI_STEP_##name, x, b)) use_libc(TRI_STEP_##name, x, b, t);             \
        }                                                                                          \
        for (int i = 0; i < VECTORS; i++) acc[i] = *(const loose *)(t + i * VECTOR);               \
        break;

// Runs the instructions. The compiler keeps `acc` in registers.
CPU_BODY run(const cpu_map_instruction *code, const cpu_map_operand *operands, int64_t blocks,
             bool avx512) {
    vector acc[VECTORS] = {{0}};
    float t[CPU_MAP_BLOCK] __attribute__((aligned(64)));
    for (int64_t at = 0; at < blocks * CPU_MAP_BLOCK; at += CPU_MAP_BLOCK)
        for (const cpu_map_instruction *p = code; p->code != CPU_MAP_END; p++) {
            float *b = operands[p->operand].at + (at & operands[p->operand].moves);
            switch (p->code) {
            case CPU_MAP_LOAD:
                for (int i = 0; i < VECTORS; i++) acc[i] = *(const loose *)(b + i * VECTOR);
                break;
            case CPU_MAP_STREAM:
#ifdef __OPTIMIZE__ // else the other instruction sets keep an instruction that they do not have
                if (avx512) {
                    for (int i = 0; i < VECTORS; i++)
                        __asm__ volatile("vmovntps %1, %0"
                                         : "=m"(*(vector *)(b + i * VECTOR))
                                         : "v"(acc[i]));
                    break;
                }
#endif
                // fall through
            case CPU_MAP_STORE:
                for (int i = 0; i < VECTORS; i++) *(loose *)(b + i * VECTOR) = acc[i];
                break;
                CPU_MAP_QUICK(QUICK)
                TRI_STEP_LIST(X)
            }
        }
}

#undef X
#undef A
#undef B
#undef C

#define PARAMETERS const cpu_map_instruction *code, const cpu_map_operand *operands, int64_t blocks
static CPU_AVX512 void run_avx512(PARAMETERS) { run(code, operands, blocks, true); }
static __attribute__((target("avx2,fma"))) void run_avx2(PARAMETERS) {
    run(code, operands, blocks, false);
}
static void run_base(PARAMETERS) { run(code, operands, blocks, false); }

cpu_map_machine cpu_map_machine_of(const tri_device_description *device) {
    if (cpu_has(device, CPU_HAS_AVX512)) return run_avx512;
    return cpu_has(device, CPU_HAS_AVX2) ? run_avx2 : run_base;
}

CPU_BODY widen(const uint16_t *from, int64_t count, float *to) {
    for (int64_t i = 0; i < count; i++) to[i] = tri_bf16_to_float(from[i]);
}
CPU_BODY narrow(const float *from, int64_t count, uint16_t *to) {
    for (int64_t i = 0; i < count; i++) to[i] = tri_float_to_bf16(from[i]);
}
#define COPIES(isa, target)                                                                        \
    target static void widen_##isa(const uint16_t *from, int64_t count, float *to) {               \
        widen(from, count, to);                                                                    \
    }                                                                                              \
    target static void narrow_##isa(const float *from, int64_t count, uint16_t *to) {              \
        narrow(from, count, to);                                                                   \
    }
COPIES(avx512, CPU_AVX512)
COPIES(avx2, __attribute__((target("avx2,fma"))))
COPIES(base, )

cpu_map_copies cpu_map_copies_of(const tri_device_description *device) {
    if (cpu_has(device, CPU_HAS_AVX512)) return (cpu_map_copies){widen_avx512, narrow_avx512};
    if (cpu_has(device, CPU_HAS_AVX2)) return (cpu_map_copies){widen_avx2, narrow_avx2};
    return (cpu_map_copies){widen_base, narrow_base};
}

// A formula while it is compiled.
typedef struct compiler {
    const tri_formula *formula;
    cpu_map_instruction *out;
    int held;                 // the operand in the accumulator; -1: none that is needed
    int reads[UINT8_MAX + 1]; // by operand: how often steps and outputs read it
} compiler;

static void emit(compiler *c, int code, int operand, int third) {
    *c->out++ = (cpu_map_instruction){(uint8_t)code, (uint8_t)operand, (uint8_t)third};
}

static void hold(compiler *c, int operand) {
    if (c->held != operand) emit(c, CPU_MAP_LOAD, operand, 0);
    c->held = operand;
}

// The code of a step that takes the accumulator as its operand b; -1: there is none.
static int code_of_second(int kind) {
    switch (kind) {
    case TRI_STEP_add:
        return CPU_MAP_add;
    case TRI_STEP_mul:
        return CPU_MAP_mul;
    case TRI_STEP_sub:
        return CPU_MAP_sub_from;
    case TRI_STEP_div:
        return CPU_MAP_div_into;
    default:
        return -1;
    }
}

static int code_of(int kind) {
    static const struct {
        uint8_t kind, code;
    } quick[] = {{TRI_STEP_add, CPU_MAP_add},      {TRI_STEP_sub, CPU_MAP_sub},
                 {TRI_STEP_mul, CPU_MAP_mul},      {TRI_STEP_div, CPU_MAP_div},
                 {TRI_STEP_neg, CPU_MAP_neg},      {TRI_STEP_abs, CPU_MAP_abs},
                 {TRI_STEP_select, CPU_MAP_select}};
    for (size_t i = 0; i < sizeof quick / sizeof *quick; i++)
        if (quick[i].kind == kind) return quick[i].code;
    return kind;
}

// Whether the step takes what is held as its operand b, and its operand a from memory.
static bool takes_second(const compiler *c, const tri_formula_step *s) {
    return c->held == s->b && c->held != s->a && tri_step_arity((tri_step_kind)s->kind) == 2 &&
           code_of_second(s->kind) >= 0;
}

static void compile_step(compiler *c, int number) {
    const tri_formula *f = c->formula;
    const tri_formula_step *s = &f->steps[number], *next = s + 1;
    if (takes_second(c, s)) {
        emit(c, code_of_second(s->kind), s->a, 0);
    } else {
        hold(c, s->a);
        emit(c, code_of(s->kind), s->b, s->c);
    }
    c->held = number;
    // The next step has the result from the accumulator; all others have it from memory.
    int reads = c->reads[number];
    bool is_last = number + 1 == f->step_count;
    if (is_last && f->outputs[f->output_count - 1] == number) reads--;
    if (!is_last && (next->a == number || takes_second(c, next))) reads--;
    if (reads > 0) emit(c, CPU_MAP_STORE, number, 0);
}

void cpu_map_compile(const tri_formula *f, bool streams, cpu_map_instruction *out) {
    compiler c = {.formula = f, .out = out, .held = -1};
    for (int i = 0; i < f->step_count; i++) {
        uint8_t operands[] = {f->steps[i].a, f->steps[i].b, f->steps[i].c};
        for (int k = 0; k < tri_step_arity((tri_step_kind)f->steps[i].kind); k++)
            c.reads[operands[k]]++;
    }
    for (int k = 0; k < f->output_count; k++) c.reads[f->outputs[k]]++;
    for (int i = 0; i < f->step_count; i++) compile_step(&c, i);
    // Output 0 may lie over input 0, which another output may still have to be copied from.
    for (int k = f->output_count - 1; k >= 0; k--) {
        hold(&c, f->outputs[k]);
        emit(&c, streams ? CPU_MAP_STREAM : CPU_MAP_STORE, CPU_MAP_OUTPUT + k, 0);
    }
    emit(&c, CPU_MAP_END, 0, 0);
}
