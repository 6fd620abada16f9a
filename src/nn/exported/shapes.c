// Operations that change shapes, types and places of elements.
#include "nn/exported/build.h"

#include <math.h>
#include <string.h>
#include <trireme/more_functions.h>
#include <trireme/more_layers.h>
#include <trireme/nn.h>

static void same(exported_call *c) { exported_give(c, exported_operand(c, 0)); }

static void reshape(exported_call *c) {
    int64_t sizes[EXPORTED_MAX_RANK];
    exported_value x = exported_operand(c, 0);
    int rank = exported_ints(c, 1, sizes, EXPORTED_MAX_RANK);
    exported_refit(c, &x, sizes, rank);
    exported_give(c, exported_reshape(c->build, x, sizes, rank));
}

static void reshape_as(exported_call *c) {
    int64_t sizes[EXPORTED_MAX_RANK];
    exported_value other = exported_operand(c, 1);
    int rank = exported_rank(c->build, &other);
    for (int i = 0; i < rank; i++) sizes[i] = exported_size(c->build, &other, i);
    exported_give(c, exported_reshape(c->build, exported_operand(c, 0), sizes, rank));
}

static void flatten(exported_call *c) {
    exported_build *b = c->build;
    exported_value x = exported_operand(c, 0);
    int64_t sizes[EXPORTED_MAX_RANK] = {1};
    int rank = exported_rank(b, &x), first = exported_axis(c, exported_int(c, 1), rank),
        last = exported_axis(c, exported_int(c, 2), rank), count = 0;
    for (int i = 0; i < rank; i++) {
        if (i > first && i <= last)
            sizes[count - 1] *= exported_size(b, &x, i);
        else
            sizes[count++] = exported_size(b, &x, i);
    }
    exported_give(c, exported_reshape(b, x, sizes, rank ? count : 1));
}

static void unflatten(exported_call *c) {
    exported_build *b = c->build;
    exported_value x = exported_operand(c, 0);
    int64_t sizes[2 * EXPORTED_MAX_RANK], own[EXPORTED_MAX_RANK];
    int rank = exported_rank(b, &x), axis = exported_axis(c, exported_int(c, 1), rank),
        parts = exported_ints(c, 2, own, EXPORTED_MAX_RANK), count = 0;
    for (int i = 0; i < rank; i++) {
        if (i != axis) sizes[count++] = exported_size(b, &x, i);
        for (int k = 0; i == axis && k < parts; k++) sizes[count++] = own[k];
    }
    exported_give(c, exported_reshape(b, x, sizes, count));
}

static void unsqueeze(exported_call *c) {
    exported_build *b = c->build;
    exported_value x = exported_operand(c, 0);
    int64_t sizes[EXPORTED_MAX_RANK + 1];
    int rank = exported_rank(b, &x), axis = exported_axis(c, exported_int(c, 1), rank + 1);
    for (int i = 0; i <= rank; i++) sizes[i] = i == axis ? 1 : exported_size(b, &x, i - (i > axis));
    exported_give(c, exported_reshape(b, x, sizes, rank + 1));
}

static void squeeze(exported_call *c) {
    exported_build *b = c->build;
    exported_value x = exported_operand(c, 0);
    int64_t sizes[EXPORTED_MAX_RANK], axes[EXPORTED_MAX_RANK];
    int rank = exported_rank(b, &x), count = 0,
        listed = exported_ints(c, 1, axes, EXPORTED_MAX_RANK);
    for (int i = 0; i < rank; i++) {
        bool goes = exported_is_none(c, 1);
        for (int k = 0; k < listed; k++) goes = goes || exported_axis(c, axes[k], rank) == i;
        if (!goes || exported_size(b, &x, i) != 1) sizes[count++] = exported_size(b, &x, i);
    }
    exported_give(c, exported_reshape(b, x, sizes, count));
}

static void transpose(exported_call *c) {
    exported_value x = exported_operand(c, 0);
    int rank = exported_rank(c->build, &x), order[EXPORTED_MAX_RANK];
    int one = exported_axis(c, exported_int(c, 1), rank),
        two = exported_axis(c, exported_int(c, 2), rank);
    for (int i = 0; i < rank; i++) order[i] = i == one ? two : i == two ? one : i;
    exported_give(c, exported_permute(c->build, x, order));
}

static void transpose_matrix(exported_call *c) {
    exported_value x = exported_operand(c, 0);
    exported_give(c, exported_rank(c->build, &x) < 2
                         ? x
                         : exported_permute(c->build, x, (const int[]){1, 0}));
}

static void permute(exported_call *c) {
    exported_value x = exported_operand(c, 0);
    int64_t axes[EXPORTED_MAX_RANK];
    int rank = exported_rank(c->build, &x), order[EXPORTED_MAX_RANK];
    if (exported_ints(c, 1, axes, EXPORTED_MAX_RANK) != rank) {
        exported_fail(c, "the order has another number of axes than the tensor");
        return;
    }
    for (int i = 0; i < rank; i++) order[i] = exported_axis(c, axes[i], rank);
    exported_give(c, exported_permute(c->build, x, order));
}

static void movedim(exported_call *c) {
    exported_value x = exported_operand(c, 0);
    int64_t from[EXPORTED_MAX_RANK], to[EXPORTED_MAX_RANK];
    int rank = exported_rank(c->build, &x), order[EXPORTED_MAX_RANK], next = 0,
        count = exported_ints(c, 1, from, EXPORTED_MAX_RANK);
    bool is_moved[EXPORTED_MAX_RANK] = {false};
    if (exported_ints(c, 2, to, EXPORTED_MAX_RANK) != count) return;
    for (int i = 0; i < rank; i++) order[i] = -1;
    for (int k = 0; k < count; k++) {
        int source = exported_axis(c, from[k], rank);
        order[exported_axis(c, to[k], rank)] = source;
        is_moved[source] = true;
    }
    for (int i = 0; i < rank; i++) {
        if (order[i] >= 0) continue;
        while (is_moved[next]) next++;
        order[i] = next++;
    }
    exported_give(c, exported_permute(c->build, x, order));
}

static void transpose_last(exported_call *c) {
    exported_value x = exported_operand(c, 0);
    int rank = exported_rank(c->build, &x), order[EXPORTED_MAX_RANK];
    for (int i = 0; i < rank; i++) order[i] = i < rank - 2 ? i : 2 * rank - 3 - i;
    exported_give(c, rank < 2 ? x : exported_permute(c->build, x, order));
}

static void expand(exported_call *c) {
    int64_t sizes[EXPORTED_MAX_RANK];
    int rank = exported_ints(c, 1, sizes, EXPORTED_MAX_RANK);
    exported_value x = exported_operand(c, 0);
    if (x.kind == EXPORTED_GRAPH) exported_refit_repeats(c, &x, sizes, rank, false);
    exported_give(c, exported_expand(c->build, x, sizes, rank));
}

static void expand_as(exported_call *c) {
    int64_t sizes[EXPORTED_MAX_RANK];
    exported_value other = exported_operand(c, 1);
    int rank = exported_rank(c->build, &other);
    for (int i = 0; i < rank; i++) sizes[i] = exported_size(c->build, &other, i);
    exported_give(c, exported_expand(c->build, exported_operand(c, 0), sizes, rank));
}

static void slice(exported_call *c) {
    exported_value x = exported_operand(c, 0);
    int axis = exported_axis(c, exported_int(c, 1), exported_rank(c->build, &x));
    int64_t first = exported_is_none(c, 2) ? 0 : exported_int(c, 2),
            end = exported_is_none(c, 3) ? INT64_MAX : exported_int(c, 3);
    // A fixed batch as the end.
    if (exported_batch_axis(c, &x) == axis && end == exported_fixed_batch(c->build))
        end = INT64_MAX;
    exported_give(c, exported_slice(c->build, x, axis, first, end, exported_int(c, 4)));
}

static void narrow(exported_call *c) {
    exported_value x = exported_operand(c, 0);
    int axis = exported_axis(c, exported_int(c, 1), exported_rank(c->build, &x));
    int64_t first = exported_int(c, 2);
    exported_give(c, exported_slice(c->build, x, axis, first, first + exported_int(c, 3), 1));
}

// Element `index` along an axis, which goes.
static exported_value select_one(exported_build *b, exported_value x, int axis, int64_t index) {
    int64_t sizes[EXPORTED_MAX_RANK];
    int rank = exported_rank(b, &x), count = 0;
    if (index < 0) index += exported_size(b, &x, axis);
    x = exported_slice(b, x, axis, index, index + 1, 1);
    for (int i = 0; i < rank; i++)
        if (i != axis) sizes[count++] = exported_size(b, &x, i);
    return exported_reshape(b, x, sizes, count);
}

static void select_index(exported_call *c) {
    exported_value x = exported_operand(c, 0);
    int axis = exported_axis(c, exported_int(c, 1), exported_rank(c->build, &x));
    exported_give(c, select_one(c->build, x, axis, exported_int(c, 2)));
}

// Gives parts along an axis: each `size` elements, the last one the rest.
static void give_parts(exported_call *c, exported_value x, int axis, int64_t size) {
    int64_t total = exported_size(c->build, &x, axis), first = 0;
    if (size < 1) {
        exported_fail(c, "a part has no elements");
        return;
    }
    for (int k = 0; first < total; k++, first += size)
        exported_give_at(c, k,
                         exported_slice(c->build, x, axis, first,
                                        first + size < total ? first + size : total, 1));
}

static void split(exported_call *c) {
    exported_value x = exported_operand(c, 0);
    int axis = exported_axis(c, exported_int(c, 2), exported_rank(c->build, &x));
    give_parts(c, x, axis, exported_int(c, 1));
}

static void chunk(exported_call *c) {
    exported_value x = exported_operand(c, 0);
    int axis = exported_axis(c, exported_int(c, 2), exported_rank(c->build, &x));
    int64_t parts = exported_int(c, 1);
    give_parts(c, x, axis, parts < 1 ? 0 : (exported_size(c->build, &x, axis) + parts - 1) / parts);
}

static void split_sizes(exported_call *c) {
    exported_value x = exported_operand(c, 0);
    int64_t *sizes = TRI_NEW_ARRAY(c->build->graph->arena, int64_t, EXPORTED_MAX_PARTS), first = 0;
    int axis = exported_axis(c, exported_int(c, 2), exported_rank(c->build, &x)),
        count = exported_ints(c, 1, sizes, EXPORTED_MAX_PARTS);
    for (int k = 0; k < count; first += sizes[k++])
        exported_give_at(c, k, exported_slice(c->build, x, axis, first, first + sizes[k], 1));
}

static void unbind(exported_call *c) {
    exported_value x = exported_operand(c, 0);
    int axis = exported_axis(c, exported_int(c, 1), exported_rank(c->build, &x));
    for (int k = 0; k < exported_size(c->build, &x, axis); k++)
        exported_give_at(c, k, select_one(c->build, x, axis, k));
}

// Converts to the type that the result has in the file. Between types of floating point there is
// nothing to do: trainer.precision decides how they are computed.
static void to_type(exported_call *c) {
    exported_value x = exported_operand(c, 0);
    int type = exported_result_type(c, 0);
    bool was_float = exported_type_is_float(x.dtype), is_float = exported_type_is_float(type);
    if (type == x.dtype || (was_float && is_float) || type == 0) {
        exported_give(c, x);
        return;
    }
    if (type == TRI_PT2_BOOLEAN) {
        exported_give(c, exported_map_text(c->build, "x != 0", NULL, &x, 1, type));
    } else if (x.kind == EXPORTED_GRAPH) {
        tri_value value = tri_cast(c->build->graph, x.graph, is_float ? TRI_F32 : TRI_I64);
        exported_give_graph(c, value);
    } else {
        exported_give(c, exported_map_text(c->build, "x", NULL, &x, 1, type));
    }
}

// One axis after the other, from the last, as the list has their numbers: before and after.
static void pad(exported_call *c) {
    typedef tri_value pad_function(tri_graph *, tri_value, int, int64_t, int64_t);
    static const struct {
        const char *name;
        pad_function *function;
    } modes[] = {{"reflect", tri_pad_reflect},
                 {"replicate", tri_pad_replicate},
                 {"circular", tri_pad_circular}};
    exported_build *b = c->build;
    exported_value x = exported_operand(c, 0);
    int64_t pads[2 * EXPORTED_MAX_RANK];
    int rank = exported_rank(b, &x), count = exported_ints(c, 1, pads, 2 * EXPORTED_MAX_RANK);
    double value = exported_is_none(c, 3) ? 0 : exported_real(c, 3);
    tri_value y = exported_as_graph(b, &x);
    const char *mode = exported_text(c, 2);
    pad_function *function = NULL;
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (!strcmp(modes[i].name, mode)) function = modes[i].function;
    if (!function && *mode && strcmp(mode, "constant") != 0)
        exported_fail(c, "the padding mode %s is not supported", mode);
    for (int k = 0; k + 1 < count && k / 2 < rank; k += 2) {
        int axis = rank - 1 - k / 2;
        if (pads[k] == 0 && pads[k + 1] == 0) continue;
        y = function     ? function(b->graph, y, axis, pads[k], pads[k + 1])
            : value == 0 ? tri_pad(b->graph, y, axis, pads[k], pads[k + 1])
                         : tri_pad_constant(b->graph, y, axis, pads[k], pads[k + 1], value);
    }
    exported_give_graph(c, y);
}

static void roll(exported_call *c) {
    exported_build *b = c->build;
    exported_value x = exported_operand(c, 0);
    int64_t shifts[EXPORTED_MAX_RANK], axes[EXPORTED_MAX_RANK];
    int count = exported_ints(c, 1, shifts, EXPORTED_MAX_RANK),
        listed = exported_ints(c, 2, axes, EXPORTED_MAX_RANK);
    int64_t sizes[EXPORTED_MAX_RANK];
    int rank = exported_rank(b, &x);
    for (int i = 0; i < rank; i++) sizes[i] = exported_size(b, &x, i);
    bool is_flat = listed == 0 && count == 1; // all elements, one behind the other
    if (is_flat) x = exported_reshape(b, x, (const int64_t[]){-1}, 1), axes[0] = 0;
    for (int k = 0; k < count; k++) {
        int axis = exported_axis(c, axes[k], exported_rank(b, &x));
        int64_t size = exported_size(b, &x, axis), by = size ? shifts[k] % size : 0;
        if (by < 0) by += size;
        if (by == 0) continue;
        exported_value parts[] = {exported_slice(b, x, axis, size - by, size, 1),
                                  exported_slice(b, x, axis, 0, size - by, 1)};
        x = exported_concat(b, parts, 2, axis);
    }
    exported_give(c, is_flat ? exported_reshape(b, x, sizes, rank) : x);
}

static exported_value flipped(exported_build *b, exported_value x, int axis) {
    if (x.kind != EXPORTED_HOST)
        return exported_of_graph(tri_flip(b->graph, exported_as_graph(b, &x), axis), x.dtype);
    if (x.host.sizes[axis] > 0) x.host.data += (x.host.sizes[axis] - 1) * x.host.strides[axis];
    x.host.strides[axis] = -x.host.strides[axis];
    return x;
}

static void flip(exported_call *c) {
    exported_value x = exported_operand(c, 0);
    int64_t axes[EXPORTED_MAX_RANK];
    int count = exported_ints(c, 1, axes, EXPORTED_MAX_RANK), rank = exported_rank(c->build, &x);
    for (int k = 0; k < count; k++) x = flipped(c->build, x, exported_axis(c, axes[k], rank));
    exported_give(c, x);
}

// A quarter turn, `k` times over, from the first of two axes to the second.
static void rot90(exported_call *c) {
    exported_value x = exported_operand(c, 0);
    int64_t axes[2];
    int rank = exported_rank(c->build, &x), order[EXPORTED_MAX_RANK];
    if (exported_ints(c, 2, axes, 2) != 2) axes[0] = 0, axes[1] = 1;
    int one = exported_axis(c, axes[0], rank), two = exported_axis(c, axes[1], rank);
    for (int i = 0; i < rank; i++) order[i] = i == one ? two : i == two ? one : i;
    for (int64_t k = (exported_int(c, 1) % 4 + 4) % 4; k > 0; k--)
        x = exported_permute(c->build, flipped(c->build, x, two), order);
    exported_give(c, x);
}

static void repeat(exported_call *c) {
    exported_build *b = c->build;
    exported_value x = exported_operand(c, 0);
    int64_t times[EXPORTED_MAX_RANK], sizes[EXPORTED_MAX_RANK];
    int rank = exported_rank(b, &x), count = exported_ints(c, 1, times, EXPORTED_MAX_RANK);
    // A tile may have fewer numbers than there are axes: those of the last ones.
    for (int more = rank - count; more > 0; more--, count++) {
        for (int i = count; i > 0; i--) times[i] = times[i - 1];
        times[0] = 1;
    }
    exported_refit_repeats(c, &x, times, count, true);
    for (int i = 0; i < count; i++)
        sizes[i] = i < count - rank ? 1 : exported_size(b, &x, i - (count - rank));
    x = exported_reshape(b, x, sizes, count);
    for (int i = 0; i < count; i++) {
        if (times[i] == 1) continue;
        if (exported_size(b, &x, i) == 1) {
            for (int k = 0; k < count; k++) sizes[k] = k == i ? times[i] : -1;
            x = exported_expand(b, x, sizes, count);
        } else if (x.kind == EXPORTED_HOST && times[i] <= EXPORTED_MAX_PARTS) {
            exported_value *all = TRI_NEW_ARRAY(b->graph->arena, exported_value, times[i]);
            for (int64_t k = 0; k < times[i]; k++) all[k] = x;
            x = exported_concat(b, all, (int)times[i], i);
        } else {
            x = exported_of_graph(tri_repeat(b->graph, exported_as_graph(b, &x), i, times[i]),
                                  x.dtype);
        }
    }
    exported_give(c, x);
}

static void repeat_interleave(exported_call *c) {
    exported_build *b = c->build;
    exported_value x = exported_operand(c, 0);
    bool is_flat = exported_is_none(c, 2);
    if (is_flat) x = exported_reshape(b, x, (const int64_t[]){-1}, 1);
    int axis = is_flat ? 0 : exported_axis(c, exported_int(c, 2), exported_rank(b, &x));
    exported_give_graph(
        c, tri_repeat_interleave(b->graph, exported_as_graph(b, &x), axis, exported_int(c, 1)));
}

// Each element of an axis as often as a list of constants says.
static void repeat_by_list(exported_call *c) {
    exported_build *b = c->build;
    exported_value x = exported_operand(c, 0), times = exported_operand(c, 1);
    bool is_flat = exported_is_none(c, 2);
    if (is_flat) x = exported_reshape(b, x, (const int64_t[]){-1}, 1);
    int axis = is_flat ? 0 : exported_axis(c, exported_int(c, 2), exported_rank(b, &x)), count = 0;
    exported_value *parts = TRI_NEW_ARRAY(b->graph->arena, exported_value, EXPORTED_MAX_PARTS);
    int64_t sizes[EXPORTED_MAX_RANK], size = exported_size(b, &x, axis);
    if (times.kind != EXPORTED_HOST || times.host.rank != 1 || times.host.sizes[0] != size ||
        size > EXPORTED_MAX_PARTS) {
        exported_fail(c, "how often elements are repeated has to be a constant for each of them");
        return;
    }
    for (int i = 0; i < exported_rank(b, &x); i++) sizes[i] = -1;
    for (int64_t k = 0; k < size; k++) {
        sizes[axis] = (int64_t)exported_host_at(&times.host, &k);
        if (sizes[axis] < 1) continue;
        parts[count++] = exported_expand(b, exported_slice(b, x, axis, k, k + 1, 1), sizes,
                                         exported_rank(b, &x));
    }
    if (count == 0)
        exported_fail(c, "nothing is left of an axis whose elements are repeated 0 times");
    else
        exported_give(c, exported_concat(b, parts, count, axis));
}

static void broadcast(exported_call *c) {
    exported_build *b = c->build;
    exported_value values[TRI_FORMULA_INPUTS];
    int64_t sizes[EXPORTED_MAX_RANK];
    int count = exported_list(c, 0, values, TRI_FORMULA_INPUTS), rank = 0;
    for (int k = 0; k < count; k++)
        if (exported_rank(b, &values[k]) > rank) rank = exported_rank(b, &values[k]);
    for (int i = 0; i < rank; i++) {
        sizes[i] = 1;
        for (int k = 0; k < count; k++) {
            int axis = i - (rank - exported_rank(b, &values[k]));
            if (axis >= 0 && exported_size(b, &values[k], axis) != 1)
                sizes[i] = exported_size(b, &values[k], axis);
        }
    }
    for (int k = 0; k < count; k++)
        exported_give_at(c, k, exported_expand(b, values[k], sizes, rank));
}

// The bytes in another type. There are none to look at.
static void view_type(exported_call *c) {
    exported_value x = exported_operand(c, 0);
    if (x.dtype != exported_result_type(c, 0)) exported_fail(c, "bytes have no other type here");
    exported_give(c, x);
}

static void pixel_shuffle(exported_call *c) {
    exported_give_graph(
        c, tri_pixel_shuffle(c->build->graph, exported_tensor(c, 0), exported_int(c, 1)));
}

static void channel_shuffle(exported_call *c) {
    exported_give_graph(
        c, tri_channel_shuffle(c->build->graph, exported_tensor(c, 0), exported_int(c, 1)));
}

static void pixel_unshuffle(exported_call *c) {
    exported_give_graph(
        c, tri_pixel_unshuffle(c->build->graph, exported_tensor(c, 0), exported_int(c, 1)));
}

static void unfold(exported_call *c) {
    exported_give_graph(c,
                        tri_unfold(c->build->graph, exported_tensor(c, 0), exported_axis_of(c, 1),
                                   exported_int(c, 2), exported_int(c, 3)));
}

// A size is known when a graph is built.
static void size_of(exported_call *c) {
    exported_value x = exported_operand(c, 0);
    int axis = exported_axis(c, exported_int(c, 1), exported_rank(c->build, &x));
    exported_give(c, exported_of_number((double)exported_size(c->build, &x, axis), TRI_PT2_LONG));
}

static void count_of(exported_call *c) {
    exported_value x = exported_operand(c, 0);
    exported_give(c, exported_of_number((double)exported_count(c->build, &x), TRI_PT2_LONG));
}

static void item(exported_call *c) {
    exported_give(c, exported_of_number(exported_real(c, 0), exported_result_type(c, 0)));
}

const exported_row exported_shape_rows[] = {
    ROW("aten.view", "self size", reshape),
    ROW("aten.view.dtype", "self dtype", view_type),
    ROW("aten.reshape", "self shape", reshape),
    ROW("aten._unsafe_view", "self size", reshape),
    ROW("aten.reshape_as", "self other", reshape_as),
    ROW("aten.view_as", "self other", reshape_as),
    ROW("aten.flatten", "self start_dim=0 end_dim=-1", flatten),
    ROW("aten.ravel", "self start_dim=0 end_dim=-1", flatten),
    ROW("aten.unflatten", "self dim sizes", unflatten),
    ROW("aten.unsqueeze", "self dim", unsqueeze),
    ROW("aten.squeeze", "self dim=None", squeeze),
    ROW("aten.transpose", "self dim0 dim1", transpose),
    ROW("aten.swapaxes", "self axis0 axis1", transpose),
    ROW("aten.mT", "self", transpose_last),
    ROW("aten.t", "self", transpose_matrix),
    ROW("aten.numpy_T", "self", transpose_matrix),
    ROW("aten.permute", "self dims", permute),
    ROW("aten.movedim", "self source destination", movedim),
    ROW("aten.expand", "self size implicit=False", expand),
    ROW("aten.expand_as", "self other", expand_as),
    ROW("aten.broadcast_to", "self size", expand),
    ROW("aten.slice", "self dim=0 start=None end=None step=1", slice),
    ROW("aten.narrow", "self dim start length", narrow),
    ROW("aten.select", "self dim index", select_index),
    ROW("aten.split", "self split_size dim=0", split),
    ROW("aten.split.sizes", "self split_size dim=0", split_sizes),
    ROW("aten.split_with_sizes", "self split_sizes dim=0", split_sizes),
    ROW("aten.chunk", "self chunks dim=0", chunk),
    ROW("aten.unbind", "self dim=0", unbind),
    ROW("aten.contiguous", "self", same),
    ROW("aten.clone", "self", same),
    ROW("aten.alias", "self", same),
    ROW("aten.lift_fresh_copy", "self", same),
    ROW("aten.to", "self", to_type),
    ROW("aten._to_copy", "self", to_type),
    ROW("aten.type_as", "self other", to_type),
    ROW("aten.float", "self", to_type),
    ROW("aten.pad", "self pad mode='constant' value=None", pad),
    ROW("aten.constant_pad_nd", "self pad mode='constant' value=0", pad),
    ROW("aten.roll", "self shifts dims=[]", roll),
    ROW("aten.flip", "self dims", flip),
    ROW("aten.fliplr", "self dims=1", flip),
    ROW("aten.flipud", "self dims=0", flip),
    ROW("aten.rot90", "self k=1 dims=[]", rot90),
    ROW("aten.repeat", "self repeats", repeat),
    ROW("aten.tile", "self dims", repeat),
    ROW("aten.repeat_interleave.self_int", "self repeats dim=None", repeat_interleave),
    ROW("aten.repeat_interleave.self_Tensor", "self repeats dim=None", repeat_by_list),
    ROW("aten.broadcast_tensors", "tensors", broadcast),
    ROW("aten.channel_shuffle", "self groups", channel_shuffle),
    ROW("aten.pixel_shuffle", "self upscale_factor", pixel_shuffle),
    ROW("aten.pixel_unshuffle", "self downscale_factor", pixel_unshuffle),
    ROW("aten.unfold", "self dimension size step", unfold),
    ROW("aten.sym_size.int", "self dim", size_of),
    ROW("aten.sym_numel", "self", count_of),
    ROW("aten.item", "self", item),
    ROW("aten._local_scalar_dense", "self", item),
    {NULL, NULL, NULL, NULL, NULL, false},
};
