// The F64 sums of rows that take many terms.
#include "device/cpu/row_sums.h"

#include <string.h>

static int64_t slots_of(int64_t added) { return added / CPU_SUM_TERMS; }

static size_t state_bytes(int64_t rows) { return (size_t)rows * sizeof(cpu_row_state); }

size_t cpu_row_sums_bytes(int64_t rows, int64_t added, int64_t width) {
    if (slots_of(added) == 0) return 0;
    return state_bytes(rows) + (size_t)(slots_of(added) * width) * sizeof(double);
}

void cpu_row_sums_open(cpu_row_sums *sums, float *table, int64_t rows, int64_t added, int64_t width,
                       void *workspace) {
    *sums = (cpu_row_sums){.table = table, .width = width};
    if (slots_of(added) == 0) return;
    sums->rows = workspace;
    sums->totals = (double *)(void *)((char *)workspace + state_bytes(rows));
}

void cpu_row_sums_begin(cpu_row_sums *sums, int64_t begin, int64_t end) {
    if (sums->rows && end > begin)
        memset(sums->rows + begin, 0, (size_t)(end - begin) * sizeof *sums->rows);
}

// Which slot a row gets depends on the order of the threads, but not what is added there.
void cpu_row_sums_spill(cpu_row_sums *sums, int64_t row) {
    cpu_row_state *state = &sums->rows[row];
    float *sum = sums->table + row * sums->width;
    bool first = state->slot == 0;
    if (first) state->slot = atomic_fetch_add(&sums->slots, 1) + 1;
    double *total = sums->totals + (state->slot - 1) * sums->width;
    for (int64_t i = 0; i < sums->width; i++) {
        total[i] = first ? (double)sum[i] : total[i] + (double)sum[i];
        sum[i] = 0;
    }
    state->terms = 0;
}

void cpu_row_sums_end(cpu_row_sums *sums, int64_t begin, int64_t end) {
    for (int64_t row = begin; sums->rows && row < end; row++) {
        if (sums->rows[row].slot == 0) continue;
        const double *total = sums->totals + (sums->rows[row].slot - 1) * sums->width;
        float *sum = sums->table + row * sums->width;
        for (int64_t i = 0; i < sums->width; i++) sum[i] = (float)(total[i] + (double)sum[i]);
    }
}
