// state.json: what a checkpoint is and the hashes of its files. Its last member is the SHA-256 of
// all bytes before that member, so that no bit of it goes unnoticed either.
//
//     {"format":1,"step":938,"commit":1,"saved_unix_s":1700000000,"program":"trireme 0.1.0",
//      "monitor":{"name":"val_loss","mode":"min","value":0.3301},   (value null: not known)
//      "training":{…},"recipe":"…","chunk_bytes":4194304,
//      "files":[{"name":"model.safetensors","bytes":4800160,"sha256":["…",…]},…],"sha256":"…"}
//
// A file's hashes are of its pieces, in order: the header (count and padding with it), then each
// tensor as it lies in the file, both cut every chunk_bytes; empty tensors have none.
#ifndef TRIREME_CHECKPOINT_MANIFEST_H
#define TRIREME_CHECKPOINT_MANIFEST_H

#include "checkpoint/piece.h"

enum { CHECKPOINT_FORMAT = 1, CHECKPOINT_MAX_FILES = 2 };

#define CHECKPOINT_MODEL_FILE "model.safetensors"
#define CHECKPOINT_OPTIMIZER_FILE "optimizer.safetensors"
#define CHECKPOINT_STATE_FILE "state.json"

typedef struct checkpoint_file {
    const char *name;
    int64_t size_bytes;
    int piece_count;
    unsigned char (*hashes)[CHECKPOINT_HASH_BYTES]; // of the pieces, in the order of the file
} checkpoint_file;

typedef struct checkpoint_manifest {
    tri_checkpoint_info info;
    int64_t chunk_bytes;
    checkpoint_file files[CHECKPOINT_MAX_FILES];
    int file_count;
} checkpoint_manifest;

// The text of state.json.
tri_status checkpoint_manifest_text(tri_arena *arena, const checkpoint_manifest *manifest,
                                    char **out, size_t *size);
// Reads FOLDER/state.json. TRI_CORRUPT (missing and cut ones too), TRI_UNSUPPORTED (a later
// format).
tri_status checkpoint_manifest_read(tri_arena *arena, const char *folder, checkpoint_manifest *out);
// Of the whole checkpoint, state.json left out.
int64_t checkpoint_manifest_bytes(const checkpoint_manifest *manifest);

#endif
