// One step of recurrent layers on the GPU, behind the product of the states with the weight. A
// thread computes one unit of one sample, so neighbouring threads read neighbouring elements.
#include "device/cuda/module/gpu.h"
#include "ops/recurrent_kind.h"

#define RECURRENT_SIGMOID(x) (1 / (1 + expf(-(x))))
#define RECURRENT_TANH(x) tanhf(x)
#include "ops/recurrent_step.h"

namespace {

GPU_KERNEL units(cuda_recurrent_units p) {
    int64_t gates = tri_recurrent_gates(p.kind), width = p.units;
    for (int64_t i = gpu_thread(); i < p.samples * width; i += gpu_threads()) {
        int64_t n = i / width, u = i % width, row = p.row + n * p.next_sample;
        const float *x = p.gates + row * gates * width + u;
        const float *s = p.product + n * gates * width + u;
        float *kept = p.saved ? p.saved + n * 4 * width + u : nullptr, state = x[0] + s[0];
        if (p.kind == TRI_RECURRENT_LSTM) {
            recurrent_lstm_unit unit =
                recurrent_lstm(x[0] + s[0], x[width] + s[width], x[2 * width] + s[2 * width],
                               x[3 * width] + s[3 * width], p.c[i]);
            p.c[i] = unit.c;
            state = unit.h;
            if (p.cell) p.cell[i] = unit.c;
            if (kept) {
                kept[0] = unit.i;
                kept[width] = unit.f;
                kept[2 * width] = unit.g;
                kept[3 * width] = unit.o;
            }
        } else if (p.kind == TRI_RECURRENT_GRU) {
            recurrent_gru_unit unit =
                recurrent_gru(x[0], x[width], x[2 * width], s[0], s[width], s[2 * width], p.h[i]);
            state = unit.h;
            if (kept) {
                kept[0] = unit.r;
                kept[width] = unit.z;
                kept[2 * width] = unit.n;
                kept[3 * width] = unit.p;
            }
        } else {
            state = p.kind == TRI_RECURRENT_TANH ? tanhf(state) : state <= 0 ? 0 : state;
        }
        p.h[i] = p.y[row * width + u] = state;
    }
}

GPU_KERNEL units_grad(cuda_recurrent_units_grad p) {
    int64_t gates = tri_recurrent_gates(p.kind), width = p.units;
    for (int64_t i = gpu_thread(); i < p.samples * width; i += gpu_threads()) {
        int64_t n = i / width, u = i % width, row = p.row + n * p.next_sample;
        float before = 0, dh = p.dh[i], y = p.y[row * width + u];
        if (!p.is_first) before = p.y[(p.row_before + n * p.next_sample) * width + u];
        if (p.is_first && p.h) before = p.h[i];
        if (p.dy) dh += p.dy[row * width + u];
        const float *kept = p.saved ? p.saved + n * 4 * width + u : nullptr;
        float *dx = p.dgates + row * gates * width + u, *dp = p.dp + n * gates * width + u;
        p.before[row * width + u] = before;
        if (p.kind == TRI_RECURRENT_LSTM) {
            recurrent_lstm_unit unit = {kept[0],
                                        kept[width],
                                        kept[2 * width],
                                        kept[3 * width],
                                        p.cell[p.samples * width + i],
                                        0};
            recurrent_lstm_unit d = recurrent_lstm_grad(unit, p.cell[i], dh, p.dc[i]);
            dx[0] = dp[0] = d.i;
            dx[width] = dp[width] = d.f;
            dx[2 * width] = dp[2 * width] = d.g;
            dx[3 * width] = dp[3 * width] = d.o;
            p.dc[i] = d.c;
        } else if (p.kind == TRI_RECURRENT_GRU) {
            float *dproduct = p.dproduct + row * gates * width + u;
            recurrent_gru_unit unit = {kept[0], kept[width], kept[2 * width], kept[3 * width], 0};
            recurrent_gru_unit d = recurrent_gru_grad(unit, before, dh);
            dx[0] = dproduct[0] = dp[0] = d.r;
            dx[width] = dproduct[width] = dp[width] = d.z;
            dx[2 * width] = d.n;
            dproduct[2 * width] = dp[2 * width] = d.p;
            p.dh[i] = d.h;
        } else {
            dx[0] = dp[0] = p.kind == TRI_RECURRENT_TANH ? dh * (1 - y * y) : y > 0 ? dh : 0;
        }
    }
}

} // namespace

extern "C" tri_status cuda_launch_recurrent_units(cuda_stream *stream,
                                                  const cuda_recurrent_units *p, char *why) {
    int blocks = gpu_blocks(stream, p->samples * p->units, GPU_BLOCK);
    return gpu_launch(stream, units, blocks, GPU_BLOCK, *p, why);
}

extern "C" tri_status cuda_launch_recurrent_units_grad(cuda_stream *stream,
                                                       const cuda_recurrent_units_grad *p,
                                                       char *why) {
    int blocks = gpu_blocks(stream, p->samples * p->units, GPU_BLOCK);
    return gpu_launch(stream, units_grad, blocks, GPU_BLOCK, *p, why);
}
