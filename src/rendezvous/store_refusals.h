// What the server of the store knows of the ranks' refusals, without connections and clocks. A rank
// refuses when it ends with exit code 2. All ranks then tell why, so that one of them prints one
// line for all.
#ifndef TRIREME_RENDEZVOUS_STORE_REFUSALS_H
#define TRIREME_RENDEZVOUS_STORE_REFUSALS_H

#include "rendezvous/store_protocol.h"

#include <stdbool.h>
#include <stdint.h>

// A rank that has told and waits for the answer.
typedef struct store_refuser {
    int client, rank;
    int64_t until_ns; // when it wants to know that there is none yet
} store_refuser;

typedef struct store_refusals {
    int size;
    bool has_agent; // the server's process is no rank, and answers without rank 0
    bool *has_told; // by rank
    int told;       // how many have
    int reasons;    // of them, those that have a reason of their own
    int first;      // the lowest of those, or STORE_NO_RANK; the next three are its own
    char host[64];
    char reason[TRI_MESSAGE_MAX_BYTES];
    bool is_printed;
    bool differ;                       // the reasons
    char other[TRI_MESSAGE_MAX_BYTES]; // a text of a rank without a reason: of whom it heard
    int64_t begun_ns;
    bool is_decided; // then:
    int64_t decided_ns;
    int speaker; // the rank that prints the text; the others are answered when it has left
    int speaker_client;
    bool has_spoken;
    char text[TRI_MESSAGE_MAX_BYTES];
    store_refuser *waiting;
    int waiting_count, waiting_capacity;
} store_refusals;

void store_refusals_create(store_refusals *r, int size);
void store_refusals_destroy(store_refusals *r);
// False: no rank sends such a message.
bool store_refusals_take(store_refusals *r, int client, const store_head *head, const char *value,
                         int64_t now_ns);
void store_refusals_leave(store_refusals *r, int client); // its connection has ended
typedef struct store_refusal_answer {
    tri_status status; // TRI_TIMEOUT: not all have told yet
    bool speaks;       // the client's rank prints the text
    const char *text;
} store_refusal_answer;
// Returns a client that is to be answered now, which then waits no longer, with its answer; or -1,
// and in *next_ns when to ask again (INT64_MAX: after a message).
int store_refusals_next(store_refusals *r, int64_t now_ns, store_refusal_answer *out,
                        int64_t *next_ns);
// Whether there are ranks that have yet to hear the answer, or to come for it.
bool store_refusals_are_open(const store_refusals *r);
// What a rank is told that waits for the others to arrive.
const char *store_refusals_text(const store_refusals *r);

#endif
