"""The settings of publishers: where they send to, as a URL says it, and TLS. No error repeats a password."""

import math
import os
import re
import ssl
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import attrs

from sqlqueue.errors import DeclarationError
from sqlqueue.relay.targets.publishing import Refused

#: Seconds that a publish may take.
TIMEOUT = 30.0

#: An address of IPv6.
BRACKETED = re.compile(r"\[[^\[\]]*:[^\[\]]*\]")


@attrs.frozen(kw_only=True)
class TLS:
    """Paths of PEM files, read at each connection, so that renewed ones are taken. The host's name is always checked.

    `cafile`: authorities that are trusted beside the system's. `certfile` and `keyfile`: our own certificate, for a
    broker that asks for one, and its key without a passphrase; without `keyfile` that is in `certfile` too.

    Raises `DeclarationError` for files that cannot be used.
    """

    cafile: str | None = None
    certfile: str | None = None
    keyfile: str | None = None

    def __attrs_post_init__(self) -> None:
        if self.keyfile is not None and self.certfile is None:
            raise DeclarationError(f"the key {self.keyfile!r} has no certificate: give certfile too")
        try:
            self.context()
        except Refused as error:
            raise DeclarationError(str(error)) from None

    def context(self) -> ssl.SSLContext:
        """For a connection that is made now. Raises `Refused` where a file cannot be used."""
        context = ssl.create_default_context()
        if self.cafile is not None:
            try:
                context.load_verify_locations(self.cafile)
            except OSError as error:
                raise Refused(f"the authorities in {self.cafile!r} cannot be read: {_reason(error)}") from None
        if self.certfile is not None:
            try:
                context.load_cert_chain(self.certfile, self.keyfile, password=_no_passphrase)
            except (OSError, ValueError) as error:
                files = " with ".join(repr(file) for file in (self.certfile, self.keyfile) if file is not None)
                raise Refused(f"the certificate in {files} cannot be used: {_reason(error)}") from None
        return context


#: What a URL may say of TLS.
TLS_OPTIONS = tuple(attrs.fields_dict(TLS))


def _no_passphrase() -> str:
    """Else OpenSSL would ask at the terminal."""
    raise ValueError("its key has a passphrase; give one without")


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno is not None and not isinstance(error, ssl.SSLError):
        return os.strerror(error.errno)
    return str(error)


# -- addresses ----------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Address:
    """A URL in its parts, decoded. `hosts` have their ports, where there are any; `path` is without its first slash."""

    scheme: str
    hosts: tuple[tuple[str, int | None], ...] = (("localhost", None),)
    username: str | None = None
    password: str | None = attrs.field(default=None, repr=False)
    path: str = ""
    options: Mapping[str, str] = MappingProxyType({})

    def one_host(self) -> tuple[str, int | None]:
        if len(self.hosts) != 1:
            raise DeclarationError(f"the URL {self} names {len(self.hosts)} hosts; this publisher takes one")
        return self.hosts[0]

    def check_scheme(self, broker: str, *schemes: str) -> None:
        if self.scheme not in schemes:
            begins = " or ".join(f"{scheme}://" for scheme in schemes)
            raise DeclarationError(f"the URL {self} is not one of {broker}: it begins with {begins}")

    def only(self, *names: str) -> None:
        """Refuse every option but these."""
        unknown = sorted(self.options.keys() - set(names))
        if unknown:
            raise DeclarationError(
                f"the URL {self} has the option {unknown[0]!r}; there are: {', '.join(sorted(names))}"
            )

    def whole(self, name: str, default: int) -> int:
        """An option that is a whole number."""
        given = self.options.get(name)
        if given is None:
            return default
        if not _is_whole(given):
            raise DeclarationError(f"the URL {self} has {name}={given!r}, which is no whole number")
        return int(given)

    def timeout(self) -> float:
        given = self.options.get("timeout")
        try:
            return TIMEOUT if given is None else float(given)
        except ValueError:
            raise DeclarationError(f"the URL {self} has timeout={given!r}, which is no number") from None

    def tls(self, scheme: str) -> TLS | None:
        """As the options say, where it has the scheme that asks for it."""
        given = {name: self.options[name] for name in TLS_OPTIONS if name in self.options}
        if self.scheme == scheme:
            return TLS(**given)
        if given:
            raise DeclarationError(f"the URL {self} has the option {next(iter(given))!r}, which is for {scheme}://")
        return None

    def __str__(self) -> str:
        """Scheme and hosts: the rest may hold secrets."""
        return shown(self.scheme, self.hosts)


def shown(scheme: str, hosts: tuple[tuple[str, int | None], ...]) -> str:
    """Scheme and hosts as a URL."""
    named = [(f"[{host}]" if ":" in host else host, port) for host, port in hosts]
    return f"{scheme}://" + ",".join(host if port is None else f"{host}:{port}" for host, port in named)


def parse(url: str) -> Address:
    """The parts of a URL. Raises `DeclarationError` where it is none."""
    scheme, _, rest = url.partition("://")
    if not rest and not url.endswith("://"):
        raise DeclarationError(f"{scheme.partition(':')[0]!r} begins no URL; write scheme://host")
    try:
        parts = urlsplit(url)
    except ValueError:  # whose text repeats what it cannot read
        raise _unreadable(scheme) from None
    # A login ends at the last @, and hosts at the first / ? or #: one of these in a password would make a host of the
    # user.
    if "@" in "".join(re.split("[/?#]", rest, maxsplit=1)[1:]):
        raise DeclarationError(
            f"an @ stands behind the hosts: percent-encode / ? # @ in the password of the {scheme} URL (%2F %3F %23 "
            "%40), and an @ behind the hosts as well"
        )
    if "#" in rest:
        raise DeclarationError(f"the {scheme} URL has a '#', and what follows would count for nothing: write %23")
    login, _, hosts = parts.netloc.rpartition("@")
    username, _, password = login.partition(":")
    named = hosts.split(",")
    if len(named) > 1 and any(host.partition(":")[0] == "" for host in named):
        raise DeclarationError(f"the {scheme} URL names several hosts, and one of them is empty; leave it out")
    options: dict[str, str] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name in options:
            raise DeclarationError(f"the {scheme} URL has the option {name!r} twice")
        options[name] = value
    return Address(
        scheme=scheme,
        hosts=tuple(_host(scheme, host) for host in named),
        username=unquote(username) or None,
        password=unquote(password) or None,
        path=unquote(parts.path[1:]),
        options=MappingProxyType(options),
    )


def _unreadable(scheme: str) -> DeclarationError:
    return DeclarationError(f"the {scheme} URL cannot be read: its host is neither a name nor an address")


def _host(scheme: str, text: str) -> tuple[str, int | None]:
    host, colon, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    if not colon:
        host, port = text, ""
    if {"[", "]"} & set(host) and not BRACKETED.fullmatch(host):  # Python before 3.11 takes those for a name
        raise _unreadable(scheme)
    if port and not (_is_whole(port) and 0 < int(port) < 65536):
        raise DeclarationError(f"the {scheme} URL has a port that is not in 1 to 65535")  # it may be a password
    return unquote(host).strip("[]") or "localhost", int(port) if port else None


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdecimal()


# -- validators of settings: a mistake raises where the publisher is made -------------------------------------------


def positive(publisher: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    """Seconds: a number above 0, not infinite."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not (value > 0 and math.isfinite(value)):
        raise DeclarationError(f"{type(publisher).__name__}({attribute.name}={value!r}): give seconds above 0")


def whole(least: int) -> Callable[[object, "attrs.Attribute[Any]", object], None]:
    """A whole number that is at least so great."""

    def check(publisher: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise DeclarationError(
                f"{type(publisher).__name__}({attribute.name}={value!r}): give a whole number from {least}"
            )

    return check
