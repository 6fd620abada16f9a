"""A worker for tests of runs over several nodes: it writes its variables into FOLDER, and then
behaves as the command line says.

usage: nodes_worker.py FOLDER plain | wait | hold | FILE
plain: ends. wait: ends when FOLDER/go exists; a SIGTERM makes it end with 75 (a saved checkpoint).
hold: as wait, without a handler. FILE in FOLDER: its first line is the rank, its second the exit
code with which that rank ends in the first generation, while the others hold.
"""
import json
import os
import signal
import socket
import sys
import time

NAMES = ["RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE",
         "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
         "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RUN_ID",
         "TRIREME_NONCE", "TRIREME_GENERATION", "TRIREME_STORE", "TRIREME_JOB"]


def main():
    folder, mode = sys.argv[1:3]
    if mode == "wait":
        signal.signal(signal.SIGTERM, lambda *_: os._exit(75))
    said = {name: os.environ[name] for name in NAMES}
    said.update(host=socket.gethostname(), pid=os.getpid(), agent=os.getppid())
    name = os.path.join(folder, f"g{said['TRIREME_GENERATION']}-r{said['RANK']}")
    with open(name + ".new", "w", encoding="utf-8") as file:
        json.dump(said, file)
    os.rename(name + ".new", name)
    if mode == "plain":
        return 0
    if mode not in ("wait", "hold"):
        with open(os.path.join(folder, mode), encoding="utf-8") as file:
            rank, code = file.read().split()
        if said["TRIREME_GENERATION"] != "0":
            return 0
        if said["RANK"] == rank:
            time.sleep(0.5)
            return int(code)
    while not os.path.exists(os.path.join(folder, "go")):
        time.sleep(0.02)
    return 0


sys.exit(main())
