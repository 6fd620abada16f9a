// The end of a step on the GPU: optimizers, sums of squares of gradients, and the step scalars,
// which are the numbers that optimizers read (learning rate, factor of the gradients, whether to
// skip the update). They are computed on the device and stay in its memory, so that the host need
// not wait for them. What a step hands to the next one also stays there (the carried numbers: loss
// scale, count of updates).
#define _Noreturn [[noreturn]] // some C headers use it, and C++ does not know it

#include "device/cuda/module/pack.h"
#include "ops/step_rule.h"

namespace {

// The numbers of an update, in the precision in which they are used. One thread of a block computes
// them for all threads.
struct rule_numbers {
    // lr: the learning rate (for Adam divided by 1 - beta1^update). scale: the factor of the
    // gradient or, for a moving average, of the new statistic. decay: weight decay.
    float lr, scale, decay;
    float shrink; // 1 - lr * decay if weight decay shrinks the parameter itself (AdamW), else 1
    // first, second: number[0] and number[1] of cuda_update, such as beta1 and beta2 of Adam.
    // rest1, rest2: 1 - first and 1 - second, but rest2 is 1 in SGD's first update. root: for SGD
    // the factor of the momentum buffer, for Adam 1 / sqrt(1 - beta2^update).
    float first, second, rest1, rest2, root, eps;
    bool nesterov; // SGD: the momentum is Nesterov's
};

GPU_DEVICE rule_numbers numbers_of(const cuda_update &p) {
    rule_numbers n = {};
    double update = p.step[TRI_STEP_UPDATE], lr = p.step[TRI_STEP_LR] * p.lr_factor;
    n.lr = (float)lr;
    n.scale = (float)p.step[TRI_STEP_GRADIENT_SCALE];
    n.decay = (float)p.weight_decay;
    n.shrink = 1;
    n.nesterov = p.nesterov_or_decoupled;
    n.first = (float)p.number[0];
    n.second = (float)p.number[1];
    n.rest1 = (float)(1 - p.number[0]);
    n.rest2 = (float)(1 - p.number[1]);
    if (p.rule == CUDA_SGD) {
        n.root = update <= 1 ? 0 : n.first; // before the first update there is no momentum yet
        n.rest2 = update <= 1 ? 1 : n.rest2;
    } else if (p.rule == CUDA_ADAM) {
        if (p.nesterov_or_decoupled) {
            n.shrink = (float)(1 - lr * p.weight_decay);
            n.decay = 0;
        }
        n.lr = (float)(lr / (1 - pow(p.number[CUDA_ADAM_BETA1], update)));
        n.root = (float)(1 / sqrt(1 - pow(p.number[CUDA_ADAM_BETA2], update)));
        n.eps = (float)p.number[CUDA_ADAM_EPS];
    } else if (p.rule == CUDA_ADADELTA) {
        n.eps = (float)p.number[CUDA_ADADELTA_EPS];
    } else if (p.rule == CUDA_AVERAGE_WEIGHTS) {
        n.scale = (float)p.step[TRI_STEP_AVERAGE];
    } else {
        double momentum = p.number[CUDA_AVERAGE_MOMENTUM];
        if (momentum == 0) momentum = 1 / update;
        n.rest1 = (float)(1 - momentum);
        n.scale = (float)(momentum * p.step[TRI_STEP_STATISTIC_SCALE]);
    }
    return n;
}

// Updates one number of a parameter by the optimizer's rule. `a` and `b` are the optimizer's states
// for this number, for example Adam's two averages; has_state is false for SGD without momentum,
// which has no state.
//
// A compiler may join a product and a sum into one instruction that rounds once, and it decides so
// for each copy of an unrolled loop. The bits of a number would then depend on where it lies. So
// each product whose result is added to something is part of an fmaf.
//
// A factor of 0 (no weight decay, no momentum yet) leaves out a number, which may not be finite.
template <int rule>
GPU_DEVICE void update_one(const rule_numbers &n, float &param, float grad, float &a, float &b,
                           bool has_state) {
    if (rule == CUDA_MOVING_AVERAGE) {
        param = fmaf(n.rest1, param, n.scale * grad);
        return;
    }
    if (rule == CUDA_AVERAGE_WEIGHTS) {
        param = n.scale == 1 ? grad : fmaf(n.scale, grad - param, param);
        return;
    }
    float g = n.decay == 0 ? n.scale * grad : fmaf(n.scale, grad, n.decay * param);
    if (rule == CUDA_SGD) {
        float change = g;
        if (has_state) {
            a = n.root == 0 ? n.rest2 * g : fmaf(n.root, a, n.rest2 * g);
            change = n.nesterov ? fmaf(n.first, a, g) : a;
        }
        param = fmaf(-n.lr, change, param);
    } else if (rule == CUDA_ADAM) {
        a = fmaf(n.first, a, n.rest1 * g);
        b = fmaf(n.second, b, n.rest2 * g * g);
        param = fmaf(n.shrink, param, -n.lr * a / fmaf(sqrtf(b), n.root, n.eps));
    } else {
        a = fmaf(n.first, a, n.rest1 * g * g);
        float delta = sqrtf((b + n.eps) / (a + n.eps)) * g;
        b = fmaf(n.first, b, n.rest1 * delta * delta);
        param = fmaf(-n.lr, delta, param);
    }
}

// Updates p.count numbers. Reads parameter, gradient and states once, and writes all but the
// gradient: for each number, Adam and Adadelta read 16 bytes and write 12, SGD with momentum reads
// 12 and writes 8, and SGD without momentum and averages read 8 and write 4.
template <int rule> GPU_KERNEL update(cuda_update p) {
    typedef gpu_pack<float, 4> four;
    GPU_SHARED(rule_numbers, shared, 1);
    bool skips =
        rule == CUDA_AVERAGE_WEIGHTS ? p.step[TRI_STEP_AVERAGE] == 0 : p.step[TRI_STEP_SKIP] != 0;
    if (skips) return;
    if (threadIdx.x == 0) shared[0] = numbers_of(p);
    gpu_barrier();
    rule_numbers n = shared[0];
    float *a = p.state[0], *b = p.state[1], none = 0;
    int64_t fours = gpu_is_aligned(p.param, p.grad, a, b) ? p.count / 4 : 0;
    for (int64_t i = gpu_thread(); i < fours; i += gpu_threads()) {
        four param = ((four *)p.param)[i], grad = ((const four *)p.grad)[i], first = {},
             second = {};
        if (a) first = ((four *)a)[i];
        if (b) second = ((four *)b)[i];
        for (int k = 0; k < 4; k++)
            update_one<rule>(n, param.at[k], grad.at[k], first.at[k], second.at[k], a);
        ((four *)p.param)[i] = param;
        if (a) ((four *)a)[i] = first;
        if (b) ((four *)b)[i] = second;
    }
    for (int64_t i = fours * 4 + gpu_thread(); i < p.count; i += gpu_threads())
        update_one<rule>(n, p.param[i], p.grad[i], a ? a[i] : none, b ? b[i] : none, a);
}

// Sums the squares of those of x's `count` numbers that this thread takes; the threads of a block
// together take all of them. Which numbers a thread takes does not depend on the address, so that
// the result has the same bits wherever x lies.
GPU_DEVICE double own_squares(const float *x, int64_t count) {
    typedef gpu_pack<float, 4> four;
    bool aligned = gpu_is_aligned(x);
    double sum = 0;
    for (int64_t i = threadIdx.x * 4; i < count; i += GPU_BLOCK * 4) {
        four v = {};
        if (aligned && i + 4 <= count)
            v = *(const four *)(x + i);
        else
            for (int k = 0; k < 4; k++) v.at[k] = i + k < count ? x[i + k] : 0;
        for (int k = 0; k < 4; k++) sum += (double)v.at[k] * (double)v.at[k];
    }
    return sum;
}

// Sums the squares of x if all of it is one chunk (p.chunk is p.count), into a sum for each thread
// block. Each block takes CUDA_SQUARES_TURN numbers at a time. Reads 4 bytes for each number, and
// writes 8 for each block.
GPU_KERNEL squares(cuda_squares p) {
    GPU_SHARED(double, scratch, GPU_BLOCK / GPU_WARP);
    int64_t step = (int64_t)gridDim.x * CUDA_SQUARES_TURN;
    double sum = 0;
    for (int64_t i = (int64_t)blockIdx.x * CUDA_SQUARES_TURN; i < p.count; i += step)
        sum += own_squares(p.x + i, p.count - i < CUDA_SQUARES_TURN ? p.count - i
                                                                    : (int64_t)CUDA_SQUARES_TURN);
    sum = gpu_block_sum(sum, scratch);
    if (threadIdx.x == 0) p.block_sums[blockIdx.x] = sum;
}

// Sums the squares of each chunk of x, of p.chunk numbers, so that the sums do not depend on the
// number of ranks or of thread blocks. A thread block sums one chunk after the other. Reads 4 bytes
// for each number, and writes 8 for each chunk.
GPU_KERNEL squares_of_chunks(cuda_squares p) {
    GPU_SHARED(double, scratch, GPU_BLOCK / GPU_WARP);
    for (int64_t c = blockIdx.x; c < p.count / p.chunk; c += gridDim.x) {
        double sum = gpu_block_sum(own_squares(p.x + c * p.chunk, p.chunk), scratch);
        if (threadIdx.x == 0) p.sums[c] = sum;
    }
}

// Adds up the thread blocks' sums of `squares`. Reads 8 bytes for each block, and writes 8.
GPU_KERNEL join_squares(cuda_squares p) {
    GPU_SHARED(double, scratch, GPU_BLOCK / GPU_WARP);
    double sum = 0;
    for (int i = (int)threadIdx.x; i < p.blocks; i += GPU_BLOCK) sum += p.block_sums[i];
    sum = gpu_block_sum(sum, scratch);
    if (threadIdx.x == 0) p.sums[0] = sum;
}

// Adds up the rows of x. Reads 8 bytes for each element of x, and writes 8 for each column.
GPU_KERNEL sum_rows(cuda_sum_rows p) {
    for (int64_t i = gpu_thread(); i < p.width; i += gpu_threads()) {
        double sum = 0;
        for (int64_t r = 0; r < p.rows; r++) sum += p.x[r * p.width + i];
        p.sums[i] = sum;
    }
}

// Computes the step scalars and the new carried numbers, in one thread. Reads and writes a few
// dozen numbers of 8 bytes.
GPU_KERNEL step_numbers(cuda_step_numbers p) {
    tri_step_numbers_attr attr;
    memcpy(&attr, p.attr, sizeof attr);
    step_rule(&attr, p.carried, p.control, p.sums, p.squares, p.after, p.step);
}

// Searches for numbers that are not finite, so that a message can name the parameter. One thread
// block is enough, because it only searches if the step halts (a number is not finite, and there is
// no smaller loss scale to try), and then the run ends. A search reads 4 bytes for each number of x
// up to the end of the range found. The kernel always writes 8 bytes in all.
GPU_KERNEL not_finite(cuda_not_finite p) {
    GPU_SHARED(int, scratch, GPU_BLOCK / GPU_WARP);
    int64_t found = 0;
    for (int64_t r = 0; r < p.range_count && p.step[TRI_STEP_HALTS] != 0 && found == 0; r++) {
        int any = 0;
        for (int64_t i = p.ranges[2 * r] + threadIdx.x; i < p.ranges[2 * r + 1]; i += GPU_BLOCK)
            any |= !isfinite(p.x[i]);
        if (gpu_block_max(any, scratch)) found = r + 1;
    }
    if (threadIdx.x == 0) *p.found = (double)found;
}

// Computes the loss seeds (cuda_loss_seeds). Reads 16 bytes and writes 4 for each loss.
GPU_KERNEL loss_seeds(cuda_loss_seeds p) {
    for (int64_t i = gpu_thread(); i < p.count; i += gpu_threads())
        p.seeds[i] = step_rule_seed(p.carried, &p.losses[2 * i]);
}

template <int rule> tri_status launch(cuda_stream *stream, const cuda_update *p, char *why) {
    return gpu_launch(stream, update<rule>, gpu_blocks(stream, p->count, 4 * GPU_BLOCK), GPU_BLOCK,
                      *p, why);
}

} // namespace

extern "C" tri_status cuda_launch_update(cuda_stream *stream, const cuda_update *p, char *why) {
    if (p->count == 0) return TRI_OK;
    switch (p->rule) {
    case CUDA_SGD:
        return launch<CUDA_SGD>(stream, p, why);
    case CUDA_ADAM:
        return launch<CUDA_ADAM>(stream, p, why);
    case CUDA_ADADELTA:
        return launch<CUDA_ADADELTA>(stream, p, why);
    case CUDA_MOVING_AVERAGE:
        return launch<CUDA_MOVING_AVERAGE>(stream, p, why);
    case CUDA_AVERAGE_WEIGHTS:
        return launch<CUDA_AVERAGE_WEIGHTS>(stream, p, why);
    }
    return TRI_UNSUPPORTED;
}

extern "C" tri_status cuda_launch_squares(cuda_stream *stream, const cuda_squares *p, char *why) {
    if (p->count != p->chunk) {
        int64_t blocks = gpu_blocks(stream, p->count / p->chunk, 1);
        return gpu_launch(stream, squares_of_chunks, blocks, GPU_BLOCK, *p, why);
    }
    tri_status status = gpu_launch(stream, squares, p->blocks, GPU_BLOCK, *p, why);
    return status != TRI_OK ? status : gpu_launch(stream, join_squares, 1, GPU_BLOCK, *p, why);
}

extern "C" tri_status cuda_launch_sum_rows(cuda_stream *stream, const cuda_sum_rows *p, char *why) {
    return gpu_launch(stream, sum_rows, gpu_blocks(stream, p->width, GPU_BLOCK), GPU_BLOCK, *p,
                      why);
}

extern "C" tri_status cuda_launch_step_numbers(cuda_stream *stream, const cuda_step_numbers *p,
                                               char *why) {
    return gpu_launch(stream, step_numbers, 1, 1, *p, why);
}

extern "C" tri_status cuda_launch_not_finite(cuda_stream *stream, const cuda_not_finite *p,
                                             char *why) {
    return gpu_launch(stream, not_finite, 1, GPU_BLOCK, *p, why);
}

extern "C" tri_status cuda_launch_loss_seeds(cuda_stream *stream, const cuda_loss_seeds *p,
                                             char *why) {
    return gpu_launch(stream, loss_seeds, gpu_blocks(stream, p->count, GPU_BLOCK), GPU_BLOCK, *p,
                      why);
}
