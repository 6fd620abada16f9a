// Recognises file formats by their first bytes, so that the error about a wrong file tells what the
// file is.
#include "data/content.h"

#include "base/os.h"
#include "format/safetensors.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

enum { HEAD_BYTES = 560, TAR_MAGIC = 257, NAME_START = 30 };

#define SAVE_NPZ "numpy.savez('data.npz', images=x, labels=y) writes what data.name=npy reads"
#define SAVE_TENSORS                                                                               \
    "safetensors.torch.save_file({'images': x, 'labels': y}, 'data.safetensors') writes what "     \
    "data.name=tensors reads"

// A file format. It is recognised by `bytes` at `offset`; formats without `bytes` are recognised by
// the functions below.
typedef struct content {
    const char *bytes;
    int size, offset;
    const char *what;   // text that completes "the file is …"
    const char *reader; // the data.name that reads such files; NULL: none
    const char *advice; // tells what to do; NULL: use `reader`
} content;

#define AT(position, text) .bytes = (text), .size = sizeof(text) - 1, .offset = (position)

static const content rows[] = {
    {AT(0, "\x93NUMPY"), "a NumPy array", "npy", NULL},
    {AT(0, "\x89HDF\r\n\x1a\n"), "an HDF5 file", "hdf5", NULL},
    {AT(0, "\x89PNG\r\n\x1a\n"), "one PNG image", NULL,
     "put the images into one array [N, C, H, W]: " SAVE_NPZ},
    {AT(0, "\xff\xd8\xff"), "one JPEG image", NULL,
     "put the images into one array [N, C, H, W]: " SAVE_NPZ},
    {AT(0, "GIF8"), "one GIF image", NULL, "put the images into one array [N, C, H, W]: " SAVE_NPZ},
    {AT(0, "II*\0"), "one TIFF image", NULL,
     "put the images into one array [N, C, H, W]: " SAVE_NPZ},
    {AT(8, "WEBP"), "one WebP image", NULL,
     "put the images into one array [N, C, H, W]: " SAVE_NPZ},
    {AT(0, "PAR1"), "a Parquet file", "parquet", NULL},
    {AT(0, "ARROW1"), "an Arrow file", NULL, "read it with pyarrow, and " SAVE_NPZ},
    {AT(16, "\xde\xc0\xef\xbe"), "an LMDB database", "lmdb", NULL},
    {AT(0, "SQLite format 3"), "an SQLite database", NULL, "read it in Python, and " SAVE_NPZ},
    {AT(0, "MATLAB 5.0"), "a MATLAB file", NULL, "read it with scipy.io.loadmat, and " SAVE_NPZ},
    {AT(TAR_MAGIC, "ustar"), "a tar archive", "webdataset", NULL},
    {AT(0, "\xfd"
           "7zXZ"),
     "xz-compressed", NULL, "unpack it first"},
    {AT(0, "\x28\xb5\x2f\xfd"), "zstd-compressed", NULL, "unpack it first"},
    {AT(0, "BZh"), "bzip2-compressed", NULL, "unpack it first"},
};

static const content folder = {.what = "a folder", .advice = "data.train names the file in it"};
static const content gzip = {
    .what = "gzip-compressed", .reader = NULL, .advice = "unpack it first"};
static const content idx = {.what = "an IDX file",
                            .reader = "idx",
                            .advice = "set data.name=idx, and data.path to its folder"};
static const content tensors = {.what = "a safetensors file", .reader = "tensors"};
static const content torch = {.what = "a PyTorch file (torch.save)",
                              .advice = "load it in Python, and " SAVE_TENSORS};
static const content pickle = {.what = "a Python pickle",
                               .advice = "load it in Python, and " SAVE_NPZ};
static const content npz = {.what = "an archive of NumPy arrays", .reader = "npy"};
static const content zip = {.what = "a zip archive", .advice = "unpack it first"};
static const content json = {.what = "JSON text", .advice = "read it in Python, and " SAVE_NPZ};
static const content table = {.what = "a table as text (CSV)", .reader = "csv"};

// True if the name of an archive's first member contains `name`. That name stands in the archive's
// first bytes, so the directory at the archive's end need not be read.
static bool has_member(const uint8_t *head, size_t size, const char *name) {
    return size > NAME_START && memmem(head + NAME_START, size - NAME_START, name, strlen(name));
}

static const content *look_into_zip(const uint8_t *head, size_t size) {
    if (has_member(head, size, "/data.pkl") || has_member(head, size, "/version")) return &torch;
    return has_member(head, size, ".npy") ? &npz : &zip;
}

static const content *look_at_text(const uint8_t *head, size_t size) {
    int commas = 0, others = 0;
    bool first_line = true;
    for (size_t i = 0; i < size; i++) {
        if (head[i] < ' ' && !memchr("\t\r\n", head[i], 3)) return NULL;
        if (head[i] >= 0x7f) return NULL;
        if (head[i] == '\n') first_line = false;
        if (!first_line) continue;
        commas += head[i] == ',' || head[i] == ';' || head[i] == '\t';
        others += head[i] == ' ';
    }
    if (size < 8) return NULL; // too short to be recognised
    if (*head == '{' || *head == '[') return &json;
    return commas > 0 && commas > others ? &table : NULL;
}

static const content *recognize(const uint8_t *head, size_t size) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const content *row = &rows[i];
        if (size >= (size_t)(row->offset + row->size) &&
            !memcmp(head + row->offset, row->bytes, (size_t)row->size))
            return row;
    }
    if (size < 4) return look_at_text(head, size);
    if (!memcmp(head, "PK\3\4", 4)) return look_into_zip(head, size);
    if (head[0] == 0x1f && head[1] == 0x8b && head[2] == 8) return &gzip;
    bool is_idx = head[0] == 0 && head[1] == 0 && head[2] >= 8 && head[2] <= 14;
    if (is_idx && head[3] >= 1 && head[3] <= 4) return &idx;
    // Before version 1.6, torch.save wrote a pickle that begins with a magic number.
    if (head[0] == 0x80 && head[1] == 2 && head[2] == 0x8a && head[3] == 0x0a) return &torch;
    if (head[0] == 0x80 && head[1] >= 2 && head[1] <= 5) return &pickle;
    return look_at_text(head, size);
}

// True if data sets of `kind` can read such a file.
static bool is_readable(const content *found, const char *kind) {
    if (found->reader && !strcmp(found->reader, kind)) return true;
    if (!strcmp(kind, "idx")) return found == &gzip;
    // These formats are no reason to reject a file of tokens. Any text can be tokens, also JSON or
    // a table. And a file of token numbers may begin with the few bytes by which a pickle or an IDX
    // file is recognised.
    if (!strcmp(kind, "tokens"))
        return found == &json || found == &table || found == &pickle || found == &idx;
    // A damaged line of JSON is reported by its number.
    if (!strcmp(kind, "jsonl")) return found == &json || found == &table;
    return false;
}

static const content *look(const char *path) {
    uint8_t head[HEAD_BYTES];
    struct stat info;
    int fd = tri_os.open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    if (fd < 0) return NULL;
    const content *found = NULL;
    if (fstat(fd, &info) == 0 && S_ISDIR(info.st_mode)) {
        found = &folder;
    } else if (S_ISREG(info.st_mode)) {
        size_t size = info.st_size < HEAD_BYTES ? (size_t)info.st_size : HEAD_BYTES;
        if (tri_os_pread_all(fd, head, size, 0, path) == TRI_OK)
            found = tri_safetensors_probe(path) ? &tensors : recognize(head, size);
    }
    tri_os.close(fd);
    return found;
}

tri_status tri_content_check(const char *path, const char *kind) {
    const content *found = look(path);
    if (!found || is_readable(found, kind)) return TRI_OK;
    char advice[32] = "";
    if (found->reader) snprintf(advice, sizeof advice, "set data.name=%s", found->reader);
    return TRI_FAIL(TRI_BAD_INPUT, "%s: is %s, which data.name=%s does not read: %s", path,
                    found->what, kind, found->advice ? found->advice : advice);
}
