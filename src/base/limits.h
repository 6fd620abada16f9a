// Every bound on a size, a count or a time, by name: in one place, so that tests can find them and
// a reader need not guess numbers.
#ifndef TRIREME_BASE_LIMITS_H
#define TRIREME_BASE_LIMITS_H

#include <stdint.h>

enum {
    TRI_MAX_NAME_BYTES = 256, // parameter, block and layer names
    TRI_MAX_RANKS = 65536,
    TRI_MAX_LOCAL_RANKS = 256, // of one host over shm
    TRI_MAX_NODES = 4096,      // of one run of several agents
    TRI_NODES_BEAT_MS = 1000,  // between two signs of life of an agent
    TRI_MAX_NODE_RETURNS = 10, // of an agent that was cut off, to the same run
    TRI_NODES_LATE_MS = 3000,  // between two looks: the process that looks stood still
    TRI_MAX_THREADS = 1024,
    TRI_MAX_STORE_CLIENTS = 8192,       // connections to one key-value store
    TRI_MAX_STORE_STRANGERS = 64,       // connections over TCP that have not proved anything yet
    TRI_STORE_GREETING_MS = 5000,       // after which such a connection is closed
    TRI_STORE_CROWDED_MS = 1000,        // after which it makes room for another one
    TRI_MAX_STORE_LISTENERS = 16,       // addresses at which a store listens
    TRI_STORE_PORTS = 8,                // at which ranks look for rank 0
    TRI_STORE_PROBE_MS = 2000,          // for an answer from there, before they look again
    TRI_BEAT_MS = 1000,                 // between two signs of life of a rank over the network
    TRI_BEAT_LATE_MS = 3000,            // between two looks: the process that looks stood still
    TRI_SILENCE_MS = 15000,             // without a sign of life, before a rank is lost
    TRI_SAID_MS = 2000,                 // for an answer about what a rank does
    TRI_FOLLOWED_MS = 10000,            // after a question, for which later beats are told too
    TRI_REFUSAL_GATHER_MS = 3000,       // for all ranks to tell why they end with exit code 2
    TRI_REFUSAL_SPEAK_MS = 1000,        // for one of them to print the line, before the others end
    TRI_REFUSAL_STAY_MS = 3000,         // that rank 0 stays for those that come later
    TRI_REFUSAL_LOOK_MS = 5000,         // for rank 0's answer, before a rank prints its own line
    TRI_REFUSAL_END_MS = 5000,          // after that, before it ends
    TRI_MAX_HOST_FILE_BYTES = 16 << 20, // a batch system's list of a job's hosts
    TRI_MIN_TOKEN_BYTES = 16,
    TRI_MAX_TOKEN_BYTES = 1024,
    TRI_MAX_STORE_KEYS = 1 << 16,
    TRI_MAX_STORE_BYTES = 256 << 20, // of all values together
    TRI_MAX_RECIPE_BYTES = 1 << 20,
    TRI_MAX_TREE_NODES = 1 << 16, // of a YAML or JSON document, aliases expanded
    TRI_MAX_TREE_DEPTH = 64,
    TRI_MAX_TREE_KEYS = 4096, // of one map
    TRI_MAX_TREE_ANCHORS = 1024,
    TRI_MAX_BATCH = 1 << 24,                // samples of a step
    TRI_MAX_TENSORS = 1 << 20,              // of one safetensors file
    TRI_MAX_SAFETENSORS_HEADER = 100000000, // bytes; the format's own bound
    TRI_MAX_WINDOW = 1 << 20,               // kernel, stride, padding, dilation of a layer
    TRI_PROGRAM_BYTES = 8 << 20, // memory of a rank's process besides model and data; measured
    TRI_MAX_MODEL_BLOCKS = 4096,
    TRI_MAX_ROUNDS = 1 << 16,          // micro-batches of one step or evaluation on one rank
    TRI_MAX_STEPS_AHEAD = 1,           // issued to a device before earlier results are read
    TRI_MAX_METRICS = 16,              // of one model
    TRI_MAX_ZIP_MEMBERS = 65535,       // of one archive
    TRI_MAX_VERIFIED_BYTES = 1 << 30,  // larger arrays of an archive are not verified when opened
    TRI_MAX_DATA_FIELDS = 8,           // tensors of a sample
    TRI_MAX_WORKERS = 256,             // loader threads
    TRI_MAX_SAMPLE_ELEMENTS = 1 << 30, // of one tensor of a sample
    TRI_MAX_CLASSES = 1 << 30,         // labels and token numbers
    TRI_EVAL_BATCH = 128,              // samples evaluated at once, by default
    TRI_CHECKPOINT_CHUNK_BYTES = 4 << 20,     // of a checkpoint's file; each chunk has its own hash
    TRI_MAX_CHECKPOINT_CHUNK_BYTES = 1 << 30, // bytes
    TRI_MAX_CHECKPOINT_CHUNKS = 1 << 15,      // chunks of one file; more make the chunks larger
    TRI_MAX_CHECKPOINT_STATE = 16 << 20,      // bytes of state.json, or of a sharded file's index
    TRI_MAX_SHARDS = 4096,                    // files of one model
    TRI_CHECKPOINT_SPARES = 1,                // older ones kept, in case the newest is damaged
    TRI_SNAPSHOT_PERCENT = 25,                // of a host's memory: what all its ranks may copy
    TRI_DEFAULT_TIMEOUT_MS = 300000,          // of a collective that makes no progress
    TRI_STORE_ANSWER_MS = 30000,         // for rank 0's thread to answer, on an overloaded host
    TRI_SHM_EAGER_BYTES = 4096,          // operands up to this size travel with the announcement
    TRI_SHM_STAGE_BYTES = 1 << 20,       // of one rank's staging memory
    TRI_SHM_PIPE_BYTES = 1 << 16,        // of the pipe from one rank to another
    TRI_SHM_CHUNK_BYTES = 128 << 10,     // worked on between two checks of other ranks
    TRI_PAIR_SCRATCH_BYTES = 3 << 20,    // of a communicator of two levels
    TRI_GENERIC_SCRATCH_BYTES = 4 << 20, // of a communicator of the generic layer
    TRI_MAX_GENERIC_RANKS = 1024,        // likewise
    TRI_COMM_YIELD_US = 100,             // of yielding before a waiting rank sleeps
    TRI_COMM_CHECK_MS = 100,             // between two checks whether the others are alive
    TRI_LAUNCH_DRAIN_MS = 1000,          // for output after all workers have ended
    TRI_LAUNCH_KILLED_MS = 60000,        // for a killed worker to end, before it is left behind
    TRI_MAX_ERROR_FILE_BYTES = 1 << 20,  // that a worker wrote
    TRI_LEDGER_EVENTS = 256,             // latest actions that each rank shows to others
    TRI_MAX_LEDGER_KINDS = 48,           // of action
    TRI_MAX_LANES = 32,                  // of one rank
    TRI_MAX_TRACE_EVENTS = 1 << 17,      // of one rank; the latest are kept
    TRI_STRAGGLER_STEPS = 50,            // over which ranks are compared
    TRI_STRAGGLER_PERCENT = 25, // of their time: a rank that others wait longer for is reported
    TRI_STARVED_PERCENT = 25,   // of the time that threads may wait for cores before it is reported
    TRI_STILL_AFTER_MS = 10000, // before a rank that does not move is named
    TRI_HEARTBEAT_MS = 500,
    TRI_DEAD_AFTER_MS = 4000, // without a heartbeat
    TRI_MAX_SHUTDOWN_MS = 5000,
    TRI_SLURM_ANSWER_MS = 20000,    // for squeue, scontrol and sbatch
    TRI_JOB_END_MARGIN_MS = 5000,   // between the last checkpoint and the end of the job's time
    TRI_JOB_END_ASK_MS = 2000,      // between two questions how much time the job has left
    TRI_JOB_END_SIGTERM_MS = 60000, // before its end: a SIGTERM then is no user's scancel
    TRI_STATE_WRITTEN_MB_S = 100,   // how fast a checkpoint is written, before one was measured
    TRI_LOCK_BEAT_MS = 1000,        // between signs of life of the process that holds a run folder
    TRI_LOCK_WATCH_MS = 10000,      // without one, a holder on another host is dead
    TRI_LOCK_HELD_MS = 1500,    // how long taking a lock is retried before its holder is reported
    TRI_LOCK_ENDING_MS = 60000, // the same, while its holder ends
};

enum {                                         // of communicators over messages
    TRI_MESSAGE_EAGER_BYTES = 16 << 10,        // up to this much travels with a header,
    TRI_MESSAGE_EAGER_TOTAL_BYTES = 256 << 10, // and less where this is too little for all ranks
    TRI_MESSAGE_GATHER_BYTES = 2048, // of one rank: up to this much is passed on from rank to rank
    TRI_MESSAGE_EXCHANGE_RANKS = 16, // ranks that send to all others where data are small
    TRI_MESSAGE_WINDOW_BYTES = 512 << 10, // from one rank to another
    TRI_MESSAGE_LEAST_WINDOW_BYTES = 16 << 10,
    TRI_MESSAGE_SCRATCH_BYTES = 16 << 20, // of a communicator, unless its windows are the least
    TRI_MAX_TRANSPORT_ADDRESS_BYTES = 4096,
    // For the first message between two ranks that have both opened the transport.
    TRI_MESSAGE_CONNECT_MS = 15000,
};

// Bounds on the samples of a data set and on the steps of a run, so that numbers computed from them
// fit into 64 bits.
#define TRI_MAX_SAMPLES (INT64_C(1) << 48)
#define TRI_MAX_STEPS (INT64_C(1) << 60)

#endif
