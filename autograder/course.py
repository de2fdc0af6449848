"""Names and paths: of this project, and of an instructor's nbgrader course."""

import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from jupyter_core.paths import jupyter_config_path
from traitlets.config import Config, JSONFileConfigLoader, PyFileConfigLoader

from autograder.errors import CourseError

# NN_slug is at once the chapter, the file, the nbgrader assignment and the URL.
SLUG = re.compile(r"\d\d_[a-z0-9]+(?:_[a-z0-9]+)*")


def cores() -> int:
    """Processors that this process may use: fewer than the machine has where a container or a batch queue says so."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class Project:
    """The repository of the course: `solutions/` is the source, everything else is made from it."""

    root: Path

    @classmethod
    def find(cls, start: Path | None = None) -> "Project":
        """The project around `start` (the working directory by default)."""
        start = (start or Path.cwd()).resolve()
        for folder in (start, *start.parents):
            if (folder / "solutions" / "setup.py").is_file():
                return cls(folder)
        raise CourseError(f"{start}: no solutions/setup.py here or above; run this inside the course's repository")

    @property
    def solutions(self) -> Path:
        return self.root / "solutions"

    @property
    def chapters(self) -> Path:
        return self.root / "chapters"

    @property
    def book(self) -> Path:
        return self.root / "book"

    @property
    def build(self) -> Path:
        return self.root / "_build"

    def slugs(self) -> list[str]:
        """The chapters that exist, in order."""
        return sorted(path.stem for path in self.solutions.glob("*.md") if SLUG.fullmatch(path.stem))

    def source(self, slug: str) -> Path:
        return self.solutions / f"{slug}.md"

    def chapter(self, slug: str) -> Path:
        return self.chapters / f"{slug}.ipynb"

    def name(self, path: Path) -> str:
        """`path` as messages say it: from the project's root where it lies inside."""
        return path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else str(path)


def _read_config(folder: Path) -> Config:
    """The nbgrader_config files of one folder, empty where there are none; CourseError where one can't be read."""
    found = Config()
    for name, loader in (("nbgrader_config.py", PyFileConfigLoader), ("nbgrader_config.json", JSONFileConfigLoader)):
        if not (folder / name).is_file():
            continue
        try:
            found.merge(loader(name, path=str(folder)).load_config())
        except Exception as problem:   # the file is any Python
            raise CourseError(f"{folder / name}: cannot be read ({problem}); mend it") from problem
    return found


def _looks_like_course(folder: Path) -> bool:
    """As nbgrader names things by default; a folder that nobody named has no settings read, for they are code."""
    try:
        return (folder / "gradebook.db").is_file() or any(folder.glob("source/*/*.ipynb"))
    except OSError:  # not ours to read
        return False


@dataclass(frozen=True)
class Course:
    """An nbgrader course directory. Its folders are where its own nbgrader_config.py puts them."""

    root: Path

    @cached_property
    def config(self) -> Config:
        """What nbgrader_config.py and nbgrader_config.json say, the course's own over the user's and the machine's.

        As nbgrader reads them when it is run in the course; but a `root` of the user's is that of another course.
        """
        places = [Path(path) for path in reversed(jupyter_config_path())]
        found = Config()
        for place in places:
            found.merge(_read_config(place))
        found.get("CourseDirectory", Config()).pop("root", None)
        found.merge(_read_config(self.root))
        return found

    def _setting(self, name: str, default: str) -> str:
        value = self.config.get("CourseDirectory", {}).get(name, default)
        return value if isinstance(value, str) else default

    @cached_property
    def base(self) -> Path:
        """The folder that nbgrader's steps lie in."""
        return self.root / self._setting("root", "")

    @property
    def source(self) -> Path:
        return self.base / self._setting("source_directory", "source")

    @property
    def release(self) -> Path:
        return self.base / self._setting("release_directory", "release")

    @property
    def submitted(self) -> Path:
        return self.base / self._setting("submitted_directory", "submitted")

    @property
    def autograded(self) -> Path:
        return self.base / self._setting("autograded_directory", "autograded")

    @property
    def feedback(self) -> Path:
        return self.base / self._setting("feedback_directory", "feedback")

    @property
    def db_url(self) -> str:
        """The gradebook; a file is meant from the course's folder, whatever the working directory."""
        url = self._setting("db_url", "sqlite:///gradebook.db")
        file = url.removeprefix("sqlite:///")
        return f"sqlite:///{self.base.resolve() / file}" if file != url else url

    @property
    def db(self) -> Path:
        """The gradebook's file; a course whose gradebook is a server has none."""
        if not self.db_url.startswith("sqlite:///"):
            raise CourseError(f"{self.root}: the gradebook {self.db_url.split(':')[0]} is no file; use its db_url")
        return Path(self.db_url.removeprefix("sqlite:///"))

    @property
    def lacks_db(self) -> bool:
        """Is the gradebook a file that is not there?"""
        return self.db_url.startswith("sqlite:///") and not self.db.is_file()

    def must_be(self) -> None:
        """CourseError where this folder is no nbgrader course; names the courses directly below it."""
        if not self.lacks_db or self.assignments():
            return
        advice = "name the folder that 'autograder init' made, or another nbgrader course"
        if below := sorted(str(path) for path in self.root.glob("*") if _looks_like_course(path)):
            more = f" and {len(below) - 5} more" if len(below) > 5 else ""
            advice = f"below it there is: {', '.join(below[:5])}{more}"
        lacks = f"it has no {self.db.name}, and no notebook in {self.source}/"
        raise CourseError(f"{self.root}: no course: {lacks}; {advice}")

    def path(self, step: Path, student: str, assignment: str) -> Path:
        """Where nbgrader keeps one assignment of one student (`.` in source and release) at a step."""
        structure = self._setting("directory_structure", "{nbgrader_step}/{student_id}/{assignment_id}")
        names = {"nbgrader_step": os.path.relpath(step, self.base), "student_id": student}
        return self.base / structure.format(assignment_id=assignment, **names)

    def assignments(self) -> list[str]:
        """The assignments that have a notebook in the course's source folder."""
        found = self.base.glob(self.path(self.source, ".", "*").relative_to(self.base).as_posix())
        return sorted(path.name for path in found if any(path.glob("*.ipynb")))

    def students(self, assignment: str) -> list[str]:
        """The students who handed the assignment in, ready for grading or not."""
        pattern = self.path(self.submitted, "*", assignment).relative_to(self.base)
        at = pattern.parts.index("*")
        found = self.base.glob(pattern.as_posix())
        return sorted(path.relative_to(self.base).parts[at] for path in found if path.is_dir())
