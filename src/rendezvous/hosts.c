// Finds which ranks share a host, from what every rank tells about its own host when all are
// connected. The result replaces the local ranks guessed from the launcher's variables, because
// with a wrong local rank two ranks could use the same GPU. If the launcher gives local ranks or
// counts that contradict the result, the run fails.
#include "rendezvous/rendezvous.h"

#include "base/limits.h"
#include "base/os.h"

#include <stdlib.h>
#include <string.h>

// Reads the id of this host's current boot. It is needed because cloned machines may have the same
// name.
static void read_boot(char *out, size_t size) {
    char *text;
    size_t length;
    out[0] = 0;
    if (tri_os_read_file("/proc/sys/kernel/random/boot_id", 4096, &text, &length) != TRI_OK) return;
    if (length >= size) length = size - 1;
    memcpy(out, text, length);
    out[length] = 0;
    free(text);
}

void tri_host_claim_make(const tri_identity *identity, tri_host_claim *out) {
    // The struct is sent with its padding, which must not be random memory.
    memset(out, 0, sizeof *out);
    memcpy(out->host, identity->host, sizeof out->host);
    read_boot(out->boot, sizeof out->boot);
    out->local_rank = identity->given.local_rank ? identity->local_rank : -1;
    out->local_size = identity->given.local_size ? identity->local_size : -1;
}

bool tri_host_claim_is_same_host(const tri_host_claim *a, const tri_host_claim *b) {
    return !strncmp(a->host, b->host, sizeof a->host) && !strncmp(a->boot, b->boot, sizeof a->boot);
}

// A rank's number among the ranks of its host, in the order of ranks, and how many there are.
typedef struct host_ranks {
    int own, count;
    bool numbered; // the launcher has given each of them a different local rank, from 0 on
    // The ranks are those of several launchers (agents), such as one in each of two containers:
    // each launcher has numbered its own, which follow each other.
    bool is_in_parts;
} host_ranks;

// Whether the rank and those that its launcher counts with it are on one host and numbered in
// order.
static bool is_in_part(const tri_host_claim *claims, int count, int rank) {
    const tri_host_claim *own = &claims[rank];
    int first = rank - own->local_rank;
    if (own->local_rank < 0 || own->local_rank >= own->local_size || first < 0 ||
        own->local_size > count - first)
        return false;
    for (int i = 0; i < own->local_size; i++) {
        const tri_host_claim *other = &claims[first + i];
        if (!tri_host_claim_is_same_host(own, other) || other->local_rank != i ||
            other->local_size != own->local_size)
            return false;
    }
    return true;
}

static host_ranks ranks_of_host(const tri_host_claim *claims, int count, int rank) {
    static _Thread_local bool seen[TRI_MAX_RANKS];
    host_ranks found = {0};
    memset(seen, 0, sizeof seen);
    found.numbered = found.is_in_parts = true;
    for (int i = 0; i < count; i++) {
        if (!tri_host_claim_is_same_host(&claims[i], &claims[rank])) continue;
        int claimed = claims[i].local_rank;
        found.numbered =
            found.numbered && claimed >= 0 && claimed < TRI_MAX_RANKS && !seen[claimed];
        if (found.numbered) seen[claimed] = true;
        found.is_in_parts = found.is_in_parts && is_in_part(claims, count, i);
        if (i < rank) found.own++;
        found.count++;
    }
    for (int i = 0; i < found.count; i++) found.numbered = found.numbered && seen[i];
    return found;
}

static tri_status check_claim(const tri_host_claim *claim, int rank, const host_ranks *found,
                              const char *launcher) {
    if (found->is_in_parts) return TRI_OK;
    if (claim->local_size >= 0 && claim->local_size != found->count)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "rank %d on %s: %s says that the host has %d of the ranks, but it has %d; "
                        "start so many there, or unset the variable",
                        rank, claim->host, launcher, claim->local_size, found->count);
    if (claim->local_rank >= 0 && !found->numbered && claim->local_rank != found->own)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "rank %d on %s: %s says that it is local rank %d, but of the host's %d "
                        "ranks it is number %d; correct the variable, or unset it",
                        rank, claim->host, launcher, claim->local_rank, found->count, found->own);
    return TRI_OK;
}

tri_status tri_identity_settle(const tri_host_claim *claims, int count, tri_identity *identity) {
    for (int i = 0; i < count; i++) {
        host_ranks found = ranks_of_host(claims, count, i);
        TRI_TRY(check_claim(&claims[i], i, &found, tri_launcher_text(identity)));
        if (i != identity->rank) continue;
        identity->local_size = found.count;
        identity->local_rank = found.numbered ? claims[i].local_rank : found.own;
    }
    return TRI_OK;
}
