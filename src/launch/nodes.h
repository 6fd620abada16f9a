// The agent of one node of a run over several: its connection to the serving agent, which may be in
// this process too. A run on one node needs none.
#ifndef TRIREME_LAUNCH_NODES_H
#define TRIREME_LAUNCH_NODES_H

#include "launch/nodes_message.h"
#include "launch/options.h"

typedef struct launch_nodes launch_nodes;

// Checks the flags: TRI_BAD_INPUT if they cannot describe such a run.
tri_status launch_nodes_check(const launch_options *options);
// Serves at the endpoint if it is this host's and free, and connects to the agent that serves
// there; takes up to the join timeout. `signal_fd` as in launch_watch. If a signal of
// options->signals comes, *signal is its number, *out NULL, and the result TRI_OK.
tri_status launch_nodes_open(const launch_options *options, int signal_fd, int *signal,
                             launch_nodes **out);
// Called after an END which says that this node was cut off from the network: looks for the serving
// agent again, for --rdzv-conf read_timeout, and joins as a new node does. TRI_UNSUPPORTED: the run
// does not go on after the loss of a node, or this is the serving one. TRI_PEER_LOST: the serving
// agent has ended; TRI_TIMEOUT. With a signal the result is TRI_OK, and nothing has been joined.
tri_status launch_nodes_return(launch_nodes *nodes, int *signal);
// Tells the serving agent that this one ends, so that it does not count as lost. NULL allowed.
void launch_nodes_close(launch_nodes *nodes);

// A descriptor that is readable while messages wait, so that one poll serves workers and agents.
int launch_nodes_fd(const launch_nodes *nodes);
// Returns the next message: ROUND, STOP, AGAIN, END; false: none has arrived. After END there are
// no more. END also stands for the loss of the serving agent, after which the run ends in the same
// way.
bool launch_nodes_next(launch_nodes *nodes, nodes_message *out);
// Waits for a message of kind ROUND, AGAIN or END. Signals are told to the serving agent, which
// then sends END; *signal: the first one.
void launch_nodes_wait(launch_nodes *nodes, int *signal, nodes_message *out);

void launch_nodes_failing(launch_nodes *nodes, const char *text);
void launch_nodes_leave(launch_nodes *nodes, int signal);
void launch_nodes_report(launch_nodes *nodes, const nodes_report *report);

#endif
