// Connects the ranks of a run by communicators that suit the recipe and the hosts.
#ifndef TRIREME_CLI_CONNECT_H
#define TRIREME_CLI_CONNECT_H

#include "comm/comm.h"
#include "comm/options.h"
#include "rendezvous/health.h"
#include "rendezvous/rendezvous.h"

// Connects all ranks of the job. Collective. `options` NULL: defaults. *health finds lost ranks.
// The communicator uses *health, so the caller closes the communicator before it stops *health.
// *health is NULL if shared memory alone connects the ranks, because shared memory finds lost ranks
// itself.
tri_status cli_open_comm(const tri_identity *identity, const tri_comm_options *options,
                         tri_comm **out, tri_health **health);
// As cli_open_comm. If the ranks are on several hosts, it also calls `met` when all ranks have
// reached the store (the key-value service through which they find each other) and none is
// connected to another yet. If `met` fails, this call fails too.
tri_status cli_open_comm_after(const tri_identity *identity, const tri_comm_options *options,
                               tri_status (*met)(void *context, tri_store *store), void *context,
                               tri_comm **out, tri_health **health);

#endif
