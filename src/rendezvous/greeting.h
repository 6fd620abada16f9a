// The first bytes of a TCP connection between a rank and the server of the store (the key-value
// service at which the ranks meet). Before anything else is sent or read, both ends prove that they
// have the user's token, a secret. All messages have a fixed size. The server sends the first one,
// so that a rank notices at once if another program listens at the port.
//
//   server → rank   store_challenge   the server's nonce
//   rank → server   store_proof       the rank's nonce, run and number, with a MAC over these and
//                                     the challenge
//   server → rank   store_verdict     whether the rank is admitted, with a MAC over this and both
//                                     earlier messages
//
// A run's generation is the number of its start: a restart of the run begins the next generation.
// A MAC is HMAC-SHA256 with the token's key. A recorded proof cannot be used for another
// connection, because the server's nonce is different there.
#ifndef TRIREME_RENDEZVOUS_GREETING_H
#define TRIREME_RENDEZVOUS_GREETING_H

#include "rendezvous/rendezvous.h"
#include "rendezvous/token.h"

#include <stdbool.h>

enum { STORE_NONCE_BYTES = 32, STORE_MAC_BYTES = 32 };

typedef struct store_challenge {
    char magic[8];
    unsigned char nonce[STORE_NONCE_BYTES];
} store_challenge;

typedef struct store_proof {
    char magic[8];
    unsigned char nonce[STORE_NONCE_BYTES];
    uint64_t run; // a hash of the run's name
    int64_t generation;
    int64_t rank; // the sender's rank; the server does not use it
    unsigned char mac[STORE_MAC_BYTES];
} store_proof;

typedef enum store_admission {
    STORE_ADMITTED = 1,
    STORE_OTHER_RUN,
    STORE_STALE, // the run was started again after this rank's start
    STORE_EARLY, // the server still serves an earlier start of the run
} store_admission;

typedef struct store_verdict {
    int64_t admission; // a store_admission
    int64_t generation;
    unsigned char mac[STORE_MAC_BYTES];
} store_verdict;

// Whom a server admits: ranks that have the token and belong to this run and to this generation.
typedef struct store_gate {
    store_token token;
    uint64_t run;
    int64_t generation;
} store_gate;

uint64_t store_run_hash(const tri_identity *identity);

// The server's side of the greeting. store_proof_check returns false if the sender of the proof
// does not have the token. Such a sender gets no answer, because an answer could help to guess the
// token.
tri_status store_challenge_make(store_challenge *out);
bool store_proof_check(const store_gate *gate, const store_challenge *challenge,
                       const store_proof *proof, store_verdict *out);

// The rank's side of the greeting. TRI_NOT_FOUND: the challenge came from something else than a
// store, or the verdict from a store that does not have the token. Then the rank looks for the
// store at other addresses and ports.
tri_status store_proof_make(const store_token *token, const tri_identity *identity,
                            const store_challenge *challenge, store_proof *out);
tri_status store_verdict_check(const store_token *token, const store_challenge *challenge,
                               const store_proof *proof, const store_verdict *verdict);

#endif
