import pytest

pytest.register_assert_rewrite("tests.integrations.joining")  # shared by two files of tests
