"""Row mode, on every database there is."""

from sqlqueue.testing.contract import RowModeContract


class TestRowMode(RowModeContract):
    pass
