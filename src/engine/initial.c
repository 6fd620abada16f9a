// Draws initial values by the rules of parameters.h. An element depends on the seed, the
// parameter's name and its index in the whole parameter, so that every rank can make those that it
// keeps.
#include "engine/initial.h"

#include "base/parallel.h"
#include "base/philox.h"

#include <math.h>
#include <stdlib.h>

// The inverse of the error function, by Newton's method from S. Winitzki's approximation ("A handy
// approximation for the error function and its inverse", 2008).
static double inverse_erf(double y) {
    double a = 0.147, half = log((1 - y) * (1 + y)) / 2, middle = 2 / (M_PI * a) + half;
    if (!(fabs(y) < 1)) return copysign(HUGE_VAL, y);
    double x = copysign(sqrt(sqrt(middle * middle - half * 2 / a) - middle), y);
    for (int i = 0; i < 3; i++) x -= (erf(x) - y) * exp(x * x) * sqrt(M_PI) / 2;
    return x;
}

static double normal_below(double x) { return erfc(-x * M_SQRT1_2) / 2; }

// Turns uniform numbers in [0, 1) into those of a normal distribution that is cut at low and high.
static void truncate_normal(const tri_init *init, int64_t count, float *out) {
    double below = normal_below((init->low - init->mean) / init->std);
    double upto = normal_below((init->high - init->mean) / init->std);
    for (int64_t i = 0; i < count; i++) {
        double p = below + (upto - below) * ((double)out[i] + 0x1p-25);
        double x = init->mean + init->std * M_SQRT2 * inverse_erf(2 * p - 1);
        out[i] = (float)fmin(fmax(x, init->low), init->high);
    }
}

static void draw(const engine_initial *initial, int64_t first, int64_t count, float *out) {
    const tri_init *init = &initial->init;
    int64_t columns = initial->columns, rows = initial->rows;
    for (int64_t i = 0; initial->norms && i < count; i++) out[i] = (float)initial->norms[first + i];
    if (initial->norms) return;
    switch (init->kind) {
    case TRI_INIT_UNIFORM:
        tri_philox_init_uniforms(initial->key, (uint64_t)first, count, (float)init->low,
                                 (float)init->high, out);
        return;
    case TRI_INIT_NORMAL:
        tri_philox_init_normals(initial->key, (uint64_t)first, count, (float)init->mean,
                                (float)init->std, out);
        return;
    case TRI_INIT_TRUNC_NORMAL:
        tri_philox_init_uniforms(initial->key, (uint64_t)first, count, 0, 1, out);
        truncate_normal(init, count, out);
        return;
    case TRI_INIT_ORTHOGONAL:
        for (int64_t i = 0; i < count; i++) {
            int64_t row = (first + i) / columns, column = (first + i) % columns;
            double v =
                initial->vectors[rows < columns ? row * columns + column : column * rows + row];
            out[i] = (float)(init->gain * v);
        }
        return;
    case TRI_INIT_DIRAC:
        for (int64_t i = 0; i < count; i++) {
            int64_t channel = (first + i) / columns % (rows / init->groups);
            out[i] = (first + i) % columns == channel * initial->taps + initial->middle;
        }
        return;
    case TRI_INIT_SPARSE:
        tri_philox_init_normals(initial->key, (uint64_t)first, count, 0, (float)init->std, out);
        for (int64_t i = 0; i < count; i++)
            if (initial->is_zero[first + i]) out[i] = 0;
        return;
    case TRI_INIT_VALUES:
        for (int64_t i = 0; i < count; i++) out[i] = init->values[first + i];
        return;
    default: // CONSTANT: tri_init_resolve leaves no others
        for (int64_t i = 0; i < count; i++) out[i] = (float)init->value;
        return;
    }
}

void engine_initial_make(const engine_initial *initial, int64_t first, int64_t count, float *out) {
    int64_t row = initial->init.zero_row - 1;
    draw(initial, first, count, out);
    for (int64_t i = 0; i < count && row >= 0; i++)
        if ((first + i) / initial->columns == row) out[i] = 0;
}

// The vectors that are made orthogonal to each other, of which number `done` is finished.
typedef struct orthogonal {
    double *vectors;
    int64_t length, done;
} orthogonal;

// The sum in eight terms, which a compiler may keep in vector registers.
static double dot(const double *a, const double *b, int64_t length) {
    enum { TERMS = 8 };
    double terms[TERMS] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + TERMS <= length; i += TERMS)
        for (int k = 0; k < TERMS; k++) terms[k] += a[i + k] * b[i + k];
    for (; i < length; i++) sum += a[i] * b[i];
    for (int k = 0; k < TERMS; k++) sum += terms[k];
    return sum;
}

// Takes from later vectors what they have of the finished one.
static void remove_finished(void *context, int64_t first, int64_t end) {
    const orthogonal *o = context;
    const double *unit = o->vectors + o->done * o->length;
    for (int64_t j = o->done + 1 + first; j < o->done + 1 + end; j++) {
        double *v = o->vectors + j * o->length, part = dot(unit, v, o->length);
        for (int64_t i = 0; i < o->length; i++) v[i] -= part * unit[i];
    }
}

// Makes the vectors by the modified Gram-Schmidt process from normal numbers. This is PyTorch's
// rule, a QR decomposition in which R has a positive diagonal. Every sum is in one order, so that
// the number of threads changes nothing.
static tri_status make_orthogonal(engine_initial *e) {
    int64_t rows = e->rows, columns = e->columns;
    bool by_rows = rows < columns;
    int64_t count = by_rows ? rows : columns, length = by_rows ? columns : rows;
    orthogonal o = {.length = length};
    o.vectors = e->vectors = malloc((size_t)(rows * columns) * sizeof(double) + 1);
    if (!o.vectors) return TRI_FAIL(TRI_NO_MEMORY, "no memory for an orthogonal matrix");
    for (int64_t i = 0; i < rows * columns; i++)
        o.vectors[by_rows ? i : i % columns * rows + i / columns] =
            (double)tri_philox_init_normal(e->key, (uint64_t)i, 0, 1);
    for (o.done = 0; o.done < count; o.done++) {
        double *v = o.vectors + o.done * length, size = sqrt(dot(v, v, length));
        for (int64_t i = 0; i < length; i++) v[i] = size > 0 ? v[i] / size : 0;
        tri_parallel_for(tri_parallel_threads(), count - o.done - 1, 1 + (1 << 18) / length,
                         remove_finished, &o);
    }
    return TRI_OK;
}

// A row of a column with the random number by which it is chosen.
typedef struct candidate {
    float number;
    int64_t row;
} candidate;

static int compare_candidates(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    if (x->number != y->number) return x->number < y->number ? -1 : 1;
    return x->row < y->row ? -1 : 1;
}

// Chooses in each column the rows that are 0, as many as PyTorch: those with the smallest of random
// numbers, which are others than those of the elements.
static tri_status choose_zeros(engine_initial *e) {
    const uint64_t key = e->key ^ UINT64_C(0x9e3779b97f4a7c15);
    int64_t rows = e->rows, columns = e->columns;
    int64_t zeros = (int64_t)ceil(e->init.sparsity * (double)rows);
    candidate *list = malloc((size_t)rows * sizeof *list);
    e->is_zero = calloc((size_t)(rows * columns), sizeof *e->is_zero);
    for (int64_t k = 0; list && e->is_zero && k < columns; k++) {
        for (int64_t r = 0; r < rows; r++) {
            float number = tri_philox_init_uniform(key, (uint64_t)(r * columns + k), 0, 1);
            list[r] = (candidate){number, r};
        }
        qsort(list, (size_t)rows, sizeof *list, compare_candidates);
        for (int64_t i = 0; i < zeros; i++) e->is_zero[list[i].row * columns + k] = true;
    }
    free(list);
    if (list && e->is_zero) return TRI_OK;
    return TRI_FAIL(TRI_NO_MEMORY, "no memory for a sparse matrix");
}

// Computes the norms of a parameter along the axes that have one size here and there. All its
// elements are made once, in their order.
static tri_status find_norms(const tri_parameter_info *parameter, uint64_t seed,
                             engine_initial *out) {
    enum { PIECE = 4096 };
    const tri_parameter_info *of = parameter->norms_of;
    float piece[PIECE];
    engine_initial whole;
    int64_t count = tri_shape_count(&parameter->shape), all = tri_shape_count(&of->shape),
            behind = 1;
    int axis = 0;
    while (axis < parameter->shape.rank && parameter->shape.dims[axis] == 1) axis++;
    for (int i = axis + 1; i < of->shape.rank; i++) behind *= of->shape.dims[i];
    out->norms = calloc((size_t)count, sizeof *out->norms);
    if (!out->norms) return TRI_FAIL(TRI_NO_MEMORY, "no memory for the norms of a parameter");
    TRI_TRY(engine_initial_begin(of, seed, &whole));
    for (int64_t first = 0; first < all; first += PIECE) {
        int64_t made = all - first < PIECE ? all - first : PIECE;
        engine_initial_make(&whole, first, made, piece);
        for (int64_t i = 0; i < made; i++)
            out->norms[(first + i) / behind % count] += (double)piece[i] * (double)piece[i];
    }
    engine_initial_end(&whole);
    for (int64_t i = 0; i < count; i++) out->norms[i] = sqrt(out->norms[i]);
    return TRI_OK;
}

tri_status engine_initial_begin(const tri_parameter_info *parameter, uint64_t seed,
                                engine_initial *out) {
    const tri_parameter_info *p = parameter;
    const tri_shape *shape = p->slice.count ? &p->slice.full : &p->shape;
    *out =
        (engine_initial){.key = tri_philox_key(seed, p->name), .rows = 1, .columns = 1, .taps = 1};
    TRI_TRY(tri_init_resolve(&p->init, shape, &out->init));
    if (shape->rank > 0) out->rows = shape->dims[0];
    for (int i = 1; i < shape->rank; i++) out->columns *= shape->dims[i];
    for (int i = 2; i < shape->rank; i++) {
        out->taps *= shape->dims[i];
        out->middle = out->middle * shape->dims[i] + shape->dims[i] / 2;
    }
    if (p->norms_of) return find_norms(p, seed, out);
    if (out->init.kind == TRI_INIT_SPARSE) return choose_zeros(out);
    return out->init.kind == TRI_INIT_ORTHOGONAL ? make_orthogonal(out) : TRI_OK;
}

void engine_initial_end(engine_initial *initial) {
    free(initial->vectors);
    free(initial->is_zero);
    free(initial->norms);
}
