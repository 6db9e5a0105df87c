"""A program that publishes, forks, publishes in the child, and publishes again: `python -m tests.relay.forking URL
OPTIONS`, of which `publisher` names its module."""

import json
import os
import sys
import warnings
from importlib import import_module

from tests.relay.target import message


def main() -> None:
    warnings.simplefilter("ignore", DeprecationWarning)  # threads and forks: what is tested here
    url, options = sys.argv[1], json.loads(sys.argv[2])
    publisher = import_module(options["publisher"]).sqlqueue_publisher(url)
    publisher.publish([message("before", key="k")])
    child = os.fork()
    publisher.publish([message("child" if child == 0 else "parent", key="k")])
    if child == 0:
        publisher.close()
        sys.exit(0)  # with all that the interpreter does at its end
    _, status = os.waitpid(child, 0)
    publisher.publish([message("after", key="k")])
    publisher.close()
    sys.stdout.write(f"done {os.waitstatus_to_exitcode(status)}\n")


if __name__ == "__main__":
    main()
