// Matrix products of F32, c = a·b; k is the axis that is summed over. The loops follow Goto and van
// de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008: a block of b is packed
// (copied) into panels of 64 columns that stay in the L2 cache, six rows of `a` stay in the L1
// cache, and a tile of 6 × 64 sums stays in registers.
//
// If `a` has few rows and packing would have to transpose b, packing costs more than the product.
// Then cᵀ = bᵀ·aᵀ is computed instead, which reads b in place and packs only the few rows of `a`.
#include "device/cpu/gemm.h"

enum {
    // Longest range of k that is computed at a time if tiles read contiguous rows of `a`: six rows
    // of this length take 12 KB of the L1 cache.
    K_BLOCK_ROWS = 512,
    // If `a` is packed and k is at most this, the rows are packed in groups of 16, [k][16]: such a
    // group and a panel of b fit into the L1 cache. If k is larger, each row is packed by itself:
    // then a tile reads only its six rows, and these fit into the L1 cache up to k = K_BLOCK_ROWS.
    K_GROUPS = 128,
    ROW_PADDING = 16, // floats behind a packed row, so that rows lie in different sets of the cache
    // If `a` has at most this many columns, and each column is contiguous, `a` is not packed.
    K_UNPACKED = 48,
    PANELS_MAX = 4, // panels of b that are packed at a time: 512 KB with K_BLOCK_ROWS rows
    GEMM_LINE = 16, // floats in a cache line
    // If at most this many tiles read a block of b, they prefetch the next block, because the
    // hardware alone would not load it in time.
    FEW_TILES = 32,
    TILES_AHEAD = 2,           // a tile prefetches the sums in c of the tile after the next one
    SHARED_PRODUCTS = 1 << 17, // a product of fewer multiplications is not worth a second thread
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

// Whether tiles can read rows of the left operand, `a`, in place: all rows have the same distance
// from one to the next, and each row is contiguous, at least in blocks of 64 elements.
static bool reads_a(const cpu_gemm *g) {
    return g->a.column == 1 && g->a.row_block == 64 * g->a.row;
}
// Whether the left operand, `a`, is packed. It is not packed if c has a single panel, because each
// element of `a` is then read only once. Nor is it packed if it has few columns and each is
// contiguous, because packing would cost more than it saves.
static bool packs_a(const cpu_gemm *g) {
    bool few_columns = g->a.row == 1 && g->a.row_block == 64 && g->k <= K_UNPACKED;
    return !reads_a(g) && g->n > CPU_TILE_COLUMNS && !few_columns;
}
static bool packs_rows(const cpu_gemm *g) { return packs_a(g) && g->k > K_GROUPS; }
static bool packs_groups(const cpu_gemm *g) { return packs_a(g) && g->k <= K_GROUPS; }
// Whether tiles read contiguous rows of `a`, in place or packed.
static bool has_rows(const cpu_gemm *g) { return reads_a(g) || packs_rows(g); }
// Whether tiles read the right operand, b, in place: it is already stored in whole panels.
static bool reads_b(const cpu_gemm *g) {
    return g->b.column == 1 && g->b.row == CPU_TILE_COLUMNS && g->b.row_block == 64 * 64 &&
           g->n % CPU_TILE_COLUMNS == 0;
}

// Divides `size` elements, which are `count` units of `unit` elements (the last may have fewer),
// into `ranges` ranges of whole units. Returns how many elements the largest range has.
static int64_t largest_range(int64_t count, int64_t ranges, int64_t unit, int64_t size) {
    int64_t largest = (count + ranges - 1) / ranges * unit;
    return largest < size ? largest : size;
}

cpu_gemm_split cpu_gemm_split_of(const tri_device_description *device, int64_t m, int64_t unit,
                                 int64_t n) {
    cpu_gemm_split best = {.unit = unit,
                           .groups = (m + unit - 1) / unit,
                           .panels = (n + CPU_TILE_COLUMNS - 1) / CPU_TILE_COLUMNS,
                           .rows = 1,
                           .columns = 1};
    int64_t smallest = INT64_MAX;
    for (int columns = device->threads; columns >= 1; columns--) {
        int rows = device->threads / columns;
        int64_t largest = largest_range(best.groups, rows, unit, m) *
                          largest_range(best.panels, columns, CPU_TILE_COLUMNS, n);
        if (largest >= smallest) continue;
        smallest = largest;
        best.rows = rows;
        best.columns = columns;
    }
    return best;
}

// Whether the transposed product cᵀ = bᵀ·aᵀ is computed instead of c = a·b. Its tiles add no
// bias: store_transposed does, when it transposes the sums back into c.
static bool computes_transposed(const cpu_gemm *g) {
    // The transposed product is faster if packing the k · n elements of b, which transposes them,
    // costs more than packing the m · k elements of `a` and writing the m · n of c twice.
    bool pays = (double)g->m * (double)(g->k + 2 * g->n) < (double)g->k * (double)g->n;
    return pays && !g->accumulate && g->b.column != 1 && g->b.column_block == 64 * g->b.column;
}
static cpu_gemm transposed_gemm(const cpu_gemm *g) {
    return (cpu_gemm){.m = g->n,
                      .n = g->m,
                      .k = g->k,
                      .a = cpu_matrix_transposed(g->b),
                      .b = cpu_matrix_transposed(g->a),
                      .c = cpu_matrix_plain(NULL, (g->m + 15) / 16 * 16)};
}

static cpu_gemm_split split_of(const tri_device_description *device, const cpu_gemm *g) {
    static const tri_device_description alone = {.threads = 1};
    bool small = (double)g->m * (double)g->n * (double)g->k < SHARED_PRODUCTS;
    return cpu_gemm_split_of(small ? &alone : device, g->m,
                             packs_groups(g) ? CPU_TILE_GROUP : CPU_TILE_ROWS, g->n);
}

// How much of k is computed at a time: k is divided into equal blocks, rounded up to a multiple of
// 64, that are small enough for the packed operands to stay in the caches.
static int64_t k_block_of(const cpu_gemm *g) {
    int64_t most = has_rows(g) ? K_BLOCK_ROWS : K_GROUPS, blocks = (g->k + most - 1) / most;
    return ((g->k + blocks - 1) / blocks + 63) / 64 * 64;
}

// How many floats one thread's buffers for packed `a`, and for packed `b`, have.
static int64_t packed_a(const cpu_gemm *g, const cpu_gemm_split *s) {
    int64_t rows = (s->groups + s->rows - 1) / s->rows * s->unit;
    if (!packs_a(g)) return 0;
    return rows * (k_block_of(g) + (packs_rows(g) ? ROW_PADDING : 0));
}
static int64_t packed_b(const cpu_gemm *g) {
    return reads_b(g) ? 0 : PANELS_MAX * CPU_TILE_COLUMNS * k_block_of(g);
}

static int64_t packed_floats(const tri_device_description *device, const cpu_gemm *g) {
    cpu_gemm_split s = split_of(device, g);
    return (packed_a(g, &s) + packed_b(g)) * s.rows * s.columns;
}

size_t cpu_gemm_workspace(const tri_device_description *device, const cpu_gemm *gemm) {
    if (!computes_transposed(gemm)) return (size_t)packed_floats(device, gemm) * sizeof(float);
    cpu_gemm g = transposed_gemm(gemm);
    return (size_t)(packed_floats(device, &g) + g.m * g.c.row) * sizeof(float);
}

// What one thread computes at present: a range of k, of panels and of rows.
typedef struct block {
    int64_t k_begin, k_count, panel, panels, first_row, end_row;
    const float *b[PANELS_MAX]; // by panel of the range: where tiles read it
    // next_b[j]: where panel j of the next block of b lies, which tiles prefetch; NULL: they do not
    // prefetch it.
    const float *next_b[PANELS_MAX];
    float *a; // `a`, packed in groups of 16 rows; NULL: tiles read it in another form (select_rows)
    // If each row of `a` is contiguous: where row first_row lies, and the distance between rows.
    const float *rows;
    int64_t row_stride;
} block;

static int64_t tiles_of(const block *b) {
    return (b->end_row - b->first_row + CPU_TILE_ROWS - 1) / CPU_TILE_ROWS;
}

// Packs the block's rows and columns of b into panels [k][64 columns], with zeros beyond column n.
// If b is transposed, at most 64 of its rows are packed at a time, because a cpu_matrix has a
// regular distance between rows only within 64 rows.
static void pack_b(const cpu_tile_code *code, const cpu_gemm *g, const block *b, float *to) {
    int64_t panel = b->k_count * CPU_TILE_COLUMNS, column = b->panel * CPU_TILE_COLUMNS;
    int64_t end = column + b->panels * CPU_TILE_COLUMNS, offset = 0, part;
    if (end > g->n) end = g->n;
    if (g->b.column == 1) {
        code->pack_rows(at(&g->b, b->k_begin, column), false, g->b.row, b->k_count, end - column,
                        to, panel);
        return;
    }
    for (; column < end; column += CPU_TILE_COLUMNS, to += panel) {
        int64_t columns = end - column < CPU_TILE_COLUMNS ? end - column : CPU_TILE_COLUMNS;
        for (offset = 0; offset < b->k_count; offset += part) {
            part = 64 - (b->k_begin + offset) % 64;
            if (part > b->k_count - offset) part = b->k_count - offset;
            code->pack_columns(at(&g->b, b->k_begin + offset, column), false, g->b.column, part,
                               columns, to + offset * CPU_TILE_COLUMNS);
        }
    }
}

bool cpu_gemm_packs(const cpu_gemm *gemm) { return !reads_b(gemm); }

cpu_matrix cpu_gemm_pack(const cpu_device *device, const cpu_gemm *gemm, float *to) {
    block all = {.k_count = gemm->k, .panels = (gemm->n + CPU_TILE_COLUMNS - 1) / CPU_TILE_COLUMNS};
    if (reads_b(gemm)) return gemm->b;
    pack_b(cpu_tile_code_of(device), gemm, &all, to);
    return (cpu_matrix){.data = to,
                        .row = CPU_TILE_COLUMNS,
                        .row_block = 64 * CPU_TILE_COLUMNS,
                        .column = 1,
                        .column_block = CPU_TILE_COLUMNS * gemm->k};
}

typedef struct gemm_job {
    const cpu_tile_code *code;
    const cpu_gemm *gemm;
    // The product that the caller wants, if `gemm` is its transpose; else NULL.
    const cpu_gemm *original;
    cpu_gemm_split split;
    float *workspace;
} gemm_job;

// Prefetches rows of `a` for the next tile, which begins with row `row`. The caller calls it once
// for each panel; each call prefetches another equal range of the rows' cache lines, so that the
// requests are spread out.
static inline void prefetch_rows(const block *b, int64_t row, int64_t panel) {
    int64_t lines = b->k_count / GEMM_LINE, first = lines * panel / b->panels;
    int64_t end = lines * (panel + 1) / b->panels;
    for (int64_t i = row; i < row + CPU_TILE_ROWS && i < b->end_row; i++) {
        const float *from = b->rows + (i - b->first_row) * b->row_stride;
        for (int64_t l = first; l < end; l++) __builtin_prefetch(from + l * GEMM_LINE, 0, 2);
    }
}

// Chooses how many rows the next tile has, beginning with `row`, and where the tile reads them.
static void select_rows(const cpu_gemm *g, const block *b, int64_t row, int64_t *rows,
                        cpu_tile *job) {
    int64_t left = b->end_row - row;
    if (b->a) { // a group of 16 rows becomes tiles of 6, 5 and 5
        int64_t offset = row - b->first_row, inner = offset % CPU_TILE_GROUP;
        *rows = inner > 0 ? 5 : CPU_TILE_ROWS;
        job->a = b->a + (offset - inner) * b->k_count + inner;
        job->a_row = 1;
        job->a_k = CPU_TILE_GROUP;
        if (*rows > left) *rows = left;
    } else { // tiles as equal as possible, because a tile of few rows has to wait for loads of b
        int64_t tiles = (left + CPU_TILE_ROWS - 1) / CPU_TILE_ROWS;
        *rows = (left + tiles - 1) / tiles;
        job->a =
            b->rows ? b->rows + (row - b->first_row) * b->row_stride : at(&g->a, row, b->k_begin);
        job->a_row = b->rows ? b->row_stride : g->a.row;
        job->a_k = b->rows ? 1 : g->a.column;
        job->a_skip = b->rows ? 0 : g->a.column_block - 64 * g->a.column;
    }
}

// Packs the block's rows of the left operand, `a`, for the block's range of k. If the rows need no
// packing, sets where the tiles read them in place.
static void choose_rows(const cpu_tile_code *code, const cpu_gemm *g, block *b, float *packed) {
    const float *from = at(&g->a, b->first_row, b->k_begin);
    int64_t count = b->end_row - b->first_row;
    if (packs_rows(g)) {
        b->row_stride = b->k_count + ROW_PADDING;
        code->transpose(from, g->a.column, b->k_count, count, NULL, packed, b->row_stride);
        b->rows = packed;
    } else if (packs_groups(g)) {
        code->pack_groups(from, g->a.column, b->k_count, count, packed);
        b->a = packed;
    } else if (reads_a(g) && g->a.column_block == 64) {
        b->row_stride = g->a.row;
        b->rows = from;
    }
}

// Chooses what a tile prefetches into the L2 cache. If next_b is set, each tile prefetches an equal
// part of the next block of b. Otherwise, if c is stored in panels, a tile prefetches the sums in c
// of a later tile. The hardware's own prefetches come too late if only a few tiles use the same
// data. `tile` is the number of this tile among `tiles` in its panel, and `j` the panel's number.
static void set_ahead(const block *b, int64_t j, int64_t tile, int64_t tiles, int64_t rows,
                      cpu_tile *job) {
    enum { LINE = GEMM_LINE * sizeof(float), ROW = CPU_TILE_COLUMNS * sizeof(float) };
    if (b->next_b[j]) {
        int64_t step = ROW / tiles > LINE ? LINE : (ROW + tiles - 1) / tiles;
        if (tile * step >= ROW) return;
        job->ahead = (const char *)b->next_b[j] + tile * step * b->k_count;
        job->ahead_step = step;
    } else if (job->c_row == CPU_TILE_COLUMNS) {
        int64_t step = (CPU_TILE_ROWS * ROW + b->k_count - 1) / b->k_count;
        job->ahead = (const char *)(job->c + TILES_AHEAD * rows * job->c_row);
        job->ahead_step = step < LINE ? step : LINE;
    }
}

static void multiply_block(const cpu_tile_code *code, const cpu_gemm *g, const block *b) {
    bool last = b->k_begin + b->k_count == g->k;
    int64_t rows, tile = 0, tiles = tiles_of(b);
    for (int64_t row = b->first_row; row < b->end_row; row += rows, tile++) {
        cpu_tile job = {
            .k = b->k_count, .c_row = g->c.row, .accumulate = b->k_begin > 0 || g->accumulate};
        select_rows(g, b, row, &rows, &job);
        for (int64_t j = 0; j < b->panels; j++) {
            int64_t column = (b->panel + j) * CPU_TILE_COLUMNS, left = g->n - column;
            job.b = b->b[j];
            job.c = g->c.data + row * g->c.row + (b->panel + j) * g->c.column_block;
            job.bias = last && g->bias ? g->bias + column : NULL;
            set_ahead(b, j, tile, tiles, rows, &job);
            if (b->rows) prefetch_rows(b, row + CPU_TILE_ROWS, j);
            code->multiply(&job, rows, left < CPU_TILE_COLUMNS ? left : CPU_TILE_COLUMNS);
        }
        if (last && g->finish) {
            int64_t column = b->panel * CPU_TILE_COLUMNS, left = g->n - column;
            int64_t columns = b->panels * CPU_TILE_COLUMNS;
            cpu_finish_rows(g->finish, row * g->c.row + column, g->c.row, rows,
                            left < columns ? left : columns);
        }
    }
}

// Transposes a thread's rectangle of the transposed product cᵀ into the caller's c, adds the bias
// and finishes it.
static void store_transposed(const gemm_job *job, int64_t first_row, int64_t end_row,
                             int64_t column, int64_t end_column) {
    const cpu_gemm *g = job->gemm, *original = job->original;
    for (int64_t row = first_row; row < end_row; row += 64) {
        int64_t rows = end_row - row < 64 ? end_row - row : 64;
        const float *bias = original->bias ? original->bias + row : NULL;
        job->code->transpose(g->c.data + row * g->c.row + column, g->c.row, rows,
                             end_column - column, bias,
                             original->c.data + column * original->c.row + row, original->c.row);
    }
    if (original->finish)
        cpu_finish_rows(original->finish, column * original->c.row + first_row, original->c.row,
                        end_column - column, end_row - first_row);
}

// Sets next_b: the panels of the next block of b, which tiles prefetch. They are NULL unless b is
// read in place and at most FEW_TILES tiles read the current block. `most` is the most panels that
// the next block can have.
static void find_next(const cpu_gemm *g, block *b, int64_t first_panel, int64_t end_panel,
                      int64_t most) {
    int64_t panel = b->panel + b->panels, k = b->k_begin;
    if (panel == end_panel) {
        panel = first_panel;
        k += b->k_count;
    }
    bool has_next = reads_b(g) && k < g->k && tiles_of(b) <= FEW_TILES;
    for (int64_t j = 0; j < b->panels; j++)
        b->next_b[j] = has_next && j < most && panel + j < end_panel
                           ? at(&g->b, k, (panel + j) * CPU_TILE_COLUMNS)
                           : NULL;
}

static void multiply_rectangle(const gemm_job *job, int index) {
    const cpu_gemm *g = job->gemm;
    const cpu_gemm_split *s = &job->split;
    int row = index / s->columns, column = index % s->columns;
    int64_t most = k_block_of(g), most_panels = has_rows(g) ? PANELS_MAX : 1;
    int64_t first_panel = s->panels * column / s->columns;
    int64_t end_panel = s->panels * (column + 1) / s->columns;
    float *workspace = job->workspace + index * (packed_a(g, s) + packed_b(g));
    float *packed = workspace + packed_a(g, s);
    block b = {.first_row = s->groups * row / s->rows * s->unit,
               .end_row = s->groups * (row + 1) / s->rows * s->unit};
    if (b.end_row > g->m) b.end_row = g->m;
    for (b.k_begin = 0; b.k_begin < g->k; b.k_begin += b.k_count) {
        b.k_count = g->k - b.k_begin < most ? g->k - b.k_begin : most;
        choose_rows(job->code, g, &b, workspace);
        for (b.panel = first_panel; b.panel < end_panel; b.panel += b.panels) {
            b.panels = end_panel - b.panel < most_panels ? end_panel - b.panel : most_panels;
            if (!reads_b(g)) pack_b(job->code, g, &b, packed);
            for (int64_t j = 0; j < b.panels; j++)
                b.b[j] = reads_b(g) ? at(&g->b, b.k_begin, (b.panel + j) * CPU_TILE_COLUMNS)
                                    : packed + j * b.k_count * CPU_TILE_COLUMNS;
            find_next(g, &b, first_panel, end_panel, most_panels);
            multiply_block(job->code, g, &b);
        }
    }
    if (job->original)
        store_transposed(job, b.first_row, b.end_row, first_panel * CPU_TILE_COLUMNS,
                         end_panel * CPU_TILE_COLUMNS < g->n ? end_panel * CPU_TILE_COLUMNS : g->n);
}

static void gemm_range(void *context, int64_t begin, int64_t end, int thread) {
    for (int64_t i = begin; i < end; i++) multiply_rectangle(context, (int)i);
}

void cpu_gemm_run(const cpu_device *device, const cpu_gemm *gemm, void *workspace) {
    gemm_job job = {
        .code = cpu_tile_code_of(device), .gemm = gemm, .workspace = (float *)workspace};
    cpu_gemm transposed;
    if (computes_transposed(gemm)) {
        transposed = transposed_gemm(gemm);
        transposed.c.data = job.workspace + packed_floats(&device->head.description, &transposed);
        job.gemm = &transposed;
        job.original = gemm;
    }
    job.split = split_of(&device->head.description, job.gemm);
    cpu_parallel(device, job.split.rows * job.split.columns, 1, gemm_range, &job);
}
