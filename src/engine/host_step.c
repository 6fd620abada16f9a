// The actions DOWNLOAD, HOST_STEP and UPLOAD: run the optimizer on the CPU of the device's host, in
// whose memory optimizer states and masters (parameters in F32) lie. It works unit by unit (the
// parameters of one layer or group of layers, or one tied parameter). The gradients of each unit
// are copied to the host as soon as they are complete, while the backward pass goes on. NORM then
// computes the gradients' norm over all ranks. After it the storage's thread (storage.c) updates
// one unit after the other; while it updates a unit, the parameters of the unit before are copied
// to the device:
//
//     compute   BACKWARD c  BACKWARD b  BACKWARD a  NORM
//     down               DOWNLOAD c  DOWNLOAD b  DOWNLOAD a
//     storage                                        HOST_STEP c  HOST_STEP b  HOST_STEP a
//     up                                                          UPLOAD c     UPLOAD b    UPLOAD a
//
// Read next: results.c, which brings the step's results to the host.
#include "engine/engine_internal.h"

tri_status engine_open_host(tri_engine *e) {
    const tri_device_backend *device = e->device->backend;
    void *scalars;
    if (!e->plan->offload.steps_on_host) return TRI_OK;
    TRI_TRY(device->host->open(&(tri_device_config){0}, &e->host.device));
    TRI_TRY(tri_queue_open(e->host.device, &e->host.queue));
    TRI_TRY(tri_queue_open(e->device, &e->host.down));
    TRI_TRY(tri_queue_open(e->device, &e->host.up));
    TRI_TRY(device->alloc_host(e->device, TRI_STEP_SCALAR_COUNT * sizeof(double), &scalars));
    e->host.scalars = scalars;
    return TRI_OK;
}

void engine_close_host(tri_engine *e) {
    engine_host *h = &e->host;
    tri_queue_close(h->up);
    tri_queue_close(h->down);
    engine_release_range_kernels(&h->casts);
    if (h->scalars) e->device->backend->free_host(e->device, h->scalars);
    tri_queue_close(h->queue);
    if (h->device) h->device->backend->close(h->device);
}

static void *on_host(const tri_engine *e, int unit, tri_bucket_kind bucket, int what) {
    return tri_storage_memory(e->storage) + engine_storage_offset(e, unit, bucket, what);
}

static float *numbers(const tri_engine *e, const engine_range_kernel *r, int what) {
    return (float *)on_host(e, r->unit, r->bucket, what) + r->first;
}

engine_args engine_host_step_args(const tri_engine *e, const engine_range_kernel *r) {
    engine_args args = {.in = {numbers(e, r, TRI_STATE_MASTERS),
                               numbers(e, r, ENGINE_HOST_GRADIENTS), e->host.scalars}};
    for (int i = 0; i < r->states; i++) args.in[3 + i] = numbers(e, r, i);
    if (r->averages) {
        args.in[1] = args.in[0];
        args.in[0] = numbers(e, r, e->optimizer.average);
    }
    return args;
}

engine_args engine_host_cast_args(const tri_engine *e, const engine_range_kernel *r) {
    return (engine_args){.in = {numbers(e, r, TRI_STATE_MASTERS)},
                         .out = {on_host(e, r->unit, r->bucket, ENGINE_HOST_HALF)}};
}

tri_status engine_send_scalars(tri_engine *e) {
    if (!e->host.device) return TRI_OK;
    return e->device->backend->copy_out(e->queue, e->host.scalars,
                                        e->memory.scalars[TRI_SCALAR_STEP],
                                        TRI_STEP_SCALAR_COUNT * sizeof(double));
}

tri_status engine_host_step(void *context, int unit) {
    tri_engine *e = context;
    TRI_TRY(engine_run_range_kernels(e, &e->step_kernels, unit));
    return engine_run_range_kernels(e, &e->host.casts, unit);
}

tri_status engine_download(tri_engine *e, const tri_action *a, tri_ticket *ticket) {
    for (int k = 0; k < TRI_BUCKET_COUNT; k++) {
        tri_bucket_kind bucket = (tri_bucket_kind)k;
        int64_t own = e->plan->flat.units[a->subject].buckets[bucket].own;
        if (own == 0 || !tri_bucket_has_gradients(bucket)) continue;
        TRI_TRY(e->device->backend->copy_out(
            e->host.down, on_host(e, a->subject, bucket, ENGINE_HOST_GRADIENTS),
            engine_own_gradients(e, a->subject, bucket), (size_t)own * sizeof(float)));
    }
    return e->device->backend->record(e->host.down, ticket);
}

tri_status engine_upload(tri_engine *e, const tri_action *a, tri_ticket *ticket) {
    for (int k = 0; k < TRI_BUCKET_COUNT; k++) {
        tri_bucket_kind bucket = (tri_bucket_kind)k;
        int64_t own = e->plan->flat.units[a->subject].buckets[bucket].own;
        bool is_half = tri_bucket_is_half(bucket);
        if (own == 0 || !tri_bucket_has_gradients(bucket)) continue;
        // Parameters that kernels read in F32 are not copied here if they are offloaded: FETCH
        // brings them to the device each time before they are gathered.
        if (!is_half && engine_is_offloaded(e, bucket, TRI_STATE_MASTERS)) continue;
        const void *from =
            on_host(e, a->subject, bucket, is_half ? ENGINE_HOST_HALF : TRI_STATE_MASTERS);
        TRI_TRY(e->device->backend->copy_in_later(
            e->host.up, engine_own(e, a->subject, bucket), from,
            (size_t)own * tri_dtype_bytes(engine_bucket_dtype(e, bucket))));
    }
    return e->device->backend->record(e->host.up, ticket);
}
