// What the store's server knows of the ranks' refusals, without connections and clocks. A rank
// refuses when it ends with exit code 2. All ranks then tell why, so that one of them prints one
// line for all.
#ifndef TRIREME_RENDEZVOUS_STORE_REFUSALS_H
#define TRIREME_RENDEZVOUS_STORE_REFUSALS_H

#include "rendezvous/store_protocol.h"

#include <stdbool.h>
#include <stdint.h>

// A rank that has told its reason and waits for the answer.
typedef struct store_refuser {
    int client, rank;
    int64_t until_ns; // when the rank wants an answer at the latest, even if nothing is decided
} store_refuser;

typedef struct store_refusals {
    int size;
    bool has_agent; // the server's process is not a rank, so it can answer without rank 0
    bool *has_told; // by rank: whether it has told its reason
    int told;       // how many ranks have told their reason
    int reasons;    // how many of them have a reason of their own
    // The lowest rank with a reason, or STORE_NO_RANK; the next three members belong to it.
    int first;
    char host[64];
    char reason[TRI_MESSAGE_MAX_BYTES];
    bool is_printed;
    bool differ; // ranks have different reasons
    // What a rank without a reason of its own has told: the reason of another rank, of which it
    // learned. It is the line if no rank tells a reason of its own.
    char other[TRI_MESSAGE_MAX_BYTES];
    int64_t begun_ns;
    bool is_decided; // the line is decided, and the members below are set
    int64_t decided_ns;
    int speaker; // the rank that prints the line; the others are answered when it has left
    int speaker_client;
    bool has_spoken;
    char text[TRI_MESSAGE_MAX_BYTES];
    store_refuser *waiting;
    int waiting_count, waiting_capacity;
} store_refusals;

void store_refusals_create(store_refusals *r, int size);
void store_refusals_destroy(store_refusals *r);
// Takes over what a rank tells. False: no rank of ours sends such a message.
bool store_refusals_take(store_refusals *r, int client, const store_head *head, const char *value,
                         int64_t now_ns);
// The client's connection has ended.
void store_refusals_leave(store_refusals *r, int client);
typedef struct store_refusal_answer {
    tri_status status; // TRI_TIMEOUT: not all ranks have told yet
    bool speaks;       // the client's rank has to print the text
    const char *text;
} store_refusal_answer;
// Finds a client that is to be answered now. Returns its number, with its answer in *out, and
// forgets that it waits. -1: there is none; then *next_ns is when to ask again (INT64_MAX: after
// the next message).
int store_refusals_next(store_refusals *r, int64_t now_ns, store_refusal_answer *out,
                        int64_t *next_ns);
// Whether there are ranks that still have to get the answer.
bool store_refusals_are_open(const store_refusals *r);
// Gets the text for a rank that waits for the others to arrive.
const char *store_refusals_text(const store_refusals *r);

#endif
