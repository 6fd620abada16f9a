// What the server of the store (the key-value service at which the ranks meet) knows of the ranks'
// refusals. A refusal: a rank ends with exit code 2, because usage or input is bad. All ranks then
// tell the server why they end, and it chooses one of them, the speaker, to print one line for all.
// This code has no connections and reads no clock: its callers pass it messages and times.
#ifndef TRIREME_RENDEZVOUS_STORE_REFUSALS_H
#define TRIREME_RENDEZVOUS_STORE_REFUSALS_H

#include "rendezvous/store_protocol.h"

#include <stdbool.h>
#include <stdint.h>

// A rank that has told its reason and waits for the answer. `client` is the number of its
// connection.
typedef struct store_refuser {
    int client, rank;
    int64_t until_ns; // when the rank wants an answer at the latest, even if nothing is decided
} store_refuser;

typedef struct store_refusals {
    int size;
    // A launcher (an agent) serves. Else rank 0 does, and no line is decided before rank 0 has told
    // why it ends.
    bool has_agent;
    bool *has_told; // by rank: whether it has told its reason
    int told;       // how many ranks have told their reason
    int reasons;    // how many of them have a reason of their own
    // The lowest rank that has a reason of its own to end, or STORE_NO_RANK; host, reason and
    // is_printed are those of this rank.
    int first;
    char host[64];
    char reason[TRI_MESSAGE_MAX_BYTES];
    bool is_printed;
    bool differ; // ranks have different reasons
    // The text of the latest rank without a reason of its own. Such a rank ends because it learned
    // that another rank refuses, and tells that rank's reason. This text is printed if no rank
    // tells a reason of its own.
    char other[TRI_MESSAGE_MAX_BYTES];
    int64_t begun_ns;
    bool is_decided; // the line is decided: decided_ns, speaker and text are set
    int64_t decided_ns;
    int speaker; // the rank that prints the line; other ranks are answered after it has left
    int speaker_client;
    bool has_spoken;
    char text[TRI_MESSAGE_MAX_BYTES];
    store_refuser *waiting;
    int waiting_count, waiting_capacity;
} store_refusals;

void store_refusals_create(store_refusals *r, int size);
void store_refusals_destroy(store_refusals *r);
// Stores what a rank tells; the client then waits for its answer. False: the message is not one
// that a rank of this job sends, or the client waits for an answer already.
bool store_refusals_take(store_refusals *r, int client, const store_head *head, const char *value,
                         int64_t now_ns);
// Forgets a client whose connection has ended. If its rank had to print the line, the other ranks
// no longer wait for that.
void store_refusals_leave(store_refusals *r, int client);
typedef struct store_refusal_answer {
    // TRI_TIMEOUT: the line is not decided yet, and the client can wait no longer.
    tri_status status;
    bool speaks; // the client's rank has to print the text
    const char *text;
} store_refusal_answer;
// Finds a client that has to be answered now, and no longer counts it as waiting. Returns its
// number, and its answer in *out. -1: there is none; then *next_ns is the time at which this
// function has to be called again (INT64_MAX: only after the next message).
int store_refusals_next(store_refusals *r, int64_t now_ns, store_refusal_answer *out,
                        int64_t *next_ns);
// True if the line that tells why the job ends is decided, and some ranks still wait for it or have
// not told their reason yet.
bool store_refusals_are_open(const store_refusals *r);
// Gets the line that tells why the job ends or, before it is decided, a rank's reason. Ranks that
// wait at the store for the other ranks to arrive are answered with it, because the refusing ranks
// will not arrive.
const char *store_refusals_text(const store_refusals *r);

#endif
