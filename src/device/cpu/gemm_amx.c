// Matrix products c = a·b of BF16 by AMX; k is the axis that is summed over. A tile is a register
// of AMX: it holds 16 rows of `a` with 32 values of k, or 16 pairs × 16 columns of `b` (a pair is
// two values of neighbouring k), or 16 × 16 sums in F32. To pack an operand is to copy it into
// chunks of 32 × 32 values (amx.h).
//
// A block of 32 × 32 sums stays in four tiles. The 32 rows of `a` that it needs stay in the L1
// cache, at least for the most part, and a packed block of `b` stays in the L2 cache. Rows of `a`
// are read in place, unless they lie at a distance that maps them to the same few sets of the L1
// cache; then they are packed. While the tiles multiply, the next 32 rows are prefetched and the
// finished sums of the previous block are stored.
#include "device/cpu/gemm_bf16.h"

#include "device/cpu/amx.h"
#include "device/cpu/gemm.h"

enum {
    AMX_K = 1024,             // largest range of k for which b is packed at a time
    AMX_B_ELEMENTS = 1 << 19, // most elements of a packed block of b
    AMX_A_ELEMENTS = 1 << 21, // most elements of packed rows of `a`
    // A product of fewer multiplications is not worth a second thread.
    AMX_SHARED_PRODUCTS = 1 << 20,
};

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t quotient_up(int64_t count, int64_t most) { return (count + most - 1) / most; }
// Divides `count` into equal ranges of at most `most` and returns their size, rounded up to `unit`.
static int64_t even_size(int64_t count, int64_t most, int64_t unit) {
    return quotient_up(quotient_up(count, quotient_up(count, most)), unit) * unit;
}

// The sizes of a thread's loops and buffers, chosen so that data that are read several times stay
// in a cache.
typedef struct amx_plan {
    cpu_gemm_split split; // rows in units of 32, columns in panels of 64
    bool packs_a;
    int64_t k_packed; // length of the range of k for which b is packed at a time
    int64_t columns;  // columns of b that are packed at a time
    int64_t rows;     // rows of `a` that are packed at a time
    // Sizes of a thread's buffers, in elements: packed `a` (BF16), packed b (BF16), and sums (F32).
    int64_t a, b, sums;
    // True: k is larger than k_packed, so the sums of all rows are kept from one range of k to the
    // next.
    bool several_packed;
} amx_plan;

static amx_plan plan_of(const tri_device_description *device, const cpu_bf16_gemm *g) {
    static const tri_device_description alone = {.threads = 1};
    bool small = (double)g->m * (double)g->n * (double)g->k < AMX_SHARED_PRODUCTS;
    amx_plan p = {.split = cpu_gemm_split_of(small ? &alone : device, g->m, CPU_AMX_SIDE, g->n)};
    // Tiles can read `a` in place if it is not transposed and k is a multiple of 32. But it is
    // packed if its rows lie a multiple of 2 KB (1024 values) apart, because the 32 rows of a chunk
    // would then compete for one or two sets of the L1 cache.
    p.packs_a = g->a_transposed || g->k % CPU_AMX_SIDE || g->k % 1024 == 0;
    p.k_packed = even_size(g->k, AMX_K, CPU_AMX_SIDE);
    int64_t columns = quotient_up(p.split.panels, p.split.columns) * CPU_TILE_COLUMNS;
    int64_t rows = quotient_up(p.split.groups, p.split.rows) * CPU_AMX_SIDE;
    p.columns = even_size(columns, AMX_B_ELEMENTS / p.k_packed, CPU_AMX_SIDE);
    // If a thread's columns take several blocks of b, as many rows of `a` are packed at a time as
    // AMX_A_ELEMENTS allows. Otherwise 32 rows are packed at a time, and the next 32 are prefetched
    // while these are multiplied.
    bool packs_many = p.packs_a && p.columns < columns;
    p.rows = packs_many ? even_size(rows, AMX_A_ELEMENTS / p.k_packed, CPU_AMX_SIDE) : CPU_AMX_SIDE;
    p.several_packed = p.k_packed < g->k;
    p.a = p.rows * p.k_packed;
    p.b = p.columns * p.k_packed;
    p.sums = p.several_packed ? rows * p.columns : 2 * CPU_AMX_CHUNK;
    return p;
}

size_t cpu_amx_gemm_workspace(const tri_device_description *device, const cpu_bf16_gemm *gemm) {
    amx_plan p = plan_of(device, gemm);
    size_t each = (size_t)(p.a + p.b) * sizeof(uint16_t) + (size_t)p.sums * sizeof(float);
    return each * (size_t)(p.split.rows * p.split.columns);
}

// What one thread computes at present, and its buffers.
typedef struct amx_block {
    int64_t first_row, end_row;      // rows of c that the thread computes
    int64_t column, columns;         // columns for which b is packed
    int64_t k_begin, k_count;        // range of k for which b is packed
    int64_t packed_row, packed_rows; // first row of `a` in its buffer, and how many rows lie there
    uint16_t *a, *b;                 // buffers of packed operands
    float *sums;                     // buffer of sums
    cpu_amx_beside beside;           // finished sums that are not stored yet, and what to prefetch
} amx_block;

static void pack_b(const cpu_bf16_gemm *g, const amx_block *b) {
    if (g->b_transposed)
        cpu_amx_pack_b_rows(g->b + b->column * g->k + b->k_begin, g->k, b->k_count, b->columns,
                            b->b);
    else
        cpu_amx_pack_b_plain(g->b + b->k_begin * g->n + b->column, g->n, b->k_count, b->columns,
                             b->b);
}

static void pack_a(const cpu_bf16_gemm *g, const amx_block *b) {
    if (g->a_transposed)
        cpu_amx_pack_a_columns(g->a + b->k_begin * g->m + b->packed_row, g->m, b->packed_rows,
                               b->k_count, b->a);
    else
        cpu_amx_pack_a_rows(g->a + b->packed_row * g->k + b->k_begin, g->k, b->packed_rows,
                            b->k_count, b->a);
}

// Adds the bias to a block of finished sums, at most 32 × 32, and stores the block in c.
static CPU_AVX512 void finish(const cpu_bf16_gemm *g, const float *sums, int64_t row, int64_t rows,
                              int64_t column, int64_t columns) {
    const uint16_t *bias = g->bias ? g->bias + column : NULL;
    int64_t at = row * g->n + column;
    for (int64_t i = 0; i < rows; i++, at += g->n, sums += CPU_AMX_SIDE) {
        __m512 low = _mm512_loadu_ps(sums), high = _mm512_loadu_ps(sums + 16);
        __mmask16 first = cpu_first_lanes(columns);
        __mmask16 second = columns > 16 ? cpu_first_lanes(columns - 16) : 0;
        low = cpu_add_bias(bias, true, 0, first, low);
        high = cpu_add_bias(bias, true, 16, second, high);
        if (g->c_f32) {
            _mm512_mask_storeu_ps((float *)g->c + at, first, low);
            _mm512_mask_storeu_ps((float *)g->c + at + 16, second, high);
        } else {
            _mm512_mask_storeu_epi16((uint16_t *)g->c + at, first | (uint32_t)second << 16,
                                     cpu_narrow_both(low, high));
        }
    }
}

// Chooses which cache lines of the next 32 rows of `a` are prefetched while the 32 columns from `j`
// on are multiplied. For every 32 values of k, the 32 rows have 32 cache lines. Each block of 32
// columns prefetches an equal range of these lines.
static void choose_ahead(const cpu_bf16_gemm *g, const amx_plan *p, amx_block *b, int64_t row,
                         int64_t j) {
    int64_t blocks = cpu_amx_blocks(b->columns), block = j / CPU_AMX_SIDE;
    int64_t first = CPU_AMX_SIDE * block / blocks, end = CPU_AMX_SIDE * (block + 1) / blocks;
    int64_t next = row + CPU_AMX_SIDE, element = sizeof(uint16_t);
    bool whole = next + CPU_AMX_SIDE <= b->end_row && p->rows == CPU_AMX_SIDE;
    int64_t at = g->a_transposed ? b->k_begin * g->m + next : next * g->k + b->k_begin;
    b->beside.lines = whole ? end - first : 0;
    b->beside.line = element * (g->a_transposed ? g->m : g->k);
    b->beside.chunk = element * CPU_AMX_SIDE * (g->a_transposed ? g->m : 1);
    b->beside.ahead =
        (const char *)(g->a + (whole ? at : 0)) + (whole ? first * b->beside.line : 0);
}

// Computes a block of 32 × 32 sums that lies wholly inside c and gets no bias. If c is F32,
// the sums are made in c itself. If c is BF16, they stay in `sums`; they are converted and stored
// while the next block is multiplied.
static void multiply_whole(const cpu_bf16_gemm *g, amx_block *b, const cpu_amx_rows *rows,
                           const uint16_t *packed, float *sums, int64_t at) {
    cpu_amx_sums mode = b->k_begin > 0 || g->accumulate ? CPU_AMX_ACCUMULATE : CPU_AMX_OVERWRITE;
    int64_t chunks = cpu_amx_blocks(b->k_count);
    if (g->c_f32) {
        cpu_amx_block_beside(rows, packed, chunks, (float *)g->c + at, g->n, mode, &b->beside);
        return;
    }
    cpu_amx_block_beside(rows, packed, chunks, sums, CPU_AMX_SIDE, mode, &b->beside);
    b->beside.sums = b->k_begin + b->k_count == g->k ? sums : NULL;
    b->beside.c = (uint16_t *)g->c + at;
    b->beside.c_row = g->n;
}

// Copies a block of c, to which the product will be added, to the buffer of the block's sums.
static CPU_AVX512 void load_sums(const cpu_bf16_gemm *g, float *sums, int64_t row, int64_t rows,
                                 int64_t column, int64_t columns) {
    const float *c = (const float *)g->c + row * g->n + column;
    __mmask16 first = cpu_first_lanes(columns);
    __mmask16 second = columns > 16 ? cpu_first_lanes(columns - 16) : 0;
    for (int64_t i = 0; i < rows; i++, c += g->n, sums += CPU_AMX_SIDE) {
        _mm512_storeu_ps(sums, _mm512_maskz_loadu_ps(first, c));
        _mm512_storeu_ps(sums + 16, _mm512_maskz_loadu_ps(second, c + 16));
    }
}

// Computes up to 32 rows of c, for all columns of the packed block of b and its range of k.
static void multiply_stripe(const cpu_bf16_gemm *g, const amx_plan *p, amx_block *b, int64_t row,
                            const cpu_amx_rows *rows) {
    int64_t height = smaller(b->end_row - row, CPU_AMX_SIDE), chunks = cpu_amx_blocks(b->k_count);
    for (int64_t j = 0; j < b->columns; j += CPU_AMX_SIDE) {
        int64_t width = smaller(b->columns - j, CPU_AMX_SIDE), block = j / CPU_AMX_SIDE;
        const uint16_t *packed = b->b + block * chunks * CPU_AMX_CHUNK;
        // If b is packed for all of k at once, two buffers of 32 × 32 sums take turns: one may
        // still hold the previous block's sums, which are stored while this block is multiplied.
        // Else every block of sums has its own buffer until the last range of k.
        float *sums =
            b->sums + (p->several_packed ? (row - b->first_row) * p->columns + j * CPU_AMX_SIDE
                                         : block % 2 * CPU_AMX_CHUNK);
        if (!g->bias && height == CPU_AMX_SIDE && width == CPU_AMX_SIDE) {
            choose_ahead(g, p, b, row, j);
            multiply_whole(g, b, rows, packed, sums, row * g->n + b->column + j);
            continue;
        }
        cpu_amx_store_beside(&b->beside);
        if (b->k_begin == 0 && g->accumulate) load_sums(g, sums, row, height, b->column + j, width);
        bool adds = b->k_begin > 0 || g->accumulate;
        cpu_amx_block(rows, packed, chunks, sums, adds ? CPU_AMX_ACCUMULATE : CPU_AMX_OVERWRITE,
                      height, width);
        if (b->k_begin + b->k_count == g->k) finish(g, sums, row, height, b->column + j, width);
    }
    cpu_amx_store_beside(&b->beside); // the sums must be stored before their buffer is used again
    if (g->finish && b->k_begin + b->k_count == g->k)
        cpu_finish_rows(g->finish, row * g->n + b->column, g->n, height, b->columns);
}

static void multiply_rows(const cpu_bf16_gemm *g, const amx_plan *p, amx_block *b) {
    int64_t chunks = quotient_up(b->k_count, CPU_AMX_SIDE);
    cpu_amx_rows packed = {.row = CPU_AMX_SIDE * sizeof(uint16_t),
                           .chunk = CPU_AMX_CHUNK * sizeof(uint16_t)};
    cpu_amx_rows plain = {.row = g->k * (int64_t)sizeof(uint16_t),
                          .chunk = CPU_AMX_SIDE * sizeof(uint16_t)};
    for (int64_t row = b->first_row; row < b->end_row; row += CPU_AMX_SIDE) {
        // Tiles always read 16 or 32 rows. If fewer than 32 rows are left at the end, these are
        // packed, and zeros stand for the missing rows.
        bool packs = p->packs_a || b->end_row - row < CPU_AMX_SIDE;
        if (packs && (!p->packs_a || row >= b->packed_row + b->packed_rows)) {
            b->packed_row = row;
            b->packed_rows = smaller(b->end_row - row, p->rows);
            pack_a(g, b);
        }
        packed.data = b->a + (row - b->packed_row) / CPU_AMX_SIDE * chunks * CPU_AMX_CHUNK;
        plain.data = g->a + row * g->k + b->k_begin;
        multiply_stripe(g, p, b, row, packs ? &packed : &plain);
    }
}

typedef struct amx_job {
    const cpu_bf16_gemm *gemm;
    amx_plan plan;
    char *workspace;
} amx_job;

static void multiply_rectangle(const amx_job *job, int index) {
    const cpu_bf16_gemm *g = job->gemm;
    const amx_plan *p = &job->plan;
    const cpu_gemm_split *s = &p->split;
    int row = index / s->columns, column = index % s->columns;
    int64_t end = smaller(s->panels * (column + 1) / s->columns * CPU_TILE_COLUMNS, g->n);
    amx_block b = {.first_row = s->groups * row / s->rows * CPU_AMX_SIDE,
                   .end_row = smaller(s->groups * (row + 1) / s->rows * CPU_AMX_SIDE, g->m)};
    int64_t packed_bytes = (p->a + p->b) * (int64_t)sizeof(uint16_t);
    char *workspace = job->workspace + index * (packed_bytes + p->sums * (int64_t)sizeof(float));
    b.sums = (float *)workspace;
    b.a = (uint16_t *)(b.sums + p->sums);
    b.b = b.a + p->a;
    for (b.column = s->panels * column / s->columns * CPU_TILE_COLUMNS; b.column < end;
         b.column += b.columns) {
        b.columns = smaller(end - b.column, p->columns);
        for (b.k_begin = 0; b.k_begin < g->k; b.k_begin += b.k_count) {
            b.k_count = smaller(g->k - b.k_begin, p->k_packed);
            b.packed_row = b.first_row;
            b.packed_rows = 0;
            pack_b(g, &b);
            multiply_rows(g, p, &b);
        }
    }
}

static void amx_range(void *context, int64_t begin, int64_t end, int thread) {
    cpu_amx_begin();
    for (int64_t i = begin; i < end; i++) multiply_rectangle(context, (int)i);
    cpu_amx_end();
}

void cpu_amx_gemm_run(const cpu_device *device, const cpu_bf16_gemm *gemm, void *workspace) {
    amx_job job = {
        .gemm = gemm, .plan = plan_of(&device->head.description, gemm), .workspace = workspace};
    cpu_parallel(device, job.plan.split.rows * job.plan.split.columns, 1, amx_range, &job);
}
