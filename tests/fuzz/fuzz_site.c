// Reads arbitrary bytes as the profile of a site (a cluster). If the profile is accepted, makes the
// scripts of several jobs from it. Unless the profile has setup lines of its own, a script must
// have no control characters, no placeholder that was not replaced, and no option of sbatch after a
// command.
#include "launch/job.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_script(const tri_site *site, const char *script) {
    bool commands = false;
    for (const char *line = script; *line;) {
        size_t length = strcspn(line, "\n");
        bool is_option = !strncmp(line, "#SBATCH ", 8);
        for (size_t i = 0; i < length; i++)
            if (((unsigned char)line[i] < 32 || line[i] == 127) && !site->setup.count) abort();
        commands = commands || !strncmp(line, "set -eu", 7);
        if (is_option && commands && !site->setup.count) abort();
        line += length + (line[length] == '\n');
    }
    static const char *const words[] = {"{tasks}",  "{cpus}",  "{gpus}",  "{gpus_per_task}",
                                        "{memory}", "{image}", "{folder}"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(strstr(script, "\n#SBATCH"), words[i]) && !site->setup.count) abort();
    if (!commands || !strstr(script, "srun ")) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tri_arena *arena = tri_arena_create(NULL, "fuzz");
    tri_site site;
    if (tri_site_parse(arena, (const char *)data, size, "fuzz", &site) == TRI_OK) {
        static const char *const words[] = {"train", "it's.yaml"};
        static const char *const nodes[] = {"1", "2", "1000"}, *const launchers[] = {"srun", "run"};
        for (int i = 0; i < 6; i++) {
            tri_job_request request = {.site = &site,
                                       .nodes = nodes[i / 2],
                                       .launcher = launchers[i % 2],
                                       .account = site.account.suffix ? site.account.example : "a",
                                       .qos =
                                           site.qos_list.count ? site.qos_list.items[0].name : NULL,
                                       .container = i > 1 && site.container_count ? "image" : NULL,
                                       .name = "fuzz",
                                       .program = "trireme",
                                       .command = words,
                                       .words = 2,
                                       .folder = "/tmp"};
            tri_job job;
            if (tri_job_make(arena, &request, &job) != TRI_OK) continue;
            if (job.ranks_per_node < 1 || job.time_s < 1 || job.values.tasks < 1) abort();
            check_script(&site, tri_job_script(arena, &job));
        }
    }
    tri_arena_destroy(arena);
    return 0;
}
