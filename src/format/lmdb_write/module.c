// The module `lmdb`: writes LMDB databases by liblmdb. They are read without it (format/lmdb.h).
#include "base/module.h"
#include "format/lmdb_write/lmdb_write.h"

#include <errno.h>
#include <lmdb.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct tri_lmdb_writer {
    MDB_env *environment;
    MDB_dbi handle;
};

enum { FIRST_MAP_BYTES = 64 << 20 };

static tri_status fail(int error, char *why) {
    snprintf(why, TRI_LMDB_WRITE_WHY_BYTES, "%s", mdb_strerror(error));
    if (error == ENOMEM) return TRI_NO_MEMORY;
    return error == ENOSPC ? TRI_NO_SPACE : error > 0 ? TRI_IO : TRI_CORRUPT;
}

static void close_writer(tri_lmdb_writer *w) {
    if (w->environment) mdb_env_close(w->environment);
    free(w);
}

static int open_environment(tri_lmdb_writer *w, const char *path) {
    MDB_txn *transaction;
    int error = mdb_env_create(&w->environment);
    if (error == 0) error = mdb_env_set_mapsize(w->environment, FIRST_MAP_BYTES);
    if (error == 0)
        error = mdb_env_open(w->environment, path, MDB_NOSUBDIR | MDB_NOLOCK | MDB_NOSYNC, 0666);
    if (error == 0) error = mdb_txn_begin(w->environment, NULL, 0, &transaction);
    if (error != 0) return error;
    error = mdb_dbi_open(transaction, NULL, 0, &w->handle);
    if (error == 0) return mdb_txn_commit(transaction);
    mdb_txn_abort(transaction);
    return error;
}

static tri_status open_writer(const char *path, tri_lmdb_writer **out, char *why) {
    tri_lmdb_writer *w = *out = calloc(1, sizeof *w);
    if (!w) return fail(ENOMEM, why);
    int error = open_environment(w, path);
    if (error == 0) return TRI_OK;
    close_writer(w);
    *out = NULL;
    return fail(error, why);
}

static int put_all(tri_lmdb_writer *w, const tri_lmdb_bytes *keys, const tri_lmdb_bytes *values,
                   int count) {
    MDB_txn *transaction;
    int error = mdb_txn_begin(w->environment, NULL, 0, &transaction);
    if (error != 0) return error;
    for (int i = 0; i < count && error == 0; i++) {
        MDB_val key = {keys[i].size, (void *)(uintptr_t)keys[i].data},
                value = {values[i].size, (void *)(uintptr_t)values[i].data};
        error = mdb_put(transaction, w->handle, &key, &value, 0);
    }
    if (error == 0) return mdb_txn_commit(transaction);
    mdb_txn_abort(transaction);
    return error;
}

// The library has to be told how large a file may become. When it is full, that is doubled.
static tri_status put(tri_lmdb_writer *w, const tri_lmdb_bytes *keys, const tri_lmdb_bytes *values,
                      int count, char *why) {
    int error = put_all(w, keys, values, count);
    while (error == MDB_MAP_FULL) {
        MDB_envinfo info;
        error = mdb_env_info(w->environment, &info);
        if (error == 0) error = mdb_env_set_mapsize(w->environment, 2 * info.me_mapsize);
        if (error == 0) error = put_all(w, keys, values, count);
    }
    return error ? fail(error, why) : TRI_OK;
}

static tri_status sync_all(tri_lmdb_writer *w, char *why) {
    int error = mdb_env_sync(w->environment, 1);
    return error ? fail(error, why) : TRI_OK;
}

static const tri_lmdb_write table = {
    .open = open_writer, .put = put, .sync = sync_all, .close = close_writer};

TRI_MODULE(TRI_LMDB_WRITE_INTERFACE, TRI_LMDB_WRITE_ABI, "lmdb", &table);
