// The messages between ranks and the server of the store, once a connection is admitted.
#ifndef TRIREME_RENDEZVOUS_STORE_PROTOCOL_H
#define TRIREME_RENDEZVOUS_STORE_PROTOCOL_H

#include "base/status.h"
#include "rendezvous/rendezvous.h"

#include <stdint.h>

// A message is this head, the key and the value. Both ends use the byte order of their machine; the
// magic number in `kind` shows if the orders differ.
typedef struct store_head {
    uint32_t kind;
    uint32_t key_bytes;
    uint32_t value_bytes;
    int32_t timeout_ms; // HELLO, GET: how long to wait; REPLY: the tri_status
    int64_t number;     // ADD: the amount; HELLO: rank; REPLY to ADD: the new value
} store_head;

// What a rank says of itself: the value of a HELLO. The value of its answer is an int32_t for each
// rank: the number of its host.
typedef struct store_hello {
    int32_t size;     // ranks of the job
    int32_t total_ms; // the time limit for all to arrive, of which timeout_ms is left; for messages
    tri_host_claim claim;
} store_hello;

enum {
    // A rank arrives. Key: job, number: rank, value: a store_hello. The answer comes only when all
    // ranks have arrived, so that nobody begins alone.
    STORE_HELLO = 0x54520001,
    STORE_SET,
    STORE_GET,
    STORE_ADD,
    STORE_BYE,   // no answer; a connection that ends without it means a lost rank, or server
    STORE_REPLY, // value: of the key, or the message of a failure
    // Begins a rank's second connection, which shows that it lives. Key: job, number: rank,
    // timeout_ms: how long it may be silent. Answered at once, with STORE_BY_AGENT if no rank
    // serves.
    STORE_WATCH,
    // A sign of life, on such a connection. Number: the rank for which the sender waits, or
    // STORE_NO_RANK; value: its ledger (tri_ledger_pack). Answered at once, so that the rank knows
    // that the server lives.
    STORE_BEAT,
    // Asks, on such a connection, what a rank told last. Number: the rank. The answer has the same
    // kind, the value of that rank's latest BEAT, and the BEAT's number in timeout_ms. For some
    // seconds the rank's later BEATs follow, so that nobody has to ask at the right moment.
    STORE_SAID,
    STORE_ADMIT, // may a checkpoint be committed? Refused once a rank is lost
    // From the server on each such connection, once for each rank that is lost. Number: the rank;
    // value: a store_loss, then the value of the rank's latest BEAT.
    STORE_LOST,
    // The rank cannot go on. Value: the message; timeout_ms: the tri_status. All waits for keys,
    // present and later ones, and this message too, are answered with that message and status; if
    // several ranks fail, with those of the first.
    STORE_FAIL,
    // The rank ends with exit code 2; on a connection of its own, without a HELLO. Key: job,
    // number:
    // rank, value: a store_refusal and the text, timeout_ms: until when it wants an answer. That is
    // the line for all ranks, with STORE_SPEAKS for the one that prints it; or TRI_TIMEOUT. A HELLO
    // that waits is answered with TRI_REFUSED.
    STORE_REFUSE,
    STORE_KIND_END,
};

typedef struct store_refusal {
    int32_t size;       // ranks of the job
    int32_t has_reason; // of its own; else it heard of another rank's
    int32_t is_printed; // by this rank, which could wait no longer
    char host[64];
} store_refusal;

typedef struct store_loss {
    char what[64]; // happened to the rank: "died"
    char host[64];
} store_loss;

enum { STORE_BY_RANK, STORE_BY_AGENT }; // the number in the answer to a WATCH
enum { STORE_OF_RANK = 1 };             // the number in an answer with another rank's failure
enum { STORE_SPEAKS = 1 };              // the number in the answer to a REFUSE

enum { STORE_NO_RANK = -1 };

// Checks a head before its sizes are used: TRI_BAD_INPUT unless kind and sizes are within their
// bounds.
tri_status store_head_check(const store_head *head);

#endif
