// Finds the address at which the ranks of several hosts can reach rank 0.
#ifndef TRIREME_RENDEZVOUS_ADDRESS_H
#define TRIREME_RENDEZVOUS_ADDRESS_H

#include "rendezvous/rendezvous.h"

// Fills in address, interface, master_host and master_port of an identity. Its `job` must be set
// already, because a port may depend on the job's name.
tri_status rendezvous_read_address(const char *(*get)(const char *name), tri_identity *out);

// Splits "HOST:PORT" or "[ADDRESS]:PORT". If there is no port, *port is `default_port`; if that is
// 0, a port is required. False: the text has neither form.
bool rendezvous_split_address(const char *text, int default_port, char host[TRI_HOST_NAME_MAX],
                              int *port);

// Gets the first name in a batch system's list of hosts: the first word, without ":SLOTS", of the
// first line that is not a comment. False: there is none.
bool rendezvous_first_host(const char *text, char host[TRI_HOST_NAME_MAX]);

#endif
