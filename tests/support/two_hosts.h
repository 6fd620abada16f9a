// Simulates two hosts on one: network namespaces with host names of their own (UTS namespaces),
// connected by two virtual cables. Host i has the address 10.73.0.(i + 1) on eth0 and 10.74.0.(i +
// 1) on eth1.
#ifndef TRIREME_TESTS_SUPPORT_TWO_HOSTS_H
#define TRIREME_TESTS_SUPPORT_TWO_HOSTS_H

#include <stdbool.h>
#include <sys/types.h>

typedef struct two_hosts {
    pid_t holders[2]; // processes that keep the namespaces
} two_hosts;

// Makes the two hosts. False: this process may not make namespaces, or there is no program `ip`;
// *why tells which.
bool two_hosts_make(two_hosts *out, const char **why);
void two_hosts_end(two_hosts *hosts);
// Moves this process into the namespaces of one of the two hosts, 0 or 1, for good. `hosts_file`:
// the file that it then finds as /etc/hosts; NULL: that of the real host.
bool two_hosts_enter(const two_hosts *hosts, int host, const char *hosts_file);
// Runs a command of the shell on the host, and returns its exit code.
int two_hosts_run(const two_hosts *hosts, int host, const char *command);

#endif
