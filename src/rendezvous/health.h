// Which ranks of a job over several hosts are lost, and what the others do: each rank has a thread
// that gives the store a sign of life every second, and hears from it of ranks that are lost.
//
// A rank whose process ends without tri_health_stop is lost at once, one without a sign of life
// after `silence_s`. So is, for the others, the rank whose process serves the store. A process that
// was suspended, or had no core, takes nobody for lost because of that.
#ifndef TRIREME_RENDEZVOUS_HEALTH_H
#define TRIREME_RENDEZVOUS_HEALTH_H

#include "base/ledger.h"
#include "rendezvous/rendezvous.h"

typedef struct tri_health tri_health;

enum { TRI_HEALTH_NOBODY = -1 }; // instead of a rank

typedef struct tri_health_config {
    double silence_s; // the same on all ranks; 0: the default
    // What this rank does, for others to ask; it must live until tri_health_drop_ring or
    // tri_health_stop. NULL: nothing.
    const tri_ledger_ring *ring;
    // Called from health's thread, once for each rank that is lost, the first ones at least; also
    // for this rank, if the others have given it up. `text` names the rank, its host, what happened
    // and what it did: "rank 1 (host b, pid 7) died in FORWARD 'conv2' of step 3".
    void (*on_loss)(void *context, int rank, const char *text);
    void *context;
} tri_health_config;

// Not collective. Takes the store over on success: tri_health_stop closes it. TRI_PEER_LOST,
// TRI_NO_MEMORY.
tri_status tri_health_start(tri_store *store, const tri_health_config *config, tri_health **out);
void tri_health_stop(tri_health *health); // NULL allowed
// Before the memory of config.ring ends: beats tell nothing of it from now on. NULL allowed.
void tri_health_drop_ring(tri_health *health);

// All below may be called from any thread, with health NULL as well: nothing is known then.

// NULL: the rank is not known to be lost. Else what happened to it: "died".
const char *tri_health_loss(const tri_health *health, int rank);
// Tells the others for which rank this one waits; TRI_HEALTH_NOBODY: for none.
void tri_health_set_awaited(tri_health *health, int rank);
// Waits until it is known what the rank told last, at most two seconds ago; up to TRI_SAID_MS
// where the store does not answer.
void tri_health_ask(tri_health *health, int rank);
// Asks in this way, and returns what rank `rank` told of the rank that it waits for.
int tri_health_awaited(tri_health *health, int rank);
// The latest actions of a rank as far as they are known, without waiting; the store is asked for
// newer ones. Empty where it has told nothing yet. Valid until tri_health_stop; it changes.
const tri_ledger_ring *tri_health_ring(tri_health *health, int rank);
// Whether this run may commit a checkpoint. TRI_PEER_LOST: it has lost a rank, or the store;
// TRI_MISMATCH: a newer generation has taken its place.
tri_status tri_health_admit(tri_health *health);

#endif
