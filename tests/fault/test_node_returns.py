#!/usr/bin/env python3
"""A run on two nodes, each with one launcher (agent). The agent whose connection to the serving
agent is cut again and again joins again ten times, and then ends, so that a bad cable does not make
the other nodes restart their workers for ever.

usage: test_node_returns.py BUILD_FOLDER
"""
import os
import signal
import socket
import sys
import tempfile
import threading

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import SOON, TRIREME, end_all, finish, start, wait_for  # noqa: E402

RETURNS = 10  # as docs/clusters.md says
os.environ["TRIREME_TOKEN"] = "a token of this test"


class Cable:
    """Forwards connections from a port of its own to the serving agent's port. cut() ends all
    connections; new ones then work."""

    def __init__(self, port):
        self.port, self.ends = port, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            near, _ = self.listener.accept()
            try:
                far = socket.create_connection(("127.0.0.1", self.port))
            except OSError:
                near.close()
                continue
            self.ends += [near, far]
            for pair in (near, far), (far, near):
                threading.Thread(target=self.pump, args=pair, daemon=True).start()

    @staticmethod
    def pump(source, to):
        try:
            while data := source.recv(65536):
                to.sendall(data)
        except OSError:
            pass
        for end in source, to:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self):
        ends, self.ends = self.ends, []
        for end in ends:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def agent(folder, port):
    return start([TRIREME, "run", "--nnodes", "1:2", "--nproc-per-node", "1", "--rdzv-backend",
                  "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "returns",
                  "--rdzv-conf", "last_call_timeout=1",
                  "sh", "-c", f'touch {folder}/$TRIREME_GENERATION-$RANK; exec sleep 100'])


def generation(folder):
    """The number of the latest start of the workers in which there were two nodes; -1: none."""
    return max((int(name[:-2]) for name in os.listdir(folder) if name.endswith("-1")), default=-1)


def main():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="trireme-returns-") as folder:
        agents = [agent(folder, port)]
        try:
            wait_for(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0, "the agent")
            cable, before = Cable(port), -1
            agents.append(agent(folder, cable.listener.getsockname()[1]))
            for turn in range(RETURNS + 1):
                assert wait_for(lambda: generation(folder) > before, f"turn {turn}",
                                child=agents[1]), finish(agents[1], 1)
                before = generation(folder)
                cable.cut()
            _, err, code = finish(agents[1], SOON)
            assert code == 1 and err.count("and joins again") == RETURNS, f"{code}: {err}"
            assert f"cut off more than {RETURNS} times" in err, err
            assert agents[0].poll() is None, "the others go on"
            agents[0].send_signal(signal.SIGTERM)
            assert finish(agents[0], SOON)[2] == 128 + signal.SIGTERM
        finally:
            end_all(agents)


if __name__ == "__main__":
    main()
