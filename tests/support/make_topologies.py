#!/usr/bin/env python3
"""Writes tests/support/topologies/*.xml, nodes of supercomputers as hwloc would see them, from what
the sites publish: sockets, NUMA nodes, cores, hardware threads, the cores that jobs may use, and
where GPUs and network interfaces are attached. Sizes of memory and caches are only roughly right.

usage: tests/support/make_topologies.py
"""
import os

# `devices` are GPUs and network interfaces: (NUMA node, PCI bus, PCI class and ids, name). These
# are the classes and ids.
AMD, NVIDIA, NIC = "0380 [1002:7408] [1002:0b0c] 01", "0302 [10de:20b0] [10de:144e] a1", \
    "0200 [17db:0501] [17db:0501] 00"
MACHINES = {
    # Each half of an MI250X is a GPU of its own (a GCD). The GPUs are in the order of their
    # numbers, which is that of their PCI addresses.
    "lumi-g": {
        "sockets": 1, "numa": 4, "caches": 2, "cores": 8, "threads": 1,
        "reserved": range(0, 64, 8),
        "devices": [(3, "c1", AMD, "card0"), (3, "c6", AMD, "card1"), (1, "c9", AMD, "card2"),
                    (1, "cc", AMD, "card3"), (0, "d1", AMD, "card4"), (0, "d6", AMD, "card5"),
                    (2, "d9", AMD, "card6"), (2, "dc", AMD, "card7"),
                    (3, "c5", NIC, "hsn0"), (1, "cd", NIC, "hsn1"), (0, "d5", NIC, "hsn2"),
                    (2, "dd", NIC, "hsn3")]},
    "juwels-booster": {
        "sockets": 2, "numa": 4, "caches": 2, "cores": 3, "threads": 2, "reserved": (),
        "devices": [(3, "03", NVIDIA, "card0"), (1, "44", NVIDIA, "card1"),
                    (7, "84", NVIDIA, "card2"), (5, "c4", NVIDIA, "card3"),
                    (3, "01", NIC, "ib0"), (1, "42", NIC, "ib1"), (7, "82", NIC, "ib2"),
                    (5, "c2", NIC, "ib3")]},
    "alps": {
        "sockets": 4, "numa": 1, "caches": 1, "cores": 72, "threads": 1, "reserved": (),
        "devices": [(i, f"0{i + 1}", NVIDIA, f"card{i}") for i in range(4)] +
                   [(i, f"1{i + 1}", NIC, f"hsn{i}") for i in range(4)]},
}


def mask(numbers):
    """The set of these numbers as a bit mask in hwloc's form: words of 32 bits, the highest
    first."""
    value = sum(1 << n for n in numbers)
    words = []
    while value or not words:
        words.insert(0, f"0x{value & 0xffffffff:08x}")
        value >>= 32
    return ",".join(words)


class Writer:
    def __init__(self, machine):
        self.lines, self.index, self.machine = [], 0, machine
        self.total = machine["sockets"] * machine["numa"] * machine["caches"] * machine["cores"]

    def pus(self, cores):
        """Hardware thread t of core c has the number c + t * all cores, as Linux counts."""
        return [core + thread * self.total for thread in range(self.machine["threads"])
                for core in cores if core not in self.machine["reserved"]]

    def put(self, depth, text, **sets):
        self.index += 1
        ends = "/>" if text.endswith("/") else ">"
        words = "".join(f' {name}="{value}"' for name, value in sets.items())
        self.lines.append(f'{" " * depth}<object {text.rstrip("/")}{words} '
                          f'gp_index="{self.index}"{ends}')

    def end(self, depth):
        self.lines.append(f'{" " * depth}</object>')

    def sets(self, cores, nodes):
        cpus, numa = mask(self.pus(cores)), mask(nodes)
        return {"cpuset": cpus, "complete_cpuset": cpus, "nodeset": numa, "complete_nodeset": numa}

    def put_cores(self, cores, node):
        for core in cores:
            if core in self.machine["reserved"]:
                continue
            self.put(5, 'type="Core"', os_index=core, **self.sets([core], [node]))
            for pu in self.pus([core]):
                own = mask([pu])
                self.put(6, 'type="PU"/', os_index=pu, cpuset=own, complete_cpuset=own,
                         nodeset=mask([node]), complete_nodeset=mask([node]))
            self.end(5)

    def put_node(self, node):
        """A NUMA node with its caches, cores and devices."""
        m = self.machine
        size = m["caches"] * m["cores"]
        cores = range(node * size, (node + 1) * size)
        self.put(3, 'type="Group" kind="1001" subkind="0"', **self.sets(cores, [node]))
        self.put(4, 'type="NUMANode"/', os_index=node, local_memory=1 << 37,
                 **self.sets(cores, [node]))
        for cache in range(m["caches"]):
            part = cores[cache * m["cores"]:(cache + 1) * m["cores"]]
            self.put(4, 'type="L3Cache" cache_size="33554432" depth="3" cache_linesize="64" '
                        'cache_associativity="16" cache_type="0"', **self.sets(part, [node]))
            self.put_cores(part, node)
            self.end(4)
        for place, bus, kind, name in m["devices"]:
            if place != node:
                continue
            number = int(bus, 16)
            self.put(4, f'type="Bridge" bridge_type="0-1" depth="0" '
                        f'bridge_pci="0000:[{number:02x}-{number:02x}]"')
            self.put(5, f'type="PCIDev" pci_busid="0000:{bus}:00.0" pci_type="{kind}" '
                        f'pci_link_speed="31.507692"')
            self.put(6, f'type="OSDev" name="{name}" osdev_type="{2 if kind == NIC else 1}"/')
            self.end(5)
            self.end(4)
        self.end(3)

    def text(self):
        m = self.machine
        nodes = range(m["sockets"] * m["numa"])
        everything = self.sets(range(self.total), nodes)
        self.lines = ['<?xml version="1.0" encoding="UTF-8"?>',
                      '<!DOCTYPE topology SYSTEM "hwloc2.dtd">', '<topology version="2.0">']
        self.put(1, 'type="Machine"', os_index=0, allowed_cpuset=everything["cpuset"],
                 allowed_nodeset=everything["nodeset"], **everything)
        for socket in range(m["sockets"]):
            own = nodes[socket * m["numa"]:(socket + 1) * m["numa"]]
            size = m["caches"] * m["cores"]
            cores = range(own[0] * size, (own[-1] + 1) * size)
            self.put(2, 'type="Package"', os_index=socket, **self.sets(cores, own))
            for node in own:
                self.put_node(node)
            self.end(2)
        self.end(1)
        return "\n".join(self.lines + ["</topology>", ""])


if __name__ == "__main__":
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "topologies")
    os.makedirs(folder, exist_ok=True)
    for site, shape in MACHINES.items():
        with open(os.path.join(folder, f"{site}.xml"), "w", encoding="utf-8") as out:
            out.write(Writer(shape).text())
