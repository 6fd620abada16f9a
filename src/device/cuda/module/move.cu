// Copies between two orders of elements. Each kernel reads and writes every element once: 1 to 16
// bytes (element_bytes). Where both orders have the same last axis, neighbouring threads read and
// write neighbouring elements, so that they use whole lines of memory.
#include "device/cuda/module/pack.h"

namespace {

// Copies elements one by one. `I` is the type of an element's number: 32 bits where these are
// enough, because division of 64 bits is slow.
template <typename T, typename I> GPU_KERNEL move(cuda_move p) {
    I count = 1;
    for (int a = 0; a < p.axes; a++) count *= (I)p.axis[a].size;
    for (int64_t i = gpu_thread(); i < (int64_t)count; i += gpu_threads()) {
        I rest = (I)i;
        int64_t from = 0, to = 0;
        for (int a = p.axes - 1; a >= 0; a--) {
            I size = (I)p.axis[a].size, index = rest % size;
            rest /= size;
            from += (int64_t)index * p.axis[a].from_stride;
            to += (int64_t)index * p.axis[a].to_stride;
        }
        ((T *)p.to)[to] = ((const T *)p.from)[from];
    }
}

// Joins axes that are neighbours in both orders, and drops those of one element: fewer axes need
// fewer divisions.
void merge(cuda_move *p) {
    int used = 0;
    for (int a = 0; a < p->axes; a++) {
        cuda_move_axis next = p->axis[a], *last = used ? &p->axis[used - 1] : nullptr;
        if (next.size == 1) continue;
        if (last && last->from_stride == next.size * next.from_stride &&
            last->to_stride == next.size * next.to_stride) {
            next.size *= last->size;
            *last = next;
        } else {
            p->axis[used++] = next;
        }
    }
    if (used == 0) p->axis[used++] = {1, 1, 1};
    p->axes = used;
}

// Joins every two neighbouring elements into one of twice the size, so that there are half as many
// to copy. False: this is not possible, because the larger size would be above 16 bytes, the last
// axis is not contiguous in both orders, its size is odd, or an address or a stride is no multiple
// of the larger size.
bool widen(cuda_move *p) {
    cuda_move_axis *last = &p->axis[p->axes - 1];
    int wide = p->element_bytes * 2;
    if (wide > 16 || last->from_stride != 1 || last->to_stride != 1 || last->size % 2) return false;
    if (((uintptr_t)p->from | (uintptr_t)p->to) % (uintptr_t)wide) return false;
    for (int a = 0; a + 1 < p->axes; a++)
        if (p->axis[a].from_stride % 2 || p->axis[a].to_stride % 2) return false;
    for (int a = 0; a + 1 < p->axes; a++) {
        p->axis[a].from_stride /= 2;
        p->axis[a].to_stride /= 2;
    }
    last->size /= 2;
    p->element_bytes = wide;
    return true;
}

template <typename T> tri_status launch(cuda_stream *stream, const cuda_move *p, char *why) {
    int64_t count = 1;
    for (int a = 0; a < p->axes; a++) count *= p->axis[a].size;
    int64_t blocks = gpu_blocks(stream, count, GPU_BLOCK);
    if (count == 0) return TRI_OK;
    return count <= UINT32_MAX ? gpu_launch(stream, move<T, uint32_t>, blocks, GPU_BLOCK, *p, why)
                               : gpu_launch(stream, move<T, uint64_t>, blocks, GPU_BLOCK, *p, why);
}

// Returns the part of an element's offset in one of the two layouts that its index on one axis
// gives. The terms of later axes have been taken: *terms is how many are left, and is lowered by
// those of this axis.
template <typename I>
GPU_DEVICE int64_t offset_on(const cuda_reorder_side &side, int axis, I index, int *terms) {
    int64_t offset = 0;
    for (; *terms > 0 && side.term[*terms - 1].axis == axis; --*terms) {
        const cuda_reorder_term &t = side.term[*terms - 1];
        I rest = t.divisor == 1 ? index : index / (I)t.divisor;
        if (t.modulus != INT64_MAX) rest %= (I)t.modulus;
        offset += (int64_t)rest * t.stride;
    }
    return offset;
}

// Copies elements one by one from one layout to another. `I` is the type of an element's number, as
// in move. The offsets are computed one axis after the other, so that a thread keeps one index at a
// time, in a register: an array of indices would lie in memory.
template <typename T, typename I> GPU_KERNEL reorder(cuda_reorder p) {
    for (int64_t i = gpu_thread(); i < p.count; i += gpu_threads()) {
        I rest = (I)i;
        int from_terms = p.from_side.terms, to_terms = p.to_side.terms;
        int64_t from = 0, to = 0;
        for (int a = p.shape.rank - 1; a >= 0; a--) {
            I size = (I)p.shape.dims[a], index = rest % size;
            rest /= size;
            from += offset_on(p.from_side, a, index, &from_terms);
            to += offset_on(p.to_side, a, index, &to_terms);
        }
        ((T *)p.to)[to] = ((const T *)p.from)[from];
    }
}

// Transposes matrices, a square tile at a time. The tile passes through shared memory, so that
// neighbouring threads read and write neighbouring elements. A thread reads and writes n
// neighbouring elements at a time, which are a word of type W. A tile has n · LINE rows of LINE
// words. The loops over a tile are unrolled, so that a thread has all its reads under way at once.
enum { LINE = 32, LINES = GPU_BLOCK / LINE };

// How many tiles cover all matrices.
template <int n> int64_t tiles_of(const cuda_reorder *p) {
    int64_t across = (p->columns + n * LINE - 1) / (n * LINE);
    int64_t down = (p->rows + n * LINE - 1) / (n * LINE);
    return p->count / (p->rows * p->columns) * across * down;
}

// Joins the elements number `number` (0 or 1) of n words to one word. A word that is one element
// (n is 1) stays as it is.
template <typename W> GPU_DEVICE W word_of(const W (&words)[1], int) { return words[0]; }
GPU_DEVICE uint32_t word_of(const uint32_t (&words)[2], int number) {
    return number == 0 ? (words[0] & 0xffff) | words[1] << 16
                       : words[0] >> 16 | (words[1] & 0xffff0000);
}

// Row r of a tile is line r % n * LINE + r / n of the shared memory. So a thread, which writes
// columns of n rows, reads lines that are LINE apart, and its neighbours read the lines after them.
// These lie in different banks, because a line has 1 word more than it needs.
template <typename W, int n> GPU_KERNEL transpose(cuda_reorder p) {
    constexpr int tile = n * LINE;
    GPU_SHARED(W, words, tile * (LINE + 1));
    uint32_t across = (uint32_t)((p.columns + tile - 1) / tile);
    uint32_t down = (uint32_t)((p.rows + tile - 1) / tile);
    int64_t items = p.count / (p.rows * p.columns) * across * down; // fewer than 2^32
    int64_t from_line = p.columns / n, to_line = p.rows / n;        // in words
    int own = (int)threadIdx.x % LINE, first = (int)threadIdx.x / LINE;
    for (int64_t i = blockIdx.x; i < items; i += gridDim.x) {
        uint32_t item = (uint32_t)i, band = item / across;
        int64_t column = (int64_t)(item % across) * tile, row = (int64_t)(band % down) * tile;
        int64_t matrix = (int64_t)(band / down) * p.rows * from_line;
        // How many rows and columns of the matrix there are from the tile's first on.
        int64_t rows = p.rows - row, columns = p.columns - column;
        const W *from = (const W *)p.from + matrix + row * from_line + column / n + own;
        W *to = (W *)p.to + matrix + column * to_line + row / n + own;
        W in[tile / LINES] = {};
        GPU_UNROLL for (int k = 0; k < tile / LINES; k++) {
            int r = first + k * LINES;
            if (r < rows && own * n < columns) in[k] = from[r * from_line];
        }
        GPU_UNROLL for (int k = 0; k < tile / LINES; k++) {
            int r = first + k * LINES;
            words[(r % n * LINE + r / n) * (LINE + 1) + own] = in[k];
        }
        gpu_barrier();
        GPU_UNROLL for (int k = 0; k < LINE / LINES; k++) {
            int c = first + k * LINES; // the number of a word in a line; it has n columns
            W part[n];
            GPU_UNROLL for (int r = 0; r < n; r++) part[r] =
                words[(r * LINE + own) * (LINE + 1) + c];
            if (c * n < columns && own * n < rows)
                GPU_UNROLL for (int j = 0; j < n; j++) to[(c * n + j) * to_line] = word_of(part, j);
        }
        gpu_barrier();
    }
}

template <typename W, int n>
tri_status launch_transpose(cuda_stream *stream, const cuda_reorder *p, char *why) {
    return gpu_launch(stream, transpose<W, n>, gpu_blocks(stream, tiles_of<n>(p), 1), GPU_BLOCK, *p,
                      why);
}

template <typename T>
tri_status launch_reorder(cuda_stream *stream, const cuda_reorder *p, char *why) {
    if (p->rows > 0 && tiles_of<1>(p) <= UINT32_MAX) {
        bool in_pairs = p->rows % 2 == 0 && p->columns % 2 == 0 &&
                        ((uintptr_t)p->from | (uintptr_t)p->to) % 4 == 0;
        return sizeof(T) == 2 && in_pairs ? launch_transpose<uint32_t, 2>(stream, p, why)
                                          : launch_transpose<T, 1>(stream, p, why);
    }
    int64_t blocks = gpu_blocks(stream, p->count, GPU_BLOCK);
    return p->count <= UINT32_MAX
               ? gpu_launch(stream, reorder<T, uint32_t>, blocks, GPU_BLOCK, *p, why)
               : gpu_launch(stream, reorder<T, uint64_t>, blocks, GPU_BLOCK, *p, why);
}

} // namespace

extern "C" tri_status cuda_launch_move(cuda_stream *stream, const cuda_move *params, char *why) {
    cuda_move p = *params;
    merge(&p);
    while (widen(&p)) {
    }
    switch (p.element_bytes) {
    case 1:
        return launch<uint8_t>(stream, &p, why);
    case 2:
        return launch<uint16_t>(stream, &p, why);
    case 4:
        return launch<uint32_t>(stream, &p, why);
    case 8:
        return launch<uint64_t>(stream, &p, why);
    case 16:
        return launch<gpu_pack<uint64_t, 2>>(stream, &p, why);
    default:
        return TRI_UNSUPPORTED;
    }
}

extern "C" tri_status cuda_launch_reorder(cuda_stream *stream, const cuda_reorder *p, char *why) {
    if (p->count == 0) return TRI_OK;
    switch (p->element_bytes) {
    case 1:
        return launch_reorder<uint8_t>(stream, p, why);
    case 2:
        return launch_reorder<uint16_t>(stream, p, why);
    case 4:
        return launch_reorder<uint32_t>(stream, p, why);
    case 8:
        return launch_reorder<uint64_t>(stream, p, why);
    default:
        return TRI_UNSUPPORTED;
    }
}
