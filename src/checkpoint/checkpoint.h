// Checkpoints: whole tensors in one canonical layout, committed atomically, verified when read.
//
//   RUN/checkpoints/step-00000938/model.safetensors      weights and buffers, PyTorch's names
//                                 optimizer.safetensors  "conv1.weight.exp_avg", …
//                                 average.safetensors    averaged weights, if there are any
//                                 state.json             step, training state, recipe, SHA-256s
//   RUN/checkpoints/last, best                           symbolic links
//   RUN/checkpoints/abandoned-1/step-00001876/           of a history that a resume has left
//
// Each tensor is hashed in chunks of fixed size, so that an error names the damaged file and
// tensor; the last entry of state.json is its own SHA-256. The code in this folder does not know
// which rank holds a tensor or how a device lays it out: a source supplies elements in row-major
// order, a sink accepts them, and no call transfers more than one chunk.
#ifndef TRIREME_CHECKPOINT_CHECKPOINT_H
#define TRIREME_CHECKPOINT_CHECKPOINT_H

#include "base/option.h"
#include "base/tree.h"
#include "comm/comm.h"

#include <trireme/tensor.h>

#include <stdio.h>

typedef struct tri_state_tensor {
    const char *name;
    tri_dtype dtype;
    // A half type in which a sink takes the elements of an F32 tensor; TRI_F32 (0): as they are.
    tri_dtype half;
    tri_shape shape;
    bool may_lack; // files of weights may lack it, which is then left as it is
    // The name under which files of initial weights may have the tensor too, or instead, because
    // two layers share it; NULL: none.
    const char *alias;
} tri_state_tensor;

// What tri_state_source.holder_count stores in *index on a rank that does not hold the tensor.
enum { TRI_NOT_A_HOLDER = -1 };

// Where a save reads tensors from. It must stay valid until tri_checkpoint_save or
// tri_checkpoint_save_begin returns. `tensors` may be in any order: in the file they are sorted by
// element size, the largest first, and then by name.
typedef struct tri_state_source {
    const tri_state_tensor *tensors;
    int count;
    void *context;
    // Copies elements first … first + count - 1 of tensors[tensor], row-major, packed, to `to`.
    tri_status (*read)(void *context, int tensor, int64_t first, int64_t count, void *to);
    // How many ranks hold tensors[tensor] and can read it. These ranks divide the tensor's chunks
    // among them, so the result must be the same on every rank. *index: this rank's number among
    // them, or TRI_NOT_A_HOLDER. NULL: all ranks of the communicator hold every tensor.
    int (*holder_count)(void *context, int tensor, int *index);
    // Makes the tensor readable, for example by gathering its shards. Collective over the ranks
    // that hold it; all of them fetch the same tensors in the same order. NULL: tensors are always
    // readable.
    tri_status (*fetch)(void *context, int tensor);
} tri_state_source;

// Where a load writes tensors to. A load writes every wanted element exactly once, a chunk at a
// time, in any order, and may write others.
typedef struct tri_state_sink {
    const tri_state_tensor *tensors;
    int count;
    void *context;
    tri_status (*write)(void *context, int tensor, int64_t first, int64_t count, const void *from);
    // Takes all of the tensor in place of writes, where it lies in a file, from byte `offset` on,
    // in the type in which writes have it. *is_mapped false: it has to be written. NULL: all have.
    tri_status (*map)(void *context, int tensor, int fd, int64_t offset, bool *is_mapped);
    // Finds the next run of elements, from element `at` on, that has to be loaded. Returns its
    // first element; *count: its length, 0: there is none. So a rank reads only what it holds.
    // NULL: every element is wanted.
    int64_t (*next_wanted)(void *context, int tensor, int64_t at, int64_t *count);
    // Whether tensors that do not match are logged, a line each, where they do not fit into the
    // message: of several ranks, only one has to.
    bool lists_mismatches;
} tri_state_sink;

// The metric by which checkpoints are ranked (`checkpoint.monitor` and `mode` of the recipe).
typedef struct tri_checkpoint_monitor {
    const char *name; // for example "val_loss"; NULL: checkpoints are not ranked
    // The samples from which the value is computed, in words. Values of other samples are not
    // compared with it. NULL: not known, as in checkpoints of older versions, or no evaluation.
    const char *samples;
    bool larger_is_better;
    bool is_known; // false, or a `value` that is not finite: this checkpoint is not ranked
    double value;
} tri_checkpoint_monitor;

// The key, in the map `training` of a checkpoint, of a map with the key `evaluates`: whether
// evaluations use the averages of the checkpoint.
#define TRI_CHECKPOINT_AVERAGE "average"

typedef struct tri_checkpoint_save_request {
    const char *run_dir;
    int64_t step;
    const tri_state_source *model;
    const tri_state_source *optimizer; // NULL: no optimizer.safetensors
    const tri_state_source *average;   // NULL: no average.safetensors
    const tri_tree *training;          // a map: the training loop's own state, which a load returns
    const char *recipe;                // the complete recipe as YAML; NULL: none is saved
    tri_checkpoint_monitor monitor;
    int64_t save_top_k; // how many of the best checkpoints to keep; -1: all checkpoints
    tri_comm *comm;     // all ranks of the run; NULL: there is a single rank
    // How many bytes are hashed and written at once, a multiple of 8; 0:
    // TRI_CHECKPOINT_CHUNK_BYTES.
    int64_t chunk_bytes;
    // How many bytes this rank may allocate for a snapshot (tri_checkpoint_save_begin), a second
    // copy of what the rank writes. 0: the save takes no snapshot; then all ranks must pass 0.
    int64_t snapshot_bytes;
    // Called on rank 0 before anything is written: makes sure that the run folder is there. NULL:
    // nothing is to be done.
    tri_status (*prepare)(void *context);
    void *prepare_context;
    // Called on rank 0 before the commit: returns TRI_OK if the processes of this run may commit,
    // else an error, with which the save fails. They may not if they have lost a rank, or if the
    // run was started again, so that other processes have replaced them. NULL: the save always
    // commits. Any thread may make the call.
    tri_status (*admit)(void *context);
    void *admit_context;
    // Set when the save ends: how many seconds the slowest rank worked for it. The time between the
    // two stages of the save (writing, commit) does not count, because the save then only waits
    // until all ranks have ended a training step. NULL: the caller does not want the number.
    double *worked_s;
} tri_checkpoint_save_request;

// Saves a checkpoint. Collective. Commits RUN/checkpoints/step-XXXXXXXX, points the link `last` at
// it and `best` at the best checkpoint, then removes old checkpoints. It keeps the newest, the one
// before it (in case the newest is damaged) and the `save_top_k` best. A checkpoint of the same
// step is replaced.
// On failure every rank returns the same status and a message that names the failing rank. Nothing
// remains of the new checkpoint, and all earlier ones stay. The status is TRI_NO_SPACE, TRI_IO, or
// an error of the source or of the communicator. A failure after the commit (to set a symbolic
// link, to remove an old checkpoint) is only a warning.
tri_status tri_checkpoint_save(const tri_checkpoint_save_request *request);

// Adds the results of an evaluation to the checkpoint of `step` in RUN, which was saved before it:
// replaces what its state.json says of `training` and `monitor` in one atomic step, points the link
// `best` at the best checkpoint, and removes old ones as tri_checkpoint_save does. Not collective:
// only rank 0 calls it, while no save is in progress. TRI_NOT_FOUND: RUN has no such checkpoint. A
// failure after state.json is replaced is only a warning.
tri_status tri_checkpoint_amend(const char *run_dir, int64_t step, const tri_tree *training,
                                const tri_checkpoint_monitor *monitor, int64_t save_top_k);
// Whether weights with this value of the monitored metric would be among the `save_top_k` best
// checkpoints of RUN. False if the value is not known, and if save_top_k is -1: if all checkpoints
// are kept, only those that are due are saved.
bool tri_checkpoint_ranks(const char *run_dir, const tri_checkpoint_monitor *monitor,
                          int64_t save_top_k);
// The best checkpoint of a run.
typedef struct tri_best_checkpoint {
    int64_t step;
    double value; // of the monitored metric
    // Its name in RUN/checkpoints: that of the link `best` or, if something else has this name, of
    // the checkpoint's folder.
    char name[32];
} tri_best_checkpoint;

// Finds the best checkpoint of RUN. False: RUN has none with a value of the metric monitor->name.
bool tri_checkpoint_find_best(const char *run_dir, const tri_checkpoint_monitor *monitor,
                              tri_best_checkpoint *out);

// A save in progress. tri_checkpoint_save_begin copies the data that this rank writes into a
// snapshot; a thread then hashes and writes the snapshot while training continues. If the snapshot
// does not fit into the memory of every rank, `begin` itself writes the data instead. A save has
// two stages: first all ranks write, then rank 0 commits. When every rank has finished a stage, or
// one has failed, all ranks call tri_checkpoint_save_advance together. The second call ends the
// save, or the first one if a rank has failed. The request's pointers must stay valid until then,
// but its sources only until `begin` returns.
typedef struct tri_pending_save tri_pending_save;
typedef enum tri_save_state {
    TRI_SAVE_BUSY,  // the present stage of the save (writing, commit) is running
    TRI_SAVE_READY, // this stage is done; call advance once all ranks are ready
    TRI_SAVE_FAILED // call advance at once; ranks that are still busy then cancel their stage
} tri_save_state;

// Begins a save. Collective. On failure *out is NULL, and nothing remains of the save.
tri_status tri_checkpoint_save_begin(const tri_checkpoint_save_request *request,
                                     tri_pending_save **out);
// True if the save works on a snapshot, so that training may change the state meanwhile. All ranks
// get the same answer.
bool tri_checkpoint_save_is_async(const tri_pending_save *save);
tri_save_state tri_checkpoint_save_state(const tri_pending_save *save);
// Begins the next stage (after all ranks have written, the commit), or ends the save. Collective.
// *ended: `save` has been freed, and the returned status is the one that tri_checkpoint_save would
// return.
tri_status tri_checkpoint_save_advance(tri_pending_save *save, bool *ended);
// Waits until all ranks have written and rank 0 has committed, or until the save has failed, and
// frees `save`. Collective.
tri_status tri_checkpoint_save_finish(tri_pending_save *save);
// Cancels a save after the communicator has failed; not collective. Nothing remains of the save,
// unless the checkpoint is already committed. NULL allowed.
void tri_checkpoint_save_abandon(tri_pending_save *save);

// Removes what killed saves left in RUN/checkpoints. If a save was killed while it replaced a
// checkpoint, restores the old one. Only one process may call it, and only when a run starts,
// because it would also remove the files of a save in progress. The functions that find a
// checkpoint also call it if `resume` is auto. A missing folder is not an error.
tri_status tri_checkpoint_clean(const char *run_dir);

// Chooses the checkpoint to resume from, and verifies its every byte. `resume` is auto, never or a
// path. *out is the path of the checkpoint's folder, allocated in `arena`; NULL: training starts
// from step 0.
//   auto   the newest intact checkpoint of RUN, with a warning for each damaged one.
//          TRI_CORRUPT: there are checkpoints but none is intact.
//   never  TRI_BAD_INPUT: RUN is not empty.
//   path   a step's folder, a link to one, or a run folder (its newest). TRI_CORRUPT: the message
//          names the damaged file and tensor. TRI_BAD_INPUT: it is a file of weights alone.
//          TRI_NOT_FOUND: there is no checkpoint.
// Collective if `comm` is not NULL: rank 0 chooses, and the ranks divide the chunks to verify
// evenly. If one rank sees a file that another rank does not see yet, the other one waits for it
// (checkpoint/late.h).
tri_status tri_checkpoint_find(tri_arena *arena, tri_comm *comm, const char *run_dir,
                               const char *resume, const char **out);

// Called on rank 0 before a run goes on from the checkpoint `resumed`: moves the checkpoints of RUN
// that were committed after it, or all if it is none of RUN, to a new folder
// RUN/checkpoints/abandoned-N, because they are not of the run's history any more: they must not be
// ranked as its best, nor be taken for its newest. *where is the folder, allocated in `arena`, and
// *count how many were moved; NULL and 0: there are none.
tri_status tri_checkpoint_put_aside(tri_arena *arena, const char *run_dir, const char *resumed,
                                    const char **where, int *count);

// Finds the checkpoint that tri_checkpoint_find would verify first, but does not verify it. Not
// collective: for a single rank, which then verifies and loads it in one go with
// tri_checkpoint_load_whole.
tri_status tri_checkpoint_find_first(tri_arena *arena, const char *run_dir, const char *resume,
                                     const char **out);

// The contents of state.json, in the arena of the call that read it.
typedef struct tri_checkpoint_info {
    int64_t step;
    // Commits in a run folder are numbered: the checkpoint with the largest number is the newest.
    int64_t commit;
    int64_t saved_unix_s;     // the time of the save, in seconds since 1970, by the clock of rank 0
    const char *program;      // "trireme 0.1.0"
    const char *recipe;       // NULL: no recipe was saved
    const tri_tree *training; // the map `training` that was passed to the save
    tri_checkpoint_monitor monitor;
} tri_checkpoint_info;

// Reads only the state.json of `path` (a path as for tri_checkpoint_find), for callers that need no
// tensors.
tri_status tri_checkpoint_read_info(tri_arena *arena, const char *path, tri_checkpoint_info *out);

// What a load reads the files of a checkpoint into; NULL: the file is not wanted.
typedef struct tri_checkpoint_sinks {
    const tri_state_sink *model, *optimizer, *average;
} tri_checkpoint_sinks;

// Reads a checkpoint (a path as for tri_checkpoint_find) into the sinks. Each
// rank reads the tensors that its own sinks want. Every chunk is verified before it is passed to a
// sink. TRI_CORRUPT, TRI_NOT_FOUND, TRI_IO; TRI_BAD_INPUT: sink and file differ in their tensors'
// names, dtypes or shapes. `out` may be NULL, and then `arena` too.
tri_status tri_checkpoint_load(tri_arena *arena, const char *path,
                               const tri_checkpoint_sinks *sinks, tri_checkpoint_info *out);

// As tri_checkpoint_load, but verifies every byte of the checkpoint, also of tensors that no sink
// wants. It reads each file only once, while tri_checkpoint_find and tri_checkpoint_load together
// would read it twice. If the call fails, some tensors may be in the sinks already.
tri_status tri_checkpoint_load_whole(tri_arena *arena, const char *path,
                                     const tri_checkpoint_sinks *sinks, tri_checkpoint_info *out);

// Reads initial weights by name, from a .safetensors file (recognised by its content), the index of
// a sharded one, a folder with either, or a checkpoint. Buffers may be missing. F16, BF16 and F64
// are converted if the sink's tensor is F32. A tensor may be there under its alias too, if both
// have the same values. Fails as tri_checkpoint_load does. `ignore`: patterns (`*` and `?`, as
// fnmatch) of tensors that are left out on both sides, so that the sink's stay as they are; NULL:
// none, and the message does not advise any. TRI_BAD_INPUT, too: a pattern that matches nothing.
// Of a checkpoint, what the sink wants is verified first.
tri_status tri_checkpoint_load_weights(const char *path, const tri_strings *ignore,
                                       const tri_state_sink *model);
// As tri_checkpoint_load_weights, but reads what evaluations of a checkpoint use: the averages if
// it has any that they use (TRI_CHECKPOINT_AVERAGE). *averaged: it has.
tri_status tri_checkpoint_load_evaluated(const char *path, const tri_state_sink *model,
                                         bool *averaged);
// Finds the half type of the matrices (tensors with two or more axes) of floats at the path;
// TRI_F32: they have another type, or several. Reads no tensor.
tri_status tri_checkpoint_weights_dtype(const char *path, tri_dtype *dtype);
// Mixes into *hash what the path of tri_checkpoint_load_weights holds, without reading all of it:
// the hashes of a checkpoint, or parts of each file. So two ranks that find other weights at the
// path get different hashes.
tri_status tri_checkpoint_hash_weights(const char *path, uint64_t *hash);
// Writes one .safetensors file atomically: to a temporary file, which is synced and then renamed,
// so that nobody ever sees a half-written file.
tri_status tri_checkpoint_write_weights(const char *path, const tri_state_source *model);

// The `trireme checkpoint` commands. They print to `out`; with `json`, one object per line.

// Lists the checkpoints of a run folder: step, epoch, monitored value, size, symbolic links to it
// (`last`, `best`), damage.
tri_status tri_checkpoint_list(const char *run_dir, bool json, FILE *out);
// Verifies a checkpoint, every checkpoint of a run folder, or a .safetensors file. It continues
// after a damaged one, so that the user learns of all; then it returns TRI_CORRUPT with the first
// message.
tri_status tri_checkpoint_verify(const char *path, bool json, FILE *out);
typedef enum tri_export_kind {
    TRI_EXPORT_ALL,      // all tensors as they are
    TRI_EXPORT_MERGED,   // the weights with what low-rank adapters (`lora`) add to them
    TRI_EXPORT_ADAPTERS, // adapters alone: a folder of peft, https://huggingface.co/docs/peft
} tri_export_kind;

// The key of the map tri_checkpoint_info.training that describes low-rank adapters: a map with
// `rank`, `alpha`, `dropout`, and `transposed`, a list of the layers whose weights files have
// transposed.
#define TRI_ADAPTERS "adapters"

// Writes the weights of `path` (as for tri_checkpoint_load_evaluated) to one .safetensors file, or
// adapters to the folder `out_path`, which is made if it is missing. `dtype` is the type to which
// floating-point tensors are converted: F32, F16, BF16 or F64; NULL keeps their types. `program` is
// the exported network of which the weights are (format/pt2.h): all that PyTorch's load_state_dict
// wants is written, also what a run does not train, and tied weights under all their names; NULL:
// they are of another model. Tells on `out` what was written; NULL: tells nothing. TRI_BAD_INPUT:
// adapters are wanted or to be merged, and `path` has none or is no checkpoint, which describes
// them; the weights are of another network.
tri_status tri_checkpoint_export(const char *path, tri_export_kind kind, const char *out_path,
                                 const char *dtype, const char *program, FILE *out);
// A file that an export writes beside the weights.
typedef struct tri_export_file {
    const char *name;
    const char *text; // its content; NULL: it is a copy of the file `from`
    const char *from;
} tri_export_file;

typedef struct tri_export_folder {
    const char *path;     // a new folder, or an empty one
    tri_export_kind kind; // not TRI_EXPORT_ADAPTERS
    const char *dtype;    // as for tri_checkpoint_export
    const char *program;  // as for tri_checkpoint_export
    int64_t shard_bytes;  // above which another file of weights begins
    const tri_export_file *files;
    int file_count;
} tri_export_folder;

// Writes the weights of `path` to a folder, with Hugging Face's names: model.safetensors, or
// model-00001-of-00002.safetensors … and model.safetensors.index.json. The folder appears when it
// is complete. TRI_BAD_INPUT: something is there, or there are adapters, which have to be merged.
// Tells on `out` what was written.
tri_status tri_checkpoint_export_folder(const char *path, const tri_export_folder *request,
                                        FILE *out);
// Compares the weights of two paths tensor by tensor, and the optimizer states and averages if both
// are checkpoints: largest absolute difference, relative L2. *differ: some bit, name, dtype or
// shape is different.
tri_status tri_checkpoint_diff(const char *a, const char *b, bool json, FILE *out, bool *differ);

#endif
