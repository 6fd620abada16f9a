// The operations that patterns make (patterns.c) and that ATen has not.
#include "nn/exported/build.h"
#include "ops/rotary_rate.h"

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

// By how much pair i turns from a position to the next one.
static double turn_of(const angles *a, int64_t i) {
    return atan2(entry(a->sines, a, 1, i), entry(a->cosines, a, 1, i));
}

// The number, or the one of few digits that is so near that rounding explains the difference.
static double rounded(double x) {
    double unit = pow(10, floor(log10(x)) - 3), few = round(x / unit) * unit;
    if (fabs(x - few) <= 3e-5 * x) return few;
    return fabs(x - round(x)) <= 1e-5 * x ? round(x) : x;
}

static double plain_turn(double theta, const angles *a, int64_t i) {
    return pow(theta, -(double)i / (double)a->half);
}

// Finds the rotation that `count` pairs have without a scaling: pair i turns by theta^(-i / half)
// at position 1.
static tri_rotary_options plain_rotation(const angles *a, int64_t count) {
    double turn = count > 1 ? turn_of(a, count - 1) : 0;
    if (count < 2) return (tri_rotary_options){.theta = 10000};
    if (!(turn > 0)) return (tri_rotary_options){0};
    return (tri_rotary_options){.theta =
                                    rounded(pow(turn, -(double)a->half / (double)(count - 1)))};
}

// Finds a rotation of which slow pairs are slower by one factor, fast ones are as they are, and
// those between are mixtures (ops/rotary_rate.h), as Llama 3 has it.
static tri_rotary_options scaled_rotation(const angles *a) {
    const int64_t length = 1 << 20, last = a->half - 1;
    int64_t plain = 1;
    double x[2] = {0}, own[2] = {0};
    tri_rotary_options o = plain_rotation(a, 2);
    while (o.theta > 0 && plain < a->half &&
           fabs(turn_of(a, plain) / plain_turn(o.theta, a, plain) - 1) < 1e-4)
        plain++;
    if (plain < 2 || plain > last) return (tri_rotary_options){0};
    o = plain_rotation(a, plain);
    o.factor = rounded(plain_turn(o.theta, a, last) / turn_of(a, last));
    int found = 0;
    for (int64_t i = plain; i < a->half; i++) {
        double of = plain_turn(o.theta, a, i),
               part = (turn_of(a, i) / of - 1 / o.factor) / (1 - 1 / o.factor);
        if (part < 1e-3) break;
        x[found > 0] = of, own[found > 0] = part; // the first one, and the last
        found++;
    }
    // The share of its own rate is a line over the rate, from 0 at the low bound to 1 at the high
    // one. Without two points of it, the step lies between two pairs.
    bool is_line = found > 1;
    double slope = is_line ? (own[0] - own[1]) / (x[0] - x[1]) : 0,
           low = is_line ? x[1] - own[1] / slope : plain_turn(o.theta, a, plain),
           high = is_line ? low + 1 / slope : plain_turn(o.theta, a, plain - 1);
    const double turns = (double)length / (2 * 3.14159265358979323846);
    o.low_freq_factor = turns * low * (is_line ? 1 : 1.0001);
    o.high_freq_factor = turns * high * (is_line ? 1 : 0.9999);
    o.original_positions = length;
    bool is_known = o.factor > 1 && low > 0 && o.high_freq_factor > o.low_freq_factor;
    return is_known ? o : (tri_rotary_options){0};
}

// Whether the tables are those of the rotation. They are F32, as are the products of which PyTorch
// computes them.
static bool turns_so(const angles *a, const tri_rotary_options *o) {
    tri_rotary_scaling scaling = {o->factor, o->low_freq_factor, o->high_freq_factor,
                                  (double)o->original_positions};
    bool does = o->theta > 0;
    for (int64_t t = 0; does && t < a->positions; t++)
        for (int64_t i = 0; does && i < 2 * a->half; i++) {
            double angle = (double)t * rotary_scaled(plain_turn(o->theta, a, i % a->half), scaling),
                   most = 3e-7 * (1 + angle);
            does = fabs(entry(a->cosines, a, t, i) - cos(angle)) <= most &&
                   fabs(entry(a->sines, a, t, i) - sin(angle)) <= most;
        }
    return does;
}

// The rotation that the tables are of; theta 0: of none that is known.
static tri_rotary_options rotation_of(const angles *a) {
    tri_rotary_options o = plain_rotation(a, a->positions > 1 ? a->half : 0);
    if (turns_so(a, &o)) return o;
    o = a->positions > 1 ? scaled_rotation(a) : (tri_rotary_options){0};
    return turns_so(a, &o) ? o : (tri_rotary_options){0};
}

// Finds the tables of the call, and their rotation.
static tri_rotary_options find_rotation(exported_call *c, const exported_value in[3], int *axis) {
    exported_build *b = c->build;
    tri_rotary_options none = {0};
    if (in[0].kind != EXPORTED_GRAPH || in[1].kind != EXPORTED_HOST ||
        in[2].kind != EXPORTED_HOST || exported_rank(b, &in[0]) != 4)
        return none;
    for (*axis = 2; *axis > 0; --*axis) {
        angles a = {&in[1].host, &in[2].host, *axis, exported_size(b, &in[0], *axis),
                    exported_size(b, &in[0], 3) / 2};
        if (is_table(a.cosines, &a) && is_table(a.sines, &a)) return rotation_of(&a);
    }
    return none;
}

// x cos sin: x · cos + (−x₂, x₁) · sin, of the halves x₁ and x₂ of the last axis.
static void rotary(exported_call *c) {
    static const int inside[] = {0, 2, 1, 3};
    exported_build *b = c->build;
    exported_value in[] = {exported_operand(c, 0), exported_operand(c, 1), exported_operand(c, 2)};
    int axis = 0, last = exported_rank(b, &in[0]) - 1;
    tri_rotary_options rotation = find_rotation(c, in, &axis);
    if (rotation.theta > 0) {
        exported_value x = axis == 2 ? exported_permute(b, in[0], inside) : in[0];
        exported_value y = exported_of_graph(
            tri_rotary_with(b->graph, exported_as_float(b, &x), rotation), in[0].dtype);
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
