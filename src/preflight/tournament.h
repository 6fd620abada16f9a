// Decides when two hosts (or ranks) measure the connection between them, as in a tournament where
// every player meets every other player once. In one round a player is in at most one pair, so all
// pairs of a round can measure at the same time.
#ifndef TRIREME_PREFLIGHT_TOURNAMENT_H
#define TRIREME_PREFLIGHT_TOURNAMENT_H

// Counts the rounds until every pair of `players` (hosts or ranks) has measured: players - 1, or
// players if their number is odd.
int preflight_rounds(int players);
// Tells with which other player (host or rank) a player measures in a round; -1: with none.
int preflight_partner(int players, int round, int player);

#endif
