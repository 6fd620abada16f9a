// Networks that are drawn at random (equivalence/random_net.c): the gradient of each parameter, in
// F64 on `ref`, is that of finite differences; on `cpu`, and on some networks on the emulated GPU,
// losses and gradients in F32 are those of F64 up to rounding. So they are with fusions, which on
// `ref` in F64 change nearly nothing.
// TEST_NETWORKS=FIRST:COUNT chooses seeds.
#include "device/cpu/cpu.h"
#include "device/cuda/cuda.h"
#include "device/ref/ref.h"
#include "pass/pass.h"
#include "support/model_options.h"
#include "support/op_session.h"
#include "support/test_gpu.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trireme/task.h>

#include <cmocka.h>

const tri_task *trireme_task_v1(void); // of random_net.c

enum { SAMPLES = 3, CLASSES = 4, TOKENS = 6, TERMS = TRI_MAX_LOSS_TERMS };

static const double seeds_of_terms[TERMS] = {0.75, 0.5, 1.25, 0.3, 0.6, 0.9, 0.4, 0.8};

// The fields of the batch: which there are, and their sizes, follow from the seed.
static void add_fields(tri_graph *g, int64_t seed, tri_dtype dtype) {
    int64_t t = 1 + seed % 5, n = SAMPLES;
    if (seed % 3) tri_input(g, "images", dtype, tri_shape_of(n, 1 + seed % 3, 1 + seed % 7, 4));
    if (seed % 3 == 0) tri_input(g, "inputs", dtype, tri_shape_of(n, 2 + seed % 4, 3));
    if (seed % 2) tri_input(g, "input_ids", TRI_I64, tri_shape_of(n, t));
    if (seed % 4 == 1) tri_input(g, "attention_mask", dtype, tri_shape_of(n, t));
    if (seed % 5) tri_input(g, "labels", TRI_I64, seed % 4 ? tri_shape_of(n) : tri_shape_of(n, t));
    if (seed % 7 == 3) tri_input(g, "soft_labels", dtype, tri_shape_of(n, 3));
    if (seed % 2 == 0 || seed % 5 == 0)
        tri_input(g, "targets", dtype, tri_shape_of(n, 1 + seed % 4));
}

// A network on a device.
typedef struct side {
    int64_t seed;
    tri_graph *graph;
    tri_device *device;
    op_session *session;
} side;

static void fill(side *s) {
    tri_graph *g = s->graph;
    for (int i = 0; i < g->input_count; i++) {
        tri_value value = g->inputs[i].value;
        const char *name = g->inputs[i].name;
        int64_t count = op_count(s->session, value), *whole = op_host(s->session, value);
        if (tri_value_get(g, value)->dtype != TRI_I64) {
            op_fill(s->session, value, 77, 0, 1);
            continue;
        }
        for (int64_t k = 0; k < count; k++)
            whole[k] = !strcmp(name, "position")    ? 5 + k
                       : !strcmp(name, "input_ids") ? k * k % TOKENS
                       : k % 5 == 3                 ? TRI_IGNORED_LABEL
                                                    : k % CLASSES;
    }
    for (int i = 0; i < g->parameter_count; i++)
        if (g->parameters[i].role != TRI_ROLE_COUNTER) {
            double low = g->parameters[i].init.kind == TRI_INIT_CONSTANT ? 0.6 : -0.6;
            op_fill(s->session, g->parameters[i].value, 99, low, low + 1.2);
        }
    if (tri_value_is(g->scalars[TRI_SCALAR_SEED]))
        op_set(s->session, g->scalars[TRI_SCALAR_SEED], 0, seeds_of_terms[0]);
    for (int i = 0; i < g->term_count; i++)
        if (tri_value_is(g->scalars[TRI_SCALAR_TERM + i])) // some parameter changes this loss
            op_set(s->session, g->scalars[TRI_SCALAR_TERM + i], 0, seeds_of_terms[i]);
}

static void pass_ok(int64_t seed, tri_status status) {
    if (status != TRI_OK) fail_msg("seed %lld: %s", (long long)seed, tri_error_message());
}

// `fused`: with the fusions.
static void side_open(side *s, int64_t seed, const tri_device_backend *backend, tri_dtype dtype,
                      bool fused) {
    *s = (side){.seed = seed, .device = op_device_open(backend, 1)};
    tri_graph_options options = {.seed = 1, .training = true, .dtype = dtype};
    tri_graph *g = s->graph = tri_graph_create(NULL, &options);
    g->options.model_options = model_options(
        g->arena, "{seed: %lld, primitives: %lld, classes: %d, tokens: %d, mixes: %d, norms: %d}",
        (long long)seed, (long long)(5 + seed % 9), CLASSES, TOKENS, seed % 5 == 0, seed % 3 == 0);
    const char *message = "";
    add_fields(g, seed, dtype);
    tri_batch batch = tri_batch_make(g, SAMPLES);
    trireme_task_v1()->build(g, &batch);
    if (tri_graph_status(g, &message) != TRI_OK)
        fail_msg("seed %lld: %s", (long long)seed, message);
    const tri_device_description *device = &s->device->description;
    if (fused) pass_ok(seed, tri_pass_fuse(g, device, TRI_FUSE_BEFORE_AUTODIFF));
    pass_ok(seed, tri_pass_autodiff(g));
    if (fused) pass_ok(seed, tri_pass_fuse(g, device, TRI_FUSE_AFTER_AUTODIFF));
    s->session = op_session_open(g, s->device, false);
    fill(s);
}

static void side_close(side *s) {
    op_session_close(s->session);
    s->device->backend->close(s->device);
    tri_graph_destroy(s->graph);
}

static double loss_of(const side *s) {
    const tri_graph *g = s->graph;
    double sum = 0;
    if (g->term_count == 0) return seeds_of_terms[0] * op_get(s->session, g->metrics[0].value, 0);
    for (int i = 0; i < g->term_count; i++)
        sum += seeds_of_terms[i] * op_get(s->session, g->metrics[g->first_term + i].value, 0);
    return sum;
}

static double loss_at(side *s) {
    op_run_ok(s->session);
    return loss_of(s);
}

// Element k of the gradient of a parameter: the sum of what the blocks that read it have.
static double gradient_of(const side *s, int parameter, int64_t k) {
    double sum = 0;
    for (int i = 0; i < s->graph->gradient_count; i++)
        if (s->graph->gradients[i].parameter == parameter)
            sum += op_get(s->session, s->graph->gradients[i].value, k);
    return sum;
}

static double direction_of(int64_t k) { return k % 3 == 0 ? 1 : k % 3 == 1 ? -0.7 : 0.4; }

static void move(side *s, tri_value value, double by) {
    for (int64_t k = 0; k < op_count(s->session, value); k++)
        op_set(s->session, value, k, op_get(s->session, value, k) + by * direction_of(k));
}

// The slope of the loss when the parameter moves along its direction.
static double slope(side *s, tri_value value, double step) {
    int64_t count = op_count(s->session, value);
    double *before = malloc((size_t)count * sizeof *before + 1);
    for (int64_t k = 0; k < count; k++) before[k] = op_get(s->session, value, k);
    move(s, value, step);
    double above = loss_at(s);
    move(s, value, -2 * step);
    double below = loss_at(s);
    for (int64_t k = 0; k < count; k++) op_set(s->session, value, k, before[k]);
    free(before);
    return (above - below) / (2 * step);
}

// A kink of the loss within a step, as of max(x, 0), gives another slope. It is not within each of
// several smaller ones.
static void check_slope(side *s, int parameter, double wanted) {
    static const double steps[] = {1e-5, 1e-6, 1e-7, 3e-8};
    const tri_parameter_info *p = &s->graph->parameters[parameter];
    double found = 0;
    for (int i = 0; i < 4; i++) {
        found = slope(s, p->value, steps[i]);
        if (fabs(found - wanted) <= 1e-5 * (1 + fabs(wanted) + fabs(loss_of(s)))) return;
    }
    fail_msg("seed %lld: %s: the rule gives %.9g, differences %.9g", (long long)s->seed, p->name,
             wanted, found);
}

// Whether the gradient is that of differences: a spectral norm's vectors, which follow from its
// weight, have none.
static bool has_slope(const tri_parameter_info *p) {
    return p->role == TRI_ROLE_TRAINED && !strstr(p->name, ".weight_orig");
}

static void check_gradients(int64_t seed) {
    side s;
    side_open(&s, seed, &tri_device_ref, TRI_F64, false);
    op_run_ok(s.session);
    double *wanted = calloc((size_t)s.graph->parameter_count + 1, sizeof *wanted);
    for (int i = 0; i < s.graph->parameter_count; i++)
        for (int64_t k = 0; k < op_count(s.session, s.graph->parameters[i].value); k++)
            if (has_slope(&s.graph->parameters[i]))
                wanted[i] += gradient_of(&s, i, k) * direction_of(k);
    for (int i = 0; i < s.graph->parameter_count; i++)
        if (has_slope(&s.graph->parameters[i])) check_slope(&s, i, wanted[i]);
    free(wanted);
    side_close(&s);
}

// The length of the gradient of a parameter, or of its distance from that on another side.
static double length(const side *s, const side *other, int parameter) {
    double sum = 0;
    for (int64_t k = 0; k < op_count(s->session, s->graph->parameters[parameter].value); k++) {
        double x = gradient_of(s, parameter, k);
        if (other) x -= gradient_of(other, parameter, k);
        sum += x * x;
    }
    return sqrt(sum);
}

// How far losses and gradients are from those in F64: at most, as a part of how large they are. A
// gradient that is small beside the others, or 0, has the rounding of these.
static double distance(const side *s, const side *exact, const char **where) {
    double right = loss_of(exact), most = fabs(loss_of(s) - right) / (fabs(right) + 1e-3), all = 0;
    *where = "loss";
    for (int i = 0; i < s->graph->parameter_count; i++) all += pow(length(exact, NULL, i), 2);
    for (int i = 0; i < s->graph->parameter_count; i++) {
        double of = length(s, exact, i) / (length(exact, NULL, i) + 0.05 * sqrt(all) + 1e-6);
        if (of <= most) continue;
        most = of;
        *where = s->graph->parameters[i].name;
    }
    return most;
}

// `ref` in F32 says how far rounding takes a network.
static void check_device(int64_t seed, const tri_device_backend *backend) {
    side exact, rounded, s;
    const char *where;
    side_open(&exact, seed, &tri_device_ref, TRI_F64, false);
    side_open(&rounded, seed, &tri_device_ref, TRI_F32, false);
    side_open(&s, seed, backend, TRI_F32, seed % 2);
    op_run_ok(exact.session);
    op_run_ok(rounded.session);
    op_run_ok(s.session);
    double of_ref = distance(&rounded, &exact, &where), found = distance(&s, &exact, &where);
    if (!(found <= 1e-5 + 20 * of_ref))
        fail_msg("seed %lld on %s: %s is %.2e from F64, on ref %.2e", (long long)seed,
                 backend->name, where, found, of_ref);
    side_close(&s);
    side_close(&rounded);
    side_close(&exact);
}

// The fusions change nothing but the rounding.
static void check_fused(int64_t seed) {
    side exact, fused;
    const char *where;
    side_open(&exact, seed, &tri_device_ref, TRI_F64, false);
    side_open(&fused, seed, &tri_device_ref, TRI_F64, true);
    op_run_ok(exact.session);
    op_run_ok(fused.session);
    double found = distance(&fused, &exact, &where);
    if (!(found <= 1e-9))
        fail_msg("seed %lld: fused, %s is %.2e from the unfused", (long long)seed, where, found);
    side_close(&fused);
    side_close(&exact);
}

static void chosen(int64_t *first, int64_t *count) {
    const char *wish = getenv("TEST_NETWORKS");
    long long from, many;
    if (!wish || sscanf(wish, "%lld:%lld", &from, &many) != 2) return;
    *first = from;
    *count = many;
}

static void test_gradients(void **state) {
    (void)state;
    int64_t first = 0, count = 40;
    chosen(&first, &count);
    for (int64_t i = 0; i < count; i++) check_gradients(first + i);
}

static void test_fused(void **state) {
    (void)state;
    int64_t first = 0, count = 40;
    chosen(&first, &count);
    for (int64_t i = 0; i < count; i++) check_fused(first + i);
}

static void test_cpu(void **state) {
    (void)state;
    int64_t first = 0, count = 40;
    chosen(&first, &count);
    for (int64_t i = 0; i < count; i++) check_device(first + i, &tri_device_cpu);
}

static void test_cuda(void **state) {
    (void)state;
    int64_t first = 0, count = 8;
    chosen(&first, &count);
    for (int64_t i = 0; i < count; i++) check_device(first + i, &tri_device_cuda);
}

int main(void) {
    test_gpu_choose();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gradients),
                                       cmocka_unit_test(test_fused), cmocka_unit_test(test_cpu),
                                       cmocka_unit_test(test_cuda)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
