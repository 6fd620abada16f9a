// Checks the devices: whether they exist and are alike, how much memory they have left, and how
// fast each computes. One slow device slows the whole run.
#include "preflight/judge.h"
#include "preflight/state.h"

#include "base/quantity.h"
#include "device/bench.h"
#include "device/choose.h"
#include "plan/program.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <trireme/nn.h>

static tri_status measure_devices(preflight *p) {
    preflight_device mine = {0};
    tri_status status =
        tri_device_open_of_rank(p->request->devices, p->request->device, p->identity.local_rank,
                                p->identity.launcher_local_rank, &p->device);
    if (status == TRI_OK) {
        tri_device_memory memory = tri_device_memory_of(&p->device->description, p->device, 1);
        tri_device_name(&p->device->description, mine.name);
        mine.threads = p->device->description.threads;
        mine.has_memory = memory.is_own;
        mine.free_bytes = memory.bytes;
        if (p->device->backend->free_memory) // without the reserve that a plan leaves free
            mine.free_bytes = p->device->backend->free_memory(p->device);
    } else {
        p->device = NULL;
        snprintf(mine.failure, sizeof mine.failure, "%s", tri_error_message());
    }
    p->devices = TRI_NEW_ARRAY(p->arena, preflight_device, p->identity.size);
    return preflight_gather(p, &mine, p->devices, sizeof mine, "devices");
}

// Describes the devices of a host's ranks for the table: "cpu, 4 threads each", "2 x cuda, 79 GB
// free each".
static const char *describe_host(const preflight *p, int host) {
    const preflight_device *d = &p->devices[p->first[host]];
    int64_t least = d->free_bytes;
    for (int r = 0; r < p->identity.size; r++)
        if (p->host_of[r] == host && p->devices[r].free_bytes < least)
            least = p->devices[r].free_bytes;
    const char *many = p->local_ranks[host] > 1 ? " each" : "";
    if (d->has_memory)
        return tri_arena_printf(p->arena, "%d x %s, %s free%s", p->local_ranks[host], d->name,
                                tri_bytes_text((double)least), many);
    return tri_arena_printf(p->arena, "%s, %s%s", d->name, tri_counted(d->threads, "thread"), many);
}

// Names the devices with memory of their own that have far less of it free than the median device,
// for example because another program uses them. The run would fail there for lack of memory.
static void name_full_devices(preflight *p, preflight_row *row) {
    int ranks = p->identity.size;
    double *bytes = TRI_NEW_ARRAY(p->arena, double, ranks);
    bool *full = TRI_NEW_ARRAY(p->arena, bool, ranks);
    preflight_list list = {.arena = p->arena};
    for (int r = 0; r < ranks; r++) bytes[r] = (double)p->devices[r].free_bytes;
    preflight_find_slow(p->arena, bytes, ranks, p->request->limits.memory_fraction, full);
    for (int r = 0; r < ranks; r++)
        if (full[r] && p->devices[r].has_memory)
            preflight_list_add(&list, "%s has %s", preflight_rank_text(p, r),
                               tri_bytes_text(bytes[r]));
    if (list.count)
        preflight_fail(p, row,
                       "%s free on its device, and the median is %s; look for programs "
                       "that use it",
                       preflight_list_text(&list),
                       tri_bytes_text(preflight_median(p->arena, bytes, ranks)));
}

static void judge_devices(preflight *p, preflight_row *row) {
    preflight_list missing = {.arena = p->arena}, other = {.arena = p->arena};
    row->values = tri_tree_list(p->arena);
    for (int r = 0; r < p->identity.size; r++) {
        const preflight_device *d = &p->devices[r];
        tri_tree *entry = tri_tree_map(p->arena);
        tri_tree_put(p->arena, entry, "rank", tri_tree_int(p->arena, r));
        tri_tree_put(p->arena, entry, "device", tri_tree_string(p->arena, d->name));
        tri_tree_put(p->arena, entry, "threads", tri_tree_int(p->arena, d->threads));
        tri_tree_put(p->arena, entry, "free_bytes", tri_tree_int(p->arena, d->free_bytes));
        tri_tree_append(p->arena, row->values, entry);
        if (d->failure[0])
            preflight_list_add(&missing, "%s: %s", preflight_rank_text(p, r), d->failure);
        else if (!p->devices[0].failure[0] && strcmp(d->name, p->devices[0].name) != 0)
            preflight_list_add(&other, "%s has %s", preflight_rank_text(p, r), d->name);
    }
    if (missing.count) preflight_fail(p, row, "%s", preflight_list_text(&missing));
    if (other.count)
        preflight_fail(p, row, "%s, and rank 0 has %s", preflight_list_text(&other),
                       p->devices[0].name);
    if (row->verdict == PREFLIGHT_GO) name_full_devices(p, row);
    const char **texts = TRI_NEW_ARRAY(p->arena, const char *, p->host_count);
    for (int h = 0; h < p->host_count; h++)
        texts[h] = p->devices[p->first[h]].failure[0] ? "none" : describe_host(p, h);
    row->summary = preflight_by_host(p, texts);
}

const preflight_check preflight_devices = {
    .name = "devices", .attempts = 1, .measure = measure_devices, .judge = judge_devices};

enum { PRODUCT_SIZE = 512, PRODUCT_ROWS = 256, PRODUCT_MAX_ROWS = 1 << 16 };
#define PRODUCT_BUDGET_S 0.05
#define PRODUCT_LEAST_S 2e-4 // if a product takes less, most of that is the start of its kernel

static void build_product(tri_graph *g, const tri_batch *batch) {
    tri_block(g, "product");
    tri_loss(
        g, tri_mse_loss(g, tri_linear(g, "product", batch->inputs, PRODUCT_SIZE), batch->targets));
}

static const tri_task product = {
    .name = "product",
    .build = build_product,
    .fields = {{"inputs", TRI_F32, {.rank = 1, .dims = {PRODUCT_SIZE}}},
               {"targets", TRI_F32, {.rank = 1, .dims = {PRODUCT_SIZE}}}}};

// Times the products of one linear layer, forward and backward, each several times. *seconds: the
// fastest times of all products, added up; *flops_per_s: all operations divided by *seconds.
static tri_status time_product(preflight *p, int64_t rows, double *flops_per_s, double *seconds) {
    tri_model_request request = {.task = &product, .fields = product.fields, .field_count = 2};
    request.options = (tri_graph_options){.training = true, .seed = 1};
    const tri_bench_peak peak = {.flops_per_s = 1, .bf16_flops_per_s = 1, .bytes_per_s = 1};
    tri_program *program;
    double flops = 0;
    *seconds = 0;
    TRI_TRY(tri_program_create(p->arena, &p->device->description,
                               &(tri_program_request){.model = &request, .batch = rows}, &program));
    int nodes = program->graph->node_count;
    tri_bench_row *timed = TRI_NEW_ARRAY(p->arena, tri_bench_row, nodes + 1);
    tri_status status = tri_bench_graph(p->device, program->graph, &peak, PRODUCT_BUDGET_S, timed);
    for (int i = 0; i < nodes && status == TRI_OK; i++) {
        flops += timed[i].flops;
        *seconds += timed[i].fastest;
    }
    tri_program_destroy(program);
    *flops_per_s = *seconds > 0 ? flops / *seconds : 0;
    return status;
}

static tri_status measure_compute(preflight *p) {
    preflight_device mine = p->devices[p->identity.rank];
    tri_status status = p->device ? TRI_OK : TRI_NOT_FOUND;
    double rate = 0, seconds = 0;
    // Makes the ranks of a host compute at the same time, as they do in training.
    TRI_TRY(tri_comm_barrier(p->comm, "arithmetic"));
    for (int64_t rows = PRODUCT_ROWS;
         status == TRI_OK && seconds < PRODUCT_LEAST_S && rows <= PRODUCT_MAX_ROWS; rows *= 8) {
        status = time_product(p, rows, &rate, &seconds);
        if (status != TRI_OK)
            snprintf(mine.failure, sizeof mine.failure, "%s", tri_error_message());
        if (rate > mine.flops_per_s) mine.flops_per_s = rate;
    }
    return preflight_gather(p, &mine, p->devices, sizeof mine, "arithmetic");
}

static void judge_compute(preflight *p, preflight_row *row) {
    int ranks = p->identity.size;
    double *rates = TRI_NEW_ARRAY(p->arena, double, ranks);
    bool *slow = TRI_NEW_ARRAY(p->arena, bool, ranks);
    preflight_list list = {.arena = p->arena}, failed = {.arena = p->arena};
    row->values = tri_tree_list(p->arena);
    for (int r = 0; r < ranks; r++) {
        rates[r] = p->devices[r].flops_per_s;
        tri_tree_append(p->arena, row->values, tri_tree_double(p->arena, rates[r]));
        if (p->devices[r].failure[0])
            preflight_list_add(&failed, "%s: %s", preflight_rank_text(p, r), p->devices[r].failure);
    }
    double median = preflight_median(p->arena, rates, ranks), least = rates[0], most = rates[0];
    for (int r = 0; r < ranks; r++) {
        least = fmin(least, rates[r]);
        most = fmax(most, rates[r]);
    }
    row->summary = least >= 0.9 * most
                       ? tri_arena_printf(p->arena, "%.3g GFLOP/s%s", 1e-9 * median,
                                          ranks > 1 ? " on each rank" : "")
                       : tri_arena_printf(p->arena, "%.3g to %.3g GFLOP/s on a rank", 1e-9 * least,
                                          1e-9 * most);
    preflight_find_slow(p->arena, rates, ranks, p->request->limits.compute_fraction, slow);
    for (int r = 0; r < ranks; r++)
        if (slow[r] && !p->devices[r].failure[0])
            preflight_list_add(&list, "%s reaches %.3g", preflight_rank_text(p, r),
                               1e-9 * rates[r]);
    if (failed.count) preflight_fail(p, row, "%s", preflight_list_text(&failed));
    if (list.count)
        preflight_fail(p, row,
                       "%s GFLOP/s, and the median is %.3g; look for other programs there, its "
                       "clock rate and its binding",
                       preflight_list_text(&list), 1e-9 * median);
}

const preflight_check preflight_compute = {
    .name = "compute", .attempts = 3, .measure = measure_compute, .judge = judge_compute};
