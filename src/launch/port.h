// Finds a port at which rank 0 can listen when workers are started or restarted.
#ifndef TRIREME_LAUNCH_PORT_H
#define TRIREME_LAUNCH_PORT_H

#include "base/status.h"

#include <stdbool.h>

// Finds a port that is free now: on the loopback interface if is_local is set, else on all
// interfaces. Nothing reserves the port until rank 0 binds it, but the system chooses among
// thousands, so another process is very unlikely to get the same port in between.
tri_status launch_free_port(bool is_local, int *port);

#endif
