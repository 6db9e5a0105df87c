"""The example service by itself, as `python examples/invoices.py`."""

import ast
import signal
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
LIMIT = 30.0  # seconds


def test_the_service_renders_what_plain_sql_wrote_and_stops_at_sigterm_with_code_0(tmp_path: Path) -> None:
    """SPEC 1 and 13, on the file that it makes where it is started."""
    service = subprocess.Popen(
        [sys.executable, str(EXAMPLES / "invoices.py")], stdout=subprocess.PIPE, text=True, cwd=tmp_path
    )
    try:
        assert service.stdout is not None
        assert service.stdout.readline() == f"worker {service.pid} consuming invoice_jobs from {tmp_path}/invoices.db\n"
        writer = [sys.executable, str(EXAMPLES / "plain_sql.py"), "sqlite:///invoices.db", "A-17"]
        subprocess.run(writer, check=True, cwd=tmp_path, timeout=LIMIT, stdout=subprocess.DEVNULL)
        assert service.stdout.readline() == f"worker {service.pid} rendering A-17\n"
        service.send_signal(signal.SIGTERM)
        assert service.wait(LIMIT) == 0
    finally:
        service.kill()
        service.communicate()


def test_the_program_that_writes_plain_sql_imports_nothing_of_ours() -> None:
    tree = ast.parse((EXAMPLES / "plain_sql.py").read_text())
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert [name for name in imported if name.startswith("sqlqueue")] == []
