"""Finds the address at which other hosts reach this one: there the ranks of a group without dedicated reducers meet at its first rank."""

from __future__ import annotations

import fcntl
import ipaddress
import os
import socket
import struct
import threading
from contextlib import suppress
from pathlib import Path
from typing import Optional

import torch.distributed as dist

_SIOCGIFADDR = 0x8915
_BEYOND = ("192.0.2.1", "2001:db8::1")  # addresses of documentation: the route to them is that to other networks
_lock = threading.Lock()
# By address: the port of this process's co-located reducer, for all groups of which it is the first rank. The socket reserves it.
_ports: dict[str, socket.socket] = {}


def machine_id() -> str:
    """Differs between machines."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def host_id() -> str:
    """Differs between processes that do not share a loopback interface."""
    return f"{machine_id()} {os.stat('/proc/self/ns/net').st_ino}"


def memory_id() -> Optional[str]:
    """Differs between processes that do not share memory: those of several hosts, network namespaces or users. None: this one may not.

    The same number in two user namespaces may be two users. A kernel without user namespaces has no file for them."""
    if os.environ.get("SLUICE_HOSTS", "auto") == "off":
        return None
    users = Path("/proc/self/ns/user")
    return f"{host_id()} {users.stat().st_ino if users.exists() else ''} {os.geteuid()} {os.environ.get('SLUICE_HOST_ID', '')}"


def own_addresses(store: Optional[dist.Store]) -> list[str]:
    """Returns the addresses of this process's host, the best one first: of the interfaces that SLUICE_IFNAME or GLOO_SOCKET_IFNAME
    names, otherwise on the routes to the first rank of the job and to other networks. A link-local address has its interface."""
    chosen = [address for name in _chosen_interfaces() for address in _interface_addresses(name)]
    if chosen:
        return chosen
    if rule := os.environ.get("SLUICE_IFNAME"):
        raise dist.DistBackendError(f"backend sluice: no interface of this host has an address and matches SLUICE_IFNAME={rule!r}")
    targets = (_store_host(store), os.environ.get("MASTER_ADDR"), socket.gethostname(), *_BEYOND)
    found = [address for target in targets if target and (address := route_source(target))]
    return list(dict.fromkeys(found)) or ["127.0.0.1"]  # as gloo does if the host name has no address


def is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def route_source(target: str) -> Optional[str]:
    """Returns this host's address on its route to the target, or None."""
    try:
        family, kind, _, _, where = socket.getaddrinfo(target, 1, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as route:
            route.connect(where)  # chooses a route; a datagram socket sends nothing here
            return _text(route.getsockname())
    except OSError:
        return None


def meeting_point(address: str) -> str:
    """Returns host:port for this process's co-located reducer at the address, or what SLUICE_RENDEZVOUS says if that is this host.

    A link-local address is without its interface, see with_own_scope(). Used only where no dedicated reducers are."""
    wanted = _split(os.environ.get("SLUICE_RENDEZVOUS", ""))
    with _lock:
        for host, port in ([wanted] if wanted else []) + [(address, 0)]:
            if host in _ports:
                return _joined(host.partition("%")[0], _ports[host].getsockname()[1])
            with suppress(OSError):
                family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
                holder = socket.socket(family, socket.SOCK_STREAM)
                holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # the reducer listens at the same port
                holder.bind(where)
                _ports[host] = holder
                return _joined(host.partition("%")[0], holder.getsockname()[1])
    raise dist.DistBackendError(f"backend sluice: cannot listen at {address}")


def gloo_address(own: list[str]) -> Optional[str]:
    """Returns the address for gloo of a group of several hosts, or None where gloo finds one itself.

    gloo takes that of the host name, which on Debian and Ubuntu may be 127.0.1.1."""
    by_name = route_source(socket.gethostname())
    if os.environ.get("GLOO_SOCKET_IFNAME") or (by_name is not None and not is_loopback(by_name)):
        return None
    return next((address for address in sorted(own, key=lambda address: "%" in address) if not is_loopback(address)), None)


def _split(text: str) -> Optional[tuple[str, int]]:
    """Splits host[:port], with brackets around an IPv6 address; port 0 if there is none."""
    host, _, port = text.rpartition(":") if text.rpartition(":")[2].isdigit() and not text.endswith("]") else (text, "", "0")
    return (host.strip("[]"), int(port)) if host else None


def with_own_scope(point: str, own: list[str]) -> str:
    """Returns the meeting point as this host reaches it: a link-local address needs the interface of this host's own."""
    host, port = _split(point) or ("", 0)
    scopes = [scope for address in own if (scope := address.partition("%")[2])]
    return _joined(f"{host}%{scopes[0]}", port) if scopes and host.startswith("fe80:") else point


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _text(name: tuple[object, ...]) -> str:
    """The address of a socket's name. Python leaves out the interface of a link-local one."""
    host, scope = str(name[0]).partition("%")[0], int(str(name[3])) if len(name) > 3 else 0
    return f"{host}%{socket.if_indextoname(scope)}" if scope else host


def _store_host(store: Optional[dist.Store]) -> Optional[str]:
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    return getattr(store, "host", None)


def _chosen_interfaces() -> list[str]:
    """SLUICE_IFNAME is as for the NCCL plugin: beginnings of names, "=" names, "^" beginnings of names that are not used."""
    rule = os.environ.get("SLUICE_IFNAME", "")
    if not rule:
        return [name for name in os.environ.get("GLOO_SOCKET_IFNAME", "").split(",") if name]
    names, present = tuple(rule.lstrip("^=").split(",")), [name for _, name in socket.if_nameindex()]
    if rule.startswith("^"):
        return [name for name in present if not name.startswith((*names, "lo"))]
    return [name for name in present if (name in names if rule.startswith("=") else name.startswith(names))]


def _interface_addresses(name: str) -> list[str]:
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket, suppress(OSError):
        found.append(socket.inet_ntoa(fcntl.ioctl(any_socket, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))[20:24]))
    with suppress(OSError):
        for line in Path("/proc/net/if_inet6").read_text().splitlines():
            digits, *_, interface = line.split()
            if interface == name:
                address = ipaddress.IPv6Address(int(digits, 16))
                found.append(f"{address}%{name}" if address.is_link_local else str(address))
    return found
