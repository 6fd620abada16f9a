// Checks the times that an estimate computes from rates, on a model whose costs can be calculated
// by hand; how quantities with units, such as "64G", are read; and how many flops nodes have.
#include "base/quantity.h"
#include "device/null/null.h"
#include "plan/draw.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <trireme/trireme.h>

#include <cmocka.h>

#include "support/op_session.h"

enum { WIDTH = 128, LAYERS = 4, SAMPLES = 32, MICRO = 4 };

// Builds a model whose blocks are all the same, so that no stage of a pipeline waits for a slower
// one.
static void build(tri_graph *g, const tri_batch *batch) {
    static const char *const names[] = {"a", "b", "c", "d"};
    tri_value x = batch->inputs;
    for (int i = 0; i < LAYERS; i++) {
        tri_block(g, names[i]);
        x = tri_linear(g, names[i], x, WIDTH);
        if (i == LAYERS - 1) tri_loss(g, tri_mse_loss(g, x, batch->targets));
    }
}

typedef struct fixture {
    tri_arena *arena;
    tri_device *device;
    tri_pipeline_plans pipeline;
} fixture;

static void open_plans(fixture *f, tri_strategy_kind strategy, const char *order, tri_mesh mesh) {
    static const tri_task task = {.name = "chain", .build = build};
    static const tri_field fields[] = {{"inputs", TRI_F32, {1, {WIDTH}}},
                                       {"targets", TRI_F32, {1, {WIDTH}}}};
    tri_model_request model = {.task = &task, .fields = fields, .field_count = 2};
    tri_strategy_options options = {.name = strategy,
                                    .recompute_every = 1,
                                    .prefetch = 1,
                                    .stages_per_rank = 1,
                                    .reshard_after_forward = true};
    while (strcmp(tri_orders[options.schedule]->name, order) != 0) options.schedule++;
    tri_plan_request request = {.model = &model,
                                .options = &options,
                                .mesh = mesh,
                                .step_samples = {[TRI_STEP_FULL] = SAMPLES},
                                .micro = MICRO,
                                .optimizer_states = 2};
    tri_device_config config = {0};
    f->arena = tri_arena_create(NULL, "test");
    assert_int_equal(tri_device_null.open(&config, &f->device), TRI_OK);
    assert_int_equal(
        tri_pipeline_plans_create(f->arena, &f->device->description, &request, &f->pipeline),
        TRI_OK);
}

static void close_plans(fixture *f) {
    tri_pipeline_plans_destroy(&f->pipeline);
    f->device->backend->close(f->device);
    tri_arena_destroy(f->arena);
}

static const tri_mesh one = {.size = {1, 1, 1, 1}, .ranks = 1};
// Rates with which memory and network take almost no time.
static const tri_rates arithmetic = {1e9, 1e9, 1e18, 1e18, 1e18, 1e18, 1e18, 1, 0, 0};

static void test_arithmetic(void **state) {
    (void)state;
    fixture f;
    tri_estimate e, twice;
    open_plans(&f, TRI_STRATEGY_DDP, "1f1b", one);
    tri_estimate_step(f.arena, &f.pipeline, &arithmetic, NULL, &e);
    assert_true(e.flops > 0);
    assert_true(e.step_s > 0.999 * e.flops / 1e9 && e.step_s < 1.001 * e.flops / 1e9);
    assert_true(e.bubble < 1e-6);
    tri_rates faster = arithmetic;
    faster.flops_per_s *= 2;
    tri_estimate_step(f.arena, &f.pipeline, &faster, NULL, &twice);
    assert_true(twice.step_s > 0.499 * e.step_s && twice.step_s < 0.501 * e.step_s);
    // Measured times replace the rates: for 2 · MICRO samples, each block takes 0.25 s forward and
    // 0.5 s backward.
    double seconds[LAYERS][TRI_PHASE_COUNT];
    for (int b = 0; b < LAYERS; b++) {
        seconds[b][TRI_PHASE_FORWARD] = 0.25;
        seconds[b][TRI_PHASE_BACKWARD] = 0.5;
        seconds[b][TRI_PHASE_WEIGHT] = 0;
    }
    tri_measured measured = {.batch = 2 * MICRO, .seconds = seconds};
    tri_estimate_step(f.arena, &f.pipeline, &arithmetic, &measured, &e);
    double wanted = 0.75 * LAYERS * SAMPLES / (2 * MICRO);
    assert_true(e.step_s > 0.999 * wanted && e.step_s < 1.001 * wanted);
    close_plans(&f);
}

// The bubble (the fraction of a step in which ranks are idle) of P stages of equal cost with M
// micro-batches is (P - 1) / (M + P - 1): Narayanan et al., 2021, section 2.2.1.
static void test_bubble(void **state) {
    (void)state;
    const tri_mesh mesh = {.size = {LAYERS, 1, 1, 1}, .ranks = LAYERS};
    fixture f;
    tri_estimate e, split;
    open_plans(&f, TRI_STRATEGY_PIPELINE, "1f1b", mesh);
    double seconds[LAYERS][TRI_PHASE_COUNT] = {{0}};
    for (int b = 0; b < LAYERS; b++) {
        seconds[b][TRI_PHASE_FORWARD] = 1;
        seconds[b][TRI_PHASE_BACKWARD] = 2;
    }
    tri_measured measured = {.batch = MICRO, .seconds = seconds};
    tri_estimate_step(f.arena, &f.pipeline, &arithmetic, &measured, &e);
    double rounds = SAMPLES / MICRO, wanted = (LAYERS - 1) / (rounds + LAYERS - 1);
    assert_true(e.bubble > wanted - 1e-3 && e.bubble < wanted + 1e-3);
    close_plans(&f);
    open_plans(&f, TRI_STRATEGY_PIPELINE, "zero-bubble", mesh);
    for (int b = 0; b < LAYERS; b++)
        for (int phase = 0; phase < TRI_PHASE_COUNT; phase++) seconds[b][phase] = 1;
    tri_estimate_step(f.arena, &f.pipeline, &arithmetic, &measured, &split);
    assert_true(split.bubble < e.bubble);
    close_plans(&f);
}

// With the rates `links` only data sent between ranks take time. Then a step takes as long as the
// busiest communicator needs.
static void test_links(void **state) {
    (void)state;
    const tri_rates links = {1e18, 1e18, 1e18, 1e6, 1e18, 1e18, 1e18, 1, 0, 0};
    const tri_mesh copies = {.size = {1, 4, 1, 1}, .ranks = 4};
    const tri_mesh shards = {.size = {1, 1, 4, 1}, .ranks = 4};
    const double bytes = 4.0 * LAYERS * (WIDTH * WIDTH + WIDTH);
    fixture f;
    tri_estimate e;
    open_plans(&f, TRI_STRATEGY_DDP, "1f1b", copies);
    tri_estimate_step(f.arena, &f.pipeline, &links, NULL, &e);
    double wanted = 2 * 0.75 * bytes / 1e6;
    assert_true(e.step_s > 0.99 * wanted && e.step_s < 1.01 * wanted);
    close_plans(&f);
    // A reduce-scatter and an all-gather together send as much as the all-reduce of ddp.
    open_plans(&f, TRI_STRATEGY_ZERO1, "1f1b", shards);
    tri_estimate_step(f.arena, &f.pipeline, &links, NULL, &e);
    assert_true(e.step_s > 0.99 * wanted && e.step_s < 1.01 * wanted);
    close_plans(&f);
}

// Between hosts the network counts, and the groups that a host has ranks of share it.
static void test_network(void **state) {
    (void)state;
    static const struct {
        tri_mesh mesh;
        int host_ranks;
        double sent, rate; // sent: in units of the parameters' bytes
    } rows[] = {
        {{{1, 4, 1, 1}, 4}, 4, 2 * 0.75, 1e9}, // on one host
        {{{1, 4, 1, 1}, 4}, 2, 2 * 0.75, 1e6},
        {{{1, 4, 1, 1}, 4}, 1, 2 * 0.75, 1e6},
        {{{1, 2, 2, 1}, 4}, 2, 2 * 0.5 * 0.5, 1e6 / 2}, // halves, each between two hosts
    };
    const double bytes = 4.0 * LAYERS * (WIDTH * WIDTH + WIDTH);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const tri_rates rates = {1e18, 1e18, 1e18, 1e9, 1e18,
                                 1e18, 1e18, 1,    1e6, rows[i].host_ranks};
        fixture f;
        tri_estimate e;
        open_plans(&f, rows[i].mesh.size[2] > 1 ? TRI_STRATEGY_ZERO1 : TRI_STRATEGY_DDP, "1f1b",
                   rows[i].mesh);
        tri_estimate_step(f.arena, &f.pipeline, &rates, NULL, &e);
        double wanted = rows[i].sent * bytes / rows[i].rate;
        if (!(e.step_s > 0.99 * wanted && e.step_s < 1.01 * wanted))
            fail_msg("row %zu: %g s, not %g", i, e.step_s, wanted);
        close_plans(&f);
    }
}

static void test_drawings(void **state) {
    (void)state;
    const tri_mesh mesh = {.size = {2, 1, 1, 1}, .ranks = 2};
    fixture f;
    tri_estimate e;
    open_plans(&f, TRI_STRATEGY_PIPELINE, "1f1b", mesh);
    tri_estimate_step(f.arena, &f.pipeline, &tri_rates_assumed, NULL, &e);
    tri_drawing drawing = {&f.pipeline, &e, "a < b & c", 40, false};
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    tri_draw_gantt(&drawing, out);
    drawing.colour = true;
    long plain = ftell(out);
    tri_draw_gantt(&drawing, out);
    fclose(out);
    assert_non_null(strstr(text, "rank 1    compute"));
    const char *escape = strchr(text, '\033');
    assert_true(escape && escape - text >= plain);
    free(text);
    out = open_memstream(&text, &size);
    tri_draw_svg(&drawing, out);
    fclose(out);
    assert_non_null(strstr(text, ">a &lt; b &amp; c</text>"));
    assert_non_null(strstr(text, "BACKWARD d, micro-batch 7"));
    free(text);
    out = open_memstream(&text, &size);
    tri_draw_memory(f.pipeline.plans[0], 20, out);
    fclose(out);
    assert_non_null(strchr(text, '#'));
    free(text);
    close_plans(&f);
}

static void test_quantities(void **state) {
    (void)state;
    static const struct {
        const char *text;
        double value; // below 0: the text has to be refused
    } rows[] = {{"0", 0},          {"12", 12},    {"64G", 64e9},
                {"1.5TB", 1.5e12}, {"2Ki", 2048}, {"80GiB", 80.0 * (1 << 30)},
                {"60e9", 60e9},    {"3k", 3000},  {"7B", 7},
                {"", -1},          {"G", -1},     {"1Gb", -1},
                {"-1", -1},        {"nan", -1},   {"inf", -1},
                {"1 G", -1},       {"1GiBs", -1}, {"1iB", -1},
                {"1x", -1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double value = -1;
        assert_int_equal(tri_quantity_read(rows[i].text, &value), rows[i].value >= 0);
        if (rows[i].value >= 0) assert_true(value == rows[i].value);
    }
}

// A node's cost in flops counts multiplications and additions: a convolution of [2,3,8,8] with
// [4,3,3,3] has 2*4*6*6 results of 27 products each. Causal attention of 5 queries and 5 keys
// computes the scores of 15 of the 25 pairs of a query and a key.
static void test_flops(void **state) {
    static const tri_conv2d_attr conv = {.stride = {1, 1}, .dilation = {1, 1}, .groups = 1};
    tri_graph *g = op_graph_open(TRI_F32);
    tri_value in[] = {tri_input(g, "x", TRI_F32, tri_shape_of(2, 3, 8, 8)),
                      tri_input(g, "w", TRI_F32, tri_shape_of(4, 3, 3, 3))};
    tri_value y = tri_node_add(g, &tri_op_conv2d, in, 2, &conv, "");
    assert_true(tri_node_cost(g, tri_value_node(g, y)).flops == 2.0 * 2 * 4 * 36 * 27);
    tri_value q = tri_input(g, "q", TRI_F32, tri_shape_of(2, 5, 4, 8));
    tri_attention_attr causal = {.scale = 1, .causal = true};
    y = tri_node_add(g, &tri_op_attention, (tri_value[]){q, q, q}, 3, &causal, "");
    assert_true(tri_node_cost(g, tri_value_node(g, y)).flops == 2.0 * 2 * (2 * 4 * 8) * (15));
    op_graph_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arithmetic), cmocka_unit_test(test_bubble),
        cmocka_unit_test(test_links),      cmocka_unit_test(test_network),
        cmocka_unit_test(test_drawings),   cmocka_unit_test(test_quantities),
        cmocka_unit_test(test_flops)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
