// Finds rank 0's address in the environment. Rank 0 serves the store there: the key-value service
// at which all ranks meet. The first of these that is set counts:
// 1. TRIREME_STORE=HOST:PORT.
// 2. MASTER_ADDR with MASTER_PORT and the next ports: the first one may be taken by another
//    program's store (torchrun's, for example).
// 3. The first host of the Slurm step or job, or of another batch system's job: rank 0 is there.
//    The ports follow from the job's name.
#include "rendezvous/address.h"

#include "base/hash.h"
#include "base/limits.h"
#include "base/os.h"
#include "rendezvous/hostlist.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MASTER_PORT = 29500, // the default of torchrun
    // The ports from which choose_ports chooses. They lie below those that Linux gives to outgoing
    // connections, so that no connection has taken them.
    FIRST_PORT = 20000,
    LAST_PORT = 31999,
};

static const char *value_of(const char *(*get)(const char *name), const char *name) {
    const char *value = get(name);
    return value && *value ? value : NULL;
}

static bool read_port(const char *text, int lowest, int *out) {
    int value = 0;
    const char *at = text;
    while (isdigit((unsigned char)*at) && value <= 65535) value = value * 10 + (*at++ - '0');
    *out = value;
    return at != text && !*at && value >= lowest && value <= 65535;
}

static tri_status copy_host(const char *name, const char *host, size_t length,
                            char out[TRI_HOST_NAME_MAX]) {
    if (length >= TRI_HOST_NAME_MAX)
        return TRI_FAIL(TRI_BAD_INPUT, "%s is longer than %d bytes", name, TRI_HOST_NAME_MAX - 1);
    memcpy(out, host, length);
    out[length] = 0;
    return TRI_OK;
}

static tri_status read_master(const char *(*get)(const char *name), tri_identity *out) {
    const char *host = value_of(get, "MASTER_ADDR"), *port = value_of(get, "MASTER_PORT");
    if (host) TRI_TRY(copy_host("MASTER_ADDR", host, strlen(host), out->master_host));
    if (port && !read_port(port, 0, &out->master_port))
        return TRI_FAIL(TRI_BAD_INPUT, "MASTER_PORT=%.40s is not a number from 0 to 65535", port);
    return TRI_OK;
}

bool rendezvous_split_address(const char *text, int default_port, char host[TRI_HOST_NAME_MAX],
                              int *port) {
    const char *begin = text, *end = text + strcspn(text, ":"), *colon = end;
    if (*text == '[') {
        begin++;
        end = begin + strcspn(begin, "]");
        if (!*end) return false;
        colon = end + 1;
    }
    size_t length = (size_t)(end - begin);
    if (!length || length >= TRI_HOST_NAME_MAX) return false;
    *port = default_port;
    // read_port rejects an IPv6 address without brackets, which has several colons: nobody could
    // tell whether its last number is a port.
    if (*colon ? *colon != ':' || !read_port(colon + 1, 1, port) : !default_port) return false;
    memcpy(host, begin, length);
    host[length] = 0;
    return true;
}

static tri_status read_exact(const char *text, tri_store_address *out) {
    if (!rendezvous_split_address(text, 0, out->host, &out->port))
        return TRI_FAIL(TRI_BAD_INPUT,
                        "TRIREME_STORE=%.80s is not HOST:PORT (of IPv6: [ADDRESS]:PORT)", text);
    out->ports = 1;
    out->is_exact = true;
    out->source = out->port_source = "TRIREME_STORE";
    return TRI_OK;
}

// Chooses ports by a hash of the job's name, so that other jobs on the same hosts are unlikely to
// use the same ports.
static void choose_ports(const char *variable, tri_identity *out) {
    uint64_t hash = tri_hash_text(TRI_HASH_OF_NOTHING, out->job);
    tri_store_address *address = &out->address;
    address->port = FIRST_PORT + (int)(hash % (LAST_PORT - FIRST_PORT - TRI_STORE_PORTS));
    address->ports = TRI_STORE_PORTS;
    address->source = variable;
    address->port_source = "TRIREME_STORE=HOST:PORT";
}

static tri_status read_slurm(const char *variable, const char *hosts, tri_identity *out) {
    tri_store_address *address = &out->address;
    if (tri_hostlist_at(hosts, 0, address->host, sizeof address->host) != TRI_OK)
        return tri_status_context(TRI_BAD_INPUT, "%s", variable);
    choose_ports(variable, out);
    return TRI_OK;
}

// The variables by which other batch systems (PBS, LSF, Cobalt, Grid Engine) list the hosts of a
// job. `is_file`: the value is the path of a file in which each line begins with the name of a
// host; else the value is the list itself. Rank 0 is on the first host.
static const struct {
    const char *variable;
    bool is_file;
} host_lists[] = {{"PBS_NODEFILE", true},
                  {"LSB_DJOB_HOSTFILE", true},
                  {"LSB_HOSTS", false},
                  {"COBALT_NODEFILE", true},
                  {"PE_HOSTFILE", true}};

bool rendezvous_first_host(const char *text, char host[TRI_HOST_NAME_MAX]) {
    for (;;) {
        text += strspn(text, " \t\r\n");
        if (*text != '#') break;
        text += strcspn(text, "\n");
    }
    size_t length = strcspn(text, " \t\r\n:");
    for (size_t i = 0; i < length; i++)
        if (!isalnum((unsigned char)text[i]) && !strchr("-._", text[i])) return false;
    if (length == 0 || length >= TRI_HOST_NAME_MAX) return false;
    memcpy(host, text, length);
    host[length] = 0;
    return true;
}

// Finds rank 0's host in the list of a batch system (host_lists). If the list is a file that exists
// only on the first host, the ranks of other hosts find nothing, and out->address stays empty
// there.
static void read_batch_system(const char *(*get)(const char *name), tri_identity *out) {
    for (size_t i = 0; i < sizeof host_lists / sizeof *host_lists; i++) {
        const char *value = value_of(get, host_lists[i].variable);
        char *text = NULL;
        size_t size;
        if (!value) continue;
        if (host_lists[i].is_file &&
            tri_os_read_file(value, TRI_MAX_HOST_FILE_BYTES, &text, &size) != TRI_OK)
            continue;
        bool found = rendezvous_first_host(text ? text : value, out->address.host);
        free(text);
        if (!found) continue;
        choose_ports(host_lists[i].variable, out);
        return;
    }
}

tri_status rendezvous_read_address(const char *(*get)(const char *name), tri_identity *out) {
    const char *exact = value_of(get, "TRIREME_STORE");
    const char *interface = value_of(get, "TRIREME_INTERFACE");
    TRI_TRY(read_master(get, out));
    if (interface && strlen(interface) >= sizeof out->interface)
        return TRI_FAIL(TRI_BAD_INPUT, "TRIREME_INTERFACE=%.40s… is no name of an interface",
                        interface);
    snprintf(out->interface, sizeof out->interface, "%s", interface ? interface : "");
    if (exact) return read_exact(exact, &out->address);
    if (out->master_host[0]) {
        tri_store_address *address = &out->address;
        memcpy(address->host, out->master_host, sizeof address->host);
        address->port = out->master_port ? out->master_port : MASTER_PORT;
        address->ports = 65536 - address->port;
        if (address->ports > TRI_STORE_PORTS) address->ports = TRI_STORE_PORTS;
        address->source = "MASTER_ADDR";
        address->port_source = "MASTER_PORT";
        return TRI_OK;
    }
    // Ranks that srun started are on the hosts of Slurm's step. Ranks that mpirun started may be on
    // any host of the job: mpirun starts only its daemons as a step, and the step lacks the host on
    // which mpirun itself runs, where rank 0 may be. RANK without MASTER_ADDR is set by hand, from
    // the step's variables.
    bool is_of_step = !strncmp(out->launcher, "slurm", 5) || !strcmp(out->launcher, "torchrun");
    bool is_step = is_of_step && value_of(get, "SLURM_STEP_NODELIST");
    const char *variable = is_step ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST";
    const char *hosts = out->size > 1 ? value_of(get, variable) : NULL;
    if (hosts) return read_slurm(variable, hosts, out);
    if (out->size > 1 && out->local_size != out->size) read_batch_system(get, out);
    return TRI_OK;
}
