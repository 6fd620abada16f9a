// Finds a device by its name, as --device takes it.
#include "device/choose.h"

#include <stdio.h>
#include <string.h>

static tri_status choose(const tri_device_backend *const *devices, const char *name,
                         const tri_device_config *config, tri_device_description *described,
                         tri_device **opened) {
    bool any = !strcmp(name, "auto");
    char known[256] = "";
    for (const tri_device_backend *const *b = devices; *b; b++) {
        if (any || !strcmp((*b)->name, name)) {
            tri_status status =
                opened ? (*b)->open(config, opened) : (*b)->describe(config, described);
            if (status != TRI_NOT_FOUND || !any) return status;
        }
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", (*b)->name);
    }
    if (any) return TRI_FAIL(TRI_NOT_FOUND, "--device auto: none of %s is here", known);
    return TRI_FAIL(TRI_BAD_INPUT, "--device: there is no device '%s'; this program has %s", name,
                    known);
}

tri_status tri_device_describe(const tri_device_backend *const *devices, const char *name,
                               tri_device_description *out) {
    return choose(devices, name, &(tri_device_config){0}, out, NULL);
}

tri_status tri_device_open(const tri_device_backend *const *devices, const char *name, int index,
                           tri_device **out) {
    return choose(devices, name, &(tri_device_config){.index = index}, NULL, out);
}
