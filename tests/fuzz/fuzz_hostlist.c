// Reads arbitrary bytes as a list of hosts in Slurm's notation, such as node[01-04].
#include "rendezvous/hostlist.h"

#include "base/limits.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *list = malloc(size + 1), name[64];
    int count;
    if (!list) abort();
    memcpy(list, data, size);
    list[size] = 0;
    if (tri_hostlist_count(list, &count) == TRI_OK) {
        if (count < 1 || count > TRI_MAX_RANKS) abort();
        const int some[] = {0, count / 2, count - 1};
        for (int i = 0; i < 3; i++) {
            tri_status status = tri_hostlist_at(list, some[i], name, sizeof name);
            if (status == TRI_OK ? strlen(name) < 1 : status != TRI_BAD_INPUT) abort();
        }
        if (tri_hostlist_at(list, count, name, sizeof name) != TRI_NOT_FOUND) abort();
    } else if (tri_hostlist_at(list, 0, name, sizeof name) != TRI_BAD_INPUT) {
        abort();
    }
    free(list);
    return 0;
}
