// The devices and communicators of this program. This is the only list of concrete backends, so
// that all other code works with any backend.
#include "cli/cli.h"

#include "cli/connect.h"
#include "device/cpu/cpu.h"
#include "device/cuda/cuda.h"
#include "device/far/far.h"
#include "device/null/null.h"
#include "device/ref/ref.h"

#include <unistd.h>

static const tri_device_backend *const devices[] = {
    &tri_device_cuda, &tri_device_cpu, &tri_device_ref, &tri_device_null, &tri_device_far, NULL};

static void give_up(tri_status why) { _exit(cli_fail(why)); }

const tri_backends cli_backends = {
    .devices = devices, .open_comm = cli_open_comm, .give_up = give_up, .end = _exit};
