// Cuts a safetensors file into chunks. A chunk is read, written and hashed as one, so that memory
// is bounded and ranks can divide the work. Each chunk lies in the header or in one tensor. The
// header alone determines the chunks, so all ranks cut in the same way.
#ifndef TRIREME_CHECKPOINT_CHUNK_H
#define TRIREME_CHECKPOINT_CHUNK_H

#include "checkpoint/checkpoint.h"
#include "format/safetensors.h"

enum { CHECKPOINT_HASH_BYTES = 32 }; // the length of a SHA-256

enum { CHECKPOINT_HEADER = -1 }; // value of `tensor` for a chunk of the header

typedef struct checkpoint_chunk {
    int64_t offset; // where the data begin, in bytes from the start of the file
    int64_t size_bytes;
    int tensor; // index of its tensor in the file's list of entries, or CHECKPOINT_HEADER
} checkpoint_chunk;

typedef struct checkpoint_chunks {
    checkpoint_chunk *items; // the chunks, in the order in which they lie in the file
    int count;
} checkpoint_chunks;

// Cuts a file with a header of header_bytes and `count` tensors into chunks of at most chunk_bytes.
// entries[order[k]] is the k-th tensor in the file; with order NULL it is entries[k].
// TRI_UNSUPPORTED: there would be too many chunks (TRI_MAX_CHECKPOINT_CHUNKS); with a larger
// chunk_bytes there are fewer. One chunk for each tensor is always allowed.
tri_status checkpoint_cut(tri_arena *arena, int64_t header_bytes,
                          const tri_safetensors_entry *entries, const int *order, int count,
                          int64_t chunk_bytes, checkpoint_chunks *out);
// Cuts an open file into chunks. *entries is a copy of the file's entries; the member `tensor` of a
// chunk is an index into it.
tri_status checkpoint_cut_file(tri_arena *arena, const tri_safetensors *file, int64_t chunk_bytes,
                               const tri_safetensors_entry **entries, checkpoint_chunks *out);

// Computes the SHA-256 of `size_bytes` bytes.
tri_status checkpoint_hash(const void *data, int64_t size_bytes,
                           unsigned char out[CHECKPOINT_HASH_BYTES]);

// A file to be written: its header, its chunks and the source of its tensors. The whole file never
// exists in memory, because it may be larger than the memory.
typedef struct checkpoint_image {
    tri_safetensors_layout layout;
    checkpoint_chunks chunks;
    const tri_state_source *source; // the caller keeps it alive
    int64_t largest_bytes;          // size of the largest chunk
} checkpoint_image;

// Lays out the safetensors file of the source's tensors, and cuts it into chunks; *out lies in
// `arena`. Fails as checkpoint_cut does.
tri_status checkpoint_image_plan(tri_arena *arena, const tri_state_source *source,
                                 const tri_safetensors_pair *metadata, int metadata_count,
                                 int64_t chunk_bytes, checkpoint_image *out);
// Copies the bytes of one chunk, from the header or the source, into `buffer`.
tri_status checkpoint_image_read(const checkpoint_image *image, const checkpoint_chunk *chunk,
                                 void *buffer);

#endif
