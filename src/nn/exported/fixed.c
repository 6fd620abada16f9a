// Networks that were exported with a fixed batch: its size stands in the file wherever the network
// has asked for it. Where a micro-batch has another size, what is known to be the batch is
// replaced; where that is not certain, the network is refused.
#include "nn/exported/build.h"

int64_t nn_exported_other_batch(const nn_exported *n, const tri_graph *graph) {
    const tri_pt2 *file = &n->file;
    int64_t fixed = 0;
    for (int i = 0; i < file->input_count; i++) {
        const tri_pt2_port *port = &file->inputs[i];
        if (port->role != TRI_PT2_INPUT || port->argument.kind != TRI_PT2_VALUE) continue;
        const tri_pt2_value *v = &file->values[port->argument.number];
        if (v->rank == 0) continue;
        if (v->sizes[0] < 1 || (fixed && v->sizes[0] != fixed)) return 0;
        fixed = v->sizes[0];
    }
    return fixed == tri_graph_samples(graph) ? 0 : fixed;
}

int64_t exported_fixed_batch(const exported_build *b) {
    return nn_exported_other_batch(b->network, b->graph);
}

// The file's sizes of argument 0; NULL: it is no tensor of `rank` axes.
static const int64_t *file_sizes(const exported_call *c, int rank) {
    const tri_pt2_argument *a = &c->arguments[0];
    const tri_pt2_value *v =
        a->kind == TRI_PT2_VALUE ? &c->build->network->file.values[a->number] : NULL;
    return v && v->is_tensor && v->rank == rank ? v->sizes : NULL;
}

int exported_batch_axis(exported_call *c, const exported_value *x) {
    int rank = exported_rank(c->build, x);
    int64_t fixed = exported_fixed_batch(c->build), samples = tri_graph_samples(c->build->graph);
    const int64_t *sizes = fixed ? file_sizes(c, rank) : NULL;
    for (int i = 0; sizes && i < rank; i++) {
        int64_t size = exported_size(c->build, x, i);
        if (size != sizes[i]) return size * fixed == sizes[i] * samples ? i : -1;
    }
    return -1;
}

static int64_t product(const int64_t *sizes, int first, int end) {
    int64_t count = 1;
    for (int i = first; i < end; i++) count *= sizes[i];
    return count;
}

void exported_refit(exported_call *c, const exported_value *x, int64_t *sizes, int rank) {
    int axis = exported_batch_axis(c, x), open = -1, found = -1, exact = -1, some = 0, exacts = 0;
    int64_t fixed = exported_fixed_batch(c->build), samples = tri_graph_samples(c->build->graph);
    if (axis < 0) return;
    const int64_t *old = file_sizes(c, exported_rank(c->build, x));
    int64_t all = product(old, 0, exported_rank(c->build, x)), known = 1;
    for (int i = 0; i < rank; i++) {
        if (sizes[i] < 0)
            open = i;
        else
            known *= sizes[i];
    }
    if (open >= 0 && known > 0) sizes[open] = all / known;
    // The samples lie in that axis of x, perhaps with others before and behind them: of all that is
    // possible, one axis of their size counts first. Behind other axes, samples come before heads.
    int64_t first = product(old, 0, axis), parts = old[axis] / fixed;
    for (int i = rank - 1; i >= 0; i--) {
        int64_t begin = product(sizes, 0, i), behind = begin * sizes[i];
        bool holds = false;
        for (int64_t rows = first; rows <= first * parts; rows += first)
            holds = holds || (first * parts % rows == 0 && begin > 0 && rows % begin == 0 &&
                              behind % (rows * fixed) == 0);
        if (!holds) continue;
        if (sizes[i] == fixed) exact = i, exacts++;
        found = i;
        some++;
    }
    if (exacts == 1) found = exact;
    if (exacts == 1 || (exacts == 0 && axis > 0 && some > 0)) some = 1;
    if (some == 1)
        sizes[found] = sizes[found] / fixed * samples;
    else
        exported_fail(c, "it is not certain which size is that of the batch");
}

void exported_refit_repeats(exported_call *c, const exported_value *x, int64_t *sizes, int rank,
                            bool is_times) {
    int64_t fixed = exported_fixed_batch(c->build), samples = tri_graph_samples(c->build->graph);
    int more = rank - exported_rank(c->build, x), batch = exported_batch_axis(c, x);
    if (batch >= 0 && !is_times && sizes[batch + more] == fixed) sizes[batch + more] = samples;
    for (int i = 0; fixed > 1 && batch < 0 && i < rank; i++) {
        int64_t own = i < more ? 1 : exported_size(c->build, x, i - more);
        if (own != 1 || sizes[i] != fixed) continue;
        sizes[i] = samples;
        return;
    }
}

void exported_refit_repeated(exported_build *b, exported_value *values, int count, int axis) {
    int64_t fixed = exported_fixed_batch(b), samples = tri_graph_samples(b->graph);
    bool has_samples[EXPORTED_MAX_RANK] = {false}; // by axes, counted from the last
    for (int k = 0; fixed && k < count; k++) {
        int rank = exported_rank(b, &values[k]);
        for (int i = 0; values[k].kind == EXPORTED_GRAPH && i < rank; i++)
            has_samples[rank - 1 - i] |= exported_size(b, &values[k], i) == samples;
    }
    for (int k = 0; fixed && k < count; k++) {
        exported_host *x = &values[k].host;
        for (int i = 0; values[k].kind == EXPORTED_HOST && i < x->rank; i++)
            if (i != axis && x->strides[i] == 0 && x->sizes[i] == fixed && fixed != 1 &&
                has_samples[x->rank - 1 - i])
                x->sizes[i] = samples;
    }
}

exported_value exported_refit_index(exported_call *c, exported_value index, const exported_value *x,
                                    int axis) {
    int64_t samples = tri_graph_samples(c->build->graph), fixed = exported_fixed_batch(c->build);
    if (!fixed || index.kind != EXPORTED_HOST || exported_batch_axis(c, x) != axis ||
        exported_count(c->build, &index) != fixed)
        return index;
    int64_t at[EXPORTED_MAX_RANK] = {0}, next = 0, sizes[EXPORTED_MAX_RANK];
    do
        if (exported_host_at(&index.host, at) != (double)next++) return index;
    while (exported_host_next(&index.host, at));
    double *data;
    for (int i = 0; i < index.host.rank; i++)
        sizes[i] = index.host.sizes[i] == fixed ? samples : index.host.sizes[i];
    exported_value y = exported_host_new(c->build, sizes, index.host.rank, index.dtype, &data);
    for (int64_t i = 0; y.kind == EXPORTED_HOST && i < samples; i++) data[i] = (double)i;
    y.is_sized = true;
    return y;
}
