// Finds which ranks of a job over several hosts are lost, and tells the others: without this they
// would wait for ever in the next collective. Each rank has a thread that gives the store a sign of
// life every second, and hears from the store of ranks that are lost.
//
// A rank whose process ends without tri_health_stop is lost at once, one without a sign of life
// after `silence_s`. If the store does not answer for so long, the others take the rank for lost
// whose process serves it. A process that was suspended, or had no core, takes no other rank for
// lost because of that.
#ifndef TRIREME_RENDEZVOUS_HEALTH_H
#define TRIREME_RENDEZVOUS_HEALTH_H

#include "base/ledger.h"
#include "rendezvous/rendezvous.h"

typedef struct tri_health tri_health;

enum { TRI_HEALTH_NOBODY = -1 }; // instead of a rank

typedef struct tri_health_config {
    double silence_s; // the same on all ranks; 0: the default
    // The ledger of this rank, which tells others what it does when they ask; it must live until
    // tri_health_drop_ring or tri_health_stop. NULL: they are told nothing.
    const tri_ledger_ring *ring;
    // Called from health's thread, once for each rank that is lost, so that waits can end; if many
    // are lost, at least for the first ones. Also called for this rank, if the others have given it
    // up. `text` names the rank, its host, what happened and what it did: "rank 1 (host b, pid 7)
    // died in FORWARD 'conv2' of step 3".
    void (*on_loss)(void *context, int rank, const char *text);
    void *context;
} tri_health_config;

// Starts the thread that sends beats and listens for losses. Not collective. Takes the store over
// on success: tri_health_stop closes it. TRI_PEER_LOST, TRI_NO_MEMORY.
tri_status tri_health_start(tri_store *store, const tri_health_config *config, tri_health **out);
void tri_health_stop(tri_health *health); // NULL allowed
// Makes beats tell nothing of the ledger from now on. Call it before the memory of config.ring
// ends, because the thread reads it. NULL allowed.
void tri_health_drop_ring(tri_health *health);

// Any thread may call the functions below. They accept NULL, for a run without health: nothing is
// known then.

// What happened to the rank ("died"); NULL: the rank is not known to be lost.
const char *tri_health_loss(const tri_health *health, int rank);
// Tells the others for which rank this one waits, so that a message about a hang can name the rank
// that keeps all; TRI_HEALTH_NOBODY: for none.
void tri_health_set_awaited(tri_health *health, int rank);
// Waits until it is known what the rank told in its latest beat, at most two seconds old; at most
// TRI_SAID_MS if the store does not answer.
void tri_health_ask(tri_health *health, int rank);
// Asks as tri_health_ask does, and returns for which rank `rank` said that it waits.
int tri_health_awaited(tri_health *health, int rank);
// The latest actions of a rank as far as they are known, without waiting; the store is asked for
// newer ones. Empty while nothing is known. Valid until tri_health_stop; its contents change.
const tri_ledger_ring *tri_health_ring(tri_health *health, int rank);
// Whether this run may commit a checkpoint: what is left of a run that was cut in two must not
// overwrite what the other half saves. TRI_PEER_LOST: it has lost a rank, or the store;
// TRI_MISMATCH: a newer generation has taken its place.
tri_status tri_health_admit(tri_health *health);

#endif
