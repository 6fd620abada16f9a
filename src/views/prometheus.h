// The latest figures of a run in the text format of Prometheus
// (prometheus.io/docs/instrumenting/exposition_formats), for node_exporter's textfile collector.
#ifndef TRIREME_VIEWS_PROMETHEUS_H
#define TRIREME_VIEWS_PROMETHEUS_H

#include "observe/observe.h"

// The sink of `log.prometheus`: FOLDER/metrics.prom, which is replaced at each line of metrics, so
// that a reader sees the old file or the new one. Each figure KIND/KEY is a gauge
// trireme_KIND_KEY; beside them are trireme_step, trireme_logged_timestamp_seconds (when the file
// was written, as Unix time), and trireme_status, which is 1 with the run's status as a label. All
// have the labels run (its name) and folder. A resumed run begins with the figures of the step
// from which it goes on.
extern const tri_event_sink views_sink_prometheus;

#endif
