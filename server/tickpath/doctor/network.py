"""The way from the wire to the process: where interrupts go, and how long a card holds packets back."""

import array
import fcntl
import re
import socket
import struct
from typing import Final

from tickpath.doctor.finding import Finding, ok, unseen, warn
from tickpath.doctor.host import Host, cpu_list

# A card that waits longer for more packets costs more than a small model.
COALESCE_US_MAX: Final = 10

SIOCETHTOOL: Final = 0x8946
ETHTOOL_GCOALESCE: Final = 0x0E
# struct ethtool_coalesce of linux/ethtool.h: 23 numbers of 32 bits, of which the second is rx_coalesce_usecs.
COALESCE_WORDS: Final = 23
# struct ifreq: a name of 16 bytes and a pointer, in 40 bytes.
IFREQ: Final = struct.Struct("16sP16x")


def interrupts(host: Host) -> Finding:
    """Which devices interrupt the server's processor."""
    check = "interrupts"
    if (cpu := host.pinned) is None:
        return warn(check, "the server is not pinned, so any may hit it", "serve --cpu N (and doctor --cpu N)")
    counts = _counts(host.text("proc/interrupts") or "", cpu)
    if counts is None:
        return unseen(check, f"/proc/interrupts does not tell of {cpu}")
    here = []
    for irq, (count, name) in counts.items():
        allowed = host.text(f"proc/irq/{irq}/effective_affinity_list") or host.text(f"proc/irq/{irq}/smp_affinity_list")
        if count and cpu in cpu_list(allowed or ""):
            here.append(f"{name} ({irq})")
    if not here:
        return ok(check, f"none of a device's on {cpu}")
    others = "another processor's number"
    return warn(check, f"{', '.join(here[:4])} on {cpu}", f"echo {others} > /proc/irq/N/smp_affinity_list")


def _counts(text: str, cpu: int) -> dict[int, tuple[int, str]] | None:
    """How often each device's interrupt came to a processor, and the device's name. None: it is not told of."""
    header, *lines = text.splitlines() or [""]
    columns = header.split()
    if f"CPU{cpu}" not in columns:
        return None
    column = columns.index(f"CPU{cpu}")
    found = {}
    for line in lines:
        irq, _, rest = line.partition(":")
        words = rest.split()
        if irq.strip().isdecimal() and len(words) > len(columns) and words[column].isdecimal():
            found[int(irq)] = (int(words[column]), words[-1])
    return found


def cards(host: Host) -> list[str]:
    """Network interfaces with a device behind them."""
    return [path.split("/")[-2] for path in host.glob("sys/class/net/*/device")]


def coalescing(host: Host) -> Finding:
    """How long a card waits before it tells of a packet."""
    check = "NIC coalescing"
    waits_us = {card: us for card in cards(host) if (us := receive_wait_us(card)) is not None}
    if not waits_us:
        return unseen(check, "no card that tells: a virtual one, or clients come by loopback")
    slow = {card: us for card, us in waits_us.items() if us > COALESCE_US_MAX}
    if not slow:
        return ok(check, ", ".join(f"{card} {us} µs" for card, us in waits_us.items()))
    found = ", ".join(f"{card} waits {us} µs" for card, us in slow.items())
    return warn(check, found, f"ethtool -C {min(slow)} adaptive-rx off rx-usecs 0")


def receive_wait_us(card: str) -> int | None:
    """rx-usecs, as `ethtool -c` has it; None: the card's driver does not tell."""
    words = array.array("I", [ETHTOOL_GCOALESCE] + [0] * (COALESCE_WORDS - 1))
    address, _ = words.buffer_info()
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
            fcntl.ioctl(asked, SIOCETHTOOL, IFREQ.pack(card.encode(), address))
    except OSError:
        return None
    return words[1]


def busy_poll(host: Host) -> Finding:
    """Whether a socket that is waited for asks the card itself."""
    check = "socket busy-poll"
    poll_us = host.number("proc/sys/net/core/busy_poll")
    if poll_us is None:
        return unseen(check, "the kernel does not tell")
    if poll_us or not any(re.match(r"(en|eth)", card) for card in cards(host)):
        return ok(check, f"{poll_us} µs")
    return warn(check, "off: a packet waits for its interrupt", "sysctl net.core.busy_poll=50, where cores are free")


CHECKS: Final = (interrupts, coalescing, busy_poll)
