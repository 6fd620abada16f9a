// Reads those values of `trireme run`'s flags that have a grammar of their own, such as lists of
// ranks.
#include "base/cores.h"
#include "base/os.h"
#include "launch/options.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Reads digits as a number of at most `high`; -1: there is no such number. *end: the first byte
// after the digits that were read.
static int read_number(const char *text, int high, const char **end) {
    int value = 0;
    *end = text;
    while (isdigit((unsigned char)**end) && value <= high) value = 10 * value + (*(*end)++ - '0');
    return *end == text || value > high ? -1 : value;
}

static tri_status bad_map(const char *name, const char *text) {
    return TRI_FAIL(TRI_BAD_INPUT,
                    "%s: '%.80s' is neither 0 (none), 1 (stdout), 2 (stderr) or 3 (both), nor such "
                    "a number for each of some local ranks, as in 0:1,1:3",
                    name, text);
}

tri_status launch_stream_map_parse(const char *name, const char *text, launch_stream_map *out) {
    *out = (launch_stream_map){0};
    const char *at = text, *end;
    if (!strchr(text, ':')) {
        int all = read_number(at, 3, &end);
        if (all < 0 || *end) return bad_map(name, text);
        out->of_all = (unsigned char)all;
        return TRI_OK;
    }
    out->per_rank = true;
    bool named[TRI_MAX_LOCAL_RANKS] = {false};
    for (;;) {
        int rank = read_number(at, TRI_MAX_LOCAL_RANKS - 1, &end);
        if (rank < 0 || *end != ':' || named[rank]) return bad_map(name, text);
        int streams = read_number(end + 1, 3, &end);
        if (streams < 0) return bad_map(name, text);
        named[rank] = true;
        out->of[rank] = (unsigned char)streams;
        if (!*end) return TRI_OK;
        if (*end != ',') return bad_map(name, text);
        at = end + 1;
    }
}

tri_status launch_rank_set_parse(const char *name, const char *text, launch_rank_set *out) {
    *out = (launch_rank_set){0};
    if (!*text) return TRI_OK;
    out->limited = true;
    for (const char *at = text, *end;; at = end + 1) {
        int rank = read_number(at, TRI_MAX_LOCAL_RANKS - 1, &end);
        if (rank < 0 || (*end && *end != ','))
            return TRI_FAIL(TRI_BAD_INPUT, "%s: '%.80s' is not a list of local ranks, as in 0,2",
                            name, text);
        out->has[rank] = true;
        if (!*end) return TRI_OK;
    }
}

tri_status launch_nodes_parse(const char *name, const char *text, int *min, int *max) {
    const char *end;
    *min = *max = read_number(text, TRI_MAX_RANKS, &end);
    if (*min > 0 && *end == ':') *max = read_number(end + 1, TRI_MAX_RANKS, &end);
    if (*min < 1 || *max < *min || *end)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: '%.80s' is neither a number of nodes nor MIN:MAX", name,
                        text);
    return TRI_OK;
}

static const struct {
    const char *name;
    int number;
} signals[] = {
    {"SIGHUP", SIGHUP},   {"SIGINT", SIGINT},       {"SIGQUIT", SIGQUIT}, {"SIGILL", SIGILL},
    {"SIGTRAP", SIGTRAP}, {"SIGABRT", SIGABRT},     {"SIGBUS", SIGBUS},   {"SIGFPE", SIGFPE},
    {"SIGKILL", SIGKILL}, {"SIGUSR1", SIGUSR1},     {"SIGSEGV", SIGSEGV}, {"SIGUSR2", SIGUSR2},
    {"SIGPIPE", SIGPIPE}, {"SIGALRM", SIGALRM},     {"SIGTERM", SIGTERM}, {"SIGXCPU", SIGXCPU},
    {"SIGXFSZ", SIGXFSZ}, {"SIGVTALRM", SIGVTALRM}, {"SIGPROF", SIGPROF}, {"SIGSYS", SIGSYS},
    {"SIGCONT", SIGCONT}, {"SIGWINCH", SIGWINCH},
};
enum { SIGNALS = sizeof signals / sizeof *signals };

const char *launch_signal_name(int number) {
    static _Thread_local char text[32];
    for (int i = 0; i < SIGNALS; i++)
        if (signals[i].number == number) return signals[i].name;
    snprintf(text, sizeof text, "signal %d", number);
    return text;
}

tri_status launch_signals_parse(const char *name, const char *text, sigset_t *out) {
    sigemptyset(out);
    while (*text) {
        size_t length = strcspn(text, ",");
        int number = 0;
        for (int i = 0; i < SIGNALS; i++)
            if (strlen(signals[i].name) == length && !strncmp(signals[i].name, text, length))
                number = signals[i].number;
        if (!number || number == SIGKILL)
            return TRI_FAIL(TRI_BAD_INPUT,
                            "%s: '%.*s' is not a signal that can be handled (SIGTERM,SIGINT,…)",
                            name, (int)(length < 40 ? length : 40), text);
        sigaddset(out, number);
        text += length + (text[length] == ',');
    }
    return TRI_OK;
}

static const struct {
    const char *name;
    size_t offset;
} conf_keys[] = {
    {"join_timeout", offsetof(launch_conf, join_timeout_s)},
    {"timeout", offsetof(launch_conf, join_timeout_s)},
    {"read_timeout", offsetof(launch_conf, read_timeout_s)},
    {"last_call_timeout", offsetof(launch_conf, last_call_s)},
    {"keep_alive_interval", offsetof(launch_conf, interval_s)},
    {"keep_alive_max_attempt", offsetof(launch_conf, attempts)},
};

static double *find_conf(const char *text, size_t length, launch_conf *out) {
    for (size_t i = 0; i < sizeof conf_keys / sizeof *conf_keys; i++)
        if (strlen(conf_keys[i].name) == length && !strncmp(conf_keys[i].name, text, length))
            return (double *)((char *)out + conf_keys[i].offset);
    return NULL;
}

tri_status launch_conf_parse(const char *name, const char *text, launch_conf *out) {
    while (*text) {
        size_t length = strcspn(text, ",");
        const char *equals = memchr(text, '=', length);
        if (!equals || equals == text)
            return TRI_FAIL(TRI_BAD_INPUT, "%s: '%.*s' is not key=value", name,
                            (int)(length < 40 ? length : 40), text);
        double *field = find_conf(text, (size_t)(equals - text), out);
        if (field) {
            char *end;
            errno = 0;
            double value = strtod(equals + 1, &end);
            if (end != text + length || end == equals + 1 || errno || !isfinite(value) ||
                value <= 0 || value > 1e6)
                return TRI_FAIL(TRI_BAD_INPUT, "%s: '%.*s' is not a number of seconds", name,
                                (int)(length < 40 ? length : 40), text);
            *field = value;
        }
        text += length + (text[length] == ',');
    }
    out->silence_s = out->interval_s * out->attempts;
    return TRI_OK;
}

// Counts GPUs by NVIDIA's device files (/dev/nvidia0, …), so that no library is needed. If
// CUDA_VISIBLE_DEVICES is set, counts at most as many as it lists.
static int count_gpus(void) {
    int count = 0;
    DIR *folder = opendir("/dev");
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        if (!strncmp(entry->d_name, "nvidia", 6) && isdigit((unsigned char)entry->d_name[6]))
            count++;
    if (folder) closedir(folder);
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (!visible) return count;
    int listed = 0;
    for (const char *at = visible; *at && *at != ',' && *at != '-';) {
        listed++;
        at += strcspn(at, ",");
        if (*at == ',') at++;
    }
    return listed < count ? listed : count;
}

tri_status launch_workers_parse(const char *name, const char *text, int *out) {
    const char *end;
    bool automatic = !strcmp(text, "auto");
    if (!strcmp(text, "gpu") || automatic) {
        *out = count_gpus();
        if (*out == 0 && !automatic)
            return TRI_FAIL(TRI_BAD_INPUT,
                            "%s: this host has no usable NVIDIA GPU (/dev/nvidia*, "
                            "CUDA_VISIBLE_DEVICES); give a number or cpu",
                            name);
        if (*out == 0) *out = tri_cores();
    } else if (!strcmp(text, "cpu")) {
        *out = tri_cores();
    } else {
        *out = read_number(text, TRI_MAX_RANKS, &end);
        if (*out < 1 || *end)
            return TRI_FAIL(TRI_BAD_INPUT,
                            "%s: '%.40s' is neither a number of at least 1 nor auto, cpu or gpu",
                            name, text);
    }
    if (*out > TRI_MAX_LOCAL_RANKS)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: %d workers on one host (at most %d)", name, *out,
                        TRI_MAX_LOCAL_RANKS);
    return TRI_OK;
}
