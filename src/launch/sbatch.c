// Passes a job's script to sbatch through its standard input.
#include "launch/job.h"

#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static tri_status start(int script_end, pid_t *out) {
    char *argv[] = {"sbatch", NULL};
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, script_end, STDIN_FILENO);
    int failed = posix_spawnp(out, argv[0], &files, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    if (failed == ENOENT)
        return TRI_FAIL(TRI_NOT_FOUND, "there is no sbatch on PATH: submit from a login node of "
                                       "the cluster, or print the script with --dry-run");
    return failed ? TRI_FAIL(TRI_IO, "sbatch: cannot start it: %s", strerror(failed)) : TRI_OK;
}

tri_status tri_job_submit(const tri_job *job, const char *script) {
    int ends[2], ended = 0;
    pid_t pid;
    if (pipe2(ends, O_CLOEXEC) != 0) return tri_os_fail("make a pipe", "sbatch");
    tri_status status = start(ends[0], &pid);
    tri_os.close(ends[0]);
    if (status != TRI_OK) {
        tri_os.close(ends[1]);
        return status;
    }
    // If sbatch ends before it has read everything, this write fails. The message below is about
    // sbatch's exit code rather than this failure, because the exit code tells more.
    tri_status written = tri_os_write_all(ends[1], script, strlen(script), "sbatch");
    tri_os.close(ends[1]);
    while (waitpid(pid, &ended, 0) < 0 && errno == EINTR) continue;
    if (!WIFEXITED(ended) || WEXITSTATUS(ended) != 0)
        return TRI_FAIL(TRI_IO, "%s: sbatch refused the job (%s %d); see its message above",
                        job->site->name, WIFEXITED(ended) ? "exit code" : "signal",
                        WIFEXITED(ended) ? WEXITSTATUS(ended) : WTERMSIG(ended));
    return written;
}
