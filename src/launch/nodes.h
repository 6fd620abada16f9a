// The connection of a node's launcher (its agent) to the serving agent, which is the one among the
// agents of a run that decides what all nodes do. The serving agent connects to itself in the same
// way. A run on one node has no agents. nodes_message.h lists the messages between agents, such as
// ROUND (start the workers) and END (the run ends).
#ifndef TRIREME_LAUNCH_NODES_H
#define TRIREME_LAUNCH_NODES_H

#include "launch/nodes_message.h"
#include "launch/options.h"

typedef struct launch_nodes launch_nodes;

// Checks the flags. TRI_BAD_INPUT: they cannot describe a run over several nodes.
tri_status launch_nodes_check(const launch_options *options);
// Connects to the serving agent, the launcher that decides for all nodes, at the address that
// --rdzv-endpoint or, without it, --master-addr gives. Before that, this launcher itself begins to
// serve if it is node 0 of a run with --rdzv-backend static, or if in other runs the address
// belongs to this host and is free. Takes up to --rdzv-conf join_timeout. `signal_fd`: a signalfd
// from which the launcher reads its signals. If a signal of options->signals arrives, *signal is
// its number, *out is NULL, and the result is TRI_OK.
tri_status launch_nodes_open(const launch_options *options, int signal_fd, int *signal,
                             launch_nodes **out);
// Joins the run again, as a new node does, after an END which says that this node was cut off from
// the other nodes. Looks for the serving agent (the launcher that decides for all nodes) for up to
// --rdzv-conf read_timeout. TRI_UNSUPPORTED: the serving agent is on this node, or the run does not
// go on after the loss of a node. TRI_NETWORK: the node was cut off too often. TRI_PEER_LOST: the
// serving agent has ended. TRI_TIMEOUT: it was not reached. If a signal arrives, *signal is its
// number, the result is TRI_OK, and the node has not joined.
tri_status launch_nodes_return(launch_nodes *nodes, int *signal);
// Tells the serving agent (the launcher that decides for all nodes) that this launcher ends, so
// that its node does not count as lost. NULL allowed.
void launch_nodes_close(launch_nodes *nodes);

// A descriptor that is readable while messages wait for launch_nodes_next, so that one poll can
// wait for the workers of this node and for these messages.
int launch_nodes_fd(const launch_nodes *nodes);
// Gets the next message of the serving agent (the launcher that decides for all nodes): ROUND,
// STOP, AGAIN or END; false: none has arrived. END is the last message. If the serving agent is
// lost, this process makes an END itself, with is_cut_off set.
bool launch_nodes_next(launch_nodes *nodes, nodes_message *out);
// Waits for a message of kind ROUND, AGAIN or END. Signals are reported to the serving agent (the
// launcher that decides for all nodes), which then sends END; *signal: the first of them.
void launch_nodes_wait(launch_nodes *nodes, int *signal, nodes_message *out);

// Send the messages FAILING, LEAVE and REPORT (nodes_message.h) to the serving agent, the launcher
// that decides for all nodes.
void launch_nodes_failing(launch_nodes *nodes, const char *text);
void launch_nodes_leave(launch_nodes *nodes, int signal);
void launch_nodes_report(launch_nodes *nodes, const nodes_report *report);

#endif
