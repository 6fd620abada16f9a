// Outputs of the model on their way to the caller (tri_step_input.output). FORWARD of a block
// copies the outputs that the block makes to memory of the host, and the caller gets them when the
// copy is done: when its memory is needed for the next one, or at the end of the step.
#ifndef TRIREME_ENGINE_HANDOVER_H
#define TRIREME_ENGINE_HANDOVER_H

#include "base/ticket.h"
#include "plan/plan.h"

typedef struct engine_output_copy {
    tri_ticket ticket;
    void *memory; // the host's memory
    const tri_program *program;
    int output; // index in the program's graph
    int round;
} engine_output_copy;

typedef struct engine_outputs {
    engine_output_copy copies[TRI_OUTPUT_COPIES];
    int first, count; // of the copies under way: the oldest, and how many there are
} engine_outputs;

// Defined in outputs.c. Allocates the host's memory, if this rank hands outputs over.
tri_status engine_open_outputs(struct tri_engine *engine);
void engine_close_outputs(struct tri_engine *engine);
// Starts the copy of an output, which lies at `from` in the device's memory.
tri_status engine_send_output(struct tri_engine *engine, const tri_program *program, int output,
                              const void *from);
// Hands all copies under way to the caller.
tri_status engine_finish_outputs(struct tri_engine *engine);

#endif
