// Two hosts on this one: network namespaces with names of their own (UTS namespaces), joined by two
// cables. Host i has the address 10.73.0.(i + 1) on eth0 and 10.74.0.(i + 1) on eth1.
#ifndef TRIREME_TESTS_SUPPORT_TWO_HOSTS_H
#define TRIREME_TESTS_SUPPORT_TWO_HOSTS_H

#include <stdbool.h>
#include <sys/types.h>

typedef struct two_hosts {
    pid_t holders[2]; // processes that keep the namespaces
} two_hosts;

// False, and why: this process may not make namespaces, or there is no program `ip`.
bool two_hosts_make(two_hosts *out, const char **why);
void two_hosts_end(two_hosts *hosts);
// Moves this process onto the host for good. `hosts_file`: what it finds as /etc/hosts; NULL: as
// outside.
bool two_hosts_enter(const two_hosts *hosts, int host, const char *hosts_file);
// Runs a command of the shell on the host, and returns its exit code.
int two_hosts_run(const two_hosts *hosts, int host, const char *command);

#endif
