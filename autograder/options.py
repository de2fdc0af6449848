"""What a course's nbgrader_config.py says about grading, and what of it this grader does not follow."""

from collections.abc import Iterator
from typing import Any

from autograder.course import Course

# From the most special section on: nbgrader's class inherits from the others.
EXECUTE = ("Execute", "ExecutePreprocessor", "NotebookClient")
_CONVERT = ("Autograde", "BaseConverter")
# Options that change what stock gives, with the sections that they may stand in.
_UNFOLLOWED = {
    "pre_convert_hook": _CONVERT, "post_convert_hook": _CONVERT, "create_student": _CONVERT[:1],
    "sanitize_preprocessors": _CONVERT[:1], "autograde_preprocessors": _CONVERT[:1], "kernel_name": EXECUTE,
    "extra_arguments": EXECUTE, "timeout_func": EXECUTE, "enabled": EXECUTE, "include": ("CourseDirectory",),
    "ignore": ("CourseDirectory",), "max_file_size": ("CourseDirectory",), "max_dir_size": ("CourseDirectory",),
}  # fmt: skip


def option(course: Course, name: str, *sections: str, default: Any = None) -> Any:
    """An option's value from the first of the sections that sets it."""
    return next((found[name] for section in sections if name in (found := course.config.get(section, {}))), default)


def left_out(course: Course) -> frozenset[str]:
    """The students whom `CourseDirectory.student_id_exclude` names."""
    named = option(course, "student_id_exclude", "CourseDirectory", default="")
    return frozenset(str(named).split(",")) if isinstance(named, str) else frozenset()


def own_files(course: Course, assignment: str) -> frozenset[str]:
    """The files beside the notebook in which the learner's version counts, from `Autograde.exclude_overwriting`."""
    named = option(course, "exclude_overwriting", "Autograde", default={})
    return frozenset(str(name) for name in named.get(assignment, ())) if isinstance(named, dict) else frozenset()


def mode_of(course: Course) -> int:
    """The rights on graded files: read-only, unless `CourseDirectory.groupshared` lets a group of instructors write."""
    return 0o664 if option(course, "groupshared", "CourseDirectory", default=False) else 0o444


def unfollowed(course: Course) -> Iterator[str]:
    """A line for each option of the course that stock follows and this grader does not."""
    for name, sections in _UNFOLLOWED.items():
        for section in sections:
            if name in course.config.get(section, {}):
                yield f"{course.root / 'nbgrader_config.py'}: {section}.{name} is not followed here"
