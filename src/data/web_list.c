// Finds the samples of a tar archive by the names of its files.
#include "data/web_list.h"

#include "base/buffer.h"
#include "base/limits.h"
#include "base/os.h"
#include "format/tar.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

// Splits a member's name into key and field. False: it has no dot, or begins with one, so it
// belongs to no sample.
static bool split_name(const char *name, size_t *key_length, const char **field) {
    const char *slash = strrchr(name, '/'), *dot = strchr(slash ? slash + 1 : name, '.');
    if (!dot || dot == (slash ? slash + 1 : name)) return false;
    *key_length = (size_t)(dot - name);
    *field = dot + 1;
    return true;
}

static bool is_image_field(const char *field) {
    static const char *const names[] = {"jpg", "jpeg", "png", "webp", "bmp", "ppm", "pgm"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcasecmp(field, names[i])) return true;
    return false;
}

static bool is_label(const char *name) {
    size_t length;
    const char *field;
    return split_name(name, &length, &field) && !strcasecmp(field, "cls");
}

// The sample whose members are being listed.
typedef struct listing {
    web_list *list;
    tri_buffer key;
    size_t key_length;
    bool has_key; // false: no sample has begun
    tri_tar_sample current;
    bool has_image, has_label;
    int64_t file_count; // of the key
    char first_file[PATH_MAX];
} listing;

static void count_others(web_list *list, int64_t count, const char *first) {
    if (list->others == 0)
        list->first_other = tri_arena_printf(list->arena, "%s: %s", list->path, first);
    list->others += count;
}

tri_status web_list_fail_label(const char *path, const char *key, bool has_label) {
    return TRI_FAIL(TRI_BAD_INPUT, "%s: sample '%s' has %s class (cls), unlike those before it",
                    path, key, has_label ? "a" : "no");
}

static tri_status end_sample(listing *l) {
    web_list *list = l->list;
    const char *key = l->key.data;
    if (!l->has_key) return TRI_OK;
    if (!l->has_image && !l->has_label) {
        count_others(list, l->file_count, l->first_file);
        return TRI_OK;
    }
    if (!l->has_image)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: sample '%s' has no image (jpg, jpeg, png or webp)",
                        list->path, key);
    if (list->count == 0) {
        list->has_labels = l->has_label;
        list->first_key = tri_arena_strdup(list->arena, key);
    }
    if (list->has_labels != l->has_label) return web_list_fail_label(list->path, key, l->has_label);
    TRI_PUSH(list->arena, list->samples, list->count, list->capacity) = l->current;
    return TRI_OK;
}

static tri_status read_label(listing *l, const char *text) {
    char *end;
    long long label = strtoll(text, &end, 10);
    while (isspace((unsigned char)*end)) end++;
    if (end == text || *end || label < 0 || label >= TRI_MAX_CLASSES) {
        const char *name =
            tri_arena_printf(l->list->arena, "%s: '%s.cls'", l->list->path, (char *)l->key.data);
        TRI_TRY(tri_os_check_pointer(name, text, strlen(text)));
        return TRI_FAIL(TRI_BAD_INPUT, "%s is no class, a whole number from 0", name);
    }
    l->current.label = (int32_t)label;
    if (label >= l->list->classes) l->list->classes = label + 1;
    return TRI_OK;
}

static tri_status begin_sample(listing *l, const char *name, size_t key_length) {
    TRI_TRY(end_sample(l));
    TRI_TRY(tri_buffer_reserve(&l->key, key_length + 1));
    char *key = l->key.data;
    memcpy(key, name, key_length);
    key[key_length] = 0;
    l->key_length = key_length;
    l->has_key = true;
    l->current = (tri_tar_sample){.label = TRI_TAR_INDEX_NO_LABEL};
    l->has_image = l->has_label = false;
    l->file_count = 0;
    snprintf(l->first_file, sizeof l->first_file, "%s", name);
    return TRI_OK;
}

static tri_status visit(void *context, const tri_tar_member *member, const char *text) {
    listing *l = context;
    size_t length;
    const char *field;
    if (!split_name(member->name, &length, &field)) {
        const char *slash = strrchr(member->name, '/');
        if ((slash ? slash[1] : *member->name) != '.') count_others(l->list, 1, member->name);
        return TRI_OK;
    }
    if (!l->has_key || l->key_length != length || memcmp(l->key.data, member->name, length) != 0)
        TRI_TRY(begin_sample(l, member->name, length));
    l->file_count++;
    bool *has = is_image_field(field) ? &l->has_image : text ? &l->has_label : NULL;
    if (!has) return TRI_OK;
    if (*has)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: sample '%s' has a second %s: '%s'", l->list->path,
                        (const char *)l->key.data, text ? "class" : "image", member->name);
    *has = true;
    if (text) return read_label(l, text);
    l->current.offset = member->offset;
    l->current.size = member->size < UINT32_MAX ? (uint32_t)member->size : UINT32_MAX;
    return TRI_OK;
}

tri_status web_list_archive(web_list *list, int fd, int64_t bytes) {
    listing l = {.list = list};
    tri_status status = tri_tar_list(list->path, fd, bytes, is_label, visit, &l);
    if (status == TRI_OK) status = end_sample(&l);
    tri_buffer_free(&l.key);
    return status;
}
