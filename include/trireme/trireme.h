// All public headers at once: everything that a program with a model of its own needs.
#ifndef TRIREME_TRIREME_H
#define TRIREME_TRIREME_H

#include <trireme/api.h>
#include <trireme/caches.h>
#include <trireme/functions.h>
#include <trireme/graph.h>
#include <trireme/losses.h>
#include <trireme/metrics.h>
#include <trireme/more_functions.h>
#include <trireme/more_layers.h>
#include <trireme/nn.h>
#include <trireme/own_op.h>
#include <trireme/parameters.h>
#include <trireme/recurrent.h>
#include <trireme/status.h>
#include <trireme/task.h>
#include <trireme/tensor.h>
#include <trireme/transformer.h>

TRI_API_BEGIN

// The version of the library, "0.1.0".
const char *tri_version(void);

TRI_API_END

#endif
