// A safetensors file cut into pieces: each lies in the header or in one tensor, is at most a chunk
// long, and is read, written and hashed at once. The cut follows from the header alone.
#ifndef TRIREME_CHECKPOINT_PIECE_H
#define TRIREME_CHECKPOINT_PIECE_H

#include "checkpoint/checkpoint.h"
#include "format/safetensors.h"

enum { CHECKPOINT_HASH_BYTES = 32 }; // SHA-256

typedef struct checkpoint_piece {
    int64_t offset; // from the start of the file
    int64_t size_bytes;
    int tensor; // index into the entries that were cut; -1: the header
} checkpoint_piece;

typedef struct checkpoint_pieces {
    checkpoint_piece *items;
    int count;
} checkpoint_pieces;

// entries[order[k]] lies k-th in the file; order NULL: entries[k] does. TRI_UNSUPPORTED: more than
// TRI_MAX_CHECKPOINT_PIECES.
tri_status checkpoint_cut(tri_arena *arena, int64_t header_bytes,
                          const tri_safetensors_entry *entries, const int *order, int count,
                          int64_t chunk_bytes, checkpoint_pieces *out);
// The same of an open file; *entries: a copy of its entries, which pieces index.
tri_status checkpoint_cut_file(tri_arena *arena, const tri_safetensors *file, int64_t chunk_bytes,
                               const tri_safetensors_entry **entries, checkpoint_pieces *out);

tri_status checkpoint_hash(const void *data, int64_t size_bytes,
                           unsigned char out[CHECKPOINT_HASH_BYTES]);

// A file about to be written: where all its bytes go and come from.
typedef struct checkpoint_image {
    tri_safetensors_layout layout;
    checkpoint_pieces pieces;
    const tri_state_source *source;
    int64_t largest_bytes; // of a piece
} checkpoint_image;

tri_status checkpoint_image_plan(tri_arena *arena, const tri_state_source *source,
                                 const tri_safetensors_pair *metadata, int metadata_count,
                                 int64_t chunk_bytes, checkpoint_image *out);
// The bytes of one piece into `buffer`.
tri_status checkpoint_image_read(const checkpoint_image *image, const checkpoint_piece *piece,
                                 void *buffer);

#endif
