// The functions that losses and metrics compute of each row of scores (a score for each class). A
// thread block takes one row or, where rows are short, a row for each of its warps. For a row it
// reads from memory 4 bytes for each score (2 in F16 or BF16; the gradient of log-softmax also
// reads dy; the negative log likelihood reads only the label's score, and its gradient none), and 8
// for a label. Functions that need the scores twice read them the second time from the cache. It
// writes 4 bytes (2) for each score, or at most 8 for the row.
#include "device/cuda/module/pack.h"

namespace {

enum { MAX_WARPS = GPU_BLOCK / 32 }; // enough for the smallest warps, of 32 lanes

enum { WARP_WIDTH = 256 }; // a row of at most this many scores is the work of one warp

// The threads that share a row: those of a warp, or all of a block.
struct team {
    bool is_warp;
    int own, count; // number of this thread in the team; how many threads the team has
};

GPU_DEVICE team team_of(const cuda_class_rows &p) {
    if (p.width <= WARP_WIDTH) return {true, (int)threadIdx.x % GPU_WARP, GPU_WARP};
    return {false, (int)threadIdx.x, (int)blockDim.x};
}

// Computes the sum, or the maximum, over all threads of a team; every thread gets it. `scratch` is
// what gpu_block_sum asks for.
template <typename T> GPU_DEVICE T sum_of(const team &team, T value, T *scratch) {
    return team.is_warp ? gpu_warp_sum(value) : gpu_block_sum(value, scratch);
}

template <typename T> GPU_DEVICE T max_of(const team &team, T value, T *scratch) {
    return team.is_warp ? gpu_warp_max(value) : gpu_block_max(value, scratch);
}

// A row of scores, and the threads that share it.
template <typename T> struct scores {
    const T *x;
    int64_t width;
    struct team team;
};

template <typename T> GPU_DEVICE scores<T> row_of(const cuda_class_rows &p, int64_t row) {
    return {(const T *)p.x + row * p.width, p.width, team_of(p)};
}

// Goes through the scores of the row that this thread takes, n neighbouring scores at a time, and
// calls each(class, scores) for them; `class` is the class of the first of the n. `access` (a
// gpu_access) reads n scores. A thread issues `ahead` reads before it calls `each`, so that they
// overlap; more would need too many registers.
template <typename access, typename T, typename F>
GPU_DEVICE void for_each(const scores<T> &row, F each) {
    constexpr int n = access::count, ahead = n > 4 ? 2 : 4;
    int64_t step = (int64_t)row.team.count * n;
    for (int64_t k = (int64_t)row.team.own * n; k < row.width; k += ahead * step) {
        float at[ahead][n] = {};
        GPU_UNROLL for (int i = 0; i < ahead; i++) if (k + i * step < row.width)
            access::read(row.x + k + i * step, at[i]);
        GPU_UNROLL for (int i = 0; i < ahead; i++) if (k + i * step < row.width)
            each(k + i * step, at[i]);
    }
}

// The numbers of a row from which softmax follows: the largest score, and the sum of exp(score -
// largest).
struct softmax {
    float largest, sum;
};

// `visible`: only so many of the row's scores count.
template <typename access, typename T>
GPU_DEVICE softmax softmax_of(const scores<T> &row, int64_t visible, float *scratch) {
    constexpr int n = access::count;
    softmax own = {-INFINITY, 0};
    for_each<access>(row, [&](int64_t first, const float(&of_row)[n]) {
        float best = own.largest, at[n];
        for (int k = 0; k < n; k++) at[k] = first + k < visible ? of_row[k] : -INFINITY;
        for (int k = 0; k < n; k++) best = gpu_larger(at[k], best);
        if (best == -INFINITY) return;
        own.sum *= expf(own.largest - best);
        for (int k = 0; k < n; k++) own.sum += expf(at[k] - best);
        own.largest = best;
    });
    softmax all = {max_of(row.team, own.largest, scratch), 0};
    own.sum = own.sum == 0 ? 0 : own.sum * expf(own.largest - all.largest);
    all.sum = sum_of(row.team, own.sum, scratch);
    return all;
}

// Gets the label of a row. An invalid label is reported and replaced by p.ignored, so that it is
// never used as an index.
GPU_DEVICE int64_t label_of(const cuda_class_rows &p, int64_t row) {
    int64_t label = p.labels[row];
    if (label == p.ignored || (label >= 0 && label < p.classes)) return label;
    if (team_of(p).own == 0) gpu_refuse(p.fault, CUDA_FAULT_LABEL, label, row, p.classes);
    return p.ignored;
}

// Returns the first class whose score is `largest`, or row.width if there is none. All devices
// choose the first class if several have this score, so that all count the same hits.
template <typename access, typename T>
GPU_DEVICE int64_t first_with(const scores<T> &row, float largest, double *scratch) {
    constexpr int n = access::count;
    double own = INFINITY;
    for_each<access>(row, [&](int64_t first, const float(&at)[n]) {
        for (int k = n - 1; k >= 0; k--)
            if (at[k] == largest && (double)(first + k) < own) own = (double)(first + k);
    });
    double best = -max_of(row.team, -own, scratch);
    return best < (double)row.width ? (int64_t)best : row.width;
}

template <typename access, typename T>
GPU_DEVICE float largest_of(const scores<T> &row, float *scratch) {
    constexpr int n = access::count;
    float largest = -INFINITY;
    for_each<access>(row, [&](int64_t, const float(&at)[n]) {
        for (int k = 0; k < n; k++) largest = gpu_larger(at[k], largest);
    });
    return max_of(row.team, largest, scratch);
}

// True unless all soft labels of the row are 0. Losses and metrics leave such a row out.
template <typename access, typename T>
GPU_DEVICE bool has_labels(const scores<T> &row, float *scratch) {
    constexpr int n = access::count;
    float own = 0;
    for_each<access>(row, [&](int64_t, const float(&at)[n]) {
        for (int k = 0; k < n; k++)
            if (at[k] != 0) own = 1;
    });
    return max_of(row.team, own, scratch) != 0;
}

GPU_DEVICE float smoothed(const cuda_class_rows &p, float label) {
    return (1 - p.smoothing) * label + p.smoothing / (float)p.width;
}

// The loss of log-probabilities y on soft labels.
template <typename access, typename T>
GPU_DEVICE double soft_term(const cuda_class_rows &p, const scores<T> &y, const scores<T> &labels,
                            double *scratch) {
    constexpr int n = access::count;
    double own = 0;
    for_each<access>(labels, [&](int64_t first, const float(&at)[n]) {
        float of_class[n];
        access::read(y.x + first, of_class);
        for (int k = 0; k < n; k++) own -= (double)smoothed(p, at[k]) * (double)of_class[k];
    });
    return sum_of(y.team, own, scratch);
}

// Computes, for row r, one of the functions that reduce a row to one or two numbers.
template <int function, typename T, typename access>
GPU_DEVICE void reduce_row(const cuda_class_rows &p, int64_t r, float *scratch, double *indices) {
    constexpr int n = access::count;
    scores<T> row = row_of<T>(p, r);
    bool is_first = row.team.own == 0;
    if (function == CUDA_ROW_MAX) {
        float largest = largest_of<access>(row, scratch);
        if (is_first) p.row_results[r] = largest;
    } else if (function == CUDA_SLICE_ARGMAX) {
        int64_t k = first_with<access>(row, p.max[r], indices);
        if (is_first) p.row_results[r] = -(float)(k < p.width ? p.first + k : p.classes);
    } else if (function == CUDA_SLICE_SOFTMAX) {
        int64_t at = label_of(p, r) - p.first;
        float max = p.max[r], sum = 0;
        for_each<access>(row, [&](int64_t, const float(&x)[n]) {
            for (int k = 0; k < n; k++) sum += expf(x[k] - max);
        });
        sum = sum_of(row.team, sum, scratch);
        if (!is_first) return;
        p.row_results[2 * r] = sum;
        p.row_results[2 * r + 1] = at >= 0 && at < p.width ? gpu_get(row.x[at]) - max : 0;
    } else if (function == CUDA_SOFT_NLL) {
        scores<T> labels = row;
        labels.x = (const T *)p.dy + r * p.width;
        bool counts = has_labels<access>(labels, scratch);
        double term = counts ? soft_term<access>(p, row, labels, indices) : 0;
        if (is_first) p.terms[r] = term;
        if (is_first) p.row_labels[r] = counts ? 0 : p.ignored;
    } else if (function == CUDA_TOP_CLASS) {
        int64_t top = first_with<access>(row, largest_of<access>(row, scratch), indices);
        bool counts = has_labels<access>(row, scratch);
        if (is_first) p.row_labels[r] = !counts ? p.ignored : top < p.width ? top : 0;
    } else {
        int64_t label = label_of(p, r);
        double term = 0;
        if (label != p.ignored && function == CUDA_NLL) term = -(double)gpu_get(row.x[label]);
        if (label != p.ignored && function == CUDA_CROSS_ENTROPY) {
            softmax s = softmax_of<access>(row, p.width, scratch);
            term = (double)logf(s.sum) + ((double)s.largest - (double)gpu_get(row.x[label]));
        }
        if (label != p.ignored && function == CUDA_ACCURACY) {
            int64_t hit = first_with<access>(row, largest_of<access>(row, scratch), indices);
            term = hit == label;
        }
        if (is_first) p.terms[r] = term;
    }
}

template <int function>
constexpr bool is_softmax = function == CUDA_SOFTMAX || function == CUDA_SOFTMAX_GRAD ||
                            function == CUDA_LOG_SOFTMAX || function == CUDA_LOG_SOFTMAX_GRAD;

// Computes, for row r, one of the functions that make another row from a row, such as log-softmax.
template <int function, typename T, typename access>
GPU_DEVICE void map_row(const cuda_class_rows &p, int64_t r, float *scratch) {
    constexpr int n = access::count;
    scores<T> row = row_of<T>(p, r), dy = row;
    dy.x = (const T *)p.dy + r * p.width;
    T *y = (T *)p.y + r * p.width;
    bool reads_labels = !is_softmax<function> && function != CUDA_SOFT_NLL_GRAD;
    int64_t label = reads_labels ? label_of(p, r) : 0;
    bool counts = label != p.ignored;
    int64_t visible = p.width;
    if (function == CUDA_SOFT_NLL_GRAD) counts = has_labels<access>(row, scratch);
    float seed = !counts ? 0
                 : (reads_labels && function != CUDA_ONE_HOT) || function == CUDA_SOFT_NLL_GRAD
                     ? gpu_get_seed(p.seed, p.seed_type)
                     : 1,
          norm = 0, sum = 0;
    if (function == CUDA_LOG_SOFTMAX || function == CUDA_CROSS_ENTROPY_GRAD) {
        softmax s = softmax_of<access>(row, p.width, scratch);
        norm = s.largest + logf(s.sum);
    } else if (function == CUDA_SOFTMAX) {
        visible = p.queries ? r % p.queries + 1 + p.width - p.queries : p.width;
        softmax s = softmax_of<access>(row, visible, scratch);
        norm = s.largest;
        sum = 1 / s.sum;
        if (p.empty && norm == -INFINITY) visible = 0;
    } else if (function == CUDA_LOG_SOFTMAX_GRAD) {
        for_each<access>(dy, [&](int64_t, const float(&at)[n]) {
            for (int k = 0; k < n; k++) sum += at[k];
        });
        sum = sum_of(row.team, sum, scratch);
    } else if (function == CUDA_SOFTMAX_GRAD) {
        for_each<access>(dy, [&](int64_t first, const float(&at)[n]) {
            float of_y[n];
            access::read(row.x + first, of_y);
            for (int k = 0; k < n; k++) sum += of_y[k] * at[k];
        });
        sum = sum_of(row.team, sum, scratch);
    } else if (function == CUDA_SLICE_GRAD) {
        norm = p.max[r];
        sum = 1 / p.slice_sums[2 * r];
        label -= p.first;
    }
    for (int64_t first = (int64_t)row.team.own * n; first < p.width;
         first += (int64_t)row.team.count * n) {
        float x[n] = {}, d[n] = {};
        if (function != CUDA_NLL_GRAD && function != CUDA_ONE_HOT) access::read(row.x + first, x);
        if (function == CUDA_LOG_SOFTMAX_GRAD || function == CUDA_SOFTMAX_GRAD)
            access::read(dy.x + first, d);
        for (int k = 0; k < n; k++) {
            float hit = first + k == label ? 1 : 0;
            if (function == CUDA_LOG_SOFTMAX) x[k] -= norm;
            if (function == CUDA_SOFTMAX) x[k] = first + k < visible ? expf(x[k] - norm) * sum : 0;
            if (function == CUDA_SOFTMAX_GRAD) x[k] *= d[k] - sum;
            if (function == CUDA_LOG_SOFTMAX_GRAD) x[k] = d[k] - expf(x[k]) * sum;
            if (function == CUDA_CROSS_ENTROPY_GRAD) x[k] = seed * (expf(x[k] - norm) - hit);
            if (function == CUDA_SLICE_GRAD) x[k] = seed * (expf(x[k] - norm) * sum - hit);
            if (function == CUDA_NLL_GRAD) x[k] = -seed * hit;
            if (function == CUDA_ONE_HOT) x[k] = hit;
            if (function == CUDA_SOFT_NLL_GRAD) x[k] = -seed * smoothed(p, x[k]);
            if (seed == 0) x[k] = 0;
        }
        access::write(y + first, x);
    }
}

template <int function>
constexpr bool makes_rows =
    is_softmax<function> || function == CUDA_CROSS_ENTROPY_GRAD || function == CUDA_NLL_GRAD ||
    function == CUDA_ONE_HOT || function == CUDA_SOFT_NLL_GRAD || function == CUDA_SLICE_GRAD;

template <int function, typename T, typename access> GPU_KERNEL class_rows(cuda_class_rows p) {
    GPU_SHARED(float, scratch, MAX_WARPS);
    GPU_SHARED(double, indices, MAX_WARPS);
    int threads = team_of(p).count;
    for (int64_t r = gpu_thread() / threads; r < p.rows; r += gpu_threads() / threads) {
        if constexpr (makes_rows<function>)
            map_row<function, T, access>(p, r, scratch);
        else
            reduce_row<function, T, access>(p, r, scratch, indices);
    }
}

template <int function, typename T>
tri_status launch_as(cuda_stream *stream, T *, const cuda_class_rows *p, char *why) {
    uintptr_t addresses = (uintptr_t)p->x | (uintptr_t)p->dy | (uintptr_t)p->y;
    bool in_warps = p->width <= WARP_WIDTH;
    int threads = in_warps || p->width > 1024 ? GPU_BLOCK : GPU_BLOCK / 2;
    int64_t blocks = gpu_blocks(stream, p->rows, in_warps ? GPU_BLOCK / GPU_WARP : 1);
    return gpu_with_access<gpu_lot<T>::count>(p->width, addresses, [=](auto access) {
        return gpu_launch(stream, class_rows<function, T, decltype(access)>, blocks, threads, *p,
                          why);
    });
}

template <int function>
tri_status launch(cuda_stream *stream, const cuda_class_rows *p, char *why) {
    return gpu_with_real(p->type,
                         [=](auto *type) { return launch_as<function>(stream, type, p, why); });
}

} // namespace

extern "C" tri_status cuda_launch_class_rows(cuda_stream *stream, const cuda_class_rows *p,
                                             char *why) {
    if (p->rows == 0) return TRI_OK;
    switch (p->function) {
    case CUDA_SOFTMAX:
        return launch<CUDA_SOFTMAX>(stream, p, why);
    case CUDA_SOFTMAX_GRAD:
        return launch<CUDA_SOFTMAX_GRAD>(stream, p, why);
    case CUDA_LOG_SOFTMAX:
        return launch<CUDA_LOG_SOFTMAX>(stream, p, why);
    case CUDA_LOG_SOFTMAX_GRAD:
        return launch<CUDA_LOG_SOFTMAX_GRAD>(stream, p, why);
    case CUDA_CROSS_ENTROPY:
        return launch<CUDA_CROSS_ENTROPY>(stream, p, why);
    case CUDA_CROSS_ENTROPY_GRAD:
        return launch<CUDA_CROSS_ENTROPY_GRAD>(stream, p, why);
    case CUDA_NLL:
        return launch<CUDA_NLL>(stream, p, why);
    case CUDA_NLL_GRAD:
        return launch<CUDA_NLL_GRAD>(stream, p, why);
    case CUDA_ONE_HOT:
        return launch<CUDA_ONE_HOT>(stream, p, why);
    case CUDA_SOFT_NLL:
        return launch<CUDA_SOFT_NLL>(stream, p, why);
    case CUDA_SOFT_NLL_GRAD:
        return launch<CUDA_SOFT_NLL_GRAD>(stream, p, why);
    case CUDA_TOP_CLASS:
        return launch<CUDA_TOP_CLASS>(stream, p, why);
    case CUDA_ACCURACY:
        return launch<CUDA_ACCURACY>(stream, p, why);
    case CUDA_ROW_MAX:
        return launch<CUDA_ROW_MAX>(stream, p, why);
    case CUDA_SLICE_SOFTMAX:
        return launch<CUDA_SLICE_SOFTMAX>(stream, p, why);
    case CUDA_SLICE_GRAD:
        return launch<CUDA_SLICE_GRAD>(stream, p, why);
    case CUDA_SLICE_ARGMAX:
        return launch<CUDA_SLICE_ARGMAX>(stream, p, why);
    }
    return TRI_UNSUPPORTED;
}
