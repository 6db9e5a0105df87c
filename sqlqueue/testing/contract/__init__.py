"""What every dialect must do: classes of tests for pytest, which a dialect's own tests subclass.

    import pytest
    from sqlqueue.testing import contract

    @pytest.fixture
    def database(tmp_path):             # a `contract.Database`: empty, one for each test
        with fresh_database(tmp_path) as database:
            yield database

    class TestCapabilities(contract.CapabilitiesContract): ...
    class TestMoments(contract.MomentsContract): ...
    class TestSchema(contract.SchemaContract): ...
    class TestClaims(contract.ClaimsContract): ...
    class TestTokens(contract.TokensContract): ...
    class TestLease(contract.LeaseContract): ...
    class TestSettling(contract.SettlingContract): ...
    class TestReturned(contract.ReturnedContract): ...
    class TestTransactional(contract.TransactionalContract): ...
    class TestTransactionEnds(contract.TransactionEndsContract): ...
    class TestTransactionsAtWork(contract.TransactionsAtWorkContract): ...
    class TestPolicies(contract.PoliciesContract): ...
    class TestParked(contract.ParkedContract): ...
    class TestDeadLetters(contract.DeadLettersContract): ...
    class TestDeadLetterPlaces(contract.DeadLetterPlacesContract): ...
    class TestEnding(contract.EndingContract): ...
    class TestDecode(contract.DecodeContract): ...
    class TestRowMode(contract.RowModeContract): ...
    class TestBatches(contract.BatchesContract): ...
    class TestBatchOutcomes(contract.BatchOutcomesContract): ...
    class TestReplies(contract.RepliesContract): ...
    class TestPublishing(contract.PublishingContract): ...
    class TestBatchReplies(contract.BatchRepliesContract): ...
    class TestRelay(contract.RelayContract): ...
    class TestRelayOrder(contract.RelayOrderContract): ...
    class TestQueueTarget(contract.QueueTargetContract): ...
    class TestClocks(contract.ClocksContract): ...
    class TestEnqueue(contract.EnqueueContract): ...
    class TestOrder(contract.OrderContract): ...
    class TestBlocked(contract.BlockedContract): ...
    class TestAdvisory(contract.AdvisoryContract): ...
    class TestOwnLocks(contract.OwnLocksContract): ...
    class TestPool(contract.PoolContract): ...
    class TestTracking(contract.TrackingContract): ...
    class TestTrackedHandlers(contract.TrackedHandlersContract): ...
    class TestTrackedReplies(contract.TrackedRepliesContract): ...
    class TestRepublish(contract.RepublishContract): ...
    class TestPruning(contract.PruningContract): ...
    class TestSteps(contract.StepsContract): ...
    class TestStepRefusals(contract.StepRefusalsContract): ...
    class TestStepLooks(contract.StepLooksContract): ...
    class TestStepsAtWork(contract.StepsAtWorkContract): ...
    class TestRowLocks(contract.RowLockContract): ...     # where the capabilities say `row_locks`
    class TestRowLockBlocked(contract.RowLockBlockedContract): ...     # likewise
    class TestLines(contract.LinesContract): ...
    class TestManyLines(contract.ManyLinesContract): ...
    class TestLinesAtWork(contract.LinesAtWorkContract): ...
    class TestRowLocks(contract.RowLockContract): ...     # where the capabilities say `row_locks`
    class TestRowLockLines(contract.RowLockLinesContract): ...     # likewise
    class TestRowLockManyLines(contract.RowLockManyLinesContract): ...     # likewise
    class TestRowLockLinesAtWork(contract.RowLockLinesAtWorkContract): ...     # likewise

Read them in this order when something fails: the first try the border call by call, the later ones run consumers on
it. The tables are made by the dialect's own DDL, and other programs write to them in plain SQL that any database takes:
`?` is the placeholder, which `Database.execute` turns into the driver's. No test sleeps; time is a manual clock's.
"""

from sqlqueue.testing.contract import rewriting  # noqa: F401 - before the modules whose assertions it has explained
from sqlqueue.testing.contract.advisory import AdvisoryContract
from sqlqueue.testing.contract.batch_outcomes import BatchOutcomesContract
from sqlqueue.testing.contract.batch_replies import BatchRepliesContract
from sqlqueue.testing.contract.batches import BatchesContract
from sqlqueue.testing.contract.blocked import BlockedContract, RowLockBlockedContract
from sqlqueue.testing.contract.capabilities import CapabilitiesContract
from sqlqueue.testing.contract.claims import ClaimsContract
from sqlqueue.testing.contract.clocks import ClocksContract
from sqlqueue.testing.contract.dead_letter_places import DeadLetterPlacesContract
from sqlqueue.testing.contract.dead_letters import DeadLettersContract
from sqlqueue.testing.contract.decode import DecodeContract
from sqlqueue.testing.contract.ending import EndingContract
from sqlqueue.testing.contract.enqueue import EnqueueContract
from sqlqueue.testing.contract.harness import Contract, Database, Holder, created, shown, stored
from sqlqueue.testing.contract.lease import LeaseContract
from sqlqueue.testing.contract.lines import LinesContract, RowLockLinesContract
from sqlqueue.testing.contract.lines_at_work import LinesAtWorkContract, RowLockLinesAtWorkContract
from sqlqueue.testing.contract.locked import RowLockContract
from sqlqueue.testing.contract.many_lines import ManyLinesContract, RowLockManyLinesContract
from sqlqueue.testing.contract.moments import MomentsContract
from sqlqueue.testing.contract.order import OrderContract
from sqlqueue.testing.contract.own_locks import OwnLocksContract
from sqlqueue.testing.contract.parked import ParkedContract
from sqlqueue.testing.contract.policies import PoliciesContract
from sqlqueue.testing.contract.pool import PoolContract
from sqlqueue.testing.contract.pruning import PruningContract
from sqlqueue.testing.contract.publishing import PublishingContract
from sqlqueue.testing.contract.queue_target import QueueTargetContract
from sqlqueue.testing.contract.relays import RelayContract, RelayOrderContract
from sqlqueue.testing.contract.replies import RepliesContract
from sqlqueue.testing.contract.republishing import RepublishContract
from sqlqueue.testing.contract.returned import ReturnedContract
from sqlqueue.testing.contract.row_mode import RowModeContract
from sqlqueue.testing.contract.schema import SchemaContract
from sqlqueue.testing.contract.settling import SettlingContract
from sqlqueue.testing.contract.step_looks import StepLooksContract
from sqlqueue.testing.contract.step_refusals import StepRefusalsContract
from sqlqueue.testing.contract.steps import StepsContract
from sqlqueue.testing.contract.steps_at_work import StepsAtWorkContract
from sqlqueue.testing.contract.tokens import TokensContract
from sqlqueue.testing.contract.tracked_handlers import TrackedHandlersContract
from sqlqueue.testing.contract.tracked_replies import TrackedRepliesContract
from sqlqueue.testing.contract.tracking import TrackingContract
from sqlqueue.testing.contract.transaction_ends import TransactionEndsContract
from sqlqueue.testing.contract.transactional import TransactionalContract
from sqlqueue.testing.contract.transactions_at_work import TransactionsAtWorkContract

__all__ = [
    "AdvisoryContract",
    "BatchOutcomesContract",
    "BatchRepliesContract",
    "BatchesContract",
    "BlockedContract",
    "CapabilitiesContract",
    "ClaimsContract",
    "ClocksContract",
    "Contract",
    "Database",
    "DeadLetterPlacesContract",
    "DeadLettersContract",
    "DecodeContract",
    "EndingContract",
    "EnqueueContract",
    "Holder",
    "LeaseContract",
    "LinesAtWorkContract",
    "LinesContract",
    "ManyLinesContract",
    "MomentsContract",
    "OrderContract",
    "OwnLocksContract",
    "ParkedContract",
    "PoliciesContract",
    "PoolContract",
    "PruningContract",
    "PublishingContract",
    "QueueTargetContract",
    "RelayContract",
    "RelayOrderContract",
    "RepliesContract",
    "RepublishContract",
    "ReturnedContract",
    "RowLockBlockedContract",
    "RowLockContract",
    "RowLockLinesAtWorkContract",
    "RowLockLinesContract",
    "RowLockManyLinesContract",
    "RowModeContract",
    "SchemaContract",
    "SettlingContract",
    "StepLooksContract",
    "StepRefusalsContract",
    "StepsAtWorkContract",
    "StepsContract",
    "TokensContract",
    "TrackedHandlersContract",
    "TrackedRepliesContract",
    "TrackingContract",
    "TransactionEndsContract",
    "TransactionalContract",
    "TransactionsAtWorkContract",
    "created",
    "shown",
    "stored",
]
