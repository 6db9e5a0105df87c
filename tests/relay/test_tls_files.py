"""Files that TLS cannot use are refused when they are declared."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization  # trustme brings it

from sqlqueue import DeclarationError
from sqlqueue.relay.targets.address import TLS, parse
from tests.support.tls import Authority


def refusal(**files: str) -> str:
    with pytest.raises(DeclarationError) as caught:
        TLS(**files)
    return str(caught.value)


def test_files_that_are_not_there_are_reported(tmp_path: Path) -> None:
    here, gone = Authority(tmp_path).issue(), str(tmp_path / "gone.pem")
    assert refusal(cafile=gone) == f"the authorities in {gone!r} cannot be read: No such file or directory"
    for files in ({"certfile": gone}, {"certfile": here.certfile, "keyfile": gone}):
        named = " with ".join(map(repr, files.values()))
        assert refusal(**files) == f"the certificate in {named} cannot be used: No such file or directory"


def test_files_that_hold_something_else_are_reported(tmp_path: Path) -> None:
    here, other = Authority(tmp_path).issue(), tmp_path / "other.txt"
    other.write_text("no certificate")
    assert f"the authorities in {str(other)!r} cannot be read" in refusal(cafile=str(other))
    assert f"the certificate in {str(other)!r} cannot be used" in refusal(certfile=str(other))
    stranger = Authority(tmp_path).issue("stranger.example")
    assert "MISMATCH" in refusal(certfile=here.certfile, keyfile=stranger.keyfile).upper()


def test_a_key_without_a_certificate_is_reported() -> None:
    assert refusal(keyfile="ours.key") == "the key 'ours.key' has no certificate: give certfile too"


def test_a_key_with_a_passphrase_is_reported_and_nobody_is_asked_for_it(tmp_path: Path) -> None:
    ours = Authority(tmp_path).issue()
    key = serialization.load_pem_private_key(Path(ours.keyfile).read_bytes(), None)
    locked = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"hush")
    )
    Path(ours.keyfile).write_bytes(locked)
    assert "its key has a passphrase; give one without" in refusal(certfile=ours.certfile, keyfile=ours.keyfile)


def test_a_url_says_what_tls_needs(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    url = f"rediss://host?cafile={authority.cafile}"
    assert parse(url).tls("rediss") == TLS(cafile=authority.cafile)
    assert parse("redis://host").tls("rediss") is None


def test_files_for_a_url_without_tls_are_refused() -> None:
    with pytest.raises(DeclarationError, match=r"redis://host has the option 'cafile', which is for rediss://"):
        parse("redis://host?cafile=authority.pem").tls("rediss")
