// Connecting the ranks of a run.
#ifndef TRIREME_CLI_CONNECT_H
#define TRIREME_CLI_CONNECT_H

#include "comm/comm.h"
#include "comm/options.h"
#include "rendezvous/health.h"
#include "rendezvous/rendezvous.h"

// Collective over all ranks of the job. `options` NULL: defaults. *health ends after the
// communicator; NULL: all ranks are on one host.
tri_status cli_open_comm(const tri_identity *identity, const tri_comm_options *options,
                         tri_comm **out, tri_health **health);

#endif
