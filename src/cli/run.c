#include "cli/cli.h"

#include "launch/launch.h"

int cli_run(const cli_context *context, int argc, char **argv) {
    (void)context;
    return tri_launch_main(argc, argv);
}
