// What the files of the device cuda share: the open device, its queues, and the tables of kernels.
// These files are part of the program. They call the module, a shared object with all code that
// needs CUDA (runtime.h), which the program loads when a run needs a GPU.
#ifndef TRIREME_DEVICE_CUDA_INTERNAL_H
#define TRIREME_DEVICE_CUDA_INTERNAL_H

#include "device/cuda/cuda.h"
#include "device/cuda/runtime.h"
#include "ops/ops.h"

// Bits of tri_device_description.features.
enum {
    CUDA_HAS_BF16 = 1,     // tensor cores take BF16 and TF32
    CUDA_HAS_PRODUCTS = 2, // cuBLASLt is installed: it computes products of matrices
    CUDA_HAS_DNN = 4,      // cuDNN is installed: it computes convolutions and attention
};

typedef struct cuda_device {
    tri_device head;
    const cuda_runtime *runtime; // the module's functions
    cuda_context *context;       // the module's data about this GPU
    cuda_properties properties;
    tri_queue *setup; // the queue on which new memory is set to zero
    tri_device *host; // the reference device `ref`, for ops that have no kernel here
} cuda_device;

static inline cuda_device *cuda_of(const tri_device *device) {
    return (cuda_device *)(uintptr_t)device;
}

// Loads the module for the GPUs of this host (load.c). TRI_NOT_FOUND: there is no driver, or the
// module is not installed. TRI_UNSUPPORTED: the module does not load or is of another version.
tri_status cuda_load(const tri_device_config *config, const cuda_runtime **out);
// If `status` is a failure, makes the message for the user: "device cuda: ", the call `what` that
// failed, and the module's reason `why`. Returns the status. After TRI_IO the device does not work
// any more, whatever the call was, so the message leaves the call out.
tri_status cuda_check(tri_status status, const char *what, const char *why);

tri_status cuda_open_queue(tri_device *device, tri_queue **out);
// Opens a queue with the highest priority, for communication, on which other ranks wait: its few
// thread blocks would otherwise start only after all blocks of a large product.
tri_status cuda_open_priority_queue(tri_device *device, tri_queue **out);
void cuda_close_queue(tri_queue *queue);
tri_status cuda_record(tri_queue *queue, tri_ticket *out);
tri_status cuda_wait(tri_queue *queue, const tri_ticket *ticket);
tri_status cuda_time(tri_queue *queue, int64_t *ns);
tri_status cuda_copy_in(tri_queue *queue, void *to, const void *from_host, size_t size_bytes);
tri_status cuda_copy_in_later(tri_queue *queue, void *to, const void *from_host, size_t size_bytes);
tri_status cuda_copy_out(tri_queue *queue, void *to_host, const void *from, size_t size_bytes);
// Copies from the GPU's memory to the GPU's memory. Unlike copies from or to the host, this one may
// be captured into a CUDA graph.
tri_status cuda_copy_within(tri_queue *queue, void *to, const void *from, size_t size_bytes);
tri_status cuda_zero(tri_queue *queue, void *memory, size_t size_bytes);
tri_status cuda_add(tri_queue *queue, float *to, const float *from, int64_t count);
// Sets whether work that is issued to the queue from now on is captured into a CUDA graph.
void cuda_set_captures(tri_queue *queue, bool captures);
// Defined in capture.c.
tri_status cuda_begin_capture(tri_queue *queue);
tri_status cuda_end_capture(tri_queue *queue, tri_captured **out);
tri_status cuda_repeat(tri_queue *queue, tri_captured *captured);
void cuda_close_capture(tri_captured *captured);
// Whether CUDA_LAUNCH_BLOCKING=1 is set: a launch then returns only when its kernel is done.
bool cuda_launches_block(void);
// Sets *without to true if no CUDA graphs are to be captured: with TRIREME_CUDA_GRAPHS=0, and with
// CUDA_LAUNCH_BLOCKING=1, which has an effect only on kernels that the host launches one by one.
tri_status cuda_read_captures(bool *without);
// Returns the queue's CUDA stream, to which the caller then issues one call. This function blocks
// while the stream waits for the host and too many calls have piled up in it (queue.c). Only one
// thread issues calls to a queue.
cuda_stream *cuda_stream_of(const tri_queue *queue);

// Launches the module's kernel `name`. If that fails, the calling function returns the status.
#define CUDA_LAUNCH(queue_, name, params)                                                          \
    do {                                                                                           \
        char cuda_why_[CUDA_WHY_BYTES] = "";                                                       \
        const cuda_runtime *cuda_runtime_ = cuda_of((queue_)->device)->runtime;                    \
        tri_status cuda_status_ =                                                                  \
            cuda_runtime_->name(cuda_stream_of(queue_), &(params), cuda_why_);                     \
        if (cuda_status_ != TRI_OK) return cuda_check(cuda_status_, "kernel " #name, cuda_why_);   \
    } while (0)

// Shapes and types of a node's values, and the number of their elements.
const tri_shape *cuda_in_shape(const tri_graph *graph, const tri_node *node, int input);
const tri_shape *cuda_out_shape(const tri_graph *graph, const tri_node *node, int output);
tri_dtype cuda_in_type(const tri_graph *graph, const tri_node *node, int input);
tri_dtype cuda_out_type(const tri_graph *graph, const tri_node *node, int output);
int64_t cuda_in_count(const tri_graph *graph, const tri_node *node, int input);
int64_t cuda_out_count(const tri_graph *graph, const tri_node *node, int output);
// The size of an input's last axis.
int64_t cuda_in_width(const tri_graph *graph, const tri_node *node, int input);
static inline bool cuda_is_real(tri_dtype dtype) {
    return dtype == TRI_F32 || dtype == TRI_F16 || dtype == TRI_BF16;
}

// Whether it is a type that kernels for all numbers compute with.
static inline bool cuda_is_number(tri_dtype dtype) {
    return cuda_is_real(dtype) || dtype == TRI_F64 || dtype == TRI_I64 || dtype == TRI_I32 ||
           dtype == TRI_U8;
}

// Whether the node is ReLU of a product with this op. *product: the product alone.
bool cuda_is_relu_of(const tri_node *node, const tri_op *op, tri_node *product);
// A `supports` function for kernels that only demand that the first input is F32, F16 or BF16.
bool cuda_takes_real(const tri_device_description *device, const tri_graph *graph,
                     const tri_node *node);

// Where the channels of images lie (layout.c): row-major, or with all channels of a pixel side by
// side ("channels last"). cuda_channels_last returns the layout channels last for an image or for a
// convolution's weight; the row-major layout if the shape is no image or both layouts are the same.
tri_layout cuda_channels_last(const tri_shape *shape);
// Whether convolutions may round inputs of this type to TF32. True for F32 if the run allows TF32
// and the GPU has tensor cores for it. Otherwise F32 is computed exactly, without tensor cores, and
// its images stay row-major.
bool cuda_rounds_to_tf32(const tri_device_description *device, const tri_graph *graph,
                         tri_dtype type);
// Whether the convolution, or its gradient, reads and writes tensors with channels last.
bool cuda_convolves_channels_last(const tri_device_description *device, const tri_graph *graph,
                                  const tri_node *node);
// Whether an image that the node reads or writes has its channels last. Then all images that the
// node reads and writes have, unless both layouts are the same for them.
bool cuda_is_channels_last(const tri_graph *graph, const tri_node *node);
// Whether a later node will read the value with channels last.
bool cuda_is_read_channels_last(const tri_device_description *device, const tri_graph *graph,
                                tri_value value);
// A `layouts` function for kernels that can work with either layout, if all images have the same.
void cuda_layouts_of_images(const tri_device_description *device, const tri_graph *graph,
                            const tri_node *node, tri_layout *in, tri_layout *out);

// A `prepare` function for kernels whose state is the struct of parameters with which they are
// launched: stores a copy of `state`. The tensors' addresses are filled in at each run, because
// they are not known before. cuda_release frees the copy.
tri_status cuda_prepare(tri_kernel *kernel, const void *state, size_t size_bytes);
void cuda_release(tri_kernel *kernel);
// Gives all tensors of an update (gradient and states; not input 2, the step scalars) the
// parameter's layout, because the kernel goes through all of them element by element.
void cuda_update_layouts(const tri_device_description *device, const tri_graph *graph,
                         const tri_node *node, tri_layout *in, tri_layout *out);
// NVIDIA recommends this workspace size for cuBLAS on Hopper. One such buffer serves all kernels of
// a rank.
enum { CUDA_PRODUCT_WORKSPACE_BYTES = 32 << 20 };
// Decides how the columns of x [rows, columns] are summed, and how many bytes of workspace this
// takes.
cuda_column_sums cuda_column_sums_of(int64_t rows, int64_t columns, tri_dtype type);
size_t cuda_column_sums_bytes(const cuda_column_sums *sums);

// Returns the record in which kernels describe a label or token that is out of range.
struct cuda_fault *cuda_fault_of(tri_device *device);

// X(NAME) for every kernel that computes on the GPU: cuda_kernel_NAME is its tri_kernel_def. After
// these comes cuda_kernel_on_host, which computes every other op of `ref` by copying to the host
// and back, so that no op is missing.
#define CUDA_KERNELS(X)                                                                            \
    X(add)                                                                                         \
    X(dropout)                                                                                     \
    X(map_compiled)                                                                                \
    X(map)                                                                                         \
    X(reduce)                                                                                      \
    X(gather)                                                                                      \
    X(scatter)                                                                                     \
    X(argmax)                                                                                      \
    X(sort)                                                                                        \
    X(scan)                                                                                        \
    X(scan_grad)                                                                                   \
    X(cast)                                                                                        \
    X(linear)                                                                                      \
    X(linear_relu)                                                                                 \
    X(linear_grad_input)                                                                           \
    X(linear_grad_weight)                                                                          \
    X(matmul)                                                                                      \
    X(recurrent)                                                                                   \
    X(recurrent_grad)                                                                              \
    X(rms_norm)                                                                                    \
    X(rms_norm_grad)                                                                               \
    X(layer_norm)                                                                                  \
    X(layer_norm_grad)                                                                             \
    X(group_norm)                                                                                  \
    X(group_norm_grad)                                                                             \
    X(embedding)                                                                                   \
    X(embedding_grad_weight)                                                                       \
    X(next_token)                                                                                  \
    X(rotary)                                                                                      \
    X(add_bias)                                                                                    \
    X(add_bias_grad)                                                                               \
    X(attention)                                                                                   \
    X(attention_grad)                                                                              \
    X(cache)                                                                                       \
    X(cached_attention)                                                                            \
    X(softmax)                                                                                     \
    X(softmax_grad)                                                                                \
    X(log_softmax)                                                                                 \
    X(log_softmax_grad)                                                                            \
    X(softmax_columns)                                                                             \
    X(softmax_grad_columns)                                                                        \
    X(log_softmax_columns)                                                                         \
    X(log_softmax_grad_columns)                                                                    \
    X(cross_entropy)                                                                               \
    X(cross_entropy_grad)                                                                          \
    X(nll_loss)                                                                                    \
    X(nll_loss_grad)                                                                               \
    X(soft_nll_loss)                                                                               \
    X(soft_nll_loss_grad)                                                                          \
    X(one_hot)                                                                                     \
    X(top_class)                                                                                   \
    X(accuracy)                                                                                    \
    X(row_max)                                                                                     \
    X(vocab_parallel_softmax)                                                                      \
    X(vocab_parallel_cross_entropy)                                                                \
    X(vocab_parallel_cross_entropy_grad)                                                           \
    X(vocab_parallel_argmax)                                                                       \
    X(vocab_parallel_accuracy)                                                                     \
    X(mse_loss)                                                                                    \
    X(mse_loss_grad)                                                                               \
    X(binary_cross_entropy)                                                                        \
    X(binary_cross_entropy_grad)                                                                   \
    X(relative_l2_loss)                                                                            \
    X(relative_l2_loss_grad)                                                                       \
    X(conv2d)                                                                                      \
    X(conv2d_relu)                                                                                 \
    X(conv2d_grad_input)                                                                           \
    X(conv2d_grad_weight)                                                                          \
    X(max_pool2d)                                                                                  \
    X(max_pool2d_grad)                                                                             \
    X(avg_pool2d)                                                                                  \
    X(avg_pool2d_grad)                                                                             \
    X(interpolate)                                                                                 \
    X(interpolate_grad)                                                                            \
    X(batch_norm)                                                                                  \
    X(batch_norm_inference)                                                                        \
    X(batch_norm_grad)                                                                             \
    X(batch_norm_moments)                                                                          \
    X(batch_norm_shared)                                                                           \
    X(batch_norm_sums)                                                                             \
    X(batch_norm_shared_grad)                                                                      \
    X(normalize_bytes)                                                                             \
    X(concat)                                                                                      \
    X(concat_grad)                                                                                 \
    X(split)                                                                                       \
    X(split_grad)                                                                                  \
    X(rechunk)                                                                                     \
    X(reorder)                                                                                     \
    X(reshape)                                                                                     \
    X(copy_to)                                                                                     \
    X(sgd)                                                                                         \
    X(adam)                                                                                        \
    X(adadelta)                                                                                    \
    X(map_update)                                                                                  \
    X(moving_average)                                                                              \
    X(average_weights)                                                                             \
    X(sum_of_squares)                                                                              \
    X(sum_rows)                                                                                    \
    X(step_numbers)                                                                                \
    X(first_not_finite)                                                                            \
    X(loss_seeds)
#define X(name) extern const tri_kernel_def cuda_kernel_##name;
CUDA_KERNELS(X)
X(on_host)
#undef X

#endif
