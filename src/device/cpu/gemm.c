// The loops are those of Goto & van de Geijn, "Anatomy of High-Performance Matrix Multiplication":
// a block of b is packed into panels of 64 columns that stay in the second cache, six rows of a
// stay in the first, and a tile of 6 × 64 sums stays in registers.
#include "device/cpu/gemm.h"

#include "device/cpu/simd.h"

enum {
    TILE_ROWS = 6,
    TILE_VECTORS = CPU_GEMM_COLUMNS / 16,
    STEPS_READ = 512,   // of k at a time: six rows of a take 12 KB
    STEPS_PACKED = 256, // … and 16 packed rows 16 KB
    PANELS_MAX = 4,     // of b at a time: 512 KB
    PACK_ROWS = 16,     // of a packed together: a line of cache
    GEMM_LINE = 16,     // floats in it
    GEMM_AHEAD = 16,    // rows that packing asks for in advance
};

cpu_matrix cpu_matrix_plain(const float *data, int64_t row_stride) {
    return (cpu_matrix){.data = (float *)data,
                        .row = row_stride,
                        .row_block = 64 * row_stride,
                        .column = 1,
                        .column_block = 64};
}

cpu_matrix cpu_matrix_transposed(cpu_matrix m) {
    return (cpu_matrix){.data = m.data,
                        .row = m.column,
                        .row_block = m.column_block,
                        .column = m.row,
                        .column_block = m.row_block};
}

static float *at(const cpu_matrix *m, int64_t r, int64_t c) {
    return m->data + r / 64 * m->row_block + r % 64 * m->row + c / 64 * m->column_block +
           c % 64 * m->column;
}

// One tile: `rows` of a, `vectors` of 16 columns, the last one under a mask.
typedef struct tile_job {
    int64_t steps;
    const float *a;
    int64_t a_row, a_step;
    const float *b; // [steps][64]
    float *c;
    int64_t c_row;
    const float *start; // of the sums, the same for all rows; NULL: zero, or c itself when `more`
    bool more;
    __mmask16 last;
} tile_job;

CPU_INLINE void tile(const tile_job *job, int rows, int vectors) {
    __m512 sum[TILE_ROWS * TILE_VECTORS];
    const float *a = job->a, *b = job->b;
    const int64_t a_row = job->a_row, a_step = job->a_step;
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            _mm_prefetch((const char *)(job->c + i * job->c_row + 16 * v), _MM_HINT_T0);
            sum[i * vectors + v] = _mm512_setzero_ps();
        }
    for (int64_t p = 0; p < job->steps; p++) {
        __m512 column[TILE_VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) column[v] = _mm512_loadu_ps(b + 16 * v);
#pragma GCC unroll 6
        for (int i = 0; i < rows; i++) {
            __m512 x = _mm512_set1_ps(a[i * a_row]);
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++)
                sum[i * vectors + v] = _mm512_fmadd_ps(x, column[v], sum[i * vectors + v]);
        }
        a += a_step;
        b += CPU_GEMM_COLUMNS;
    }
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            __mmask16 inside = v == vectors - 1 ? job->last : 0xFFFF;
            float *c = job->c + i * job->c_row + 16 * v;
            __m512 value = sum[i * vectors + v];
            if (job->more) value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(inside, c));
            if (job->start)
                value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(inside, job->start + 16 * v));
            _mm512_mask_storeu_ps(c, inside, value);
        }
}

#define TILE(rows, vectors)                                                                        \
    static CPU_AVX512 void tile_##rows##_##vectors(const tile_job *job) {                          \
        tile(job, rows, vectors);                                                                  \
    }
#define TILES(rows) TILE(rows, 1) TILE(rows, 2) TILE(rows, 3) TILE(rows, 4)
TILES(1)
TILES(2)
TILES(3) TILES(4) TILES(5) TILES(6)
#define ROW(rows)                                                                                  \
    { tile_##rows##_1, tile_##rows##_2, tile_##rows##_3, tile_##rows##_4 }
    static void (*const tiles[TILE_ROWS][TILE_VECTORS])(const tile_job *) = {
        ROW(1), ROW(2), ROW(3), ROW(4), ROW(5), ROW(6)};

static bool reads_a(const cpu_gemm *g) { return g->a.column == 1 && g->a.column_block == 64; }
static bool reads_b(const cpu_gemm *g) {
    return g->b.column == 1 && g->b.row == CPU_GEMM_COLUMNS && g->b.row_block == 64 * 64 &&
           g->n % CPU_GEMM_COLUMNS == 0;
}

// A rectangle of c for each thread; each packs what it needs for itself.
typedef struct split {
    int64_t unit;           // rows that stay together
    int64_t groups, panels; // of so many rows, of 64 columns
    int rows, columns;      // threads along each
} split;

static split split_of(const cpu_device *device, const cpu_gemm *g) {
    int64_t unit = reads_a(g) ? TILE_ROWS : PACK_ROWS;
    split best = {.unit = unit,
                  .groups = (g->m + unit - 1) / unit,
                  .panels = (g->n + CPU_GEMM_COLUMNS - 1) / CPU_GEMM_COLUMNS,
                  .rows = 1,
                  .columns = 1};
    int64_t least = INT64_MAX;
    for (int columns = device->head.threads; columns >= 1; columns--) {
        int rows = device->head.threads / columns;
        int64_t share = (best.groups + rows - 1) / rows * ((best.panels + columns - 1) / columns);
        if (share >= least) continue;
        least = share;
        best.rows = rows;
        best.columns = columns;
    }
    return best;
}

// Steps at a time: equal parts of k, whole vectors but for the last one.
static int64_t steps_of(const cpu_gemm *g) {
    int64_t most = reads_a(g) ? STEPS_READ : STEPS_PACKED, parts = (g->k + most - 1) / most;
    return ((g->k + parts - 1) / parts + 15) / 16 * 16;
}

// Floats of one thread's packed a and b.
static int64_t packed_a(const cpu_gemm *g, const split *s) {
    int64_t groups = (s->groups + s->rows - 1) / s->rows;
    return reads_a(g) ? 0 : groups * s->unit * steps_of(g);
}
static int64_t packed_b(const cpu_gemm *g) {
    return reads_b(g) ? 0 : PANELS_MAX * CPU_GEMM_COLUMNS * steps_of(g);
}

size_t cpu_gemm_workspace(const cpu_device *device, const cpu_gemm *gemm) {
    split s = split_of(device, gemm);
    int64_t each = packed_a(gemm, &s) + packed_b(gemm);
    return (size_t)(each * s.rows * s.columns) * sizeof(float);
}

// to[p][16] = a(row + i, step + p), where the rows lie side by side.
static CPU_AVX512 void pack_a(const cpu_gemm *g, int64_t row, int64_t step, int64_t steps,
                              float *to) {
    int64_t left = g->m - row < PACK_ROWS ? g->m - row : PACK_ROWS;
    __mmask16 inside = (__mmask16)(0xFFFF >> (PACK_ROWS - left));
    const float *from = g->a.data + row + step * g->a.column;
    for (int64_t p = 0; p < steps; p++, from += g->a.column) {
        _mm_prefetch((const char *)(from + GEMM_AHEAD * g->a.column), _MM_HINT_T0);
        _mm512_storeu_ps(to + p * PACK_ROWS, _mm512_maskz_loadu_ps(inside, from));
    }
}

// to[p][64] = b(step + p, column + j), zero beyond n.
static CPU_AVX512 void pack_b_rows(const cpu_gemm *g, int64_t column, int64_t step, int64_t steps,
                                   float *to) {
    int64_t left = g->n - column;
    uint64_t inside = left >= 64 ? UINT64_MAX : (UINT64_C(1) << left) - 1;
    for (int64_t p = 0; p < steps; p++, to += CPU_GEMM_COLUMNS) {
        const float *from = at(&g->b, step + p, column);
        const float *ahead = from + GEMM_AHEAD * g->b.row;
        for (int v = 0; v < TILE_VECTORS; v++) {
            _mm_prefetch((const char *)(ahead + 16 * v), _MM_HINT_T0);
            _mm512_storeu_ps(to + 16 * v,
                             _mm512_maskz_loadu_ps((__mmask16)(inside >> (16 * v)), from + 16 * v));
        }
    }
}

static CPU_AVX512 void pack_b_columns(const cpu_gemm *g, int64_t column, int64_t step,
                                      int64_t steps, float *to) {
    for (int64_t p = 0; p < steps; p += 16) {
        int64_t places = steps - p < 16 ? steps - p : 16;
        __mmask16 inside = (__mmask16)((1u << places) - 1);
        const float *from = at(&g->b, step + p, column);
        for (int64_t j = 0; j < CPU_GEMM_COLUMNS; j += 16) {
            __m512 r[16];
            for (int64_t i = 0; i < 16; i++)
                r[i] = column + j + i < g->n
                           ? _mm512_maskz_loadu_ps(inside, from + (j + i) * g->b.column)
                           : _mm512_setzero_ps();
            cpu_transpose16(r);
            for (int64_t i = 0; i < places; i++)
                _mm512_storeu_ps(to + (p + i) * CPU_GEMM_COLUMNS + j, r[i]);
        }
    }
}

typedef struct gemm_job {
    const cpu_gemm *gemm;
    split split;
    float *workspace;
} gemm_job;

// The part of k, of columns and of rows that one thread has in hand.
typedef struct block {
    int64_t step, steps, panel, panels, first_row, end_row;
    const float *b[PANELS_MAX];
    float *a; // packed, or NULL
} block;

// Brings the rows that come next nearer while a tile is computed: one of `parts` equal parts.
CPU_INLINE void fetch_ahead(const cpu_gemm *g, const block *b, int64_t row, int64_t part) {
    int64_t lines = b->steps / GEMM_LINE, first = lines * part / b->panels;
    int64_t end = lines * (part + 1) / b->panels;
    for (int64_t i = row; i < row + TILE_ROWS && i < b->end_row; i++) {
        const float *from = g->a.data + i * g->a.row + b->step;
        for (int64_t l = first; l < end; l++)
            _mm_prefetch((const char *)(from + l * GEMM_LINE), _MM_HINT_T1);
    }
}

static CPU_AVX512 void multiply_block(const cpu_gemm *g, const block *b) {
    int64_t rows;
    for (int64_t row = b->first_row; row < b->end_row; row += rows) {
        tile_job job = {.steps = b->steps, .c_row = g->c.row, .more = b->step > 0};
        rows = TILE_ROWS;
        if (b->a) { // 16 rows are 6, 5 and 5
            int64_t place = row - b->first_row, inner = place % PACK_ROWS;
            if (inner > 0) rows = 5;
            job.a = b->a + (place - inner) * b->steps + inner;
            job.a_row = 1;
            job.a_step = PACK_ROWS;
        } else {
            job.a = g->a.data + row * g->a.row + b->step;
            job.a_row = g->a.row;
            job.a_step = 1;
        }
        if (rows > b->end_row - row) rows = b->end_row - row;
        for (int64_t j = 0; j < b->panels; j++) {
            int64_t column = (b->panel + j) * CPU_GEMM_COLUMNS, left = g->n - column;
            if (left > CPU_GEMM_COLUMNS) left = CPU_GEMM_COLUMNS;
            int64_t vectors = (left + 15) / 16;
            job.b = b->b[j];
            job.c = g->c.data + row * g->c.row + (b->panel + j) * g->c.column_block;
            job.start = g->bias && b->step == 0 ? g->bias + column : NULL;
            job.last = (__mmask16)(0xFFFF >> (16 * vectors - left));
            if (!b->a) fetch_ahead(g, b, row + TILE_ROWS, j);
            tiles[rows - 1][vectors - 1](&job);
        }
    }
}

static void multiply_part(const gemm_job *job, int part) {
    const cpu_gemm *g = job->gemm;
    const split *s = &job->split;
    int row = part / s->columns, column = part % s->columns;
    int64_t most = steps_of(g), end_panel = s->panels * (column + 1) / s->columns;
    float *own = job->workspace + part * (packed_a(g, s) + packed_b(g));
    float *packed = own + packed_a(g, s);
    block b = {.first_row = s->groups * row / s->rows * s->unit,
               .end_row = s->groups * (row + 1) / s->rows * s->unit};
    if (b.end_row > g->m) b.end_row = g->m;
    for (b.step = 0; b.step < g->k; b.step += b.steps) {
        b.steps = g->k - b.step < most ? g->k - b.step : most;
        if (!reads_a(g)) {
            b.a = own;
            for (int64_t r = b.first_row; r < b.end_row; r += PACK_ROWS)
                pack_a(g, r, b.step, b.steps, b.a + (r - b.first_row) * b.steps);
        }
        for (b.panel = s->panels * column / s->columns; b.panel < end_panel; b.panel += b.panels) {
            b.panels = end_panel - b.panel < PANELS_MAX ? end_panel - b.panel : PANELS_MAX;
            for (int64_t j = 0; j < b.panels; j++) {
                int64_t first = (b.panel + j) * CPU_GEMM_COLUMNS;
                float *to = packed + j * CPU_GEMM_COLUMNS * most;
                b.b[j] = reads_b(g) ? at(&g->b, b.step, first) : to;
                if (reads_b(g)) continue;
                if (g->b.column == 1)
                    pack_b_rows(g, first, b.step, b.steps, to);
                else
                    pack_b_columns(g, first, b.step, b.steps, to);
            }
            multiply_block(g, &b);
        }
    }
}

static void gemm_range(void *context, int64_t begin, int64_t end, int thread) {
    for (int64_t part = begin; part < end; part++) multiply_part(context, (int)part);
}

void cpu_gemm_run(const cpu_device *device, const cpu_gemm *gemm, void *workspace) {
    gemm_job job = {.gemm = gemm, .split = split_of(device, gemm), .workspace = workspace};
    cpu_parallel(device, job.split.rows * job.split.columns, 1, gemm_range, &job);
}
