// A round-robin tournament by the circle method: one player stays, the others rotate.
#include "preflight/tournament.h"

// Rounds the number of players up to an even number, because players meet in pairs. The additional
// player stands for nobody: its partner does not play in that round.
static int even(int players) { return players + players % 2; }

int preflight_rounds(int players) { return players < 2 ? 0 : even(players) - 1; }

int preflight_partner(int players, int round, int player) {
    int last = even(players) - 1, partner;
    if (player == last)
        // The player who would meet itself, because 2·p = round.
        partner = (int)((long)round * (last + 1) / 2 % last);
    else
        partner = ((round - player) % last + last) % last;
    if (partner == player) partner = last;
    return partner < players ? partner : -1;
}
