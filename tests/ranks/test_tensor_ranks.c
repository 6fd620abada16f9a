// Compares models with tensor parallelism, or with batch norm over replicas, with the same models
// on one rank: losses, metrics and every gradient, on the reference device `ref` in F64. The ranks
// are processes that share memory. A tensor-parallel rank has a slice of each parameter of a layer
// that is split; a replica has a micro-batch of its own.
#include "base/philox.h"
#include "device/ref/ref.h"
#include "nn/models/models.h"
#include "pass/pass.h"
#include "support/comm_ranks.h"
#include "support/model_options.h"
#include "support/op_session.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <trireme/functions.h>
#include <trireme/nn.h>
#include <trireme/transformer.h>

#include <cmocka.h>

// The relative tolerance. Results differ by rounding in F64, because ranks sum in another order.
static const double tolerance = 1e-9;

typedef struct test_case {
    const char *name;
    void (*build)(tri_graph *g);
    const char *layers; // strategy.tensor; NULL: layers are split as `build` sets it
    bool sequence;
    int keys; // the number of heads of keys and values, for Llama
    bool tied;
    const char *more;    // further options of Llama, behind a comma
    const char *options; // of a model other than Llama
    int ranks[4];        // the numbers of ranks to run with; 0 ends the list
    bool is_local;       // no rank gathers a value in the forward pass
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

// Builds the last layers of the model mnist-cnn: dropout between a layer that is split by columns
// and one that is split by rows, both with biases.
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

static tri_value input_ids(tri_graph *g) {
    return tri_input(g, "input_ids", TRI_I64, tri_shape_of(SAMPLES, TOKENS));
}

static void build_llama(tri_graph *g) {
    tri_model_llama.build(g, &(tri_batch){.size = SAMPLES, .input_ids = input_ids(g)});
}

static tri_value split_linear(tri_graph *g, const char *name, tri_value x, int64_t features,
                              tri_split split) {
    x = tri_linear(g, name, x, features);
    tri_split_layer(g, name, split);
    return x;
}

// A layer of GPT-2 (layer norm, biases, GELU) between two linear layers that are not sliced, and an
// embedding that is split by columns.
static void build_gpt(tri_graph *g) {
    static const char *const names[] = {"q", "k", "v"};
    tri_shape by_head = tri_shape_of(SAMPLES, TOKENS, HEADS, HEAD);
    tri_block(g, "embed");
    tri_value ids = input_ids(g), qkv[3];
    tri_embedding_options table = {.tokens = VOCABULARY, .features = WIDTH};
    tri_value x = tri_embedding(g, "wte", ids, table);
    tri_split_layer(g, "wte", TRI_SPLIT_COLUMN);
    x = tri_linear(g, "mix", x, WIDTH);
    tri_block(g, "h.0");
    tri_value h = tri_layer_norm(g, "ln_1", x, (tri_layer_norm_options){0});
    for (int i = 0; i < 3; i++)
        qkv[i] =
            tri_reshape(g, split_linear(g, names[i], h, HEADS * HEAD, TRI_SPLIT_COLUMN), by_head);
    h = tri_attention(g, "attn", qkv[0], qkv[1], qkv[2], (tri_attention_options){.causal = true});
    h = tri_reshape(g, h, tri_shape_of(SAMPLES, TOKENS, HEADS * HEAD));
    x = tri_add(g, x, split_linear(g, "c_proj", h, WIDTH, TRI_SPLIT_ROW));
    h = tri_layer_norm(g, "ln_2", x, (tri_layer_norm_options){0});
    h = tri_gelu_tanh(g, split_linear(g, "mlp.c_fc", h, 4 * WIDTH, TRI_SPLIT_COLUMN));
    x = tri_add(g, x, split_linear(g, "mlp.c_proj", h, WIDTH, TRI_SPLIT_ROW));
    tri_block(g, "head");
    x = tri_layer_norm(g, "ln_f", x, (tri_layer_norm_options){.plain = true});
    x = tri_linear(g, "head", x, VOCABULARY);
    tri_loss(g, tri_cross_entropy(g, x, tri_next_token(g, ids)));
}

// Self-attention whose queries, keys and values are one layer, taken apart by chunks, by a reshape,
// or in part behind a function of all of them; then a gated product of two halves of a layer.
static void build_fused(tri_graph *g) {
    tri_shape by_head = tri_shape_of(SAMPLES, TOKENS, HEADS, HEAD);
    tri_block(g, "first");
    tri_value x = tri_input(g, "inputs", TRI_F64, tri_shape_of(SAMPLES, TOKENS, WIDTH)), in[3];
    for (int way = 0; way < 3; way++) {
        const char *qkv = tri_name(g, "qkv%d", way), *out = tri_name(g, "o%d", way);
        tri_value y = tri_linear(g, qkv, x, 3 * WIDTH), z;
        tri_split_fused_layer(g, qkv, 3);
        if (way == 1) y = tri_reshape(g, y, tri_shape_of(SAMPLES, TOKENS, 3, HEADS, HEAD));
        if (way == 2) y = tri_tanh(g, y);
        for (int i = 0; i < 3; i++) in[i] = tri_reshape(g, tri_chunk(g, y, 2, 3, i), by_head);
        if (way == 2) {
            z = tri_slice(g, y, 2, WIDTH, 3 * WIDTH, 1);
            for (int i = 1; i < 3; i++)
                in[i] = tri_reshape(g, tri_chunk(g, z, 2, 2, i - 1), by_head);
        }
        y = tri_attention(g, tri_name(g, "attention%d", way), in[0], in[1], in[2],
                          (tri_attention_options){.dropout = way ? 0.2 : 0});
        y = split_linear(g, out, tri_reshape(g, y, tri_shape_of(SAMPLES, TOKENS, WIDTH)), WIDTH,
                         TRI_SPLIT_ROW);
        x = tri_add(g, x, y);
    }
    x = tri_linear(g, "gate", x, 2 * WIDTH);
    tri_split_fused_layer(g, "gate", 2);
    classify(g, split_linear(g, "down", tri_glu(g, x, 2), 8, TRI_SPLIT_ROW));
}

// A fused layer's output beside a parameter, what every rank has, and a column layer's output.
static void build_fused_others(tri_graph *g) {
    tri_block(g, "layer");
    tri_value x = tri_input(g, "inputs", TRI_F64, tri_shape_of(SAMPLES, TOKENS, WIDTH));
    tri_value w = tri_parameter(g, "w", tri_shape_of(3 * WIDTH),
                                (tri_init){.kind = TRI_INIT_NORMAL, .std = 1});
    tri_value all = tri_linear(g, "all", x, 3 * WIDTH),
              column = split_linear(g, "column", x, 3 * WIDTH, TRI_SPLIT_COLUMN);
    x = tri_linear(g, "qkv", x, 3 * WIDTH);
    tri_split_fused_layer(g, "qkv", 3);
    x = tri_map(g, "x, w, a, c -> x * w + a * x + c * x * x", x, w, all, column);
    classify(g, tri_linear(g, "head", x, 8));
}

// Ops that work on whole rows, or on a view across the parts, gather a fused layer's output.
static void build_fused_whole(tri_graph *g) {
    tri_block(g, "first");
    tri_value x = tri_input(g, "inputs", TRI_F64, tri_shape_of(SAMPLES, TOKENS, WIDTH));
    x = tri_linear(g, "qkv", x, 3 * WIDTH);
    tri_split_fused_layer(g, "qkv", 3);
    tri_value y = tri_layer_norm(g, "norm", x, (tri_layer_norm_options){0});
    y = tri_add(g, y, tri_dropout(g, "drop", x, 0.25));
    y = tri_add(g, tri_slice(g, y, 2, 4, 4 + WIDTH, 1), tri_slice(g, x, 2, 2, 2 + WIDTH, 1));
    classify(g, split_linear(g, "down", y, 8, TRI_SPLIT_ROW));
}

// A transformer of PyTorch, with dropout and a mask. Attention to the encoder's output is whole.
static void build_transformer(tri_graph *g) {
    tri_transformer_options o = {.heads = HEADS, .feedforward = 24, .dropout = 0.1};
    tri_block(g, "first");
    tri_value x = tri_input(g, "inputs", TRI_F64, tri_shape_of(SAMPLES, TOKENS, WIDTH));
    o.mask = tri_input(g, "mask", TRI_F64, tri_shape_of(SAMPLES, 1, TOKENS, TOKENS));
    tri_value memory = tri_transformer_encoder(g, "encoder", x, 2, true, o);
    o = (tri_transformer_options){.heads = HEADS, .feedforward = 24, .causal = true, .gelu = true};
    classify(g, tri_transformer_decoder(g, "decoder", x, memory, 1, false, o));
}

static void build_gpt2(tri_graph *g) {
    tri_model_gpt2.build(g, &(tri_batch){.size = SAMPLES, .input_ids = input_ids(g)});
}

static void build_vit(tri_graph *g) {
    tri_batch batch = {.size = SAMPLES,
                       .images = tri_input(g, "images", TRI_F64, tri_shape_of(SAMPLES, 3, 8, 8)),
                       .labels = tri_input(g, "labels", TRI_I64, tri_shape_of(SAMPLES))};
    tri_model_vit.build(g, &batch);
}

static void build_weather(tri_graph *g) {
    tri_batch batch = {.size = SAMPLES,
                       .inputs = tri_input(g, "inputs", TRI_F64, tri_shape_of(SAMPLES, 3, 8, 4)),
                       .targets = tri_input(g, "targets", TRI_F64, tri_shape_of(SAMPLES, 2, 8, 4))};
    tri_model_weather_vit.build(g, &batch);
}

#define GPT2 "{n_positions: 9, n_embd: 16, n_layer: 2, n_head: 4, n_inner: 24, vocab_size: "

// Functions of elements, sums, products and norms of what a layer that is split by columns makes,
// with weights and values that all ranks have: each rank computes them on its columns alone. With
// slices of the sequence, some follow on what a layer that is split by rows makes.
static void build_functions(tri_graph *g) {
    tri_init init = {.kind = TRI_INIT_ONES};
    const int turned[] = {0, 2, 1}, by_head[] = {0, 2, 1, 3};
    tri_block(g, "first");
    tri_value x = tri_input(g, "inputs", TRI_F64, tri_shape_of(SAMPLES, TOKENS, WIDTH));
    tri_value mix = tri_softmax(g, tri_linear(g, "mix", x, TOKENS), -1), halves[2];
    tri_value w = tri_parameter(g, "w", tri_shape_of(WIDTH), init);
    tri_value s = tri_parameter(g, "s", tri_shape_of(1), init);
    x = split_linear(g, "a", x, WIDTH, TRI_SPLIT_COLUMN);
    x = tri_map(g, "x, w, s -> w * x * exp(-s * x * x)", x, w, s);
    x = tri_sub(g, x, tri_mean(g, x, (int[]){1}, 1, true));
    x = tri_matmul(g, mix, x);
    x = tri_add(g, x, tri_softmax(g, x, 1));
    x = tri_permute(g, x, turned);
    x = tri_group_norm(g, "norm", x, (tri_group_norm_options){.groups = 4});
    for (int i = 0; i < 2; i++) halves[i] = tri_slice(g, x, 2, i * 4, i * 4 + 4, 1);
    x = tri_concat(g, (tri_value[]){halves[1], halves[0]}, 2, 2);
    x = tri_permute(g, tri_matmul(g, x, mix), turned);
    x = tri_permute(g, tri_reshape(g, x, tri_shape_of(SAMPLES, TOKENS, HEADS, HEAD)), by_head);
    x = tri_matmul(g, tri_softmax(g, tri_matmul(g, x, tri_transpose(g, x, 2, 3)), -1), x);
    x = tri_reshape(g, tri_permute(g, x, by_head), tri_shape_of(SAMPLES, TOKENS, WIDTH));
    tri_block(g, "second");
    x = split_linear(g, "b", x, WIDTH, TRI_SPLIT_ROW);
    x = tri_add(g, tri_map(g, "x, w, s -> x * w - s", x, w, s), tri_log_softmax(g, x));
    classify(g, tri_matmul(g, x, tri_transpose(g, x, 1, 2)));
}

static const test_case cases[] = {
    {"functions", build_functions, .ranks = {2, 4}, .is_local = true},
    {"functions, sequence", build_functions, .sequence = true, .ranks = {2, 4}},
    {"mlp", build_mlp, .ranks = {2, 3, 4}},
    {"mlp, one column", build_mlp, "{fc2: none, fc3: column}", .ranks = {2, 4}},
    {"mlp, rows", build_mlp, "{fc1: row, fc3: row, 'fc2': none}", .ranks = {2}},
    {"llama", build_llama, .keys = HEADS, .ranks = {2, 4}},
    {"llama, sequence", build_llama, .keys = HEADS, .sequence = true, .ranks = {2, 4}},
    {"llama, 2 heads of keys", build_llama, .keys = 2, .ranks = {2, 4}},
    {"llama, 2 heads, sequence", build_llama, .keys = 2, .sequence = true, .ranks = {4}},
    {"llama, 1 head of keys", build_llama, .keys = 1, .sequence = true, .ranks = {2, 4}},
    {"llama, tied", build_llama, .keys = 2, .sequence = true, .tied = true, .ranks = {2, 4}},
    {"llama as Qwen3", build_llama, .keys = 2, .more = ", qk_norm: true", .ranks = {2, 4}},
    {"llama, attention dropout", build_llama, .keys = 2, .more = ", attention_dropout: 0.3",
     .ranks = {2}},
    {"llama as Mistral", build_llama, .keys = 2, .more = ", sliding_window: 3", .ranks = {2, 4}},
    {"llama as Qwen2", build_llama, .keys = 2, .more = ", qkv_bias: true, mlp_bias: true",
     .ranks = {2, 4}},
    {"llama, attention only", build_llama, "{'*.mlp.*': none}", true, HEADS, .ranks = {2}},
    {"llama, mlp only", build_llama, "{'*.self_attn.*': none, 'model.embed*': none, lm_head: none}",
     true, HEADS, .ranks = {2}},
    {"fused", build_fused, .ranks = {2, 4}, .is_local = true},
    {"fused, sequence", build_fused, .sequence = true, .ranks = {2, 4}},
    {"fused, whole", build_fused_whole, .ranks = {2, 4}},
    {"fused, with others", build_fused_others, .ranks = {2, 4}},
    {"transformer", build_transformer, .ranks = {2, 4}, .is_local = true},
    {"gpt2", build_gpt2, .ranks = {2, 4}, .is_local = true, .options = GPT2 "23}"},
    {"gpt2, sequence", build_gpt2, .sequence = true, .ranks = {2, 4}, .options = GPT2 "24}"},
    {"gpt2, untied", build_gpt2, .ranks = {2},
     .options = GPT2 "24, tie_word_embeddings: false, activation_function: relu}"},
    {"vit", build_vit, .ranks = {2, 4}, .is_local = true,
     .options = "{image_size: 8, patch_size: 4, num_layers: 2, num_heads: 4, hidden_dim: 16, "
                "mlp_dim: 32, num_classes: 8, dropout: 0.1, attention_dropout: 0.2}"},
    {"weather-vit", build_weather, .ranks = {2, 4}, .is_local = true,
     .options = "{img_size: [8, 4], patch_size: 2, n_in_channels: 3, n_out_channels: 2, "
                "embed_dim: 16, depth: 2, num_heads: 4, mlp_ratio: 2, dropout: 0.1}"},
    {"gpt", build_gpt, .ranks = {2}},
    {"gpt, sequence", build_gpt, .sequence = true, .ranks = {2, 4}},
};

static tri_graph *checked(tri_graph *g, const char *name) {
    const char *message = "";
    if (tri_graph_status(g, &message) != TRI_OK) fprintf(stderr, "%s: %s\n", name, message);
    CHECK_OK(tri_graph_verify(g));
    return g;
}

static tri_graph *build(const test_case *test, bool training) {
    tri_graph_options options = {.seed = 7, .training = training, .dtype = TRI_F64};
    tri_graph *g = tri_graph_create(NULL, &options);
    g->options.model_options = model_options(
        g->arena,
        "{vocab_size: %d, hidden_size: %d, intermediate_size: 32, num_hidden_layers: 2, "
        "num_attention_heads: %d, num_key_value_heads: %d, rope_theta: 100, attention_bias: %s, "
        "dropout: 0.25, tie_word_embeddings: %s%s}",
        VOCABULARY, WIDTH, HEADS, (int)test->keys, test->keys == HEADS ? "true" : "false",
        test->tied ? "true" : "false", test->more ? test->more : "");
    if (test->options) g->options.model_options = model_options(g->arena, "%s", test->options);
    test->build(g);
    return checked(g, test->name);
}

typedef struct run {
    tri_graph *graph;
    tri_device *device;
    op_session *session;
} run;

// Fills the parameters and the graph's inputs with random numbers. An element of a parameter, and a
// sample of the step, has the same numbers on every number of ranks: each rank gets those of its
// slices and of its samples, of which sample `first` of the step is the first.
static void fill(run *r, int64_t first) {
    const tri_graph *g = r->graph;
    for (int i = 0; i < g->parameter_count; i++) {
        const tri_parameter_info *p = &g->parameters[i];
        uint64_t key = tri_philox_key(1, p->name);
        for (int64_t k = 0; k < op_count(r->session, p->value); k++) {
            int64_t whole = tri_parameter_full_index(&p->slice, &p->shape, k);
            op_set(r->session, p->value, k,
                   (double)tri_philox_init_uniform(key, (uint64_t)whole, -0.5f, 0.7f));
        }
    }
    for (int i = 0; i < g->input_count; i++) {
        tri_value value = g->inputs[i].value;
        tri_shape shape = tri_value_shape(g, value);
        uint64_t key = tri_philox_key(2, g->inputs[i].name);
        int64_t skip = first * tri_shape_count(&shape) / shape.dims[0];
        if (!strcmp(g->inputs[i].name, "position")) {
            memcpy(op_host(r->session, value), (int64_t[]){3, first}, 2 * sizeof first);
            continue;
        }
        for (int64_t k = 0; k < op_count(r->session, value); k++) {
            uint32_t word = tri_philox_at(key, 0, 0, (uint64_t)(k + skip));
            if (tri_value_get(g, value)->dtype == TRI_F64)
                op_set(r->session, value, k, (double)tri_philox_uniform(word) - 0.5);
            else
                ((int64_t *)op_host(r->session, value))[k] = word % 8;
        }
    }
    if (g->options.training) op_set(r->session, g->scalars[TRI_SCALAR_SEED], 0, 0.125);
}

static run start(tri_graph *g, tri_comm *comm, int64_t first, const char *name) {
    tri_status status = g->options.training ? tri_pass_autodiff(g) : TRI_OK;
    if (status != TRI_OK) fprintf(stderr, "%s: %s\n", name, tri_error_message());
    CHECK_OK(status);
    run r = {.graph = g, .device = op_device_open(&tri_device_ref, 1)};
    r.session = op_session_open(g, r.device, false);
    if (comm) op_session_join(r.session, comm);
    fill(&r, first);
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

static void sum_over(tri_comm *comm, double *values, int64_t count) {
    tri_comm_op op = {.dtype = TRI_F64, .count = count, .send = values, .recv = values};
    CHECK_OK(tri_comm_run(comm, &op));
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
        if (p->has_partial_gradient) sum_over(comm, got, count);
        for (int64_t k = 0; k < count; k++) {
            double whole = want[tri_parameter_full_index(&p->slice, &p->shape, k)];
            near(test->name, p->name, k, got[k], whole);
            moved = moved || whole != 0;
        }
        divided = divided || p->slice.count == comm->size;
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
    tri_tensor_parallel_options options = {.layers = layers, .sequence_parallel = test->sequence};
    tri_mesh mesh = {.size = {1, 1, 1, comm->size}, .ranks = comm->size};
    for (int training = 0; training < 2; training++) {
        tri_graph *graph = build(test, training), *local;
        tri_status status =
            tri_pass_tensor_parallel(NULL, graph, &mesh, comm->rank, &options, &local);
        if (status != TRI_OK) fprintf(stderr, "%s: %s\n", test->name, tri_error_message());
        CHECK_OK(status);
        for (int i = 0; i < local->node_count && test->is_local; i++)
            CHECK(local->nodes[i].op != &tri_op_all_gather);
        run one = start(graph, NULL, 0, test->name), part = start(local, comm, 0, test->name);
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

enum { ALL_SAMPLES = 9 };

static tri_graph *build_norms(int64_t samples) {
    tri_graph_options options = {.seed = 7, .training = true, .dtype = TRI_F64};
    tri_graph *g = tri_graph_create(NULL, &options);
    tri_block(g, "conv");
    tri_value x = tri_input(g, "images", TRI_F64, tri_shape_of(samples, 2, 6, 6));
    x = tri_conv2d(g, "conv", x, (tri_conv2d_options){.channels = 3, .kernel = 3});
    x = tri_relu(g, tri_batch_norm(g, "bn1", x, (tri_batch_norm_options){.eps = 1e-3}));
    x = tri_dropout(g, "drop", tri_max_pool2d(g, x, (tri_pool2d_options){.kernel = 2}), 0.25);
    tri_block(g, "fc");
    x = tri_linear(g, "fc1", tri_flatten(g, x), 5);
    x = tri_relu(g, tri_batch_norm(g, "bn2", x, (tri_batch_norm_options){.eps = 1e-3}));
    classify(g, tri_linear(g, "fc2", x, 8));
    return checked(g, "norms");
}

// Checks that replicas whose micro-batches differ in size have the result of one rank with all
// samples: losses, gradients, and batch norm's statistics, which graphs list among the gradients.
// Each is summed over the replicas.
static void replica_body(tri_comm *comm, ranks_table *table, void *argument) {
    bool fuse = *(bool *)argument;
    int64_t size = ALL_SAMPLES / comm->size, more = ALL_SAMPLES % comm->size, rank = comm->rank;
    int64_t first = rank * size + (rank < more ? rank : more);
    tri_tensor_parallel_options options = {.sync_batch_norm = true};
    tri_mesh mesh = {.size = {1, comm->size, 1, 1}, .ranks = comm->size};
    tri_graph *whole = build_norms(ALL_SAMPLES), *mine = build_norms(size + (rank < more)), *local;
    CHECK_OK(tri_pass_tensor_parallel(NULL, mine, &mesh, comm->rank, &options, &local));
    if (fuse) CHECK_OK(tri_pass_fuse(local, NULL, TRI_FUSE_BEFORE_AUTODIFF));
    run one = start(whole, NULL, 0, "norms"), part = start(local, comm, first, "norms");
    double loss[2];
    bool moved = false;
    for (int k = 0; k < 2; k++) loss[k] = op_get(part.session, local->metrics[0].value, k);
    sum_over(comm, loss, 2);
    for (int k = 0; k < 2; k++)
        near("norms", "loss", k, loss[k], op_get(one.session, whole->metrics[0].value, k));
    for (int i = 0; i < whole->parameter_count; i++) {
        const tri_parameter_info *p = &whole->parameters[i];
        int64_t count = tri_shape_count(&p->shape);
        double *want = gradient_of(&one, i), *got = gradient_of(&part, i);
        sum_over(comm, got, count);
        for (int64_t k = 0; k < count; k++) near("norms", p->name, k, got[k], want[k]);
        moved = moved || (count > 0 && want[0] != 0);
        free(want);
        free(got);
    }
    CHECK(moved);
    stop(&one);
    stop(&part);
    tri_graph_destroy(mine);
}

static void test_replicas(void **state) {
    for (int size = 1; size <= 4; size++)
        for (int fuse = 0; fuse < 2; fuse++)
            assert_int_equal(ranks_run(size, NULL, replica_body, &(bool){fuse}), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ranks),
                                       cmocka_unit_test(test_replicas)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
