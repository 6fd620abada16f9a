// Checkpoints: whole tensors in one canonical layout, committed atomically, verified when read.
//
//     RUN/checkpoints/step-00000938/model.safetensors      weights and buffers, PyTorch's names
//                                   optimizer.safetensors  "conv1.weight.exp_avg", …
//                                   state.json             step, training state, recipe, SHA-256s
//     RUN/checkpoints/last, best                           symbolic links
//
// Each tensor is hashed in chunks of fixed size, so that an error names the damaged file and
// tensor; state.json ends in its own SHA-256. This room does not know which rank holds a tensor nor
// how a device lays it out: a source supplies elements in row-major order, a sink accepts them, and
// no call moves more than one chunk.
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
    bool is_buffer; // not trained (running statistics, counters): initial weights may lack it
} tri_state_tensor;

enum { TRI_NOT_A_HOLDER = -1 }; // index of a rank that does not hold the tensor

// Where a save reads tensors from. The save borrows it until its call returns. `tensors` may be in
// any order: the file's order follows from their names.
typedef struct tri_state_source {
    const tri_state_tensor *tensors;
    int count;
    void *context;
    // Copies elements first … first + count - 1 of tensors[tensor], row-major, packed, to `to`.
    tri_status (*read)(void *context, int tensor, int64_t first, int64_t count, void *to);
    // How many ranks can read tensors[tensor], the same on every rank, so that they can divide the
    // tensor's chunks. *index: this rank's number among them, or TRI_NOT_A_HOLDER. NULL: all ranks
    // of the communicator can.
    int (*holder_count)(void *context, int tensor, int *index);
    // Makes the tensor readable: gathers its shards, for example. Collective over the ranks that
    // hold it, which all fetch the same tensors in the same order. NULL: tensors are always
    // readable.
    tri_status (*fetch)(void *context, int tensor);
} tri_state_source;

// Where a load writes tensors to. It writes every element of a wanted tensor exactly once, a chunk
// at a time, in any order.
typedef struct tri_state_sink {
    const tri_state_tensor *tensors;
    int count;
    void *context;
    tri_status (*write)(void *context, int tensor, int64_t first, int64_t count, const void *from);
    // Whether the tensor has to be loaded; false: the load skips it, so that a rank reads only what
    // it holds. NULL: every tensor is wanted.
    bool (*is_wanted)(void *context, int tensor);
} tri_state_sink;

// The metric by which checkpoints are ranked (`checkpoint.monitor` and `mode` of the recipe).
typedef struct tri_checkpoint_monitor {
    const char *name; // "val_loss"; NULL: none
    bool larger_is_better;
    bool is_known; // false, or a value that is not finite: this checkpoint is not ranked
    double value;
} tri_checkpoint_monitor;

typedef struct tri_checkpoint_save_request {
    const char *run_dir;
    int64_t step;
    const tri_state_source *model;
    const tri_state_source *optimizer; // NULL: no optimizer.safetensors
    const tri_tree *training;          // a map: the training loop's own state, which load returns
    const char *recipe;                // resolved, as YAML; NULL: none
    tri_checkpoint_monitor monitor;
    int64_t save_top_k;  // -1: keep all
    tri_comm *comm;      // NULL: a single rank
    int64_t chunk_bytes; // hashed and written at once, a multiple of 8; 0: the default
    // The largest snapshot that this rank may allocate (tri_checkpoint_save_begin), because the
    // state needs memory a second time then. 0, on all ranks alike: the save takes no snapshot.
    int64_t snapshot_bytes;
    // Rank 0 calls it before the commit; if it fails, the save fails. So a run that another one has
    // replaced commits nothing. NULL: nothing is asked. Called from any thread.
    tri_status (*admit)(void *context);
    void *admit_context;
} tri_checkpoint_save_request;

// Collective. Commits RUN/checkpoints/step-XXXXXXXX, points `last` (and `best`) at it, then removes
// the checkpoints that retention does not keep. It keeps the newest, the one before it (in case the
// newest is damaged) and the `save_top_k` best. A checkpoint of the same step is replaced.
// On failure every rank returns the same status and a message that names the failing rank; the new
// checkpoint leaves nothing behind and all earlier ones stay. TRI_NO_SPACE, TRI_IO, errors of the
// source and of the communicator. A failure after the commit (a link, a removal) is only a warning.
tri_status tri_checkpoint_save(const tri_checkpoint_save_request *request);

// A save in progress. `begin` copies the data that this rank writes into a snapshot; a thread then
// hashes and writes the snapshot while training continues. If the snapshot does not fit into memory
// on every rank, `begin` writes at once instead. A save has two stages: first all ranks write, then
// rank 0 commits. All ranks call `advance` together when every rank has finished a stage or one has
// failed; the second call ends the save. The request's pointers must stay valid until then, its
// sources only until `begin` returns.
typedef struct tri_pending_save tri_pending_save;
typedef enum tri_save_state {
    TRI_SAVE_BUSY,  // the stage is running
    TRI_SAVE_READY, // the stage is done: advance once all ranks are ready
    TRI_SAVE_FAILED // advance at once: ranks that are busy then cancel their stage
} tri_save_state;

// Collective. On failure *out is NULL, and the save leaves nothing behind.
tri_status tri_checkpoint_save_begin(const tri_checkpoint_save_request *request,
                                     tri_pending_save **out);
// True if the save works on a snapshot, so that training may change the state. The same on all
// ranks.
bool tri_checkpoint_save_is_async(const tri_pending_save *save);
tri_save_state tri_checkpoint_save_state(const tri_pending_save *save);
// Goes on to the next stage, or ends the save. Collective. *ended: `save` has been freed, and the
// status is what tri_checkpoint_save returns.
tri_status tri_checkpoint_save_advance(tri_pending_save *save, bool *ended);
// Waits for both stages and frees `save`. Collective.
tri_status tri_checkpoint_save_finish(tri_pending_save *save);
// Cancels a save after the communicator has failed; not collective. Leaves nothing behind, unless
// the checkpoint is already committed. NULL allowed.
void tri_checkpoint_save_abandon(tri_pending_save *save);

// Removes what killed saves left in RUN/checkpoints. One process calls it when a run starts,
// because a living save's files would be removed as well; `--resume auto` does so too. A missing
// folder is no error.
tri_status tri_checkpoint_clean(const char *run_dir);

// Chooses the checkpoint to resume from. `resume` is auto, never or a path. *out is the step's
// folder, in `arena`, with every byte verified; NULL: start from step 0.
//   auto   the newest checkpoint of RUN that verifies, with a warning for each damaged one.
//          TRI_CORRUPT if there are checkpoints but none verifies.
//   never  TRI_BAD_INPUT if RUN is not empty.
//   path   a step's folder, a link to one, or a run folder (its newest). TRI_CORRUPT names the
//          damaged file and tensor; TRI_BAD_INPUT for a file of weights alone; TRI_NOT_FOUND.
// Collective if `comm` is not NULL: rank 0 chooses, and each rank verifies as many chunks as the
// others. A file that rank 0 sees and another rank does not is waited for (checkpoint/late.h).
tri_status tri_checkpoint_find(tri_arena *arena, tri_comm *comm, const char *run_dir,
                               const char *resume, const char **out);

// Finds the first candidate of tri_checkpoint_find, not verified. Not collective: a single rank
// uses it that verifies while it loads, with tri_checkpoint_load_whole.
tri_status tri_checkpoint_find_first(tri_arena *arena, const char *run_dir, const char *resume,
                                     const char **out);

// The contents of state.json. They lie in the arena of the call that read them.
typedef struct tri_checkpoint_info {
    int64_t step;
    int64_t commit;           // counts the commits of a run folder: the largest is the newest
    int64_t saved_unix_s;     // by the clock of rank 0
    const char *program;      // "trireme 0.1.0"
    const char *recipe;       // NULL: none was saved
    const tri_tree *training; // the map that was passed to save
    tri_checkpoint_monitor monitor;
} tri_checkpoint_info;

// Reads only the state.json of `path`, which is a path as for tri_checkpoint_find, for those who
// need no tensors.
tri_status tri_checkpoint_read_info(tri_arena *arena, const char *path, tri_checkpoint_info *out);

// Reads a checkpoint (a path as for tri_checkpoint_find) into the sinks; a sink that is NULL is
// skipped. Each rank reads the tensors that its own sinks want. Every chunk is verified before it
// is passed to a sink. TRI_CORRUPT, TRI_NOT_FOUND, TRI_IO; TRI_BAD_INPUT if the sink and the file
// differ in their tensors' names, dtypes or shapes. `out` may be NULL, and `arena` then too.
tri_status tri_checkpoint_load(tri_arena *arena, const char *path, const tri_state_sink *model,
                               const tri_state_sink *optimizer, tri_checkpoint_info *out);

// As tri_checkpoint_load, but verifies every byte of the checkpoint, also of tensors that no sink
// wants: find and load in one, reading each file once. When it fails, sinks may have been written.
tri_status tri_checkpoint_load_whole(tri_arena *arena, const char *path,
                                     const tri_state_sink *model, const tri_state_sink *optimizer,
                                     tri_checkpoint_info *out);

// Reads initial weights by name: from a .safetensors file (recognised by its content), the index of
// a sharded one, a folder with either, or a checkpoint. Buffers may be missing. F16, BF16 and F64
// are converted where the sink's tensor is F32. Errors as of tri_checkpoint_load.
tri_status tri_checkpoint_load_weights(const char *path, const tri_state_sink *model);
// Writes one .safetensors file, atomically: to a temporary file, then synced and renamed, so that
// the file is never seen half written.
tri_status tri_checkpoint_write_weights(const char *path, const tri_state_source *model);

// The `trireme checkpoint` commands. They print to `out`; with `json`, one object per line.

// Lists the checkpoints of a run folder: step, epoch, monitored value, size, links, damage.
tri_status tri_checkpoint_list(const char *run_dir, bool json, FILE *out);
// Verifies a checkpoint, every checkpoint of a run folder, or a .safetensors file. Goes on after a
// damaged one, so that the user learns of all; then returns TRI_CORRUPT with the first message.
tri_status tri_checkpoint_verify(const char *path, bool json, FILE *out);
// Writes the weights of `path` (as for tri_checkpoint_load_weights) to one .safetensors file.
// `dtype` converts floating-point tensors to F32, F16, BF16 or F64; NULL keeps their types. Prints
// what was written to `out` unless it is NULL.
tri_status tri_checkpoint_export(const char *path, const char *out_path, const char *dtype,
                                 FILE *out);
// Compares the weights of two paths tensor by tensor, and the optimizer states where both are
// checkpoints: largest absolute difference, relative L2. *differ: any bit, name, dtype or shape.
tri_status tri_checkpoint_diff(const char *a, const char *b, bool json, FILE *out, bool *differ);

#endif
