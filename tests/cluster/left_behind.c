// The program of each rank in a run over several nodes, which test_nodes.py starts twice (two
// generations). The last rank of the first start leaves a process behind that still has its
// connection to the store (the service at which the ranks meet). It asks the store again and again
// whether it may commit a checkpoint. The store's last answer is in FOLDER/stale; the ranks of the
// second start wait until that file exists.
#include "base/os.h"
#include "rendezvous/rendezvous.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WAIT_MS = 20000, PAUSE_NS = 20000000 };

static const char *folder;

static const char *get(const char *name) { return getenv(name); }

static int fail(void) {
    fprintf(stderr, "%s\n", tri_error_message());
    return 1;
}

static void write_text(const char *name, const char *text) {
    char path[512], new_path[520];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    snprintf(new_path, sizeof new_path, "%s.new", path);
    FILE *file = fopen(new_path, "w");
    if (!file || fputs(text, file) < 0 || fclose(file) != 0 || rename(new_path, path) != 0) abort();
}

static bool exists(const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

static tri_status meet(tri_store **store) {
    tri_identity me;
    TRI_TRY(tri_identity_read(get, &me));
    return tri_store_open(&me, WAIT_MS, store);
}

// Asks the store again and again whether this process may commit, until the store answers that the
// run has been started again. Once the store has refused, it must refuse for ever.
static int stay_behind(void) {
    tri_store *store;
    bool was_refused = false;
    setsid(); // so that signals to the worker's process group do not reach this process
    if (meet(&store) != TRI_OK) return fail();
    write_text("met", "");
    for (int i = 0; i < WAIT_MS / 20; i++) {
        tri_status status = tri_store_admit(store);
        if (status == TRI_OK && was_refused) write_text("stale", "admitted after a refusal\n");
        if (status == TRI_MISMATCH) write_text("stale", tri_error_message());
        if (exists("stale")) return 0;
        was_refused |= status != TRI_OK;
        tri_os.sleep_ns(PAUSE_NS);
    }
    write_text("stale", "nothing\n");
    return 0;
}

static int take_part(void) {
    tri_store *store;
    if (meet(&store) != TRI_OK || tri_store_admit(store) != TRI_OK) return fail();
    bool is_first = !strcmp(getenv("TRIREME_GENERATION"), "0");
    for (int i = 0; i < WAIT_MS / 20 && !exists("stale"); i++) tri_os.sleep_ns(PAUSE_NS);
    if (is_first) return 0;
    if (tri_store_admit(store) != TRI_OK) return fail();
    tri_store_close(store);
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    folder = argv[1];
    bool is_last = atoi(getenv("RANK")) == atoi(getenv("WORLD_SIZE")) - 1;
    if (strcmp(getenv("TRIREME_GENERATION"), "0") != 0 || !is_last) return take_part();
    if (fork() == 0) return stay_behind();
    for (int i = 0; i < WAIT_MS / 20 && !exists("met"); i++) tri_os.sleep_ns(PAUSE_NS);
    return 1;
}
