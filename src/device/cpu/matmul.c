// Products of matrices over batch axes, in F32 and BF16, by the matrix products of linear layers.
// If there are as many products as threads, each thread computes some of them alone; else all
// threads share each product. Both give the same bits, because a product adds up the terms of an
// element in the order of k on any number of threads.
//
// Products of BF16 read and write dense matrices: one whose rows lie further apart, such as a head
// of attention, is copied first.
#include "device/cpu/gemm.h"
#include "device/cpu/gemm_bf16.h"
#include "device/cpu/product_map.h"
#include "device/matmul_plan.h"

#include <stdlib.h>
#include <string.h>

enum {
    ALIGNMENT = 64,
    SHARED_PRODUCTS = 1 << 17, // fewer multiplications are not worth a second thread
};

typedef struct matmul_state {
    const cpu_device *device;
    cpu_device worker; // the device as a product sees it: with one thread if threads share products
    tri_matmul_plan plan;
    bool bf16;
    cpu_gemm f32;
    cpu_bf16_gemm half;
    bool copies_a, copies_b, copies_c; // of BF16: the operand is not dense
    // Bytes of a thread's workspace, and where in it the copies lie.
    size_t product, a, b, c, each;
} matmul_state;

static cpu_matrix matrix_of(const tri_matmul_operand *x) {
    cpu_matrix contiguous = cpu_matrix_plain(NULL, x->row);
    if (x->column == 1) return contiguous;
    return cpu_matrix_transposed(cpu_matrix_plain(NULL, x->column));
}

static size_t aligned(size_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

// Sets where copies lie in a thread's workspace, and how large it is.
static void set_space(matmul_state *s, const tri_device_description *worker) {
    const tri_matmul_plan *p = &s->plan;
    size_t element = s->half.c_f32 ? sizeof(float) : sizeof(uint16_t);
    s->product = aligned(s->bf16 ? cpu_bf16_gemm_workspace(worker, &s->half)
                                 : cpu_gemm_workspace(worker, &s->f32));
    s->a = s->product;
    s->b = s->a + (s->copies_a ? aligned((size_t)(p->m * p->k) * sizeof(uint16_t)) : 0);
    s->c = s->b + (s->copies_b ? aligned((size_t)(p->k * p->n) * sizeof(uint16_t)) : 0);
    s->each = s->c + (s->copies_c ? aligned((size_t)(p->m * p->n) * element) : 0);
}

static matmul_state state_of(const tri_device_description *device, const tri_graph *graph,
                             const tri_node *node) {
    matmul_state s = {.plan = tri_matmul_plan_make(graph, node), .bf16 = cpu_is_bf16(graph, node)};
    const tri_matmul_plan *p = &s.plan;
    s.worker.head.description = *device;
    if (p->items >= device->threads) s.worker.head.description.threads = 1;
    s.f32 = (cpu_gemm){.m = p->m,
                       .n = p->n,
                       .k = p->k,
                       .a = matrix_of(&p->a),
                       .b = matrix_of(&p->b),
                       .c = matrix_of(&p->c)};
    s.half = (cpu_bf16_gemm){.m = p->m,
                             .n = p->n,
                             .k = p->k,
                             .a_transposed = p->a.column != 1,
                             .b_transposed = p->b.column != 1,
                             .c_f32 = tri_value_get(graph, node->outputs[0])->dtype == TRI_F32};
    if (s.bf16) {
        s.copies_a = s.half.a_transposed ? p->a.column != p->m : p->a.row != p->k;
        s.copies_b = s.half.b_transposed ? p->b.column != p->k : p->b.row != p->n;
        s.copies_c = p->c.row != p->n;
    }
    set_space(&s, &s.worker.head.description);
    return s;
}

static bool matmul_supports(const tri_device_description *device, const tri_graph *graph,
                            const tri_node *node) {
    if (cpu_is_bf16(graph, node)) return cpu_has(device, CPU_HAS_BF16);
    return cpu_is_f32(device, graph, node);
}

static tri_status matmul_workspace(const tri_device_description *device, const tri_graph *graph,
                                   const tri_node *node, size_t *out) {
    matmul_state s = state_of(device, graph, node);
    *out = s.each * (size_t)(s.worker.head.description.threads == 1 ? device->threads : 1);
    return TRI_OK;
}

static tri_status matmul_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                                 tri_kernel *kernel) {
    matmul_state *state = calloc(1, sizeof *state);
    if (!state) return TRI_FAIL(TRI_NO_MEMORY, "no memory for matmul");
    *state = state_of(&device->description, graph, node);
    state->device = cpu_of(device);
    tri_device_description worker = state->worker.head.description;
    state->worker = *state->device;
    state->worker.head.description = worker;
    kernel->state = state;
    return TRI_OK;
}

typedef struct matmul_job {
    const matmul_state *state;
    const void *a, *b;
    void *c;
    char *workspace;
    const cpu_finish *finish; // NULL: none
} matmul_job;

// Copies `lines` runs of `size` bytes that lie `from_line` and `to_line` bytes apart.
static void copy_lines(const void *from, int64_t from_line, void *to, int64_t to_line,
                       int64_t lines, int64_t size) {
    for (int64_t i = 0; i < lines; i++)
        memcpy((char *)to + i * to_line, (const char *)from + i * from_line, (size_t)size);
}

// Gets a dense copy of an operand that is not dense.
static const uint16_t *dense(const uint16_t *from, bool copies, const tri_matmul_operand *x,
                             int64_t rows, int64_t columns, void *copy) {
    enum { HALF = sizeof(uint16_t) };
    if (!copies) return from;
    if (x->column == 1)
        copy_lines(from, x->row * HALF, copy, columns * HALF, rows, columns * HALF);
    else
        copy_lines(from, x->column * HALF, copy, rows * HALF, columns, rows * HALF);
    return copy;
}

static void multiply_half(const matmul_job *job, int64_t item, char *workspace,
                          const cpu_finish *finish) {
    const matmul_state *s = job->state;
    const tri_matmul_plan *p = &s->plan;
    cpu_bf16_gemm g = s->half;
    int64_t element = g.c_f32 ? (int64_t)sizeof(float) : (int64_t)sizeof(uint16_t);
    char *c = (char *)job->c + tri_matmul_offset(p, &p->c, item) * element;
    g.a = dense((const uint16_t *)job->a + tri_matmul_offset(p, &p->a, item), s->copies_a, &p->a,
                p->m, p->k, workspace + s->a);
    g.b = dense((const uint16_t *)job->b + tri_matmul_offset(p, &p->b, item), s->copies_b, &p->b,
                p->k, p->n, workspace + s->b);
    g.c = s->copies_c ? workspace + s->c : c;
    g.finish = s->copies_c ? NULL : finish;
    cpu_bf16_gemm_run(&s->worker, &g, workspace);
    if (!s->copies_c) return;
    copy_lines(g.c, p->n * element, c, p->c.row * element, p->m, p->n * element);
    if (finish) cpu_finish_rows(finish, 0, p->c.row, p->m, p->n);
}

static void multiply(const matmul_job *job, int64_t item, char *workspace) {
    const tri_matmul_plan *p = &job->state->plan;
    cpu_gemm g = job->state->f32;
    cpu_finish here = job->finish ? *job->finish : (cpu_finish){0};
    here.first = tri_matmul_offset(p, &p->c, item);
    g.finish = job->finish ? &here : NULL;
    if (job->state->bf16) {
        multiply_half(job, item, workspace, g.finish);
        return;
    }
    g.a.data = (float *)(uintptr_t)job->a + tri_matmul_offset(p, &p->a, item);
    g.b.data = (float *)(uintptr_t)job->b + tri_matmul_offset(p, &p->b, item);
    g.c.data = (float *)job->c + tri_matmul_offset(p, &p->c, item);
    cpu_gemm_run(&job->state->worker, &g, workspace);
}

static void matmul_range(void *context, int64_t begin, int64_t end, int thread) {
    const matmul_job *job = context;
    char *workspace = job->workspace + (size_t)thread * job->state->each;
    for (int64_t i = begin; i < end; i++) multiply(job, i, workspace);
}

tri_status cpu_matmul_compute(const tri_kernel *kernel, const tri_kernel_args *args,
                              const cpu_finish *finish) {
    const matmul_state *s = kernel->state;
    const tri_matmul_plan *p = &s->plan;
    matmul_job job = {.state = s,
                      .a = args->in[p->swapped],
                      .b = args->in[!p->swapped],
                      .c = args->out[0],
                      .workspace = args->workspace,
                      .finish = finish};
    double products = (double)p->m * (double)p->n * (double)p->k;
    int64_t grain = products < SHARED_PRODUCTS ? (int64_t)(SHARED_PRODUCTS / products) : 1;
    if (s->worker.head.description.threads == 1)
        cpu_parallel(s->device, p->items, grain, matmul_range, &job);
    else
        matmul_range(&job, 0, p->items, 0);
    return TRI_OK;
}

static tri_status matmul_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    return cpu_matmul_compute(kernel, args, NULL);
}

static void matmul_release(tri_kernel *kernel) { free(kernel->state); }

const tri_kernel_def cpu_matmul_items = {
    .op = &tri_op_matmul,
    .name = "products",
    .supports = matmul_supports,
    .workspace = matmul_workspace,
    .prepare = matmul_prepare,
    .run = matmul_run,
    .release = matmul_release,
};
