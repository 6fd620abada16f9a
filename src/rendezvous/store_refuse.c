// How a rank that ends with exit code 2 (a refusal) tells the other ranks why, and learns which
// line is printed for all of them. Both go through the server of the store, the key-value service
// at which the ranks meet. This works both before they have met and after the store was closed:
// each rank looks for rank 0, which serves once more for this purpose.
#include "rendezvous/store_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Tells the server this rank's reason (`text`) and waits for the server's answer until `until_ns`.
// The server at which the ranks met may still be there, and end meanwhile. Then the connection
// breaks, and this function connects again, to the server that rank 0 starts next.
static tri_status tell(tri_store *store, const store_refusal *body, const char *text,
                       int64_t until_ns, store_answer *got) {
    char value[sizeof *body + TRI_MESSAGE_MAX_BYTES];
    size_t length = strnlen(text, TRI_MESSAGE_MAX_BYTES - 1);
    memcpy(value, body, sizeof *body);
    memcpy(value + sizeof *body, text, length);
    for (;;) {
        int64_t left_ms = (until_ns - tri_os.monotonic_ns()) / 1000000;
        if (store->fd < 0)
            TRI_TRY(store_connect(store, (int)(left_ms > 0 ? left_ms : 0), until_ns));
        store_head head = {.kind = STORE_REFUSE,
                           .value_bytes = (uint32_t)(sizeof *body + length),
                           .number = store->identity.rank,
                           .argument = left_ms < 0 ? 0 : (int32_t)left_ms};
        tri_status status = store_request(store, head, store->identity.job, value, got);
        if (status == TRI_OK || !store->broken) return status;
        tri_os.close(store->fd);
        store->fd = -1;
        store->broken = false;
        if (tri_os.monotonic_ns() >= until_ns) return status;
        tri_os.sleep_ns(10000000);
    }
}

static void say(tri_refusal *refusal, const store_answer *got) {
    snprintf(refusal->answer, sizeof refusal->answer, "%.*s", (int)sizeof refusal->answer - 1,
             got->value);
    refusal->is_answered = true;
    if (got->number == STORE_SPEAKS) refusal->print(refusal->answer);
    refusal->is_printed |= got->number == STORE_SPEAKS;
}

// Prints a line of this rank's own, because it can wait no longer for the common line.
static void say_own(const tri_store *store, const char *text, tri_refusal *refusal) {
    const tri_identity *me = &store->identity;
    if (!refusal->has_reason || refusal->is_printed) return;
    if (strncmp(text, "rank", 4) != 0)
        snprintf(refusal->answer, sizeof refusal->answer, "rank %d (host %.63s): %.*s", me->rank,
                 me->host, (int)sizeof refusal->answer - 128, text);
    else
        snprintf(refusal->answer, sizeof refusal->answer, "%s", text);
    refusal->print(refusal->answer);
    refusal->is_printed = true;
}

void tri_store_refuse(const tri_identity *identity, const char *text, tri_refusal *refusal) {
    // No store serves so many ranks. Each rank knows this without asking, so rank 0 alone prints
    // `text`.
    if (identity->size > TRI_MAX_RUN_RANKS) {
        refusal->is_printed = identity->rank == 0;
        if (refusal->is_printed) refusal->print(text);
        return;
    }
    tri_store *store = calloc(1, sizeof *store);
    TRI_ASSERT(store);
    store->identity = *identity;
    store->fd = -1;
    pthread_mutex_init(&store->lock, NULL);
    snprintf(store->server_name, sizeof store->server_name, "rank 0 of %d", identity->size);
    store_refusal body = {.size = identity->size, .has_reason = refusal->has_reason};
    snprintf(body.host, sizeof body.host, "%.*s", (int)sizeof body.host - 1, identity->host);
    const int limits_ms[] = {TRI_REFUSAL_LOOK_MS, TRI_REFUSAL_END_MS};
    for (int i = 0; i < 2 && !refusal->is_answered; i++) {
        store_answer got;
        if (tell(store, &body, text, store_after_ms(limits_ms[i]), &got) == TRI_OK) {
            say(refusal, &got);
            free(got.value);
            break;
        }
        say_own(store, text, refusal);
        body.is_printed = refusal->is_printed;
    }
    tri_store_close(store);
}
