// Finds a device by the name that the option --device gives.
#include "device/choose.h"

#include <stdio.h>
#include <string.h>

// Whether the name belongs to this backend. A name is BACKEND or BACKEND:MODEL.
static bool names_backend(const char *name, const tri_device_backend *backend) {
    size_t length = strcspn(name, ":");
    return strlen(backend->name) == length && !strncmp(name, backend->name, length);
}

static void append(char *list, size_t size, const char *name) {
    size_t used = strlen(list);
    snprintf(list + used, size - used, "%s%s", used ? ", " : "", name);
}

// Finds the device model that the name contains; *out becomes NULL if it contains none.
static tri_status find_model(const tri_device_backend *backend, const char *name,
                             const tri_device_model **out) {
    const char *wanted = strchr(name, ':');
    char known[512] = "";
    *out = NULL;
    if (!wanted) return TRI_OK;
    for (const tri_device_model *m = backend->models; m && m->name; m++) {
        if (!strcmp(m->name, wanted + 1)) {
            *out = m;
            return TRI_OK;
        }
        append(known, sizeof known, m->name);
    }
    if (!*known)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "--device %s: %s has no models, only the device that is here: --device %s",
                        name, backend->name, backend->name);
    return TRI_FAIL(TRI_BAD_INPUT, "--device %s: %s has no model '%s'; it has %s", name,
                    backend->name, wanted + 1, known);
}

static tri_status choose(const tri_device_backend *const *devices, const char *name,
                         tri_device_config config, tri_device_description *described,
                         tri_device **opened) {
    bool any = !strcmp(name, "auto");
    char known[256] = "";
    config.is_optional = any;
    for (const tri_device_backend *const *b = devices; *b; b++) {
        append(known, sizeof known, (*b)->name);
        if (!any && !names_backend(name, *b)) continue;
        TRI_TRY(find_model(*b, name, &config.model));
        tri_status status =
            opened ? (*b)->open(&config, opened) : (*b)->describe(&config, described);
        if (status != TRI_NOT_FOUND || !any) return status;
    }
    if (any) return TRI_FAIL(TRI_NOT_FOUND, "--device auto: none of %s is here", known);
    return TRI_FAIL(TRI_BAD_INPUT, "--device: there is no device '%s'; this program has %s", name,
                    known);
}

tri_status tri_device_describe(const tri_device_backend *const *devices, const char *name,
                               tri_device_description *out) {
    return choose(devices, name, (tri_device_config){0}, out, NULL);
}

tri_status tri_device_open(const tri_device_backend *const *devices, const char *name, int index,
                           tri_device **out) {
    return choose(devices, name, (tri_device_config){.index = index}, NULL, out);
}

tri_status tri_device_open_of_rank(const tri_device_backend *const *devices, const char *name,
                                   int local_rank, int launcher_local_rank, tri_device **out) {
    tri_status status = tri_device_open(devices, name, local_rank, out);
    if (status != TRI_BAD_INPUT || launcher_local_rank < 0 || launcher_local_rank == local_rank)
        return status;
    return tri_device_open(devices, name, launcher_local_rank, out);
}
