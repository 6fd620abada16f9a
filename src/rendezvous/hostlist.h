// Reads Slurm's lists of hosts, from which ranks learn on which host rank 0 is. For example
// "nid[001-003,007],login1" lists the hosts nid001, nid002, nid003, nid007 and login1, in this
// order.
#ifndef TRIREME_RENDEZVOUS_HOSTLIST_H
#define TRIREME_RENDEZVOUS_HOSTLIST_H

#include "base/status.h"

#include <stddef.h>

// Counts the hosts that the list names. TRI_BAD_INPUT: the text is not such a list, or it names
// more than TRI_MAX_RANKS.
tri_status tri_hostlist_count(const char *list, int *out);
// Gets the name of host `index`, from 0. TRI_NOT_FOUND: the list has fewer hosts. TRI_BAD_INPUT:
// the text is not such a list, or the name does not fit.
tri_status tri_hostlist_at(const char *list, int index, char *out, size_t size);

#endif
