"""The template-name server, whose tool has a view. `toolwire dev server.py` shows it."""

from dataclasses import dataclass

from toolwire import Server, ToolError

server = Server("template-name", version="0.1.0", instructions="Keeps a list of tasks and shows it.")


@dataclass
class Task:
    number: int
    text: str
    done: bool = False


TASKS = [Task(1, "Water the plants"), Task(2, "Write to Ada"), Task(3, "Buy tea")]

board = server.app("board.html")  # The page beside this file, at ui://template-name/board.html.


@server.tool(app=board, annotations={"readOnlyHint": True})
async def show_tasks(open_only: bool = False) -> list[Task]:
    """Show the tasks, in a view where the client has one.

    Args:
        open_only: Leave out the tasks that are done.
    """
    return [task for task in TASKS if not (open_only and task.done)]


@board.tool(annotations={"destructiveHint": False, "idempotentHint": True})
async def finish_task(number: int) -> Task:
    """Mark a task as done. The view calls this; models do not see it."""
    for task in TASKS:
        if task.number == number:
            task.done = True
            return task
    raise ToolError(f"There is no task {number}.")


if __name__ == "__main__":
    server.run()
