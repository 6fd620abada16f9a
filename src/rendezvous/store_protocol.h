// The messages between ranks and the server of the store (the key-value service at which the ranks
// meet), after a connection was admitted. The server runs in rank 0 or in a launcher (an agent).
#ifndef TRIREME_RENDEZVOUS_STORE_PROTOCOL_H
#define TRIREME_RENDEZVOUS_STORE_PROTOCOL_H

#include "base/status.h"
#include "rendezvous/rendezvous.h"

#include <stdint.h>

// A message consists of this head, the key and the value. Both ends use the byte order of their
// machine; the magic number in `kind` shows if the two differ.
typedef struct store_head {
    uint32_t kind;
    uint32_t key_bytes;
    uint32_t value_bytes;
    int32_t argument; // GET: the time limit in ms; REPLY: the tri_status; others: see below
    int64_t number;   // ADD: the amount; REPLY to ADD: the new value; others: see below
} store_head;

// What a rank tells about itself: the value of a HELLO. The value of the answer is one int32_t for
// each rank, the number of its host.
typedef struct store_hello {
    int32_t size; // number of ranks of the job
    // The whole time limit for all ranks to arrive, for messages. The argument of the HELLO is the
    // part of it that is left.
    int32_t total_ms;
    tri_host_claim claim;
} store_hello;

enum {
    // A rank arrives. Key: job, number: rank, value: a store_hello, argument: how many ms it
    // waits for the other ranks. The answer comes only when all have arrived, so that no rank
    // begins alone.
    STORE_HELLO = 0x54520001,
    STORE_SET,
    STORE_GET,
    STORE_ADD,
    // The sender, a rank or the server, is about to close the connection. Has no answer. If a
    // connection ends without a BYE, its other end was lost.
    STORE_BYE,
    STORE_REPLY, // value: the value of a GET's key or, if the request failed, the reason as text
    // Begins a rank's second connection, which shows that the rank is alive. Key: job, number:
    // rank, argument: for how many ms it may be silent. Answered at once, with STORE_BY_AGENT if a
    // launcher (an agent) serves and not rank 0.
    STORE_WATCH,
    // A beat (a sign of life), on the second connection. Number: the rank for which the sender
    // waits, or STORE_NO_RANK; value: what the sender does now and did last (tri_ledger_pack).
    // Answered at once, so that the sender knows that the server is alive.
    STORE_BEAT,
    // Asks, on the second connection, for the latest BEAT of another rank. Number: that rank. The
    // answer has the same kind and number, the BEAT's value, and the BEAT's number as argument.
    // For TRI_FOLLOWED_MS the server also sends each new BEAT of that rank, in the same form, so
    // that the asker need not ask again.
    STORE_LATEST_BEAT,
    STORE_ADMIT, // asks whether a checkpoint may be committed; the answer is no once a rank is lost
    // Sent by the server on each second connection, once for each rank that is lost. Number: the
    // rank; value: a store_loss, then the value of the rank's latest BEAT.
    STORE_LOST,
    // The rank cannot continue. Value: the text of its failure; argument: the tri_status. The
    // server answers the FAIL, and all waits for keys, now and later, with this text and status. If
    // several ranks fail, it answers with the first failure.
    STORE_FAIL,
    // The rank ends with exit code 2 (a refusal). The message comes on a connection of its own,
    // without a HELLO. Key: job, number: rank, value: a store_refusal and the reason as text,
    // argument: how many ms the rank waits for the answer. The server chooses one text for the
    // whole job and one rank that prints it. Every refusing rank is answered with that text; for
    // the rank that has to print it, the number is STORE_SPEAKS. TRI_TIMEOUT: the server has not
    // chosen in time. A HELLO that is waiting is answered with TRI_REFUSED.
    STORE_REFUSE,
    STORE_KIND_END,
};

typedef struct store_refusal {
    int32_t size;       // number of ranks of the job
    int32_t has_reason; // the rank has a reason of its own; 0: it only learned of another rank's
    int32_t is_printed; // this rank could wait no longer and has itself printed why it ends
    char host[64];
} store_refusal;

typedef struct store_loss {
    char what[64]; // what happened to the rank: "died"
    char host[64];
} store_loss;

// Value of `number` in the answer to a WATCH: whether rank 0 or a launcher (an agent) serves the
// store.
enum { STORE_BY_RANK, STORE_BY_AGENT };
// Value of `number` in an answer whose status and text are not about the request, but come from
// another rank, which has reported a failure or a refusal.
enum { STORE_OF_RANK = 1 };
// Value of `number` in the answer to a REFUSE: this rank has to print the text.
enum { STORE_SPEAKS = 1 };

enum { STORE_NO_RANK = -1 };

// Checks a head before its sizes are used. TRI_BAD_INPUT: kind or sizes are out of bounds.
tri_status store_head_check(const store_head *head);

#endif
