// The store's server: the keys and values of the store (the key-value service at which the ranks
// meet), and clients that wait for a key or for the other ranks. A client is a connection. Each
// rank has two: one for its requests, and one, on which it `watches`, for beats (signs of life) and
// news of lost ranks. A rank that ends with exit code 2 (a refusal) opens one more, on which it
// tells why. store_server.c connects this code to sockets.
#include "rendezvous/store_core.h"

#include "base/limits.h"
#include "base/quantity.h"
#include "rendezvous/store_keys.h"
#include "rendezvous/store_refusals.h"
#include "rendezvous/store_watch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMED_MISSING = 8, TOLD_LOSSES = 8 };

typedef struct bytes {
    char *data;
    size_t size, capacity;
} bytes;

typedef struct client {
    bool used, arrived;
    bool watches; // this connection is a rank's second one, for beats and news of lost ranks
    int rank; // whose connection this is; STORE_NO_RANK until the message HELLO or WATCH tells it
    bytes in, out;
    char *wanted;        // key for which this client waits, after a GET; NULL: it waits for none
    int64_t deadline_ns; // when the wait for `wanted`, or for the arrival of all ranks, ends
    int timeout_ms;      // the whole time limit of that wait, for messages
} client;

struct store_core {
    char job[sizeof((tri_identity){0}.job)];
    int size;
    bool has_agent; // a launcher (an agent) serves, not rank 0
    int arrived;    // how many ranks have sent HELLO, including those that have left
    int lost;       // the first rank that was lost; STORE_NO_RANK: none
    // How many ranks were lost. The other ranks are told of the first TOLD_LOSSES only, because a
    // single loss already ends the run.
    int losses;
    struct {
        tri_status status; // TRI_OK: no rank has reported a failure
        char text[TRI_MESSAGE_MAX_BYTES];
    } failure;
    bool *seen;
    store_watch watch;
    store_refusals refusals;
    int32_t *claim_of;     // by rank: index in `hosts` of its host
    int32_t *host_of;      // by rank: the number of its host, set when all ranks have arrived
    tri_host_claim *hosts; // for each host, what one of its ranks told about it (name, boot id)
    int host_count, host_capacity;
    int client_end; // entries of `clients` from this index on are not in use
    store_keys keys;
    client clients[TRI_MAX_STORE_CLIENTS];
};

static void *allocate(void *old, size_t size) {
    void *memory = realloc(old, size ? size : 1);
    TRI_ASSERT(memory);
    return memory;
}

static void append(bytes *to, const void *data, size_t size) {
    if (to->size + size > to->capacity) {
        to->capacity = 2 * to->capacity > to->size + size ? 2 * to->capacity : to->size + size;
        to->data = allocate(to->data, to->capacity);
    }
    if (size) memcpy(to->data + to->size, data, size);
    to->size += size;
}

static void drop_front(bytes *from, size_t size) {
    from->size -= size;
    if (from->size) memmove(from->data, from->data + size, from->size);
}

static void reply(client *c, tri_status status, int64_t number, const void *value, size_t size) {
    store_head head = {STORE_REPLY, 0, (uint32_t)size, (int32_t)status, number};
    append(&c->out, &head, sizeof head);
    append(&c->out, value, size);
    free(c->wanted);
    c->wanted = NULL;
    c->deadline_ns = INT64_MAX;
}

static void reply_text(client *c, tri_status status, const char *text) {
    reply(c, status, 0, text, strlen(text));
}

store_core *store_core_create(const char *job, int size) {
    store_core *core = calloc(1, sizeof *core);
    TRI_ASSERT(core && size > 0 && size <= TRI_MAX_RANKS);
    snprintf(core->job, sizeof core->job, "%s", job);
    core->size = size;
    core->lost = STORE_NO_RANK;
    core->seen = calloc((size_t)size, sizeof *core->seen);
    core->host_of = calloc((size_t)size, sizeof *core->host_of);
    core->claim_of = calloc((size_t)size, sizeof *core->claim_of);
    TRI_ASSERT(core->seen && core->host_of && core->claim_of);
    store_watch_create(&core->watch, size);
    store_refusals_create(&core->refusals, size);
    return core;
}

void store_core_serve_as_agent(store_core *core) {
    core->has_agent = core->refusals.has_agent = true;
}

void store_core_say_bye(store_core *core) {
    store_head bye = {.kind = STORE_BYE};
    for (int i = 0; i < core->client_end; i++)
        if (core->clients[i].watches) append(&core->clients[i].out, &bye, sizeof bye);
}

static void clear_client(client *c) {
    free(c->in.data);
    free(c->out.data);
    free(c->wanted);
    *c = (client){0};
}

void store_core_destroy(store_core *core) {
    if (!core) return;
    for (int i = 0; i < core->client_end; i++) clear_client(&core->clients[i]);
    store_keys_destroy(&core->keys);
    free(core->seen);
    store_watch_destroy(&core->watch);
    store_refusals_destroy(&core->refusals);
    free(core->host_of);
    free(core->claim_of);
    free(core->hosts);
    free(core);
}

int store_core_join(store_core *core) {
    for (int i = 0; i < TRI_MAX_STORE_CLIENTS; i++)
        if (!core->clients[i].used) {
            core->clients[i] =
                (client){.used = true, .rank = STORE_NO_RANK, .deadline_ns = INT64_MAX};
            if (i == core->client_end) core->client_end++;
            return i;
        }
    return STORE_NO_CLIENT;
}

// Writes which ranks have not arrived, so that a user sees which process to look at: "rank 2 of 4"
// or "ranks 2, 3 of 4".
static void name_missing(const store_core *core, char *text, size_t size) {
    int missing = core->size - core->arrived, named = 0;
    int used = snprintf(text, size, missing == 1 ? "rank" : "ranks");
    for (int r = 0; r < core->size && named < NAMED_MISSING; r++)
        if (!core->seen[r])
            used += snprintf(text + used, size - (size_t)used, "%s %d", named++ ? "," : "", r);
    if (missing > named)
        used += snprintf(text + used, size - (size_t)used, " and %d more", missing - named);
    snprintf(text + used, size - (size_t)used, " of %d", core->size);
}

// Ends the waits of all clients with a failure at once, because `rank` is lost, so what the clients
// wait for may never come.
static void fail_waits(store_core *core, int rank) {
    char text[256], missing[192];
    for (int i = 0; i < core->client_end; i++) {
        client *c = &core->clients[i];
        if (!c->used || c->deadline_ns == INT64_MAX) continue;
        if (c->wanted) {
            snprintf(text, sizeof text, "rank %d of %d was lost while key '%.80s' was waited for",
                     rank, core->size, c->wanted);
        } else {
            name_missing(core, missing, sizeof missing);
            snprintf(text, sizeof text, "rank %d left before %s had arrived", rank, missing);
        }
        reply_text(c, TRI_PEER_LOST, text);
    }
}

// Ends a wait for a key with the failure that a rank has reported, because the key may never be
// set.
static void reply_failure(const store_core *core, client *c) {
    reply(c, core->failure.status, STORE_OF_RANK, core->failure.text, strlen(core->failure.text));
}

static void fail(store_core *core, client *c, const store_head *head, const char *value) {
    bool is_status = head->argument > TRI_OK && head->argument < TRI_STATUS_COUNT;
    if (core->failure.status == TRI_OK) {
        core->failure.status = is_status ? (tri_status)head->argument : TRI_PEER_LOST;
        snprintf(core->failure.text, sizeof core->failure.text, "%.*s", (int)head->value_bytes,
                 value);
    }
    reply_failure(core, c);
    for (int i = 0; i < core->client_end; i++)
        if (core->clients[i].used && core->clients[i].wanted)
            reply_failure(core, &core->clients[i]);
}

static void send_loss(store_core *core, client *to, int rank) {
    size_t size;
    char *value = store_watch_loss(&core->watch, rank, &size);
    store_head head = {.kind = STORE_LOST, .value_bytes = (uint32_t)size, .number = rank};
    append(&to->out, &head, sizeof head);
    append(&to->out, value, size);
    free(value);
}

// Records that the rank is lost, and tells all other ranks.
static void lose(store_core *core, int rank, const char *what) {
    const char *host = core->seen[rank] ? core->hosts[core->claim_of[rank]].host : "";
    if (!store_watch_lose(&core->watch, rank, what, host)) return;
    if (core->lost < 0) core->lost = rank;
    fail_waits(core, rank);
    if (core->losses++ >= TOLD_LOSSES) return;
    for (int i = 0; i < core->client_end; i++)
        if (core->clients[i].watches) send_loss(core, &core->clients[i], rank);
}

void store_core_leave(store_core *core, int number) {
    client *c = &core->clients[number];
    int rank = c->rank;
    clear_client(c);
    store_refusals_leave(&core->refusals, number);
    if (rank != STORE_NO_RANK) lose(core, rank, "died");
}

static const char *put(store_core *core, const char *key, const void *value, size_t size) {
    const char *problem = store_keys_put(&core->keys, key, value, size);
    for (int i = 0; !problem && i < core->client_end; i++) {
        client *c = &core->clients[i];
        if (c->used && c->wanted && !strcmp(c->wanted, key)) reply(c, TRI_OK, 0, value, size);
    }
    return problem;
}

// Numbers the hosts in the order of their lowest ranks, so that the numbers do not depend on which
// rank arrived first.
static void number_hosts(store_core *core) {
    int32_t *numbers = allocate(NULL, (size_t)core->host_count * sizeof *numbers), next = 0;
    for (int i = 0; i < core->host_count; i++) numbers[i] = -1;
    for (int r = 0; r < core->size; r++) {
        int32_t *number = &numbers[core->claim_of[r]];
        if (*number < 0) *number = next++;
        core->host_of[r] = *number;
    }
    free(numbers);
}

static void reply_to_arrived(store_core *core) {
    number_hosts(core);
    for (int i = 0; i < core->client_end; i++)
        if (core->clients[i].used && core->clients[i].arrived &&
            core->clients[i].deadline_ns != INT64_MAX)
            reply(&core->clients[i], TRI_OK, core->host_count, core->host_of,
                  (size_t)core->size * sizeof *core->host_of);
}

// Finds the index in `hosts` of the host that a rank's claim describes, and adds the host if it is
// new.
static int find_host(store_core *core, const tri_host_claim *claim) {
    for (int i = 0; i < core->host_count; i++)
        if (tri_host_claim_is_same_host(&core->hosts[i], claim)) return i;
    if (core->host_count == core->host_capacity) {
        core->host_capacity = core->host_capacity ? 2 * core->host_capacity : 4;
        core->hosts = allocate(core->hosts, (size_t)core->host_capacity * sizeof *core->hosts);
    }
    core->hosts[core->host_count] = *claim;
    return core->host_count++;
}

static void wait_until(client *c, int timeout_ms, int64_t now_ns) {
    c->timeout_ms = timeout_ms > 0 ? timeout_ms : 0;
    c->deadline_ns = now_ns + (int64_t)c->timeout_ms * 1000000;
}

static void reply_refused(store_core *core, client *c) {
    const char *text = store_refusals_text(&core->refusals);
    reply(c, TRI_REFUSED, STORE_OF_RANK, text, strlen(text));
}

static bool hello(store_core *core, client *c, const store_head *head, const char *key,
                  const char *value, int64_t now_ns) {
    char text[256];
    store_hello body;
    if (c->rank >= 0 || head->value_bytes != sizeof body) return false;
    memcpy(&body, value, sizeof body);
    if (strcmp(key, core->job) != 0 || body.size != core->size) {
        snprintf(text, sizeof text,
                 "a rank of job %.100s, which has %s, connected to the store of a job that has %s",
                 key, tri_counted(body.size, "rank"), tri_counted(core->size, "rank"));
        reply_text(c, TRI_MISMATCH, text);
        return false;
    }
    if (head->number < 0 || head->number >= core->size) return false;
    int rank = (int)head->number;
    if (core->seen[rank]) {
        snprintf(text, sizeof text,
                 "rank %d of %d came twice: two jobs share the name %.100s, set another "
                 "MASTER_PORT for one of them",
                 rank, core->size, core->job);
        reply_text(c, TRI_MISMATCH, text);
        return false;
    }
    c->rank = rank;
    c->arrived = core->seen[rank] = true;
    core->arrived++;
    core->claim_of[rank] = find_host(core, &body.claim);
    wait_until(c, head->argument, now_ns);
    c->timeout_ms = body.total_ms;
    if (core->lost >= 0)
        fail_waits(core, core->lost);
    else if (core->arrived == core->size)
        reply_to_arrived(core);
    else if (core->refusals.told)
        reply_refused(core, c);
    return true;
}

// Handles STORE_REFUSE. Ranks that wait for all ranks to arrive are answered with the refusal too,
// because the refusing rank will not arrive.
static bool refuse(store_core *core, client *c, const store_head *head, const char *key,
                   const char *value, int64_t now_ns) {
    if (c->rank >= 0 || strcmp(key, core->job) != 0 ||
        !store_refusals_take(&core->refusals, (int)(c - core->clients), head, value, now_ns))
        return false;
    for (int i = 0; i < core->client_end; i++) {
        client *other = &core->clients[i];
        if (other->arrived && !other->wanted && other->deadline_ns != INT64_MAX)
            reply_refused(core, other);
    }
    return true;
}

// Begins a rank's second connection, over which it shows that it is alive and learns of losses. A
// second one is needed because a request on the first may block for long.
static bool begin_watch(store_core *core, client *c, const store_head *head, const char *key,
                        int64_t now_ns) {
    bool is_rank = head->number >= 0 && head->number < core->size && head->argument > 0;
    if (c->rank >= 0 || !is_rank || strcmp(key, core->job) != 0) return false;
    c->rank = (int)head->number;
    c->watches = true;
    store_watch_begin(&core->watch, c->rank, head->argument, now_ns);
    reply(c, TRI_OK, core->has_agent ? STORE_BY_AGENT : STORE_BY_RANK, NULL, 0);
    if (core->lost >= 0) send_loss(core, c, core->lost);
    return true;
}

static void tell_beat(client *c, int rank, const store_watched *w) {
    store_head answer = {.kind = STORE_LATEST_BEAT,
                         .value_bytes = (uint32_t)w->beat_bytes,
                         .argument = w->awaited,
                         .number = rank};
    append(&c->out, &answer, sizeof answer);
    append(&c->out, w->beat, w->beat_bytes);
}

// Answers STORE_LATEST_BEAT. For TRI_FOLLOWED_MS the asking rank then also gets each new beat of
// the rank about which it asked.
static bool answer_latest_beat(store_core *core, client *c, const store_head *head,
                               int64_t now_ns) {
    if (head->number < 0 || head->number >= core->size) return false;
    store_watched *w = &core->watch.at[head->number];
    w->follower = c->rank;
    w->follower_client = (int)(c - core->clients);
    w->followed_ns = now_ns + TRI_FOLLOWED_MS * INT64_C(1000000);
    tell_beat(c, (int)head->number, w);
    return true;
}

// Sends the new beat of `rank` to its follower: the rank that last asked for its beats. A follower
// that does not read what it was sent gets no more. The follower's client number may belong to
// another client by now, so the client's rank is compared.
static void tell_follower(store_core *core, int rank, int64_t now_ns) {
    store_watched *w = &core->watch.at[rank];
    if (w->follower == STORE_NO_RANK || now_ns >= w->followed_ns) return;
    client *c = &core->clients[w->follower_client];
    if (c->watches && c->rank == w->follower && c->out.size < TRI_STORE_VALUE_MAX_BYTES)
        tell_beat(c, rank, w);
}

// Handles a message on a rank's second connection, over which the server watches the rank.
static bool handle_watched(store_core *core, client *c, const store_head *head, const char *value,
                           int64_t now_ns) {
    if (head->kind == STORE_BYE) {
        store_watch_end(&core->watch, c->rank);
        c->rank = STORE_NO_RANK;
        return false;
    }
    if (head->kind == STORE_LATEST_BEAT) return answer_latest_beat(core, c, head, now_ns);
    if (head->kind != STORE_BEAT || !store_watch_hear(&core->watch, c->rank, head, value, now_ns))
        return false;
    tell_follower(core, c->rank, now_ns);
    reply(c, TRI_OK, 0, NULL, 0);
    return true;
}

// Answers whether a checkpoint may be committed. It may not if the run has lost a rank: such a run
// ends anyway, and its ranks may be the smaller half of a run whose network was cut in two.
static void admit(store_core *core, client *c) {
    char text[192];
    if (core->lost < 0) {
        reply(c, TRI_OK, 0, NULL, 0);
        return;
    }
    snprintf(text, sizeof text, "rank %d was lost (it %s), so this run may not commit", core->lost,
             core->watch.at[core->lost].loss.what);
    reply_text(c, TRI_PEER_LOST, text);
}

void store_core_say_replaced(store_core *core) {
    for (int i = 0; i < core->client_end; i++) {
        client *c = &core->clients[i];
        if (!c->watches) continue;
        (void)store_watch_lose(&core->watch, c->rank, "was replaced by a newer generation", "");
        send_loss(core, c, c->rank);
    }
}

static void get(store_core *core, client *c, const store_head *head, const char *key,
                int64_t now_ns) {
    const store_key *e = store_keys_find(&core->keys, key);
    if (e) {
        reply(c, TRI_OK, 0, e->value, e->size);
        return;
    }
    c->wanted = strdup(key);
    TRI_ASSERT(c->wanted);
    wait_until(c, head->argument, now_ns);
    if (core->failure.status != TRI_OK)
        reply_failure(core, c);
    else if (core->lost >= 0)
        fail_waits(core, core->lost);
}

static void add(store_core *core, client *c, const store_head *head, const char *key) {
    const store_key *e = store_keys_find(&core->keys, key);
    int64_t counter = 0;
    if (e) {
        char text[32], *end = text;
        size_t size = e->size < sizeof text ? e->size : 0;
        if (size) memcpy(text, e->value, size);
        text[size] = 0;
        errno = 0;
        counter = strtoll(text, &end, 10);
        if (end == text || *end || errno) {
            reply_text(c, TRI_MISMATCH, "the key holds a value that is not a counter");
            return;
        }
    }
    if (__builtin_add_overflow(counter, head->number, &counter)) {
        reply_text(c, TRI_MISMATCH, "the counter passes 64 bits");
        return;
    }
    char text[32];
    int size = snprintf(text, sizeof text, "%lld", (long long)counter);
    const char *problem = put(core, key, text, (size_t)size);
    if (problem)
        reply_text(c, TRI_NO_SPACE, problem);
    else
        reply(c, TRI_OK, counter, NULL, 0);
}

// Handles a message. False: the connection has to end, because the client broke the protocol or
// sent BYE.
static bool handle(store_core *core, client *c, const store_head *head, const char *body,
                   int64_t now_ns) {
    char key[TRI_MAX_NAME_BYTES + 1];
    const char *value = body + head->key_bytes, *problem;
    memcpy(key, body, head->key_bytes);
    key[head->key_bytes] = 0;
    if (strlen(key) != head->key_bytes) return false; // a key is text, so it contains no 0 byte
    if (head->kind == STORE_HELLO) return hello(core, c, head, key, value, now_ns);
    if (head->kind == STORE_WATCH) return begin_watch(core, c, head, key, now_ns);
    if (head->kind == STORE_REFUSE) return refuse(core, c, head, key, value, now_ns);
    if (c->watches) return handle_watched(core, c, head, value, now_ns);
    // A client may have only one request under way, and none before its HELLO was answered. So
    // there is at most one wait for each client.
    if (c->rank < 0 || c->deadline_ns != INT64_MAX) return false;
    switch (head->kind) {
    case STORE_SET:
        problem = put(core, key, value, head->value_bytes);
        if (problem)
            reply_text(c, TRI_NO_SPACE, problem);
        else
            reply(c, TRI_OK, 0, NULL, 0);
        return true;
    case STORE_GET:
        get(core, c, head, key, now_ns);
        return true;
    case STORE_ADD:
        add(core, c, head, key);
        return true;
    case STORE_ADMIT:
        admit(core, c);
        return true;
    case STORE_FAIL:
        fail(core, c, head, value);
        return true;
    case STORE_BYE:
        c->rank = STORE_NO_RANK;
        return false;
    default:
        return false;
    }
}

bool store_core_input(store_core *core, int number, const void *data, size_t size, int64_t now_ns) {
    client *c = &core->clients[number];
    append(&c->in, data, size);
    while (c->in.size >= sizeof(store_head)) {
        store_head head;
        memcpy(&head, c->in.data, sizeof head);
        if (store_head_check(&head) != TRI_OK) return false;
        size_t whole = sizeof head + head.key_bytes + head.value_bytes;
        if (c->in.size < whole) return true;
        // A client that sends requests but never reads the answers would fill this process's
        // memory.
        if (c->out.size > 2 * (size_t)TRI_STORE_VALUE_MAX_BYTES) return false;
        if (!handle(core, c, &head, c->in.data + sizeof head, now_ns)) return false;
        drop_front(&c->in, whole);
    }
    return true;
}

const void *store_core_output(store_core *core, int number, size_t *size) {
    *size = core->clients[number].out.size;
    return core->clients[number].out.data;
}

void store_core_sent(store_core *core, int number, size_t size) {
    drop_front(&core->clients[number].out, size);
}

static void reply_timeout(store_core *core, client *c) {
    char text[256], missing[192];
    if (c->wanted) {
        snprintf(text, sizeof text, "key '%.120s' was not set within %s", c->wanted,
                 tri_seconds_text(c->timeout_ms / 1e3));
    } else {
        name_missing(core, missing, sizeof missing);
        snprintf(text, sizeof text, "%s did not arrive within %s", missing,
                 tri_seconds_text(c->timeout_ms / 1e3));
    }
    reply_text(c, TRI_TIMEOUT, text);
}

static void lose_silent(store_core *core, int64_t now_ns, int64_t *next) {
    int rank;
    while ((rank = store_watch_look(&core->watch, now_ns, next)) != STORE_NO_RANK) {
        char what[sizeof((store_loss){0}.what)];
        snprintf(what, sizeof what, "has been silent for %s",
                 tri_seconds_text((double)core->watch.at[rank].silence_ns * 1e-9));
        lose(core, rank, what);
    }
}

static void answer_refusals(store_core *core, int64_t now_ns, int64_t *next) {
    store_refusal_answer answer;
    int64_t later;
    for (int i; (i = store_refusals_next(&core->refusals, now_ns, &answer, &later)) >= 0;)
        reply(&core->clients[i], answer.status, answer.speaks ? STORE_SPEAKS : 0, answer.text,
              strlen(answer.text));
    if (later < *next) *next = later;
}

int64_t store_core_expire(store_core *core, int64_t now_ns) {
    int64_t next;
    lose_silent(core, now_ns, &next);
    answer_refusals(core, now_ns, &next);
    for (int i = 0; i < core->client_end; i++) {
        client *c = &core->clients[i];
        if (!c->used) continue;
        if (c->deadline_ns <= now_ns) reply_timeout(core, c);
        if (c->deadline_ns < next) next = c->deadline_ns;
    }
    return next;
}

int store_core_missing(const store_core *core) {
    for (int r = 0; r < core->size; r++)
        if (!core->seen[r]) return r;
    return STORE_NO_RANK;
}

int store_core_rank_connections(const store_core *core) {
    int present = 0;
    for (int i = 0; i < core->client_end; i++) {
        const client *c = &core->clients[i];
        // A rank that was given up because it is silent will not say goodbye, so it does not count.
        present += c->used && c->rank >= 0 && !core->watch.at[c->rank].is_lost;
    }
    return present;
}

bool store_core_has_refusals(const store_core *core) {
    return store_refusals_are_open(&core->refusals);
}
