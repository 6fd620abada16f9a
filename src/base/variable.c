// Reads environment variables by a table. variable.h explains this.
#include "base/variable.h"

#include "base/quantity.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const tri_variable tri_variables[] = {
    {"TRIREME_BIND", TRI_VARIABLE_CHOICE, "auto|none", 0,
     "auto (as without it): ranks that srun or mpirun started and that see each other's cores are "
     "bound to cores of their own; none: they are not"},
    {"TRIREME_CPU_ISA", TRI_VARIABLE_CHOICE, "base|avx2|avx512|bf16|amx", 0,
     "the most that the device cpu uses of the CPU's instructions, so that hosts with different "
     "CPUs can train together"},
    {"TRIREME_PEAK_FLOPS", TRI_VARIABLE_RATE, "RATE", 0,
     "FLOP/s that a rank's device can reach, such as 110G: what MFU is a fraction of"},
    {"TRIREME_PEAK_BANDWIDTH", TRI_VARIABLE_RATE, "RATE", 0,
     "bytes/s that a rank's device can read and write, such as 18G: what MBU is a fraction of"},
    {"TRIREME_STORE", TRI_VARIABLE_TEXT, "HOST:PORT", 0,
     "where the ranks of several hosts find rank 0"},
    {"TRIREME_INTERFACE", TRI_VARIABLE_TEXT, "NAME", 0,
     "the only interface at which rank 0 listens"},
    {"TRIREME_TOKEN", TRI_VARIABLE_TEXT, "TEXT", 0,
     "the secret of the user's jobs over several hosts"},
    {"TRIREME_TOKEN_FILE", TRI_VARIABLE_TEXT, "FILE", 0,
     "the file with that secret (~/.config/trireme/token)"},
    {"TRIREME_JOB", TRI_VARIABLE_TEXT, "NAME", 0, "the name of a run"},
    {"TRIREME_GENERATION", TRI_VARIABLE_WHOLE, "N", 1 << 30,
     "which of the run's starts this is, from 0"},
    {"TRIREME_LAUNCHER", TRI_VARIABLE_TEXT, "NAME", 0,
     "whose variables count where several launchers set theirs; none: those of no launcher"},
    {"TRIREME_HIERARCHY", TRI_VARIABLE_CHOICE, "0|1", 0,
     "0: ranks of one host send each other messages too, instead of sharing memory"},
    {"TRIREME_NCCL", TRI_VARIABLE_CHOICE, "0|1", 0, "0: data between GPUs go without NCCL"},
    {"TRIREME_CUDA_GRAPHS", TRI_VARIABLE_CHOICE, "0|1", 0, "0: a GPU's work is not captured"},
    {"TRIREME_CUDA_CHOICES", TRI_VARIABLE_TEXT, "FOLDER", 0,
     "where the algorithms that were measured on this GPU are kept"},
    {"TRIREME_CUDA_LIBRARIES", TRI_VARIABLE_TEXT, "FOLDERS", 0,
     "where NVIDIA's libraries are looked for too, separated by colons; none: they are not used"},
    {"TRIREME_MODULES", TRI_VARIABLE_TEXT, "FOLDER", 0,
     "the folder of the modules cuda, mpi and ucx"},
    {"TRIREME_LIBC", TRI_VARIABLE_CHOICE, "host|carried", 0,
     "of a bundle: carried uses its own C library, even if that of this system would do"},
    {"TRIREME_DEBUG", TRI_VARIABLE_WHOLE, "N", 2,
     "1: also say when a stage of the start is reached; 2: everything"},
    {"TRIREME_FAR_DELAY_US", TRI_VARIABLE_WHOLE, "N", 1000000,
     "of the device far: the most microseconds by which it delays a piece of its work"},
    {"TRIREME_FAR_SEED", TRI_VARIABLE_WHOLE, "N", INT64_MAX,
     "of the device far: the seed of these delays"},
    {"TRIREME_FAR_REPORT", TRI_VARIABLE_TEXT, "TEXT", 0,
     "of the device far: set to anything, it reports what it copied"},
    {0}};

static const tri_variable *row_of(const char *name) {
    const tri_variable *row = tri_variables;
    while (row->name && strcmp(row->name, name) != 0) row++;
    TRI_ASSERT(row->name && "a variable of the table");
    return row;
}

static const char *text_of(tri_get_variable get, const char *name) {
    const char *text = get ? get(name) : getenv(name);
    return text && *text ? text : NULL;
}

// Finds `text` among values that are separated by '|'.
static bool is_among(const char *text, const char *values) {
    size_t length = strlen(text);
    for (const char *at = values; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL)
        if (strcspn(at, "|") == length && !strncmp(at, text, length)) return true;
    return false;
}

static bool read_whole(const char *text, int64_t most, int64_t *out) {
    char *end;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return errno == 0 && end != text && !*end && *out >= 0 && *out <= most;
}

static tri_status check(const tri_variable *row, const char *text) {
    int64_t whole;
    double rate;
    switch (row->kind) {
    case TRI_VARIABLE_CHOICE:
        if (is_among(text, row->values)) return TRI_OK;
        return TRI_FAIL(TRI_BAD_INPUT, "%s is '%.40s', but must be %s%s", row->name, text,
                        strchr(row->values, '|') ? "one of " : "", row->values);
    case TRI_VARIABLE_WHOLE:
        if (read_whole(text, row->most, &whole)) return TRI_OK;
        return TRI_FAIL(TRI_BAD_INPUT, "%s is '%.40s', but must be a whole number from 0 to %lld",
                        row->name, text, (long long)row->most);
    case TRI_VARIABLE_RATE:
        if (tri_quantity_read(text, &rate) && rate > 0) return TRI_OK;
        return TRI_FAIL(TRI_BAD_INPUT, "%s is '%.40s', but must be a rate such as 60G or 1.1e11",
                        row->name, text);
    default:
        return TRI_OK;
    }
}

// Gets the text of a variable that may be set to it; NULL: the variable is not set.
static tri_status checked(tri_get_variable get, const char *name, const char **out) {
    *out = text_of(get, name);
    return *out ? check(row_of(name), *out) : TRI_OK;
}

tri_status tri_variable_choice(tri_get_variable get, const char *name, const char **out) {
    const char *text;
    TRI_TRY(checked(get, name, &text));
    if (text) *out = text;
    return TRI_OK;
}

tri_status tri_variable_whole(tri_get_variable get, const char *name, int64_t *out) {
    const char *text;
    TRI_TRY(checked(get, name, &text));
    if (text) (void)read_whole(text, INT64_MAX, out);
    return TRI_OK;
}

tri_status tri_variable_rate(tri_get_variable get, const char *name, double *out) {
    const char *text;
    TRI_TRY(checked(get, name, &text));
    if (text) (void)tri_quantity_read(text, out);
    return TRI_OK;
}

tri_status tri_variables_check(tri_get_variable get) {
    const char *text;
    for (const tri_variable *row = tri_variables; row->name; row++)
        TRI_TRY(checked(get, row->name, &text));
    return TRI_OK;
}
