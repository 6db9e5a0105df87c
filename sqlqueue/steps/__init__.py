"""Resumable step tasks: finite state machines whose state is a row, in the table of the Rust crate pg_task.

Read in this order: `step` (what a user writes), `task`, `catalogue` (names and JSON), `table` (its rows, to be read),
`running` (a claimed row is run and goes on), `task_queue`.
"""

from sqlqueue.steps.step import Next, Step, StepContext, StepRun
from sqlqueue.steps.table import StoredTask, TaskState, task_table
from sqlqueue.steps.task import Task
from sqlqueue.steps.task_queue import TaskQueue

__all__ = ["Next", "Step", "StepContext", "StepRun", "StoredTask", "Task", "TaskQueue", "TaskState", "task_table"]
