// The statistics of `trireme data check` and `data stats`. The samples are divided into blocks,
// whose size depends on the samples alone. Threads make the sums of a few blocks at a time, which
// are then added up in their order.
#include "data/stats.h"

#include "base/parallel.h"
#include "data/progress.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BLOCK_BYTES = 4 << 20, // about so many bytes of samples are a block
    MOST_BLOCK_SAMPLES = 4096,
    BLOCKS_PER_THREAD = 2,
    PIECE = 1024, // values that are summed at a time
    MOST_THREADS = 64,
};

// Statistics of the values so far.
typedef struct moments {
    double min, max, mean;
    double squares; // sum of the squared deviations from the mean
    int64_t count, not_finite;
} moments;

// Adds the moments of other values (Chan, Golub and LeVeque, 1979). That stays precise over
// billions of values; plain sums of values and squares would not.
static void merge(moments *to, const moments *from) {
    to->not_finite += from->not_finite;
    if (from->count == 0) return;
    if (to->count == 0 || from->min < to->min) to->min = from->min;
    if (to->count == 0 || from->max > to->max) to->max = from->max;
    int64_t count = to->count + from->count;
    double delta = from->mean - to->mean, share = (double)from->count / (double)count;
    to->mean += delta * share;
    to->squares += from->squares + delta * delta * (double)to->count * share;
    to->count = count;
}

static moments moments_of(const double *values, int count) {
    if (count == 0) return (moments){0};
    moments m = {.min = values[0], .max = values[0], .count = count};
    double sum = 0;
    for (int i = 0; i < count; i++) {
        sum += values[i];
        m.min = values[i] < m.min ? values[i] : m.min;
        m.max = values[i] > m.max ? values[i] : m.max;
    }
    m.mean = sum / count;
    for (int i = 0; i < count; i++) {
        double deviation = values[i] - m.mean;
        m.squares += deviation * deviation;
    }
    return m;
}

static void add_values(moments *to, const tri_data_field *field, const void *data, int64_t first,
                       int64_t end) {
    double values[PIECE];
    const float *floats = data;
    const int64_t *numbers = data;
    bool is_float = field->dtype == TRI_F32;
    for (int64_t at = first; at < end;) {
        int count = 0;
        for (; at < end && count < PIECE; at++) {
            if (!is_float && numbers[at] == TRI_IGNORED_LABEL) continue;
            double value = is_float ? (double)floats[at] : (double)numbers[at];
            if (isfinite(value))
                values[count++] = value;
            else
                to->not_finite++;
        }
        moments piece = moments_of(values, count);
        merge(to, &piece);
    }
}

// The sums of a field: over all samples, over the first one, and for images over each channel,
// because the transform `normalize` takes mean and std of each channel.
typedef struct field_sums {
    moments all, first, *channel; // channel: [channel_count]
    int64_t first_not_finite;
} field_sums;

typedef struct damage {
    int64_t sample;
    tri_status status;
    char *message;
} damage;

typedef struct block {
    int64_t first, end; // its samples
    int64_t read;       // how many could be read
    field_sums fields[TRI_MAX_DATA_FIELDS];
    tri_data_lengths lengths;
    damage *damages;
    int damage_count;
    tri_status status; // a failure that is not due to a sample
    char message[TRI_MESSAGE_MAX_BYTES];
} block;

typedef struct stats {
    const tri_dataset *dataset;
    int labels, mask;         // fields; TRI_NO_FIELD: there are none
    _Atomic int64_t *classes; // by class: how many labels; NULL: there are none
    int threads, block_count; // block_count: of those in `blocks`
    int64_t block_samples;    // of all blocks but the last one
    tri_reader *readers[MOST_THREADS];
    void *samples[MOST_THREADS][TRI_MAX_DATA_FIELDS]; // by thread and field: one sample
    block *blocks;                                    // [threads · BLOCKS_PER_THREAD]
    block total;
} stats;

static int channel_count(const tri_data_field *field) {
    bool has_columns = !strcmp(field->name, "inputs") && field->shape.rank == 1;
    int64_t channels = field->shape.rank > 0 ? field->shape.dims[0] : 1;
    if ((!has_columns && strcmp(field->name, "images") != 0) || channels == 1) return 0;
    return channels < TRI_STATS_CHANNELS ? (int)channels : TRI_STATS_CHANNELS;
}

static void add_length(tri_data_lengths *to, int64_t length) {
    tri_data_lengths_add(to, &(tri_data_lengths){1, length, length, length});
}

static void add_field(field_sums *to, const tri_data_field *field, int64_t sample, bool is_first,
                      const void *data) {
    int64_t count = tri_shape_count(&field->shape);
    int channels = channel_count(field);
    int64_t plane = channels ? count / field->shape.dims[0] : count;
    moments own = {0};
    for (int64_t i = 0; i * plane < count; i++) {
        moments part = {0};
        add_values(&part, field, data, i * plane, (i + 1) * plane);
        merge(&own, &part);
        if (i < channels) merge(&to->channel[i], &part);
    }
    if (is_first) to->first = own;
    if (to->first_not_finite < 0 && own.not_finite > 0) to->first_not_finite = sample;
    merge(&to->all, &own);
}

static void add_sample(stats *s, block *b, int64_t sample, void *const *data) {
    for (int i = 0; i < tri_dataset_field_count(s->dataset); i++)
        add_field(&b->fields[i], tri_dataset_field(s->dataset, i), sample, b->read == 0, data[i]);
    b->read++;
    if (s->classes) {
        const int64_t *labels = data[s->labels];
        int64_t count = tri_shape_count(&tri_dataset_field(s->dataset, s->labels)->shape);
        for (int64_t i = 0; i < count; i++)
            if (labels[i] >= 0)
                atomic_fetch_add_explicit(&s->classes[labels[i]], 1, memory_order_relaxed);
    }
    if (s->mask != TRI_NO_FIELD) {
        const float *mask = data[s->mask];
        int64_t length = 0;
        for (int64_t i = 0; i < tri_shape_count(&tri_dataset_field(s->dataset, s->mask)->shape);
             i++)
            length += mask[i] != 0;
        add_length(&b->lengths, length);
    }
}

// Whether the failure is due to one sample, so that the others are worth reading.
static bool is_damage(tri_status status) {
    return status == TRI_CORRUPT || status == TRI_BAD_INPUT || status == TRI_NOT_FOUND;
}

static tri_status add_damage(block *b, int64_t sample, tri_status status) {
    char *message = strdup(tri_error_message());
    damage *grown = realloc(b->damages, (size_t)(b->damage_count + 1) * sizeof *grown);
    if (grown) b->damages = grown;
    if (!grown || !message) {
        free(message);
        return TRI_FAIL(TRI_NO_MEMORY, "no memory for the list of damaged samples");
    }
    grown[b->damage_count++] = (damage){sample, status, message};
    return TRI_OK;
}

static void read_block(stats *s, int thread, block *b) {
    for (int64_t sample = b->first; sample < b->end && b->status == TRI_OK; sample++) {
        tri_status status = tri_reader_try(s->readers[thread], sample, 0, s->samples[thread]);
        if (status == TRI_OK)
            add_sample(s, b, sample, s->samples[thread]);
        else
            b->status = is_damage(status) ? add_damage(b, sample, status) : status;
    }
    if (b->status != TRI_OK) snprintf(b->message, sizeof b->message, "%s", tri_error_message());
}

static void read_shares(void *context, int64_t first, int64_t end) {
    stats *s = context;
    for (int64_t thread = first; thread < end; thread++)
        for (int i = (int)thread; i < s->block_count; i += s->threads)
            read_block(s, (int)thread, &s->blocks[i]);
}

static void clear_block(const stats *s, block *b) {
    for (int i = 0; i < b->damage_count; i++) free(b->damages[i].message);
    b->damage_count = 0;
    b->read = 0;
    b->status = TRI_OK;
    b->lengths = (tri_data_lengths){0};
    for (int i = 0; i < tri_dataset_field_count(s->dataset); i++) {
        moments *channel = b->fields[i].channel;
        size_t channels = (size_t)channel_count(tri_dataset_field(s->dataset, i));
        memset(channel, 0, channels * sizeof *channel);
        b->fields[i] = (field_sums){.channel = channel, .first_not_finite = -1};
    }
}

static tri_status make_block(const stats *s, block *b) {
    for (int i = 0; i < tri_dataset_field_count(s->dataset); i++) {
        size_t channels = (size_t)channel_count(tri_dataset_field(s->dataset, i));
        b->fields[i].channel = calloc(channels + 1, sizeof *b->fields[i].channel);
        if (!b->fields[i].channel) return TRI_FAIL(TRI_NO_MEMORY, "no memory for statistics");
    }
    clear_block(s, b);
    return TRI_OK;
}

static void free_block(const stats *s, block *b) {
    if (!b) return;
    for (int i = 0; i < b->damage_count; i++) free(b->damages[i].message);
    for (int i = 0; i < TRI_MAX_DATA_FIELDS; i++) free(b->fields[i].channel);
    free(b->damages);
}

static tri_status allocate(stats *s, int64_t workers) {
    const tri_dataset *dataset = s->dataset;
    size_t bytes = 0;
    for (int i = 0; i < tri_dataset_field_count(dataset); i++)
        bytes += tri_dataset_field(dataset, i)->size_bytes;
    s->block_samples = (int64_t)(BLOCK_BYTES / (bytes + 1)) + 1;
    if (s->block_samples > MOST_BLOCK_SAMPLES) s->block_samples = MOST_BLOCK_SAMPLES;
    s->threads = (int)(workers < 1 ? 1 : workers < MOST_THREADS ? workers : MOST_THREADS);
    s->blocks = calloc((size_t)(s->threads * BLOCKS_PER_THREAD), sizeof *s->blocks);
    if (s->labels != TRI_NO_FIELD)
        s->classes = calloc((size_t)tri_dataset_classes(dataset, "labels") + 1, sizeof *s->classes);
    bool is_complete = s->blocks != NULL && (s->classes || s->labels == TRI_NO_FIELD);
    TRI_TRY(make_block(s, &s->total));
    for (int t = 0; is_complete && t < s->threads; t++) {
        TRI_TRY(tri_reader_create(dataset, &s->readers[t]));
        tri_reader_take_all(s->readers[t]);
        for (int i = 0; i < tri_dataset_field_count(dataset); i++) {
            s->samples[t][i] = malloc(tri_dataset_field(dataset, i)->size_bytes);
            is_complete &= s->samples[t][i] != NULL;
        }
    }
    if (!is_complete) return TRI_FAIL(TRI_NO_MEMORY, "no memory for statistics");
    for (int i = 0; i < s->threads * BLOCKS_PER_THREAD; i++) TRI_TRY(make_block(s, &s->blocks[i]));
    return TRI_OK;
}

static void free_stats(stats *s) {
    for (int t = 0; t < s->threads; t++) {
        tri_reader_destroy(s->readers[t]);
        for (int i = 0; i < TRI_MAX_DATA_FIELDS; i++) free(s->samples[t][i]);
    }
    for (int i = 0; s->blocks && i < s->threads * BLOCKS_PER_THREAD; i++)
        free_block(s, &s->blocks[i]);
    free_block(s, &s->total);
    free(s->blocks);
    free(s->classes);
}

static tri_status add_block(stats *s, const block *b, tri_stats_on_damage on_damage,
                            void *context) {
    block *total = &s->total;
    for (int i = 0; i < b->damage_count; i++)
        on_damage(context, b->damages[i].sample, b->damages[i].status, b->damages[i].message);
    if (b->status != TRI_OK) return TRI_FAIL(b->status, "%s", b->message);
    for (int i = 0; i < tri_dataset_field_count(s->dataset); i++) {
        field_sums *to = &total->fields[i];
        const field_sums *from = &b->fields[i];
        if (total->read == 0) to->first = from->first;
        if (to->first_not_finite < 0) to->first_not_finite = from->first_not_finite;
        merge(&to->all, &from->all);
        for (int k = 0; k < channel_count(tri_dataset_field(s->dataset, i)); k++)
            merge(&to->channel[k], &from->channel[k]);
    }
    total->read += b->read;
    tri_data_lengths_add(&total->lengths, &b->lengths);
    return TRI_OK;
}

static tri_status read_all(stats *s, const char *split, tri_stats_on_damage on_damage,
                           void *context) {
    int64_t samples = tri_dataset_samples(s->dataset), done = 0;
    tri_data_progress progress = tri_data_progress_begin(split, samples, true);
    while (done < samples) {
        for (s->block_count = 0; done < samples && s->block_count < s->threads * BLOCKS_PER_THREAD;
             s->block_count++) {
            block *b = &s->blocks[s->block_count];
            clear_block(s, b);
            b->first = done;
            b->end = done = samples - done < s->block_samples ? samples : done + s->block_samples;
        }
        tri_parallel_for(s->threads, s->threads, 1, read_shares, s);
        for (int i = 0; i < s->block_count; i++)
            TRI_TRY(add_block(s, &s->blocks[i], on_damage, context));
        tri_data_progress_show(&progress, done);
    }
    return TRI_OK;
}

static tri_data_range range_of(const moments *m) {
    double std = m->count ? sqrt(m->squares / (double)m->count) : 0;
    return (tri_data_range){m->min, m->max, m->mean, std};
}

static void report(tri_arena *arena, const stats *s, tri_data_stats *out) {
    for (int i = 0; i < tri_dataset_field_count(s->dataset); i++) {
        const field_sums *from = &s->total.fields[i];
        int channels = channel_count(tri_dataset_field(s->dataset, i));
        tri_data_range *channel = TRI_NEW_ARRAY(arena, tri_data_range, channels);
        for (int k = 0; k < channels; k++) channel[k] = range_of(&from->channel[k]);
        out->fields[i] = (tri_field_stats){.all = range_of(&from->all),
                                           .first = range_of(&from->first),
                                           .not_finite = from->all.not_finite,
                                           .first_not_finite = from->first_not_finite,
                                           .channels = channels,
                                           .channel = channel};
    }
    out->lengths = s->total.lengths;
    if (!s->classes) return;
    int64_t classes = tri_dataset_classes(s->dataset, "labels");
    int64_t *counts = TRI_NEW_ARRAY(arena, int64_t, classes);
    for (int64_t i = 0; i < classes; i++) counts[i] = atomic_load(&s->classes[i]);
    out->class_counts = counts;
}

tri_status tri_data_stats_read(tri_arena *arena, const tri_dataset *dataset, const char *split,
                               int64_t workers, tri_stats_on_damage on_damage, void *context,
                               tri_data_stats *out) {
    *out = (tri_data_stats){0};
    stats *s = calloc(1, sizeof *s);
    if (!s) return TRI_FAIL(TRI_NO_MEMORY, "no memory for statistics");
    s->dataset = dataset;
    s->labels = tri_dataset_find(dataset, "labels");
    s->mask = tri_dataset_find(dataset, "attention_mask");
    tri_status status = allocate(s, workers);
    if (status == TRI_OK) status = read_all(s, split, on_damage, context);
    if (status == TRI_OK) report(arena, s, out);
    free_stats(s);
    free(s);
    return status;
}
