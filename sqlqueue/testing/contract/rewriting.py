"""Has pytest explain the suite's assertions as it does those of a test's own file. Imported before them."""

import pkgutil
from pathlib import Path

import pytest

pytest.register_assert_rewrite(
    *(
        f"{__package__}.{module.name}"
        for module in pkgutil.iter_modules([str(Path(__file__).parent)])
        if module.name != "rewriting"
    )
)
