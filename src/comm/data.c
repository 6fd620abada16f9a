// Chooses which communicators carry a device's data: of a table of ways, the first that can serve.
#include "comm/data.h"

#include "comm/generic/generic.h"
#include "comm/nccl/nccl.h"
#include "comm/staged/staged.h"

typedef struct data_request {
    tri_comm *control;
    tri_device *device;
    unsigned wanted;
} data_request;

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

// Opens a communicator that takes the host's memory and has all abilities that are wanted. What the
// control communicator lacks is added by layers.
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

// Whether NCCL can be used. One rank needs no library; and unless all ranks have the library, all
// go through the host, because the ranks must use the same.
static bool may_use_nccl(const data_request *q) {
    return tri_comm_nccl_takes(q->device) && q->control->size > 1;
}

static tri_status open_nccl(const data_request *q, tri_comm **out) {
    tri_comm *compares, *messages;
    int32_t all = tri_comm_nccl_is_there(q->device);
    *out = NULL;
    TRI_TRY(tri_comm_run(q->control, &(tri_comm_op){.kind = TRI_COMM_ALL_REDUCE,
                                                    .reduction = TRI_REDUCE_MIN,
                                                    .dtype = TRI_I32,
                                                    .count = 1,
                                                    .send = &all,
                                                    .recv = &all,
                                                    .label = "which ranks have NCCL"}));
    TRI_TRY(open_staged(q, &messages));
    if (!all) {
        *out = messages;
        return TRI_OK;
    }
    tri_status status = copy_control(q, &compares);
    if (status != TRI_OK) {
        tri_comm_close(messages);
        return status;
    }
    bool rank_order = q->wanted & TRI_COMM_RANK_ORDER;
    return tri_comm_nccl_open(compares, messages, q->device, rank_order, out);
}

static const data_way ways[] = {
    {is_control, open_control},
    {is_host, open_host},
    {may_use_nccl, open_nccl},
    {always, open_staged},
};

tri_status tri_comm_data_open(tri_comm *control, tri_device *device, unsigned wanted,
                              tri_comm **out) {
    *out = NULL;
    if (!control) return TRI_OK;
    data_request request = {control, device, wanted};
    const data_way *way = ways;
    while (!way->serves(&request)) way++;
    TRI_TRY(way->open(&request, out));
    tri_comm_link(control, *out);
    return TRI_OK;
}

void tri_comm_data_stop(tri_comm *data) {
    tri_comm_nccl_stop(data);
    tri_comm_staged_stop(data);
}

void tri_comm_data_close(tri_comm *data, tri_comm *control) {
    if (data != control) tri_comm_close(data);
}
