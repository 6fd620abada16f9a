// Every limit on a size, a count or a time has a name here. They are in one place, so that tests
// can find them and readers need not guess what a number means.
//
// Words that several comments use: a launcher (`trireme run`) starts the ranks of one node, each as
// a process, which is then called a worker. The store is the key-value server, on rank 0 or in a
// launcher, through which the ranks of a run find each other. The token is a user's secret, which
// both ends of a connection between hosts prove to have. A beat is a sign of life that a rank sends
// over the network. A rank ends with exit code 2 if usage or input is bad.
#ifndef TRIREME_BASE_LIMITS_H
#define TRIREME_BASE_LIMITS_H

#include <stdint.h>

enum {
    TRI_MAX_NAME_BYTES = 256, // longest name of a parameter, block or layer
    TRI_MAX_RANKS = 65536,
    TRI_MAX_SHOWN_RANKS = 64,  // ranks of which a run's last line tells what took their time
    TRI_MAX_LOCAL_RANKS = 256, // ranks of one host that communicate over shared memory
    TRI_MAX_NODES = 4096,      // nodes of one run over several nodes
    TRI_NODES_BEAT_MS = 1000,  // time between two signs of life of a node's launcher
    TRI_MAX_NODE_RETURNS = 10, // how often a node that lost its connection may return to a run
    // The launchers of a run over several nodes check regularly whether others have been silent for
    // too long. If more time than this lies between two checks of a launcher, that launcher did not
    // run in this time, so the silence of others does not count.
    TRI_NODES_LATE_MS = 3000,
    TRI_MAX_THREADS = 1024,
    TRI_MAX_RUN_RANKS = 4096, // ranks that one store serves
    // Connections to a store. Each rank has up to three: one for its requests, one for its beats
    // (signs of life), and one on which it tells why it ends with exit code 2 (bad input).
    TRI_MAX_STORE_CLIENTS = 3 * TRI_MAX_RUN_RANKS,
    // Connections over TCP that have not proved yet that they have the token.
    TRI_MAX_STORE_STRANGERS = 64,
    TRI_STORE_GREETING_MS = 5000, // how long a connection may take to prove that it has the token
    // If TRI_MAX_STORE_STRANGERS connections have not proved yet that they have the token, a new
    // connection replaces the oldest of them, but not before the oldest has lasted for this time.
    TRI_STORE_CROWDED_MS = 1000,
    TRI_MAX_STORE_LISTENERS = 16, // addresses at which a store listens
    TRI_STORE_PORTS = 8,          // ports at which ranks look for the store of rank 0
    // The longest wait for an answer from one of the TRI_STORE_PORTS ports, before a rank tries all
    // of them again.
    TRI_STORE_PROBE_MS = 2000,
    TRI_BEAT_MS = 1000, // time between two beats of a rank over the network
    // Ranks and the store check regularly whether a rank has been silent for too long. If more time
    // than this lies between two checks of a process, that process did not run in this time, so the
    // silence of others does not count.
    TRI_BEAT_LATE_MS = 3000,
    TRI_SILENCE_MS = 15000,    // a rank without a beat for so long is lost
    TRI_BEAT_ANSWER_MS = 2000, // how long to wait for the store to tell what another rank does
    // If rank A has asked the store what rank B does, the store sends A each new beat (sign of
    // life) of B for this time, so that A need not ask again.
    TRI_FOLLOWED_MS = 10000,
    // How long the store waits, after one rank has told it why it ends with exit code 2, until all
    // other ranks have told it whether they do so too.
    TRI_REFUSAL_GATHER_MS = 3000,
    // One of the ranks that end with exit code 2 prints the reason for all. The others wait at most
    // this time until it has printed, because a launcher may end all ranks, also the one that
    // prints, once one has ended.
    TRI_REFUSAL_SPEAK_MS = 1000,
    // How long rank 0, before it ends with exit code 2, waits for ranks that have not connected
    // yet, so that they too learn the reason.
    TRI_REFUSAL_STAY_MS = 3000,
    // How long a rank that ends with exit code 2 tries to get an answer from rank 0, before it
    // prints by itself why it ends.
    TRI_REFUSAL_LOOK_MS = 5000,
    // How long a rank that has printed by itself why it ends still tries to reach rank 0, so that
    // the other ranks learn the reason.
    TRI_REFUSAL_END_MS = 5000,
    TRI_MAX_HOST_FILE_BYTES = 16 << 20, // size of a batch system's file with the hosts of a job
    TRI_MIN_TOKEN_BYTES = 16,
    TRI_MAX_TOKEN_BYTES = 1024,
    TRI_MAX_STORE_KEYS = 1 << 16,
    TRI_MAX_STORE_BYTES = 256 << 20, // size of all values of a store together
    TRI_MAX_RECIPE_BYTES = 1 << 20,
    TRI_MAX_TREE_NODES = 1 << 16, // nodes of a YAML or JSON document, with aliases expanded
    TRI_MAX_TREE_DEPTH = 64,
    TRI_MAX_TREE_KEYS = 4096, // keys of one map of a YAML document
    TRI_MAX_TREE_ANCHORS = 1024,
    TRI_MAX_BATCH = 1 << 24,                // samples of a step
    TRI_MAX_TENSORS = 1 << 20,              // tensors of one safetensors file
    TRI_MAX_SAFETENSORS_HEADER = 100000000, // bytes of a header; the limit of the format itself
    TRI_MAX_WINDOW = 1 << 20,    // the largest kernel, stride, padding or dilation of a convolution
    TRI_PROGRAM_BYTES = 8 << 20, // measured memory of a rank's process without model and data
    TRI_MAX_MODEL_BLOCKS = 4096,
    TRI_MAX_ROUNDS = 1 << 16, // micro-batches of one step or evaluation on one rank
    // Steps issued to a device while the results of an earlier step are not read yet.
    TRI_MAX_STEPS_AHEAD = 1,
    TRI_MAX_METRICS = 32,             // metrics of one model
    TRI_MAX_METRIC_NUMBERS = 1 << 22, // numbers that one metric adds up over samples
    TRI_MAX_METRIC_OUTPUTS = 64,      // outputs of a regression that a metric keeps apart
    TRI_MAX_METRIC_BYTES = 64,        // a metric's name, with the byte that ends it
    TRI_MAX_ZIP_MEMBERS = 65535,      // files in one zip archive, such as arrays in a .npz file
    // The checksum of an array in a zip archive is verified when the array is opened, unless the
    // array is larger than this.
    TRI_MAX_VERIFIED_BYTES = 1 << 30,
    TRI_MAX_DATA_FIELDS = 8,           // tensors of a sample
    TRI_MAX_WORKERS = 256,             // threads of one data loader
    TRI_MAX_SAMPLE_ELEMENTS = 1 << 30, // elements of one tensor of a sample
    TRI_MAX_IMAGE_SIDE = 65535,        // height or width of an image
    // Pixels of one image: where Pillow, too, takes a file for a decompression bomb.
    TRI_MAX_IMAGE_PIXELS = 178956970,
    TRI_MAX_IMAGE_BYTES = 1 << 30, // size of an image's file
    TRI_MAX_CLASSES = 1 << 30,     // classes or tokens; labels and token numbers are below this
    // The most samples of an evaluation batch on one replica, if the recipe sets neither batch.eval
    // nor batch.micro.
    TRI_EVAL_BATCH = 128,
    // Size of a chunk of a checkpoint's file; each chunk has its own hash.
    TRI_CHECKPOINT_CHUNK_BYTES = 4 << 20,
    TRI_MAX_CHECKPOINT_CHUNK_BYTES = 1 << 30,
    TRI_MAX_CHECKPOINT_CHUNKS = 1 << 15, // chunks of one file; chunks grow if it would have more
    // Bytes of a checkpoint's state.json, or of the file that lists the safetensors files of a
    // model.
    TRI_MAX_CHECKPOINT_STATE = 16 << 20,
    TRI_MAX_CHECKPOINT_NAMES = 1 << 20, // of these, bytes of the names of classes and columns
    TRI_MAX_SHARDS = 4096,              // safetensors files of one model
    TRI_CHECKPOINT_SPARES = 1, // older checkpoints that are kept in case the newest is damaged
    // Percentage of a host's memory that all its ranks together may use for snapshots: copies of
    // the training state, from which a checkpoint is written while training continues.
    TRI_SNAPSHOT_PERCENT = 25,
    TRI_DEFAULT_TIMEOUT_MS = 300000, // default time limit of a collective without progress
    // How long to wait for an answer of the store. Its thread may have to wait for a core, because
    // rank 0 computes meanwhile.
    TRI_STORE_ANSWER_MS = 30000,
    // Collectives over shared memory: operands up to this size lie in the entry (shm_entry) by
    // which a rank announces the collective.
    TRI_SHM_EAGER_BYTES = 4096,
    // Shared memory of one rank, through which data pass that lie in the rank's own memory, where
    // the other ranks cannot read them.
    TRI_SHM_STAGE_BYTES = 1 << 20,
    TRI_SHM_PIPE_BYTES = 1 << 16, // ring buffer in shared memory for messages from rank to rank
    // Operations over shared memory: the most bytes that a rank copies or sums at a time. It then
    // checks what the other ranks have done, and advances its other operations.
    TRI_SHM_CHUNK_BYTES = 128 << 10,
    // Scratch memory of a communicator of comm/pair, which is made of two others: one between the
    // ranks of a host, and one between hosts.
    TRI_PAIR_SCRATCH_BYTES = 2 << 20,
    // The scratch memory and the most ranks of a communicator of comm/generic, which does on top of
    // another communicator what that one cannot do by itself.
    TRI_GENERIC_SCRATCH_BYTES = 4 << 20,
    TRI_MAX_GENERIC_RANKS = 1024,
    TRI_COMM_YIELD_US = 500, // how long a waiting rank yields its core before it sleeps
    TRI_COMM_CHECK_MS = 100, // time between two checks whether the other ranks are alive
    // How long the launcher still reads the workers' output after all workers have ended.
    TRI_LAUNCH_DRAIN_MS = 1000,
    // How long the launcher waits for the end of a worker that it has killed.
    TRI_LAUNCH_KILLED_MS = 60000,
    TRI_MAX_ERROR_FILE_BYTES = 1 << 20, // size of the file in which a worker says why it failed
    TRI_LEDGER_EVENTS = 256,        // latest actions in a rank's ledger, which other ranks can read
    TRI_MAX_LEDGER_KINDS = 48,      // kinds of actions in a ledger, such as FORWARD
    TRI_MAX_LANES = 32,             // a rank's sequences of actions: compute, communicators, …
    TRI_MAX_TRACE_EVENTS = 1 << 17, // actions of one rank in a trace; the latest are kept
    TRI_STRAGGLER_STEPS = 50,       // steps over which ranks are compared, to find slow ones
    // A rank is reported as slow if its actions take longer than expected (straggler.h) by more
    // than this percentage. This extra time must also be more than this percentage of the whole
    // time of the steps that are compared.
    TRI_STRAGGLER_PERCENT = 25,
    // A lack of cores is reported if the time that threads waited for a core, added up over all
    // threads, is at least this percentage of the wall-clock time.
    TRI_STARVED_PERCENT = 25,
    // A rank that has made no progress, or has not connected, for so long is reported.
    TRI_STILL_AFTER_MS = 10000,
    TRI_HEARTBEAT_MS = 500,   // time between two heartbeats, by which a rank shows that it is alive
    TRI_DEAD_AFTER_MS = 4000, // a rank without a heartbeat for so long is dead
    // How long a server that ends (of a store, or of the launchers of a run over several nodes)
    // waits for its clients to disconnect.
    TRI_MAX_SHUTDOWN_MS = 5000,
    TRI_SLURM_ANSWER_MS = 20000,  // how long to wait for squeue, scontrol and sbatch
    TRI_JOB_END_MARGIN_MS = 5000, // time to leave between the last checkpoint and the job's end
    TRI_JOB_END_ASK_MS = 2000,    // least time between two questions to Slurm when the job will end
    // A SIGTERM that comes less than this time before the job's end counts as sent because of the
    // job's time limit, and not by scancel.
    TRI_JOB_END_SIGTERM_MS = 60000,
    TRI_STATE_WRITTEN_MB_S = 100, // assumed speed of writing a checkpoint, before one was measured
    // Time between two signs of life of the process that holds a run folder.
    TRI_LOCK_BEAT_MS = 1000,
    // If the process that holds a run folder is on another host, and gives no sign of life for so
    // long, it counts as dead.
    TRI_LOCK_WATCH_MS = 10000,
    // How long a process tries to lock a run folder before it reports the process that holds it.
    TRI_LOCK_HELD_MS = 1500,
    // How long a process tries to lock a run folder if the process that holds it is about to end.
    TRI_LOCK_ENDING_MS = 60000,
};

// Limits of communicators whose ranks send each other messages over a network.
enum {
    TRI_MESSAGE_EAGER_BYTES = 16 << 10, // data up to this size are sent together with their header
    // If there are many ranks, TRI_MESSAGE_EAGER_BYTES is reduced to a smaller multiple of 64 bytes
    // (64 at the least), so that messages of this size, one from each rank, are together no larger
    // than TRI_MESSAGE_EAGER_TOTAL_BYTES.
    TRI_MESSAGE_EAGER_TOTAL_BYTES = 256 << 10,
    // Collectives of more than TRI_MESSAGE_EXCHANGE_RANKS ranks in which each rank needs the data
    // of all, such as an all-gather: if each rank's data have at most this size, a rank passes on
    // what it has received together with its own data (Bruck's algorithm). So each rank sends only
    // log2(ranks) messages.
    TRI_MESSAGE_GATHER_BYTES = 2048,
    // Up to this number of ranks, in a collective of small data (TRI_MESSAGE_EAGER_BYTES) each rank
    // sends its data to all others directly.
    TRI_MESSAGE_EXCHANGE_RANKS = 16,
    // Large data are summed window by window: a window is some of the elements, for which the ranks
    // send each other their terms of the sums at one time. These two are the most and the least
    // bytes of one rank's terms of one window.
    TRI_MESSAGE_WINDOW_BYTES = 512 << 10,
    TRI_MESSAGE_LEAST_WINDOW_BYTES = 16 << 10,
    // The most scratch memory of a communicator, unless there are so many ranks that windows of the
    // least size need more.
    TRI_MESSAGE_SCRATCH_BYTES = 16 << 20,
    TRI_MAX_TRANSPORT_ADDRESS_BYTES = 4096,
    // Time limit of the first message between two ranks that have both opened the transport (the
    // library that carries messages).
    TRI_MESSAGE_CONNECT_MS = 15000,
};

// Limits on the samples of a data set and on the steps of a run, so that numbers computed from them
// fit into 64 bits.
#define TRI_MAX_SAMPLES (INT64_C(1) << 48)
#define TRI_MAX_STEPS (INT64_C(1) << 60)

#endif
