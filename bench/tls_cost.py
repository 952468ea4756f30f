"""What TLS costs a request, and a handshake the server, beside the same over plain TCP, in one run.

    python -m bench.tls_cost [ROUND_TRIPS]

Two servers of the zoo's mlp, one plain and one that asks for a token over TLS, each asked one request at a time by the
blocking client; the runs alternate, so that a busy machine disturbs both alike. A handshake's cost is the server's
processor time over many of them, for a key on an elliptic curve and one of RSA. Needs the openssl program.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from tickpath.client import Client, Tls
from tickpath.loadtest.latency import summarise
from tickpath.server.ready import Ready

ROUNDS: Final = 9
HANDSHAKES: Final = 300
X: Final = np.zeros((1, 64), np.float32)
TOKEN: Final = "a-token-for-this-bench-alone"
KEYS: Final = {"EC P-256": ("ec", "ec_paramgen_curve:prime256v1"), "RSA 2048": ("rsa", "rsa_keygen_bits:2048")}


@contextmanager
def served(folder: Path, *flags: str) -> Iterator[Ready]:
    """A server of mlp."""
    command = [sys.executable, "-m", "tickpath.cli", "serve", "--port", "0", "--no-observer", "--json", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=folder) as server:
        assert server.stdout is not None
        yield msgspec.json.decode(server.stdout.readline(), type=Ready)
        server.terminate()


def configure(folder: Path, name: str) -> Path:
    """Files for a server that asks, with a key of this kind."""
    kind, option = KEYS[name]
    command = ["openssl", "req", "-x509", "-newkey", kind, "-pkeyopt", option, "-nodes", "-days", "2"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(folder / f"{kind}.key"), "-out", str(folder / f"{kind}.pem")]
    subprocess.run(command, check=True, capture_output=True)
    (folder / "token").write_text(TOKEN)
    path = folder / f"{kind}.toml"
    path.write_text(
        f'models = [{{ path = "mlp.onnx" }}]\ntls = {{ certificate = "{kind}.pem", key = "{kind}.key" }}\n'
        'clients = [{ name = "bench", token_file = "token", rate_max = 1e6 }]\n'
    )
    return path


def asked(client: Client, round_trips: int) -> list[int]:
    taken_ns = []
    for _ in range(round_trips):
        start_ns = time.perf_counter_ns()
        client.infer("mlp", X)
        taken_ns.append(time.perf_counter_ns() - start_ns)
    return taken_ns


def cpu_s(pid: int) -> float:
    """Of the whole process, to a hundredth of a second."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def connecting_us(ready: Ready, tls: Tls | None) -> float:
    """The server's processor time for one connection, with Hello and Welcome."""
    before_s = cpu_s(ready.pid)
    for _ in range(HANDSHAKES):
        with Client(ready.address, token=TOKEN, tls=tls):
            pass
    return (cpu_s(ready.pid) - before_s) / HANDSHAKES * 1e6


def main() -> None:
    """Print medians over the rounds, and the spread."""
    round_trips = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        command = [sys.executable, "-m", "tickpath.cli", "zoo", "mlp", str(folder / "mlp.onnx")]
        subprocess.run(command, check=True, capture_output=True)
        plain = stack.enter_context(served(folder, "mlp.onnx"))
        secure = {key: stack.enter_context(served(folder, "--config", str(configure(folder, key)))) for key in KEYS}
        trust = {key: Tls(ca=str(folder / f"{kind}.pem")) for key, (kind, _) in KEYS.items()}
        elliptic = next(iter(KEYS))
        clients = {
            "plain": stack.enter_context(Client(plain.address)),
            "TLS": stack.enter_context(Client(secure[elliptic].address, token=TOKEN, tls=trust[elliptic])),
        }
        figures: dict[str, list[tuple[float, float]]] = {way: [] for way in clients}
        for _ in range(ROUNDS):
            for way, client in clients.items():
                summary = summarise(np.array(asked(client, round_trips), np.int64))
                figures[way].append((summary.p50_ns / 1e3, summary.p99_ns / 1e3))
        print(f"{ROUNDS} rounds of {round_trips}, load average {os.getloadavg()[0]:.1f}: median (least to most), in µs")
        for way, found in figures.items():
            for quantile, values in zip(("p50", "p99"), zip(*found, strict=True), strict=True):
                print(f"{way:6} {quantile} {statistics.median(values):8.1f} ({min(values):.1f} to {max(values):.1f})")
        differences = [tls[0] - bare[0] for bare, tls in zip(figures["plain"], figures["TLS"], strict=True)]
        print(f"TLS adds to p50, round by round: {statistics.median(differences):.1f} µs")
        print(f"a connection costs the plain server {connecting_us(plain, None):.0f} µs of its processor")
        for key, ready in secure.items():
            print(f"a connection costs with {key} {connecting_us(ready, trust[key]):.0f} µs")


if __name__ == "__main__":
    main()
