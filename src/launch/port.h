// Where rank 0 of an attempt may listen.
#ifndef TRIREME_LAUNCH_PORT_H
#define TRIREME_LAUNCH_PORT_H

#include "base/status.h"

#include <stdbool.h>

// A port that is free now, on the loopback interface or on all of them. The system hands out free
// ports in turn, so that it will very probably still be free when rank 0 binds it.
tri_status launch_free_port(bool is_local, int *port);

#endif
