"""Where a learner's code runs: a process with a file system, a network and rights of its own, which are nearly none.

Layers, from the outside in: user, pid, mount, network, ipc, uts and cgroup namespaces; a root directory of read-only
mounts with the course's own files left out; limits on memory, processes, files and time; no capabilities and no way to
get one; Landlock; seccomp. `missing` says which of them this machine lacks.
"""

from autograder.sandbox.policy import Policy, missing
from autograder.sandbox.walls import enter

__all__ = ["Policy", "enter", "missing"]
