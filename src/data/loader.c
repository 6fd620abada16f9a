// The loader: worker threads fill a ring of buffers with the micro-batches of a replica (the ranks
// that together run one micro-batch), in order, and the training loop ("the caller") takes one
// after the other. A round is the number of a micro-batch among those of the replica in one step.
#include "data/loader.h"

#include "base/os.h"
#include "base/thread.h"
#include "data/mix.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN_BYTES = 64, HINT_AHEAD = 3 };

typedef enum buffer_state { BUFFER_FREE, BUFFER_FILLING, BUFFER_READY, BUFFER_HELD } buffer_state;

// Memory for one micro-batch. Micro-batches are numbered in the order of the run, from the loader's
// first one on. Number n uses buffer n mod buffer_count, so that threads need not agree on buffers.
typedef struct buffer {
    tri_data_batch batch;
    buffer_state state;
    int64_t *samples;
    tri_status status;
    char *message; // message of a failure; [TRI_MESSAGE_MAX_BYTES]
} buffer;

// The position of a micro-batch in the run.
typedef struct cursor {
    int64_t epoch, step, round;
} cursor;

struct tri_loader {
    const tri_dataset *dataset;
    tri_sampler sampler;
    tri_loader_options options;
    int64_t steps; // how many steps an epoch has
    bool is_empty; // the replica has no sample in any step

    pthread_mutex_t lock;
    pthread_cond_t ready, freed;
    int64_t free_count; // how many buffers are in the state BUFFER_FREE
    int64_t asleep;     // how many workers wait for a free buffer
    cursor next_cursor; // position of micro-batch number next_fill
    int64_t next_fill;  // number of the next micro-batch that a worker fills
    int64_t next_taken; // number of the next micro-batch that the caller gets
    bool stopping;

    int64_t buffer_count;
    buffer *buffers;
    char *memory; // one block for all buffers
    // By thread: what it reads with and, if samples are mixed, the fields of a micro-batch's sample
    // before the first one; if there are no threads, [0] is the caller's.
    tri_reader **readers;
    void *(*partners)[TRI_MAX_DATA_FIELDS];
    int64_t thread_count;
    pthread_t *threads;
    int64_t waited_ns; // how long the caller has waited for micro-batches so far
};

typedef struct worker {
    tri_loader *loader;
    int64_t index;
} worker;

static bool at_end(const tri_loader *loader, const cursor *at) {
    return loader->is_empty ||
           (loader->options.end_epoch > 0 && at->epoch >= loader->options.end_epoch);
}

static int64_t rounds_of(const tri_loader *loader, int64_t step) {
    const tri_sampler_options *options = &loader->sampler.options;
    return tri_micro_batch_rounds(tri_sampler_step_size(&loader->sampler, step), options->micro,
                                  options->replicas);
}

static tri_micro_batch micro_batch_at(const tri_loader *loader, const cursor *at) {
    const tri_sampler_options *options = &loader->sampler.options;
    return tri_micro_batch_of(tri_sampler_step_size(&loader->sampler, at->step), options->micro,
                              options->replicas, loader->options.replica, at->round);
}

static void advance(const tri_loader *loader, cursor *at) {
    if (++at->round < rounds_of(loader, at->step)) return;
    at->round = 0;
    if (++at->step < loader->steps) return;
    at->step = 0;
    at->epoch++;
}

// Leaves out the micro-batches of this replica that have no samples.
static void skip_empty(const tri_loader *loader, cursor *at) {
    while (!at_end(loader, at) && micro_batch_at(loader, at).size == 0) advance(loader, at);
}

static void field_places(const tri_loader *loader, const buffer *target, int64_t i, void **out) {
    for (int field = 0; field < tri_dataset_field_count(loader->dataset); field++)
        out[field] = (char *)target->batch.fields[field] +
                     (size_t)i * tri_dataset_field(loader->dataset, field)->size_bytes;
}

static const tri_mix_options *mix_of(const tri_loader *loader) {
    return loader->options.as_stored ? NULL : tri_dataset_mix(loader->dataset);
}

// Mixes the samples of a micro-batch, from the last one on, because each is the partner of the one
// behind it. The first one's partner is read once more: another micro-batch has it, or this one,
// where it is the last one and already mixed.
static tri_status mix_samples(const tri_loader *loader, buffer *target, int64_t thread,
                              const tri_permutation *order) {
    const tri_dataset *dataset = loader->dataset;
    const tri_mix_options *options = mix_of(loader);
    const tri_data_batch *batch = &target->batch;
    tri_mix_draw draw;
    if (!options) return TRI_OK;
    int images = tri_dataset_find(dataset, "images");
    if (!tri_mix_of_step(options, tri_dataset_seed(dataset), batch->epoch, batch->step,
                         &tri_dataset_field(dataset, images)->shape, &draw))
        return TRI_OK;
    int64_t size = tri_sampler_step_size(&loader->sampler, batch->step),
            before = (batch->micro.first + size - 1) % size;
    void *const *partner = loader->partners[thread];
    tri_status status = tri_reader_try(loader->readers[thread],
                                       tri_sampler_at(&loader->sampler, order, batch->step, before),
                                       batch->epoch, partner);
    if (status != TRI_OK && status != TRI_CORRUPT) return status;
    bool has_partner = status == TRI_OK;
    for (int64_t i = batch->micro.size - 1; i >= 0; i--) {
        void *own[TRI_MAX_DATA_FIELDS], *other[TRI_MAX_DATA_FIELDS];
        field_places(loader, target, i, own);
        if (i > 0) field_places(loader, target, i - 1, other);
        if (i > 0 || has_partner) tri_mix_sample(dataset, &draw, own, i > 0 ? other : partner);
    }
    return TRI_OK;
}

static tri_status read_samples(const tri_loader *loader, buffer *target, int64_t thread) {
    tri_data_batch *batch = &target->batch;
    tri_permutation order = tri_sampler_order(&loader->sampler, batch->epoch);
    for (int64_t i = 0; i < batch->micro.size; i++)
        target->samples[i] =
            tri_sampler_at(&loader->sampler, &order, batch->step, batch->micro.first + i);
    tri_reader *reader = loader->readers[thread];
    int64_t before = tri_reader_left_out(reader);
    for (int64_t i = 0; i < batch->micro.size; i++) {
        void *out[TRI_MAX_DATA_FIELDS];
        field_places(loader, target, i, out);
        if (i + HINT_AHEAD < batch->micro.size)
            tri_dataset_hint(loader->dataset, target->samples[i + HINT_AHEAD]);
        TRI_TRY(tri_reader_read(reader, target->samples[i], batch->epoch, out));
    }
    batch->left_out = tri_reader_left_out(reader) - before;
    return mix_samples(loader, target, thread, &order);
}

static void fill(const tri_loader *loader, buffer *target, cursor at, int64_t thread) {
    tri_data_batch *batch = &target->batch;
    batch->epoch = at.epoch;
    batch->step = at.step;
    batch->round = at.round;
    batch->micro = micro_batch_at(loader, &at);
    target->status = read_samples(loader, target, thread);
    if (target->status != TRI_OK)
        snprintf(target->message, TRI_MESSAGE_MAX_BYTES, "%s", tri_error_message());
}

// Returns the buffer of the next micro-batch, once it is free, and reserves buffer and micro-batch
// for the calling thread. *at becomes the micro-batch's position in the run. The caller holds the
// lock. NULL: there are no more micro-batches, or the loader is stopping.
static buffer *claim_next(tri_loader *loader, cursor *at) {
    for (;;) {
        if (loader->stopping || at_end(loader, &loader->next_cursor)) return NULL;
        buffer *target = &loader->buffers[loader->next_fill % loader->buffer_count];
        if (target->state == BUFFER_FREE) {
            target->state = BUFFER_FILLING;
            loader->free_count--;
            *at = loader->next_cursor;
            advance(loader, &loader->next_cursor);
            skip_empty(loader, &loader->next_cursor);
            loader->next_fill++;
            return target;
        }
        loader->asleep++;
        pthread_cond_wait(&loader->freed, &loader->lock);
        loader->asleep--;
    }
}

static void *work(void *argument) {
    worker self = *(worker *)argument;
    free(argument);
    tri_loader *loader = self.loader;
    pthread_setname_np(pthread_self(), "loader");
    cursor at;
    pthread_mutex_lock(&loader->lock);
    for (buffer *target; (target = claim_next(loader, &at));) {
        pthread_mutex_unlock(&loader->lock);
        fill(loader, target, at, self.index);
        pthread_mutex_lock(&loader->lock);
        target->state = BUFFER_READY;
        pthread_cond_signal(&loader->ready);
    }
    pthread_mutex_unlock(&loader->lock);
    return NULL;
}

tri_status tri_loader_next(tri_loader *loader, const tri_data_batch **out) {
    *out = NULL;
    int64_t began = tri_os.monotonic_ns();
    buffer *target = &loader->buffers[loader->next_taken % loader->buffer_count];
    pthread_mutex_lock(&loader->lock);
    TRI_ASSERT(target->state != BUFFER_HELD && "only the last `hold` batches may be held");
    if (loader->thread_count == 0 && target->state == BUFFER_FREE) {
        cursor at;
        if (claim_next(loader, &at)) {
            fill(loader, target, at, 0);
            target->state = BUFFER_READY;
        }
    }
    bool ended = loader->next_taken == loader->next_fill && at_end(loader, &loader->next_cursor);
    while (!ended && target->state != BUFFER_READY) {
        if (loader->asleep > 0) pthread_cond_signal(&loader->freed);
        pthread_cond_wait(&loader->ready, &loader->lock);
    }
    // A micro-batch that could not be read stays ready, so that every further call returns its
    // error too.
    if (!ended && target->status == TRI_OK) {
        target->state = BUFFER_HELD;
        loader->next_taken++;
        *out = &target->batch;
    }
    pthread_mutex_unlock(&loader->lock);
    loader->waited_ns += tri_os.monotonic_ns() - began;
    return ended || *out ? TRI_OK : TRI_FAIL(target->status, "%s", target->message);
}

// Makes the buffer of the batch free again. Wakes a sleeping worker only once half of the buffers
// are free, because waking a thread takes the caller longer than loading a small batch takes. The
// worker is woken after the lock was released, because it needs the lock.
void tri_loader_release(tri_loader *loader, const tri_data_batch *batch) {
    for (int64_t i = 0; i < loader->buffer_count; i++) {
        if (&loader->buffers[i].batch != batch) continue;
        TRI_ASSERT(loader->buffers[i].state == BUFFER_HELD);
        pthread_mutex_lock(&loader->lock);
        loader->buffers[i].state = BUFFER_FREE;
        loader->free_count++;
        bool wake = loader->asleep > 0 && 2 * loader->free_count >= loader->buffer_count;
        pthread_mutex_unlock(&loader->lock);
        if (wake) pthread_cond_signal(&loader->freed);
        return;
    }
    TRI_ASSERT(!"a batch that is not this loader's");
}

int64_t tri_loader_waited_ns(const tri_loader *loader) { return loader->waited_ns; }

static size_t aligned(size_t bytes) {
    return (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

static tri_status allocate_block(tri_loader *loader, size_t total) {
    const tri_loader_memory *from = &loader->options.memory;
    void *block = NULL;
    tri_status status = TRI_OK;
    if (from->alloc)
        status = from->alloc(from->context, total, &block);
    else
        block = aligned_alloc(ALIGN_BYTES, total);
    loader->memory = block;
    return status;
}

static void free_block(tri_loader *loader) {
    const tri_loader_memory *from = &loader->options.memory;
    if (!from->alloc)
        free(loader->memory);
    else if (loader->memory)
        from->free(from->context, loader->memory);
}

// Allocates the memory of all buffers as one block, so that steps allocate nothing: for each its
// fields, sample numbers and message.
static tri_status allocate(tri_loader *loader) {
    const tri_dataset *dataset = loader->dataset;
    const tri_sampler_options *sampler = &loader->sampler.options;
    int64_t first = tri_sampler_step_size(&loader->sampler, 0);
    size_t most = (size_t)tri_micro_batch_largest(first, sampler->micro, sampler->replicas);
    size_t offsets[TRI_MAX_DATA_FIELDS], buffer_bytes = 0;
    for (int i = 0; i < tri_dataset_field_count(dataset); i++) {
        size_t bytes = tri_dataset_field(dataset, i)->size_bytes;
        offsets[i] = buffer_bytes;
        if (most > 0 && bytes > (SIZE_MAX / 4 / (size_t)loader->buffer_count - buffer_bytes) / most)
            return TRI_FAIL(TRI_NO_MEMORY, "batches of %zu samples are too large for this machine",
                            most);
        buffer_bytes += aligned(bytes * most);
    }
    size_t samples_offset = buffer_bytes,
           message_offset = samples_offset + aligned(most * sizeof(int64_t));
    buffer_bytes = message_offset + TRI_MESSAGE_MAX_BYTES;
    size_t total = buffer_bytes * (size_t)loader->buffer_count;
    TRI_TRY(allocate_block(loader, total));
    loader->buffers = calloc((size_t)loader->buffer_count, sizeof *loader->buffers);
    if (!loader->memory || !loader->buffers)
        return TRI_FAIL(
            TRI_NO_MEMORY,
            "no memory for %lld batches of %zu samples, %zu bytes in all: set data.workers or the "
            "batch smaller",
            (long long)loader->buffer_count, most, total);
    for (int64_t i = 0; i < loader->buffer_count; i++) {
        char *base = loader->memory + (size_t)i * buffer_bytes;
        buffer *item = &loader->buffers[i];
        for (int k = 0; k < tri_dataset_field_count(dataset); k++)
            item->batch.fields[k] = base + offsets[k];
        item->samples = (int64_t *)(void *)(base + samples_offset);
        item->batch.samples = item->samples;
        item->message = base + message_offset;
    }
    return TRI_OK;
}

static int64_t reader_count(const tri_loader *loader) {
    return loader->options.workers > 0 ? loader->options.workers : 1;
}

static tri_status create_partners(tri_loader *loader, size_t count) {
    loader->partners = calloc(count, sizeof *loader->partners);
    for (size_t i = 0; loader->partners && i < count; i++)
        for (int k = 0; k < tri_dataset_field_count(loader->dataset); k++) {
            loader->partners[i][k] = malloc(tri_dataset_field(loader->dataset, k)->size_bytes);
            if (!loader->partners[i][k]) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a loader");
        }
    return loader->partners ? TRI_OK : TRI_FAIL(TRI_NO_MEMORY, "no memory for a loader");
}

static void destroy_partners(tri_loader *loader) {
    for (int64_t i = 0; loader->partners && i < reader_count(loader); i++)
        for (int k = 0; k < TRI_MAX_DATA_FIELDS; k++) free(loader->partners[i][k]);
    free(loader->partners);
}

static tri_status create_readers(tri_loader *loader) {
    size_t count = (size_t)reader_count(loader);
    loader->readers = calloc(count, sizeof *loader->readers);
    loader->threads = calloc(count, sizeof *loader->threads);
    if (!loader->readers || !loader->threads)
        return TRI_FAIL(TRI_NO_MEMORY, "no memory for a loader");
    for (size_t i = 0; i < count; i++)
        TRI_TRY(tri_reader_create(loader->dataset, &loader->readers[i]));
    return mix_of(loader) ? create_partners(loader, count) : TRI_OK;
}

static tri_status start_threads(tri_loader *loader) {
    tri_status status = TRI_OK;
    while (loader->thread_count < loader->options.workers && status == TRI_OK) {
        worker *self = malloc(sizeof *self);
        if (self) *self = (worker){loader, loader->thread_count};
        int error =
            self ? tri_thread_start(&loader->threads[loader->thread_count], work, self) : ENOMEM;
        if (error) {
            free(self);
            status = TRI_FAIL(
                TRI_NO_MEMORY,
                "cannot start loader thread %lld of %lld (%s): set data.workers lower, or raise "
                "the limits of memory (ulimit -v) and of processes (ulimit -u)",
                (long long)loader->thread_count + 1, (long long)loader->options.workers,
                strerror(error));
        } else {
            loader->thread_count++;
        }
    }
    return status;
}

int64_t tri_loader_batches(const tri_loader_options *options) {
    int64_t prefetch = options->prefetch ? options->prefetch : 2 * options->workers;
    if (prefetch < options->workers) prefetch = options->workers;
    return prefetch + (options->hold ? options->hold : 1);
}

tri_status tri_loader_create(const tri_dataset *dataset, const tri_sampler *sampler,
                             const tri_loader_options *options, tri_loader **out) {
    *out = NULL;
    tri_loader *loader = calloc(1, sizeof *loader);
    if (!loader) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a loader");
    loader->dataset = dataset;
    loader->sampler = *sampler;
    loader->options = *options;
    loader->next_cursor = (cursor){options->epoch, options->step, options->round};
    loader->steps = sampler->steps;
    if (options->steps_per_epoch > 0 && options->steps_per_epoch < loader->steps)
        loader->steps = options->steps_per_epoch;
    TRI_ASSERT(options->replica >= 0 && options->replica < sampler->options.replicas);
    TRI_ASSERT(options->workers >= 0 && options->workers <= TRI_MAX_WORKERS);
    TRI_ASSERT(options->step < loader->steps && options->round < rounds_of(loader, options->step));
    // The first micro-batch of the first step is one of the largest.
    loader->is_empty = micro_batch_at(loader, &(cursor){0}).size == 0;
    skip_empty(loader, &loader->next_cursor);
    loader->buffer_count = loader->free_count = tri_loader_batches(options);
    pthread_mutex_init(&loader->lock, NULL);
    pthread_cond_init(&loader->ready, NULL);
    pthread_cond_init(&loader->freed, NULL);
    tri_status status = allocate(loader);
    if (status == TRI_OK) status = create_readers(loader);
    if (status == TRI_OK) status = start_threads(loader);
    if (status == TRI_OK)
        *out = loader;
    else
        tri_loader_destroy(loader);
    return status;
}

void tri_loader_destroy(tri_loader *loader) {
    if (!loader) return;
    pthread_mutex_lock(&loader->lock);
    loader->stopping = true;
    pthread_cond_broadcast(&loader->freed);
    pthread_mutex_unlock(&loader->lock);
    for (int64_t i = 0; i < loader->thread_count; i++) pthread_join(loader->threads[i], NULL);
    pthread_cond_destroy(&loader->freed);
    pthread_cond_destroy(&loader->ready);
    pthread_mutex_destroy(&loader->lock);
    for (int64_t i = 0; loader->readers && i < reader_count(loader); i++)
        tri_reader_destroy(loader->readers[i]);
    destroy_partners(loader);
    free(loader->threads);
    free(loader->readers);
    free(loader->buffers);
    free_block(loader);
    free(loader);
}
