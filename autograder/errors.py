"""The two ways in which things go wrong: a course that needs mending, and an answer that is not right."""


class CourseError(Exception):
    """Something the reader of the message can mend: one line that says what, where and what to do. Exit code 1."""

    exit_code = 1


class WrongAnswer(AssertionError):
    """An answer failed a check.

    The text is for the learner. `check` names the check that failed, `kind` the entry of the
    catalogue of wrong answers that behaves the same, or None where none does.
    """

    def __init__(self, message: str, *, check: str = "", kind: str | None = None):
        super().__init__(message)
        self.message, self.check, self.kind = message, check, kind
