// Where the ranks of several hosts look for rank 0.
#ifndef TRIREME_RENDEZVOUS_ADDRESS_H
#define TRIREME_RENDEZVOUS_ADDRESS_H

#include "rendezvous/rendezvous.h"

// Fills in address, interface, master_host and master_port of an identity whose job is named.
tri_status rendezvous_read_address(const char *(*get)(const char *name), tri_identity *out);

#endif
