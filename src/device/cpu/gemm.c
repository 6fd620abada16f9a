// The loops are those of Goto & van de Geijn, "Anatomy of High-Performance Matrix Multiplication":
// a block of b is packed into panels of 64 columns that stay in the second cache, six rows of a
// stay in the first, and a tile of 6 × 64 sums stays in registers.
#include "device/cpu/gemm.h"

#include "device/cpu/simd.h"
#include "device/cpu/tile.h"

enum {
    STEPS_READ = 512,   // of k at a time: six rows of a take 12 KB
    STEPS_PACKED = 256, // … and 16 packed rows 16 KB
    PANELS_MAX = 4,     // of b at a time: 512 KB
    PACK_ROWS = 16,     // of a packed together: a line of cache
    GEMM_LINE = 16,     // floats in it
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

static bool reads_a(const cpu_gemm *g) { return g->a.column == 1 && g->a.column_block == 64; }
static bool reads_b(const cpu_gemm *g) {
    return g->b.column == 1 && g->b.row == CPU_TILE_COLUMNS && g->b.row_block == 64 * 64 &&
           g->n % CPU_TILE_COLUMNS == 0;
}

// Elements of the largest of `parts` parts of `count` units.
static int64_t largest_part(int64_t count, int64_t parts, int64_t unit, int64_t size) {
    int64_t part = (count + parts - 1) / parts * unit;
    return part < size ? part : size;
}

cpu_gemm_split cpu_gemm_split_of(const cpu_device *device, int64_t m, int64_t unit, int64_t n) {
    cpu_gemm_split best = {.unit = unit,
                           .groups = (m + unit - 1) / unit,
                           .panels = (n + CPU_TILE_COLUMNS - 1) / CPU_TILE_COLUMNS,
                           .rows = 1,
                           .columns = 1};
    int64_t least = INT64_MAX;
    for (int columns = device->head.threads; columns >= 1; columns--) {
        int rows = device->head.threads / columns;
        int64_t share = largest_part(best.groups, rows, unit, m) *
                        largest_part(best.panels, columns, CPU_TILE_COLUMNS, n);
        if (share >= least) continue;
        least = share;
        best.rows = rows;
        best.columns = columns;
    }
    return best;
}

static cpu_gemm_split split_of(const cpu_device *device, const cpu_gemm *g) {
    return cpu_gemm_split_of(device, g->m, reads_a(g) ? CPU_TILE_ROWS : PACK_ROWS, g->n);
}

// Steps at a time: equal parts of k, whole vectors but for the last one.
static int64_t steps_of(const cpu_gemm *g) {
    int64_t most = reads_a(g) ? STEPS_READ : STEPS_PACKED, parts = (g->k + most - 1) / most;
    return ((g->k + parts - 1) / parts + 15) / 16 * 16;
}

// Floats of one thread's packed a and b.
static int64_t packed_a(const cpu_gemm *g, const cpu_gemm_split *s) {
    int64_t groups = (s->groups + s->rows - 1) / s->rows;
    return reads_a(g) ? 0 : groups * s->unit * steps_of(g);
}
static int64_t packed_b(const cpu_gemm *g) {
    return reads_b(g) ? 0 : PANELS_MAX * CPU_TILE_COLUMNS * steps_of(g);
}

size_t cpu_gemm_workspace(const cpu_device *device, const cpu_gemm *gemm) {
    cpu_gemm_split s = split_of(device, gemm);
    int64_t each = packed_a(gemm, &s) + packed_b(gemm);
    return (size_t)(each * s.rows * s.columns) * sizeof(float);
}

// The part of k, of columns and of rows that one thread has in hand.
typedef struct block {
    int64_t step, steps, panel, panels, first_row, end_row;
    const float *b[PANELS_MAX];
    float *a; // packed, or NULL
} block;

// [row / 16][p][16] of a(first + row, step + p), where the rows lie side by side.
static CPU_AVX512 void pack_a(const cpu_gemm *g, const block *b) {
    for (int64_t p = 0; p < b->steps; p++) {
        const float *from = g->a.data + (b->step + p) * g->a.column;
        for (int64_t row = b->first_row; row < b->end_row; row += PACK_ROWS) {
            __mmask16 inside = cpu_first_lanes(b->end_row - row);
            _mm512_storeu_ps(b->a + (row - b->first_row) * b->steps + p * PACK_ROWS,
                             _mm512_maskz_loadu_ps(inside, from + row));
        }
    }
}

// Panels [p][64] of b(step + p, column + j), zero beyond n. A matrix whose columns lie side by side
// is plain; one whose rows do is so within 64 of them.
static void pack_b(const cpu_gemm *g, const block *b, float *to) {
    int64_t panel = b->steps * CPU_TILE_COLUMNS, column = b->panel * CPU_TILE_COLUMNS;
    int64_t end = column + b->panels * CPU_TILE_COLUMNS, place = 0, part;
    if (end > g->n) end = g->n;
    if (g->b.column == 1) {
        cpu_pack_rows(at(&g->b, b->step, column), false, g->b.row, b->steps, end - column, to,
                      panel);
        return;
    }
    for (; column < end; column += CPU_TILE_COLUMNS, to += panel) {
        int64_t columns = end - column < CPU_TILE_COLUMNS ? end - column : CPU_TILE_COLUMNS;
        for (place = 0; place < b->steps; place += part) {
            part = 64 - (b->step + place) % 64;
            if (part > b->steps - place) part = b->steps - place;
            cpu_pack_columns(at(&g->b, b->step + place, column), false, g->b.column, part, columns,
                             to + place * CPU_TILE_COLUMNS);
        }
    }
}

typedef struct gemm_job {
    const cpu_gemm *gemm;
    cpu_gemm_split split;
    float *workspace;
} gemm_job;

// Brings the rows that come next nearer while a tile is computed: one of `parts` equal parts.
CPU_INLINE void fetch_ahead(const cpu_gemm *g, const block *b, int64_t row, int64_t part) {
    int64_t lines = b->steps / GEMM_LINE, first = lines * part / b->panels;
    int64_t end = lines * (part + 1) / b->panels;
    for (int64_t i = row; i < row + CPU_TILE_ROWS && i < b->end_row; i++) {
        const float *from = g->a.data + i * g->a.row + b->step;
        for (int64_t l = first; l < end; l++)
            _mm_prefetch((const char *)(from + l * GEMM_LINE), _MM_HINT_T1);
    }
}

static CPU_AVX512 void multiply_block(const cpu_gemm *g, const block *b) {
    int64_t rows;
    for (int64_t row = b->first_row; row < b->end_row; row += rows) {
        cpu_tile job = {.steps = b->steps, .c_row = g->c.row, .more = b->step > 0};
        rows = CPU_TILE_ROWS;
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
            int64_t column = (b->panel + j) * CPU_TILE_COLUMNS, left = g->n - column;
            job.b = b->b[j];
            job.c = g->c.data + row * g->c.row + (b->panel + j) * g->c.column_block;
            job.bias = g->bias && b->step == 0 ? g->bias + column : NULL;
            if (!b->a) fetch_ahead(g, b, row + CPU_TILE_ROWS, j);
            cpu_tile_multiply(&job, rows, left < CPU_TILE_COLUMNS ? left : CPU_TILE_COLUMNS);
        }
    }
}

static void multiply_part(const gemm_job *job, int part) {
    const cpu_gemm *g = job->gemm;
    const cpu_gemm_split *s = &job->split;
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
            pack_a(g, &b);
        }
        for (b.panel = s->panels * column / s->columns; b.panel < end_panel; b.panel += b.panels) {
            b.panels = end_panel - b.panel < PANELS_MAX ? end_panel - b.panel : PANELS_MAX;
            if (!reads_b(g)) pack_b(g, &b, packed);
            for (int64_t j = 0; j < b.panels; j++)
                b.b[j] = reads_b(g) ? at(&g->b, b.step, (b.panel + j) * CPU_TILE_COLUMNS)
                                    : packed + j * b.steps * CPU_TILE_COLUMNS;
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
