// The loops of gemm.c in another order: all of k for 256 columns of c before the next ones, so that
// sums of which only the rounded ones are kept need no more room than those columns. What there is
// a float is here a pair of BF16, of two steps that follow one another.
#include "device/cpu/gemm_brain.h"

#include "device/cpu/gemm.h"
#include "device/cpu/simd.h"
#include "device/cpu/tile.h"

enum {
    BRAIN_PAIRS = 512, // of k at a time: six rows of a take 12 KB
    BRAIN_PANELS = 4,  // of b at a time: 512 KB
    BRAIN_COLUMNS = BRAIN_PANELS * CPU_TILE_COLUMNS,
};

static cpu_gemm_split split_of(const cpu_device *device, const cpu_brain_gemm *g) {
    return cpu_gemm_split_of(device, g->m, CPU_TILE_ROWS, g->n);
}

// Pairs at a time: equal parts of k.
static int64_t most_pairs(const cpu_brain_gemm *g) {
    int64_t pairs = g->k / 2, parts = (pairs + BRAIN_PAIRS - 1) / BRAIN_PAIRS;
    return ((pairs + parts - 1) / parts + 15) / 16 * 16;
}

// A thread's part of the workspace: packed panels of b, and sums of all its rows.
typedef struct brain_space {
    int64_t b, sums; // floats
} brain_space;

static brain_space space_of(const cpu_brain_gemm *g, const cpu_gemm_split *s) {
    int64_t most = most_pairs(g), rows = (s->groups + s->rows - 1) / s->rows * s->unit;
    bool kept = g->k / 2 > most;
    return (brain_space){.b = BRAIN_COLUMNS * most, .sums = kept ? rows * BRAIN_COLUMNS : 0};
}

size_t cpu_brain_gemm_workspace(const cpu_device *device, const cpu_brain_gemm *gemm) {
    cpu_gemm_split s = split_of(device, gemm);
    brain_space z = space_of(gemm, &s);
    return (size_t)((z.b + z.sums) * s.rows * s.columns) * sizeof(float);
}

// The part of c that one thread has in hand, and of k.
typedef struct brain_block {
    int64_t first_row, end_row, column, columns, pair, pairs;
    float *b, *sums;
} brain_block;

// 16 elements of two rows that are `row` apart, in pairs.
CPU_INLINE __m512 pairs_of_rows(const uint16_t *from, int64_t row, __mmask16 inside) {
    __m512i even = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(inside, from));
    __m512i odd = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(inside, from + row));
    return _mm512_castsi512_ps(_mm512_or_si512(even, _mm512_slli_epi32(odd, 16)));
}

// Panels [pair][64], zero beyond n.
static CPU_AVX512 void pack_b(const cpu_brain_gemm *g, const brain_block *b) {
    for (int64_t j = 0; j < b->columns; j += CPU_TILE_COLUMNS) {
        int64_t left = b->columns - j;
        float *panel = b->b + j * b->pairs;
        if (g->b_transposed) {
            cpu_pack_columns(g->b + (b->column + j) * g->k + 2 * b->pair, false, g->k / 2, b->pairs,
                             left < CPU_TILE_COLUMNS ? left : CPU_TILE_COLUMNS, panel);
            continue;
        }
        for (int64_t p = 0; p < b->pairs; p++)
            for (int64_t i = 0; i < CPU_TILE_COLUMNS; i += 16) {
                __mmask16 inside = i < left ? cpu_first_lanes(left - i) : 0;
                const uint16_t *from = g->b + 2 * (b->pair + p) * g->n + b->column + j + i;
                _mm512_storeu_ps(panel + p * CPU_TILE_COLUMNS + i,
                                 pairs_of_rows(from, g->n, inside));
            }
    }
}

// Brings the rows that come next nearer while a tile is computed: one of as many parts as panels.
CPU_INLINE void fetch_ahead(const cpu_brain_gemm *g, const brain_block *b, int64_t row,
                            int64_t panel) {
    int64_t lines = b->pairs / 16, panels = (b->columns + CPU_TILE_COLUMNS - 1) / CPU_TILE_COLUMNS;
    for (int64_t i = row; i < row + CPU_TILE_ROWS && i < b->end_row; i++) {
        const char *from = (const char *)(g->a + i * g->k + 2 * b->pair);
        for (int64_t l = lines * panel / panels; l < lines * (panel + 1) / panels; l++)
            _mm_prefetch(from + 64 * l, _MM_HINT_T1);
    }
}

static CPU_AVX512 void multiply_block(const cpu_brain_gemm *g, const brain_block *b) {
    bool first = b->pair == 0, last = 2 * (b->pair + b->pairs) == g->k;
    for (int64_t row = b->first_row; row < b->end_row; row += CPU_TILE_ROWS) {
        int64_t rows = b->end_row - row < CPU_TILE_ROWS ? b->end_row - row : CPU_TILE_ROWS;
        for (int64_t j = 0; j < b->columns; j += CPU_TILE_COLUMNS) {
            int64_t left = b->columns - j, column = b->column + j;
            cpu_tile tile = {.pairs = true,
                             .steps = b->pairs,
                             .a = (const float *)(g->a + row * g->k + 2 * b->pair),
                             .a_row = g->k / 2,
                             .a_step = 1,
                             .b = b->b + j * b->pairs,
                             .c = b->sums + (row - b->first_row) * BRAIN_COLUMNS + j,
                             .c_row = BRAIN_COLUMNS,
                             .more = !first,
                             .bias = g->bias && first ? g->bias + column : NULL,
                             .narrow = last ? g->c + row * g->n + column : NULL,
                             .narrow_row = g->n};
            fetch_ahead(g, b, row + CPU_TILE_ROWS, j / CPU_TILE_COLUMNS);
            cpu_tile_multiply(&tile, rows, left < CPU_TILE_COLUMNS ? left : CPU_TILE_COLUMNS);
        }
    }
}

typedef struct brain_job {
    const cpu_brain_gemm *gemm;
    cpu_gemm_split split;
    float *workspace;
} brain_job;

static void multiply_part(const brain_job *job, int part) {
    const cpu_brain_gemm *g = job->gemm;
    const cpu_gemm_split *s = &job->split;
    brain_space z = space_of(g, s);
    int row = part / s->columns, column = part % s->columns;
    int64_t most = most_pairs(g), pairs = g->k / 2;
    int64_t end = s->panels * (column + 1) / s->columns * CPU_TILE_COLUMNS;
    brain_block b = {.first_row = s->groups * row / s->rows * s->unit,
                     .end_row = s->groups * (row + 1) / s->rows * s->unit,
                     .column = s->panels * column / s->columns * CPU_TILE_COLUMNS,
                     .b = job->workspace + part * (z.b + z.sums)};
    b.sums = b.b + z.b;
    if (b.end_row > g->m) b.end_row = g->m;
    if (end > g->n) end = g->n;
    for (; b.column < end; b.column += b.columns) {
        b.columns = end - b.column < BRAIN_COLUMNS ? end - b.column : BRAIN_COLUMNS;
        for (b.pair = 0; b.pair < pairs; b.pair += b.pairs) {
            b.pairs = pairs - b.pair < most ? pairs - b.pair : most;
            pack_b(g, &b);
            multiply_block(g, &b);
        }
    }
}

static void brain_range(void *context, int64_t begin, int64_t end, int thread) {
    for (int64_t part = begin; part < end; part++) multiply_part(context, (int)part);
}

void cpu_brain_gemm_run(const cpu_device *device, const cpu_brain_gemm *gemm, void *workspace) {
    brain_job job = {.gemm = gemm, .split = split_of(device, gemm), .workspace = workspace};
    cpu_parallel(device, job.split.rows * job.split.columns, 1, brain_range, &job);
}
