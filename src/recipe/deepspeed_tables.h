// The keys of DeepSpeed's configuration: in deepspeed_rows.c, and in deepspeed_named.c for
// optimizers and schedulers.
#ifndef TRIREME_RECIPE_DEEPSPEED_TABLES_H
#define TRIREME_RECIPE_DEEPSPEED_TABLES_H

#include "recipe/deepspeed_reader.h"

// All keys of a DeepSpeed configuration.
extern const deepspeed_table deepspeed_top;

deepspeed_convert deepspeed_optimizer, deepspeed_scheduler;

#endif
