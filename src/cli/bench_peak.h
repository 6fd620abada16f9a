// Measures the highest rates of a device. Defined in bench_peak.c.
#ifndef TRIREME_CLI_BENCH_PEAK_H
#define TRIREME_CLI_BENCH_PEAK_H

#include "device/bench.h"

tri_status cli_measure_peak(tri_device *device, tri_bench_peak *out);

#endif
