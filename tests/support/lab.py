#!/usr/bin/env python3
"""A real Slurm cluster of virtual nodes on this machine, for tests.

usage: tests/support/lab.py up [NODES] | down | exec COMMAND [ARGUMENT …] | enter NODE COMMAND …

Each node is a set of namespaces of its own (network, host name, processes, System V memory,
mounts): its own address 10.77.0.(10 + i), its own name node1 …, its own /dev/shm, its own slurmd.
The file system and the cores are shared, as a cluster shares its file system. The controller runs
in one more network namespace, where a bridge connects all nodes. The network has no way out of this
machine. Needs root, iproute2, slurm-wlm and munge. Only processes that this file started are ended,
by their id. The settings are those of slurm.conf(5).
"""
import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

FOLDER = os.environ.get("TRIREME_LAB") or os.path.join(tempfile.gettempdir(), "trireme-lab")
# The namespaces have fixed names: on one machine, tests take turns, whatever their TMPDIR is.
LOCK = os.path.join("/run/lock" if os.path.isdir("/run/lock") else "/tmp", "trireme-lab")
NETWORK, HEAD, BRIDGE = "10.77.0", "lab-head", "labbr0"
CONTROLLER_PORT, NODE_PORT = 16817, 16818
NEEDS = {"ip": "iproute2", "slurmctld": "slurm-wlm", "slurmd": "slurm-wlm", "munged": "munge"}
START_S = 30
# What a node says it has; nothing checks it against this machine.
NODE = {"Sockets": 1, "CoresPerSocket": 64, "ThreadsPerCore": 2, "RealMemory": 491520}
GPUS = 8
PARTITIONS = {"all": "Default=YES MaxTime=INFINITE"}


def path(*names):
    return os.path.join(FOLDER, *names)


def why_not():
    """Why there can be no cluster on this machine; None: there can."""
    missing = sorted({package for tool, package in NEEDS.items() if not shutil.which(tool)})
    if os.geteuid() != 0:
        return "needs root, to make network namespaces"
    if missing:
        return f"needs the packages {' '.join(missing)}"
    made = subprocess.run(["ip", "netns", "add", "lab-probe"], capture_output=True, check=False)
    subprocess.run(["ip", "netns", "del", "lab-probe"], capture_output=True, check=False)
    return "this machine does not allow network namespaces" if made.returncode else None


def shell(*words, **more):
    return subprocess.run(words, check=True, text=True, capture_output=True, **more).stdout


def inside(namespace, *words):
    return ["nsenter", f"--net=/run/netns/{namespace}", *words]


def write(name, text, mode=0o644):
    with open(path(name), "w", encoding="utf-8", opener=lambda p, f: os.open(p, f, mode)) as file:
        file.write(text)


def environment():
    return {**os.environ, "SLURM_CONF": path("slurm.conf")}


def wait_until(what, done):
    end = time.monotonic() + START_S
    while not done():
        if time.monotonic() > end:
            raise RuntimeError(f"{what} took more than {START_S} s; see {path('log')}")
        time.sleep(0.02)


def pid_in(name):
    """The process of a pid file, if it still runs; else 0."""
    with contextlib.suppress(OSError, ValueError):
        with open(path(name), encoding="utf-8") as file:
            pid = int(file.read())
        os.kill(pid, 0)
        return pid
    return 0


def write_configuration(nodes, partitions, slurmd_timeout_s, node, gpu):
    shape = " ".join(f"{key}={value}" for key, value in node.items())
    addresses = f"{NETWORK}.[11-{10 + nodes}]" if nodes > 1 else f"{NETWORK}.11"
    names = f"node[1-{nodes}]" if nodes > 1 else "node1"
    host = os.uname().nodename
    rows = [f"PartitionName={name} Nodes=ALL State=UP {more}" for name, more in partitions.items()]
    settings = {
        "ClusterName": "lab", "SlurmctldHost": f"{host}({NETWORK}.1)",
        "SlurmctldPort": CONTROLLER_PORT, "SlurmdPort": NODE_PORT, "SlurmUser": "root",
        "AuthType": "auth/munge", "AuthInfo": f"socket={path('munge.socket')},cred_expire=10",
        "StateSaveLocation": path("state"), "SlurmdSpoolDir": path("spool.%n"),
        "SlurmctldPidFile": path("slurmctld.pid"), "SlurmdPidFile": path("slurmd.%n.pid"),
        "SlurmctldLogFile": path("log", "slurmctld"), "SlurmdLogFile": path("log", "slurmd.%n"),
        "TmpFS": path("tmp.%n"), "ProctrackType": "proctrack/linuxproc", "TaskPlugin": "task/none",
        "JobAcctGatherType": "jobacct_gather/none",
        "AccountingStorageType": "accounting_storage/none", "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core_Memory", "DefMemPerCPU": 1024, "MpiDefault": "none",
        "SlurmdParameters": "config_overrides", "GresTypes": "gpu", "ReturnToService": 2,
        "EnforcePartLimits": "ALL",
        "SlurmdTimeout": slurmd_timeout_s, "KillWait": 5, "MessageTimeout": 20,
        "SchedulerParameters": "batch_sched_delay=0,sched_interval=5",
    }
    text = "".join(f"{key}={value}\n" for key, value in settings.items())
    text += f"NodeName={names} NodeAddr={addresses} {shape} Gres=gpu:{gpu and gpu + ':'}{GPUS}\n"
    write("slurm.conf", text + "\n".join(rows) + "\n")
    devices = f"Name=gpu {gpu and 'Type=' + gpu} File={path('gpu')}[0-{GPUS - 1}]"
    write("gres.conf", f"AutoDetect=off\nNodeName={names} {devices}\n")
    hosts = ["127.0.0.1 localhost", f"{NETWORK}.1 {host}"]
    hosts += [f"{NETWORK}.{10 + i} node{i}" for i in range(1, nodes + 1)]
    write("hosts", "\n".join(hosts) + "\n")
    # The first process of a node: it ends with the node, and everything in it with that process.
    write("boot", f"""#!/bin/bash
hostname "$1"
mount --make-rprivate /
mount --bind {path('hosts')} /etc/hosts
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
export SLURM_CONF={path('slurm.conf')}
slurmd -N "$1" -f "$SLURM_CONF"
trap 'exit 0' TERM
while :; do sleep 1000000 & wait $!; done
""", 0o755)


def make_network(nodes):
    shell("ip", "netns", "add", HEAD)
    shell("ip", "-n", HEAD, "link", "set", "lo", "up")
    shell("ip", "-n", HEAD, "link", "add", BRIDGE, "type", "bridge")
    shell("ip", "-n", HEAD, "addr", "add", f"{NETWORK}.1/24", "dev", BRIDGE)
    shell("ip", "-n", HEAD, "link", "set", BRIDGE, "up")
    for i in range(1, nodes + 1):
        name = f"lab-node{i}"
        shell("ip", "netns", "add", name)
        shell("ip", "-n", HEAD, "link", "add", f"labv{i}", "type", "veth", "peer", "name", "eth0",
              "netns", name)
        shell("ip", "-n", HEAD, "link", "set", f"labv{i}", "master", BRIDGE, "up")
        shell("ip", "-n", name, "link", "set", "lo", "up")
        shell("ip", "-n", name, "addr", "add", f"{NETWORK}.{10 + i}/24", "dev", "eth0")
        shell("ip", "-n", name, "link", "set", "eth0", "up")


def start_controller():
    write("munge.key", "")
    with open(path("munge.key"), "wb") as key:
        key.write(os.urandom(128))
    os.chmod(path("munge.key"), 0o600)
    shell("munged", "--force", f"--key-file={path('munge.key')}",
          f"--socket={path('munge.socket')}", f"--pid-file={path('munged.pid')}",
          f"--log-file={path('log', 'munged')}", f"--seed-file={path('munge.seed')}")
    shell(*inside(HEAD, "slurmctld", "-f", path("slurm.conf")))


def boot(node):
    """Starts a node, or starts it again after power_off."""
    for folder in (f"spool.node{node}", f"tmp.node{node}"):
        os.makedirs(path(folder), exist_ok=True)
    with contextlib.suppress(OSError):
        os.remove(path(f"slurmd.node{node}.pid"))
    shell("ip", "-n", HEAD, "link", "set", f"labv{node}", "up")
    with open(path("log", f"boot.node{node}"), "ab") as log:
        outer = subprocess.Popen(
            inside(f"lab-node{node}", "unshare", "--uts", "--ipc", "--mount", "--pid", "--fork",
                   "--kill-child", "--mount-proc", path("boot"), f"node{node}"),
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def first():
        found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(outer.pid)], text=True,
                               capture_output=True, check=False).stdout.split()
        return int(found[0]) if found else 0
    wait_until(f"node{node}", first)
    write(f"node{node}.pid", str(first()))


def states():
    return shell(*inside(HEAD, "sinfo", "-h", "-N", "-p", "all", "-o", "%t"),
                 env=environment()).split()


def remove_left():
    """What a cluster left whose test was killed: its namespaces and the processes in them."""
    for line in shell("ip", "netns", "list").splitlines():
        name = line.split()[0]
        if name != HEAD and not name.startswith("lab-node"):
            continue
        for pid in shell("ip", "netns", "pids", name).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        shell("ip", "netns", "del", name)


def up(nodes=2, partitions=None, slurmd_timeout_s=20, node=None, gpu=""):
    """`node`: what differs from NODE; `gpu`: the kind that jobs can ask for."""
    down()
    remove_left()
    for folder in ("", "log", "state"):
        os.makedirs(path(folder), exist_ok=True)
        os.chmod(path(folder), 0o755)
    for i in range(GPUS): # nobody opens them
        os.mknod(path(f"gpu{i}"), 0o666 | 0o020000, os.makedev(1, 3))
    write("nodes", str(nodes))
    write_configuration(nodes, {**PARTITIONS, **(partitions or {})}, slurmd_timeout_s,
                        {**NODE, **(node or {})}, gpu)
    make_network(nodes)
    start_controller()
    for i in range(1, nodes + 1):
        boot(i)
    wait_until("the nodes", lambda: sum(s in ("idle", "mix", "alloc") for s in states()) == nodes)


def stop(name, number):
    pid = pid_in(name)
    if not pid:
        return
    os.kill(pid, number)
    end = time.monotonic() + 5
    while pid_in(name) and time.monotonic() < end:
        time.sleep(0.02)


def power_off(node):
    """Ends a node and everything in it at once. Its slurmd does not say good-bye."""
    stop(f"node{node}.pid", signal.SIGKILL)


def down():
    if not os.path.exists(path("nodes")):
        return
    with open(path("nodes"), encoding="utf-8") as file:
        nodes = int(file.read())
    for i in range(1, nodes + 1):
        power_off(i)
    stop("slurmctld.pid", signal.SIGTERM)
    stop("munged.pid", signal.SIGTERM)
    for name in [HEAD, *(f"lab-node{i}" for i in range(1, nodes + 1))]:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    shutil.rmtree(FOLDER, ignore_errors=True)


def cut(node):
    """Pulls the node's cable; what runs there goes on."""
    shell("ip", "-n", HEAD, "link", "set", f"labv{node}", "down")


def heal(node):
    shell("ip", "-n", HEAD, "link", "set", f"labv{node}", "up")


def shape_traffic(node, *rule):
    """Sets a queueing rule of tc(8) for what the node sends and receives; no words: removes it."""
    for namespace, device in ((HEAD, f"labv{node}"), (f"lab-node{node}", "eth0")):
        subprocess.run(["tc", "-n", namespace, "qdisc", "del", "dev", device, "root"],
                       capture_output=True, check=False)
        if rule:
            shell("tc", "-n", namespace, "qdisc", "add", "dev", device, "root", *rule)


def lose_packets(node, fraction):
    """Drops this fraction of the packets that reach the node, at random; 0: none any more. (Where
    the kernel has netem, tc(8) can do so too, and delay packets.)"""
    words = ["INPUT", "-i", "eth0", "-m", "statistic", "--mode", "random", "--probability",
             str(fraction), "-j", "DROP"]
    tables = inside(f"lab-node{node}", "iptables", "-w")
    shell(*tables, *(["-A", *words] if fraction else ["-F", "INPUT"]))


def lost_packets(node):
    """How many packets the rule of lose_packets has dropped."""
    rules = shell(*inside(f"lab-node{node}", "iptables", "-w", "-nvxL", "INPUT"))
    return sum(int(line.split()[0]) for line in rules.splitlines() if " DROP " in line)


@contextlib.contextmanager
def delay_packets(node, seconds):
    """While the block runs, whatever the node sends and receives arrives later by that time."""
    near, far, port = f"labv{node}", f"labd{node}", f"labp{node}"
    shell("ip", "-n", HEAD, "link", "add", far, "type", "veth", "peer", "name", port)
    shell("ip", "-n", HEAD, "link", "set", near, "nomaster")
    shell("ip", "-n", HEAD, "link", "set", port, "master", BRIDGE, "up")
    shell("ip", "-n", HEAD, "link", "set", far, "up")
    cable = subprocess.Popen(
        inside(HEAD, sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                                  "delay.py"), near, far, str(seconds)),
        stdout=subprocess.PIPE, text=True)
    try:
        assert cable.stdout.readline() == "ready\n", "delay.py did not start"
        yield
        assert cable.poll() is None, "delay.py ended"
    finally:
        cable.kill()
        cable.communicate()
        shell("ip", "-n", HEAD, "link", "set", near, "master", BRIDGE)
        shell("ip", "-n", HEAD, "link", "del", far)


def close_ports(node, closed=True):
    """A firewall on the node drops new connections to the ports that programs have by chance; those
    that it opens itself, and those to named ports, are as before."""
    words = ["INPUT", "-i", "eth0", "-p", "tcp", "--syn", "--dport", "32768:65535", "-j", "DROP"]
    shell(*inside(f"lab-node{node}", "iptables", "-w", "-A" if closed else "-D", *words))


def on_head(*words):
    """A command, as it is started on the head of the cluster."""
    return inside(HEAD, "env", f"SLURM_CONF={path('slurm.conf')}", *words)


def on_node(node, *words):
    """A command, as it is started on a node, outside of Slurm's jobs."""
    pid = pid_in(f"node{node}.pid")
    return ["nsenter", "-m", "-u", "-i", "-n", "-p", "-t", str(pid), "env",
            f"SLURM_CONF={path('slurm.conf')}", *words]


@contextlib.contextmanager
def cluster(nodes=2, **more):
    """A cluster while the block runs, after those of other tests. Prints why and ends with 77 where
    there can be none."""
    with open(LOCK, "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        reason = why_not()
        if reason:
            print(f"skipped: {reason}")
            sys.exit(77)
        # Else the first job on this machine makes a token in the home folder, and says so.
        os.environ["TRIREME_TOKEN"] = "a token of these tests"
        try:
            up(nodes, **more)
            yield
        finally:
            down()


def main():
    words = sys.argv[1:]
    if words[:1] == ["up"] and len(words) <= 2:
        reason = why_not()
        if reason:
            sys.exit(f"lab.py: {reason}")
        up(int(words[1]) if len(words) > 1 else 2)
        print(f"{' '.join(states())}; {sys.argv[0]} exec srun -N1 hostname")
    elif words == ["down"]:
        down()
    elif words[:1] == ["exec"] and len(words) > 1:
        words = on_head(*words[1:])
        os.execvp(words[0], words)
    elif words[:1] == ["enter"] and len(words) > 2:
        words = on_node(int(words[1]), *words[2:])
        os.execvp(words[0], words)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
