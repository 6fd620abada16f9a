// What the checks of one preflight share, and what each of them offers.
#ifndef TRIREME_PREFLIGHT_STATE_H
#define TRIREME_PREFLIGHT_STATE_H

#include "launch/topology.h"
#include "preflight/judge.h"
#include "preflight/preflight.h"

enum {
    PREFLIGHT_TEXT_BYTES = 256,
    PREFLIGHT_MAX_ROUNDS = 255, // an end measures with so many others at most
    PREFLIGHT_LISTED_ENDS = 64, // of more, the results do not list all pairs
};

// What a rank finds out by itself, before it is gathered. The texts of failures are "" where there
// is none.
typedef struct preflight_device {
    char name[TRI_DEVICE_NAME_BYTES], failure[PREFLIGHT_TEXT_BYTES];
    int32_t threads;
    bool has_memory;    // of its own
    int64_t free_bytes; // that this rank can allocate
    double flops_per_s; // that it reached
} preflight_device;

typedef struct preflight_host_side {
    int64_t free_bytes; // of the host, for all its ranks together; 0: unknown
    launch_cpus cpus;   // that the rank may run on
    int32_t cores;      // of these CPUs
} preflight_host_side;

typedef struct preflight_folder {
    char failure[PREFLIGHT_TEXT_BYTES], kind[24];
    double free_bytes, fsync_s, write_bytes_per_s;
} preflight_folder;

typedef struct preflight_clock {
    double offset_s, uncertainty_s; // of the host's clock to that of rank 0's
} preflight_clock;

struct preflight {
    tri_arena *arena;
    const preflight_request *request;
    tri_identity identity;
    bool has_met; // all ranks have reached the store
    tri_comm *comm;
    tri_health *health;
    double connect_s;
    tri_device *device;
    // About hosts, which are numbered in the order of their lowest ranks.
    int host_count;
    int *host_of;            // by rank
    int *first;              // by host: its lowest rank
    int *local_ranks;        // by host
    const char **host_names; // by host
    // What was gathered from all ranks, by rank.
    preflight_device *devices;
    preflight_host_side *sides;
    preflight_folder *folders; // only of the first rank of each host
    char *folder;              // in which files are written
    const char *file_failure;  // why a rank could not write one; NULL: all could
    int32_t *folder_of;        // the lowest rank of those that see each other's files; -1: no part
    double late_s;             // until the last file was seen
    // How far the clocks of the hosts are from that of rank 0; by host.
    preflight_clock *clocks;
    // About ends of links, which are hosts, or the ranks of the only host.
    int end_count;
    int *end_ranks;               // by end
    int rounds;                   // in which this rank measured; of many ends not all pairs
    preflight_pair *own_pairs;    // by round
    preflight_end_rates *rates;   // by end
    bool *slow_ends;              // by end
    preflight_end_faults *faults; // by end: of its pairs with higher ends
    preflight_pair *pairs;        // [end * rounds + round]; NULL: too many to list
    double sum_bytes, sum_s, sum_expected_s;
};

// One check. `measure` is collective, and fails only if the ranks can no longer reach each other.
// Called again, it keeps the best of its values, so that what disturbed one measurement is not
// blamed on a host. `judge` reads what was gathered and gives the same verdict on all ranks.
typedef struct preflight_check {
    const char *name;
    int attempts;                             // while it is no-go
    const char *(*skips)(const preflight *p); // why it does not apply; NULL, also returned: it does
    tri_status (*measure)(preflight *p);
    void (*judge)(preflight *p, preflight_row *row);
} preflight_check;

extern const preflight_check preflight_meeting, preflight_devices, preflight_memory,
    preflight_binding, preflight_clocks, preflight_run_folder, preflight_same_files,
    preflight_links, preflight_sums, preflight_compute;

// Called between the meeting and the connection of ranks on several hosts; `context` is the
// preflight. TRI_NETWORK names hosts that do not reach each other.
tri_status preflight_reach(void *context, tri_store *store);
// The other hosts that one host does not reach.
enum { PREFLIGHT_NAMED_FAILURES = 63 };
typedef struct preflight_failures {
    int32_t count, host[PREFLIGHT_NAMED_FAILURES]; // of more, the first ones
} preflight_failures;
// Names the hosts and pairs of hosts that do not reach each other, by host. "" if all do.
const char *preflight_unreached(tri_arena *arena, const preflight_failures *all,
                                const char *const *names, int hosts);
// Gathers what each rank gives: all[r] is what rank r gave as `mine`.
tri_status preflight_gather(preflight *p, const void *mine, void *all, size_t bytes,
                            const char *label);
// Send or receive one message; each returns when this rank's side is done.
tri_status preflight_send(preflight *p, int peer, const void *data, size_t bytes);
tri_status preflight_recv(preflight *p, int peer, void *data, size_t bytes);
// Sends and receives at once, because a link may be slower in both directions than in one.
tri_status preflight_exchange(preflight *p, int peer, const void *out, void *in, size_t bytes);
// Names a rank for messages: "rank 3 (node2)"; in a job of one rank its host.
const char *preflight_rank_text(const preflight *p, int rank);
// Whether this rank is the first of its host, which measures for it.
bool preflight_is_first(const preflight *p);
// Joins one text for each host, by host: "TEXT" if they are equal, else "node1 TEXT, node2 TEXT,
// …", so that the table stays short.
const char *preflight_by_host(const preflight *p, const char *const *texts);
// Writes a time for people: "3.2 ms", "12 us", "1.5 s".
const char *preflight_time_text(const preflight *p, double seconds);
// A list in one line. Up to a few items are added; "…, and 12 more" then tells how many are left
// out.
typedef struct preflight_list {
    tri_arena *arena;
    char *text; // NULL: empty
    int count;
} preflight_list;
void preflight_list_add(preflight_list *list, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
const char *preflight_list_text(const preflight_list *list);
// Turns the row into no-go with this line.
void preflight_fail(preflight *p, preflight_row *row, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
