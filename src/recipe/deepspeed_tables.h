// The keys of DeepSpeed's configuration: deepspeed_rows.c, and deepspeed_named.c for optimizers and
// schedulers.
#ifndef TRIREME_RECIPE_DEEPSPEED_TABLES_H
#define TRIREME_RECIPE_DEEPSPEED_TABLES_H

#include "recipe/deepspeed_reader.h"

extern const deepspeed_table deepspeed_top; // all keys of a configuration

deepspeed_convert deepspeed_optimizer, deepspeed_scheduler;

#endif
