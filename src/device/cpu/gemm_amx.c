// Products of BF16 by the tiles of AMX: 16 rows of 32 numbers of a, 16 pairs of rows by 16 columns
// of b, 16 × 16 sums in F32.
//
// A block of 32 × 32 sums stays in four tiles. Rows of a are read as they lie where the tiles'
// lines spread over the first cache, else packed; 32 of them and at most 512 steps stay in that
// cache, beside a block of b in pairs that stays in the second one.
#include "device/cpu/gemm_brain.h"

#include "device/cpu/amx.h"
#include "device/cpu/gemm.h"

enum {
    AMX_SIDE = 32,                      // of a block of sums
    AMX_CHUNK = 32,                     // steps that a tile takes
    AMX_A_CHUNK = AMX_SIDE * AMX_CHUNK, // numbers of a packed chunk of 32 rows
    AMX_B_CHUNK = AMX_SIDE * AMX_CHUNK, // … of 32 columns
    AMX_SUMS = AMX_SIDE * AMX_SIDE,     // floats
    AMX_STEPS = 512,                    // of k in the first cache
    AMX_SPAN = 2048,                    // of k in the second
    AMX_B_NUMBERS = 1 << 19,            // of a packed block of b
    AMX_A_NUMBERS = 1 << 21,            // of packed rows of a
    AMX_SHARED_PRODUCTS = 1 << 20,      // below these a second thread does not pay
};

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t parts_of(int64_t count, int64_t most) { return (count + most - 1) / most; }
// The size of equal parts, at most `most` each but for rounding up to `unit`.
static int64_t even_part(int64_t count, int64_t most, int64_t unit) {
    return parts_of(parts_of(count, parts_of(count, most)), unit) * unit;
}

// How a thread goes through its part of the product.
typedef struct amx_plan {
    cpu_gemm_split split; // rows in units of 32, columns in panels of 64
    bool packs_a;
    int64_t span;                // steps of k for which b is packed at a time
    int64_t steps;               // … that a block of sums takes at a time
    int64_t columns;             // of b packed at a time
    int64_t rows;                // of a packed at a time
    int64_t a, b, sums;          // numbers and floats of a thread's part of the workspace
    bool many_spans, many_steps; // sums wait for more of them
} amx_plan;

static amx_plan plan_of(const cpu_device *device, const cpu_brain_gemm *g) {
    static const cpu_device alone = {.head = {.threads = 1}};
    bool small = (double)g->m * (double)g->n * (double)g->k < AMX_SHARED_PRODUCTS;
    amx_plan p = {.split = cpu_gemm_split_of(small ? &alone : device, g->m, AMX_SIDE, g->n)};
    // Rows that lie 2 KB apart would share half of the first cache.
    p.packs_a = g->a_transposed || g->k % AMX_CHUNK || g->k % 1024 == 0;
    p.span = even_part(g->k, AMX_SPAN, AMX_CHUNK);
    p.steps = even_part(p.span, AMX_STEPS, AMX_CHUNK);
    int64_t columns = parts_of(p.split.panels, p.split.columns) * CPU_TILE_COLUMNS;
    int64_t rows = parts_of(p.split.groups, p.split.rows) * AMX_SIDE;
    p.columns = even_part(columns, AMX_B_NUMBERS / p.span, AMX_SIDE);
    p.rows = p.packs_a ? even_part(rows, AMX_A_NUMBERS / p.span, AMX_SIDE) : AMX_SIDE;
    p.many_spans = p.span < g->k;
    p.many_steps = p.many_spans || p.steps < p.span;
    p.a = p.rows * p.span;
    p.b = p.columns * p.span;
    p.sums = p.many_steps ? (p.many_spans ? rows : AMX_SIDE) * p.columns : AMX_SUMS;
    return p;
}

size_t cpu_amx_gemm_workspace(const cpu_device *device, const cpu_brain_gemm *gemm) {
    amx_plan p = plan_of(device, gemm);
    size_t each = (size_t)(p.a + p.b) * sizeof(uint16_t) + (size_t)p.sums * sizeof(float);
    return each * (size_t)(p.split.rows * p.split.columns);
}

// What a thread has in hand.
typedef struct amx_block {
    int64_t first_row, end_row; // its own rows
    int64_t column, columns;    // for which b is packed
    int64_t step, steps;        // likewise
    int64_t packed_row, packed_rows;
    uint16_t *a, *b;
    float *sums;
} amx_block;

// Words of two steps in chunks [16 words][16 columns], two for each 32 columns and 32 steps: from
// rows of b that lie as [n, k].
static CPU_AVX512 void pack_b_rows(const cpu_brain_gemm *g, const amx_block *b) {
    uint16_t *to = b->b;
    for (int64_t j = 0; j < b->columns; j += AMX_SIDE)
        for (int64_t s = 0; s < b->steps; s += AMX_CHUNK)
            for (int64_t half = j; half < j + AMX_SIDE; half += 16, to += 16 * AMX_CHUNK) {
                __m512 r[16];
                int64_t left = b->steps - s;
                __mmask32 inside = left >= 32 ? 0xFFFFFFFFu : (1u << left) - 1;
                const uint16_t *from = g->b + (b->column + half) * g->k + b->step + s;
                for (int64_t i = 0; i < 16; i++)
                    r[i] =
                        half + i < b->columns
                            ? _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(inside, from + i * g->k))
                            : _mm512_setzero_ps();
                cpu_transpose16(r);
                for (int64_t i = 0; i < 16; i++) _mm512_storeu_ps(to + i * AMX_CHUNK, r[i]);
            }
}

// The same from b that lies as [k, n].
static CPU_AVX512 void pack_b_plain(const cpu_brain_gemm *g, const amx_block *b) {
    int64_t chunks = parts_of(b->steps, AMX_CHUNK);
    for (int64_t s = 0; s < chunks * AMX_CHUNK; s += 2) {
        const uint16_t *from = g->b + (b->step + s) * g->n + b->column;
        uint16_t *to = b->b + s / AMX_CHUNK * AMX_B_CHUNK + s % AMX_CHUNK * 16;
        for (int64_t j = 0; j < b->columns; j += AMX_SIDE, to += chunks * AMX_B_CHUNK)
            for (int64_t half = 0; half < AMX_SIDE; half += 16) {
                int64_t left = b->columns - j - half;
                __mmask16 inside = left > 0 && s < b->steps ? cpu_first_lanes(left) : 0;
                _mm512_storeu_si512(
                    to + half * AMX_CHUNK,
                    cpu_pairs_of_rows(from + j + half, g->n, s + 1 < b->steps, inside));
            }
    }
}

// Chunks [32 rows][32 steps], zeros beyond the edges: from rows that lie as [m, k].
static CPU_AVX512 void pack_a_rows(const cpu_brain_gemm *g, const amx_block *b) {
    uint16_t *to = b->a;
    for (int64_t i = 0; i < b->packed_rows; i += AMX_SIDE)
        for (int64_t s = 0; s < b->steps; s += AMX_CHUNK) {
            int64_t left = b->steps - s;
            __mmask32 inside = left >= 32 ? 0xFFFFFFFFu : (1u << left) - 1;
            const uint16_t *from = g->a + (b->packed_row + i) * g->k + b->step + s;
            for (int64_t r = i; r < i + AMX_SIDE; r++, from += g->k, to += AMX_CHUNK)
                _mm512_storeu_si512(to, r < b->packed_rows ? _mm512_maskz_loadu_epi16(inside, from)
                                                           : _mm512_setzero_si512());
        }
}

// The same from a that lies as [k, m].
static CPU_AVX512 void pack_a_columns(const cpu_brain_gemm *g, const amx_block *b) {
    uint16_t *to = b->a;
    for (int64_t i = 0; i < b->packed_rows; i += AMX_SIDE)
        for (int64_t s = 0; s < b->steps; s += AMX_CHUNK)
            for (int64_t half = i; half < i + AMX_SIDE; half += 16, to += 16 * AMX_CHUNK) {
                __m512 r[16];
                int64_t left = b->packed_rows - half;
                __mmask16 inside = left > 0 ? cpu_first_lanes(left) : 0;
                const uint16_t *from = g->a + (b->step + s) * g->m + b->packed_row + half;
                for (int64_t p = 0; p < 16; p++)
                    r[p] = _mm512_castsi512_ps(
                        cpu_pairs_of_rows(from + 2 * p * g->m, g->m, s + 2 * p + 1 < b->steps,
                                          s + 2 * p < b->steps ? inside : 0));
                cpu_transpose16(r);
                for (int64_t p = 0; p < 16; p++) _mm512_storeu_ps(to + p * AMX_CHUNK, r[p]);
            }
}

// Rows of a and where the next chunk of steps lies, in bytes.
typedef struct amx_rows {
    const uint16_t *data;
    int64_t row, chunk;
} amx_rows;

// The sums of a block: those at `sums` where there are `more`, plus the products of the chunks.
#define AMX_BLOCK(name, second_row, second_column)                                                 \
    static CPU_AMX __attribute__((noinline)) void name(const amx_rows *rows, const uint16_t *b,    \
                                                       int64_t chunks, float *sums, bool more) {   \
        const int64_t row = rows->row, line = AMX_SIDE * (int64_t)sizeof(float);                   \
        const char *a = (const char *)rows->data, *below = a + 16 * row;                           \
        float *under = sums + 16 * AMX_SIDE;                                                       \
        __asm__ volatile("" ::: "memory"); /* what was packed is there */                          \
        if (more) {                                                                                \
            _tile_loadd(0, sums, line);                                                            \
            if (second_column) _tile_loadd(1, sums + 16, line);                                    \
            if (second_row) _tile_loadd(2, under, line);                                           \
            if (second_row && second_column) _tile_loadd(3, under + 16, line);                     \
        } else {                                                                                   \
            _tile_zero(0);                                                                         \
            _tile_zero(1);                                                                         \
            _tile_zero(2);                                                                         \
            _tile_zero(3);                                                                         \
        }                                                                                          \
        for (int64_t i = 0; i < chunks; i++) {                                                     \
            _tile_loadd(6, b, 64);                                                                 \
            _tile_loadd(4, a, row);                                                                \
            _tile_dpbf16ps(0, 4, 6);                                                               \
            if (second_column) {                                                                   \
                _tile_loadd(7, b + AMX_B_CHUNK / 2, 64);                                           \
                _tile_dpbf16ps(1, 4, 7);                                                           \
            }                                                                                      \
            if (second_row) {                                                                      \
                _tile_loadd(5, below, row);                                                        \
                _tile_dpbf16ps(2, 5, 6);                                                           \
                if (second_column) _tile_dpbf16ps(3, 5, 7);                                        \
            }                                                                                      \
            a += rows->chunk;                                                                      \
            below += rows->chunk;                                                                  \
            b += AMX_B_CHUNK;                                                                      \
        }                                                                                          \
        _tile_stored(0, sums, line);                                                               \
        if (second_column) _tile_stored(1, sums + 16, line);                                       \
        if (second_row) _tile_stored(2, under, line);                                              \
        if (second_row && second_column) _tile_stored(3, under + 16, line);                        \
    }
AMX_BLOCK(block_11, false, false)
AMX_BLOCK(block_12, false, true)
AMX_BLOCK(block_21, true, false)
AMX_BLOCK(block_22, true, true)

// A finished block to its place.
static CPU_AVX512 void finish(const cpu_brain_gemm *g, const float *sums, int64_t row, int64_t rows,
                              int64_t column, int64_t columns) {
    cpu_tile_end end = g->end;
    if (end.bias) end.bias = (const uint16_t *)end.bias + column;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j += 16) {
            __mmask16 inside = cpu_first_lanes(columns - j);
            __m512 value = _mm512_loadu_ps(sums + i * AMX_SIDE + j);
            value = cpu_tile_finish(&end, true, j, inside, value);
            cpu_store(g->c, !g->wide, (row + i) * g->n + column + j, inside, value);
        }
}

// A stripe of 32 rows and all columns of the packed block.
static void multiply_stripe(const cpu_brain_gemm *g, const amx_plan *p, const amx_block *b,
                            int64_t row, const amx_rows *rows) {
    int64_t height = least(b->end_row - row, AMX_SIDE), chunks = parts_of(b->steps, AMX_CHUNK);
    float *sums = b->sums + (p->many_spans ? (row - b->first_row) * p->columns : 0);
    for (int64_t s = 0; s < b->steps; s += p->steps) {
        amx_rows part = *rows;
        part.data += s / AMX_CHUNK * (rows->chunk / (int64_t)sizeof(uint16_t));
        int64_t some = parts_of(least(p->steps, b->steps - s), AMX_CHUNK);
        bool more = b->step + s > 0, last = b->step + s + p->steps >= g->k;
        for (int64_t j = 0; j < b->columns; j += AMX_SIDE) {
            int64_t width = least(b->columns - j, AMX_SIDE);
            const uint16_t *packed = b->b + (j / AMX_SIDE * chunks + s / AMX_CHUNK) * AMX_B_CHUNK;
            float *block = p->many_steps ? sums + j * AMX_SIDE : sums;
            if (height > 16)
                (width > 16 ? block_22 : block_21)(&part, packed, some, block, more);
            else
                (width > 16 ? block_12 : block_11)(&part, packed, some, block, more);
            if (last) finish(g, block, row, height, b->column + j, width);
        }
    }
}

static void multiply_rows(const cpu_brain_gemm *g, const amx_plan *p, amx_block *b) {
    int64_t chunks = parts_of(b->steps, AMX_CHUNK);
    amx_rows packed = {.row = AMX_CHUNK * sizeof(uint16_t),
                       .chunk = AMX_A_CHUNK * sizeof(uint16_t)};
    amx_rows plain = {.row = g->k * (int64_t)sizeof(uint16_t),
                      .chunk = AMX_CHUNK * sizeof(uint16_t)};
    for (int64_t row = b->first_row; row < b->end_row; row += AMX_SIDE) {
        // Tiles read 16 rows, or 32, whatever is left.
        bool packs = p->packs_a || b->end_row - row < AMX_SIDE;
        if (packs && (!p->packs_a || row >= b->packed_row + b->packed_rows)) {
            b->packed_row = row;
            b->packed_rows = least(b->end_row - row, p->rows);
            (g->a_transposed ? pack_a_columns : pack_a_rows)(g, b);
        }
        packed.data = b->a + (row - b->packed_row) / AMX_SIDE * chunks * AMX_A_CHUNK;
        plain.data = g->a + row * g->k + b->step;
        multiply_stripe(g, p, b, row, packs ? &packed : &plain);
    }
}

typedef struct amx_job {
    const cpu_brain_gemm *gemm;
    amx_plan plan;
    char *workspace;
} amx_job;

static void multiply_part(const amx_job *job, int part) {
    const cpu_brain_gemm *g = job->gemm;
    const amx_plan *p = &job->plan;
    const cpu_gemm_split *s = &p->split;
    int row = part / s->columns, column = part % s->columns;
    int64_t end = least(s->panels * (column + 1) / s->columns * CPU_TILE_COLUMNS, g->n);
    amx_block b = {.first_row = s->groups * row / s->rows * AMX_SIDE,
                   .end_row = least(s->groups * (row + 1) / s->rows * AMX_SIDE, g->m)};
    int64_t numbers = (p->a + p->b) * (int64_t)sizeof(uint16_t);
    char *own = job->workspace + part * (numbers + p->sums * (int64_t)sizeof(float));
    b.sums = (float *)own;
    b.a = (uint16_t *)(b.sums + p->sums);
    b.b = b.a + p->a;
    for (b.column = s->panels * column / s->columns * CPU_TILE_COLUMNS; b.column < end;
         b.column += b.columns) {
        b.columns = least(end - b.column, p->columns);
        for (b.step = 0; b.step < g->k; b.step += b.steps) {
            b.steps = least(g->k - b.step, p->span);
            b.packed_row = b.first_row;
            b.packed_rows = 0;
            (g->b_transposed ? pack_b_rows : pack_b_plain)(g, &b);
            multiply_rows(g, p, &b);
        }
    }
}

static void amx_range(void *context, int64_t begin, int64_t end, int thread) {
    cpu_amx_begin();
    for (int64_t part = begin; part < end; part++) multiply_part(context, (int)part);
    cpu_amx_end();
}

void cpu_amx_gemm_run(const cpu_device *device, const cpu_brain_gemm *gemm, void *workspace) {
    amx_job job = {.gemm = gemm, .plan = plan_of(device, gemm), .workspace = workspace};
    cpu_parallel(device, job.plan.split.rows * job.plan.split.columns, 1, amx_range, &job);
}
