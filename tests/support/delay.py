#!/usr/bin/env python3
"""A long cable: passes every frame between two network interfaces on after a delay.

usage: delay.py INTERFACE INTERFACE SECONDS        in their network namespace, until SIGTERM

lab.delay_packets runs it, because not every kernel has netem. A frame keeps the header of
virtio_net.h, which tells of checksums and of segments that the sender's kernel leaves to the
network card.
"""
import collections
import contextlib
import errno
import select
import socket
import sys
import time

# Values of linux/if_ether.h, if_packet.h and asm-generic/socket.h that Python does not name.
ALL_PROTOCOLS, PACKET_LEVEL, VNET_HEADER, IGNORE_OUTGOING = 0x0003, 263, 15, 23
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
MEMORY = 64 << 20  # of one direction: what a fast sender has on the cable
LARGEST = 10 + 14 + 4 + (64 << 10)  # the header, Ethernet's, a VLAN's, and all segments


def connect(name):
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    end.setsockopt(PACKET_LEVEL, VNET_HEADER, 1)
    end.setsockopt(PACKET_LEVEL, IGNORE_OUTGOING, 1)
    end.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, MEMORY)
    end.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, MEMORY)
    end.setblocking(False)
    end.bind((name, ALL_PROTOCOLS))
    return end


def take(end, queue, delay):
    with contextlib.suppress(BlockingIOError):
        while True:
            queue.append((time.monotonic() + delay, end.recv(LARGEST)))


def give(end, queue):
    """Sends what is due. Without room, the rest waits for the next turn."""
    while queue and queue[0][0] <= time.monotonic():
        try:
            end.send(queue[0][1])
        except OSError as wrong:
            if wrong.errno in (errno.EAGAIN, errno.ENOBUFS):
                return
            if wrong.errno != errno.ENETDOWN:
                raise
        queue.popleft()


def main():
    ends, delay = [connect(name) for name in sys.argv[1:3]], float(sys.argv[3])
    queues = [collections.deque(), collections.deque()]  # by the end that they come from
    print("ready", flush=True)
    while True:
        due = min((queue[0][0] for queue in queues if queue), default=time.monotonic() + 1)
        select.select(ends, [], [], max(due - time.monotonic(), 0.001))
        for i, queue in enumerate(queues):
            take(ends[i], queue, delay)
            give(ends[1 - i], queue)


if __name__ == "__main__":
    main()
