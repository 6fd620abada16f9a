// `trireme bench comm`: times an operation and checks its result. It also times plain reading and
// writing of memory, because no operation can be faster than that.
#include "comm/bench.h"

#include "base/os.h"
#include "base/tree.h"
#include "comm/op.h"
#include "tensor/half.h"

#include <stdlib.h>
#include <string.h>

enum {
    BENCH_MAX_REPETITIONS = 1000,
    // Up to this many bytes, a repetition measures BENCH_SMALL_INNER operations together, because
    // one alone takes too little time to be measured well.
    BENCH_SMALL_BYTES = 64 << 10,
    BENCH_SMALL_INNER = 200,
    // An operation is repeated until about this many bytes were sent, but at least 9 and at most 50
    // times.
    BENCH_BUDGET_BYTES = 1 << 30,
};

static const size_t bench_sizes[] = {8,       64,      512,      4096,     32768,    262144,
                                     1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20};

typedef struct bench_run {
    tri_comm *comm;
    tri_comm_kind kind;
    tri_dtype dtype;
    bool accumulate;
    size_t bytes; // size of the operation's whole buffer, as the printed table reports it
    int64_t count;
    // Number of measurements, of which the median is reported, and how many operations each of them
    // covers.
    int repetitions, operations_per_time;
    char *send, *recv;
} bench_run;

// True if a buffer of the operation has one range of `count` elements for each rank. The size that
// the table reports is that of all these ranges together.
static bool bench_ranged(tri_comm_kind kind) {
    return kind == TRI_COMM_ALL_GATHER || tri_comm_kind_scatters(kind);
}

// True if `send` and `recv` overlap. They do so in training, where a shard is a range of the whole
// buffer. In the operation "fold", a reduce-scatter that adds to the old contents of `recv`, they
// must not overlap.
static bool bench_in_place(const bench_run *run) {
    return run->kind == TRI_COMM_ALL_REDUCE || run->kind == TRI_COMM_BROADCAST ||
           run->kind == TRI_COMM_ALL_GATHER ||
           (run->kind == TRI_COMM_REDUCE_SCATTER && !run->accumulate);
}

// Returns the offset in bytes of this rank's range, if the operation is in place and its buffer has
// a range for each rank; else 0. At this offset of the buffer lies the `send` of an all-gather, or
// the `recv` of a reduce-scatter. nccl-tests times operations in place too.
static size_t bench_own_offset(const bench_run *run) {
    bool ranged = bench_in_place(run) && bench_ranged(run->kind);
    return ranged ? run->bytes / (size_t)run->comm->size * (size_t)run->comm->rank : 0;
}

static bench_run bench_plan(tri_comm *comm, const tri_comm_bench_options *options, size_t wanted) {
    bench_run run = {.comm = comm,
                     .kind = options->kind,
                     .dtype = options->dtype,
                     .accumulate = options->accumulate};
    size_t bytes_per_count =
        tri_dtype_bytes(run.dtype) * (bench_ranged(run.kind) ? (size_t)comm->size : 1);
    run.count = (int64_t)((wanted + bytes_per_count - 1) / bytes_per_count);
    run.bytes = (size_t)run.count * bytes_per_count;
    if (run.kind == TRI_COMM_BARRIER) run.bytes = 0, run.count = 0;
    run.operations_per_time = run.bytes <= BENCH_SMALL_BYTES ? BENCH_SMALL_INNER : 1;
    size_t chosen = run.bytes ? BENCH_BUDGET_BYTES / run.bytes : BENCH_MAX_REPETITIONS;
    if (chosen > 50) chosen = 50;
    if (chosen < 9) chosen = 9;
    run.repetitions = options->repetitions > 0 ? options->repetitions : (int)chosen;
    if (run.repetitions > BENCH_MAX_REPETITIONS) run.repetitions = BENCH_MAX_REPETITIONS;
    return run;
}

// The numbers that are sent: small whole numbers, so that every sum is exact and a wrong sum is
// noticed.
static float bench_value(int rank, int64_t i) { return (float)((i + rank * 3) % 11 - 5); }

static const char *bench_name(const bench_run *run) {
    return run->accumulate ? "fold" : tri_comm_kind_name(run->kind);
}

static void bench_put(const bench_run *run, char *to, int64_t i, float value) {
    void *memory = to;
    if (run->dtype == TRI_F32) ((float *)memory)[i] = value;
    if (run->dtype == TRI_F64) ((double *)memory)[i] = value;
    if (run->dtype == TRI_BF16) ((uint16_t *)memory)[i] = tri_float_to_bf16(value);
    if (run->dtype == TRI_F16) ((uint16_t *)memory)[i] = tri_float_to_f16(value);
}

static float bench_get(const bench_run *run, const char *from, int64_t i) {
    const void *memory = from;
    if (run->dtype == TRI_F64) return (float)((const double *)memory)[i];
    if (run->dtype == TRI_BF16) return tri_bf16_to_float(((const uint16_t *)memory)[i]);
    if (run->dtype == TRI_F16) return tri_f16_to_float(((const uint16_t *)memory)[i]);
    return ((const float *)memory)[i];
}

static tri_status bench_once(bench_run *run) {
    tri_comm *comm = run->comm;
    tri_comm_op op = {.kind = run->kind,
                      .dtype = run->dtype,
                      .accumulate = run->accumulate,
                      .count = run->count,
                      .send = run->send,
                      .recv = run->recv,
                      .label = "bench",
                      .waits_at_once = true};
    if (run->kind != TRI_COMM_SEND) return tri_comm_run(comm, &op);
    tri_comm_op pair[2] = {op, op};
    pair[0].peer = (comm->rank + 1) % comm->size;
    pair[1].peer = (comm->rank + comm->size - 1) % comm->size;
    pair[1].kind = TRI_COMM_RECV;
    tri_comm_ticket ticket;
    TRI_TRY(comm->backend->start(comm, pair, 2, &ticket));
    return comm->backend->wait(comm, ticket);
}

static float bench_expected(const bench_run *run, int64_t i) {
    int size = run->comm->size, rank = run->comm->rank;
    int64_t source = i / run->count, within = i % run->count,
            sent = run->kind == TRI_COMM_REDUCE_SCATTER ? rank * run->count + i : i;
    float sum = 0;
    switch (run->kind) {
    case TRI_COMM_ALL_REDUCE:
    case TRI_COMM_REDUCE_SCATTER:
        for (int r = 0; r < size; r++) sum += bench_value(r, sent);
        return sum;
    case TRI_COMM_ALL_GATHER:
        return bench_value((int)source, within);
    case TRI_COMM_ALL_TO_ALL:
        return bench_value((int)source, rank * run->count + within);
    case TRI_COMM_BROADCAST:
        return bench_value(0, i);
    default:
        return bench_value((rank + size - 1) % size, i);
    }
}

static int64_t bench_elements(const bench_run *run, bool sends) {
    tri_comm_op op = {.kind = run->kind, .count = run->count};
    if (run->kind == TRI_COMM_SEND) return run->count;
    return sends ? tri_comm_send_count(&op, run->comm->size)
                 : tri_comm_recv_count(&op, run->comm->size);
}

// Does one operation on known numbers and checks its result. If the result is wrong on one rank,
// all ranks fail, so that none waits for that rank later.
static tri_status bench_check(bench_run *run) {
    int64_t sends = bench_elements(run, true), recvs = bench_elements(run, false), wrong = -1;
    for (int64_t i = 0; i < sends; i++)
        bench_put(run, run->send, i, bench_value(run->comm->rank, i));
    TRI_TRY(bench_once(run));
    for (int64_t i = 0; i < recvs && wrong < 0; i++)
        if (bench_get(run, run->recv, i) != bench_expected(run, i)) wrong = i;
    TRI_TRY(tri_comm_run(run->comm, &(tri_comm_op){.kind = TRI_COMM_ALL_REDUCE,
                                                   .dtype = TRI_I64,
                                                   .count = 1,
                                                   .reduction = TRI_REDUCE_MAX,
                                                   .send = &wrong,
                                                   .recv = &wrong,
                                                   .label = "bench check"}));
    if (wrong >= 0)
        return TRI_FAIL(TRI_INTERNAL, "%s of %zu bytes over %s is wrong at element %lld",
                        bench_name(run), run->bytes, run->comm->backend->name, (long long)wrong);
    // From here on all ranks send zeros, so that sums do not overflow however often the operation
    // is repeated.
    memset(run->send, 0, (size_t)sends * tri_dtype_bytes(run->dtype));
    return TRI_OK;
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef tri_status bench_body(bench_run *run);

// Calls `body` (an operation, or bench_touch) repeatedly and sets *out to the median time of a
// call, in seconds. The time of a repetition is that of its slowest rank, because an operation is
// done only when its last rank is.
static tri_status bench_time(bench_run *run, bench_body *body, double *out) {
    double times[BENCH_MAX_REPETITIONS];
    for (int warm = 0; warm < 2; warm++) TRI_TRY(body(run));
    for (int i = 0; i < run->repetitions; i++) {
        TRI_TRY(tri_comm_barrier(run->comm, "bench"));
        double begin = tri_os_seconds();
        for (int k = 0; k < run->operations_per_time; k++) TRI_TRY(body(run));
        times[i] = (tri_os_seconds() - begin) / run->operations_per_time;
    }
    TRI_TRY(tri_comm_run(run->comm, &(tri_comm_op){.kind = TRI_COMM_ALL_REDUCE,
                                                   .dtype = TRI_F64,
                                                   .count = run->repetitions,
                                                   .reduction = TRI_REDUCE_MAX,
                                                   .send = times,
                                                   .recv = times,
                                                   .label = "bench times"}));
    qsort(times, (size_t)run->repetitions, sizeof *times, compare_doubles);
    *out = times[run->repetitions / 2];
    return TRI_OK;
}

// Reads and writes each element of the buffer once. An all-reduce of two ranks over shared memory
// costs each rank at least as much: it reads half of both ranks' buffers and writes half of both.
// So the time of this function is a lower bound, with which operations are compared.
static tri_status bench_touch(bench_run *run) {
    bool gathers = run->kind == TRI_COMM_ALL_GATHER; // an all-gather has its whole buffer at recv
    float *values = (float *)(void *)(gathers ? run->recv : run->send);
    for (size_t i = 0; i < run->bytes / sizeof *values; i++) values[i] += values[i];
    return TRI_OK;
}

// How many bytes the busiest network link carries for each byte of the operation. With this factor
// operations of different kinds and numbers of ranks can be compared (nccl-tests,
// doc/PERFORMANCE.md).
static double bench_bus_factor(tri_comm_kind kind, int size) {
    if (kind == TRI_COMM_ALL_REDUCE) return 2.0 * (size - 1) / size;
    return bench_ranged(kind) ? (double)(size - 1) / size : 1;
}

static void bench_header(const bench_run *run, FILE *out) {
    fprintf(out,
            "# %s over %s, %d ranks, %s, median; memory: what reading and writing that much in "
            "place allows\n"
            "%12s %12s %14s %14s %14s %14s\n",
            bench_name(run), run->comm->backend->name, run->comm->size, tri_dtype_name(run->dtype),
            "bytes", "count", "time (us)", "algbw (GB/s)", "busbw (GB/s)", "memory (GB/s)");
}

static void bench_json(const bench_run *run, double seconds, const double bandwidths[3],
                       FILE *out) {
    static const char *const names[] = {"algbw_gb_s", "busbw_gb_s", "memory_gb_s"};
    tri_arena *arena = tri_arena_create(NULL, "line");
    tri_tree *map = tri_tree_map(arena);
    tri_tree_put_string(arena, map, "op", bench_name(run));
    tri_tree_put_string(arena, map, "backend", run->comm->backend->name);
    tri_tree_put_int(arena, map, "ranks", run->comm->size);
    tri_tree_put_int(arena, map, "bytes", (int64_t)run->bytes);
    tri_tree_put_digits(arena, map, "time_us", seconds * 1e6, 8);
    for (int i = 0; i < 3; i++) tri_tree_put_digits(arena, map, names[i], bandwidths[i], 5);
    tri_tree_put_string(arena, map, "type", tri_dtype_name(run->dtype));
    fprintf(out, "%s\n", tri_json_emit(arena, map));
    tri_arena_destroy(arena);
}

static void bench_line(const bench_run *run, double seconds, double touch, bool json, FILE *out) {
    double algbw = (double)run->bytes / seconds / 1e9;
    double memory = touch > 0 ? (double)run->bytes / touch / 1e9 : 0;
    double busbw = algbw * bench_bus_factor(run->kind, run->comm->size);
    if (json)
        bench_json(run, seconds, (const double[]){algbw, busbw, memory}, out);
    else
        fprintf(out, "%12zu %12lld %14.2f %14.3f %14.3f %14.3f\n", run->bytes,
                (long long)run->count, seconds * 1e6, algbw, busbw, memory);
    fflush(out);
}

static tri_status bench_size(bench_run *run, const tri_comm_bench_options *options, FILE *out) {
    double seconds, touch = 0;
    if (run->kind != TRI_COMM_BARRIER) TRI_TRY(bench_check(run));
    TRI_TRY(bench_time(run, bench_once, &seconds));
    if (run->bytes > 0) TRI_TRY(bench_time(run, bench_touch, &touch));
    if (run->comm->rank == 0) bench_line(run, seconds, touch, options->json, out);
    return TRI_OK;
}

// The buffers of a run; `recv` is NULL if the operation is in place.
typedef struct bench_memory {
    void *send, *recv;
} bench_memory;

static void bench_free(const bench_run *run, const bench_memory *memory) {
    run->comm->backend->free(run->comm, memory->send);
    if (memory->recv) run->comm->backend->free(run->comm, memory->recv);
}

static tri_status bench_alloc(bench_run *run, bench_memory *out) {
    tri_comm *comm = run->comm;
    *out = (bench_memory){.send = NULL};
    TRI_TRY(comm->backend->alloc(comm, run->bytes + sizeof(double), &out->send));
    tri_status status = TRI_OK;
    if (!bench_in_place(run))
        status = comm->backend->alloc(comm, run->bytes + sizeof(double), &out->recv);
    run->send = out->send;
    run->recv = out->recv ? out->recv : out->send;
    if (run->kind == TRI_COMM_ALL_GATHER) run->send += bench_own_offset(run);
    if (run->kind == TRI_COMM_REDUCE_SCATTER) run->recv += bench_own_offset(run);
    if (status != TRI_OK) bench_free(run, out);
    return status;
}

static tri_status bench_with_memory(bench_run *run, const tri_comm_bench_options *options,
                                    FILE *out) {
    bench_memory memory;
    TRI_TRY(bench_alloc(run, &memory));
    tri_status status = bench_size(run, options, out);
    bench_free(run, &memory);
    return status;
}

tri_status tri_comm_bench_one(tri_comm *comm, tri_comm_kind kind, size_t bytes, double *seconds,
                              double *bus_bytes_per_s) {
    bench_memory memory;
    bench_run run = bench_plan(comm, &(tri_comm_bench_options){.kind = kind}, bytes ? bytes : 1);
    TRI_TRY(bench_alloc(&run, &memory));
    tri_status status = bench_check(&run);
    if (status == TRI_OK) status = bench_time(&run, bench_once, seconds);
    bench_free(&run, &memory);
    TRI_TRY(status);
    *bus_bytes_per_s = (double)run.bytes / *seconds * bench_bus_factor(kind, comm->size);
    return TRI_OK;
}

tri_status tri_comm_bench(tri_comm *comm, const tri_comm_bench_options *options, FILE *out) {
    const size_t *sizes = options->sizes_bytes ? options->sizes_bytes : bench_sizes;
    int count = options->sizes_bytes ? options->size_count
                                     : (int)(sizeof bench_sizes / sizeof *bench_sizes);
    if ((unsigned)options->kind >= TRI_COMM_KIND_COUNT || options->kind == TRI_COMM_RECV)
        return TRI_FAIL(TRI_BAD_INPUT, "bench comm: cannot time operation %d alone",
                        (int)options->kind);
    if (options->kind == TRI_COMM_BARRIER) count = 1;
    TRI_ASSERT(!options->accumulate || options->kind == TRI_COMM_REDUCE_SCATTER);
    if (comm->rank == 0 && !options->json) {
        bench_run first = {.comm = comm,
                           .kind = options->kind,
                           .dtype = options->dtype,
                           .accumulate = options->accumulate};
        bench_header(&first, out);
    }
    for (int i = 0; i < count; i++) {
        bench_run run = bench_plan(comm, options, sizes[i] ? sizes[i] : 1);
        TRI_TRY(bench_with_memory(&run, options, out));
    }
    return TRI_OK;
}
