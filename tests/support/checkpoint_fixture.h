// A synthetic training state for tests of checkpoints. Its values are computed from (seed, tensor,
// element), so that a test can save, load and check any state without storing it.
#ifndef TESTS_CHECKPOINT_FIXTURE_H
#define TESTS_CHECKPOINT_FIXTURE_H

#include "base/os.h"
#include "checkpoint/checkpoint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { FIXTURE_MAX_TENSORS = 16 };

typedef struct fixture_state {
    tri_state_tensor tensors[FIXTURE_MAX_TENSORS];
    int count;
    uint64_t seed;
    int64_t wrong;                     // how many loaded elements had a wrong value
    int64_t seen[FIXTURE_MAX_TENSORS]; // by tensor: how many of its elements were loaded
    int64_t largest;                   // the most elements that one call of `read` supplied
} fixture_state;

// Computes the value of an element; floats are finite, most of them with a fraction.
static inline void fixture_element(const fixture_state *state, int tensor, int64_t element,
                                   void *to) {
    uint64_t x = state->seed * 0x9e3779b97f4a7c15u + (uint64_t)tensor * 0xbf58476d1ce4e5b9u +
                 (uint64_t)element;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    float value = (float)((double)(x >> 40) * 0x1p-24 - 0.5);
    if (state->tensors[tensor].dtype == TRI_F32)
        memcpy(to, &value, sizeof value);
    else
        memcpy(to, &x, tri_dtype_bytes(state->tensors[tensor].dtype));
}

static inline tri_status fixture_read(void *context, int tensor, int64_t first, int64_t count,
                                      void *to) {
    fixture_state *state = context;
    size_t bytes = tri_dtype_bytes(state->tensors[tensor].dtype);
    if (count > state->largest) state->largest = count;
    for (int64_t i = 0; i < count; i++)
        fixture_element(state, tensor, first + i, (char *)to + (size_t)i * bytes);
    return TRI_OK;
}

static inline tri_status fixture_write(void *context, int tensor, int64_t first, int64_t count,
                                       const void *from) {
    fixture_state *state = context;
    size_t bytes = tri_dtype_bytes(state->tensors[tensor].dtype);
    for (int64_t i = 0; i < count; i++) {
        char expected[8];
        fixture_element(state, tensor, first + i, expected);
        state->wrong += memcmp(expected, (const char *)from + (size_t)i * bytes, bytes) != 0;
    }
    state->seen[tensor] += count;
    return TRI_OK;
}

static inline tri_state_source fixture_source(fixture_state *state) {
    return (tri_state_source){
        .tensors = state->tensors, .count = state->count, .context = state, .read = fixture_read};
}

static inline tri_state_sink fixture_sink(fixture_state *state) {
    return (tri_state_sink){
        .tensors = state->tensors, .count = state->count, .context = state, .write = fixture_write};
}

static inline void fixture_add(fixture_state *state, const char *name, tri_dtype dtype,
                               tri_shape shape, bool may_lack) {
    state->tensors[state->count++] =
        (tri_state_tensor){.name = name, .dtype = dtype, .shape = shape, .may_lack = may_lack};
}

// The tensors of a small network with batch norm, unsorted; `width` sets its size.
static inline fixture_state fixture_model(uint64_t seed, int64_t width) {
    fixture_state state = {.seed = seed};
    fixture_add(&state, "fc1.weight", TRI_F32, tri_shape_of(width, 33), false);
    fixture_add(&state, "conv1.weight", TRI_F32, tri_shape_of(5, 1, 3, 3), false);
    fixture_add(&state, "conv1.bias", TRI_F32, tri_shape_of(5), false);
    fixture_add(&state, "bn1.num_batches_tracked", TRI_I64, (tri_shape){0}, true);
    fixture_add(&state, "bn1.running_mean", TRI_F32, tri_shape_of(5), true);
    fixture_add(&state, "empty", TRI_F32, tri_shape_of(3, 0), false);
    return state;
}

static inline fixture_state fixture_optimizer(uint64_t seed, int64_t width) {
    fixture_state state = {.seed = seed + 1000000};
    fixture_add(&state, "fc1.weight.exp_avg", TRI_F32, tri_shape_of(width, 33), false);
    fixture_add(&state, "fc1.weight.exp_avg_sq", TRI_F32, tri_shape_of(width, 33), false);
    fixture_add(&state, "conv1.bias.exp_avg", TRI_F32, tri_shape_of(5), false);
    return state;
}

typedef struct fixture_save {
    int64_t step, width, chunk_bytes;
    tri_checkpoint_monitor monitor;
    int64_t save_top_k;
    tri_comm *comm;
    uint64_t seed;          // the tensors are made from it; 0: they are made from `step`
    int64_t snapshot_bytes; // not 0: saves in the background, while the state changes
    // Stands for gathering the shards of a tensor. Collective. NULL: nothing is gathered.
    tri_status (*fetch)(tri_comm *comm);
    tri_status (*admit)(void *context); // called before the commit
    int64_t step_ns;                    // how long to train between two looks at a background save
    double *worked_s;                   // as in tri_checkpoint_save_request
} fixture_save;

typedef struct fixture_fetched {
    // The first member, because the source's context is used as a pointer to this struct and as one
    // to its state.
    fixture_state state;
    const fixture_save *options;
} fixture_fetched;

static inline tri_status fixture_fetch(void *context, int tensor) {
    const fixture_save *options = ((fixture_fetched *)context)->options;
    return options->fetch ? options->fetch(options->comm) : TRI_OK;
}

// Saves in the background. It polls the save as the training loop does after each step: the ranks
// add up how many of them are ready, and advance the save together when all are or one has failed.
static inline tri_status fixture_save_async(const tri_checkpoint_save_request *request) {
    tri_pending_save *saving;
    TRI_TRY(tri_checkpoint_save_begin(request, &saving));
    fixture_fetched *model = request->model->context, *optimizer = request->optimizer->context;
    if (tri_checkpoint_save_is_async(saving)) model->state.seed = optimizer->state.seed = 0;
    tri_status status = TRI_OK;
    for (bool ended = false; !ended;) {
        int ranks = request->comm ? request->comm->size : 1;
        tri_save_state now = tri_checkpoint_save_state(saving);
        double shared = now == TRI_SAVE_FAILED ? ranks : now == TRI_SAVE_READY;
        tri_comm_op op = {.kind = TRI_COMM_ALL_REDUCE,
                          .dtype = TRI_F64,
                          .count = 1,
                          .send = &shared,
                          .recv = &shared,
                          .label = "a step"};
        if (request->comm && tri_comm_run(request->comm, &op) != TRI_OK) {
            tri_checkpoint_save_abandon(saving);
            return TRI_PEER_LOST;
        }
        tri_os.sleep_ns(model->options->step_ns ? model->options->step_ns : 100000);
        if (shared >= ranks) status = tri_checkpoint_save_advance(saving, &ended);
    }
    return status;
}

static inline tri_status fixture_do_save(const char *run_dir, fixture_save options) {
    tri_arena *arena = tri_arena_create(NULL, "test");
    uint64_t seed = options.seed ? options.seed : (uint64_t)options.step;
    fixture_fetched model = {fixture_model(seed, options.width), &options};
    fixture_fetched optimizer = {fixture_optimizer(seed, options.width), &options};
    tri_state_source model_source = fixture_source(&model.state);
    tri_state_source optimizer_source = fixture_source(&optimizer.state);
    model_source.fetch = optimizer_source.fetch = fixture_fetch;
    tri_tree *training = tri_tree_map(arena);
    tri_tree_put(arena, training, "epoch", tri_tree_int(arena, options.step / 10));
    tri_tree_put(arena, training, "words", tri_tree_string(arena, "a \"quoted\"\nline: 12"));
    tri_checkpoint_save_request request = {
        .run_dir = run_dir,
        .step = options.step,
        .model = &model_source,
        .optimizer = &optimizer_source,
        .training = training,
        .admit = options.admit,
        .recipe = "name: test\nseed: 1\n",
        .monitor = options.monitor,
        .save_top_k = options.save_top_k,
        .comm = options.comm,
        .chunk_bytes = options.chunk_bytes,
        .snapshot_bytes = options.snapshot_bytes,
        .worked_s = options.worked_s,
    };
    tri_status status =
        options.snapshot_bytes ? fixture_save_async(&request) : tri_checkpoint_save(&request);
    int64_t bound = (options.chunk_bytes ? options.chunk_bytes : 4 << 20) / 4;
    if (model.state.largest > bound || optimizer.state.largest > bound) status = TRI_INTERNAL;
    tri_arena_destroy(arena);
    return status;
}

typedef tri_status fixture_load(tri_arena *arena, const char *path,
                                const tri_checkpoint_sinks *sinks, tri_checkpoint_info *out);

// Loads the checkpoint `path` and checks that its elements have the values made from `seed` (0:
// from the checkpoint's step).
static inline tri_status fixture_load_by(fixture_load *load, const char *path, int64_t width,
                                         uint64_t seed, int64_t *step) {
    tri_arena *arena = tri_arena_create(NULL, "test");
    tri_checkpoint_info info = {0};
    tri_status status = tri_checkpoint_read_info(arena, path, &info);
    fixture_state model = fixture_model(seed ? seed : (uint64_t)info.step, width);
    fixture_state optimizer = fixture_optimizer(seed ? seed : (uint64_t)info.step, width);
    tri_state_sink model_sink = fixture_sink(&model), optimizer_sink = fixture_sink(&optimizer);
    if (status == TRI_OK)
        status = load(arena, path,
                      &(tri_checkpoint_sinks){.model = &model_sink, .optimizer = &optimizer_sink},
                      &info);
    if (status == TRI_OK) {
        assert_int_equal(model.wrong + optimizer.wrong, 0);
        for (int i = 0; i < model.count; i++)
            assert_int_equal(model.seen[i], tri_shape_count(&model.tensors[i].shape));
        for (int i = 0; i < optimizer.count; i++)
            assert_int_equal(optimizer.seen[i], tri_shape_count(&optimizer.tensors[i].shape));
        assert_string_equal(tri_tree_get(info.training, "words")->text, "a \"quoted\"\nline: 12");
        assert_string_equal(info.recipe, "name: test\nseed: 1\n");
        if (step) *step = info.step;
    }
    tri_arena_destroy(arena);
    return status;
}

static inline tri_status fixture_do_load(const char *path, int64_t width, uint64_t seed,
                                         int64_t *step) {
    return fixture_load_by(tri_checkpoint_load, path, width, seed, step);
}

// Finds, loads and checks the checkpoint that `--resume auto` resumes from. *step is -1 if there is
// none.
static inline tri_status fixture_find(const char *run_dir, int64_t width, int64_t *step) {
    tri_arena *arena = tri_arena_create(NULL, "test");
    const char *path;
    *step = -1;
    tri_status status = tri_checkpoint_find(arena, NULL, run_dir, "auto", &path);
    if (status == TRI_OK && path) status = fixture_do_load(path, width, 0, step);
    tri_arena_destroy(arena);
    return status;
}

// As fixture_find, but returns the step, and an error fails the test.
static inline int64_t fixture_auto(const char *run_dir, int64_t width) {
    int64_t step;
    if (fixture_find(run_dir, width, &step) != TRI_OK) fail_msg("%s", tri_error_message());
    return step;
}

#endif
