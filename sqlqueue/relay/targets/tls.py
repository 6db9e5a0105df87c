"""TLS to a broker: whom we trust, and who we are."""

import os
import ssl

import attrs

from sqlqueue.errors import DeclarationError
from sqlqueue.relay.targets.tally import Refused


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
                raise Refused(f"the authorities in {self.cafile!r} cannot be read: {_why(error)}") from None
        if self.certfile is not None:
            try:
                context.load_cert_chain(self.certfile, self.keyfile, password=_no_passphrase)
            except (OSError, ValueError) as error:
                files = " with ".join(repr(file) for file in (self.certfile, self.keyfile) if file is not None)
                raise Refused(f"the certificate in {files} cannot be used: {_why(error)}") from None
        return context


#: What a URL may say of it.
OPTIONS = tuple(attrs.fields_dict(TLS))


def _no_passphrase() -> str:
    """Else OpenSSL would ask at the terminal."""
    raise ValueError("its key has a passphrase; give one without")


def _why(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno is not None and not isinstance(error, ssl.SSLError):
        return os.strerror(error.errno)
    return str(error)
