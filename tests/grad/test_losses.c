// Tests the losses of losses.h and those of a recipe's section `loss`: their means and gradients
// are PyTorch's, on `ref`, `cpu` and the emulated GPU, gradients are finite differences too, and
// what cannot be is refused. Also how labels are counted before a step.
#include "base/tree.h"
#include "grad/loss_tables.h"
#include "graph/loss.h"
#include "nn/options.h"
#include "nn/recipe_loss.h"
#include "support/gradient_check.h"
#include "support/message.h"
#include "support/torch_check.h"

#include <trireme/losses.h>
#include <trireme/parameters.h>

enum { CASES = sizeof loss_cases / sizeof *loss_cases, CLASSES = 5 };
static const float weights[CLASSES] = {0.5F, 1.25F, 0, 2, 0.75F};

// How the script makes labels, targets and lengths: of number i.
static int64_t label_of(int64_t i) {
    return i % 5 == 3 ? TRI_IGNORED_LABEL : (7 * i * i + 3 * i) % CLASSES;
}
static double sign_of(int64_t i) { return i % 3 ? 1 : -1; }
static double part_of(int64_t i) { return 0.1 + 0.2 * (double)(i * 7 % 5); }
static int64_t target_of(int64_t i) { return 1 + i / 2 % (CLASSES - 1); }

static const int64_t times[3] = {9, 7, 5}, lengths[3] = {4, 1, 0};
static const int64_t short_times[3] = {6, 5, 4}, short_lengths[3] = {4, 4, 2};

static bool is(const char *name, const char *begin) { return !strncmp(name, begin, strlen(begin)); }

static tri_value numbers(tri_graph *g, const char *name, tri_shape shape) {
    return tri_input(g, name, g->options.dtype, shape);
}

static tri_value label_loss(tri_graph *g, const char *name, tri_value x) {
    tri_shape shape = tri_value_shape(g, x), rows = shape;
    rows.dims[--rows.rank] = 0;
    tri_label_loss_options o = {.class_weights = weights};
    tri_value labels = tri_input(g, "labels", TRI_I64, rows);
    if (is(name, "nll_loss")) return tri_nll_loss_with(g, x, labels, o);
    if (is(name, "cross_entropy smoothed")) o.label_smoothing = 0.2;
    if (is(name, "cross_entropy ignored")) labels = tri_ignore_label(g, labels, 1);
    if (is(name, "cross_entropy soft")) {
        o.label_smoothing = 0.1;
        labels = numbers(g, "parts", shape);
    }
    return tri_cross_entropy_with(g, x, labels, o);
}

static tri_value ctc_loss(tri_graph *g, const char *name, tri_value x) {
    int64_t samples = tri_value_shape(g, x).dims[0];
    tri_ctc_options o = {.zero_infinity = is(name, "ctc_loss infinite")};
    bool plain = !strcmp(name, "ctc_loss");
    tri_value targets = tri_input(g, "targets", TRI_I64, tri_shape_of(samples, plain ? 3 : 4));
    if (!plain) {
        o.input_lengths = tri_input(g, "times", TRI_I64, tri_shape_of(samples));
        o.target_lengths = tri_input(g, "lengths", TRI_I64, tri_shape_of(samples));
    }
    if (is(name, "ctc_loss of lengths")) o.blank = 4;
    return tri_ctc_loss(g, tri_log_softmax(g, x), targets, o);
}

static tri_value pair_loss(tri_graph *g, const char *name, const tri_value *x) {
    tri_shape shape = tri_value_shape(g, x[0]), rows = shape;
    if (rows.rank > 1) rows.dims[--rows.rank] = 0;
    tri_value signs = numbers(g, "signs", is(name, "cosine") ? rows : shape);
    if (is(name, "cosine")) return tri_cosine_embedding_loss(g, x[0], x[1], signs, 0.1);
    if (is(name, "margin_ranking")) return tri_margin_ranking_loss(g, x[0], x[1], signs, 0.3);
    if (is(name, "hinge_embedding")) return tri_hinge_embedding_loss(g, x[0], signs, 0.7);
    return tri_multilabel_soft_margin_loss(g, x[0], tri_map(g, "(s + 1) / 2", signs));
}

static tri_value margin_loss(tri_graph *g, const char *name, tri_value x) {
    tri_shape shape = tri_value_shape(g, x);
    if (is(name, "multilabel"))
        return tri_multilabel_margin_loss(g, x, tri_input(g, "several", TRI_I64, shape));
    tri_value labels = tri_input(g, "labels", TRI_I64, tri_shape_of(shape.dims[0]));
    return tri_multi_margin_loss(
        g, x, tri_map(g, "k -> max(k, 0)", labels),
        (tri_multi_margin_options){.margin = 0.5, .class_weights = weights});
}

static tri_value binary_loss(tri_graph *g, const char *name, tri_value x) {
    tri_shape shape = tri_value_shape(g, x), rows = tri_shape_of(shape.dims[0], 1);
    tri_value parts = numbers(g, "parts", shape);
    tri_binary_options o = {{0}, {0}};
    bool both = is(name, "bce_with_logits of both");
    if (strcmp(name, "bce_with_logits") != 0)
        o.weight = tri_constant(g, "weights", tri_shape_of(CLASSES), weights);
    if (both || is(name, "bce_with_logits positive")) o.pos_weight = o.weight;
    if (is(name, "bce_with_logits positive")) o.weight = (tri_value){0};
    if (both) o.weight = tri_mul_scalar(g, numbers(g, "parts of rows", rows), 2);
    if (is(name, "bce_loss")) return tri_bce_loss_with(g, tri_sigmoid(g, x), parts, o);
    return tri_binary_cross_entropy_with(g, x, parts, o);
}

// Sets the graph's losses to those of the text of a section. They live as long as the graph.
static tri_status read_recipe(tri_graph *g, const char *text) {
    tri_tree *tree;
    tri_loss_options section;
    TRI_TRY(tri_yaml_parse_value(g->arena, text, "test", &tree));
    TRI_TRY(tri_option_decode(g->arena, &tri_loss_table, tree, &section));
    return tri_losses_read(g->arena, &section, &g->options.losses, &g->options.loss_count);
}

// The losses that recipes make: the section's text, and the data's fields.
static const struct by_recipe {
    const char *name, *section, *field;
    tri_dtype dtype;
    tri_shape shape; // of the field
} by_recipe[] = {
    {"cross_entropy by", "{name: cross_entropy}", "labels", TRI_I64, {1, {7}}},
    {"cross_entropy of images",
     "{name: cross_entropy, class_weights: [0.5, 1.25, 0, 2, 0.75], label_smoothing: 0.1, "
     "ignore: 1, output: 0}",
     "labels",
     TRI_I64,
     {3, {2, 3, 2}}},
    {"cross_entropy of tokens", "{name: cross_entropy}", "labels", TRI_I64, {2, {2, 5}}},
    {"cross_entropy of the second",
     "{name: cross_entropy, class_axis: second}",
     "labels",
     TRI_I64,
     {2, {2, 5}}},
    {"cross_entropy of the next",
     "{name: cross_entropy, next_token: true}",
     "labels",
     TRI_I64,
     {2, {3, 4}}},
    {"cross_entropy of soft",
     "{name: cross_entropy, class_weights: [0.5, 1.25, 0, 2, 0.75], label_smoothing: 0.2, "
     "target: parts}",
     "parts",
     TRI_F64,
     {4, {2, 5, 2, 2}}},
    {"nll",
     "{name: nll, ignore: 1, class_weights: [0.5, 1.25, 0, 2, 0.75]}",
     "labels",
     TRI_I64,
     {1, {8}}},
    {"bce by", "{name: bce, target: parts}", "parts", TRI_F64, {2, {3, 4}}},
    {"bce of images",
     "{name: bce, target: parts, pos_weight: [0.5, 1.25, 0, 2, 0.75]}",
     "parts",
     TRI_F64,
     {4, {2, 5, 2, 3}}},
    {"bce of one", "{name: bce, target: parts, pos_weight: [2.5]}", "parts", TRI_F64, {1, {7}}},
    {"mse", "{name: mse, target: parts}", "parts", TRI_F64, {3, {3, 2, 2}}},
    {"l1", "{name: l1, target: parts, output: logits}", "parts", TRI_F64, {2, {3, 4}}},
    {"huber", "{name: huber, delta: 0.3, target: parts}", "parts", TRI_F64, {2, {3, 4}}},
    {"smooth_l1", "{name: smooth_l1, beta: 0.2, target: parts}", "parts", TRI_F64, {2, {3, 4}}},
    {"relative_l2", "{name: relative_l2, target: parts}", "parts", TRI_F64, {2, {3, 4}}},
    {"kl",
     "{name: kl, log_target: true, batch_mean: true, target: logarithms}",
     "logarithms",
     TRI_F64,
     {2, {3, 4}}},
    {"ctc_loss of lengths",
     "{name: ctc, blank: 4, input_lengths: times, target_lengths: lengths}",
     "targets",
     TRI_I64,
     {2, {3, 4}}},
};

static tri_value recipe_loss(tri_graph *g, const char *name, tri_value x) {
    const struct by_recipe *c = by_recipe;
    while (!is(name, c->name)) c++;
    int64_t samples = tri_value_shape(g, x).dims[0];
    tri_input(g, c->field, c->dtype == TRI_I64 ? TRI_I64 : g->options.dtype, c->shape);
    if (is(name, "ctc")) {
        x = tri_log_softmax(g, x);
        tri_input(g, "times", TRI_I64, tri_shape_of(samples));
        tri_input(g, "lengths", TRI_I64, tri_shape_of(samples));
    }
    tri_output_add(g, "logits", x);
    tri_batch batch = tri_batch_make(g, samples);
    if (read_recipe(g, c->section) != TRI_OK || tri_recipe_loss_build(g, &batch, "net") != TRI_OK)
        fail_msg("%s: %s", name, tri_error_message());
    return g->metrics[0].value;
}

static tri_value loss_of(tri_graph *g, const char *name, const tri_value *x) {
    if (strstr(name, " by recipe")) return recipe_loss(g, name, x[0]);
    if (is(name, "cross_entropy") || is(name, "nll")) return label_loss(g, name, x[0]);
    if (is(name, "ctc")) return ctc_loss(g, name, x[0]);
    if (is(name, "bce")) return binary_loss(g, name, x[0]);
    if (is(name, "multi_margin") || is(name, "multilabel_margin"))
        return margin_loss(g, name, x[0]);
    if (is(name, "gaussian"))
        return tri_gaussian_nll_loss_with(g, x[0], numbers(g, "parts", tri_value_shape(g, x[0])),
                                          tri_square(g, x[1]),
                                          (tri_gaussian_nll_options){.full = true, .eps = 0.3});
    if (is(name, "triplet"))
        return tri_triplet_margin_loss(
            g, x[0], x[1], x[2],
            strstr(name, "swapped") ? (tri_triplet_options){.margin = 2, .p = 3, .swap = true}
                                    : (tri_triplet_options){0});
    if (!is(name, "ratio") && !is(name, "poisson") && !is(name, "kl")) return pair_loss(g, name, x);
    tri_value parts = numbers(g, "parts", tri_value_shape(g, x[0]));
    tri_value counts = tri_mul_scalar(g, parts, 5);
    if (is(name, "ratio"))
        return tri_ratio_loss(g, tri_map(g, "x, mask -> x * x * mask", x[0], parts), parts);
    if (is(name, "poisson_nll_loss of rates"))
        return tri_poisson_nll_loss_with(g, tri_exp(g, x[0]), counts,
                                         (tri_poisson_options){.rates = true, .eps = 1e-3});
    if (is(name, "poisson"))
        return tri_poisson_nll_loss_with(g, x[0], counts, (tri_poisson_options){.full = true});
    if (is(name, "kl_div_loss of"))
        return tri_kl_div_loss_with(g, x[0], tri_log(g, parts),
                                    (tri_kl_div_options){.log_target = true});
    return tri_kl_div_loss_with(g, x[0], parts, (tri_kl_div_options){.batch_mean = true});
}

static void fill_input(op_session *session, const tri_input_info *input, const char *test) {
    const char *name = input->name;
    bool infinite = is(test, "ctc_loss infinite");
    int64_t *whole = op_host(session, input->value), less = is(test, "ctc_loss of lengths");
    for (int64_t i = 0; i < op_count(session, input->value); i++)
        if (!strcmp(name, "labels"))
            whole[i] = label_of(i);
        else if (!strcmp(name, "several"))
            whole[i] = i % 7 == 3 ? -1 : (3 * i + i / 4) % CLASSES;
        else if (!strcmp(name, "targets"))
            whole[i] = target_of(i) - less;
        else if (!strcmp(name, "times"))
            whole[i] = infinite ? short_times[i] : times[i];
        else if (!strcmp(name, "lengths"))
            whole[i] = infinite ? short_lengths[i] : lengths[i];
        else if (!strcmp(name, "logarithms"))
            op_set(session, input->value, i, log(part_of(i)));
        else
            op_set(session, input->value, i, !strcmp(name, "signs") ? sign_of(i) : part_of(i));
}

static void fill(op_session *session, const tri_graph *g, const char *test) {
    for (int i = 0; i < g->input_count; i++) fill_input(session, &g->inputs[i], test);
    for (int i = 0, waves = 0; i < g->parameter_count; i++) {
        const tri_parameter_info *p = &g->parameters[i];
        if (p->role == TRI_ROLE_TRAINED) fill_wave(session, p->value, ++waves, 1, 0);
        for (int64_t k = 0; p->role == TRI_ROLE_CONSTANT && k < op_count(session, p->value); k++)
            op_set(session, p->value, k, (double)p->init.values[k]);
    }
}

// Below its least value PyTorch gives a variance the gradient of one that has none.
static bool is_smooth(const loss_case *c) { return !is(c->name, "gaussian"); }

static void check_case(const loss_case *c, const tri_device_backend *backend, tri_dtype dtype,
                       double allowed) {
    tri_graph *g = op_graph_open(dtype);
    tri_value x[3] = {{0}};
    const char *message = "";
    for (int i = 0; i < c->parameters; i++)
        x[i] = tri_parameter(g, tri_name(g, "x%d", i), c->shapes[i], (tri_init){0});
    tri_value loss = loss_of(g, c->name, x);
    if (!strstr(c->name, " by recipe")) tri_loss(g, loss);
    if (tri_graph_status(g, &message) != TRI_OK) fail_msg("%s: %s", c->name, message);
    if (tri_pass_autodiff(g) != TRI_OK) fail_msg("%s: %s", c->name, tri_error_message());
    tri_device *device = op_device_open(backend, 1);
    op_session *session = op_session_open(g, device, false);
    fill(session, g, c->name);
    op_set(session, g->scalars[TRI_SCALAR_SEED], 0, seed_value);
    op_run_ok(session);
    double count = op_get(session, loss, 1), mean = op_get(session, loss, 0) / count;
    if (!(fabs(mean - c->mean) <= allowed))
        fail_msg("%s: %.12g, not %.12g", c->name, mean, c->mean);
    for (int i = 0; dtype == TRI_F64 && is_smooth(c) && i < g->parameter_count; i++)
        if (g->parameters[i].role == TRI_ROLE_TRAINED) check_parameter(session, g, i, loss);
    op_set(session, g->scalars[TRI_SCALAR_SEED], 0, 1 / count);
    op_run_ok(session);
    assert_int_equal(g->gradient_count, c->parameters);
    torch_case named = {.name = c->name};
    for (int k = 0; k < g->gradient_count; k++)
        torch_near(&named, "gradient", session, g->gradients[k].value,
                   c->d[g->gradients[k].parameter], allowed);
    op_session_close(session);
    device->backend->close(device);
    op_graph_close(g);
}

static void test_torch(void **state) {
    test_gpu_choose();
    for (int i = 0; i < CASES; i++) {
        check_case(&loss_cases[i], &tri_device_ref, TRI_F64, 1e-9);
        check_case(&loss_cases[i], &tri_device_cpu, TRI_F32, 1e-5);
        check_case(&loss_cases[i], &tri_device_cuda, TRI_F32, 1e-5);
    }
}

// An impossible target costs infinity, and lengths and labels that cannot be are refused.
static void test_ctc_runs(void **state) {
    static const struct {
        int64_t target, times, length, code;
        const char *parts;
    } cases[] = {
        {1, 2, 2, TRI_OK, "inf"},
        {1, 3, 2, TRI_OK, NULL},
        {0, 3, 2, TRI_BAD_INPUT, "sample 1|blank|0"},
        {5, 3, 2, TRI_BAD_INPUT, "5"},
        {1, 4, 2, TRI_BAD_INPUT, "sample 1|4|3"},
        {1, 3, 3, TRI_BAD_INPUT, "sample 1|3|2"},
        {-100, 1, 2, TRI_OK, NULL},
        {1, -1, 2, TRI_BAD_INPUT, "sample 1|-1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tri_graph *g = op_graph_open(TRI_F64);
        tri_value in[4] = {numbers(g, "x", tri_shape_of(2, 3, 5)),
                           tri_input(g, "targets", TRI_I64, tri_shape_of(2, 2)),
                           tri_input(g, "times", TRI_I64, tri_shape_of(2)),
                           tri_input(g, "lengths", TRI_I64, tri_shape_of(2))};
        tri_value loss = tri_ctc_loss(
            g, in[0], in[1], (tri_ctc_options){.input_lengths = in[2], .target_lengths = in[3]});
        tri_device *device = op_device_open(&tri_device_ref, 1);
        op_session *session = op_session_open(g, device, false);
        fill_wave(session, in[0], 1, 1, -2);
        int64_t *targets = op_host(session, in[1]);
        for (int k = 0; k < 4; k++) targets[k] = k < 2 ? 2 : cases[i].target;
        ((int64_t *)op_host(session, in[2]))[0] = 3;
        ((int64_t *)op_host(session, in[2]))[1] = cases[i].times;
        ((int64_t *)op_host(session, in[3]))[0] = 1;
        ((int64_t *)op_host(session, in[3]))[1] = cases[i].length;
        assert_int_equal(op_run(session), cases[i].code);
        if (cases[i].code != TRI_OK)
            message_check(tri_error_message(), cases[i].parts);
        else
            assert_int_equal(isinf(op_get(session, loss, 0)), cases[i].parts != NULL);
        op_session_close(session);
        device->backend->close(device);
        op_graph_close(g);
    }
}

// The counts of losses of a sum, which the host finds before a step.
static void test_counts(void **state) {
    tri_graph *g = op_graph_open(TRI_F32);
    enum { N = 8 };
    int64_t labels[N];
    float mask[N];
    for (int i = 0; i < N; i++) {
        labels[i] = label_of(i);
        mask[i] = (float)i / 2;
    }
    tri_value x = tri_input(g, "x", TRI_F32, tri_shape_of(N, CLASSES));
    tri_value y = tri_input(g, "labels", TRI_I64, tri_shape_of(N));
    tri_value m = tri_input(g, "mask", TRI_F32, tri_shape_of(N));
    tri_value w = tri_parameter(g, "w", tri_shape_of(CLASSES), (tri_init){0});
    tri_label_loss_options o = {.class_weights = weights};
    tri_value scores = tri_mul(g, x, w), loss = tri_cross_entropy_with(g, scores, y, o);
    tri_value first = tri_select(g, scores, 1, 0);
    loss = tri_add(g, loss, tri_cross_entropy_with(g, scores, tri_ignore_label(g, y, 3), o));
    loss = tri_add(g, loss, tri_cross_entropy(g, scores, tri_ignore_label(g, y, 3)));
    loss = tri_add(g, loss, tri_ratio_loss(g, tri_mul(g, first, m), m));
    tri_loss(g, loss);
    const char *message = "";
    if (tri_graph_status(g, &message) != TRI_OK) fail_msg("%s", message);
    assert_int_equal(g->counting, TRI_COUNT_AHEAD);
    double wanted[4] = {0};
    for (int i = 0; i < N; i++) {
        bool counts = labels[i] != TRI_IGNORED_LABEL;
        wanted[0] += counts ? weights[labels[i]] : 0;
        wanted[1] += counts && labels[i] != 3 ? weights[labels[i]] : 0;
        wanted[2] += counts && labels[i] != 3;
        wanted[3] += mask[i];
    }
    assert_int_equal(g->term_count, 4);
    for (int k = 0; k < 4; k++) {
        const tri_loss_term *term = &g->metrics[g->first_term + k].term;
        double got = tri_loss_count_labels(g, term, N, k == 3 ? (void *)mask : (void *)labels);
        assert_true(fabs(got - wanted[k]) < 1e-12);
    }
    op_graph_close(g);
}

static void check_refused(const char *parts, int call) {
    tri_graph *g = op_graph_open(TRI_F32);
    tri_value x = tri_input(g, "x", TRI_F32, tri_shape_of(2, 4, CLASSES));
    tri_value y = tri_input(g, "labels", TRI_I64, tri_shape_of(2, 4));
    static const float bad[CLASSES] = {1, -1, 1, 1, 1};
    tri_label_loss_options o = {.class_weights = call == 0 ? bad : weights};
    if (call == 0) tri_cross_entropy_with(g, x, y, o);
    if (call == 1) o.label_smoothing = 1.5;
    if (call == 1) tri_nll_loss_with(g, x, y, o);
    if (call == 2) tri_ctc_loss(g, x, y, (tri_ctc_options){.blank = 5});
    if (call == 3) tri_ctc_loss(g, x, y, (tri_ctc_options){.input_lengths = y});
    if (call == 4) tri_ratio_loss(g, x, tri_input(g, "z", TRI_F64, tri_shape_of(2)));
    if (call == 5) tri_ignore_label(g, x, 3);
    if (call == 7) tri_multilabel_margin_loss(g, x, y);
    if (call == 8) tri_gaussian_nll_loss_with(g, x, x, y, (tri_gaussian_nll_options){0});
    if (call == 9) tri_bce_loss_with(g, x, x, (tri_binary_options){.pos_weight = x});
    tri_value rows = tri_select(g, x, 2, 0);
    if (call == 10) tri_binary_cross_entropy_with(g, x, x, (tri_binary_options){.weight = rows});
    if (call == 6) tri_ctc_loss(g, x, x, (tri_ctc_options){0});
    const char *message;
    assert_int_equal(tri_graph_status(g, &message), TRI_BAD_INPUT);
    message_check(message, parts);
    op_graph_close(g);
}

static void test_refused(void **state) {
    static const char *const parts[] = {
        "class_weights|1|-1",
        "nll_loss|1.5",
        "ctc_loss|5|5",
        "input lengths|[2]|[2, 4]",
        "ratio_loss|F32|F64",
        "labels|I64|F32",
        "targets|2|[2, 4, 5]",
        "multilabel_margin_loss|[N, K]|[2, 4, 5]|[2, 4]",
        "gaussian_nll_loss|the variance|[2, 4]",
        "bce_loss|pos_weight|logits",
        "binary_cross_entropy|weight must be|broadcast|[2, 4]",
    };
    for (int i = 0; i < (int)(sizeof parts / sizeof *parts); i++) check_refused(parts[i], i);
}

// What a recipe gets wrong is named by its key. The model has the outputs "logits" and "heat".
static void test_recipe_refused(void **state) {
    static const struct {
        const char *section, *parts;
    } cases[] = {
        {"{name: crossentropy}", "loss.name|cross_entropy"},
        {"{label_smoothing: 2}", "loss.label_smoothing|1"},
        {"{target: labels}", "loss.target|no effect"},
        {"{weight: 2, name: model}", "loss.weight|no effect"},
        {"{name: mse, delta: 1}", "loss.delta|mse"},
        {"{name: bce, pos_weight: [-1]}", "loss.pos_weight|at least 0"},
        {"{name: huber, delta: 0}", "loss.delta"},
        {"{name: sum, terms: []}", "loss|list|8"},
        {"{name: sum, terms: {name: mse}}", "loss|list|8"},
        {"{name: sum, terms: [mse]}", "loss|name"},
        {"{name: sum, terms: [{weight: 2}]}", "loss|name"},
        {"{name: sum, terms: [{name: mse}, {name: model}]}", "loss[1].name|model"},
        {"{name: sum, terms: [{name: mse}, {name: l1, margin: 1}]}", "loss[1].margin"},
        {"{name: cross_entropy, output: logit}", "loss.output|'logit'|'logits'|logits, heat"},
        {"{name: cross_entropy, output: 2}", "loss.output|'2'|logits, heat"},
        {"{name: cross_entropy, target: label}", "loss.target|'label'|'labels'|labels, parts"},
        {"{name: cross_entropy, class_weights: [1, 2]}", "loss.class_weights|2 numbers|5 classes"},
        {"{name: cross_entropy, output: heat}", "labels|I64 [N]|heat|[N, 3, 2]"},
        {"{name: cross_entropy, target: parts, ignore: 1, output: heat}", "loss.ignore|parts"},
        {"{name: mse}", "labels|[N]|logits|[N, 5]"},
        {"{name: bce, target: parts, output: 1, pos_weight: [1, 2, 3, 4]}",
         "loss.pos_weight|4 numbers|[N, 3, 2]"},
        {"{name: ctc, output: heat}", "loss.input_lengths|none"},
        {"{name: ctc, output: heat, input_lengths: none}", "loss.target_lengths|none"},
        {"{name: ctc, output: heat, input_lengths: none, target_lengths: none}", "loss|targets"},
        {"{name: sum, terms: [{name: cross_entropy}, {name: mse, target: parts}]}",
         "loss[1]|parts|[N, 3, 2]|[N, 5]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tri_graph *g = op_graph_open(TRI_F32);
        tri_input(g, "labels", TRI_I64, tri_shape_of(4));
        tri_value parts = tri_input(g, "parts", TRI_F32, tri_shape_of(4, 3, 2));
        tri_output_add(g, "logits",
                       tri_relu(g, tri_parameter(g, "x", tri_shape_of(4, 5), (tri_init){0})));
        tri_output_add(g, "heat", tri_relu(g, parts));
        tri_batch batch = tri_batch_make(g, 4);
        tri_status status = read_recipe(g, cases[i].section);
        if (status == TRI_OK) status = tri_recipe_loss_build(g, &batch, "net");
        assert_int_equal(status, TRI_BAD_INPUT);
        message_check(tri_error_message(), cases[i].parts);
        op_graph_close(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_torch),    cmocka_unit_test(test_recipe_refused),
        cmocka_unit_test(test_ctc_runs), cmocka_unit_test(test_counts),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
