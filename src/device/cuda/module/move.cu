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

// The offset, in elements, at which the element with these indices lies in one of the two layouts.
GPU_DEVICE int64_t offset_of(const cuda_reorder_side &side, const int64_t *index) {
    int64_t offset = 0;
    for (int i = 0; i < side.terms; i++) {
        const cuda_reorder_term &t = side.term[i];
        offset += index[t.axis] / t.divisor % t.modulus * t.stride;
    }
    return offset;
}

// Copies elements one by one from one layout to another.
template <typename T> GPU_KERNEL reorder(cuda_reorder p) {
    for (int64_t i = gpu_thread(); i < p.count; i += gpu_threads()) {
        int64_t index[TRI_MAX_RANK], rest = i;
        for (int a = p.shape.rank - 1; a >= 0; a--) {
            index[a] = rest % p.shape.dims[a];
            rest /= p.shape.dims[a];
        }
        ((T *)p.to)[offset_of(p.to_side, index)] =
            ((const T *)p.from)[offset_of(p.from_side, index)];
    }
}

// Transposes matrices, a tile of 32 x 32 elements at a time. The tile passes through shared memory,
// so that neighbouring threads read and write neighbouring elements.
enum { TILE = 32, TILE_ROWS = GPU_BLOCK / TILE };

template <typename T> GPU_KERNEL transpose(cuda_reorder p) {
    GPU_SHARED(T, tile, TILE * (TILE + 1)); // 1 extra, so that columns lie in different banks
    int64_t across = (p.columns + TILE - 1) / TILE, down = (p.rows + TILE - 1) / TILE;
    int64_t matrix = p.rows * p.columns;
    int own = (int)threadIdx.x % TILE, first = (int)threadIdx.x / TILE;
    for (int64_t item = blockIdx.x; item < p.count / matrix * across * down; item += gridDim.x) {
        const T *from = (const T *)p.from + item / (across * down) * matrix;
        T *to = (T *)p.to + item / (across * down) * matrix;
        int64_t row = item / across % down * TILE, column = item % across * TILE;
        for (int i = first; i < TILE && row + i < p.rows && column + own < p.columns;
             i += TILE_ROWS)
            tile[i * (TILE + 1) + own] = from[(row + i) * p.columns + column + own];
        gpu_barrier();
        for (int i = first; i < TILE && column + i < p.columns && row + own < p.rows;
             i += TILE_ROWS)
            to[(column + i) * p.rows + row + own] = tile[own * (TILE + 1) + i];
        gpu_barrier();
    }
}

template <typename T>
tri_status launch_reorder(cuda_stream *stream, const cuda_reorder *p, char *why) {
    if (p->rows > 0) {
        int64_t tiles = (p->rows + TILE - 1) / TILE * ((p->columns + TILE - 1) / TILE);
        int64_t blocks = p->count / (p->rows * p->columns) * tiles;
        return gpu_launch(stream, transpose<T>, gpu_blocks(stream, blocks, 1), GPU_BLOCK, *p, why);
    }
    return gpu_launch(stream, reorder<T>, gpu_blocks(stream, p->count, GPU_BLOCK), GPU_BLOCK, *p,
                      why);
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
