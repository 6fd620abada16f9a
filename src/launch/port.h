// Finds a port at which rank 0 can listen when workers are started or restarted.
#ifndef TRIREME_LAUNCH_PORT_H
#define TRIREME_LAUNCH_PORT_H

#include "base/status.h"

#include <stdbool.h>

// Finds a port that is free now, on the loopback interface or on all interfaces. Nothing reserves
// it until rank 0 binds it. But the system gives out free ports in turn, so it will very probably
// still be free then.
tri_status launch_free_port(bool is_local, int *port);

#endif
