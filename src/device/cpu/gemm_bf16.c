// Matrix products of BF16, c = a·b, with AVX512_BF16; k is the axis that is summed over. Operands
// are packed (copied into the order in which tiles read them) as in gemm.c, but each 4-byte element
// is a pair: the BF16 values of two neighbouring k. A panel is 64 columns of b.
//
// b is packed for up to 512 columns and 512 pairs of k at a time. Then 96 rows of `a` at a time are
// multiplied by one panel after the other: the rows and the panel stay in the L2 cache, and each
// panel is loaded from memory once for 16 tiles.
//
// A sum of a tile continues the sum that earlier pairs of k have left in c (tile.h). So all terms
// of an element are added in the order of k, and its bits do not depend on these sizes.
#include "device/cpu/gemm_bf16.h"

#include "device/cpu/gemm.h"

enum {
    BF16_PAIRS = 512, // pairs of neighbouring k that are multiplied at a time
    BF16_ROWS = 96,   // rows of `a` that are multiplied at a time: 192 KB
    BF16_PANELS = 8,  // panels of b that are packed at a time: 1 MB
    BF16_COLUMNS = BF16_PANELS * CPU_TILE_COLUMNS,
    ROW_PADDING = 16, // pairs behind a packed row, so that rows lie in different sets of the cache
};

// Whether tiles read the left operand, `a`, in place: this is possible if its rows already consist
// of pairs of neighbouring k.
static bool reads_a(const cpu_bf16_gemm *g) { return !g->a_transposed && g->k % 2 == 0; }

static cpu_gemm_split split_of(const tri_device_description *device, const cpu_bf16_gemm *g) {
    return cpu_gemm_split_of(device, g->m, CPU_TILE_ROWS, g->n);
}

static int64_t all_pairs(const cpu_bf16_gemm *g) { return (g->k + 1) / 2; }

// The largest number of pairs that are multiplied at a time. k is divided into equal blocks of at
// most BF16_PAIRS pairs, each rounded up to a multiple of 16 pairs.
static int64_t most_pairs(const cpu_bf16_gemm *g) {
    int64_t blocks = (all_pairs(g) + BF16_PAIRS - 1) / BF16_PAIRS;
    return ((all_pairs(g) + blocks - 1) / blocks + 15) / 16 * 16;
}

// How many floats each buffer of one thread has: packed panels of b, packed rows of `a`, and, if c
// is BF16 and k has several blocks, the F32 sums of all of the thread's rows for the columns of b
// that are packed.
typedef struct bf16_space {
    int64_t b, a, sums;
} bf16_space;

static bf16_space space_of(const cpu_bf16_gemm *g, const cpu_gemm_split *s) {
    int64_t most = most_pairs(g), rows = (s->groups + s->rows - 1) / s->rows * s->unit;
    bool kept = !g->c_f32 && all_pairs(g) > most;
    return (bf16_space){.b = BF16_COLUMNS * most,
                        .a = reads_a(g) ? 0 : BF16_ROWS * (most + ROW_PADDING),
                        .sums = kept ? rows * BF16_COLUMNS : 0};
}

static int64_t floats_of(const bf16_space *z) { return z->b + z->a + z->sums; }

size_t cpu_bf16_gemm_workspace(const tri_device_description *device, const cpu_bf16_gemm *gemm) {
    if (cpu_has(device, CPU_HAS_AMX)) return cpu_amx_gemm_workspace(device, gemm);
    cpu_gemm_split s = split_of(device, gemm);
    bf16_space z = space_of(gemm, &s);
    return (size_t)(floats_of(&z) * s.rows * s.columns) * sizeof(float);
}

// What one thread is computing at a time: `rows` rows and `columns` columns of c, from `pairs`
// pairs of k. `row`, `column` and `pair` are the first of each.
typedef struct bf16_block {
    int64_t first_row, end_row; // the thread's rows of c
    int64_t row, rows, column, columns, pair, pairs;
    float *b, *a, *sums; // the thread's buffers (bf16_space)
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

// Packs the block's rows of the left operand, `a`, each as a run of pairs. If `a` is stored as [k,
// m], 16 pairs of 16 rows are transposed at a time.
static CPU_AVX512 void pack_a(const cpu_bf16_gemm *g, const bf16_block *b) {
    int64_t row_size = most_pairs(g) + ROW_PADDING, rows = b->rows;
    for (int64_t i = 0; i < rows && !g->a_transposed; i++)
        for (int64_t p = 0; p < b->pairs; p++)
            b->a[i * row_size + p] = pair_at(g->a + (b->row + i) * g->k, 2 * (b->pair + p), g->k);
    for (int64_t p = 0; p < b->pairs && g->a_transposed; p += 16)
        for (int64_t i = 0; i < rows; i += 16) {
            __mmask16 inside = cpu_first_lanes(rows - i);
            __m512 r[16];
            for (int64_t q = 0; q < 16; q++) {
                int64_t k = 2 * (b->pair + p + q);
                const uint16_t *from = g->a + k * g->m + b->row + i;
                r[q] =
                    k < g->k
                        ? _mm512_castsi512_ps(cpu_pairs_of_rows(from, g->m, k + 1 < g->k, inside))
                        : _mm512_setzero_ps();
            }
            cpu_transpose16(r);
            float *to = b->a + i * row_size + p;
            for (int64_t j = 0; j < 16 && i + j < rows; j++)
                _mm512_storeu_ps(to + j * row_size, r[j]);
        }
}

// Prefetches the sums of the tile below `tile`, which has `rows` rows.
CPU_INLINE void prefetch_sums(const cpu_tile *tile, int64_t rows) {
    for (int64_t i = rows; i < rows + CPU_TILE_ROWS; i++)
        for (int64_t j = 0; j < CPU_TILE_COLUMNS; j += 16)
            _mm_prefetch((const char *)(tile->c + i * tile->c_row + j), _MM_HINT_T0);
}

static CPU_AVX512 void multiply_block(const cpu_bf16_gemm *g, const bf16_block *b) {
    bool first = b->pair == 0, last = b->pair + b->pairs == all_pairs(g), in_place = reads_a(g);
    cpu_tile tile = {.pairs = true,
                     .k = b->pairs,
                     .a_row = in_place ? g->k / 2 : most_pairs(g) + ROW_PADDING,
                     .a_k = 1,
                     .accumulate = !first || g->accumulate,
                     .c_bf16_row = g->n};
    const float *a = in_place ? (const float *)(g->a + b->row * g->k + 2 * b->pair) : b->a;
    for (int64_t j = 0; j < b->columns; j += CPU_TILE_COLUMNS) {
        int64_t left = b->columns - j, column = b->column + j;
        tile.b = b->b + j * b->pairs;
        tile.bias = last && g->bias ? g->bias + column : NULL;
        for (int64_t i = 0; i < b->rows; i += CPU_TILE_ROWS) {
            int64_t rows = b->rows - i < CPU_TILE_ROWS ? b->rows - i : CPU_TILE_ROWS;
            int64_t at = (b->row + i) * g->n + column;
            tile.a = a + i * tile.a_row;
            tile.c = b->sums + (b->row + i - b->first_row) * BF16_COLUMNS + j;
            tile.c_row = BF16_COLUMNS;
            if (g->c_f32) {
                tile.c = (float *)g->c + at;
                tile.c_row = g->n;
            } else if (last) {
                tile.c_bf16 = (uint16_t *)g->c + at;
            }
            if (tile.accumulate && i + rows < b->rows) prefetch_sums(&tile, rows);
            cpu_tile_multiply(&tile, rows, left < CPU_TILE_COLUMNS ? left : CPU_TILE_COLUMNS);
        }
    }
    if (last && g->finish)
        cpu_finish_rows(g->finish, b->row * g->n + b->column, g->n, b->rows, b->columns);
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
            for (b.row = b.first_row; b.row < b.end_row; b.row += b.rows) {
                b.rows = b.end_row - b.row < BF16_ROWS ? b.end_row - b.row : BF16_ROWS;
                if (!reads_a(g)) pack_a(g, &b);
                multiply_block(g, &b);
            }
        }
    }
}

static void bf16_range(void *context, int64_t begin, int64_t end, int thread) {
    for (int64_t i = begin; i < end; i++) multiply_rectangle(context, (int)i);
}

void cpu_bf16_gemm_run(const cpu_device *device, const cpu_bf16_gemm *gemm, void *workspace) {
    if (cpu_few_supports(gemm)) {
        cpu_few_run(device, gemm);
        return;
    }
    if (cpu_has(&device->head.description, CPU_HAS_AMX)) {
        cpu_amx_gemm_run(device, gemm, workspace);
        return;
    }
    bf16_job job = {
        .gemm = gemm, .split = split_of(&device->head.description, gemm), .workspace = workspace};
    cpu_parallel(device, job.split.rows * job.split.columns, 1, bf16_range, &job);
}
