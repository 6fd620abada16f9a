// Matrix products of BF16, c = a·b, with AVX512_BF16; k is the axis that is summed over. Operands
// are packed (copied into the order in which tiles read them) as in gemm.c, but each 4-byte element
// is a pair: the BF16 values of two neighbouring k. A panel is 64 columns of b.
//
// Unlike gemm.c, this file computes all of k for 256 columns of c before it begins the next
// columns, so that a thread needs less memory for sums. If c is BF16, sums have to be kept in F32
// from one block of k to the next; in this order these are the sums of only 256 columns at a time.
#include "device/cpu/gemm_bf16.h"

#include "device/cpu/gemm.h"

enum {
    // Pairs of neighbouring k that are computed at a time if `a` is read in place: six rows take
    // 12 KB.
    BF16_PAIRS = 512,
    // Pairs of neighbouring k that are computed at a time if `a` is packed: 16 rows take 16 KB.
    BF16_PAIRS_PACKED = 256,
    BF16_PANELS = 4, // panels of b that are packed at a time: 512 KB
    BF16_COLUMNS = BF16_PANELS * CPU_TILE_COLUMNS,
};

// Whether tiles read the left operand, `a`, in place: this is possible if its rows already consist
// of pairs of neighbouring k.
static bool reads_a(const cpu_bf16_gemm *g) { return !g->a_transposed && g->k % 2 == 0; }

static cpu_gemm_split split_of(const tri_device_description *device, const cpu_bf16_gemm *g) {
    return cpu_gemm_split_of(device, g->m, reads_a(g) ? CPU_TILE_ROWS : CPU_TILE_GROUP, g->n);
}

static int64_t all_pairs(const cpu_bf16_gemm *g) { return (g->k + 1) / 2; }

// How many pairs of BF16 values along k are multiplied at a time, so that the packed operands stay
// in the caches. k is divided into equal blocks, each rounded up to a multiple of 16 pairs.
static int64_t most_pairs(const cpu_bf16_gemm *g) {
    int64_t most = reads_a(g) ? BF16_PAIRS : BF16_PAIRS_PACKED;
    int64_t blocks = (all_pairs(g) + most - 1) / most;
    return ((all_pairs(g) + blocks - 1) / blocks + 15) / 16 * 16;
}

// How many floats each buffer of one thread has: packed panels of b, packed rows of `a`, and the
// F32 sums of the thread's rows for the current 256 columns.
typedef struct bf16_space {
    int64_t b, a, sums;
} bf16_space;

static bf16_space space_of(const cpu_bf16_gemm *g, const cpu_gemm_split *s) {
    int64_t most = most_pairs(g), rows = (s->groups + s->rows - 1) / s->rows * s->unit;
    bool kept = !g->c_f32 && all_pairs(g) > most;
    return (bf16_space){.b = BF16_COLUMNS * most,
                        .a = reads_a(g) ? 0 : rows * most,
                        .sums = kept ? rows * BF16_COLUMNS : 0};
}

static int64_t floats_of(const bf16_space *z) { return z->b + z->a + z->sums; }

size_t cpu_bf16_gemm_workspace(const tri_device_description *device, const cpu_bf16_gemm *gemm) {
    if (cpu_has(device, CPU_HAS_AMX)) return cpu_amx_gemm_workspace(device, gemm);
    cpu_gemm_split s = split_of(device, gemm);
    bf16_space z = space_of(gemm, &s);
    return (size_t)(floats_of(&z) * s.rows * s.columns) * sizeof(float);
}

// What one thread computes at present: rows [first_row, end_row) of `columns` columns of c, from
// `pairs` pairs of values along k.
typedef struct bf16_block {
    int64_t first_row, end_row, column, columns, pair, pairs;
    float *b, *a, *sums;
} bf16_block;

// Makes the pair of elements k and k + 1 of a row; the second is 0 from `end` on.
static float pair_at(const uint16_t *row, int64_t k, int64_t end) {
    uint32_t high = k + 1 < end ? row[k + 1] : 0;
    union {
        uint32_t bits;
        float value;
    } pair = {.bits = row[k] | high << 16};
    return pair.value;
}

// Packs the block's rows (pairs of k) and columns of b into panels [pair][64], with zeros beyond
// column n.
static CPU_AVX512 void pack_b(const cpu_bf16_gemm *g, const bf16_block *b) {
    for (int64_t j = 0; j < b->columns; j += CPU_TILE_COLUMNS) {
        int64_t left = b->columns - j;
        int64_t width = left < CPU_TILE_COLUMNS ? left : CPU_TILE_COLUMNS;
        float *panel = b->b + j * b->pairs;
        const uint16_t *rows = g->b + (b->column + j) * g->k;
        if (g->b_transposed && g->k % 2 == 0) {
            cpu_pack_columns(rows + 2 * b->pair, false, g->k / 2, b->pairs, width, panel);
            continue;
        }
        for (int64_t p = 0; p < b->pairs; p++, panel += CPU_TILE_COLUMNS) {
            int64_t k = 2 * (b->pair + p);
            for (int64_t i = 0; i < CPU_TILE_COLUMNS && g->b_transposed; i++)
                panel[i] = i < width ? pair_at(rows + i * g->k, k, g->k) : 0;
            for (int64_t i = 0; i < CPU_TILE_COLUMNS && !g->b_transposed; i += 16) {
                __mmask16 inside = i < left ? cpu_first_lanes(left - i) : 0;
                const uint16_t *from = g->b + k * g->n + b->column + j + i;
                _mm512_storeu_si512(panel + i, cpu_pairs_of_rows(from, g->n, k + 1 < g->k, inside));
            }
        }
    }
}

// Packs the block's rows of the left operand, `a`, into groups [row / 16][pair][16]. Rows beyond
// the last one (m) become zeros.
static CPU_AVX512 void pack_a(const cpu_bf16_gemm *g, const bf16_block *b) {
    float *to = b->a;
    for (int64_t row = b->first_row; row < b->end_row; row += CPU_TILE_GROUP) {
        int64_t left = b->end_row - row;
        for (int64_t p = 0; p < b->pairs; p++, to += CPU_TILE_GROUP) {
            int64_t k = 2 * (b->pair + p);
            const uint16_t *from = g->a + k * g->m + row;
            if (g->a_transposed)
                _mm512_storeu_si512(
                    to, cpu_pairs_of_rows(from, g->m, k + 1 < g->k, cpu_first_lanes(left)));
            for (int64_t i = 0; i < CPU_TILE_GROUP && !g->a_transposed; i++)
                to[i] = i < left ? pair_at(g->a + (row + i) * g->k, k, g->k) : 0;
        }
    }
}

// Prefetches rows of `a` for the next tile, which begins with row `row`. The caller calls it once
// for each panel; each call prefetches an equal number of cache lines, so that the requests are
// spread out.
CPU_INLINE void prefetch_rows(const cpu_bf16_gemm *g, const bf16_block *b, int64_t row,
                              int64_t panel) {
    int64_t lines = b->pairs / 16, panels = (b->columns + CPU_TILE_COLUMNS - 1) / CPU_TILE_COLUMNS;
    for (int64_t i = row; i < row + CPU_TILE_ROWS && i < b->end_row; i++) {
        const char *from = (const char *)(g->a + i * g->k + 2 * b->pair);
        for (int64_t l = lines * panel / panels; l < lines * (panel + 1) / panels; l++)
            _mm_prefetch(from + 64 * l, _MM_HINT_T1);
    }
}

// Chooses how many rows the next tile has, beginning with `row`, and where the tile reads them.
static void select_rows(const cpu_bf16_gemm *g, const bf16_block *b, int64_t row, int64_t *rows,
                        cpu_tile *tile) {
    *rows = CPU_TILE_ROWS;
    if (reads_a(g)) {
        tile->a = (const float *)(g->a + row * g->k + 2 * b->pair);
        tile->a_row = g->k / 2;
        tile->a_k = 1;
    } else { // a group of 16 rows becomes tiles of 6, 5 and 5
        int64_t offset = row - b->first_row, inner = offset % CPU_TILE_GROUP;
        if (inner > 0) *rows = 5;
        tile->a = b->a + (offset - inner) * b->pairs + inner;
        tile->a_row = 1;
        tile->a_k = CPU_TILE_GROUP;
    }
    if (*rows > b->end_row - row) *rows = b->end_row - row;
}

static CPU_AVX512 void multiply_block(const cpu_bf16_gemm *g, const bf16_block *b) {
    bool first = b->pair == 0, last = b->pair + b->pairs == all_pairs(g);
    int64_t rows;
    for (int64_t row = b->first_row; row < b->end_row; row += rows) {
        cpu_tile tile = {.pairs = true,
                         .k = b->pairs,
                         .accumulate = !first || g->accumulate,
                         .c_bf16_row = g->n};
        select_rows(g, b, row, &rows, &tile);
        for (int64_t j = 0; j < b->columns; j += CPU_TILE_COLUMNS) {
            int64_t left = b->columns - j, column = b->column + j, at = row * g->n + column;
            tile.b = b->b + j * b->pairs;
            tile.c = b->sums + (row - b->first_row) * BF16_COLUMNS + j;
            tile.c_row = BF16_COLUMNS;
            if (g->c_f32) {
                tile.c = (float *)g->c + at;
                tile.c_row = g->n;
            } else if (last) {
                tile.c_bf16 = (uint16_t *)g->c + at;
            }
            if (last) tile.epilogue = g->epilogue;
            if (last && g->epilogue.bias)
                tile.epilogue.bias = (const uint16_t *)g->epilogue.bias + column;
            if (reads_a(g)) prefetch_rows(g, b, row + CPU_TILE_ROWS, j / CPU_TILE_COLUMNS);
            cpu_tile_multiply(&tile, rows, left < CPU_TILE_COLUMNS ? left : CPU_TILE_COLUMNS);
        }
    }
}

typedef struct bf16_job {
    const cpu_bf16_gemm *gemm;
    cpu_gemm_split split;
    float *workspace;
} bf16_job;

static void multiply_rectangle(const bf16_job *job, int index) {
    const cpu_bf16_gemm *g = job->gemm;
    const cpu_gemm_split *s = &job->split;
    bf16_space z = space_of(g, s);
    int row = index / s->columns, column = index % s->columns;
    int64_t most = most_pairs(g), pairs = all_pairs(g);
    int64_t end = s->panels * (column + 1) / s->columns * CPU_TILE_COLUMNS;
    bf16_block b = {.first_row = s->groups * row / s->rows * s->unit,
                    .end_row = s->groups * (row + 1) / s->rows * s->unit,
                    .column = s->panels * column / s->columns * CPU_TILE_COLUMNS,
                    .b = job->workspace + index * floats_of(&z)};
    b.a = b.b + z.b;
    b.sums = b.a + z.a;
    if (b.end_row > g->m) b.end_row = g->m;
    if (end > g->n) end = g->n;
    for (; b.column < end; b.column += b.columns) {
        b.columns = end - b.column < BF16_COLUMNS ? end - b.column : BF16_COLUMNS;
        for (b.pair = 0; b.pair < pairs; b.pair += b.pairs) {
            b.pairs = pairs - b.pair < most ? pairs - b.pair : most;
            pack_b(g, &b);
            if (!reads_a(g)) pack_a(g, &b);
            multiply_block(g, &b);
        }
    }
}

static void bf16_range(void *context, int64_t begin, int64_t end, int thread) {
    for (int64_t i = begin; i < end; i++) multiply_rectangle(context, (int)i);
}

void cpu_bf16_gemm_run(const cpu_device *device, const cpu_bf16_gemm *gemm, void *workspace) {
    if (cpu_has(&device->head.description, CPU_HAS_AMX)) {
        cpu_amx_gemm_run(device, gemm, workspace);
        return;
    }
    bf16_job job = {
        .gemm = gemm, .split = split_of(&device->head.description, gemm), .workspace = workspace};
    cpu_parallel(device, job.split.rows * job.split.columns, 1, bf16_range, &job);
}
