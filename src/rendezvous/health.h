// Finds which ranks of a job over several hosts are lost, and tells the other ranks, which would
// otherwise wait for ever in the next collective. The store is the key-value service at which the
// ranks have met; its server runs in rank 0 or in a launcher (an agent). Each rank has a thread
// that sends the server a beat (a sign of life) every second, and to which the server tells which
// ranks are lost.
//
// A rank whose process ends without tri_health_stop is lost at once; one without a beat is lost
// after `silence_s`. If the store does not answer for that long, the other ranks conclude that the
// process that serves it, rank 0 or an agent, is lost. Time in which a process itself was
// suspended, or had no core, does not count as silence of other ranks.
#ifndef TRIREME_RENDEZVOUS_HEALTH_H
#define TRIREME_RENDEZVOUS_HEALTH_H

#include "base/ledger.h"
#include "rendezvous/rendezvous.h"

typedef struct tri_health tri_health;

enum { TRI_HEALTH_NOBODY = -1 }; // the rank number that means "none"

typedef struct tri_health_config {
    // How many seconds without a beat make a rank count as lost; the same on all ranks. 0: the
    // default (TRI_SILENCE_MS).
    double silence_s;
    // This rank's ledger, the record of its actions. Beats carry the latest actions to the server,
    // which passes them on to ranks that ask what this rank does. The ledger must live until
    // tri_health_drop_ring or tri_health_stop. NULL: other ranks learn nothing of this rank's
    // actions.
    const tri_ledger_ring *ring;
    // Called from health's thread, once for each rank that is lost, so that waits for it can end.
    // If many ranks are lost, there may be calls for the first few only. `rank` can be this rank,
    // if the other ranks have given it up, or if the run was started again without it. It is
    // TRI_HEALTH_NOBODY if the store was served by a launcher (an agent), which is lost. `text`
    // names the rank, its host, what happened and what the rank did: "rank 1 (host b, pid 7) died
    // in FORWARD 'conv2' of step 3".
    void (*on_loss)(void *context, int rank, const char *text);
    void *context;
} tri_health_config;

// Starts the thread that sends beats and listens for losses. Not collective. On success it takes
// over the store, which tri_health_stop closes. TRI_PEER_LOST: the store's server has ended.
tri_status tri_health_start(tri_store *store, const tri_health_config *config, tri_health **out);
void tri_health_stop(tri_health *health); // NULL allowed
// From now on this rank's beats say nothing of its latest actions. To be called before the memory
// of config.ring is freed, because health's thread reads the actions from it. NULL allowed.
void tri_health_drop_ring(tri_health *health);

// Any thread may call the functions below. `health` may be NULL, as in a run on one host: then
// nothing is known about the other ranks.

// Tells what happened to the rank ("died"); NULL: as far as is known, it is not lost.
const char *tri_health_loss(const tri_health *health, int rank);
// Tells the other ranks for which rank this one waits, so that a message about a hang can name the
// rank for which all wait; TRI_HEALTH_NOBODY: for none.
void tri_health_set_awaited(tri_health *health, int rank);
// Waits until the rank's latest beat is known, which is then at most two seconds old: ranks send
// one each second, and the store's latest answer is used for a second. If the store does not
// answer, it waits at most TRI_BEAT_ANSWER_MS.
void tri_health_ask(tri_health *health, int rank);
// Asks for the latest beat (sign of life) of `rank` as tri_health_ask does. Returns for which rank
// `rank` waits according to that beat.
int tri_health_awaited(tri_health *health, int rank);
// Returns the latest known actions of a rank without waiting, and asks the store for newer ones.
// Empty while nothing is known. Valid until tri_health_stop; its contents change.
const tri_ledger_ring *tri_health_ring(tri_health *health, int rank);
// Whether this run may commit a checkpoint: if a network failure cuts a run in two, the one half
// must not overwrite the checkpoints of the other. TRI_PEER_LOST: this run has lost a rank, or the
// store. TRI_MISMATCH: the run was started again, so that other ranks have replaced this one.
tri_status tri_health_admit(tri_health *health);

#endif
