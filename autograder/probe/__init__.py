"""The runtime beside the learner's code: it carries out plans and brings back what it saw. It knows no answers."""

from autograder.probe.runtime import carry_out, serve, undisturbed

__all__ = ["carry_out", "serve", "undisturbed"]
