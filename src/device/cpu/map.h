// What the kernels of the ops map and map_reduce share.
#ifndef TRIREME_DEVICE_CPU_MAP_H
#define TRIREME_DEVICE_CPU_MAP_H

#include "device/cpu/map_steps.h"
#include "device/map_compiled.h"
#include "device/map_plan.h"

// A map that is ready to be computed.
typedef struct cpu_map {
    tri_map_plan plan; // a slot has the size of a block
    bool bf16, mask;
    bool bytes[TRI_FORMULA_INPUTS]; // the input is U8, a mask
    bool reads_floats;              // inputs are F32, and may be read where they are
    bool streams;                   // outputs are written past the caches
    int64_t tile;                   // elements of an input or output that are copied at a time
    cpu_range draws;                // draws random numbers
    cpu_map_machine machine;
    cpu_map_copies copies;
    cpu_map_instruction code[CPU_MAP_INSTRUCTIONS], streaming[CPU_MAP_INSTRUCTIONS];
    float constants[TRI_FORMULA_CONSTANTS][CPU_MAP_BLOCK];
} cpu_map;

// What a thread computes a map with.
typedef struct cpu_map_work {
    const cpu_map *map;
    const tri_kernel_args *args;
    float *tiles; // of each input and output, one after the other
    cpu_map_operand operands[UINT8_MAX + 1];
} cpu_map_work;

enum { CPU_MAP_TILE = 512 }; // cpu_map.tile as cpu_map_make sets it

// Elements of an input, `stride` apart, of which the first has the index `index`; -1: they lie
// outside of the input, and are 0. They become element `at` of what is read, and each `step`
// behind. columns: there are so many of these runs, whose elements of the input lie `between`
// apart, and those of what is read one behind the other.
typedef struct cpu_map_run {
    int64_t index, stride, count, at, step;
    int64_t columns, between;
} cpu_map_run;
typedef void (*cpu_map_take)(const void *context, const cpu_map_run *run, void *to);
// Takes elements [begin, begin + count) of an input that is read by strides, run by run.
void cpu_map_read_view(const tri_map_plan *plan, int input, int64_t begin, int64_t count,
                       cpu_map_take take, const void *context, void *to);

// Prepares the map of a node of map or map_reduce.
void cpu_map_make(const cpu_device *device, const tri_graph *graph, const tri_node *node,
                  cpu_map *out);
// How much room a thread needs, in floats, with tiles of CPU_MAP_TILE.
int64_t cpu_map_room(const tri_node *node);
cpu_map_work cpu_map_begin(const cpu_map *map, const tri_kernel_args *args, float *room);
// Computes elements [begin, begin + count) of output 0, at most CPU_MAP_TILE, and returns them.
const float *cpu_map_read(cpu_map_work *work, int64_t begin, int64_t count);
// Computes elements [begin, end) of all outputs and stores them.
void cpu_map_compute(cpu_map_work *work, int64_t begin, int64_t end);

// A formula that is compiled ahead (device/map_compiled.h), for all elements alike.
typedef struct cpu_compiled {
    cpu_range range; // NULL: the node has no such formula; its context is a cpu_compiled_job
    float slope;
} cpu_compiled;

typedef struct cpu_compiled_job {
    const void *in[TRI_COMPILED_INPUTS];
    void *out[TRI_COMPILED_OUTPUTS];
    float slope;
} cpu_compiled_job;

cpu_compiled cpu_compiled_of(const cpu_device *device, const tri_graph *graph,
                             const tri_node *node);
// Sets *job to what the formula reads and writes.
void cpu_compiled_begin(const cpu_compiled *compiled, const tri_formula *formula,
                        const tri_kernel_args *args, cpu_compiled_job *job);

// Draws the random numbers of elements index, index + stride, … to `to`. range: what
// cpu_map_draws_of has chosen.
void cpu_map_draw(cpu_range range, const tri_draw_stream *draws, const int64_t *position,
                  int64_t index, int64_t stride, int64_t count, float *to);
cpu_range cpu_map_draws_of(const cpu_device *device);

#endif
