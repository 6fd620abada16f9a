// The data set "mixture" (data.name): samples of several sources, each a data set of its own.
//
// An epoch has as many training samples as the sources have together. Each source gets a part of
// them by its weight, rounded by the method of largest remainders, so the parts add up. A source
// with n samples and a part of c has each of its samples c div n times in every epoch, and c mod n
// of them once more: those are the next ones of a fixed random order, which goes on from epoch to
// epoch. All of that is computed from the seed and the epoch. Validation and test data are those of
// all sources, once each.
#include "base/hash.h"
#include "base/philox.h"
#include "base/quantity.h"
#include "base/search.h"
#include "data/convert.h"
#include "data/kind.h"
#include "data/permutation.h"
#include "data/sources.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct mixture_source {
    int number;    // in data.mix, counted from 1
    double weight; // 0: in proportion to its samples
    tri_dataset *dataset;
    int64_t samples;
    int64_t first, part;             // its samples in an epoch: the numbers from `first` on
    int64_t first_stored;            // where its samples begin among those of all sources
    tri_permutation order;           // of the samples that come once more
    int fields[TRI_MAX_DATA_FIELDS]; // by field of the mixture: the source's own number of it
} mixture_source;

typedef struct mixture_state {
    mixture_source *sources; // those that have the split
    int count;
    bool views_images; // images are given as views, because their sizes differ
} mixture_state;

// What one thread reads with: by source, its worker and room for one sample.
typedef struct mixture_worker {
    const mixture_state *state;
    void *workers[TRI_MAX_SOURCES];
    char *stored[TRI_MAX_DATA_FIELDS]; // room for the largest sample of any source
} mixture_worker;

// Divides the samples of an epoch among the sources by the method of largest remainders.
static void divide(mixture_state *state, int64_t total, bool by_weight) {
    double sum = 0, remainders[TRI_MAX_SOURCES];
    int64_t given = 0;
    for (int i = 0; i < state->count; i++) sum += state->sources[i].weight;
    for (int i = 0; i < state->count; i++) {
        mixture_source *s = &state->sources[i];
        double share = by_weight ? (double)total * (s->weight / sum) : (double)s->samples;
        s->part = by_weight ? (int64_t)share : s->samples;
        remainders[i] = share - (double)s->part;
        given += s->part;
    }
    for (; given < total; given++) {
        int most = 0;
        for (int i = 1; i < state->count; i++)
            if (remainders[i] > remainders[most]) most = i;
        state->sources[most].part++;
        remainders[most] = -1;
    }
}

// Adds the facts of source number `number` to those of the mixture.
static void add_facts(tri_dataset *mixture, const tri_dataset *source, int number) {
    tri_data_facts *to = &mixture->facts;
    const tri_data_facts *from = &source->facts;
    to->is_decoded |= from->is_decoded;
    to->has_fixed_fields &= from->has_fixed_fields;
    to->describes_guess |= from->describes_guess;
    tri_data_lengths_add(&to->documents, &from->documents);
    if (!to->guessed) to->guessed = from->guessed;
    if (!to->doubt) to->doubt = from->doubt;
    for (int i = 0; i < from->file_count; i++) tri_dataset_note_file(mixture, from->files[i]);
    for (int i = 0; i < from->source_count; i++) tri_dataset_note_source(mixture, from->sources[i]);
    to->listing = tri_hash_bytes(to->listing, &from->listing, sizeof from->listing);
    to->documents_left_out += from->documents_left_out;
    if (!from->rest) return;
    to->rest_is_usual = (to->rest_is_usual || !to->rest) && from->rest_is_usual;
    to->rest = tri_arena_printf(mixture->arena, "%s%ssource %d: %s", to->rest ? to->rest : "",
                                to->rest ? "; " : "", number, from->rest);
}

// Opens the sources that have the split.
static tri_status open_sources(tri_dataset *dataset) {
    mixture_state *state = dataset->state;
    tri_data_source *all;
    int count;
    TRI_TRY(tri_data_sources_read(dataset->arena, dataset->options, &all, &count));
    state->sources = TRI_NEW_ARRAY(dataset->arena, mixture_source, count);
    for (int i = 0; i < count; i++) {
        bool is_training = dataset->split == TRI_DATA_TRAIN;
        if (!is_training && !tri_data_names(&all[i].options, dataset->split)) continue;
        mixture_source *s = &state->sources[state->count];
        s->number = i + 1;
        s->weight = all[i].weight;
        s->first_stored = dataset->samples;
        TRI_TRY(tri_dataset_open_stored(&all[i].options, dataset->split, &s->dataset));
        state->count++; // from here on mixture_close closes it
        s->samples = s->dataset->samples;
        dataset->samples += s->samples;
        add_facts(dataset, s->dataset, s->number);
    }
    if (state->count > 0) return TRI_OK;
    return TRI_FAIL(TRI_NOT_FOUND, "data.mix: no source has '%s'",
                    tri_data_split_key(dataset->split));
}

// Adds a field that all sources have.
static tri_status add_field(tri_dataset *dataset, const char *name) {
    mixture_state *state = dataset->state;
    const tri_dataset *of_first_source = state->sources[0].dataset;
    const tri_stored_field *first =
        &of_first_source->fields[tri_dataset_find(of_first_source, name)];
    int field = dataset->field_count;
    bool is_image = !strcmp(name, "images"), is_same = true;
    for (int i = 0; i < state->count; i++) {
        mixture_source *s = &state->sources[i];
        int own = s->fields[field] = tri_dataset_find(s->dataset, name);
        if (own == TRI_NO_FIELD || s->dataset->field_count != of_first_source->field_count)
            return TRI_FAIL(TRI_BAD_INPUT,
                            "data.mix: source %d has other fields than source %d: '%s' or "
                            "others are not in both",
                            s->number, state->sources[0].number, name);
        const tri_stored_field *other = &s->dataset->fields[own];
        is_same &= tri_shape_equal(&other->stored_shape, &first->stored_shape);
        bool fits = is_image ? other->stored_dtype == first->stored_dtype &&
                                   other->stored_shape.dims[0] == first->stored_shape.dims[0]
                             : is_same;
        char of_first[32], of_this[64];
        snprintf(of_first, sizeof of_first, "source %d", state->sources[0].number);
        snprintf(of_this, sizeof of_this, "data.mix: source %d", s->number);
        TRI_TRY(tri_number_names_compare(name, of_first, &first->names, of_this, &other->names));
        if (!dataset->facts.doubt)
            dataset->facts.doubt = tri_number_names_doubt(dataset->arena, of_first, &first->names,
                                                          of_this, &other->names);
        if (!fits)
            return TRI_FAIL(TRI_BAD_INPUT,
                            "data.mix: '%s' of source %d has another type or shape than that of "
                            "source %d",
                            name, s->number, state->sources[0].number);
    }
    tri_shape shape = first->stored_shape;
    bool is_any = is_image && (!is_same || first->stored_bytes == 0);
    if (is_any) shape.dims[1] = shape.dims[2] = TRI_ANY_SIZE;
    state->views_images |= is_any;
    TRI_TRY(tri_dataset_add(dataset, "data.mix", name,
                            is_image ? first->stored_dtype : first->row.dtype, &shape));
    dataset->fields[field].names = first->names; // which all sources have
    for (int i = 0; i < state->count; i++) {
        const tri_stored_field *other =
            &state->sources[i].dataset->fields[state->sources[i].fields[field]];
        tri_stored_field *own = &dataset->fields[field];
        if (other->classes > own->classes) own->classes = other->classes;
        own->has_ignored |= other->has_ignored;
    }
    return TRI_OK;
}

// Adds all fields, in the order of their names, because the splits may begin with other sources.
static tri_status add_fields(tri_dataset *dataset) {
    const mixture_state *state = dataset->state;
    const tri_dataset *first = state->sources[0].dataset;
    const char *names[TRI_MAX_DATA_FIELDS];
    for (int i = 0; i < first->field_count; i++) names[i] = first->fields[i].field.name;
    const char **ordered = tri_dataset_field_order(dataset->arena, names, first->field_count);
    for (int i = 0; i < first->field_count; i++) TRI_TRY(add_field(dataset, ordered[i]));
    return TRI_OK;
}

static tri_status mixture_open(tri_dataset *dataset) {
    mixture_state *state = TRI_NEW(dataset->arena, mixture_state);
    dataset->state = state;
    TRI_TRY(open_sources(dataset));
    bool is_training = dataset->split == TRI_DATA_TRAIN;
    divide(state, dataset->samples, is_training && state->sources[0].weight > 0);
    int64_t first = 0;
    for (int i = 0; i < state->count; i++) {
        mixture_source *s = &state->sources[i];
        if (s->part == 0)
            return TRI_FAIL(TRI_BAD_INPUT,
                            "data.mix: the weight of source %d is %g, which gives it none of "
                            "the %lld samples of an epoch: raise it, or leave the source out",
                            s->number, s->weight, (long long)dataset->samples);
        s->first = first;
        first += s->part;
        s->order = tri_permutation_make(
            tri_philox_key(dataset->seed,
                           tri_arena_printf(dataset->arena, "data/sources/%d", s->number - 1)),
            0, s->samples);
    }
    return add_fields(dataset);
}

// Adds the fields of which all sources know that they have them.
static tri_status mixture_describe(tri_dataset *dataset) {
    mixture_state *state = TRI_NEW(dataset->arena, mixture_state);
    tri_data_source *all;
    dataset->state = state;
    TRI_TRY(tri_data_sources_read(dataset->arena, dataset->options, &all, &state->count));
    state->sources = TRI_NEW_ARRAY(dataset->arena, mixture_source, state->count);
    tri_status status = TRI_OK;
    bool is_known = true;
    for (int i = 0; i < state->count && status == TRI_OK; i++) {
        mixture_source *s = &state->sources[i];
        s->number = i + 1;
        status = tri_dataset_describe_stored(&all[i].options, &s->dataset);
        if (status != TRI_OK) break;
        is_known &= s->dataset->field_count > 0;
        add_facts(dataset, s->dataset, s->number);
    }
    if (status == TRI_OK && is_known) status = add_fields(dataset);
    for (int i = 0; i < state->count; i++) tri_dataset_forget(state->sources[i].dataset);
    return status;
}

static void mixture_close(tri_dataset *dataset) {
    mixture_state *state = dataset->state;
    for (int i = 0; i < state->count; i++) tri_dataset_close(state->sources[i].dataset);
}

// True if a source's part of an epoch ends at `sample` or before it.
static bool ends_before(const void *context, int index, int64_t sample) {
    const mixture_source *s = &((const mixture_source *)context)[index];
    return s->first + s->part <= sample;
}

static int64_t mixture_at_epoch(const tri_dataset *dataset, int64_t sample, int64_t epoch) {
    const mixture_state *state = dataset->state;
    const mixture_source *s =
        &state->sources[tri_lower_bound(state->count, ends_before, state->sources, sample)];
    int64_t number = sample - s->first, more = s->part % s->samples, whole = s->part - more;
    if (number < whole) return s->first_stored + number % s->samples;
    // epoch * more, without an overflow: only its remainder counts.
    int64_t begun = (int64_t)((__uint128_t)(uint64_t)epoch * (uint64_t)more % (uint64_t)s->samples);
    return s->first_stored + tri_permutation_at(&s->order, (begun + number - whole) % s->samples);
}

static void mixture_worker_destroy(void *context) {
    mixture_worker *worker = context;
    for (int i = 0; i < worker->state->count; i++)
        if (worker->workers[i])
            worker->state->sources[i].dataset->kind->worker_destroy(worker->workers[i]);
    for (int i = 0; i < TRI_MAX_DATA_FIELDS; i++) free(worker->stored[i]);
    free(worker);
}

static tri_status mixture_worker_create(const tri_dataset *dataset, void **out) {
    mixture_worker *worker = calloc(1, sizeof *worker);
    if (!worker) return TRI_FAIL(TRI_NO_MEMORY, "no memory to read data");
    *out = worker;
    worker->state = dataset->state;
    for (int i = 0; i < dataset->field_count; i++) {
        size_t most = 1;
        for (int k = 0; k < worker->state->count; k++) {
            const mixture_source *s = &worker->state->sources[k];
            size_t bytes = s->dataset->fields[s->fields[i]].stored_bytes;
            if (bytes > most) most = bytes;
        }
        worker->stored[i] = malloc(most);
        if (!worker->stored[i]) return TRI_FAIL(TRI_NO_MEMORY, "no memory to read data");
    }
    for (int i = 0; i < worker->state->count; i++) {
        const tri_dataset *source = worker->state->sources[i].dataset;
        if (source->kind->worker_create)
            TRI_TRY(source->kind->worker_create(source, &worker->workers[i]));
    }
    return TRI_OK;
}

static bool is_stored_before(const void *context, int index, int64_t sample) {
    const mixture_source *s = &((const mixture_source *)context)[index];
    return s->first_stored + s->samples <= sample;
}

static tri_status mixture_read(const tri_dataset *dataset, void *context, int64_t sample,
                               tri_sample_value *values) {
    const mixture_state *state = dataset->state;
    mixture_worker *worker = context;
    int index = tri_lower_bound(state->count, is_stored_before, state->sources, sample);
    const mixture_source *s = &state->sources[index];
    tri_sample_value own[TRI_MAX_DATA_FIELDS] = {0};
    for (int i = 0; i < dataset->field_count; i++) own[s->fields[i]].buffer = worker->stored[i];
    TRI_TRY(tri_dataset_read(s->dataset, worker->workers[index], sample - s->first_stored, own));
    for (int i = 0; i < dataset->field_count; i++) {
        const tri_stored_field *from = &s->dataset->fields[s->fields[i]], *to = &dataset->fields[i];
        const tri_sample_value *value = &own[s->fields[i]];
        void *buffer = values[i].buffer;
        values[i] = *value;
        values[i].buffer = buffer;
        if (to->stored_bytes == 0 && from->stored_bytes > 0)
            values[i].image =
                tri_image_of_planes(value->data, from->stored_dtype, &from->stored_shape);
        if (to->stored_bytes == 0 || to->stored_dtype == from->stored_dtype) continue;
        values[i].data = values[i].buffer;
        tri_convert(from->stored_dtype, value->data, to->stored_dtype, values[i].buffer,
                    tri_shape_count(&to->stored_shape));
    }
    return TRI_OK;
}

static tri_status mixture_verify(const tri_dataset *dataset) {
    const mixture_state *state = dataset->state;
    for (int i = 0; i < state->count; i++) TRI_TRY(tri_dataset_verify(state->sources[i].dataset));
    return TRI_OK;
}

static bool mixture_names(const tri_data_options *options, tri_data_split split) {
    return split == TRI_DATA_TRAIN || tri_data_sources_any(options, tri_data_names, split);
}

static bool is_text(const tri_data_options *source, tri_data_split split) {
    return tri_data_is_text(source);
}

static bool mixture_is_text(const tri_data_options *options) {
    return tri_data_sources_any(options, is_text, TRI_DATA_TRAIN);
}

const tri_dataset_kind tri_dataset_mixture = {
    .open = mixture_open,
    .close = mixture_close,
    .worker_create = mixture_worker_create,
    .worker_destroy = mixture_worker_destroy,
    .read = mixture_read,
    .at_epoch = mixture_at_epoch,
    .verify = mixture_verify,
    .names = mixture_names,
    .is_text = mixture_is_text,
    .describe = mixture_describe,
};
