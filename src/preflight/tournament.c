// A round-robin tournament by the circle method: one player stays, the others rotate.
#include "preflight/tournament.h"

// The number of players, made even, because pairs need an even number. An odd number gets one more,
// who stands for nobody: its partner of a round does not play.
static int even(int players) { return players + players % 2; }

int preflight_rounds(int players) { return players < 2 ? 0 : even(players) - 1; }

int preflight_partner(int players, int round, int player) {
    int last = even(players) - 1, partner;
    if (player == last)
        partner = (int)((long)round * (last + 1) / 2 % last); // who would meet itself: 2·p = round
    else
        partner = ((round - player) % last + last) % last;
    if (partner == player) partner = last;
    return partner < players ? partner : -1;
}
