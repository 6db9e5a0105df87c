"""What a producer is told when the server of its URL is not there, or the URL is wrong."""

from time import monotonic

import psycopg
import pytest

from sqlqueue import Broker, DeclarationError
from tests.support.database import Database


@pytest.mark.parametrize("wrong", ["postgresql://postgres@127.0.0.1:1/none", "postgresql:///none?host=/no/such/socket"])
def test_the_first_use_of_a_server_that_is_not_there_raises_the_drivers_error_at_once(wrong: str) -> None:
    """Issue 2, bad input: an unreachable server. The pool alone would wait for half a minute and not say why."""
    began = monotonic()
    with Broker(wrong) as broker, pytest.raises(psycopg.OperationalError, match="connection"):
        broker.create_tables()
    assert monotonic() - began < 5


def test_the_first_use_names_a_database_that_does_not_exist(postgres_database: Database) -> None:
    url = postgres_database.url.replace("postgresql:///", "postgresql:///no_such_", 1)
    with Broker(url) as broker, pytest.raises(psycopg.OperationalError, match=r'database "no_such_.*" does not exist'):
        broker.create_tables()


def test_a_password_with_an_at_sign_that_is_not_encoded_is_refused_and_not_shown() -> None:
    """SUITE 18."""
    with pytest.raises(DeclarationError, match="percent-encoded") as raised:
        Broker("postgresql://shop:pass@hush@localhost/shop")
    assert "hush" not in str(raised.value)
