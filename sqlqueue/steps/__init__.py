"""Resumable step tasks: finite state machines whose state is a row, in the table of the Rust crate pg_task.

Read in this order: `step` (what a user writes), `task`, `catalogue` (names and JSON), `table`, `running` (a claimed row
is run and goes on), `task_queue`, `inspecting`, `history`.
"""

from sqlqueue.steps.history import StepRun
from sqlqueue.steps.inspecting import StoredTask, TaskState
from sqlqueue.steps.step import Next, Step, StepContext
from sqlqueue.steps.table import task_table
from sqlqueue.steps.task import Task
from sqlqueue.steps.task_queue import TaskQueue

__all__ = ["Next", "Step", "StepContext", "StepRun", "StoredTask", "Task", "TaskQueue", "TaskState", "task_table"]
