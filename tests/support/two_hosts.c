// Simulates two hosts by namespaces (two_hosts.h). For each host there is a process that only
// sleeps, so that the host's namespaces stay.
#include "support/two_hosts.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static bool write_text(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return false;
    bool is_written = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    close(fd);
    return is_written;
}

// Makes this process root. If it is not, it enters a new user namespace, in which it has root's
// rights over the namespaces that it then makes.
static bool become_root(void) {
    char map[64];
    long uid = (long)geteuid(), gid = (long)getegid();
    if (uid == 0) return true;
    if (unshare(CLONE_NEWUSER) != 0) return false;
    write_text("/proc/self/setgroups", "deny");
    snprintf(map, sizeof map, "0 %ld 1", uid);
    if (!write_text("/proc/self/uid_map", map)) return false;
    snprintf(map, sizeof map, "0 %ld 1", gid);
    return write_text("/proc/self/gid_map", map);
}

static pid_t hold(const char *name) {
    int ends[2];
    char byte = 0;
    if (pipe(ends) != 0) return -1;
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        bool is_made =
            unshare(CLONE_NEWNET | CLONE_NEWUTS) == 0 && sethostname(name, strlen(name)) == 0;
        if (is_made && write(ends[1], &byte, 1) == 1)
            for (;;) pause();
        _exit(1);
    }
    close(ends[1]);
    bool is_made = pid > 0 && read(ends[0], &byte, 1) == 1;
    close(ends[0]);
    if (pid > 0 && !is_made) waitpid(pid, NULL, 0);
    return is_made ? pid : -1;
}

static bool enter(pid_t holder, const char *kind, int type) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/ns/%s", (long)holder, kind);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    bool is_inside = setns(fd, type) == 0;
    close(fd);
    return is_inside;
}

bool two_hosts_enter(const two_hosts *hosts, int host, const char *hosts_file) {
    pid_t holder = hosts->holders[host];
    if (!enter(holder, "net", CLONE_NEWNET) || !enter(holder, "uts", CLONE_NEWUTS)) return false;
    if (!hosts_file) return true;
    return unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount(hosts_file, "/etc/hosts", NULL, MS_BIND, NULL) == 0;
}

int two_hosts_run(const two_hosts *hosts, int host, const char *command) {
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        if (two_hosts_enter(hosts, host, NULL)) execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(126);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static bool connect_hosts(const two_hosts *hosts) {
    char command[512];
    for (int cable = 0; cable < 2; cable++) {
        snprintf(command, sizeof command, "ip link add eth%d type veth peer name eth%d netns %ld",
                 cable, cable, (long)hosts->holders[1]);
        if (two_hosts_run(hosts, 0, command) != 0) return false;
        for (int host = 0; host < 2; host++) {
            snprintf(command, sizeof command,
                     "ip link set lo up && ip addr add 10.%d.0.%d/24 dev eth%d && ip link set "
                     "eth%d up",
                     73 + cable, host + 1, cable, cable);
            if (two_hosts_run(hosts, host, command) != 0) return false;
        }
    }
    return true;
}

bool two_hosts_make(two_hosts *out, const char **why) {
    out->holders[0] = out->holders[1] = -1;
    *why = "this process may not make network namespaces";
    if (system("ip -V >/dev/null 2>&1") != 0) {
        *why = "there is no program `ip` (package iproute2)";
        return false;
    }
    if (!become_root()) return false;
    out->holders[0] = hold("alpha");
    out->holders[1] = hold("beta");
    if (out->holders[0] > 0 && out->holders[1] > 0 && connect_hosts(out)) return true;
    two_hosts_end(out);
    return false;
}

void two_hosts_end(two_hosts *hosts) {
    for (int i = 0; i < 2; i++) {
        if (hosts->holders[i] <= 0) continue;
        kill(hosts->holders[i], SIGKILL);
        waitpid(hosts->holders[i], NULL, 0);
    }
}
