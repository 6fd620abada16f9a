// `trireme run`: the launcher. Its flags and its code are in src/launch.
#include "cli/cli.h"

#include "launch/launch.h"
#include "launch/options.h"

static int run(const cli_context *context, int argc, char **argv) {
    (void)context;
    return tri_launch_main(argc, argv);
}

// The launcher has its own table of flags, which are torchrun's, and prints its own --help.
static bool flag_at(int index, cli_flag *out) {
    tri_launch_flag f;
    if (!tri_launch_flag_at(index, &f)) return false;
    *out = (cli_flag){.name = f.name, .argument = f.values, .help = f.help, .letter = f.letter};
    return true;
}

const cli_command cli_run = {.name = "run",
                             .arguments = "[torchrun's flags] PROGRAM [ARG ...]",
                             .help = "Start, watch and restart the ranks of a run on this node.",
                             .flag_at = flag_at,
                             .examples = TRI_LAUNCH_EXAMPLES,
                             .run = run};
