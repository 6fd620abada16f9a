// `trireme bench data`: measures how fast a loader supplies micro-batches, so that a user sees
// whether training waits for data.
#include "data/bench.h"

#include "base/os.h"
#include "data/loader.h"

tri_status tri_data_bench(const tri_dataset *dataset, const tri_sampler *sampler, int64_t workers,
                          double seconds, tri_data_rate *out) {
    *out = (tri_data_rate){.workers = workers};
    tri_loader *loader;
    TRI_TRY(
        tri_loader_create(dataset, sampler, &(tri_loader_options){.workers = workers}, &loader));
    double began = tri_os_seconds(), spent = 0;
    int64_t samples = 0;
    tri_status status = TRI_OK;
    while (spent < seconds && status == TRI_OK) {
        const tri_data_batch *batch;
        status = tri_loader_next(loader, &batch);
        if (status != TRI_OK) break;
        samples += batch->micro.size;
        out->batches++;
        tri_loader_release(loader, batch);
        spent = tri_os_seconds() - began;
    }
    tri_loader_destroy(loader);
    TRI_TRY(status);
    size_t sample_bytes = 0;
    for (int i = 0; i < tri_dataset_field_count(dataset); i++)
        sample_bytes += tri_dataset_field(dataset, i)->size_bytes;
    out->samples_per_s = (double)samples / spent;
    out->bytes_per_s = out->samples_per_s * (double)sample_bytes;
    out->time_us = spent / (double)out->batches * 1e6;
    return TRI_OK;
}
