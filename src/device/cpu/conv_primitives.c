// How oneDNN's primitives compute a convolution or one of its gradients: one primitive computes all
// samples, or the samples are cut into pieces, each of which one thread computes.
//
// Pieces serve two purposes:
//   - In a deterministic run the bits must not depend on the number of threads. oneDNN divides the
//     sums of a gradient of the weight, and some products, by the number of threads. The pieces
//     depend on shapes alone, and oneDNN computes each as on one thread. The gradients that the
//     pieces have of the weight are added in order.
//   - The results of a piece are still in the cache of the thread that has computed them, when a
//     map finishes them. (oneDNN's own ReLU does not keep NaN: its instruction for max(x, 0)
//     returns 0.)
#include "device/cpu/conv.h"

#include <omp.h>
#include <stdatomic.h>
#include <stdlib.h>

enum {
    PIECES = 64, // the most pieces of a convolution and of the gradient of its input
    // The most pieces of a gradient of the weight, and how many floats their gradients may have.
    GRADIENT_PIECES = 16,
    GRADIENT_FLOATS = 1 << 24,
    // So many pieces for each thread are enough to divide a run that is not deterministic evenly.
    PIECES_PER_THREAD = 4,
    FINISH_GRAIN = 1 << 14, // elements that are worth another thread
    SUM_GRAIN = 1 << 12,
    SUM_BLOCK = 1 << 10, // elements whose sums stay in the L1 cache while pieces are added
    ALIGNMENT = 64,
};

// A thread's primitives: for the pieces with fewer samples, and for those with one more.
typedef struct conv_worker {
    dnnl_stream_t stream;
    conv_chain primitives[2];
} conv_worker;

struct conv_primitives {
    const cpu_device *device;
    conv_request request;
    int64_t pieces;       // 0: `whole` computes all samples
    size_t scratch_bytes; // scratchpad of one chain
    conv_chain whole;
    conv_worker *workers; // by thread
};

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t weight_floats(const conv_shape *s) {
    return s->o * (s->c / s->groups) * s->kernel[0] * s->kernel[1];
}

// Floats from the gradients of one piece to those of the next: of the weight, then of the bias.
static int64_t gradient_floats(const conv_shape *s) {
    int64_t line = ALIGNMENT / (int64_t)sizeof(float);
    return (weight_floats(s) + s->o + line - 1) / line * line;
}

// How many pieces the request is cut into; 0: it is not cut. In a deterministic run this depends on
// shapes alone.
static int64_t pieces_of(const tri_device_description *device, const conv_request *r) {
    int64_t n = r->shape.n;
    if (r->task == CONV_GRAD_WEIGHT) {
        int64_t fit = GRADIENT_FLOATS / gradient_floats(&r->shape);
        if (!r->deterministic) return 0;
        return smaller(n, fit < 1 ? 1 : smaller(fit, GRADIENT_PIECES));
    }
    if (r->deterministic ||
        (r->task == CONV_FORWARD && n >= PIECES_PER_THREAD * (int64_t)device->threads))
        return smaller(n, PIECES);
    return 0;
}

// The request for a piece with fewer samples (0), or with one more (1).
static conv_request piece_request(const conv_request *whole, int64_t pieces, int more) {
    conv_request r = *whole;
    r.shape.n = whole->shape.n / pieces + more;
    return r;
}

// The first sample of piece i; that of piece number `pieces` is the number of samples.
static int64_t first_sample(const conv_primitives *p, int64_t i) {
    return p->request.shape.n * i / p->pieces;
}

static size_t aligned(size_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

// Finds the facts of the primitives for the pieces: together, and with the larger scratchpad.
static cpu_primitive_facts piece_facts(const tri_device_description *device,
                                       const conv_request *request, int64_t pieces) {
    tri_device_description one = *device;
    cpu_primitive_facts all = {.exists = true, .fast = true};
    one.threads = 1;
    for (int more = 0; more < 2; more++) {
        if (more && request->shape.n % pieces == 0) continue;
        conv_request piece = piece_request(request, pieces, more);
        cpu_primitive_facts facts = conv_ask(&one, &piece);
        all.exists = all.exists && facts.exists;
        all.fast = all.fast && facts.fast;
        if (facts.scratchpad_bytes > all.scratchpad_bytes)
            all.scratchpad_bytes = facts.scratchpad_bytes;
    }
    cpu_use_threads(device);
    return all;
}

static size_t workspace_of(const tri_device_description *device, const conv_request *r,
                           int64_t pieces, size_t scratch_bytes) {
    size_t bytes = aligned(scratch_bytes) * (size_t)device->threads;
    if (r->task == CONV_GRAD_WEIGHT && pieces > 1)
        bytes += (size_t)(pieces * gradient_floats(&r->shape)) * sizeof(float);
    return bytes;
}

cpu_primitive_facts conv_facts(const tri_device_description *device, const conv_request *request) {
    int64_t pieces = pieces_of(device, request);
    if (pieces == 0) return conv_ask(device, request);
    cpu_primitive_facts facts = piece_facts(device, request, pieces);
    facts.scratchpad_bytes = workspace_of(device, request, pieces, facts.scratchpad_bytes);
    return facts;
}

// Makes the primitives of one thread. The stream is the thread's own, because oneDNN does not say
// that several threads may use one.
static tri_status make_worker(conv_primitives *p, conv_worker *worker) {
    dnnl_engine_t engine;
    TRI_TRY(cpu_engine(&engine));
    CPU_DNNL(dnnl_stream_create(&worker->stream, engine, dnnl_stream_default_flags));
    for (int more = 0; more < 2; more++) {
        if (more && p->request.shape.n % p->pieces == 0) continue;
        conv_chain *primitive = &worker->primitives[more];
        conv_request piece = piece_request(&p->request, p->pieces, more);
        TRI_TRY(conv_chain_make(p->device, &piece, primitive));
        conv_chain_set_stream(primitive, worker->stream);
        if (primitive->scratchpad_bytes > p->scratch_bytes)
            p->scratch_bytes = primitive->scratchpad_bytes;
    }
    return TRI_OK;
}

static tri_status make_all(conv_primitives *p) {
    const tri_device_description *device = &p->device->head.description;
    cpu_use_threads(device);
    p->pieces = pieces_of(device, &p->request);
    if (p->pieces == 0) {
        TRI_TRY(conv_chain_make(p->device, &p->request, &p->whole));
        p->scratch_bytes = p->whole.scratchpad_bytes;
        return TRI_OK;
    }
    p->workers = calloc((size_t)device->threads, sizeof *p->workers);
    if (!p->workers) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a convolution");
    tri_status status = TRI_OK;
    omp_set_num_threads(1); // oneDNN makes primitives for as many threads as it then may use
    for (int i = 0; i < device->threads && status == TRI_OK; i++)
        status = make_worker(p, &p->workers[i]);
    cpu_use_threads(device);
    return status;
}

tri_status conv_primitives_make(const cpu_device *device, const conv_request *request,
                                conv_primitives **out) {
    conv_primitives *p = *out = calloc(1, sizeof *p);
    if (!p) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a convolution");
    p->device = device;
    p->request = *request;
    return make_all(p);
}

size_t conv_primitives_workspace(const conv_primitives *p) {
    if (p->pieces == 0) return p->scratch_bytes;
    return workspace_of(&p->device->head.description, &p->request, p->pieces, p->scratch_bytes);
}

void conv_primitives_release(conv_primitives *p) {
    if (!p) return;
    conv_chain_release(&p->whole);
    for (int i = 0; p->workers && i < p->device->head.description.threads; i++) {
        conv_worker *worker = &p->workers[i];
        for (int more = 0; more < 2; more++) conv_chain_release(&worker->primitives[more]);
        if (worker->stream) dnnl_stream_destroy(worker->stream);
    }
    free(p->workers);
    free(p);
}

static void finish_range(void *context, int64_t begin, int64_t end, int thread) {
    cpu_finish_rows(context, begin, end - begin, 1, end - begin);
}

typedef struct piece_job {
    conv_primitives *primitives;
    void *const *data;
    char *scratch;    // of all threads
    float *gradients; // by piece: of the weight, then of the bias; NULL: there is only one piece
    int64_t x_bytes, y_bytes; // of one sample
    const cpu_finish *finish; // NULL: nothing finishes the results
    _Atomic int failure;      // the tri_status of a primitive that failed
} piece_job;

// Elements of y, or of dx, of one sample.
static int64_t result_elements(const conv_request *r) {
    const conv_shape *s = &r->shape;
    return r->task == CONV_GRAD_INPUT ? s->c * s->in[0] * s->in[1] : s->o * s->out[0] * s->out[1];
}

static void find_addresses(const piece_job *job, int64_t piece, int64_t sample, void *data[4]) {
    const conv_request *r = &job->primitives->request;
    char *const *whole = (char *const *)job->data;
    int64_t x = sample * job->x_bytes, y = sample * job->y_bytes;
    data[0] = whole[0] + (r->task == CONV_GRAD_INPUT ? y : x);
    data[1] = whole[1];
    data[2] = whole[2] + (r->task == CONV_GRAD_INPUT ? x : y);
    data[3] = job->data[3];
    if (r->task != CONV_GRAD_WEIGHT) return;
    data[1] = whole[1] + y;
    data[2] = whole[2];
    if (!job->gradients) return;
    float *gradients = job->gradients + piece * gradient_floats(&r->shape);
    data[2] = gradients;
    data[3] = gradients + weight_floats(&r->shape);
}

static void piece_range(void *context, int64_t begin, int64_t end, int thread) {
    piece_job *job = context;
    conv_primitives *p = job->primitives;
    conv_worker *worker = &p->workers[thread];
    char *scratch = job->scratch + aligned(p->scratch_bytes) * (size_t)thread;
    int64_t result = result_elements(&p->request); // of one sample
    for (int64_t piece = begin; piece < end; piece++) {
        int64_t first = first_sample(p, piece), count = first_sample(p, piece + 1) - first;
        bool more = count > p->request.shape.n / p->pieces;
        void *data[4];
        find_addresses(job, piece, first, data);
        tri_status status = conv_chain_run(&worker->primitives[more], data, scratch);
        if (status != TRI_OK) atomic_store(&job->failure, (int)status);
        if (job->finish)
            finish_range((void *)(uintptr_t)job->finish, first * result, (first + count) * result,
                         thread);
    }
}

typedef struct sum_job {
    const float *parts;
    int64_t count, step; // number of parts, and floats from one to the next
    float *out;
} sum_job;

CPU_BODY sum_body(void *context, int64_t begin, int64_t end) {
    const sum_job *job = context;
    for (int64_t first = begin; first < end; first += SUM_BLOCK) {
        int64_t last = smaller(end, first + SUM_BLOCK);
        float *restrict out = job->out;
        for (int64_t part = 0; part < job->count; part++) {
            const float *restrict from = job->parts + part * job->step;
            for (int64_t i = first; i < last; i++) out[i] = part ? out[i] + from[i] : from[i];
        }
    }
}
CPU_RANGES(sum)

static void add_gradients(const conv_primitives *p, const float *gradients, void *const *data) {
    int64_t weights = weight_floats(&p->request.shape);
    sum_job job = {gradients, p->pieces, gradient_floats(&p->request.shape), data[2]};
    cpu_parallel(p->device, weights, SUM_GRAIN, sum_range(p->device), &job);
    if (!p->request.bias) return;
    job.parts += weights;
    job.out = data[3];
    cpu_parallel(p->device, p->request.shape.o, SUM_GRAIN, sum_range(p->device), &job);
}

static tri_status run_pieces(conv_primitives *p, void *const *data, char *workspace,
                             const cpu_finish *finish) {
    const conv_shape *s = &p->request.shape;
    const tri_device_description *device = &p->device->head.description;
    int64_t element = s->dtype == TRI_BF16 ? 2 : 4;
    piece_job job = {.primitives = p,
                     .data = data,
                     .scratch = workspace,
                     .finish = finish,
                     .x_bytes = s->c * s->in[0] * s->in[1] * element,
                     .y_bytes = s->o * s->out[0] * s->out[1] * element};
    if (p->request.task == CONV_GRAD_WEIGHT && p->pieces > 1)
        job.gradients = (float *)(workspace + aligned(p->scratch_bytes) * (size_t)device->threads);
    // A primitive runs on the one thread that calls it, also if that thread computes all pieces.
    omp_set_num_threads(1);
    cpu_parallel(p->device, p->pieces, 1, piece_range, &job);
    cpu_use_threads(device);
    if (job.failure != TRI_OK)
        return TRI_FAIL((tri_status)job.failure, "oneDNN failed in a convolution");
    if (job.gradients) add_gradients(p, job.gradients, data);
    return TRI_OK;
}

tri_status conv_primitives_run(conv_primitives *p, void *const *data, void *workspace,
                               const cpu_finish *finish) {
    if (p->pieces > 0) return run_pieces(p, data, workspace, finish);
    cpu_use_threads(&p->device->head.description);
    TRI_TRY(conv_chain_run(&p->whole, data, workspace));
    if (finish)
        cpu_parallel(p->device, p->request.shape.n * result_elements(&p->request), FINISH_GRAIN,
                     finish_range, (void *)(uintptr_t)finish);
    return TRI_OK;
}
