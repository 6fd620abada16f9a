// Finds the folders of the control groups (cgroups) that limit this process: its own and those
// around it, of version 1 and of version 2.
#ifndef TRIREME_BASE_CONTROL_GROUP_H
#define TRIREME_BASE_CONTROL_GROUP_H

#include <stdbool.h>
#include <stdint.h>

// Calls look(context, is_v1, folder) for the group of this process and for each group around it, up
// to the mounted root, because the limit of a group also holds for the groups below it. Often only
// a group above has one: a batch system limits the group of the whole job, and a container its root
// group. `controller`: the kind of resource, such as "memory" or "cpu". A host may have some
// controllers in version 1 and the others in version 2; then groups of both are looked at.
typedef void (*tri_control_group_look)(void *context, bool is_v1, const char *folder);
void tri_control_groups(const char *controller, tri_control_group_look look, void *context);
// Reads the number behind `key` in a small text file, such as those of control groups; if `key` is
// "", the number with which the file begins. -1: there is no such file or number, but for example
// "max" for no limit.
int64_t tri_number_in_file(const char *folder, const char *file, const char *key);

#endif
