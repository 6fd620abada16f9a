// Builds random cases (small graphs) of each op, runs them on a device and on the reference device
// `ref`, the device in plain C, and compares the results. op_compare.h explains families and cases.
#include "support/op_compare.h"

#include "base/philox.h"
#include "device/ref/ref.h"
#include "tensor/half.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

int64_t op_draw(op_case *c, int64_t low, int64_t high) {
    uint32_t word = tri_philox_at(c->seed, 0, 1, c->draws++);
    return low + (int64_t)(word % (uint64_t)(high - low + 1));
}

bool op_chance(op_case *c, int percent) { return op_draw(c, 0, 99) < percent; }

static tri_value source(op_case *c, tri_value value, op_source_kind kind, double low, double high) {
    assert_true(c->source_count < OP_CASE_SOURCES);
    c->sources[c->source_count++] = (op_source){value, kind, low, high};
    return value;
}

static tri_value typed(op_case *c, tri_dtype dtype, tri_shape shape, double low, double high) {
    char name[16];
    snprintf(name, sizeof name, "p%d", c->source_count);
    tri_value value =
        tri_parameter_of_role(c->graph, name, dtype, shape, (tri_init){0}, TRI_ROLE_TRAINED, 0);
    return source(c, value, OP_SOURCE_NUMBERS, low, high);
}

// Returns the value or, if it has images and the case wants them with their channels last, a copy
// in this layout.
static tri_value laid_out(op_case *c, tri_value value) {
    tri_shape shape = tri_value_shape(c->graph, value);
    if (!c->channels_last || shape.rank != 4) return value;
    tri_value copy = tri_node_add(c->graph, &tri_op_reorder, &value, 1, NULL, "");
    c->graph->values[copy.id].layout = (tri_layout){.order = {0, 2, 3, 1}};
    return copy;
}

tri_value op_numbers(op_case *c, tri_shape shape, double low, double high) {
    return laid_out(c, typed(c, c->dtype, shape, low, high));
}

tri_value op_wide(op_case *c, tri_shape shape, double low, double high) {
    return laid_out(c, typed(c, TRI_F32, shape, low, high));
}

tri_value op_double(op_case *c, tri_shape shape, double low, double high) {
    return typed(c, TRI_F64, shape, low, high);
}

tri_value op_labels(op_case *c, tri_shape shape, int64_t classes) {
    return source(c, tri_input(c->graph, "labels", TRI_I64, shape), OP_SOURCE_LABELS, 0,
                  (double)classes);
}

tri_value op_soft_labels(op_case *c, tri_shape shape) {
    return source(c, tri_input(c->graph, "soft", c->dtype, shape), OP_SOURCE_SOFT, 0, 1);
}

tri_value op_tokens(op_case *c, tri_shape shape, int64_t tokens) {
    return source(c, tri_input(c->graph, "ids", TRI_I64, shape), OP_SOURCE_TOKENS, 0,
                  (double)tokens);
}

tri_value op_bytes(op_case *c, tri_shape shape) {
    return source(c, tri_input(c->graph, "bytes", TRI_U8, shape), OP_SOURCE_BYTES, 0, 0);
}

tri_value op_position(op_case *c) {
    return source(c, tri_position(c->graph), OP_SOURCE_POSITION, 0, 0);
}

tri_value op_step_scalars(op_case *c, int update, bool skip) {
    return source(c, tri_scalar(c->graph, TRI_SCALAR_STEP), OP_SOURCE_STEP, update, skip);
}

static void fill_integers(op_session *session, const op_source *s, uint64_t seed) {
    int64_t *numbers = op_host(session, s->value);
    for (int64_t i = 0, count = op_count(session, s->value); i < count; i++) {
        uint32_t word = tri_philox_at(seed, 3, 0, (uint64_t)i);
        if (s->kind == OP_SOURCE_POSITION)
            numbers[i] = word % 100000;
        else if (s->kind == OP_SOURCE_TOKENS)
            numbers[i] = word % (int64_t)s->high;
        else
            numbers[i] = word % 5 == 0 ? TRI_IGNORED_LABEL : word / 5 % (int64_t)s->high;
    }
}

static void fill_soft_labels(op_session *session, const op_case *c, const op_source *s) {
    tri_shape shape = tri_value_shape(c->graph, s->value);
    int64_t classes = shape.dims[shape.rank - 1], count = op_count(session, s->value);
    op_fill(session, s->value, c->seed, 0, 1);
    for (int64_t i = 0; i < count; i++)
        if (tri_philox_at(c->seed, 5, 0, (uint64_t)(i / classes)) % 5 == 0)
            op_set(session, s->value, i, 0);
}

void op_sources_fill(op_session *session, const op_case *c) {
    for (int i = 0; i < c->source_count; i++) {
        const op_source *s = &c->sources[i];
        if (s->kind == OP_SOURCE_NUMBERS) {
            op_fill(session, s->value, c->seed, s->low, s->high);
        } else if (s->kind == OP_SOURCE_SOFT) {
            fill_soft_labels(session, c, s);
        } else if (s->kind == OP_SOURCE_STEP) {
            double *step = op_host(session, s->value);
            step[TRI_STEP_LR] = 0.03;
            step[TRI_STEP_GRADIENT_SCALE] = 0.7;
            step[TRI_STEP_STATISTIC_SCALE] = 0.125;
            step[TRI_STEP_SKIP] = s->high;
            step[TRI_STEP_UPDATE] = s->low;
            step[TRI_STEP_AVERAGE] = (s->low - 1) / 2; // 0, 0.5 or 1
        } else if (s->kind == OP_SOURCE_BYTES) {
            uint8_t *bytes = op_host(session, s->value);
            for (int64_t k = 0, count = op_count(session, s->value); k < count; k++)
                bytes[k] = (uint8_t)tri_philox_at(c->seed, 4, 0, (uint64_t)k);
        } else {
            fill_integers(session, s, c->seed);
        }
    }
    if (tri_value_is(c->graph->scalars[TRI_SCALAR_SEED]))
        op_set(session, c->graph->scalars[TRI_SCALAR_SEED], 0, 0.0625);
}

void op_side_open(op_side *s, const op_family *family, const tri_device_backend *backend,
                  op_side_options options) {
    const char *message = "";
    s->c = (op_case){.graph = op_graph_open(TRI_F32),
                     .dtype = options.dtype,
                     .seed = options.seed,
                     .channels_last = family->channels_last};
    s->c.graph->options.deterministic = options.deterministic;
    family->build(&s->c);
    if (tri_graph_status(s->c.graph, &message) != TRI_OK)
        fail_msg("%s, seed %" PRIu64 ": %s", family->name, options.seed, message);
    s->built = s->c.graph->value_count;
    s->device = op_device_open(backend, options.threads);
    s->session = op_session_open(s->c.graph, s->device, options.in_place);
    op_sources_fill(s->session, &s->c);
}

void op_side_close(op_side *s) {
    op_session_close(s->session);
    s->device->backend->close(s->device);
    op_graph_close(s->c.graph);
}

// Opens a side and runs its graph. False: a kernel failed, and the reason was printed.
static bool open_side(op_side *s, const op_family *family, const tri_device_backend *backend,
                      int threads, tri_dtype dtype, uint64_t seed, bool in_place) {
    op_side_open(
        s, family, backend,
        (op_side_options){.threads = threads, .dtype = dtype, .seed = seed, .in_place = in_place});
    if (op_run(s->session) == TRI_OK) return true;
    tri_graph_print(s->c.graph, stderr);
    fprintf(stderr, "FAILED: %s, %s, seed %" PRIu64 ": %s\n", family->name, tri_dtype_name(dtype),
            seed, tri_error_message());
    return false;
}

// Whether some node that reads this value may have written its output over it, so that the memory
// need not hold the value any more.
static bool taken_over(const op_side *s, tri_value value) {
    for (int i = 0; i < s->c.graph->node_count; i++) {
        const tri_node *node = &s->c.graph->nodes[i];
        int input_number = node->op->in_place;
        if (input_number && node->inputs[input_number - 1].id == value.id) return true;
        if ((node->op->flags & TRI_OP_VIEW) && node->inputs[0].id == value.id) return true;
    }
    return false;
}

static void print_value(const op_family *family, const op_side *ref, tri_value value, int64_t i,
                        double got, double want, double largest) {
    const tri_node *node = tri_value_node(ref->c.graph, value);
    char shape[160];
    tri_shape dims = tri_value_shape(ref->c.graph, value);
    tri_graph_print(ref->c.graph, stderr);
    fprintf(stderr,
            "FAILED: %s, %s, seed %" PRIu64 ": %%%" PRIu32 " of %s, %s, element %" PRId64
            ": device %.9g, ref %.9g (largest %.3g)%s\n",
            family->name, tri_dtype_name(ref->c.dtype), ref->c.seed, value.id,
            node ? node->op->name : "a source", tri_shape_text(&dims, shape, sizeof shape), i, got,
            want, largest,
            isfinite(want) ? "" : "; ref has to be finite: see op_numbers for the inputs' range");
}

// Returns by how much a result may differ. In a half type, the device and `ref` may round a number
// to its two different neighbours, which are one unit in the last place apart: of 8 significant
// bits (BF16) or of 11 (F16).
static double tolerance_of(const op_family *family, const op_side *device, const op_side *ref,
                           tri_dtype dtype) {
    if (ref->c.dtype == TRI_F32) return family->tolerance;
    double rounding = ref->c.dtype == TRI_BF16 ? 0x1p-7 : 0x1p-10;
    if (family->half_tolerance > 0) return family->half_tolerance;
    bool is_gpu = strcmp(device->device->backend->name, "cuda") == 0;
    int roundings = tri_dtype_is_half(dtype) + (is_gpu && family->rounds_on_gpu);
    return family->tolerance + roundings * rounding;
}

// The functions below return whether device and `ref` agree, and print the first value that does
// not.
static bool compare_numbers(const op_family *family, const op_side *device, const op_side *ref,
                            tri_value a, tri_value b) {
    int64_t count = op_count(ref->session, b);
    double tolerance = tolerance_of(family, device, ref, tri_value_get(ref->c.graph, b)->dtype);
    double largest = 0;
    double *got = malloc((size_t)(count + 1) * sizeof *got);
    double *want = malloc((size_t)(count + 1) * sizeof *want);
    op_read(device->session, a, 0, count, got);
    op_read(ref->session, b, 0, count, want);
    for (int64_t i = 0; i < count; i++) largest = fabs(want[i]) > largest ? fabs(want[i]) : largest;
    int64_t i = 0;
    while (i < count && fabs(got[i] - want[i]) <= tolerance * largest + family->rounding + 1e-30)
        i++;
    if (i < count) print_value(family, ref, b, i, got[i], want[i], largest);
    free(got);
    free(want);
    return i == count;
}

static bool compare_value(const op_family *family, const op_side *device, const op_side *ref,
                          tri_value a, tri_value b) {
    tri_dtype dtype = tri_value_get(ref->c.graph, b)->dtype;
    if (tri_dtype_is_float(dtype)) return compare_numbers(family, device, ref, a, b);
    size_t bytes = tri_dtype_bytes(dtype);
    const unsigned char *got = op_host(device->session, a), *want = op_host(ref->session, b);
    for (int64_t i = 0; i < op_count(ref->session, b); i++) {
        const unsigned char *x = got + (size_t)i * bytes, *y = want + (size_t)i * bytes;
        if (memcmp(x, y, bytes) == 0) continue;
        print_value(family, ref, b, i, x[0], y[0], 0);
        return false;
    }
    return true;
}

static bool compare_sides(const op_family *family, const op_side *device, const op_side *ref,
                          bool in_place) {
    int common = ref->built < device->built ? ref->built : device->built;
    bool same = true;
    for (uint32_t id = 1; same && id < (uint32_t)common; id++) {
        tri_value value = {id};
        // A value that tri_pass_sweep has removed has the kind NONE, and no result to compare.
        if (tri_value_get(ref->c.graph, value)->kind == TRI_VALUE_NONE) continue;
        if (in_place && taken_over(device, value)) continue;
        same = compare_value(family, device, ref, value, value);
    }
    for (int i = 0; same && i < ref->c.graph->parameter_count; i++) {
        tri_value a = tri_gradient_of(device->c.graph, i);
        tri_value b = tri_gradient_of(ref->c.graph, i);
        if (tri_value_is(b)) same = compare_value(family, device, ref, a, b);
    }
    return same;
}

// How many outputs this process has computed with a kernel that adds its result to what the
// output's memory holds, as gradients are summed over micro-batches.
static int all_added;

// How often each kernel of the device was chosen.
enum { TALLY_MAX = 128 };
typedef struct tally {
    const tri_kernel_def *defs[TALLY_MAX];
    const tri_op *ops[TALLY_MAX];
    int counts[TALLY_MAX], count;
    int added; // how many outputs kernels added to what the outputs' memory held
} tally;

static void count_kernels(tally *t, const op_side *s) {
    for (int i = 0; i < s->c.graph->node_count; i++) {
        const tri_node *node = &s->c.graph->nodes[i];
        const tri_kernel_def *def = tri_device_select(&s->device->description, s->c.graph, node);
        int k = 0;
        while (k < t->count && (t->defs[k] != def || t->ops[k] != node->op)) k++;
        if (k == TALLY_MAX) continue;
        t->defs[k] = def;
        t->ops[k] = node->op;
        t->counts[k]++;
        if (k == t->count) t->count++;
    }
}

// Builds `rounds` random graphs of the family and compares their results on the device and on
// `ref`. Stops at the first graph on which the two differ, and then returns false.
static bool compare(const op_family *family, const tri_device_backend *backend, int threads,
                    tri_dtype dtype, uint64_t seed, int rounds) {
    tally used = {0};
    bool same = true;
    for (int round = 0; same && round < rounds; round++) {
        op_side device, ref;
        bool in_place = round % 2 == 1;
        uint64_t key = seed + (uint64_t)round;
        same = open_side(&device, family, backend, threads, dtype, key, in_place);
        same = open_side(&ref, family, &tri_device_ref, 1, dtype, key, false) && same;
        same = same && compare_sides(family, &device, &ref, in_place);
        count_kernels(&used, &device);
        used.added += op_added(device.session);
        op_side_close(&device);
        op_side_close(&ref);
    }
    printf("  %s, %s:", family->name, tri_dtype_name(dtype));
    for (int i = 0; i < used.count; i++)
        printf(" %s/%s %d", used.ops[i]->name, used.defs[i]->name, used.counts[i]);
    if (used.added > 0) printf("; %d added", used.added);
    printf("\n");
    all_added += used.added;
    return same;
}

void op_compare_each(const op_family *families, size_t count, const tri_device_backend *backend,
                     int threads, tri_dtype dtype, uint64_t seed, int rounds) {
    int failed = 0;
    for (const op_family *family = families; family < families + count; family++)
        if (!family->any_layout || backend == &tri_device_ref || count == 1)
            failed += !compare(family, backend, threads, dtype, seed, rounds);
    if (failed) fail_msg("%d of %zu kinds of graphs failed: see above", failed, count);
}

void op_compare(const op_family *family, const tri_device_backend *backend, int threads,
                tri_dtype dtype, uint64_t seed, int rounds) {
    op_compare_each(family, 1, backend, threads, dtype, seed, rounds);
}

void op_compare_all(const tri_device_backend *backend, int threads, tri_dtype dtype, uint64_t seed,
                    int rounds) {
    size_t count = 0;
    while (op_families[count].name) count++;
    op_compare_each(op_families, count, backend, threads, dtype, seed, rounds);
    if (strcmp(backend->name, "cuda") == 0) assert_true(all_added > 0);
}

// Sets element 1 of `labels` to a label that is none of 4 classes, and expects the op to refuse it.
static void refuse_at(const tri_device_backend *backend, tri_graph *g, tri_value labels,
                      int64_t label, const tri_op *op, const char *message) {
    tri_device *device = op_device_open(backend, 1);
    op_session *session = op_session_open(g, device, false);
    ((int64_t *)op_host(session, labels))[1] = label;
    if (op_run(session) != TRI_BAD_INPUT)
        fail_msg("%s took label %" PRId64 " of 4 classes", op->name, label);
    assert_non_null(strstr(tri_error_message(), message));
    op_session_close(session);
    device->backend->close(device);
    op_graph_close(g);
}

static void refuse(const tri_device_backend *backend, const tri_op *op, int64_t label) {
    tri_graph *g = op_graph_open(TRI_F32);
    tri_shape scores = tri_shape_of(3, 4);
    tri_nll_loss_grad_attr attr = {.shape = scores, .dtype = TRI_F32};
    tri_value x = tri_input(g, "scores", TRI_F32, scores);
    tri_value labels = tri_input(g, "labels", TRI_I64, tri_shape_of(3));
    tri_value in[3] = {x, labels, tri_scalar(g, TRI_SCALAR_SEED)};
    tri_one_hot_attr hot = {.classes = 4, .dtype = TRI_F32};
    bool is_hot = op == &tri_op_one_hot;
    if (op == &tri_op_nll_loss_grad || is_hot) memmove(in, in + 1, 2 * sizeof *in);
    const void *given = is_hot ? (const void *)&hot : op->attr_bytes ? &attr : NULL;
    tri_node_add(g, op, in, op->input_count, given, "");
    refuse_at(backend, g, labels, label, op, "sample 1");
}

static void refuse_token(const tri_device_backend *backend, const tri_op *op, int64_t token) {
    tri_graph *g = op_graph_open(TRI_F32);
    tri_shape shape = tri_shape_of(4, 2);
    tri_embedding_grad_attr attr = {.shape = shape};
    tri_value ids = tri_input(g, "ids", TRI_I64, tri_shape_of(4));
    // "numbers" is the embedding's weight or, for its gradient op, the gradient of its output.
    tri_value in[2] = {ids, tri_input(g, "numbers", TRI_F32, shape)};
    tri_node_add(g, op, in, 2, op == &tri_op_embedding ? NULL : (void *)&attr, "");
    refuse_at(backend, g, ids, token, op, "position 1");
}

// An index of 4 elements, whether they are taken or put there.
static void refuse_index(const tri_device_backend *backend, const tri_op *op, int64_t index) {
    tri_graph *g = op_graph_open(TRI_F32);
    tri_shape shape = tri_shape_of(4, 2);
    tri_scatter_attr attr = {.kind = TRI_SCATTER_ADD, .shape = shape};
    tri_value in[2] = {tri_input(g, "index", TRI_I64, shape),
                       tri_input(g, "numbers", TRI_F32, shape)};
    tri_node_add(g, op, in, 2, op == &tri_op_gather ? NULL : (void *)&attr, "");
    refuse_at(backend, g, in[0], index, op, "position 1");
}

void op_compare_bad_labels(const tri_device_backend *backend) {
    static const tri_op *const ops[] = {&tri_op_nll_loss,      &tri_op_nll_loss_grad,
                                        &tri_op_cross_entropy, &tri_op_cross_entropy_grad,
                                        &tri_op_accuracy,      &tri_op_one_hot};
    static const int64_t labels[] = {4, -1, -99, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        for (size_t k = 0; k < sizeof labels / sizeof *labels; k++)
            refuse(backend, ops[i], labels[k]);
    for (size_t k = 0; k < sizeof labels / sizeof *labels; k++) {
        refuse_token(backend, &tri_op_embedding, labels[k]);
        refuse_token(backend, &tri_op_embedding_grad_weight, labels[k]);
        refuse_index(backend, &tri_op_gather, labels[k]);
        refuse_index(backend, &tri_op_scatter, labels[k]);
    }
}
