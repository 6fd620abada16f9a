// Compares the gradient rules of ops with central finite differences of a loss. Both are computed
// in F64 on the reference device `ref`, which is written in plain C.
#ifndef TRIREME_TESTS_GRADIENT_CHECK_H
#define TRIREME_TESTS_GRADIENT_CHECK_H

#include "device/ref/ref.h"
#include "pass/pass.h"
#include "support/op_session.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/nn.h>

#include <cmocka.h>

static const double step_size = 1e-5, tolerance = 1e-6, seed_value = 0.75;

// A graph whose gradients are checked.
typedef struct subject {
    tri_graph *graph;
} subject;

static inline subject begin(void) { return (subject){.graph = op_graph_open(TRI_F64)}; }

// Adds a parameter. The test then checks its gradient.
static inline tri_value trained(subject *s, const char *name, tri_shape shape) {
    return tri_parameter(s->graph, name, shape, (tri_init){0});
}

// Turns y into a loss: its squared distance to random targets. Because of these targets, the
// gradient differs from element to element.
static inline tri_value distance(subject *s, tri_value y) {
    tri_value target = tri_input(s->graph, "target", TRI_F64, tri_value_shape(s->graph, y));
    return tri_node_add(s->graph, &tri_op_mse_loss, (tri_value[]){y, target}, 2, NULL, "");
}

static inline void fill_sources(op_session *session, const tri_graph *g, double low, double high) {
    for (int i = 1; i < g->value_count; i++) {
        const tri_value_info *info = &g->values[i];
        tri_value value = {(uint32_t)i};
        if (info->kind == TRI_VALUE_RESULT) continue;
        if (info->dtype == TRI_F64) {
            op_fill(session, value, 77, low, high);
            continue;
        }
        int64_t *labels = op_host(session, value);
        bool input = g->inputs[info->index].value.id == value.id;
        const char *name = input ? g->inputs[info->index].name : "labels";
        for (int64_t k = 0; k < op_count(session, value); k++)
            labels[k] = !strcmp(name, "position") ? 5 + k
                        : !strcmp(name, "ids")    ? k * k % 4
                        : k % 4 == 3              ? TRI_IGNORED_LABEL
                                                  : k % 3;
    }
    op_set(session, g->scalars[TRI_SCALAR_SEED], 0, seed_value);
}

static inline double loss_at(op_session *session, tri_value loss) {
    op_run_ok(session);
    return op_get(session, loss, 0) * seed_value;
}

static inline void check_parameter(op_session *session, const tri_graph *g, int index,
                                   tri_value loss) {
    const tri_parameter_info *p = &g->parameters[index];
    int64_t count = op_count(session, p->value);
    double *gradient = malloc((size_t)count * sizeof *gradient + 1);
    op_run_ok(session);
    for (int64_t i = 0; i < count; i++) {
        gradient[i] = 0;
        // A parameter has one gradient for each block that reads it; their sum is compared.
        for (int k = 0; k < g->gradient_count; k++)
            if (g->gradients[k].parameter == index)
                gradient[i] += op_get(session, g->gradients[k].value, i);
    }
    for (int64_t i = 0; i < count; i++) {
        double x = op_get(session, p->value, i);
        op_set(session, p->value, i, x + step_size);
        double above = loss_at(session, loss);
        op_set(session, p->value, i, x - step_size);
        double below = loss_at(session, loss);
        op_set(session, p->value, i, x);
        double found = (above - below) / (2 * step_size);
        if (!(fabs(found - gradient[i]) <= tolerance * (1 + fabs(found))))
            fail_msg("%s[%lld]: the rule gives %.9g, differences %.9g", p->name, (long long)i,
                     gradient[i], found);
    }
    free(gradient);
}

// Compares the gradient of every trained parameter with finite differences of the loss. Inputs and
// parameters are random numbers in [low, high), which has to lie where all ops are smooth. Leaves
// the graph open.
static inline void check_open(subject *s, tri_value loss, double low, double high) {
    const char *message = "";
    tri_graph *g = s->graph;
    tri_loss(g, loss);
    if (tri_graph_status(g, &message) != TRI_OK) fail_msg("%s", message);
    if (tri_pass_autodiff(g) != TRI_OK) fail_msg("%s", tri_error_message());
    tri_device *device = op_device_open(&tri_device_ref, 1);
    op_session *session = op_session_open(g, device, false);
    fill_sources(session, g, low, high);
    for (int i = 0; i < g->parameter_count; i++) check_parameter(session, g, i, loss);
    op_session_close(session);
    device->backend->close(device);
}

// Like check_open, and closes the graph.
static inline void check_in(subject *s, tri_value loss, double low, double high) {
    check_open(s, loss, low, high);
    op_graph_close(s->graph);
}

// Like check_in, with inputs and parameters in [-1, 1).
static inline void check(subject *s, tri_value loss) { check_in(s, loss, -1, 1); }

#endif
