// The general kernels: a formula on each element (map), and reductions over axes (reduce). A map
// reads each element of its inputs once and writes each of its outputs once; its steps run in
// registers and the first-level cache, and all threads of a warp take the same branch.
#include "device/cuda/module/gpu.h"
#include "device/reduce_pair.h"
#include "ops/formula_integer.h"
#include "ops/formula_math.h"
#include "ops/step_rule.h"

#include <type_traits>

namespace {

template <typename W> GPU_DEVICE W step_value(int kind, W A, W B, W C) {
    if constexpr (std::is_integral<W>::value)
        return formula_integer_step(kind, A, B, C);
    else
        switch (kind) {
#define X(name, arity, value)                                                                      \
    case TRI_STEP_##name:                                                                          \
        return value;
            TRI_STEP_LIST(X)
#undef X
        default:
            return A;
        }
}

// The value of an input where the output has the element `i`.
template <typename T, typename W>
GPU_DEVICE W read_element(const cuda_map *p, int k, int64_t index) {
    if (p->bytes >> k & 1) return (W)((const uint8_t *)p->in[k])[index];
    return (W)gpu_get(((const T *)p->in[k])[index]);
}

template <typename T, typename W> GPU_DEVICE W read_input(const cuda_map *p, int k, int64_t i) {
    const tri_map_input *input = &p->plan.inputs[k];
    if (input->flat) return read_element<T, W>(p, k, i);
    int64_t index = input->offset, left = i;
    for (int axis = p->plan.rank - 1; axis >= 0; axis--) {
        int64_t size = p->plan.dims[axis], at = axis ? left % size : left;
        left /= size;
        if (at < input->first[axis] || at >= input->end[axis]) return 0;
        index += at * input->strides[axis];
    }
    if (input->draws.kind != TRI_DRAW_NONE)
        return (W)tri_draw_at(&input->draws, (const int64_t *)p->in[k], index);
    return read_element<T, W>(p, k, index);
}

template <typename W> GPU_DEVICE W operand(const tri_map_plan *plan, const W *slots, int number) {
    if (number >= TRI_OPERAND_CONSTANT)
        return (W)plan->formula.constants[number - TRI_OPERAND_CONSTANT];
    return slots[plan->slots[number]];
}

// Runs the formula's steps. The slots of the inputs have their values.
template <typename W> GPU_DEVICE void run_steps(const tri_map_plan *plan, W *slots) {
    for (int t = 0; t < plan->formula.step_count; t++) {
        tri_formula_step s = plan->formula.steps[t];
        slots[plan->slots[t]] = step_value<W>(s.kind, operand(plan, slots, s.a),
                                              operand(plan, slots, s.b), operand(plan, slots, s.c));
    }
}

// `most`: how many slots there is room for.
template <typename T, int most> GPU_KERNEL map(cuda_map p) {
    typedef typename gpu_wide<T>::type W;
    const tri_formula *f = &p.plan.formula;
    for (int64_t i = gpu_thread(); i < p.plan.count; i += gpu_threads()) {
        W slots[most];
        for (int k = 0; k < f->input_count; k++)
            slots[p.plan.slots[TRI_OPERAND_INPUT + k]] = read_input<T, W>(&p, k, i);
        run_steps(&p.plan, slots);
        for (int k = 0; k < f->output_count; k++) {
            W value = operand(&p.plan, slots, f->outputs[k]);
            if (p.mask)
                ((uint8_t *)p.out[k])[i] = value != 0;
            else
                gpu_put(&((T *)p.out[k])[i], value);
        }
    }
}

// Reads the parameter, the gradient and the states once, and writes all but the gradient.
template <int most> GPU_KERNEL map_update(cuda_map_update p) {
    const tri_formula *f = &p.plan.formula;
    const uint8_t *slot_of = p.plan.slots + TRI_OPERAND_INPUT;
    if (p.step[TRI_STEP_SKIP] != 0) return;
    for (int64_t i = gpu_thread(); i < p.plan.count; i += gpu_threads()) {
        float slots[most];
        slots[slot_of[TRI_UPDATE_PARAMETER]] = p.arrays[0][i];
        slots[slot_of[TRI_UPDATE_GRADIENT]] = p.grad[i];
        slots[slot_of[TRI_UPDATE_SCALE]] = (float)p.step[TRI_STEP_GRADIENT_SCALE];
        slots[slot_of[TRI_UPDATE_LR]] = (float)(p.step[TRI_STEP_LR] * p.lr_factor);
        if (p.count_input) slots[slot_of[p.count_input]] = (float)p.step[TRI_STEP_UPDATE];
        for (int k = 1; k < f->output_count; k++)
            slots[slot_of[TRI_UPDATE_STATES + k - 1]] = p.arrays[k][i];
        run_steps(&p.plan, slots);
        for (int k = 0; k < f->output_count; k++)
            p.arrays[k][i] = operand(&p.plan, slots, f->outputs[k]);
    }
}

template <typename W> GPU_DEVICE W joined(int kind, W A, W B) {
    if constexpr (std::is_integral<W>::value) { // which wraps
        int step = kind == CUDA_REDUCE_SUM    ? TRI_STEP_add
                   : kind == CUDA_REDUCE_PROD ? TRI_STEP_mul
                   : kind == CUDA_REDUCE_MAX  ? TRI_STEP_max
                                              : TRI_STEP_min;
        return formula_integer_step(step, A, B, 0);
    }
    if (kind == CUDA_REDUCE_SUM) return A + B;
    if (kind == CUDA_REDUCE_PROD) return A * B;
    bool takes = kind == CUDA_REDUCE_MAX ? B > A : B < A;
    return B != B || takes ? B : A; // NaN stays
}

// A thread reduces one part of the middle axis for one outer and one inner index. Neighbouring
// threads take neighbouring inner indices. Blocks of 64 elements are joined in F32, and the blocks
// in F64.
template <typename T> GPU_KERNEL reduce_parts(cuda_reduce p) {
    enum { BLOCK = 64 };
    typedef typename gpu_wide<T>::type W;
    typedef typename std::conditional<std::is_integral<W>::value, W, double>::type total;
    int64_t items = p.outer * p.parts * p.inner;
    for (int64_t i = gpu_thread(); i < items; i += gpu_threads()) {
        int64_t inner = i % p.inner, part = i / p.inner % p.parts, outer = i / p.inner / p.parts;
        int64_t first = part * p.part,
                end = first + p.part < p.reduced ? first + p.part : p.reduced;
        const T *x = (const T *)p.x + outer * p.reduced * p.inner + inner;
        total all = 0;
        for (int64_t at = first; at < end; at += BLOCK) {
            int64_t stop = at + BLOCK < end ? at + BLOCK : end;
            W sum = (W)gpu_get(x[at * p.inner]);
            for (int64_t r = at + 1; r < stop; r++)
                sum = joined<W>(p.kind, sum, (W)gpu_get(x[r * p.inner]));
            all = at == first ? (total)sum : joined<total>(p.kind, all, (total)sum);
        }
        ((W *)p.room)[i] = (W)all;
    }
}

// O: the type of y, which for sums and products of integers is I64.
template <typename T, typename O> GPU_KERNEL join_parts(cuda_reduce p) {
    typedef typename gpu_wide<T>::type W;
    for (int64_t i = gpu_thread(); i < p.outer * p.inner; i += gpu_threads()) {
        const W *room = (const W *)p.room + i / p.inner * p.parts * p.inner + i % p.inner;
        W sum = room[0];
        for (int64_t part = 1; part * p.part < p.reduced; part++)
            sum = joined<W>(p.kind, sum, room[part * p.inner]);
        gpu_put(&((O *)p.y)[i], sum);
    }
}

// Of the kinds whose state is a pair: goes twice through 64 elements, which are still in a cache.
template <typename T> GPU_KERNEL reduce_pair_parts(cuda_reduce p) {
    enum { BLOCK = 64 };
    typedef typename gpu_wide<T>::type W;
    bool squares = p.kind == CUDA_REDUCE_SQUARES;
    int64_t items = p.outer * p.parts * p.inner;
    for (int64_t i = gpu_thread(); i < items; i += gpu_threads()) {
        int64_t inner = i % p.inner, part = i / p.inner % p.parts, outer = i / p.inner / p.parts;
        int64_t first = part * p.part,
                end = first + p.part < p.reduced ? first + p.part : p.reduced;
        const T *x = (const T *)p.x + outer * p.reduced * p.inner + inner;
        tri_reduce_pair all = {0, 0};
        for (int64_t at = first; at < end; at += BLOCK) {
            int64_t stop = at + BLOCK < end ? at + BLOCK : end;
            W sum = (W)gpu_get(x[at * p.inner]);
            for (int64_t r = at + 1; r < stop; r++)
                sum = joined<W>(squares ? CUDA_REDUCE_SUM : CUDA_REDUCE_MAX, sum,
                                (W)gpu_get(x[r * p.inner]));
            W shift = squares ? sum / (W)(stop - at) : (W)tri_pair_shift((double)sum);
            W terms = 0, rest = 0; // rest: by how much the mean was rounded, times the elements
            for (int64_t r = at; r < stop; r++) {
                W from = (W)gpu_get(x[r * p.inner]) - shift;
                terms += squares ? from * from : (W)exp(from);
                rest += from;
            }
            double count = (double)(stop - at), left = (double)rest;
            tri_reduce_pair block = {squares ? (double)shift + left / count : (double)sum,
                                     (double)terms - (squares ? left * left / count : 0)};
            all = tri_pair_join(squares, (double)(at - first), all, (double)(stop - at), block);
        }
        ((tri_reduce_pair *)p.room)[i] = all;
    }
}

template <typename T> GPU_KERNEL join_pairs(cuda_reduce p) {
    bool squares = p.kind == CUDA_REDUCE_SQUARES;
    for (int64_t i = gpu_thread(); i < p.outer * p.inner; i += gpu_threads()) {
        const tri_reduce_pair *room =
            (const tri_reduce_pair *)p.room + i / p.inner * p.parts * p.inner + i % p.inner;
        tri_reduce_pair all = room[0];
        for (int64_t part = 1; part * p.part < p.reduced; part++) {
            int64_t first = part * p.part, left = p.reduced - first;
            all = tri_pair_join(squares, (double)first, all,
                                (double)(left < p.part ? left : p.part), room[part * p.inner]);
        }
        gpu_put(&((T *)p.y)[i], (typename gpu_wide<T>::type)tri_pair_result(squares, all));
    }
}

template <typename T>
tri_status launch_pairs(cuda_stream *stream, const cuda_reduce *p, char *why) {
    if constexpr (std::is_integral<typename gpu_wide<T>::type>::value) {
        return TRI_OK; // there are no such nodes
    } else {
        int64_t items = p->outer * p->parts * p->inner;
        tri_status status = gpu_launch(stream, reduce_pair_parts<T>,
                                       gpu_blocks(stream, items, GPU_BLOCK), GPU_BLOCK, *p, why);
        if (status != TRI_OK) return status;
        return gpu_launch(stream, join_pairs<T>, gpu_blocks(stream, p->outer * p->inner, GPU_BLOCK),
                          GPU_BLOCK, *p, why);
    }
}

} // namespace

extern "C" tri_status cuda_launch_map(cuda_stream *stream, const cuda_map *p, char *why) {
    enum { FEW = 12, MOST = TRI_FORMULA_STEPS + TRI_FORMULA_INPUTS };
    if (p->plan.count == 0) return TRI_OK;
    auto launch = [=](auto *type) {
        typedef typename std::remove_pointer<decltype(type)>::type T;
        int64_t blocks = gpu_blocks(stream, p->plan.count, GPU_BLOCK);
        if (p->plan.slot_count <= FEW)
            return gpu_launch(stream, map<T, FEW>, blocks, GPU_BLOCK, *p, why);
        return gpu_launch(stream, map<T, MOST>, blocks, GPU_BLOCK, *p, why);
    };
    return gpu_with_number(p->type, launch);
}

extern "C" tri_status cuda_launch_map_update(cuda_stream *stream, const cuda_map_update *p,
                                             char *why) {
    enum { FEW = 16, MOST = TRI_FORMULA_STEPS + TRI_FORMULA_INPUTS };
    if (p->plan.count == 0) return TRI_OK;
    int64_t blocks = gpu_blocks(stream, p->plan.count, GPU_BLOCK);
    if (p->plan.slot_count <= FEW)
        return gpu_launch(stream, map_update<FEW>, blocks, GPU_BLOCK, *p, why);
    return gpu_launch(stream, map_update<MOST>, blocks, GPU_BLOCK, *p, why);
}

extern "C" tri_status cuda_launch_reduce(cuda_stream *stream, const cuda_reduce *p, char *why) {
    if (p->outer * p->inner == 0) return TRI_OK;
    return gpu_with_number(p->type, [=](auto *type) {
        typedef typename std::remove_pointer<decltype(type)>::type T;
        typedef typename gpu_sum<T>::type S;
        if (p->kind >= CUDA_REDUCE_SQUARES) return launch_pairs<T>(stream, p, why);
        bool sums = p->kind == CUDA_REDUCE_SUM || p->kind == CUDA_REDUCE_PROD;
        int64_t items = p->outer * p->parts * p->inner;
        tri_status status = gpu_launch(stream, reduce_parts<T>,
                                       gpu_blocks(stream, items, GPU_BLOCK), GPU_BLOCK, *p, why);
        if (status != TRI_OK) return status;
        int64_t blocks = gpu_blocks(stream, p->outer * p->inner, GPU_BLOCK);
        return gpu_launch(stream, sums ? join_parts<T, S> : join_parts<T, T>, blocks, GPU_BLOCK, *p,
                          why);
    });
}
