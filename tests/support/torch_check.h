// Compares what a function of a graph computes from x, and the gradients of x and of the parameters
// that it makes, with PyTorch's. Of each tensor PyTorch's results are two numbers: the sum over all
// elements with different factors, and the sum of squares. Inputs are waves, which the scripts that
// write the tables compute by the same formula.
#ifndef TRIREME_TESTS_TORCH_CHECK_H
#define TRIREME_TESTS_TORCH_CHECK_H

#include "device/cpu/cpu.h"
#include "device/cuda/cuda.h"
#include "support/gradient_check.h"
#include "support/test_gpu.h"

#include <trireme/functions.h>

enum { TORCH_PARAMETERS = 20 };

typedef struct torch_case {
    const char *name;
    int rank, y_rank, parameters;
    int64_t x[6], to[6];
    double y[2], dx[2], d[TORCH_PARAMETERS][2]; // d: the gradients of the parameters
} torch_case;

static inline void fill_wave(op_session *session, tri_value value, double k, double factor,
                             double offset) {
    for (int64_t i = 0; i < op_count(session, value); i++) {
        double x = (double)i;
        op_set(session, value, i, sin(0.9 * x + 0.013 * x * x + k) * factor + offset);
    }
}

// Fills an index, whose name says below which number it has to stay, as make_index_tables.py does.
static inline void fill_index(op_session *session, const tri_input_info *input) {
    static const int64_t distinct[] = {2, 0, 1, 3, 3, 2};
    long limit = 1;
    int64_t *index = op_host(session, input->value);
    bool is_below = sscanf(input->name, "index below %ld", &limit) == 1;
    for (int64_t i = 0; i < op_count(session, input->value); i++)
        index[i] = is_below ? (i * i + i / 2 + 1) % limit : distinct[i];
}

static inline tri_shape torch_shape_of(int rank, const int64_t *dims) {
    tri_shape shape = {.rank = rank};
    for (int i = 0; i < rank; i++) shape.dims[i] = dims[i];
    return shape;
}

static inline void torch_near(const torch_case *c, const char *what, op_session *session,
                              tri_value value, const double want[2], double allowed) {
    double cosine = 0, squares = 0;
    for (int64_t i = 0; i < op_count(session, value); i++) {
        double v = op_get(session, value, i);
        cosine += v * cos(1.7 * (double)i + 0.3);
        squares += v * v;
    }
    if (!(fabs(cosine - want[0]) <= allowed * (1 + fabs(want[0]))) ||
        !(fabs(squares - want[1]) <= allowed * (1 + fabs(want[1]))))
        fail_msg("%s: %s: got %.9g %.9g, PyTorch has %.9g %.9g", c->name, what, cosine, squares,
                 want[0], want[1]);
}

// Sets the constants of the session's graph.
static inline void fill_constants(op_session *session, const tri_graph *g) {
    for (int i = 0; i < g->parameter_count; i++) {
        const tri_parameter_info *p = &g->parameters[i];
        for (int64_t k = 0; p->role == TRI_ROLE_CONSTANT && k < op_count(session, p->value); k++)
            op_set(session, p->value, k, (double)p->init.values[k]);
    }
}

static inline bool is_filled(const tri_parameter_info *p) {
    return p->role == TRI_ROLE_TRAINED || p->role == TRI_ROLE_ITERATE;
}

// Compares `function`, which gets the case's name. x is the wave 1, and parameter k, or a vector of
// a spectral norm, the wave k + 2; the gradient of y is the wave 9.
static inline void torch_check(const torch_case *c,
                               tri_value (*function)(tri_graph *g, const char *name, tri_value x),
                               const tri_device_backend *backend, tri_dtype dtype, double allowed) {
    tri_graph *g = op_graph_open(dtype);
    tri_value x = tri_parameter(g, "x", torch_shape_of(c->rank, c->x), (tri_init){0});
    tri_value y = function(g, c->name, x);
    const char *message = "";
    if (tri_graph_status(g, &message) != TRI_OK) fail_msg("%s: %s", c->name, message);
    tri_shape want = torch_shape_of(c->y_rank, c->to), got = tri_value_shape(g, y);
    if (!tri_shape_equal(&want, &got)) fail_msg("%s: has another shape", c->name);
    int filled = 0, number[TORCH_PARAMETERS + 8] = {0}; // of each parameter that is filled
    for (int i = 0; i < g->parameter_count; i++)
        if (is_filled(&g->parameters[i])) number[i] = filled++;
    assert_int_equal(filled, 1 + c->parameters);
    tri_value wave = tri_input(g, "wave", dtype, got), zero = tri_input(g, "zero", dtype, got);
    tri_value product = tri_map(g, "y, wave -> y * wave", y, wave);
    tri_loss(g, tri_node_add(g, &tri_op_mse_loss, (tri_value[]){product, zero}, 2, NULL, ""));
    if (tri_graph_status(g, &message) != TRI_OK) fail_msg("%s: %s", c->name, message);
    if (tri_pass_autodiff(g) != TRI_OK) fail_msg("%s: %s", c->name, tri_error_message());
    tri_device *device = op_device_open(backend, 1);
    op_session *session = op_session_open(g, device, false);
    for (int i = 0; i < g->parameter_count; i++)
        if (is_filled(&g->parameters[i]))
            fill_wave(session, g->parameters[i].value, number[i] + 1, 1, 0);
    fill_constants(session, g);
    fill_wave(session, wave, 9, 1, 0);
    for (int i = 0; i < g->input_count; i++)
        if (tri_value_get(g, g->inputs[i].value)->dtype == TRI_I64)
            fill_index(session, &g->inputs[i]);
        else if (!strcmp(g->inputs[i].name, "holes"))
            for (int k = 0; k < op_count(session, g->inputs[i].value); k++)
                op_set(session, g->inputs[i].value, k, !(0x52 >> k & 1));
    op_set(session, g->scalars[TRI_SCALAR_SEED], 0, 1);
    // The squared distance to `zero` has the gradient 2 · (product - zero) · wave with respect to
    // y; with zero = product - 1/2 that is the wave.
    for (int64_t i = 0; i < op_count(session, zero); i++) op_set(session, zero, i, 0);
    op_run_ok(session);
    for (int64_t i = 0; i < op_count(session, zero); i++)
        op_set(session, zero, i, op_get(session, product, i) - 0.5);
    op_run_ok(session);
    torch_near(c, "value", session, y, c->y, allowed);
    int found = 0;
    for (int k = 0; k < g->gradient_count; k++) {
        int i = g->gradients[k].parameter;
        found += is_filled(&g->parameters[i]);
        if (g->parameters[i].role != TRI_ROLE_TRAINED) continue;
        torch_near(c, g->parameters[i].name, session, g->gradients[k].value,
                   i == 0 ? c->dx : c->d[number[i] - 1], allowed);
    }
    assert_int_equal(found, filled);
    op_session_close(session);
    device->backend->close(device);
    op_graph_close(g);
}

// Compares a function on `ref` in F64, and on `cpu` and the emulated GPU in F32.
static inline void torch_check_devices(const torch_case *c,
                                       tri_value (*function)(tri_graph *g, const char *name,
                                                             tri_value x),
                                       double exact, double rounded) {
    test_gpu_choose();
    torch_check(c, function, &tri_device_ref, TRI_F64, exact);
    torch_check(c, function, &tri_device_cpu, TRI_F32, rounded);
    torch_check(c, function, &tri_device_cuda, TRI_F32, rounded);
}

#endif
