// Measures training steps for `trireme bench train`. It counts samples per second in chunks of time
// of up to a quarter of a second each, and reports the median of the chunks, which a few disturbed
// chunks do not change. A step in flight is one that was issued to the device and whose results the
// host has not read yet.
#include "train/bench.h"

#include "base/cores.h"
#include "base/log.h"
#include "base/os.h"
#include "base/quantity.h"
#include "checkpoint/agree.h"
#include "train/loop.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

// How many chunks are wanted in a short measurement, where they are shorter than CHUNK_S.
enum { MAX_CHUNKS = 4096, CHUNKS = 9 };
static const double CHUNK_S = 0.25;
static const double WARM_UP = 0.2; // fraction of the time that is not measured, at its beginning
static const double SAY_EVERY_S = 2;
enum { SHARED_END };

typedef struct bench_run {
    tri_session *session;
    train_feed feed;
    int64_t steps_per_epoch;
    tri_progress progress;
    int in_flight;
    bool all_end;  // rank 0 has decided to end, and all ranks know it
    double step_s; // how long the latest step took
    double loss;
} bench_run;

// How many seconds ago the kernel started this process. The time to the first step counts from
// then, so that it includes loading the program.
static double process_age_s(void) {
    char stat[1024] = "", *fields;
    int fd = tri_os.open("/proc/self/stat", O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) return 0;
    ssize_t size = tri_os.read(fd, stat, sizeof stat - 1);
    tri_os.close(fd);
    if (size <= 0 || !(fields = strrchr(stat, ')'))) return 0;
    for (int i = 0; i < 20 && fields; i++) fields = strchr(fields + 1, ' ');
    if (!fields) return 0;
    double started = strtod(fields, NULL) / (double)sysconf(_SC_CLK_TCK);
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec - started;
}

// Reads how many CPU seconds all processes of this host have used, and how many this process has
// used. The difference is what other processes took, which makes a measurement unreliable.
static void cpu_seconds(double *machine, double *own) {
    char line[512] = "";
    *machine = 0;
    int fd = tri_os.open("/proc/stat", O_RDONLY | O_CLOEXEC, 0);
    ssize_t size = fd < 0 ? 0 : tri_os.read(fd, line, sizeof line - 1);
    if (fd >= 0) tri_os.close(fd);
    double v[8] = {0};
    if (size > 0)
        sscanf(line, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &v[0], &v[1], &v[2], &v[3], &v[4],
               &v[5], &v[6], &v[7]);
    *machine = (v[0] + v[1] + v[2] + v[5] + v[6] + v[7]) / (double)sysconf(_SC_CLK_TCK);
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    *own = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

// How many cores other processes may use before a chunk's measurement is rejected: almost none
// (0.08) if the kernels run on this host's cores; half of the cores if a device such as a GPU
// computes, because the host then only issues work.
static double cores_of_others(const tri_session *s) {
    return s->device->backend->is_asynchronous ? 0.5 * tri_cores() : 0.08;
}

static tri_status collect_step(bench_run *run) {
    tri_step_output out;
    run->in_flight--;
    TRI_TRY(tri_engine_collect(run->session->engine, &out));
    TRI_TRY(train_take_carried(run->session, &run->progress, &out));
    run->progress.step++;
    run->loss = train_mean(&out, 0);
    run->all_end = run->all_end || out.caller_sums[SHARED_END] > 0;
    return TRI_OK;
}

// The fraction of `seconds` in which ranks waited for each other, as the mean over all ranks; NaN:
// not known, because the device works asynchronously.
static tri_status waiting_fraction(const tri_session *s, double waited, double seconds,
                                   double *out) {
    double sums[] = {waited, seconds};
    *out = NAN;
    if (tri_engine_steps_ahead(s->engine) > 0) return TRI_OK;
    TRI_TRY(tri_comm_run(s->comm, &(tri_comm_op){.kind = TRI_COMM_ALL_REDUCE,
                                                 .dtype = TRI_F64,
                                                 .count = 2,
                                                 .send = sums,
                                                 .recv = sums,
                                                 .label = "waiting of all ranks"}));
    *out = sums[0] / sums[1];
    return TRI_OK;
}

// The shape of the step that is issued next. The last step of an epoch may have fewer samples.
static tri_step_shape next_shape(const bench_run *run) {
    const tri_session *s = run->session;
    return train_step_shape(s, (run->progress.step + run->in_flight) % run->steps_per_epoch);
}

// Issues one step as the training loop does, and collects the oldest step in flight: this step or,
// on a device that works asynchronously, the one before it.
static tri_status run_step(bench_run *run, bool end) {
    tri_session *s = run->session;
    double before_s = tri_os_seconds();
    int64_t step = run->progress.step + run->in_flight;
    tri_step_input input = train_step_input(s, &run->feed, step, step % run->steps_per_epoch);
    int ahead = tri_engine_steps_ahead(s->engine);
    for (int i = 0; i <= ahead; i++) input.lr[i] = s->recipe->optimizer.lr;
    if (s->identity.rank == 0) input.caller_numbers[SHARED_END] = end;
    TRI_TRY(tri_engine_issue(s->engine, &input));
    if (++run->in_flight > ahead) TRI_TRY(collect_step(run));
    run->step_s = tri_os_seconds() - before_s;
    return TRI_OK;
}

static int ascending(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

// Ends with the first step of which all ranks know that it is the last one (bench_run.all_end).
static tri_status warm_up(bench_run *run, double until_s) {
    do TRI_TRY(run_step(run, false));
    while (!run->all_end && tri_os_seconds() < until_s);
    return TRI_OK;
}

// Measures for about `chunk_s`. *disturbed: other processes used the machine meanwhile.
//
// Rank 0's decision to end (at `end_s`) is a number that each step sums over all ranks, so all
// ranks learn of it in the same step. All stop after that step, even within a chunk: a rank that
// went on would wait in the next step's collectives for ranks that have stopped.
static tri_status measure_chunk(bench_run *run, double chunk_s, double end_s, double *rate,
                                double *cpu_s, bool *disturbed) {
    tri_session *s = run->session;
    double machine, own, machine_after, own_after, before_s = tri_os_seconds();
    int64_t samples = 0;
    cpu_seconds(&machine, &own);
    do {
        samples += s->plan->steps[next_shape(run)].samples;
        TRI_TRY(run_step(run, tri_os_seconds() + run->step_s > end_s));
    } while (!run->all_end && tri_os_seconds() - before_s < chunk_s);
    double took_s = tri_os_seconds() - before_s;
    cpu_seconds(&machine_after, &own_after);
    double others = (machine_after - machine) - (own_after - own);
    *rate = (double)samples / took_s;
    *cpu_s = (own_after - own) / (double)samples;
    *disturbed =
        s->identity.size == 1 && !s->borrows_comm && others > cores_of_others(s) * took_s + 0.02;
    return TRI_OK;
}

static void summarize(double *rates, int count, tri_bench_result *out) {
    if (count == 0) return; // a rank that was still warming up when rank 0 ended
    qsort(rates, (size_t)count, sizeof *rates, ascending);
    out->samples_per_s = rates[count / 2];
    out->samples_per_s_low = rates[count / 10];
    out->samples_per_s_high = rates[count * 9 / 10];
}

static tri_status measure_chunks(bench_run *run, double seconds, double end_s,
                                 tri_bench_result *out) {
    tri_session *s = run->session;
    double *rates = TRI_NEW_ARRAY(s->arena, double, MAX_CHUNKS);
    double *disturbed_rates = TRI_NEW_ARRAY(s->arena, double, MAX_CHUNKS);
    double *cpu_s = TRI_NEW_ARRAY(s->arena, double, MAX_CHUNKS);
    int cpu_count = 0;
    double chunk_s = (1 - WARM_UP) * seconds / CHUNKS, said_s = tri_os_seconds();
    if (chunk_s > CHUNK_S) chunk_s = CHUNK_S;
    while (!run->all_end) {
        double rate, cpu;
        bool is_disturbed;
        TRI_TRY(measure_chunk(run, chunk_s, end_s, &rate, &cpu, &is_disturbed));
        if (cpu_count < MAX_CHUNKS) cpu_s[cpu_count++] = cpu;
        if (is_disturbed && out->rejected < MAX_CHUNKS)
            disturbed_rates[out->rejected++] = rate;
        else if (!is_disturbed && out->chunks < MAX_CHUNKS)
            rates[out->chunks++] = rate;
        double now_s = tri_os_seconds();
        if (s->identity.rank != 0 || run->all_end || now_s - said_s < SAY_EVERY_S) continue;
        said_s = now_s;
        tri_log_line(TRI_LOG_INFO, "bench train: %.4g samples/s%s, %s left", rate,
                     is_disturbed ? " (other programs use the machine)" : "",
                     tri_seconds_text(round(end_s - now_s)));
    }
    out->disturbed = out->chunks == 0 && out->rejected > 0;
    if (out->disturbed) {
        tri_log_line(
            TRI_LOG_WARNING,
            "bench train: other programs used the machine during each of %d measurements, so "
            "that the figures are too low: end them, or look for a quiet moment longer with "
            "--seconds %.0f",
            out->rejected, ceil(10 * seconds));
        rates = disturbed_rates;
        out->chunks = out->rejected;
        out->rejected = 0;
    }
    summarize(rates, out->chunks, out);
    if (cpu_count == 0) return TRI_OK;
    qsort(cpu_s, (size_t)cpu_count, sizeof *cpu_s, ascending);
    out->cpu_s_per_sample = cpu_s[cpu_count / 2];
    return TRI_OK;
}

static tri_status measure(bench_run *run, double seconds, tri_bench_result *out) {
    tri_session *s = run->session;
    double started_s = tri_os_seconds();
    TRI_TRY(run_step(run, false));
    if (run->in_flight > 0) TRI_TRY(collect_step(run));
    tri_log_stage("first step");
    out->first_step_s = process_age_s();
    TRI_TRY(warm_up(run, started_s + WARM_UP * seconds));
    double measuring_s = tri_os_seconds(), waited_s = tri_session_waited_s(s);
    TRI_TRY(measure_chunks(run, seconds, started_s + seconds, out));
    return waiting_fraction(s, tri_session_waited_s(s) - waited_s, tri_os_seconds() - measuring_s,
                            &out->waiting_fraction);
}

static double flops_per_sample(const tri_plan *plan) {
    const tri_program *p = plan->programs[0];
    double flops = 0;
    for (int b = 0; b < plan->graph->block_count; b++)
        for (int phase = 0; phase < TRI_PHASE_COUNT; phase++)
            flops += tri_program_flops(p, b, (tri_phase)phase);
    return flops / (double)p->batch;
}

static tri_status bench(bench_run *run, double seconds, tri_bench_result *out) {
    tri_session *s = run->session;
    run->steps_per_epoch = tri_session_steps_per_epoch(s);
    TRI_TRY(tri_engine_initialize(s->engine, (uint64_t)s->recipe->seed));
    TRI_TRY(train_carry(s, &run->progress));
    tri_loader *loader;
    TRI_TRY(tri_session_train_loader(s, 0, 0, &loader));
    run->feed = train_feed_make(s->arena, s, loader);
    tri_status status = measure(run, seconds, out);
    while (status == TRI_OK && run->in_flight > 0) status = collect_step(run);
    status = train_feed_end(&run->feed, status);
    tri_loader_destroy(loader);
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    out->max_rss_mb = (double)used.ru_maxrss * 1024e-6;
    out->rank = s->identity.rank;
    out->ranks = s->identity.size;
    out->threads = s->device->description.threads;
    out->actions = s->plan->steps[TRI_STEP_FULL].schedule.count;
    out->step_samples = s->recipe->batch.global;
    out->steps = run->progress.step;
    out->loss = run->loss;
    out->loss_scale = run->progress.scale.scale > 0 ? run->progress.scale.scale : 1;
    out->flops_per_sample = flops_per_sample(s->plan);
    return status;
}

tri_status tri_bench_session(tri_session *session, double seconds, const char *trace,
                             tri_bench_result *out) {
    *out = (tri_bench_result){.rank = 0};
    bench_run run = {.session = session};
    tri_trace *traced = NULL;
    tri_status status = TRI_OK;
    if (trace)
        status = checkpoint_agree(session->comm, tri_trace_open(session->comm, trace, &traced));
    if (status == TRI_OK) status = bench(&run, seconds, out);
    tri_trace_finish(traced, status == TRI_OK);
    return status;
}

tri_status tri_bench_train(const tri_session_request *request, double seconds, const char *trace,
                           tri_bench_result *out) {
    tri_session *session;
    TRI_TRY(tri_session_open(request, &session));
    tri_status status = tri_session_tell(session, tri_bench_session(session, seconds, trace, out));
    tri_session_close(session);
    return status;
}
