"""The suite as a package that others install."""

import subprocess
import sys

from sqlqueue.testing import contract
from tests.contract import (
    test_advisory,
    test_batches,
    test_blocked,
    test_capabilities,
    test_claims,
    test_clocks,
    test_dead_letters,
    test_decode,
    test_ending,
    test_enqueue,
    test_lease,
    test_lines,
    test_moments,
    test_order,
    test_own_locks,
    test_parked,
    test_policies,
    test_pool,
    test_relays,
    test_returned,
    test_row_mode,
    test_schema,
    test_settling,
    test_steps,
    test_tokens,
    test_tracking,
    test_transactional,
)

MODULES = (
    test_blocked,
    test_advisory,
    test_returned,
    test_batches,
    test_capabilities,
    test_claims,
    test_clocks,
    test_dead_letters,
    test_decode,
    test_ending,
    test_enqueue,
    test_lease,
    test_lines,
    test_moments,
    test_order,
    test_own_locks,
    test_parked,
    test_policies,
    test_pool,
    test_relays,
    test_row_mode,
    test_schema,
    test_settling,
    test_steps,
    test_tokens,
    test_transactional,
    test_tracking,
)


def test_the_tools_for_tests_need_no_pytest_and_the_suite_does() -> None:
    program = "import sys, sqlqueue.testing; print('pytest' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert shown == "False\n"


def test_every_class_of_the_suite_runs_on_every_database_there_is() -> None:
    classes = {one for name in contract.__all__ if name.endswith("Contract") for one in [getattr(contract, name)]}
    run = {
        base for module in MODULES for one in vars(module).values() if isinstance(one, type) for base in one.__bases__
    }
    assert {one.__name__ for one in classes - run if not one.__name__.startswith("RowLock")} == set()
