// Runs the steps of a formula on floats, for the kernel of the op map. The steps are compiled to
// instructions of a machine with one register, the accumulator, which holds CPU_MAP_BLOCK elements
// in vector registers. So a chain of steps needs no memory between them.
#ifndef TRIREME_DEVICE_CPU_MAP_STEPS_H
#define TRIREME_DEVICE_CPU_MAP_STEPS_H

#include "device/cpu/internal.h"
#include "ops/formula.h"

enum { CPU_MAP_BLOCK = 64 };

// What an instruction does with the accumulator. Codes below TRI_STEP_KIND_COUNT are steps, whose
// first operand is the accumulator, which gets the result. Those of CPU_MAP_QUICK need no loop over
// elements: X(NAME, VALUE) with the value as vectors x, the accumulator, y, the operand, and Z, the
// third.
#define CPU_MAP_QUICK(X)                                                                           \
    X(add, x + y)                                                                                  \
    X(sub, x - y)                                                                                  \
    X(sub_from, y - x)                                                                             \
    X(mul, x *y)                                                                                   \
    X(div, x / y)                                                                                  \
    X(div_into, y / x)                                                                             \
    X(neg, -x)                                                                                     \
    X(abs, (vector)((bits)x & 0x7fffffff))                                                         \
    X(select, (vector)(((bits)(x != 0) & (bits)y) | (~(bits)(x != 0) & (bits)Z)))
typedef enum cpu_map_code {
    CPU_MAP_STEPS_END = TRI_STEP_KIND_COUNT - 1,
#define X(name, value) CPU_MAP_##name,
    CPU_MAP_QUICK(X)
#undef X
        CPU_MAP_LOAD,
    CPU_MAP_STORE,
    CPU_MAP_STREAM, // stores past the caches, at an address that is a multiple of 64
    CPU_MAP_END
} cpu_map_code;

typedef struct cpu_map_instruction {
    uint8_t code, operand, third; // operands are numbers, into a table
} cpu_map_instruction;

enum {
    CPU_MAP_OUTPUT = UINT8_MAX + 1 - TRI_FORMULA_OUTPUTS, // the operand that is output 0
    // Of the longest formula: each step is loaded, computed and stored.
    CPU_MAP_INSTRUCTIONS = 3 * TRI_FORMULA_STEPS + 2 * TRI_FORMULA_OUTPUTS + 1,
};

// Where an operand lies: CPU_MAP_BLOCK elements for each block, one block after the other, or the
// same ones for all blocks.
typedef struct cpu_map_operand {
    float *at;
    int64_t moves; // -1 (all bits), or 0: the same elements
} cpu_map_operand;

// Compiles a formula. The operands are those of its steps, and CPU_MAP_OUTPUT + k for output k.
void cpu_map_compile(const tri_formula *formula, bool streams, cpu_map_instruction *out);

// Runs the instructions on `blocks` blocks.
typedef void (*cpu_map_machine)(const cpu_map_instruction *code, const cpu_map_operand *operands,
                                int64_t blocks);
cpu_map_machine cpu_map_machine_of(const tri_device_description *device);

// Copy elements of BF16 to F32, and back with rounding.
typedef struct cpu_map_copies {
    void (*widen)(const uint16_t *from, int64_t count, float *to);
    void (*narrow)(const float *from, int64_t count, uint16_t *to);
} cpu_map_copies;
cpu_map_copies cpu_map_copies_of(const tri_device_description *device);

#endif
