#!/usr/bin/env python3
"""`data get` against a server of HTTPS on this host: the file comes whole or not at all, an
interrupted download goes on where it ended, and what is not the file that was asked for is refused.

usage: test_data_get.py BUILD_FOLDER
"""
import hashlib
import http.server
import os
import random
import ssl
import subprocess
import sys
import tempfile
import threading

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import TRIREME, run  # noqa: E402

CONTENT = random.Random(1).randbytes(300_000)
HASH = hashlib.sha256(CONTENT).hexdigest()
CUT = 100_000  # after so many bytes the connection of /cut breaks
folder = None
asked = []  # the server's requests: their path, and where they begin


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        begin = self.headers.get("Range", "bytes=0-").split("=")[1].rstrip("-")
        asked.append((self.path, int(begin)))
        begin = 0 if self.path == "/no-ranges" else int(begin)
        if self.path in ("/missing", "/to-http"):
            self.send_response(404 if self.path == "/missing" else 302)
            self.send_header("Location", "http://127.0.0.1:9/file")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if begin >= len(CONTENT):
            self.send_error(416)
            return
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(CONTENT) - begin))
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(CONTENT) - 1}/{len(CONTENT)}")
        self.end_headers()
        try:
            self.wfile.write(CONTENT[begin:CUT if self.path == "/cut" and not begin else None])
        except OSError:  # a client that wanted only the rest has left
            pass
        self.close_connection = True

    def log_message(self, *_):
        pass


def path(name):
    return os.path.join(folder, name)


def serve():
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", path("key"), "-out",
                    path("certificate")], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path("certificate"), path("key"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"https://127.0.0.1:{server.server_port}"


def get(url, out, code=0, sha256=HASH, trusted=True):
    env = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    if trusted:
        env["SSL_CERT_FILE"] = path("certificate")
    asked.clear()
    done = run([TRIREME, "data", "get", url, "--sha256", sha256, "--out", path(out)], code, env=env)
    if code:
        assert len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr


def check_there(out):
    with open(path(out), "rb") as file:
        assert file.read() == CONTENT
    assert not os.path.exists(path(out + ".part"))


def check_whole(server):
    get(f"{server}/file", "whole", sha256=HASH.upper())
    check_there("whole")
    get(f"{server}/file", "whole")  # it is there already
    assert not asked, asked


def check_goes_on(server):
    assert "the same command" in get(f"{server}/cut", "cut", 1)
    assert os.path.getsize(path("cut.part")) == CUT and not os.path.exists(path("cut"))
    get(f"{server}/cut", "cut")
    assert asked == [("/cut", CUT)], asked
    check_there("cut")
    # A server that does not know ranges sends everything again.
    with open(path("no-ranges.part"), "wb") as file:
        file.write(CONTENT[:CUT])
    get(f"{server}/no-ranges", "no-ranges")
    check_there("no-ranges")
    # Killed before the last step.
    with open(path("almost.part"), "wb") as file:
        file.write(CONTENT)
    get(f"{server}/file", "almost")
    assert not asked, asked
    check_there("almost")
    # Longer than the file: of another one.
    with open(path("longer.part"), "wb") as file:
        file.write(CONTENT + b"more")
    get(f"{server}/file", "longer")
    check_there("longer")


def check_refuses(server):
    wrong = "0" * 64
    assert HASH in get(f"{server}/file", "wrong", 2, sha256=wrong)
    get(f"{server}/missing", "missing", 2)
    get(f"{server}/to-http", "redirected", 2)
    get(f"{server}/file", "stranger", 2, trusted=False)
    get(server.replace("https", "http") + "/file", "plain", 2)
    get(f"{server}/file", "short-hash", 2, sha256=HASH[1:])
    get("https://127.0.0.1:9/file", "nobody", 2)
    with open(path("other"), "wb") as file:
        file.write(b"mine")
    get(f"{server}/file", "other", 2)
    with open(path("other"), "rb") as file:
        assert file.read() == b"mine"
    left = {"key", "certificate", "whole", "cut", "no-ranges", "almost", "longer", "other"}
    assert set(os.listdir(folder)) == left, os.listdir(folder)


def main():
    global folder
    if not os.path.exists(os.path.join(os.path.dirname(TRIREME), "..", "lib", "trireme",
                                       "download.so")):
        print("skipped: the module download was not built")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        server = serve()
        for check in (check_whole, check_goes_on, check_refuses):
            check(server)


if __name__ == "__main__":
    main()
