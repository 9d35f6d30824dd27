"""The addresses that processes listen at, as the kernel tells them."""

import ipaddress
import os
import pathlib
import struct
from collections.abc import Iterable

_LISTENING = "0A"


def listening(pids: Iterable[int]) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    """Of every TCP socket on which one of these processes takes connections."""
    sockets = _sockets()
    found = []
    for pid in pids:
        for descriptor in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            try:
                target = os.readlink(descriptor)
            except FileNotFoundError:
                continue
            if target in sockets:
                found.append(sockets[target])
    return found


def _sockets() -> dict[str, ipaddress.IPv4Address | ipaddress.IPv6Address]:
    """Listening sockets by what a descriptor's link says."""
    found = {}
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == _LISTENING:
                found[f"socket:[{words[9]}]"] = _address(words[1].partition(":")[0])
    return found


def _address(digits: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    words = [int(digits[at : at + 8], 16) for at in range(0, len(digits), 8)]
    address = ipaddress.ip_address(struct.pack(f"={len(words)}I", *words))
    return getattr(address, "ipv4_mapped", None) or address
