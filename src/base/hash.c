// Hashes files: see hash.h.
#include "base/hash.h"

#include "base/os.h"

#include <sys/stat.h>

static tri_status hash_blocks(int fd, const char *path, int64_t size, int blocks, uint64_t *hash) {
    unsigned char block[TRI_HASH_BLOCK_BYTES];
    int64_t count = (size + TRI_HASH_BLOCK_BYTES - 1) / TRI_HASH_BLOCK_BYTES;
    bool is_whole = count <= blocks;
    for (int64_t i = 0; i < (is_whole ? count : blocks); i++) {
        int64_t at = i * TRI_HASH_BLOCK_BYTES;
        if (!is_whole) at = blocks == 1 ? 0 : (size - TRI_HASH_BLOCK_BYTES) / (blocks - 1) * i;
        if (!is_whole && i == blocks - 1) at = size - TRI_HASH_BLOCK_BYTES;
        size_t length =
            (size_t)(size - at < TRI_HASH_BLOCK_BYTES ? size - at : TRI_HASH_BLOCK_BYTES);
        TRI_TRY(tri_os_pread_all(fd, block, length, at, path));
        *hash = tri_hash_bytes(*hash, block, length);
    }
    return TRI_OK;
}

tri_status tri_hash_file(const char *path, int blocks, uint64_t *hash) {
    struct stat info;
    int fd;
    TRI_TRY(tri_os_check_file(path));
    TRI_TRY(tri_os_open_input(path, &fd));
    tri_status status = fstat(fd, &info) == 0 ? TRI_OK : tri_os_fail("read", path);
    int64_t size = info.st_size;
    if (status == TRI_OK) {
        *hash = tri_hash_bytes(*hash, &size, sizeof size);
        status = hash_blocks(fd, path, size, blocks, hash);
    }
    tri_os.close(fd);
    return status;
}

// Many files have few blocks each, but at least their first and their last ones.
tri_status tri_hash_files(const char *const *paths, int count, uint64_t *hash) {
    int blocks = count > 0 ? TRI_HASH_FILE_BLOCKS / count : 0;
    int every = count / TRI_HASH_FILE_BLOCKS + 1; // so that few of many are opened
    for (int i = 0; i < count; i++) {
        struct stat info; // a folder, such as that of an LMDB database, is not read
        if (stat(paths[i], &info) != 0 || !S_ISREG(info.st_mode)) continue;
        *hash = tri_hash_bytes(*hash, &info.st_size, sizeof info.st_size);
        if (i % every == 0) TRI_TRY(tri_hash_file(paths[i], blocks < 2 ? 2 : blocks, hash));
    }
    return TRI_OK;
}
