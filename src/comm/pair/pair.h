// Two communicators as one: `inside` connects the ranks of a host, and `across` connects, on all
// hosts, the ranks that have the same number inside. A sum is scattered inside, reduced across, and
// gathered inside, so that only one rank of each host sends an element over the slower network. All
// hosts have the same number of ranks, L. Rank h * L + l is local rank l of host h.
//
// Sums: first the terms (each rank's contribution) of each host are added, in the order of
// `inside`, and then the hosts' sums, in the order of `across`: with two hosts of two ranks (s0 +
// s1) + (s2 + s3) instead of ((s0 + s1) + s2) + s3. So sums are in rank order only if `inside` or
// `across` has a single rank. Sums of integers, maxima and minima are the same in any order. If an
// operation accumulates, the hosts' sums are added to the old contents of `recv`. If values travel
// as half types, each level rounds the terms that it sends, and an ALL_REDUCE also rounds its
// result.
//
// Each inner communicator checks that its ranks call the same operation. These ranks also compare
// the operations that their callers started (tri_comm_op.part_of), because an operation inside can
// be the same although the callers' counts differ. One mismatch is not found, and ends only at the
// time limit: a rank sends a message over `direct` (a communicator over all ranks), and the other
// rank calls a collective, which uses `inside` and `across`.
#ifndef TRIREME_COMM_PAIR_PAIR_H
#define TRIREME_COMM_PAIR_PAIR_H

#include "comm/comm.h"

typedef struct tri_comm_pair {
    tri_comm *inside, *across;
    // A communicator over all ranks, in which each rank has the number h * L + l too. It carries
    // messages between ranks that share neither `inside` nor `across`. NULL: such messages fail
    // with TRI_UNSUPPORTED.
    tri_comm *direct;
    const int *job_rank; // job_rank[r]: the number of rank r in the job; NULL: it is r
} tri_comm_pair;

// Makes the pair and takes over its communicators, even if it fails. Collective. The pair can be
// split into groups that contain the same local ranks of each host, in order. Other groups cannot
// have two levels, and use `direct` for all operations.
tri_status tri_comm_pair_open(const tri_comm_pair *pair, tri_comm **out);

#endif
