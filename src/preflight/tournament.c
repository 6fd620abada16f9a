// A round-robin tournament by the circle method: one player (a host or rank that measures) keeps
// its seat at a table, the others move one seat further in each round, and each meets the player
// opposite.
#include "preflight/tournament.h"

// Rounds the number of players up to an even number, because players meet in pairs. The added
// player does not exist: a player who would meet it does not play in that round.
static int even(int players) { return players + players % 2; }

int preflight_rounds(int players) { return players < 2 ? 0 : even(players) - 1; }

int preflight_partner(int players, int round, int player) {
    int last = even(players) - 1, partner;
    if (player == last)
        // By the rule below, the numbers of a pair add up to `round` (mod last). It would pair one
        // player p with itself, for which 2 * p = round (mod last); so p meets `last`. To find p,
        // `round` is multiplied by (last + 1) / 2, the inverse of 2 (mod last); `last` is odd.
        partner = (int)((long)round * (last + 1) / 2 % last);
    else
        partner = ((round - player) % last + last) % last;
    if (partner == player) partner = last;
    return partner < players ? partner : -1;
}
