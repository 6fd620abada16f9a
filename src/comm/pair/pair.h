// Two communicators as one: `inside` connects the ranks of a host, `across` those of all hosts that
// have the same rank inside. A sum is scattered inside, reduced across, and gathered inside, so
// that the slower network carries each element once. Rank h * L + l is rank l inside of host h.
//
// Sums: first the terms of a host are added, in the order of `inside`, and then the hosts' sums, in
// the order of `across`: (s0 + s1) + (s2 + s3), and not ((s0 + s1) + s2) + s3. So they are in rank
// order only if one of the two has one rank. Sums of integers, maxima and minima are the same in
// any order. If an operation accumulates, the hosts' sums are added to what `recv` holds. Values
// that travel as half types are rounded at each level, and the result of an ALL_REDUCE once more.
//
// Both levels compare what their ranks call. This finds most mismatches, but not all: a level sees
// only its part of an operation, and two different counts may have equal parts. comm/generic finds
// all mismatches.
#ifndef TRIREME_COMM_PAIR_PAIR_H
#define TRIREME_COMM_PAIR_PAIR_H

#include "comm/comm.h"

typedef struct tri_comm_pair {
    tri_comm *inside, *across;
    // A communicator over all ranks in that order. It carries messages between ranks that share
    // neither `inside` nor `across`. NULL: such messages are TRI_UNSUPPORTED.
    tri_comm *direct;
    const int *job_rank; // by rank; NULL: the ranks of the pair are the job's
} tri_comm_pair;

// Makes the pair, and takes the communicators over, also when it fails. Collective. The pair can be
// split into groups that have the same ranks of each host, in order; other groups have no two
// levels, and use `direct` for all operations.
tri_status tri_comm_pair_open(const tri_comm_pair *pair, tri_comm **out);

#endif
