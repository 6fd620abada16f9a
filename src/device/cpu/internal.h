// What the files of this device share: its state, layouts, oneDNN primitives, parallel loops, and
// functions that are compiled for several instruction sets.
//
// A kernel (tri_kernel_def) is one way to compute an op. Its function `supports` tells whether it
// can compute a given node of the graph, and its function `layouts` chooses the order in memory of
// the node's tensors.
#ifndef TRIREME_DEVICE_CPU_INTERNAL_H
#define TRIREME_DEVICE_CPU_INTERNAL_H

#include "device/cpu/onednn.h"
#include "device/device.h"
#include "device/widen.h"
#include "ops/ops.h"

// Bits of tri_device_description.features: the instruction sets that kernels may use.
enum {
    CPU_HAS_AVX2 = 1,   // AVX2 and FMA
    CPU_HAS_AVX512 = 2, // AVX-512 F, BW, DQ and VL
    CPU_HAS_BF16 = 4,   // AVX512_BF16
    CPU_HAS_AMX = 8,    // AMX_TILE and AMX_BF16
};

static inline bool cpu_has(const tri_device_description *device, unsigned features) {
    return (device->features & features) == features;
}

typedef struct cpu_device {
    tri_device head;
    dnnl_stream_t stream;
} cpu_device;

static inline const cpu_device *cpu_of(const tri_device *device) {
    return (const cpu_device *)device;
}

// The layouts that the kernels know. A blocked layout is chosen only if the axes are multiples of
// the blocks, so that our own kernels never see padding. Only CPU_OHWI16O2I, which only oneDNN
// reads, has padding. A blocked convolution is one that reads or writes images as CPU_NCHW16C.
typedef enum cpu_format {
    CPU_PLAIN,
    CPU_NCHW16C,    // images and activations: 16 channels of a pixel lie side by side
    CPU_OIHW16I16O, // weights of blocked convolutions
    // As CPU_OIHW16I16O, with each block of 16 × 16 weights transposed. oneDNN reads it for the
    // gradient of the input, except where Winograd's algorithm computes that gradient.
    CPU_OIHW16O16I,
    CPU_OHWI16O, // weights of blocked convolutions with 1 to 3 input channels
    // BF16 has layouts of its own, because instructions for BF16 multiply pairs of neighbouring
    // values.
    CPU_OIHW8I16O2I, // as CPU_OIHW16I16O for BF16, in pairs of input channels
    CPU_OIHW8O16I2O, // as CPU_OIHW16O16I for BF16, in pairs of output channels
    CPU_OHWI16O2I,   // as CPU_OHWI16O for BF16, in pairs of input channels
    CPU_OI16I64O,    // weights of linear layers, [out, in]
    CPU_FORMAT_COUNT,
    CPU_ANY = CPU_FORMAT_COUNT // oneDNN chooses the layout
} cpu_format;
enum { CPU_BLOCK = 16 }; // channels in a block, and floats in a vector of AVX-512

tri_layout cpu_format_layout(cpu_format format);
// Describes a tensor of `rank` axes, F32 or BF16, to oneDNN. The caller destroys the description,
// also after a failure.
tri_status cpu_format_md(cpu_format format, tri_dtype dtype, int rank, const int64_t *dims,
                         onednn_md *out);
bool cpu_layout_is(const tri_layout *layout, cpu_format format);

// Calls a function of oneDNN. If the call fails, returns TRI_INTERNAL from the calling function,
// with a message that contains the text of the call.
#define CPU_DNNL(call)                                                                             \
    do {                                                                                           \
        dnnl_status_t cpu_dnnl_status_ = (call);                                                   \
        if (cpu_dnnl_status_ != dnnl_success)                                                      \
            return TRI_FAIL(TRI_INTERNAL, "oneDNN failed with status %d: %s", cpu_dnnl_status_,    \
                            #call);                                                                \
    } while (0)

enum { CPU_MAX_ARGS = 6 };

// oneDNN's engine for the CPU, made once for the process and never destroyed.
tri_status cpu_engine(dnnl_engine_t *out);

// A primitive of oneDNN (one prepared computation) with its memory objects, which get the addresses
// of tensors and of the scratchpad (memory that it needs while it runs) at each run.
typedef struct cpu_primitive {
    dnnl_primitive_t primitive;
    dnnl_stream_t stream;
    dnnl_exec_arg_t args[CPU_MAX_ARGS + 1]; // `count` tensors, then the scratchpad
    const void *data[CPU_MAX_ARGS + 1];     // by index in args: the address in the last run
    int count;                              // number of tensors
    size_t scratchpad_bytes;
} cpu_primitive;

// Makes the primitive that `pd` describes, and destroys `pd`, also after a failure. `args` are
// `count` DNNL_ARG_… constants, in the order of the `data` of cpu_primitive_run.
tri_status cpu_primitive_make(const cpu_device *device, dnnl_primitive_desc_t pd, const int *args,
                              int count, cpu_primitive *out);
tri_status cpu_primitive_run(cpu_primitive *primitive, void *const *data, void *scratchpad);
// Frees what the primitive holds. A zeroed primitive holds nothing and is allowed.
void cpu_primitive_release(cpu_primitive *primitive);
// Makes the attributes of a primitive: the caller supplies the scratchpad, so that oneDNN allocates
// nothing.
tri_status cpu_primitive_attr(dnnl_primitive_attr_t *out);

// What oneDNN tells about a primitive before it is made. Kernels are chosen, and memory is planned,
// by these facts. `exists` is false if oneDNN has no such primitive.
typedef struct cpu_primitive_facts {
    bool exists;
    bool fast; // oneDNN's code is optimised; else it is slower than the reference device `ref`
    size_t scratchpad_bytes;
} cpu_primitive_facts;

cpu_primitive_facts cpu_primitive_facts_of(const_dnnl_primitive_desc_t pd);
// A cache of cpu_primitive_facts. Only oneDNN knows these facts, and asking it takes time. So they
// are kept under a key: `bytes` bytes that describe the primitive completely. cpu_facts_find
// returns whether the cache has facts under this key.
bool cpu_facts_find(const void *key, size_t bytes, cpu_primitive_facts *out);
void cpu_facts_keep(const void *key, size_t bytes, cpu_primitive_facts facts);

// Makes our and oneDNN's parallel regions use as many OpenMP threads as the device has. OpenMP
// keeps this setting for each calling thread.
void cpu_use_threads(const tri_device_description *device);

// Divides [0, count) into one range for each thread and calls `range` on each, with the number of
// the thread, from 0. The ranges are the same every time, so that sums are added in the same order;
// some ranges may be empty. With fewer than 2 · `grain` items the caller's thread does everything,
// because starting other threads would take longer; and so it does, range after range, while
// that is the faster way (pace.h).
typedef void (*cpu_range)(void *context, int64_t begin, int64_t end, int thread);
void cpu_parallel(const cpu_device *device, int64_t count, int64_t grain, cpu_range range,
                  void *context);

// Marks functions that may only run on a device with CPU_HAS_AVX512.
#ifdef __clang__ // Clang does not know prefer-vector-width, and would ignore the whole attribute
#define CPU_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi,bmi2")))
#else
#define CPU_AVX512                                                                                 \
    __attribute__((                                                                                \
        target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi,bmi2,prefer-vector-width=512")))
#endif

// Compiles the loop `CPU_BODY NAME_body(void *context, int64_t begin, int64_t end)` for AVX-512,
// for AVX2 and for any CPU, and defines NAME_range(device), which chooses the best for the device.
#define CPU_BODY static inline __attribute__((always_inline)) void
#define CPU_RANGES(name)                                                                           \
    static CPU_AVX512 void name##_avx512(void *context, int64_t begin, int64_t end, int thread) {  \
        name##_body(context, begin, end);                                                          \
    }                                                                                              \
    static __attribute__((target("avx2,fma"))) void name##_avx2(void *context, int64_t begin,      \
                                                                int64_t end, int thread) {         \
        name##_body(context, begin, end);                                                          \
    }                                                                                              \
    static void name##_base(void *context, int64_t begin, int64_t end, int thread) {               \
        name##_body(context, begin, end);                                                          \
    }                                                                                              \
    static cpu_range name##_range(const cpu_device *device) {                                      \
        if (cpu_has(&device->head.description, CPU_HAS_AVX512)) return name##_avx512;              \
        return cpu_has(&device->head.description, CPU_HAS_AVX2) ? name##_avx2 : name##_base;       \
    }

// Conditions for the `supports` functions of kernels. cpu_is_f32: input 0 is F32, and no input or
// output is BF16 or F16.
bool cpu_is_f32(const tri_device_description *device, const tri_graph *graph, const tri_node *node);
bool cpu_has_avx512_f32(const tri_device_description *device, const tri_graph *graph,
                        const tri_node *node);
// Whether cpu_is_f32 is true or input 0 is BF16.
bool cpu_is_float(const tri_device_description *device, const tri_graph *graph,
                  const tri_node *node);
bool cpu_has_avx512_float(const tri_device_description *device, const tri_graph *graph,
                          const tri_node *node);
bool cpu_is_bf16(const tri_graph *graph, const tri_node *node);
// Chooses the layouts of an elementwise kernel: all tensors with the shape of the first input get
// the first input's layout, so that no reorder is needed; all others are plain.
void cpu_layouts_of_first(const tri_device_description *device, const tri_graph *graph,
                          const tri_node *node, tri_layout *in, tri_layout *out);
// Whether a convolution, pooling or batch norm reads the value. Their kernels read blocks of 16
// channels, so the value should be written in that layout.
bool cpu_is_read_blocked(const tri_graph *graph, tri_value value);
const tri_shape *cpu_in_shape(const tri_graph *graph, const tri_node *node, int input);
const tri_shape *cpu_out_shape(const tri_graph *graph, const tri_node *node, int output);

// The device's own kernels. Of two kernels for the same op, the faster one comes first, because a
// node gets the first kernel that supports it.
#define CPU_KERNEL_LIST(X)                                                                         \
    X(normalize_bytes)                                                                             \
    X(conv2d_winograd_avx512)                                                                      \
    X(conv2d_winograd_avx2)                                                                        \
    X(conv2d_blocked)                                                                              \
    X(conv2d_one_output)                                                                           \
    X(conv2d_depthwise)                                                                            \
    X(conv2d_grouped)                                                                              \
    X(conv2d_plain)                                                                                \
    X(conv2d_grad_input_winograd_avx512)                                                           \
    X(conv2d_grad_input_winograd_avx2)                                                             \
    X(conv2d_grad_input_blocked)                                                                   \
    X(conv2d_grad_input_one_output)                                                                \
    X(conv2d_grad_input_depthwise)                                                                 \
    X(conv2d_grad_input_grouped)                                                                   \
    X(conv2d_grad_input_plain)                                                                     \
    X(conv2d_grad_weight_winograd_avx512)                                                          \
    X(conv2d_grad_weight_winograd_avx2)                                                            \
    X(conv2d_grad_weight_blocked)                                                                  \
    X(conv2d_grad_weight_one_output)                                                               \
    X(conv2d_grad_weight_depthwise)                                                                \
    X(conv2d_grad_weight_grouped)                                                                  \
    X(conv2d_grad_weight_plain)                                                                    \
    X(linear_bf16)                                                                                 \
    X(linear_bf16_grad_input)                                                                      \
    X(linear_bf16_grad_weight)                                                                     \
    X(linear_forward)                                                                              \
    X(linear_grad_input)                                                                           \
    X(linear_grad_weight)                                                                          \
    X(matmul_items)                                                                                \
    X(product_map_tiles)                                                                           \
    X(attention_amx)                                                                               \
    X(attention_tiles)                                                                             \
    X(attention_amx_grad)                                                                          \
    X(attention_grad_tiles)                                                                        \
    X(attention_blocks)                                                                            \
    X(attention_grad_blocks)                                                                       \
    X(cached_attention_tiles)                                                                      \
    X(cached_attention_heads)                                                                      \
    X(embedding_rows)                                                                              \
    X(embedding_grad_weight_rows)                                                                  \
    X(gather_rows)                                                                                 \
    X(scatter_rows)                                                                                \
    X(argmax_columns)                                                                              \
    X(sort_pairs)                                                                                  \
    X(scan_columns)                                                                                \
    X(scan_grad_columns)                                                                           \
    X(recurrent_samples)                                                                           \
    X(recurrent_grad_samples)                                                                      \
    X(rms_norm_rows)                                                                               \
    X(rms_norm_grad_rows)                                                                          \
    X(layer_norm_rows)                                                                             \
    X(layer_norm_grad_rows)                                                                        \
    X(group_norm_planes)                                                                           \
    X(group_norm_grad_planes)                                                                      \
    X(rotary_rows)                                                                                 \
    X(softmax_axis)                                                                                \
    X(softmax_grad_axis)                                                                           \
    X(log_softmax_axis)                                                                            \
    X(log_softmax_grad_axis)                                                                       \
    X(soft_nll_loss_rows)                                                                          \
    X(soft_nll_loss_grad_rows)                                                                     \
    X(cross_entropy_rows)                                                                          \
    X(linear_cross_entropy_chunks)                                                                 \
    X(linear_cross_entropy_grad_chunks)                                                            \
    X(row_max_rows)                                                                                \
    X(vocab_parallel_softmax_rows)                                                                 \
    X(vocab_parallel_cross_entropy_grad_rows)                                                      \
    X(cross_entropy_grad_rows)                                                                     \
    X(accuracy_rows)                                                                               \
    X(max_pool2d_blocked)                                                                          \
    X(max_pool2d_grad_blocked)                                                                     \
    X(max_pool2d_planes)                                                                           \
    X(max_pool2d_grad_planes)                                                                      \
    X(avg_pool2d_blocked)                                                                          \
    X(avg_pool2d_grad_blocked)                                                                     \
    X(interpolate_rows)                                                                            \
    X(interpolate_grad_rows)                                                                       \
    X(avg_pool2d_planes)                                                                           \
    X(avg_pool2d_grad_planes)                                                                      \
    X(batch_norm_blocked)                                                                          \
    X(batch_norm_planes)                                                                           \
    X(batch_norm_inference_blocked)                                                                \
    X(batch_norm_inference_planes)                                                                 \
    X(batch_norm_moments_blocked)                                                                  \
    X(batch_norm_moments_planes)                                                                   \
    X(batch_norm_shared_blocked)                                                                   \
    X(batch_norm_shared_planes)                                                                    \
    X(batch_norm_sums_blocked)                                                                     \
    X(batch_norm_sums_planes)                                                                      \
    X(batch_norm_shared_grad_blocked)                                                              \
    X(batch_norm_shared_grad_planes)                                                               \
    X(batch_norm_grad_blocked)                                                                     \
    X(batch_norm_grad_planes)                                                                      \
    X(dropout_masks)                                                                               \
    X(reduce_axes)                                                                                 \
    X(reduce_pairs)                                                                                \
    X(map_reduce_axes)                                                                             \
    X(map_compiled)                                                                                \
    X(map_tiles)                                                                                   \
    X(map_integers)                                                                                \
    X(add_flat)                                                                                    \
    X(concat_runs)                                                                                 \
    X(concat_grad_runs)                                                                            \
    X(cast_flat)                                                                                   \
    X(mean_loss_flat)                                                                              \
    X(mse_loss_flat)                                                                               \
    X(mse_loss_grad_flat)                                                                          \
    X(binary_cross_entropy_flat)                                                                   \
    X(binary_cross_entropy_grad_flat)                                                              \
    X(sum_of_squares_lanes)                                                                        \
    X(sgd_flat)                                                                                    \
    X(adam_flat)                                                                                   \
    X(adadelta_flat)                                                                               \
    X(map_update_tiles)                                                                            \
    X(average_weights_flat)                                                                        \
    X(reorder_dnnl)

#define X(name) extern const tri_kernel_def cpu_##name;
CPU_KERNEL_LIST(X)
#undef X

#endif
