// Reads and checks the profile of a site (a supercomputer), by option tables, which have one row
// for each key (base/option.h). Read next: job.c, which makes a job from a profile and the flags of
// `trireme submit`.
#include "launch/site.h"

#include "base/limits.h"
#include "launch/topology.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const tri_site_partition_flags[] = {"partition", "qos", NULL};

static const tri_option queue_rows[] = {
    TRI_OPTION_STRING(tri_site_queue, name, NULL, "as the batch system calls it"),
    TRI_OPTION_INT(tri_site_queue, nodes, "0", 0, TRI_MAX_RANKS, "nodes of a job at most"),
    TRI_OPTION_INT(tri_site_queue, gpus, "0", 0, TRI_MAX_RANKS, "GPUs of a job at most"),
    TRI_OPTION_DURATION(tri_site_queue, time, "0", "time of a job at most"),
    TRI_OPTION_BOOL(tri_site_queue, whole_nodes, "false", "a job gets all GPUs of its nodes"),
    TRI_OPTION_STRINGS(tri_site_queue, sbatch, "[]", "more options of sbatch"),
};
static const tri_option_table queue_table =
    TRI_OPTION_TABLE("queue", tri_site_queue, queue_rows, "a partition or a QOS");

static const tri_option node_rows[] = {
    TRI_OPTION_INT(tri_site_node, sockets, "0", 0, 64, "processors"),
    TRI_OPTION_INT(tri_site_node, cores, "0", 0, TRI_SITE_MAX_CPUS, "cores"),
    TRI_OPTION_INT(tri_site_node, usable_cores, "0", 0, TRI_SITE_MAX_CPUS,
                   "cores that jobs may use; 0: all"),
    TRI_OPTION_INT(tri_site_node, threads_per_core, "1", 1, 8,
                   "CPUs of a core, as Slurm counts them"),
    TRI_OPTION_INT(tri_site_node, gpus, "0", 0, TRI_MAX_LOCAL_RANKS,
                   "GPUs as Slurm counts them; 0: none, ranks run on cores"),
    TRI_OPTION_STRING(tri_site_node, gpu, NULL, "kind of the GPUs"),
    TRI_OPTION_STRING(tri_site_node, memory, NULL, "memory, such as 512G"),
    TRI_OPTION_INT(tri_site_node, network_gbit, "0", 0, 1000000,
                   "Gbit/s of all its network adapters together, in one direction"),
};
static const tri_option_table node_table =
    TRI_OPTION_TABLE("node", tri_site_node, node_rows, "a node's shape");

static const tri_option account_rows[] = {
    TRI_OPTION_BOOL(tri_site_account, required, "false", "jobs need --account"),
    TRI_OPTION_STRING(tri_site_account, suffix, NULL, "what accounts for these nodes end in"),
    TRI_OPTION_STRING(tri_site_account, example, NULL, "an account, for messages"),
};
static const tri_option_table account_table =
    TRI_OPTION_TABLE("account", tri_site_account, account_rows, "who pays");

static const tri_option container_rows[] = {
    TRI_OPTION_STRING(tri_site_container, name, NULL, "the program that runs images"),
    TRI_OPTION_STRINGS(tri_site_container, sbatch, "[]", "more options of sbatch"),
    TRI_OPTION_STRINGS(tri_site_container, srun, "[]", "more options of srun"),
    TRI_OPTION_STRINGS(tri_site_container, command, "[]", "words before what runs in the image"),
};
static const tri_option_table container_table =
    TRI_OPTION_TABLE("container", tri_site_container, container_rows, "how an image is run");

static const tri_option rows[] = {
    TRI_OPTION_STRING(tri_site, name, NULL, "for --site"),
    TRI_OPTION_STRING(tri_site, title, NULL, "for people"),
    TRI_OPTION_STRING(tri_site, closed, NULL, "when the machine was shut down"),
    TRI_OPTION_CHOICE(tri_site, partition_flag, "partition", tri_site_partition_flags,
                      "which option of sbatch takes what --partition names"),
    TRI_OPTION_TREE(tri_site, partitions, "[]",
                    "partitions and their limits; the first is the default"),
    TRI_OPTION_TREE(tri_site, qos, "[]", "QOS and their limits"),
    TRI_OPTION_BOOL(tri_site, qos_required, "false", "jobs need --qos"),
    TRI_OPTION_BOOL(tri_site, more_qos, "false", "there are QOS that the list does not name"),
    TRI_OPTION_NESTED(tri_site, node, tri_site_node, &node_table, "a node's shape"),
    TRI_OPTION_INT(tri_site, cpus_per_rank, "0", 0, TRI_SITE_MAX_CPUS,
                   "CPUs of a rank; 0: the usable ones of a node, divided"),
    TRI_OPTION_STRING(tri_site, memory_per_rank, NULL, "memory of a rank, such as 60G"),
    TRI_OPTION_NESTED(tri_site, account, tri_site_account, &account_table, "who pays"),
    TRI_OPTION_STRINGS(tri_site, sbatch, "[]", "options of sbatch"),
    TRI_OPTION_STRINGS(tri_site, srun, "[]", "options of srun"),
    TRI_OPTION_STRINGS(tri_site, setup, "[]", "lines of the script before the run"),
    TRI_OPTION_STRINGS(tri_site, binding, "[]", "CPUs of each local rank: 1-7, 9-15, …"),
    TRI_OPTION_TREE(tri_site, environment, NULL, "variables of the job"),
    TRI_OPTION_TREE(tri_site, environment_between_nodes, NULL,
                    "variables of jobs on several nodes only"),
    TRI_OPTION_STRING(tri_site, host_suffix, NULL,
                      "end of a node's name on the network between nodes"),
    TRI_OPTION_TREE(tri_site, containers, "[]", "how images are run; the first is the default"),
};
static const tri_option_table table = TRI_OPTION_TABLE("", tri_site, rows, "a site's profile");

int64_t tri_site_read_memory(const char *text) {
    char *end;
    if (!text || !isdigit((unsigned char)*text)) return 0;
    long amount = strtol(text, &end, 10);
    bool is_amount = amount > 0 && amount < 1 << 24 && (*end == 'G' || *end == 'M') && !end[1];
    return !is_amount ? 0 : *end == 'G' ? (int64_t)amount * 1024 : amount;
}

static const char *const placeholders[] = {"tasks",  "cpus",  "gpus",   "gpus_per_task",
                                           "memory", "image", "folder", NULL};

const char *tri_site_expand(tri_arena *arena, const char *text, const tri_site_values *values) {
    const int64_t numbers[] = {values->tasks, values->cpus, values->gpus, values->gpus_per_task};
    const char *const texts[] = {values->memory, values->image, values->folder};
    char *out = tri_arena_strdup(arena, "");
    for (const char *at = text; *at;) {
        int word = 0, length = 0;
        while (*at == '{' && placeholders[word]) {
            length = (int)strlen(placeholders[word]);
            if (!strncmp(at + 1, placeholders[word], (size_t)length) && at[1 + length] == '}')
                break;
            word++;
        }
        if (*at != '{' || !placeholders[word]) {
            int plain = 1 + (int)strcspn(at + 1, "{");
            out = tri_arena_printf(arena, "%s%.*s", out, plain, at);
            at += plain;
            continue;
        }
        if (word < 4 ? numbers[word] == 0 : !texts[word - 4]) return NULL;
        if (word < 4)
            out = tri_arena_printf(arena, "%s%lld", out, (long long)numbers[word]);
        else
            out = tri_arena_printf(arena, "%s%s", out, texts[word - 4]);
        at += length + 2;
    }
    return out;
}

static tri_status check_plain(const tri_tree *at, const char *key, const char *text) {
    for (const char *c = text; *c; c++)
        if (iscntrl((unsigned char)*c))
            return tri_tree_fail(at, "'%s' has a control character", key);
    return TRI_OK;
}

// Checks the text of one line of a job script: it may have no control characters, which could begin
// a command, and only placeholders that exist.
static tri_status check_text(const tri_tree *at, const char *key, const char *text) {
    TRI_TRY(check_plain(at, key, text));
    for (const char *open = text; (open = strchr(open, '{')); open++) {
        size_t length = strcspn(open + 1, "{}");
        const char *const *word = placeholders;
        while (*word && (strlen(*word) != length || strncmp(*word, open + 1, length) != 0)) word++;
        if (!*word || open[1 + length] != '}')
            return tri_tree_fail(at,
                                 "'%s': {%.*s} is none of {tasks}, {cpus}, {gpus}, "
                                 "{gpus_per_task}, {memory}, {image}, {folder}",
                                 key, (int)(length < 40 ? length : 40), open + 1);
    }
    return TRI_OK;
}

static tri_status check_lines(const tri_tree *at, const char *key, tri_strings lines) {
    for (int i = 0; i < lines.count; i++) TRI_TRY(check_text(at, key, lines.items[i]));
    return TRI_OK;
}

// Whether the text is a name that can be copied into an option of sbatch: letters, digits, _ - .
static bool is_name(const char *text) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    return text && *text && strlen(text) < 64 && strspn(text, plain) == strlen(text);
}

static tri_status read_queues(tri_arena *arena, const tri_tree *list, const char *key,
                              tri_site_queues *out) {
    if (list->kind != TRI_TREE_LIST)
        return tri_tree_fail(list, "'%s' has to be a list of mappings", key);
    tri_site_queue *items = TRI_NEW_ARRAY(arena, tri_site_queue, list->count);
    for (int i = 0; i < list->count; i++) {
        const tri_tree *node = list->items[i];
        if (node->kind != TRI_TREE_MAP)
            return tri_tree_fail(list, "'%s' has to be a list of mappings", key);
        TRI_TRY(tri_option_decode(arena, &queue_table, node, &items[i]));
        if (!is_name(items[i].name))
            return tri_tree_fail(node, "each of '%s' needs a name of letters, digits, _ and -",
                                 key);
        TRI_TRY(check_lines(node, "sbatch", items[i].sbatch));
    }
    *out = (tri_site_queues){items, list->count};
    return TRI_OK;
}

static tri_status read_containers(tri_arena *arena, tri_site *site) {
    const tri_tree *list = site->containers;
    if (list->kind != TRI_TREE_LIST)
        return tri_tree_fail(list, "'containers' has to be a list of mappings");
    tri_site_container *items = TRI_NEW_ARRAY(arena, tri_site_container, list->count);
    for (int i = 0; i < list->count; i++) {
        const tri_tree *node = list->items[i];
        if (node->kind != TRI_TREE_MAP)
            return tri_tree_fail(list, "'containers' has to be a list of mappings");
        TRI_TRY(tri_option_decode(arena, &container_table, node, &items[i]));
        if (!is_name(items[i].name))
            return tri_tree_fail(node, "each of 'containers' needs a name");
        TRI_TRY(check_lines(node, "sbatch", items[i].sbatch));
        TRI_TRY(check_lines(node, "srun", items[i].srun));
        TRI_TRY(check_lines(node, "command", items[i].command));
    }
    site->container_list = items;
    site->container_count = list->count;
    return TRI_OK;
}

static tri_status check_environment(const tri_tree *map, const char *key) {
    if (!map) return TRI_OK;
    if (map->kind != TRI_TREE_MAP)
        return tri_tree_fail(map, "'%s' has to be a mapping of variables", key);
    for (int i = 0; i < map->count; i++) {
        const tri_tree *node = map->items[i];
        const char *name = node->key;
        bool is_variable = *name && !isdigit((unsigned char)*name);
        for (const char *c = name; *c; c++)
            is_variable = is_variable && (isalnum((unsigned char)*c) || *c == '_');
        if (!is_variable || node->kind != TRI_TREE_SCALAR)
            return tri_tree_fail(node, "'%s': %.60s is no variable with a value", key, name);
        static const char *const of_ranks[] = {"RANK", "WORLD_SIZE", "LOCAL_RANK",
                                               "LOCAL_WORLD_SIZE"};
        for (size_t k = 0; k < sizeof of_ranks / sizeof *of_ranks; k++)
            if (!strcmp(name, of_ranks[k]))
                return tri_tree_fail(node,
                                     "'%s': %s differs between ranks, so a job script "
                                     "cannot set it: srun tells each rank its number",
                                     key, name);
        TRI_TRY(check_text(node, key, node->text));
    }
    return TRI_OK;
}

static tri_status check_numbers(const tri_site *site, const tri_tree *root) {
    const tri_site_node *node = &site->node;
    const tri_tree *at = tri_tree_get(root, "node");
    if (node->usable_cores > node->cores)
        return tri_tree_fail(at, "'node.usable_cores' is more than 'node.cores'");
    if (site->memory_per_rank && !tri_site_read_memory(site->memory_per_rank))
        return tri_tree_fail(tri_tree_get(root, "memory_per_rank"),
                             "'memory_per_rank' has to be an amount such as 60G or 494000M");
    int64_t usable = node->usable_cores ? node->usable_cores : node->cores;
    if (usable && node->gpus * site->cpus_per_rank > usable * node->threads_per_core)
        return tri_tree_fail(root,
                             "'cpus_per_rank': %lld ranks of %lld CPUs need more than a "
                             "node's %lld",
                             (long long)node->gpus, (long long)site->cpus_per_rank,
                             (long long)(usable * node->threads_per_core));
    if (site->binding.count && site->binding.count != node->gpus)
        return tri_tree_fail(root, "'binding' has %d entries for %lld GPUs", site->binding.count,
                             (long long)node->gpus);
    launch_cpus own, all = {0};
    for (int i = 0; i < site->binding.count; i++) {
        const char *text = site->binding.items[i];
        if (!launch_cpus_read(text, &own))
            return tri_tree_fail(root, "'binding': '%.40s' is not of the form 1-7,9", text);
        for (int cpu = 0; cpu < LAUNCH_MAX_CPUS; cpu++) {
            if (!launch_cpus_has(&own, cpu)) continue;
            if (launch_cpus_has(&all, cpu))
                return tri_tree_fail(root, "'binding': two ranks have CPU %d", cpu);
            launch_cpus_add(&all, cpu);
        }
    }
    return TRI_OK;
}

tri_status tri_site_parse(tri_arena *arena, const char *text, size_t size, const char *file,
                          tri_site *out) {
    tri_tree *root;
    TRI_TRY(tri_yaml_parse(arena, text, size, file, &root));
    if (root->kind != TRI_TREE_MAP) return tri_tree_fail(root, "a profile is a mapping of keys");
    TRI_TRY(tri_option_decode(arena, &table, root, out));
    if (!is_name(out->name))
        return tri_tree_fail(root, "'name' has to be a word of letters, digits, _, - and .");
    if (!out->title) out->title = out->name;
    TRI_TRY(check_plain(root, "title", out->title));
    if (out->host_suffix && !is_name(out->host_suffix))
        return tri_tree_fail(root, "'host_suffix' has to be a word");
    TRI_TRY(read_queues(arena, out->partitions, "partitions", &out->partition_list));
    TRI_TRY(read_queues(arena, out->qos, "qos", &out->qos_list));
    TRI_TRY(read_containers(arena, out));
    TRI_TRY(check_lines(root, "sbatch", out->sbatch));
    TRI_TRY(check_lines(root, "srun", out->srun));
    for (int i = 0; i < out->setup.count; i++)
        if (strpbrk(out->setup.items[i], "\n\r"))
            return tri_tree_fail(root, "each of 'setup' has to be one line");
    TRI_TRY(check_environment(out->environment, "environment"));
    TRI_TRY(check_environment(out->environment_between_nodes, "environment_between_nodes"));
    return check_numbers(out, root);
}
