// The operations that patterns make (patterns.c) and that ATen has not.
#include "nn/exported/build.h"

#include <math.h>
#include <trireme/nn.h>

// Tables of a rotary embedding: the cosines and sines by which the tensor x [N, H, T, D] or [N, T,
// H, D] is turned.
typedef struct angles {
    const exported_host *cosines, *sines;
    int axis; // of x: the positions
    int64_t positions, half;
} angles;

// The axis of a table along which x's axis `axis` of 4 lies; below 0: it has none.
static int table_axis(const exported_host *table, int axis) { return axis - (4 - table->rank); }

// Whether the table has a row for each position, and no other axis along which it differs.
static bool is_table(const exported_host *table, const angles *a) {
    if (table->rank < 1 || table->rank > 4) return false;
    for (int k = 0; k < 4; k++) {
        int own = table_axis(table, k);
        int64_t wanted = k == a->axis ? a->positions : k == 3 ? 2 * a->half : 1;
        bool repeats = own < 0 || table->sizes[own] == 1 || table->strides[own] == 0;
        if (wanted == 1 ? !repeats : own < 0 || table->sizes[own] != wanted) return false;
    }
    return true;
}

static double entry(const exported_host *table, const angles *a, int64_t position, int64_t i) {
    int64_t index[EXPORTED_MAX_RANK] = {0};
    int axis = table_axis(table, a->axis);
    if (axis >= 0) index[axis] = position;
    index[table->rank - 1] = i;
    return exported_host_at(table, index);
}

// The base of the rotation: the pair i turns by theta^(-i / half) at position 1. 0: the tables are
// none of such a rotation. They are F32, as are the products of which PyTorch computes them.
static double theta_of(const angles *a) {
    double theta = 10000;
    if (a->positions > 1 && a->half > 1) {
        int64_t i = a->half - 1;
        double turn = atan2(entry(a->sines, a, 1, i), entry(a->cosines, a, 1, i));
        theta = turn > 0 ? pow(turn, -(double)a->half / (double)i) : 0;
        if (fabs(theta - round(theta)) <= 1e-5 * theta) theta = round(theta);
    }
    for (int64_t t = 0; t < a->positions && theta > 0; t++)
        for (int64_t i = 0; i < 2 * a->half; i++) {
            double angle = (double)t * pow(theta, -(double)(i % a->half) / (double)a->half);
            double most = 3e-7 * (1 + angle);
            if (!(fabs(entry(a->cosines, a, t, i) - cos(angle)) <= most) ||
                !(fabs(entry(a->sines, a, t, i) - sin(angle)) <= most))
                return 0;
        }
    return theta;
}

// Finds the tables of the call, and the base; 0: they are others.
static double find_angles(exported_call *c, const exported_value in[3], int *axis) {
    exported_build *b = c->build;
    if (in[0].kind != EXPORTED_GRAPH || in[1].kind != EXPORTED_HOST ||
        in[2].kind != EXPORTED_HOST || exported_rank(b, &in[0]) != 4)
        return 0;
    for (*axis = 2; *axis > 0; --*axis) {
        angles a = {&in[1].host, &in[2].host, *axis, exported_size(b, &in[0], *axis),
                    exported_size(b, &in[0], 3) / 2};
        if (is_table(a.cosines, &a) && is_table(a.sines, &a)) return theta_of(&a);
    }
    return 0;
}

// x cos sin: x · cos + (−x₂, x₁) · sin, of the halves x₁ and x₂ of the last axis.
static void rotary(exported_call *c) {
    static const int inside[] = {0, 2, 1, 3};
    exported_build *b = c->build;
    exported_value in[] = {exported_operand(c, 0), exported_operand(c, 1), exported_operand(c, 2)};
    int axis = 0, last = exported_rank(b, &in[0]) - 1;
    double theta = find_angles(c, in, &axis);
    if (theta > 0) {
        exported_value x = axis == 2 ? exported_permute(b, in[0], inside) : in[0];
        exported_value y =
            exported_of_graph(tri_rotary(b->graph, exported_as_float(b, &x), theta), in[0].dtype);
        exported_give(c, axis == 2 ? exported_permute(b, y, inside) : y);
        return;
    }
    int64_t width = exported_size(b, &in[0], last);
    exported_value low = exported_slice(b, in[0], last, 0, width / 2, 1),
                   high = exported_slice(b, in[0], last, width / 2, width, 1);
    exported_value parts[] = {exported_map_text(b, "-x", NULL, &high, 1, in[0].dtype), low};
    exported_value all[] = {in[0], in[1], exported_concat(b, parts, 2, last), in[2]};
    exported_give(c, exported_map_text(b, "x, c, y, s -> x * c + y * s", NULL, all, 4,
                                       exported_result_type(c, 0)));
}

const exported_row exported_fused_rows[] = {
    FORMULA("fused.silu_mul", "gate up", "gate, up -> gate * sigmoid(gate) * up"),
    ROW("fused.rotary", "x cos sin", rotary),
    {NULL, NULL, NULL, NULL, NULL, false},
};
