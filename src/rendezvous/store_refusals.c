// The part of the store's server (the store is the key-value service at which the ranks meet) that
// handles refusals: a rank ends with exit code 2, because usage or input is bad. Collects why the
// ranks end, decides which one line is printed for all of them, and chooses the rank that prints
// it, the speaker. A refusing rank is a client of the server: it sends why it ends, and waits until
// the server answers whether it has to print the line.
#include "rendezvous/store_refusals.h"

#include "base/limits.h"
#include "base/quantity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOBODY = -1 };

void store_refusals_create(store_refusals *r, int size) {
    *r = (store_refusals){
        .size = size, .first = STORE_NO_RANK, .speaker = STORE_NO_RANK, .speaker_client = NOBODY};
    r->has_told = calloc((size_t)size, sizeof *r->has_told);
    TRI_ASSERT(r->has_told);
}

void store_refusals_destroy(store_refusals *r) {
    free(r->has_told);
    free(r->waiting);
}

static void copy_text(char *to, size_t capacity, const char *from, size_t size) {
    if (size >= capacity) size = capacity - 1;
    memcpy(to, from, size);
    to[size] = 0;
}

static void take_reason(store_refusals *r, int rank, const store_refusal *body, const char *text) {
    r->reasons++;
    r->differ |= r->first != STORE_NO_RANK && strcmp(r->reason, text) != 0;
    if (r->first != STORE_NO_RANK && rank > r->first) return;
    r->first = rank;
    r->is_printed = body->is_printed != 0;
    snprintf(r->reason, sizeof r->reason, "%s", text);
    copy_text(r->host, sizeof r->host, body->host, strnlen(body->host, sizeof body->host));
}

static void wait_for_answer(store_refusals *r, store_refuser who) {
    if (r->waiting_count == r->waiting_capacity) {
        r->waiting_capacity = r->waiting_capacity ? 2 * r->waiting_capacity : 8;
        r->waiting = realloc(r->waiting, (size_t)r->waiting_capacity * sizeof *r->waiting);
        TRI_ASSERT(r->waiting);
    }
    r->waiting[r->waiting_count++] = who;
}

bool store_refusals_take(store_refusals *r, int client, const store_head *head, const char *value,
                         int64_t now_ns) {
    store_refusal body;
    char text[TRI_MESSAGE_MAX_BYTES];
    if (head->value_bytes < sizeof body || head->number < 0 || head->number >= r->size)
        return false;
    memcpy(&body, value, sizeof body);
    if (body.size != r->size) return false;
    for (int i = 0; i < r->waiting_count; i++)
        // A client may have only one request at a time.
        if (r->waiting[i].client == client) return false;
    copy_text(text, sizeof text, value + sizeof body, head->value_bytes - sizeof body);
    int rank = (int)head->number, wait_ms = head->argument > 0 ? head->argument : 0;
    if (!r->told) r->begun_ns = now_ns;
    if (!r->has_told[rank]) {
        r->has_told[rank] = true;
        r->told++;
        if (body.has_reason)
            take_reason(r, rank, &body, text);
        else
            snprintf(r->other, sizeof r->other, "%s", text);
    } else if (rank == r->first) {
        r->is_printed |= body.is_printed != 0;
    }
    wait_for_answer(r, (store_refuser){client, rank, now_ns + wait_ms * INT64_C(1000000)});
    return true;
}

void store_refusals_leave(store_refusals *r, int client) {
    r->has_spoken |= r->is_decided && r->speaker_client == client;
    for (int i = 0; i < r->waiting_count; i++) {
        if (r->waiting[i].client != client) continue;
        // The rank that was to print the line has left without an answer, so the other ranks need
        // not wait for it.
        r->has_spoken |= r->is_decided && r->waiting[i].rank == r->speaker;
        r->waiting[i--] = r->waiting[--r->waiting_count];
    }
}

// Writes the line: "rank 2 (host b): REASON", or REASON alone if all ranks have the same one, or if
// it already begins with a rank.
static void describe(store_refusals *r) {
    bool is_common = r->reasons == r->size && !r->differ;
    char more[96] = "";
    if (r->first == STORE_NO_RANK) {
        snprintf(r->text, sizeof r->text, "%s", r->other);
    } else if (is_common || !strncmp(r->reason, "rank", 4)) {
        snprintf(r->text, sizeof r->text, "%s", r->reason);
    } else {
        if (r->reasons > 1)
            snprintf(more, sizeof more, r->differ ? ", of %s that refuse" : " and %s more",
                     r->differ ? tri_counted(r->reasons, "rank")
                               : tri_counted(r->reasons - 1, "rank"));
        snprintf(r->text, sizeof r->text, "rank %d (host %s)%s: %.*s", r->first, r->host, more,
                 (int)sizeof r->text - 256, r->reason);
    }
}

// Decides which line is printed and which waiting rank prints it: once all ranks have told why they
// end, or TRI_REFUSAL_GATHER_MS after the first one has. If rank 0 serves the store, and not a
// launcher (an agent), nothing is decided before rank 0 itself has told. Until then this may be the
// server at which the ranks met, and rank 0 ends that one before it starts another for refusals.
static void decide(store_refusals *r, int64_t now_ns) {
    int64_t until_ns = r->begun_ns + TRI_REFUSAL_GATHER_MS * INT64_C(1000000);
    bool may = r->told > 0 && (r->has_agent || r->has_told[0]);
    if (r->is_decided || !may || (r->told < r->size && now_ns < until_ns)) return;
    r->is_decided = true;
    r->decided_ns = now_ns;
    describe(r);
    for (int i = 0; i < r->waiting_count; i++)
        if (r->speaker == STORE_NO_RANK || r->waiting[i].rank < r->speaker)
            r->speaker = r->waiting[i].rank;
}

const char *store_refusals_text(const store_refusals *r) {
    return r->is_decided ? r->text : r->first == STORE_NO_RANK ? r->other : r->reason;
}

// When the client is to be answered. All ranks together print one line, which tells why the job
// ends: the speaker is the rank that prints it. It gets its answer as soon as the line is decided.
// The other waiting ranks get their answers when the speaker has printed and left, but at the
// latest TRI_REFUSAL_SPEAK_MS after the decision. If they were answered sooner, one of them could
// end before the speaker has printed, and a launcher may then end all ranks. If nothing is decided,
// a client is answered when it wants to wait no longer.
static int64_t answer_ns(const store_refusals *r, const store_refuser *w) {
    if (!r->is_decided) return w->until_ns;
    if (w->rank == r->speaker || r->has_spoken) return r->decided_ns;
    return r->decided_ns + TRI_REFUSAL_SPEAK_MS * INT64_C(1000000);
}

int store_refusals_next(store_refusals *r, int64_t now_ns, store_refusal_answer *out,
                        int64_t *next_ns) {
    decide(r, now_ns);
    *next_ns = INT64_MAX;
    if (r->told && !r->is_decided) {
        int64_t until_ns = r->begun_ns + TRI_REFUSAL_GATHER_MS * INT64_C(1000000);
        if (until_ns > now_ns) *next_ns = until_ns;
    }
    for (int i = 0; i < r->waiting_count; i++) {
        store_refuser w = r->waiting[i];
        int64_t when_ns = answer_ns(r, &w);
        if (when_ns > now_ns) {
            if (when_ns < *next_ns) *next_ns = when_ns;
            continue;
        }
        r->waiting[i] = r->waiting[--r->waiting_count];
        bool speaks = r->is_decided && w.rank == r->speaker;
        if (speaks) r->speaker_client = w.client;
        *out = (store_refusal_answer){r->is_decided ? TRI_OK : TRI_TIMEOUT,
                                      speaks && !r->is_printed, store_refusals_text(r)};
        return w.client;
    }
    return NOBODY;
}

bool store_refusals_are_open(const store_refusals *r) {
    return r->is_decided && (r->waiting_count > 0 || r->told < r->size);
}
