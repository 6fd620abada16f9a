// Safetensors files: 8 bytes with the length of the header, the header in JSON, then the tensors'
// bytes, contiguous. Format: https://github.com/huggingface/safetensors, "Format" in its README.
//
// An open file keeps only the header in memory; ranges of bytes of tensors are read when they are
// needed. For writing, the header and every tensor's offset are computed first, so that several
// processes can write ranges of one file.
#ifndef TRIREME_FORMAT_SAFETENSORS_H
#define TRIREME_FORMAT_SAFETENSORS_H

#include "base/arena.h"
#include "base/status.h"

#include <trireme/tensor.h>

typedef struct tri_safetensors tri_safetensors;

typedef struct tri_safetensors_entry {
    const char *name;
    tri_dtype dtype;
    tri_shape shape;
    int64_t offset;     // position of the first byte in the file
    int64_t size_bytes; // size of the elements, which are row-major and little-endian
} tri_safetensors_entry;

// Opens `path` and checks the whole header against the file's size; reads no tensor. Messages name
// file and tensor: TRI_NOT_FOUND, TRI_IO, TRI_CORRUPT (another format, truncated, a gap, an
// overlap, bytes at the end, a duplicate name, a wrong size), TRI_UNSUPPORTED (dtype, more than
// TRI_MAX_RANK axes). *out belongs to the caller until tri_safetensors_close.
tri_status tri_safetensors_open(const char *path, tri_safetensors **out);
void tri_safetensors_close(tri_safetensors *file); // NULL allowed

// Makes tensors of another format readable by the same functions: `entries`, of which copies are
// kept, say where they lie in the open file `fd`, which the result owns. `path` is for messages.
tri_safetensors *tri_safetensors_adopt(const char *path, int fd,
                                       const tri_safetensors_entry *entries, int count);

// The line of Python that makes a safetensors file (the second %s) of those that torch.save has
// written (the first %s, a path or pattern). A checkpoint of Lightning has the weights in
// `state_dict`; each tensor is copied, because two of one file may share memory.
#define TRI_SAFETENSORS_OF_TORCH                                                                   \
    "python3 -c \"import glob, torch, safetensors.torch as s; "                                    \
    "l = [torch.load(f, map_location='cpu', weights_only=True) for f in glob.glob('%s')]; "        \
    "s.save_file({k: v.clone().contiguous() for d in l for k, v in "                               \
    "d.get('state_dict', d).items()}, '%s')\""

// True if the first bytes of `path` look like this format. The suffix of the name does not matter,
// because users rename files.
bool tri_safetensors_probe(const char *path);

const char *tri_safetensors_path(const tri_safetensors *file);
// The size of the whole file.
// The file, as long as it is open, so that a tensor can be mapped.
int tri_safetensors_fd(const tri_safetensors *file);
int64_t tri_safetensors_size_bytes(const tri_safetensors *file);
int tri_safetensors_count(const tri_safetensors *file);
// Gets the index-th tensor in the order of the file. Entries live as long as the open file.
const tri_safetensors_entry *tri_safetensors_at(const tri_safetensors *file, int index);
const tri_safetensors_entry *tri_safetensors_find(const tri_safetensors *file,
                                                  const char *name); // NULL: there is none
// Gets a value from the header's __metadata__; NULL: there is none.
const char *tri_safetensors_metadata(const tri_safetensors *file, const char *key);

// Reads `size_bytes` bytes of a tensor from its byte `first` on, so that a tensor larger than
// memory can be read in chunks. Any number of threads may read at the same time.
tri_status tri_safetensors_read(const tri_safetensors *file, const tri_safetensors_entry *entry,
                                int64_t first, int64_t size_bytes, void *out);

typedef struct tri_safetensors_spec {
    const char *name;
    tri_dtype dtype;
    tri_shape shape;
} tri_safetensors_spec;

typedef struct tri_safetensors_pair {
    const char *key, *value;
} tri_safetensors_pair;

typedef struct tri_safetensors_layout {
    char *header; // the first bytes of the file: length, JSON, padding
    int64_t header_bytes;
    int count;
    tri_safetensors_entry *entries; // entries[i] tells where specs[i] lies in the file
    int *order;                     // entries[order[k]] is the k-th tensor in the file
    int64_t file_bytes;
} tri_safetensors_layout;

// Lays out a file of `count` tensors: larger element types first, then by name, so that every
// tensor is aligned. The header is padded with spaces to a multiple of 8. The result does not
// depend on the order of `specs`. It lies in `arena`; names are copied. TRI_BAD_INPUT: a name is
// used twice, is not UTF-8 or is "__metadata__", or a size overflows.
tri_status tri_safetensors_lay_out(tri_arena *arena, const tri_safetensors_spec *specs, int count,
                                   const tri_safetensors_pair *metadata, int metadata_count,
                                   tri_safetensors_layout *out);

// Writes a file from memory (data[i] contains specs[i]) atomically: to a temporary file, which is
// synced and then renamed.
tri_status tri_safetensors_write(const char *path, const tri_safetensors_spec *specs,
                                 const void *const *data, int count,
                                 const tri_safetensors_pair *metadata, int metadata_count);

#endif
