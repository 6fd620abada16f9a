// Opens the communicator that carries a device's data. There are several ways; the first row of the
// table `ways` that can serve the request is taken.
#include "comm/data.h"

#include "comm/generic/generic.h"
#include "comm/nccl/nccl.h"
#include "comm/staged/staged.h"

#include <stdio.h>
#include <unistd.h>

typedef tri_comm_data_request data_request;

typedef struct data_way {
    bool (*serves)(const data_request *request);
    tri_status (*open)(const data_request *request, tri_comm **out);
} data_way;

static bool can_all(const data_request *q) {
    return !(q->wanted & ~q->control->backend->abilities(q->control));
}

static bool is_host(const data_request *q) { return q->device->backend->host_memory; }
static bool is_control(const data_request *q) { return is_host(q) && can_all(q); }
static bool always(const data_request *q) { return true; }

static tri_status copy_control(const data_request *q, tri_comm **out) {
    if (q->control->size == 1) return tri_comm_self_open(out);
    return q->control->backend->split(q->control, 0, q->control->rank, out);
}

static tri_status open_control(const data_request *q, tri_comm **out) {
    *out = q->control;
    return TRI_OK;
}

// Opens a communicator that takes the host's memory and has all wanted abilities. It is a copy of
// the control communicator, so that ranks may start operations on the two in different orders. If
// the copy lacks some ability, comm/generic adds it. For that it needs a second copy, over which it
// compares what the ranks call.
static tri_status open_host(const data_request *q, tri_comm **out) {
    tri_comm *inner, *compares;
    *out = NULL;
    TRI_TRY(copy_control(q, &inner));
    if (can_all(q)) {
        *out = inner;
        return TRI_OK;
    }
    tri_status status = copy_control(q, &compares);
    if (status == TRI_OK) return tri_comm_generic_open(inner, compares, q->wanted, out);
    tri_comm_close(inner);
    return status;
}

static tri_status open_staged(const data_request *q, tri_comm **out) {
    tri_comm *inner;
    TRI_TRY(open_host(q, &inner));
    return tri_comm_staged_open(inner, q->device, out);
}

// Whether open_nccl is tried: NCCL has to serve this kind of device, and there has to be more than
// one rank. This rank alone cannot tell whether the others have NCCL too. So open_nccl asks all
// ranks, and goes through the host's memory if one of them lacks NCCL.
static bool may_use_nccl(const data_request *q) {
    return tri_comm_nccl_takes(q->device->backend) && q->control->size > 1;
}

// Finds whether all ranks have NCCL, and a version that can split communicators. If the recipe
// demands NCCL and a rank lacks it, every rank fails with the message of the first such rank.
static tri_status find_nccl(const data_request *q, bool *all, bool *all_split) {
    bool splits;
    tri_status mine = tri_comm_nccl_find(q->device, &splits);
    int32_t both[2] = {mine == TRI_OK, mine == TRI_OK && splits};
    char host[64] = "", why[TRI_MESSAGE_MAX_BYTES];
    if (q->choice == TRI_COMM_NCCL) {
        (void)gethostname(host, sizeof host - 1);
        snprintf(why, sizeof why, "%s", mine == TRI_OK ? "" : tri_error_message());
        if (mine != TRI_OK) mine = TRI_FAIL(mine, "comm.backend: nccl: host %s: %s", host, why);
        TRI_TRY(tri_comm_agree(q->control, mine, "which ranks have NCCL"));
    }
    TRI_TRY(tri_comm_run(q->control, &(tri_comm_op){.kind = TRI_COMM_ALL_REDUCE,
                                                    .reduction = TRI_REDUCE_MIN,
                                                    .dtype = TRI_I32,
                                                    .count = 2,
                                                    .send = both,
                                                    .recv = both,
                                                    .label = "which ranks have NCCL"}));
    *all = both[0];
    *all_split = both[1];
    return TRI_OK;
}

static tri_status open_nccl(const data_request *q, tri_comm **out) {
    tri_comm *compares;
    bool all, all_split;
    *out = NULL;
    TRI_TRY(find_nccl(q, &all, &all_split));
    if (!all) return open_staged(q, out);
    TRI_TRY(copy_control(q, &compares));
    tri_comm_nccl_config config = {.device = q->device,
                                   .use = q->use,
                                   .rank_order = q->wanted & TRI_COMM_RANK_ORDER,
                                   .splits = all_split,
                                   .parent = q->parent,
                                   .colour = q->colour};
    return tri_comm_nccl_open(compares, &config, out);
}

static const data_way ways[] = {
    {is_control, open_control},
    {is_host, open_host},
    {may_use_nccl, open_nccl},
    {always, open_staged},
};

tri_status tri_comm_data_open(const tri_comm_data_request *request, tri_comm **out) {
    *out = NULL;
    if (!request->control) return TRI_OK;
    const data_way *way = ways;
    while (!way->serves(request)) way++;
    TRI_TRY(way->open(request, out));
    tri_comm_link(request->control, *out);
    return TRI_OK;
}

bool tri_comm_data_is_nccl(const tri_device_backend *device) { return tri_comm_nccl_takes(device); }

int64_t tri_comm_data_bytes(int ranks, tri_comm_use use, int links, int64_t *estimate) {
    return tri_comm_nccl_bytes(ranks, use, links, estimate);
}

tri_status tri_comm_data_check(tri_comm_choice choice, const tri_device_backend *device) {
    if (choice != TRI_COMM_NCCL || tri_comm_nccl_takes(device)) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT,
                    "comm.backend: nccl carries data between GPUs, and the device is %s: set "
                    "--device cuda, or comm.backend: auto",
                    device->name);
}

void tri_comm_data_stop(tri_comm *data) {
    if (data && data->backend->stop) data->backend->stop(data);
}

void tri_comm_data_close(tri_comm *data, tri_comm *control) {
    if (data != control) tri_comm_close(data);
}
