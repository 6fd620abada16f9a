// Files that are made of the data once and kept, because making them takes long: the tokens of
// text, an index of tar archives, the content of compressed ones. They may be deleted at any time.
#ifndef TRIREME_DATA_CACHE_H
#define TRIREME_DATA_CACHE_H

#include "base/arena.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

// By what a change of a file is noticed while it is in use.
typedef struct tri_file_state {
    int64_t size, seconds, nanoseconds; // its size and time of modification
} tri_file_state;

// Looks at a file of the data. TRI_NOT_FOUND; TRI_BAD_INPUT: it is no plain file.
tri_status tri_file_state_of(const char *path, tri_file_state *out);
// The same for an open file.
tri_status tri_file_state_of_open(int fd, const char *path, tri_file_state *out);
bool tri_file_state_equal(const tri_file_state *a, const tri_file_state *b);

enum { TRI_CACHE_KEY_BYTES = 32 };

// What such a file is made of.
typedef struct tri_cache_request {
    const char *folder;           // data.cache; NULL: the recipe does not set it
    const char *settings;         // all else on which the content depends, as text
    const char *suffix;           // of the file's name, such as ".u16"
    const char *const *paths;     // of the files of which it is made
    const tri_file_state *states; // of these
    int count;
    int blocks; // of each file are compared; 0: as many as tri_hash_files takes
} tri_cache_request;

// Where such a file lies: FOLDER/.NAME.IDENTITY-STATE and the suffix. NAME is that of the first
// file of which it is made. IDENTITY is a hash of the files' paths and of the settings, STATE one
// of the files' states and of parts of their content, since all files of an image may have one
// time. A file of the same identity and another state is stale. Numbers that only one host or mount
// gives to a file (inode, device, time of its last change of status) have no part in it: such a
// file is copied along with its data, packed into images, and shared.
typedef struct tri_cache {
    const char *path, *stem;          // the stem is the path without the suffix
    const char *lock;                 // is locked while the file is made
    const char *folder, *identity;    // FOLDER; .NAME.IDENTITY
    uint8_t key[TRI_CACHE_KEY_BYTES]; // a hash of all on which the content depends
} tri_cache;

// Finds the place of the file. FOLDER is data.cache or, if that is not set, the folder of the first
// file or the user's own folder for such files ($XDG_CACHE_HOME/trireme or ~/.cache/trireme): where
// the file is not there yet and nobody may write, or where another user keeps it from this one.
tri_status tri_cache_name(tri_arena *arena, const tri_cache_request *of, tri_cache *out);

// `find` looks whether the file is there and complete. `make` makes it.
typedef struct tri_cache_maker {
    tri_status (*find)(void *context, bool *found);
    tri_status (*make)(void *context);
    void *context;
} tri_cache_maker;

// Finds the file or makes it. If several processes need it at a time, also on several hosts, one
// makes it and the others wait, unless the file system has no locks: then each may make it. Stale
// files, and those that a killed process has left, are removed before another one is made.
tri_status tri_cache_once(const tri_cache *cache, const tri_cache_maker *maker);

#endif
