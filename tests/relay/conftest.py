"""Without a broker's client, the tests of its publisher are left out; the run says so at its end."""

from tests.support.availability import BROKERS, installed

collect_ignore = [f"test_{name}.py" for name, (module, _) in BROKERS.items() if not installed(module)]
