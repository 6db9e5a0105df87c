"""The checks at a start, on every database there is."""

from sqlqueue.testing.contract import SchemaContract


class TestSchema(SchemaContract):
    pass
