// state.json: describes a checkpoint and contains the hashes of its files. Its last member is the
// SHA-256 of all bytes before that member, so that damage to state.json itself is noticed too.
//
//   {"format":1,"step":938,"commit":1,"saved_unix_s":1700000000,"program":"trireme 0.1.0",
//    "monitor":{"name":"val_loss","mode":"min","samples":"the 23 test samples","value":0.3301},
//    "training":{…},"recipe":"…","chunk_bytes":4194304,
//    "files":[{"name":"model.safetensors","bytes":4800160,"sha256":["…",…]},…],"sha256":"…"}
//
// monitor.value: null: not known. It is compared only with values of the same samples.
//
// commit: the checkpoints of a run folder are numbered as they are saved; the one with the largest
// number is the newest.
//
// A file has one hash for each of its chunks, in order. The first chunks are the header, with its
// byte count and padding; then come the tensors, in the order of the file. The header and each
// tensor are cut into chunks separately, every chunk_bytes from their first byte on. An empty
// tensor has no chunk.
#ifndef TRIREME_CHECKPOINT_MANIFEST_H
#define TRIREME_CHECKPOINT_MANIFEST_H

#include "checkpoint/chunk.h"

enum { CHECKPOINT_FORMAT = 1, CHECKPOINT_MAX_FILES = 3 };

#define CHECKPOINT_MODEL_FILE "model.safetensors"
#define CHECKPOINT_OPTIMIZER_FILE "optimizer.safetensors"
#define CHECKPOINT_AVERAGE_FILE "average.safetensors"
#define CHECKPOINT_STATE_FILE "state.json"

typedef struct checkpoint_file {
    const char *name;
    int64_t size_bytes;
    int chunk_count;
    // One hash for each chunk, in the order of the file.
    unsigned char (*hashes)[CHECKPOINT_HASH_BYTES];
} checkpoint_file;

typedef struct checkpoint_manifest {
    tri_checkpoint_info info;
    int64_t chunk_bytes;
    checkpoint_file files[CHECKPOINT_MAX_FILES];
    int file_count;
} checkpoint_manifest;

// Formats state.json, with its hash; *out lies in `arena`. TRI_UNSUPPORTED if it is too large.
tri_status checkpoint_manifest_text(tri_arena *arena, const checkpoint_manifest *manifest,
                                    char **out, size_t *size);
// Reads and checks FOLDER/state.json; *out lies in `arena`. TRI_CORRUPT, also if the file is
// missing or truncated; TRI_UNSUPPORTED for a later format.
tri_status checkpoint_manifest_read(tri_arena *arena, const char *folder, checkpoint_manifest *out);
// Finds a file of the checkpoint by its name; NULL: the checkpoint was saved without it.
const checkpoint_file *checkpoint_manifest_file(const checkpoint_manifest *manifest,
                                                const char *name);
// Counts the bytes of all files of the checkpoint except state.json.
int64_t checkpoint_manifest_bytes(const checkpoint_manifest *manifest);

#endif
