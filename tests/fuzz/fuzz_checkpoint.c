// Reads arbitrary bytes as a checkpoint's state.json, with or without the correct hash at the end,
// and as the index of a sharded model.
#include "base/os.h"
#include "checkpoint/verify.h"
#include "checkpoint/weights.h"
#include "format/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[64];

static void remove_folder(void) { tri_os_remove_tree(folder); }

static const char *in_folder(const char *name) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void make_folder(void) {
    static const float values[] = {1, 2};
    const tri_safetensors_spec spec = {"w", TRI_F32, tri_shape_of(2)};
    const tri_safetensors_pair step = {"step", "1"};
    const void *tensors[] = {values};
    snprintf(folder, sizeof folder, "/tmp/trireme-fuzz-XXXXXX");
    TRI_ASSERT(mkdtemp(folder));
    atexit(remove_folder);
    TRI_ASSERT(tri_safetensors_write(in_folder("model.safetensors"), &spec, tensors, 1, &step, 1) ==
               TRI_OK);
}

static void put(const char *name, const void *data, size_t size) {
    FILE *file = fopen(in_folder(name), "wb");
    TRI_ASSERT(file && fwrite(data, 1, size, file) == size);
    fclose(file);
}

// Appends to the text of a state.json the SHA-256 that has to be its last member.
static void put_sealed(const uint8_t *data, size_t size) {
    unsigned char hash[CHECKPOINT_HASH_BYTES];
    char *text = malloc(size + 128);
    TRI_ASSERT(text && checkpoint_hash(data, (int64_t)size, hash) == TRI_OK);
    memcpy(text, data, size);
    size_t used = size + (size_t)snprintf(text + size, 128, ",\"sha256\":\"");
    for (int i = 0; i < CHECKPOINT_HASH_BYTES; i++, used += 2)
        snprintf(text + used, 3, "%02x", hash[i]);
    memcpy(text + used, "\"}", 2);
    put("state.json", text, used + 2);
    free(text);
}

static void read_checkpoint(tri_arena *arena) {
    checkpoint_manifest manifest;
    if (checkpoint_manifest_read(arena, folder, &manifest) != TRI_OK) {
        TRI_ASSERT(strstr(tri_error_message(), folder));
        return;
    }
    TRI_ASSERT(manifest.file_count > 0 && checkpoint_manifest_bytes(&manifest) != -1);
    char *text;
    size_t size;
    TRI_ASSERT(checkpoint_manifest_text(arena, &manifest, &text, &size) == TRI_OK);
    if (checkpoint_verify(arena, folder, &manifest) != TRI_OK)
        TRI_ASSERT(strstr(tri_error_message(), folder));
}

static void read_index(tri_arena *arena) {
    checkpoint_weights weights;
    tri_status status =
        checkpoint_weights_open(arena, in_folder("model.safetensors.index.json"), false, &weights);
    if (status == TRI_OK) TRI_ASSERT(checkpoint_weights_find(&weights, "w") == 0);
    checkpoint_weights_close(&weights);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!folder[0]) make_folder();
    if (size == 0) return 0;
    tri_arena *arena = tri_arena_create(NULL, "fuzz");
    if (data[0] == 'i') {
        put("model.safetensors.index.json", data + 1, size - 1);
        read_index(arena);
    } else {
        if (data[0] == 's')
            put_sealed(data + 1, size - 1);
        else
            put("state.json", data + 1, size - 1);
        read_checkpoint(arena);
    }
    tri_arena_destroy(arena);
    return 0;
}
