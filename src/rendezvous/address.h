// Where the ranks of several hosts look for rank 0.
#ifndef TRIREME_RENDEZVOUS_ADDRESS_H
#define TRIREME_RENDEZVOUS_ADDRESS_H

#include "rendezvous/rendezvous.h"

// Fills in address, interface, master_host and master_port of an identity whose job is named.
tri_status rendezvous_read_address(const char *(*get)(const char *name), tri_identity *out);

// Splits "HOST:PORT" or "[ADDRESS]:PORT". Without a port it has the default one; 0: it needs one.
// False: the text is neither.
bool rendezvous_split_address(const char *text, int default_port, char host[TRI_HOST_NAME_MAX],
                              int *port);

#endif
