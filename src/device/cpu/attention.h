// What all kernels of attention and of its gradient share: sizes, arguments, and where the rows of
// queries and keys lie. Tensors are [sample][query or key][head][width]. Several heads of q may
// read the same head of k and v. The score of a query for a key is scale · (q · k); a probability
// is the softmax of a query's scores at one key.
#ifndef TRIREME_DEVICE_CPU_ATTENTION_H
#define TRIREME_DEVICE_CPU_ATTENTION_H

#include "device/cpu/internal.h"

enum { ATTENTION_KEYS = 64 }; // keys in a block of attention.c and attention_grad.c

typedef struct attention_state {
    const cpu_device *device;
    // Numbers of samples, of queries and keys in a sample, of heads of q and y, and of elements in
    // a row of one head (width).
    int64_t samples, queries, keys, heads, width;
    int64_t kv_heads; // number of heads of k and v
    int64_t group;    // how many heads of q read the same head of k and v
    // For attention.c and attention_grad.c: numbers of blocks of 64 keys, and of panels. A panel is
    // 64 columns of a head.
    int64_t key_blocks, panels;
    float scale; // factor of q · k in a score
    bool causal;
    bool bf16; // true: tensors are BF16; false: F32
    // True: tensors are BF16, whose pairs along a row the device multiplies at once (AVX512_BF16),
    // and rows consist of whole pairs.
    bool pairs;
} attention_state;

// The tensors of one call. A forward kernel reads q, k and v and writes y to `out`; the members y,
// dy, dk and dv are then NULL.
typedef struct attention_call {
    const void *q, *k, *v, *y, *dy;
    // [sample][head][query]: logarithm of the sum of exp(scores). The forward kernels write it, the
    // gradient kernels read it.
    float *log_sum_exp;
    void *out, *dk, *dv; // out is y of a forward kernel, or dq of a gradient kernel
    float *workspace;
} attention_call;

static inline attention_call attention_gradient_call(const tri_kernel_args *args) {
    return (attention_call){.q = args->in[0],
                            .k = args->in[1],
                            .v = args->in[2],
                            .y = args->in[3],
                            .dy = args->in[4],
                            .log_sum_exp = args->in[5],
                            .out = args->out[0],
                            .dk = args->out[1],
                            .dv = args->out[2],
                            .workspace = args->workspace};
}

bool attention_supports(const tri_device_description *device, const tri_graph *graph,
                        const tri_node *node);
bool attention_amx_supports(const tri_device_description *device, const tri_graph *graph,
                            const tri_node *node);
// Reads the sizes from a node. The result's device is NULL; attention_prepare sets it.
attention_state attention_state_of(const tri_device_description *device, const tri_graph *graph,
                                   const tri_node *node);
// The same without what the attributes say, for ops with others; device, scale, causal and pairs
// are 0.
attention_state attention_sizes_of(const tri_graph *graph, const tri_node *node);
tri_status attention_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                             tri_kernel *kernel);
void attention_release(tri_kernel *kernel);

// What the threads of one call of a gradient kernel share: sizes and tensors.
typedef struct attention_grad_job {
    const attention_state *state;
    attention_call call;
} attention_grad_job;

// What the kernels of tiles share; they need AVX-512. attention_softmax_row stores the largest of
// scale · scores[from .. visible) in *largest, replaces each of these scores by exp(scale · score −
// *largest), which cannot overflow, and returns their sum. Replaces those before and up to `end`,
// which are masked, by 0. The next two copy a row of `width` elements times a factor, to F32 and to
// the type of y. attention_pack_columns packs a block of at most 64 keys, whose rows begin at
// element `at` of k or v, transposed, into [width][64 keys], with pairs along the width if the
// products multiply pairs.
float attention_softmax_row(float *scores, float scale, int64_t from, int64_t visible, int64_t end,
                            float *largest);
void attention_scaled_row(const void *from, bool bf16, int64_t width, float factor, float *to);
void attention_store_row(const float *from, int64_t width, float factor, void *to, bool bf16,
                         int64_t at);
void attention_pack_columns(const attention_state *s, const void *tensor, int64_t at, int64_t count,
                            float *to);

// Divides the heads of k and v of all samples among the threads and calls `range` for them, with an
// attention_grad_job as its context. One thread computes all of a head, so that the terms of the
// head's sums are added in the same order on any number of threads.
tri_status attention_run_gradient(const tri_kernel *kernel, const tri_kernel_args *args,
                                  cpu_range range);
// Computes out[t] = y[t] · dy[t] for each query t of head `head` in sample n: the dot product of
// the query's rows of y and dy. The gradient ds of a product q · k needs it:
// ds = scale · probability · (dy·v − out[t]). Needs AVX-512.
void attention_dot_y_dy(const attention_grad_job *job, int64_t n, int64_t head, float *out);

// attention_query: the index in q and y of the first element of query t of head `head` in sample n.
// attention_key: the same in k and v, for key `key`; `head` is then a head of k and v.
static inline int64_t attention_query(const attention_state *s, int64_t n, int64_t t,
                                      int64_t head) {
    return ((n * s->queries + t) * s->heads + head) * s->width;
}
static inline int64_t attention_key(const attention_state *s, int64_t n, int64_t key,
                                    int64_t head) {
    return ((n * s->keys + key) * s->kv_heads + head) * s->width;
}
// Counts the keys to which query t attends: all, or under a causal mask those that are not later
// than the query, where the last query and the last key stand at the same position. Kernels leave
// out the other keys, whose probability is 0.
static inline int64_t attention_visible_keys(const attention_state *s, int64_t t) {
    return s->causal ? t + 1 + s->keys - s->queries : s->keys;
}
static inline const void *attention_at(const attention_state *s, const void *tensor,
                                       int64_t element) {
    return (const char *)tensor + element * (s->bf16 ? 2 : 4);
}
// Finds the first query that attends to a key. Under a causal mask the queries before it do not
// attend to the key, and kernels skip them.
static inline int64_t attention_first_query(const attention_state *s, int64_t key) {
    int64_t first = s->causal ? key - (s->keys - s->queries) : 0;
    return first > 0 ? first : 0;
}
// How many elements a packed axis has that is summed over: `count`, or half of it with pairs.
static inline int64_t attention_packed(const attention_state *s, int64_t count) {
    return s->pairs ? (count + 1) / 2 : count;
}
// How many columns of the head belong to panel number `panel`; at most 64.
static inline int64_t attention_columns(const attention_state *s, int64_t panel) {
    int64_t left = s->width - 64 * panel;
    return left < 64 ? left : 64;
}

#endif
