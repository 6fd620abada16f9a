// Reads arbitrary bytes as input of the launcher and of the store (the key-value service by which
// ranks find each other): flags and their values, torchrun's environment variables PET_…, other
// launchers' variables, error files, messages to the store. The first byte chooses which of these.
#include "launch/failure.h"
#include "launch/options.h"
#include "rendezvous/rendezvous.h"
#include "rendezvous/store_core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *environment; // lines of NAME=value
static tri_arena *arena;

static const char *get(const char *name) {
    size_t length = strlen(name);
    for (const char *line = environment; *line;) {
        size_t end = strcspn(line, "\n");
        if (end > length && line[length] == '=' && !strncmp(line, name, length))
            return tri_arena_printf(arena, "%.*s", (int)(end - length - 1), line + length + 1);
        line += end + (line[end] == '\n');
    }
    return NULL;
}

// Parses the launcher's options. In `text` the lines up to an empty one are the environment, and
// each further line is an argument.
static void fuzz_options(char *text) {
    char *rest = strstr(text, "\n\n"), *argv[64] = {"run"};
    int argc = 1;
    if (rest) *rest = 0;
    for (char *at = rest ? strtok_r(rest + 2, "\n", &rest) : NULL; at && argc < 63;
         at = strtok_r(NULL, "\n", &rest))
        argv[argc++] = at;
    environment = text;
    launch_options options;
    if (launch_options_parse(argc, argv, get, &options) != TRI_OK) return;
    if (options.workers < 1 || options.workers > TRI_MAX_LOCAL_RANKS) abort();
    if (!options.help && (!options.program[0] || options.master_port > 65535)) abort();
}

static void fuzz_identity(const char *text) {
    tri_identity me;
    environment = text;
    if (tri_identity_read(get, &me) != TRI_OK) return;
    if (me.rank < 0 || me.rank >= me.size || me.local_size < 0 || me.local_size > me.size) abort();
    if (!me.job[0] || strlen(me.job) >= sizeof me.job) abort();
}

static void fuzz_values(const char *text) {
    launch_stream_map map;
    launch_rank_set ranks;
    sigset_t signals;
    int low, high;
    launch_conf conf = {.silence_s = 1, .interval_s = 1, .attempts = 1};
    launch_stream_map_parse("--tee", text, &map);
    launch_rank_set_parse("--local-ranks-filter", text, &ranks);
    launch_signals_parse("--signals-to-handle", text, &signals);
    if (launch_nodes_parse("--nnodes", text, &low, &high) == TRI_OK && (low < 1 || high < low))
        abort();
    if (launch_conf_parse("--rdzv-conf", text, &conf) == TRI_OK && !(conf.silence_s > 0)) abort();
}

static void say(store_core *core, int client, store_head head, const char *key, const void *value) {
    head.key_bytes = (uint32_t)strlen(key);
    store_core_input(core, client, &head, sizeof head, 0);
    store_core_input(core, client, key, head.key_bytes, 0);
    store_core_input(core, client, value, head.value_bytes, 0);
}

// Lets two of the three ranks of a store join properly, and then lets any of four clients send any
// bytes. Each part of the fuzzer's data has a byte with the number of a client (other bits of it
// tell whether time passes, and whether answers are read), the number of bytes that this client
// sends, and these bytes.
static void fuzz_store(const uint8_t *data, size_t size) {
    store_core *core = store_core_create("job", 3);
    store_hello words = {.size = 3, .total_ms = 1000};
    int clients[4];
    bool here[4];
    for (int i = 0; i < 4; i++) here[i] = (clients[i] = store_core_join(core)) >= 0;
    for (int i = 0; i < 2; i++)
        say(core, clients[i],
            (store_head){
                .kind = STORE_HELLO, .value_bytes = sizeof words, .number = i, .argument = 1000},
            "job", &words);
    int64_t now_ns = 0;
    while (size >= 2) {
        int i = data[0] & 3;
        size_t count = data[1] < size - 2 ? data[1] : size - 2;
        if (here[i] && !store_core_input(core, clients[i], data + 2, count, now_ns += 1000000)) {
            store_core_leave(core, clients[i]);
            here[i] = false;
        }
        if (data[0] & 64) store_core_expire(core, now_ns += 500000000);
        for (int k = 0; k < 4; k++) {
            size_t pending;
            if (!here[k]) continue;
            store_core_output(core, clients[k], &pending);
            if (data[0] & 128) store_core_sent(core, clients[k], pending);
        }
        data += 2 + count;
        size -= 2 + count;
    }
    if (store_core_rank_connections(core) > 4) abort();
    store_core_say_replaced(core);
    store_core_destroy(core);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1) return 0;
    arena = tri_arena_create(NULL, "fuzz");
    char *text = tri_arena_printf(arena, "%.*s", (int)(size - 1), (const char *)data + 1);
    launch_error error;
    switch ((data[0] + 2) % 5) { // a first byte '0' chooses case 0, '1' case 1, …
    case 0:
        fuzz_options(text);
        break;
    case 1:
        fuzz_identity(text);
        break;
    case 2:
        fuzz_values(text);
        break;
    case 3:
        launch_error_parse(arena, (const char *)data + 1, size - 1, "error.json", &error);
        break;
    default:
        fuzz_store(data + 1, size - 1);
        break;
    }
    tri_arena_destroy(arena);
    return 0;
}
