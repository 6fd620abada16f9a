// What the checks of a preflight share, and what each of them supplies. A preflight measures the
// hosts of a job before a run; each check is one question, whose answer is go or no-go. The store
// is the key-value service at which the ranks meet before they are connected.
#ifndef TRIREME_PREFLIGHT_STATE_H
#define TRIREME_PREFLIGHT_STATE_H

#include "launch/topology.h"
#include "preflight/judge.h"
#include "preflight/preflight.h"

enum {
    PREFLIGHT_TEXT_BYTES = 256,
    // A host (or, if there is only one host, a rank) measures with at most so many other hosts (or
    // ranks).
    PREFLIGHT_MAX_ROUNDS = 255,
    PREFLIGHT_LISTED_ENDPOINTS = 64, // up to this many hosts (or ranks), results list all pairs
};

// What a rank finds out by itself, in the structs from here to preflight_clock. All ranks then get
// the findings of all. Texts of failures are "" if there was no failure.
typedef struct preflight_device {
    char name[TRI_DEVICE_NAME_BYTES], failure[PREFLIGHT_TEXT_BYTES];
    int32_t threads;
    bool has_memory;    // the device has memory of its own
    int64_t free_bytes; // how many bytes this rank can allocate
    double flops_per_s; // the rate of arithmetic that the device reached
} preflight_device;

typedef struct preflight_host_side {
    int64_t free_bytes; // free memory of the host, for all its ranks together; 0: not known
    launch_cpus cpus;   // the CPUs on which the rank may run
    int32_t cores;      // number of cores of these CPUs, or `quota` if that is less
    int32_t quota;      // tri_cores_quota
} preflight_host_side;

typedef struct preflight_folder {
    char failure[PREFLIGHT_TEXT_BYTES], kind[24];
    double free_bytes, fsync_s, write_bytes_per_s;
} preflight_folder;

typedef struct preflight_clock {
    // How far the host's clock is ahead of that of rank 0's host, and by how much that may be
    // wrong.
    double offset_s, uncertainty_s;
} preflight_clock;

struct preflight {
    tri_arena *arena;
    const preflight_request *request;
    tri_identity identity;
    bool has_met; // all ranks have reached the store
    tri_comm *comm;
    tri_health *health;
    double connect_s; // how long it took until the ranks were connected
    tri_device *device;
    // Members about hosts, which are numbered in the order of their lowest ranks.
    int host_count;
    int *host_of;            // by rank: its host
    int *first;              // by host: its lowest rank
    int *local_ranks;        // by host: how many ranks it has
    const char **host_names; // by host: its name
    // By rank: what each rank found out by itself, gathered on all ranks.
    preflight_device *devices;
    preflight_host_side *host_sides;
    preflight_folder *folders; // only those of the first rank of each host are filled in
    // The run folder or, if it does not exist yet, the nearest existing folder above it.
    char *folder;
    // Why a rank could not write its file in the check whether all ranks have the same run folder;
    // NULL: all could. In this check, ranks write small files there and look for each other's
    // (files.c).
    const char *file_failure;
    // By rank: which folder it sees at the path of the run folder. Ranks that see each other's
    // files see the same folder, and its number is the lowest of these ranks. -1: the rank takes no
    // part in the check.
    int32_t *folder_of;
    double late_s; // seconds until the last file of another rank was seen, in the check of files.c
    // By host: how far its clock differs from that of rank 0's host.
    preflight_clock *clocks;
    // Members about the endpoints of links, which are hosts or, if there is only one host, its
    // ranks.
    int endpoint_count;
    int *endpoint_ranks; // by endpoint: number of its rank
    // How many rounds the measurements have. In each round an endpoint (a host or, on a single
    // host, a rank) measures with one other endpoint. With very many endpoints there are fewer
    // rounds (PREFLIGHT_MAX_ROUNDS) than other endpoints, so some pairs are not measured.
    int rounds;
    preflight_pair *own_pairs;       // by round of the measurements: the pair of this rank
    preflight_endpoint_rates *rates; // by endpoint (host or rank): a summary of its rates
    bool *slow_endpoints;            // by endpoint (host or rank): whether it is slow
    // By endpoint: faults of its pairs with endpoints of higher numbers.
    preflight_endpoint_faults *faults;
    // What every endpoint (a host or a rank) measured in every round, at
    // pairs[endpoint * rounds + round]. NULL: there are too many to list.
    preflight_pair *pairs;
    // The fastest all-reduce over all ranks that was measured: the bytes of its buffer, its time,
    // and the time that it would take if all links had the rate of the slowest pair.
    double sum_bytes, sum_s, sum_expected_s;
};

// One check. `measure` is collective, and fails only if the ranks can no longer reach each other.
// `judge` reads what was gathered and gives the same verdict on all ranks. After a no-go both are
// called again, because another program may have disturbed the measurement. Checks that measure
// rates, times or clocks then keep the best result of all attempts.
typedef struct preflight_check {
    const char *name;
    int attempts; // how many times `measure` may be called while the verdict is no-go
    // Returns why the check does not apply; NULL, or a NULL function: it applies.
    const char *(*skips)(const preflight *p);
    tri_status (*measure)(preflight *p);
    void (*judge)(preflight *p, preflight_row *row);
} preflight_check;

extern const preflight_check preflight_meeting, preflight_devices, preflight_memory,
    preflight_binding, preflight_clocks, preflight_run_folder, preflight_same_files,
    preflight_links, preflight_sums, preflight_compute;

// Checks that all hosts reach each other. If the ranks are on several hosts, this is called when
// all have met at the store and none is connected yet. `context` is the preflight. TRI_NETWORK:
// some hosts do not reach each other; the message names them.
tri_status preflight_reach(void *context, tri_store *store);
// The other hosts that one host does not reach.
enum { PREFLIGHT_NAMED_FAILURES = 63 };
typedef struct preflight_failures {
    // How many hosts these are, and their numbers; if there are many, only the first are listed.
    int32_t count, host[PREFLIGHT_NAMED_FAILURES];
} preflight_failures;
// Names the hosts, and pairs of hosts, that do not reach each other. `all` is by host. "": all
// reach each other.
const char *preflight_unreached(tri_arena *arena, const preflight_failures *all,
                                const char *const *names, int hosts);
// Gathers one value of each rank: all[r] is what rank r passed as `mine`.
tri_status preflight_gather(preflight *p, const void *mine, void *all, size_t bytes,
                            const char *label);
// Send or receive one message. Each returns when this rank's part is done.
tri_status preflight_send(preflight *p, int peer, const void *data, size_t bytes);
tri_status preflight_recv(preflight *p, int peer, void *data, size_t bytes);
// Sends and receives at the same time, as ranks do in collectives: a network may be slower then
// than in one direction alone.
tri_status preflight_exchange(preflight *p, int peer, const void *out, void *in, size_t bytes);
// Names a rank for messages: "rank 3 (node2)"; in a job of one rank, its host.
const char *preflight_rank_text(const preflight *p, int rank);
// Whether this rank is the first of its host and so measures for it.
bool preflight_is_first(const preflight *p);
// Joins one text of each host: "TEXT" if all are equal, else "node1 TEXT, node2 TEXT, …", so that
// the table stays short.
const char *preflight_by_host(const preflight *p, const char *const *texts);
// A list in one line: "a, b, c". It shows only a few items; if there are more, "and 12 more" at its
// end tells how many are left out.
typedef struct preflight_list {
    tri_arena *arena;
    char *text; // NULL: the list is empty
    int count;
} preflight_list;
void preflight_list_add(preflight_list *list, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
const char *preflight_list_text(const preflight_list *list);
// Sets the row's verdict to no-go with this line.
void preflight_fail(preflight *p, preflight_row *row, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
