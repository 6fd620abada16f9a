// Tensor parallelism against the same model on one rank: losses, metrics and every gradient, on
// `ref` in F64, with the ranks' exchanges over shared memory.
#include "base/philox.h"
#include "comm_ranks.h"
#include "device/ref/ref.h"
#include "pass/pass.h"
#include "support/op_session.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <trireme/nn.h>

#include <cmocka.h>

static const double tolerance = 1e-9; // relative, of sums in F64 in another order

typedef struct test_case {
    const char *name;
    void (*build)(tri_graph *g);
    const char *layers; // strategy.tensor; NULL: as annotated
    bool sequence;
    int ranks[4]; // 0 ends
} test_case;

enum { SAMPLES = 2, TOKENS = 8, WIDTH = 16, HEADS = 4, HEAD = 4, VOCABULARY = 24 };

static tri_value image_input(tri_graph *g) {
    return tri_input(g, "inputs", TRI_F64, tri_shape_of(SAMPLES, 3, 4, 2));
}

static void classify(tri_graph *g, tri_value scores) {
    tri_shape labels = tri_value_shape(g, scores);
    labels.rank--;
    tri_loss(g, tri_cross_entropy(g, scores, tri_input(g, "labels", TRI_I64, labels)));
}

// As mnist-cnn ends: dropout between a column layer and a row layer, both with biases.
static void build_mlp(tri_graph *g) {
    tri_block(g, "fc1");
    tri_value x = tri_relu(g, tri_linear(g, "fc1", tri_flatten(g, image_input(g)), 12));
    tri_split_layer(g, "fc1", TRI_SPLIT_COLUMN);
    x = tri_dropout(g, "dropout2", x, 0.5);
    tri_block(g, "fc2");
    x = tri_leaky_relu(g, tri_linear(g, "fc2", x, 10), 0.1);
    tri_split_layer(g, "fc2", TRI_SPLIT_ROW);
    tri_block(g, "fc3");
    classify(g, tri_log_softmax(g, tri_linear(g, "fc3", x, 8)));
}

static tri_value weight(tri_graph *g, const char *layer, const char *name, tri_shape shape) {
    return tri_parameter(g, tri_arena_printf(g->arena, "%s.%s", layer, name), shape, (tri_init){0});
}

static tri_value projection(tri_graph *g, const char *layer, tri_value x, int64_t features,
                            tri_split split) {
    tri_shape shape = tri_value_shape(g, x);
    tri_linear_attr attr = {.axes = 1};
    tri_value w = weight(g, layer, "weight", tri_shape_of(features, shape.dims[shape.rank - 1]));
    x = tri_node_add(g, &tri_op_linear, (tri_value[]){x, w}, 2, &attr, layer);
    tri_split_layer(g, layer, split);
    return x;
}

static tri_value rms_norm(tri_graph *g, const char *layer, tri_value x) {
    tri_norm_attr attr = {.eps = 1e-5};
    tri_value w = weight(g, layer, "weight", tri_shape_of(WIDTH));
    return tri_node_add(g, &tri_op_rms_norm, (tri_value[]){x, w}, 2, &attr, layer);
}

static tri_value layer_norm(tri_graph *g, const char *layer, tri_value x) {
    tri_norm_attr attr = {.eps = 1e-5};
    tri_value w = weight(g, layer, "weight", tri_shape_of(WIDTH));
    tri_value b = weight(g, layer, "bias", tri_shape_of(WIDTH));
    return tri_node_add(g, &tri_op_layer_norm, (tri_value[]){x, w, b}, 3, &attr, layer);
}

static tri_value heads(tri_graph *g, tri_value x, int64_t count, bool rotate) {
    x = tri_reshape(g, x, tri_shape_of(SAMPLES, TOKENS, count, HEAD));
    tri_rotary_attr attr = {.theta = 100, .first = 1};
    return rotate ? tri_node_add(g, &tri_op_rotary, &x, 1, &attr, "") : x;
}

static tri_value attend(tri_graph *g, tri_value q, tri_value k, tri_value v) {
    tri_attention_attr attr = {.scale = 0.5, .causal = true};
    tri_value y = tri_node_add(g, &tri_op_attention, (tri_value[]){q, k, v}, 3, &attr, "attention");
    return tri_reshape(g, y, tri_shape_of(SAMPLES, TOKENS, HEADS * HEAD));
}

static tri_value embed(tri_graph *g, tri_value ids, const char *layer) {
    tri_value w = weight(g, layer, "weight", tri_shape_of(VOCABULARY, WIDTH));
    tri_value x = tri_node_add(g, &tri_op_embedding, (tri_value[]){ids, w}, 2, NULL, layer);
    tri_split_layer(g, layer, TRI_SPLIT_COLUMN);
    return x;
}

static void predict(tri_graph *g, tri_value scores, tri_value ids) {
    tri_value labels = tri_node_add(g, &tri_op_next_token, &ids, 1, NULL, "");
    tri_loss(g, tri_cross_entropy(g, scores, labels));
}

// Two layers of Llama, with `keys` heads of keys and values.
static void build_llama(tri_graph *g, int64_t keys, const char *head) {
    tri_block(g, "embed");
    tri_value ids = tri_input(g, "input_ids", TRI_I64, tri_shape_of(SAMPLES, TOKENS));
    tri_value x = embed(g, ids, "embed_tokens");
    for (int i = 0; i < 2; i++) {
        char name[8][24];
        static const char *const parts[] = {"norm1", "q", "k", "v", "o", "norm2", "gate", "down"};
        for (int k = 0; k < 8; k++) snprintf(name[k], sizeof name[k], "layers.%d.%s", i, parts[k]);
        char up[32], block[32];
        snprintf(up, sizeof up, "layers.%d.up", i);
        snprintf(block, sizeof block, "layers.%d", i);
        tri_block(g, block);
        tri_value h = rms_norm(g, name[0], x);
        tri_value q =
            heads(g, projection(g, name[1], h, HEADS * HEAD, TRI_SPLIT_COLUMN), HEADS, true);
        tri_value k =
            heads(g, projection(g, name[2], h, keys * HEAD, TRI_SPLIT_COLUMN), keys, true);
        tri_value v =
            heads(g, projection(g, name[3], h, keys * HEAD, TRI_SPLIT_COLUMN), keys, false);
        h = projection(g, name[4], attend(g, q, k, v), WIDTH, TRI_SPLIT_ROW);
        x = tri_add(g, x, tri_dropout(g, name[4], h, 0.25));
        h = rms_norm(g, name[5], x);
        tri_value gate = projection(g, name[6], h, 32, TRI_SPLIT_COLUMN);
        h = tri_node_add(g, &tri_op_silu_mul,
                         (tri_value[]){gate, projection(g, up, h, 32, TRI_SPLIT_COLUMN)}, 2, NULL,
                         "");
        x = tri_add(g, x,
                    projection(g, name[7], tri_dropout(g, up, h, 0.25), WIDTH, TRI_SPLIT_ROW));
    }
    tri_block(g, "head");
    x = projection(g, head, rms_norm(g, "norm", x), VOCABULARY, TRI_SPLIT_COLUMN);
    predict(g, x, ids);
}

static void build_llama_many(tri_graph *g) { build_llama(g, HEADS, "lm_head"); }
static void build_llama_grouped(tri_graph *g) { build_llama(g, 2, "lm_head"); }
static void build_llama_one(tri_graph *g) { build_llama(g, 1, "lm_head"); }
static void build_llama_tied(tri_graph *g) { build_llama(g, 2, "embed_tokens"); }

// A layer of GPT-2: layer norm, biases, GELU.
static void build_gpt(tri_graph *g) {
    tri_block(g, "embed");
    tri_value ids = tri_input(g, "input_ids", TRI_I64, tri_shape_of(SAMPLES, TOKENS));
    tri_value x = embed(g, ids, "wte");
    tri_block(g, "h.0");
    tri_value h = layer_norm(g, "ln_1", x), qkv[3];
    static const char *const names[] = {"q", "k", "v"};
    for (int i = 0; i < 3; i++) {
        qkv[i] = heads(g, tri_linear(g, names[i], h, HEADS * HEAD), HEADS, false);
        tri_split_layer(g, names[i], TRI_SPLIT_COLUMN);
    }
    h = tri_linear(g, "c_proj", attend(g, qkv[0], qkv[1], qkv[2]), WIDTH);
    tri_split_layer(g, "c_proj", TRI_SPLIT_ROW);
    x = tri_add(g, x, h);
    h = tri_linear(g, "mlp.c_fc", layer_norm(g, "ln_2", x), 4 * WIDTH);
    tri_split_layer(g, "mlp.c_fc", TRI_SPLIT_COLUMN);
    h = tri_node_add(g, &tri_op_gelu, &h, 1, &(tri_gelu_attr){true}, "");
    h = tri_linear(g, "mlp.c_proj", h, WIDTH);
    tri_split_layer(g, "mlp.c_proj", TRI_SPLIT_ROW);
    x = layer_norm(g, "ln_f", tri_linear(g, "mix", tri_add(g, x, h), WIDTH));
    predict(g, projection(g, "head", x, VOCABULARY, TRI_SPLIT_NONE), ids);
}

static const test_case cases[] = {
    {"mlp", build_mlp, NULL, false, {2, 3, 4}},
    {"mlp, one column", build_mlp, "{fc2: none, fc3: column}", false, {2, 4}},
    {"mlp, rows", build_mlp, "{fc1: row, fc3: row, 'fc2': none}", false, {2}},
    {"llama", build_llama_many, NULL, false, {2, 4}},
    {"llama, sequence", build_llama_many, NULL, true, {2, 4}},
    {"llama, 2 heads of keys", build_llama_grouped, NULL, false, {2, 4}},
    {"llama, 2 heads, sequence", build_llama_grouped, NULL, true, {4}},
    {"llama, 1 head of keys", build_llama_one, NULL, true, {2, 4}},
    {"llama, tied", build_llama_tied, NULL, true, {2, 4}},
    {"llama, without mlp",
     build_llama_many,
     "{'layers.?.gate': none, '*.up': none, '*.down': none}",
     true,
     {2}},
    {"llama, mlp only",
     build_llama_many,
     "{'*': none, '*.gate': column, '*.up': column, '*.down': row, 'norm*': none}",
     true,
     {2}},
    {"gpt", build_gpt, NULL, false, {2}},
    {"gpt, sequence", build_gpt, NULL, true, {2, 4}},
};

static tri_graph *build(const test_case *test, bool training) {
    tri_graph_options options = {.seed = 7, .training = training, .dtype = TRI_F64};
    tri_graph *g = tri_graph_create(NULL, &options);
    test->build(g);
    const char *message = "";
    if (tri_graph_status(g, &message) != TRI_OK) fprintf(stderr, "%s: %s\n", test->name, message);
    CHECK_OK(tri_graph_verify(g));
    return g;
}

typedef struct run {
    tri_graph *graph;
    tri_device *device;
    op_session *session;
} run;

static void fill(run *r) {
    const tri_graph *g = r->graph;
    for (int i = 0; i < g->parameter_count; i++) {
        const tri_parameter_info *p = &g->parameters[i];
        uint64_t key = tri_philox_key(1, p->name);
        for (int64_t k = 0; k < op_count(r->session, p->value); k++) {
            int64_t whole = tri_parameter_full_index(&p->part, &p->shape, k);
            op_set(r->session, p->value, k,
                   (double)tri_philox_init_uniform(key, (uint64_t)whole, -0.5f, 0.7f));
        }
    }
    for (int i = 0; i < g->input_count; i++) {
        tri_value value = g->inputs[i].value;
        uint64_t key = tri_philox_key(2, g->inputs[i].name);
        for (int64_t k = 0; k < op_count(r->session, value); k++) {
            uint32_t word = tri_philox_at(key, 0, 0, (uint64_t)k);
            if (tri_value_get(g, value)->dtype == TRI_F64)
                op_set(r->session, value, k, (double)tri_philox_uniform(word) - 0.5);
            else
                ((int64_t *)op_host(r->session, value))[k] = word % 8;
        }
    }
    if (g->options.training) op_set(r->session, g->scalars[TRI_SCALAR_SEED], 0, 0.125);
}

static run start(tri_graph *g, tri_comm *comm, const char *name) {
    tri_status status = g->options.training ? tri_pass_autodiff(g) : TRI_OK;
    if (status != TRI_OK) fprintf(stderr, "%s: %s\n", name, tri_error_message());
    CHECK_OK(status);
    run r = {.graph = g, .device = op_device_open(&tri_device_ref, 1)};
    r.session = op_session_open(g, r.device, false);
    if (comm) op_session_join(r.session, comm);
    fill(&r);
    CHECK_OK(op_run(r.session));
    return r;
}

static void stop(run *r) {
    op_session_close(r->session);
    r->device->backend->close(r->device);
    tri_graph_destroy(r->graph);
}

// The sum of what all blocks add to a parameter's gradient.
static double *gradient_of(const run *r, int parameter) {
    const tri_graph *g = r->graph;
    int64_t count = tri_shape_count(&g->parameters[parameter].shape);
    double *sum = calloc((size_t)count + 1, sizeof *sum);
    for (int i = 0; i < g->gradient_count; i++) {
        if (g->gradients[i].parameter != parameter) continue;
        for (int64_t k = 0; k < count; k++) sum[k] += op_get(r->session, g->gradients[i].value, k);
    }
    return sum;
}

static void near(const char *name, const char *what, int64_t at, double got, double want) {
    if (fabs(got - want) <= tolerance * (1 + fabs(want))) return;
    fprintf(stderr, "%s: %s[%lld] is %.15g, not %.15g\n", name, what, (long long)at, got, want);
    _exit(1);
}

static void compare(const test_case *test, tri_comm *comm, run *one, run *part) {
    const tri_graph *a = one->graph, *b = part->graph;
    CHECK(a->metric_count == b->metric_count && a->parameter_count == b->parameter_count);
    for (int i = 0; i < a->metric_count; i++)
        for (int k = 0; k < 2 && tri_value_is(a->metrics[i].value); k++)
            near(test->name, a->metrics[i].name, k, op_get(part->session, b->metrics[i].value, k),
                 op_get(one->session, a->metrics[i].value, k));
    bool divided = false, moved = !a->options.training;
    for (int i = 0; i < a->parameter_count; i++) {
        const tri_parameter_info *p = &b->parameters[i];
        double *want = gradient_of(one, i), *got = gradient_of(part, i);
        int64_t count = tri_shape_count(&p->shape);
        if (p->partial_over_tensor) {
            tri_comm_op op = {.dtype = TRI_F64, .count = count, .send = got, .recv = got};
            CHECK_OK(tri_comm_run(comm, &op));
        }
        for (int64_t k = 0; k < count; k++) {
            double whole = want[tri_parameter_full_index(&p->part, &p->shape, k)];
            near(test->name, p->name, k, got[k], whole);
            moved = moved || whole != 0;
        }
        divided = divided || p->part.parts == comm->size;
        free(want);
        free(got);
    }
    CHECK(divided && moved);
}

static void rank_body(tri_comm *comm, ranks_table *table, void *argument) {
    const test_case *test = argument;
    tri_arena *arena = tri_arena_create(NULL, "test");
    tri_tree *layers = NULL;
    if (test->layers)
        CHECK_OK(tri_yaml_parse_value(arena, test->layers, "strategy.tensor", &layers));
    tri_tensor_options options = {.layers = layers, .sequence_parallel = test->sequence};
    tri_mesh mesh = {.size = {1, 1, 1, comm->size}, .ranks = comm->size};
    for (int training = 0; training < 2; training++) {
        tri_graph *graph = build(test, training), *local;
        tri_status status = tri_pass_tensor(NULL, graph, &mesh, comm->rank, &options, &local);
        if (status != TRI_OK) fprintf(stderr, "%s: %s\n", test->name, tri_error_message());
        CHECK_OK(status);
        run one = start(graph, NULL, test->name), part = start(local, comm, test->name);
        compare(test, comm, &one, &part);
        stop(&one);
        stop(&part);
    }
    tri_arena_destroy(arena);
}

static void test_ranks(void **state) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int k = 0; k < 4 && cases[i].ranks[k]; k++) {
            test_case test = cases[i];
            int bad = ranks_run(test.ranks[k], NULL, rank_body, &test);
            if (bad) fail_msg("%s on %d ranks: %d failed", test.name, test.ranks[k], bad);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ranks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
