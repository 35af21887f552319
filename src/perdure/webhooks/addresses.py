"""Where a webhook may lead: the address as text, and the addresses of the network that its host stands for.

An address that code is given may have come from a customer. So it must not lead into the network that the process
stands in: to services on this machine, to neighbours, to the metadata of a cloud. Two checks hold that. The text is
read once, strictly, by one parser, and what is odd about it is refused: parsers that differ are how such checks are
led astray. Then each connection asks here about the very address that it is made to. Nothing here does I/O.
"""

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from perdure.model import limits
from perdure.model.limits import BadValue, unsaid

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_ports: Final = {"http": 80, "https": 443}
_url = re.compile(r"[!-~]+")
_netloc = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:@\[\]]+))(?::([0-9]{1,5}))?")
_label = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_hostname = re.compile(rf"{_label}(?:\.{_label})*")
# What the system's resolver reads as a number, and so as an address: 2130706433, 0x7f.1, 127.1.
_numeric = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)")
_hostname_chars_max = 253

# What Python's own table calls global differs between its versions, so ours stands beside it.
_closed_v4: Final = tuple(
    map(
        ipaddress.IPv4Network,
        (
            "0.0.0.0/8",  # this network; 0.0.0.0 is this machine
            "10.0.0.0/8",
            "100.64.0.0/10",  # behind a carrier's translation; the metadata of one cloud
            "127.0.0.0/8",
            "168.63.129.16/32",  # of one cloud: its machines are configured from there
            "169.254.0.0/16",  # link-local; the metadata of most clouds
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",  # documentation, as the next two of 198.51.100 and 203.0.113
            "192.88.99.0/24",  # relays of 6to4
            "192.168.0.0/16",
            "198.18.0.0/15",  # measurements
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved; broadcast
        ),
    )
)
# All that IPv6 has given out for use among all; the rest is local, multicast, reserved, or IPv4 in disguise.
_open_v6: Final = ipaddress.IPv6Network("2000::/3")
_closed_v6: Final = tuple(
    map(
        ipaddress.IPv6Network,
        (
            "2001::/23",  # protocols, with Teredo, which holds an address of IPv4
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4: holds an address of IPv4
            "3fff::/20",  # documentation
        ),
    )
)


def is_public(address: Address) -> bool:
    """Whether it is somewhere among all, and not in a network of ours."""
    if isinstance(address, ipaddress.IPv4Address):
        return address.is_global and not any(address in one for one in _closed_v4)
    # With NAT64 (64:ff9b::/96), mapped (::ffff:0:0/96) and compatible (::/96) addresses of IPv4: all lie outside.
    return (
        address in _open_v6 and address.is_global and not any(address in one for one in _closed_v6)
    )


# --- what is allowed besides -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Allowed:
    """What a webhook may reach though it is not public: anything, or these hosts and networks."""

    everything: bool = False
    hosts: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()

    def permits(self, host: str, address: Address) -> bool:
        """Whether a connection to this address, under this name, may be made."""
        if self.everything or is_public(address) or host in self.hosts:
            return True
        return any(address.version == one.version and address in one for one in self.networks)


def checked_allowed(given: Any) -> Allowed:
    """What `allow_private=` was given: a bool, or hosts and networks."""
    if isinstance(given, bool):
        return Allowed(everything=given)
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        raise BadValue(
            "allow_private", given, 'must be True, False, or a list such as ["10.1.0.0/16", "hub"]'
        )
    if len(given) > limits.webhook_allowed_max:
        bound = f"{limits.webhook_allowed_max} (webhook_allowed_max)"
        raise BadValue("allow_private", unsaid, f"has {len(given)} entries; at most {bound}")
    hosts: list[str] = []
    networks: list[Network] = []
    for one in given:
        found = _network(one)
        if found is not None:
            networks.append(found)
        else:
            hosts.append(_checked_host(one, "allow_private"))
    return Allowed(hosts=frozenset(hosts), networks=tuple(networks))


def _network(given: Any) -> Network | None:
    if not isinstance(given, str):
        raise BadValue("allow_private", given, "holds something else than texts")
    try:
        return ipaddress.ip_network(given)
    except ValueError as error:
        if "/" in given:
            raise BadValue("allow_private", given, f"is no network: {error}") from None
        return None


# --- the address as text ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, repr=False)
class Target:
    """Where deliveries go. What follows the host may be a secret of its own, and is never shown."""

    scheme: str
    host: str
    port: int
    path: str  # with its query

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}"

    def __repr__(self) -> str:
        return f"Target({str(self)!r})"

    @property
    def authority(self) -> str:
        """Host and port, as the header `host` has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _ports[self.scheme] else f"{host}:{self.port}"


def checked_url(url: Any, allowed: Allowed, insecure: bool) -> Target:
    """An address that deliveries may go to, as far as its text can tell."""
    if not isinstance(url, str):
        raise BadValue("url", url, f"is a {type(url).__name__}; give the address as a str")
    if len(url) > limits.webhook_url_chars_max:
        bound = f"{limits.webhook_url_chars_max} (webhook_url_chars_max)"
        raise BadValue("url", unsaid, f"has {len(url)} characters; at most {bound}")
    if not _url.fullmatch(url) or "\\" in url:
        raise _bad_url("holds a blank, a backslash or more than ASCII; write it percent-encoded")
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _bad_url("is no address") from None
    scheme = parts.scheme
    if scheme not in _ports:
        raise _bad_url("must begin with https:// (or http://)")
    if "@" in parts.netloc:
        raise _bad_url("holds a user or password; send those by headers=")
    if "#" in url:
        raise _bad_url("holds a fragment, which is never sent; leave out what follows the #")
    host, address, port = _place(parts.netloc)
    if scheme == "http" and not (allowed.everything or insecure):
        raise _bad_url("is not encrypted: use https://, or say insecure=True")
    _check_open(host, address, allowed)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(scheme, host, port or _ports[scheme], path)


def _bad_url(problem: str) -> BadValue:
    # What it holds is not repeated: tokens travel in addresses.
    return BadValue("url", unsaid, problem)


def _place(netloc: str) -> tuple[str, Address | None, int | None]:
    """What stands between the slashes: the host, as an address if it is one, and the port."""
    found = _netloc.fullmatch(netloc)
    if found is None:
        raise _bad_url("has no host, or one that cannot be read")
    literal, name, digits = found.groups()
    port = None if digits is None else int(digits)
    if port is not None and not 1 <= port <= 65535:
        raise _bad_url("has a port that is not from 1 to 65535")
    if literal is not None:
        try:
            address = ipaddress.IPv6Address(literal)
        except ValueError:
            raise _bad_url("has a host that is no address of IPv6") from None
        return str(address), address, port
    host = _checked_host(name, "the host of url")
    return host, ipaddress.IPv4Address(host) if _numeric.fullmatch(host) else None, port


def _checked_host(given: str, what: str) -> str:
    """A name of the network, or an address of IPv4 in its one plain form."""
    host = given.lower()
    if host.endswith("."):
        raise BadValue(what, given, "ends with a dot; leave that out")
    if len(host) > _hostname_chars_max or not _hostname.fullmatch(host):
        raise BadValue(
            what, given, "is no name of a host; write it in ASCII (xn--…), nothing percent-encoded"
        )
    if _numeric.fullmatch(host):
        try:
            ipaddress.IPv4Address(host)
        except ValueError:
            raise BadValue(
                what, given, "is an address in an odd form; write it as 192.0.2.1"
            ) from None
    return host


def _check_open(host: str, address: Address | None, allowed: Allowed) -> None:
    """What is known to be private without asking anybody."""
    if address is not None and not allowed.permits(host, address):
        raise BadValue(
            "the host of url",
            host,
            "is no public address: deliveries do not go there, unless allow_private= says so",
        )
    is_this_machine = host == "localhost" or host.endswith(".localhost")
    if is_this_machine and not allowed.everything and host not in allowed.hosts:
        raise BadValue(
            "the host of url",
            host,
            "is this machine: deliveries do not go there, unless allow_private= says so",
        )
