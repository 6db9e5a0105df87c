from sqlqueue.testing.contract.schema import SchemaContract


class TestSchema(SchemaContract):
    pass
