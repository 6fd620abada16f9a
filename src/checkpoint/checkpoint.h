// Checkpoints: whole tensors in one canonical layout, committed atomically, verified when read.
//
//     RUN/checkpoints/step-00000938/model.safetensors      weights and buffers, PyTorch's names
//                                   optimizer.safetensors  "conv1.weight.exp_avg", …
//                                   state.json             step, training state, recipe, SHA-256s
//     RUN/checkpoints/last, best                           symbolic links
//
// Each tensor is hashed in fixed chunks, so that damage is reported by file and tensor. state.json
// ends in the SHA-256 of itself. Nothing here knows who holds a tensor or how a device lays it out:
// a source yields elements in row-major order, a sink takes them, and neither is asked for more
// than a chunk at once.
#ifndef TRIREME_CHECKPOINT_CHECKPOINT_H
#define TRIREME_CHECKPOINT_CHECKPOINT_H

#include "base/tree.h"
#include "comm/comm.h"

#include <trireme/tensor.h>

#include <stdio.h>

typedef struct tri_state_tensor {
    const char *name;
    tri_dtype dtype;
    tri_shape shape;
    bool is_buffer; // running statistics and the like: initial weights may lack it
} tri_state_tensor;

// State to be saved. Borrowed for the time of the call; the order of `tensors` is free.
typedef struct tri_state_source {
    const tri_state_tensor *tensors;
    int count;
    void *context;
    // Elements first … first + count - 1 of tensors[tensor], row-major, packed, into `to`.
    tri_status (*read)(void *context, int tensor, int64_t first, int64_t count, void *to);
    // How many ranks answer for tensors[tensor], and which of them this one is (-1: none); the same
    // number on every rank. NULL: all ranks of the request's communicator do.
    int (*holders)(void *context, int tensor, int *index);
    // Brings the tensor within reach of `read`. Collective over its holders, which all fetch the
    // same tensors in the same order. NULL: nothing to bring.
    tri_status (*fetch)(void *context, int tensor);
} tri_state_source;

// State to be filled. Every tensor that is wanted is written exactly once, in parts, in no
// particular order.
typedef struct tri_state_sink {
    const tri_state_tensor *tensors;
    int count;
    void *context;
    tri_status (*write)(void *context, int tensor, int64_t first, int64_t count, const void *from);
    bool (*wants)(void *context, int tensor); // false: it need not be read; NULL: all are wanted
} tri_state_sink;

// The value that ranks checkpoints (`checkpoint.monitor` and `mode` of the recipe).
typedef struct tri_checkpoint_monitor {
    const char *name; // "val_loss"; NULL: none
    bool larger_is_better;
    bool is_known; // false, or not finite: this checkpoint has no value
    double value;
} tri_checkpoint_monitor;

typedef struct tri_checkpoint_save_request {
    const char *run_dir;
    int64_t step;
    const tri_state_source *model;
    const tri_state_source *optimizer; // NULL: no such file
    const tri_tree *training;          // a map; the loop's own state, given back by load
    const char *recipe;                // resolved, as YAML; NULL: none
    tri_checkpoint_monitor monitor;
    int64_t save_top_k;  // -1: keep all
    tri_comm *comm;      // NULL: one rank alone
    int64_t chunk_bytes; // hashed and written at once, a multiple of 8; 0: the default
    // Most bytes of this rank's snapshot (tri_checkpoint_save_begin); 0 on all ranks: none.
    int64_t snapshot_bytes;
} tri_checkpoint_save_request;

// Collective. Commits RUN/checkpoints/step-XXXXXXXX, points `last` (and `best`) at it, then removes
// what retention does not keep: the newest, the one before it (what a damaged newest falls back
// to), and the `save_top_k` best. A step that is there already is replaced. On failure every rank
// returns the same status, naming the rank; nothing of the new checkpoint is left and all earlier
// ones stay. TRI_NO_SPACE, TRI_IO, what the source fails with, what the communicator fails with.
// What fails after the commit (a link, a removal) is a warning: the checkpoint is there.
tri_status tri_checkpoint_save(const tri_checkpoint_save_request *request);

// The same in stages, for a save behind the training: `begin` copies what this rank writes, and a
// thread hashes and writes the copy. If that does not fit on every rank, all write at once. When
// each rank is ready, or one has failed, all `advance`: after the first stage rank 0 commits, on a
// thread again; after the second the save has ended. What the request points to lives until then,
// its sources only for the time of `begin`.
typedef struct tri_checkpoint_saving tri_checkpoint_saving;
typedef enum tri_checkpoint_saving_state {
    TRI_SAVING_BUSY,
    TRI_SAVING_READY, // for `advance`, if all are
    TRI_SAVING_FAILED // for `advance`, whatever the others are: those that are busy give up
} tri_checkpoint_saving_state;

// Collective. On failure there is nothing to end.
tri_status tri_checkpoint_save_begin(const tri_checkpoint_save_request *request,
                                     tri_checkpoint_saving **out);
// True if the state was copied and may change; the same on all ranks.
bool tri_checkpoint_save_is_behind(const tri_checkpoint_saving *saving);
tri_checkpoint_saving_state tri_checkpoint_save_state(const tri_checkpoint_saving *saving);
// Collective. *ended: `saving` is gone and the status is what tri_checkpoint_save returns.
tri_status tri_checkpoint_save_advance(tri_checkpoint_saving *saving, bool *ended);
// Collective: waits, and advances to the end.
tri_status tri_checkpoint_save_finish(tri_checkpoint_saving *saving);
// Not collective, where the ranks have lost each other: nothing is left, unless it is committed
// already. NULL allowed.
void tri_checkpoint_save_abandon(tri_checkpoint_saving *saving);

// Removes what killed saves left in RUN/checkpoints. For one process at a run's start; finding by
// auto begins with it. No such folder is no failure.
tri_status tri_checkpoint_clean(const char *run_dir);

// Which checkpoint to go on from: `resume` is auto, never or a path. *out: the step's folder, in
// `arena`, fully verified; NULL: start anew.
//   auto   the newest of RUN that verifies; a warning line names each damaged one. None that
//          verifies, though there are some: TRI_CORRUPT.
//   never  TRI_BAD_INPUT if RUN is not empty.
//   path   a step's folder, a link to one, or a run directory (its newest). Damaged: TRI_CORRUPT
//          naming file and tensor; weights only: TRI_BAD_INPUT; TRI_NOT_FOUND.
// Collective if `comm` is not NULL: rank 0 looks, all verify a part each and get its answer.
tri_status tri_checkpoint_find(tri_arena *arena, tri_comm *comm, const char *run_dir,
                               const char *resume, const char **out);

// The same of a rank alone, before anything is verified: what find looks at first.
// tri_checkpoint_load_whole verifies it as find does.
tri_status tri_checkpoint_find_first(tri_arena *arena, const char *run_dir, const char *resume,
                                     const char **out);

// What state.json says, in the arena it was read into.
typedef struct tri_checkpoint_info {
    int64_t step;
    int64_t commit;           // counts the commits of a run directory: the largest is the newest
    int64_t saved_unix_s;     // when, by the clock of rank 0
    const char *program;      // "trireme 0.1.0"
    const char *recipe;       // NULL: none was saved
    const tri_tree *training; // what was given to save
    tri_checkpoint_monitor monitor;
} tri_checkpoint_info;

// Reads state.json of a path as tri_checkpoint_find takes it; the tensors are not looked at.
tri_status tri_checkpoint_read_info(tri_arena *arena, const char *path, tri_checkpoint_info *out);

// Reads a checkpoint (a path as tri_checkpoint_find takes it) into the sinks; NULL: not wanted.
// Each rank reads what its sinks want. Every chunk is verified before its sink sees it.
// TRI_CORRUPT, TRI_NOT_FOUND, TRI_IO; TRI_BAD_INPUT if tensors are missing, too many, or differ in
// dtype or shape. `out` may be NULL, then `arena` may be too.
tri_status tri_checkpoint_load(tri_arena *arena, const char *path, const tri_state_sink *model,
                               const tri_state_sink *optimizer, tri_checkpoint_info *out);

// The same, and every byte of the checkpoint is verified, whatever the sinks want: what find and
// load do together, with each file read once. Sinks may have been written to when it fails.
tri_status tri_checkpoint_load_whole(tri_arena *arena, const char *path,
                                     const tri_state_sink *model, const tri_state_sink *optimizer,
                                     tri_checkpoint_info *out);

// Initial weights, by name: from a .safetensors file (known by content), the index of a sharded
// one, a folder with either, or a checkpoint. Buffers may be missing. F16, BF16 and F64 become F32
// where that is asked for. Errors as of tri_checkpoint_load.
tri_status tri_checkpoint_load_weights(const char *path, const tri_state_sink *model);
// Writes one .safetensors file, beside itself, synced and renamed.
tri_status tri_checkpoint_write_weights(const char *path, const tri_state_source *model);

// The commands. Results go to `out`; with `json` one object a line.

// The checkpoints of a run directory: step, epoch, monitored value, size, links, whether whole.
tri_status tri_checkpoint_list(const char *run_dir, bool json, FILE *out);
// Verifies a checkpoint, every checkpoint of a run directory, or a .safetensors file. TRI_CORRUPT
// with the first fault's message after all were looked at.
tri_status tri_checkpoint_verify(const char *path, bool json, FILE *out);
// The weights of `path` (as tri_checkpoint_load_weights takes it) as one .safetensors file.
// `dtype`: NULL keeps, else F32, F16, BF16 or F64 for floating tensors.
tri_status tri_checkpoint_export(const char *path, const char *out_path, const char *dtype);
// Compares the weights of two paths tensor by tensor, and the optimizer's state where both are
// checkpoints: largest absolute difference, relative L2. *differ: any bit, name, dtype or shape.
tri_status tri_checkpoint_diff(const char *a, const char *b, bool json, FILE *out, bool *differ);

#endif
