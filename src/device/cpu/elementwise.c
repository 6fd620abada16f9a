// Elementwise operations. All tensors of a node have the same layout, so element i of one belongs
// to element i of the others, whichever layout that is.
#include "device/cpu/internal.h"
#include "tensor/half.h"

#include <stdlib.h>

enum { ELEMENTWISE_GRAIN = 1 << 14 };

typedef struct elementwise_state {
    const cpu_device *device;
    cpu_range range;
    int inputs;    // how many tensors the op reads: 1 or 2
    int64_t count; // elements of each tensor, with the padding of its layout
} elementwise_state;

typedef struct elementwise_job {
    const void *a, *b;
    void *out;
} elementwise_job;

typedef float f32;
typedef uint16_t bf16;
typedef int64_t i64;
typedef int32_t i32;
typedef uint8_t u8;

// The integer next to 0; of a number without room the nearest one that has, and 0 of NaN.
static inline int64_t integer_of(float number) {
    int64_t whole = (int64_t)(number < 0x1p63f && number >= -0x1p63f ? number : 0);
    return number >= 0x1p63f ? INT64_MAX : number < -0x1p63f ? INT64_MIN : whole;
}

#define WIDE(value) _Generic((value), bf16 : tri_bf16_to_float((bf16)(value)), default : (value))
#define NARROW(type, value) _Generic((type)0, bf16 : tri_float_to_bf16(value), default : (value))
#define A WIDE(a[i])
#define B WIDE(b[i])

// Defines NAME_range(device), which returns the loop `out[i] = value` as compiled for the device's
// instruction set. `value` is an expression of A and B, the elements i of the two inputs.
#define ELEMENTWISE(name, a_type, b_type, out_type, value)                                         \
    CPU_BODY name##_body(void *context, int64_t begin, int64_t end) {                              \
        const elementwise_job *job = context;                                                      \
        const a_type *a = job->a;                                                                  \
        const b_type *b = job->b;                                                                  \
        out_type *out = job->out;                                                                  \
        (void)b;                                                                                   \
        _Pragma("GCC ivdep") for (int64_t i = begin; i < end; i++) out[i] =                        \
            NARROW(out_type, value);                                                               \
    }                                                                                              \
    CPU_RANGES(name)

ELEMENTWISE(add, f32, f32, f32, A + B)
ELEMENTWISE(add_bf16, bf16, bf16, bf16, A + B)
ELEMENTWISE(add_bf16_right, f32, bf16, f32, A + B)
ELEMENTWISE(add_bf16_left, bf16, f32, f32, A + B)
ELEMENTWISE(cast_widen, bf16, bf16, f32, A)
ELEMENTWISE(cast_narrow, f32, f32, bf16, A)
ELEMENTWISE(cast_f32_i64, f32, f32, i64, integer_of(A))
ELEMENTWISE(cast_i64_f32, i64, i64, f32, (float)A)
ELEMENTWISE(cast_i64_i32, i64, i64, i32, (int32_t)A)
ELEMENTWISE(cast_i32_i64, i32, i32, i64, A)
ELEMENTWISE(cast_u8_f32, u8, u8, f32, A)
ELEMENTWISE(cast_u8_i64, u8, u8, i64, A)

static const struct elementwise_row {
    const tri_op *op;
    tri_dtype a, b, out; // the types; if the op has one input, b is the type of a
    cpu_range (*range)(const cpu_device *device);
} rows[] = {
    {&tri_op_add, TRI_F32, TRI_F32, TRI_F32, add_range},
    {&tri_op_add, TRI_BF16, TRI_BF16, TRI_BF16, add_bf16_range},
    {&tri_op_add, TRI_F32, TRI_BF16, TRI_F32, add_bf16_right_range},
    {&tri_op_add, TRI_BF16, TRI_F32, TRI_F32, add_bf16_left_range},
    {&tri_op_cast, TRI_BF16, TRI_BF16, TRI_F32, cast_widen_range},
    {&tri_op_cast, TRI_F32, TRI_F32, TRI_BF16, cast_narrow_range},
    {&tri_op_cast, TRI_F32, TRI_F32, TRI_I64, cast_f32_i64_range},
    {&tri_op_cast, TRI_I64, TRI_I64, TRI_F32, cast_i64_f32_range},
    {&tri_op_cast, TRI_I64, TRI_I64, TRI_I32, cast_i64_i32_range},
    {&tri_op_cast, TRI_I32, TRI_I32, TRI_I64, cast_i32_i64_range},
    {&tri_op_cast, TRI_U8, TRI_U8, TRI_F32, cast_u8_f32_range},
    {&tri_op_cast, TRI_U8, TRI_U8, TRI_I64, cast_u8_i64_range},
};

static const struct elementwise_row *row_of(const tri_graph *graph, const tri_node *node) {
    tri_dtype a = tri_value_get(graph, node->inputs[0])->dtype, b = a;
    tri_dtype out = tri_value_get(graph, node->outputs[0])->dtype;
    if (node->input_count > 1) b = tri_value_get(graph, node->inputs[1])->dtype;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].op == node->op && rows[i].a == a && rows[i].b == b && rows[i].out == out)
            return &rows[i];
    return NULL;
}

static tri_status elementwise_prepare(tri_device *device, const tri_graph *graph,
                                      const tri_node *node, tri_kernel *kernel) {
    elementwise_state *state = calloc(1, sizeof *state);
    if (!state) return TRI_FAIL(TRI_NO_MEMORY, "no memory for an elementwise operation");
    const tri_value_info *x = tri_value_get(graph, node->inputs[0]);
    *state = (elementwise_state){.device = cpu_of(device),
                                 .range = row_of(graph, node)->range(cpu_of(device)),
                                 .inputs = node->input_count,
                                 .count = tri_layout_elements(&x->layout, &x->shape)};
    kernel->state = state;
    return TRI_OK;
}

static tri_status elementwise_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const elementwise_state *state = kernel->state;
    elementwise_job job = {
        .a = args->in[0], .b = state->inputs > 1 ? args->in[1] : NULL, .out = args->out[0]};
    cpu_parallel(state->device, state->count, ELEMENTWISE_GRAIN, state->range, &job);
    return TRI_OK;
}

static void elementwise_release(tri_kernel *kernel) { free(kernel->state); }

static bool elementwise_supports(const tri_device_description *device, const tri_graph *graph,
                                 const tri_node *node) {
    return row_of(graph, node) != NULL;
}

#define ELEMENTWISE_KERNEL(opname)                                                                 \
    const tri_kernel_def cpu_##opname##_flat = {                                                   \
        .op = &tri_op_##opname,                                                                    \
        .name = "flat",                                                                            \
        .supports = elementwise_supports,                                                          \
        .layouts = cpu_layouts_of_first,                                                           \
        .prepare = elementwise_prepare,                                                            \
        .run = elementwise_run,                                                                    \
        .release = elementwise_release,                                                            \
    };
ELEMENTWISE_KERNEL(add)
ELEMENTWISE_KERNEL(cast)
