// What the ranks have spent their time in, from their ledgers (records of what they do).
#ifndef TRIREME_OBSERVE_ACTIONS_H
#define TRIREME_OBSERVE_ACTIONS_H

#include "base/tree.h"
#include "comm/comm.h"

// Makes a list of maps: of each rank whose ledger this one can see, at most TRI_MAX_SHOWN_RANKS of
// them, each kind of action (`rank`, `action`, `count`, `seconds`), the longest first.
tri_tree *tri_actions_tree(tri_arena *arena, tri_comm *comm);

#endif
