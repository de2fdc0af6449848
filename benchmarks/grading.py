"""What grading costs: one class through `nbgrader autograde` and through `autograder grade`, in one run.

    python benchmarks/grading.py [--chapter 03_scaling] [--sizes 20 60] [--jobs 2]
    python benchmarks/grading.py --whole-course 20        every chapter; stock takes an hour and a half

The class is made of right and wrong answers of the catalogues. Both graders get the same submissions in a course of
their own; scores are compared record by record. Printed are wall and CPU seconds all in (a cold start included), per
submission, and the marginal cost between the two sizes; ratios are stock over ours. One thread for linear algebra.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import nbformat

from autograder.course import Course, Project, cores
from autograder.gradebook import Book
from autograder.newcourse import init, released
from autograder.sample import Chapter, _mistaken

KEPT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}  # modules compile once
ENVIRONMENT = {**KEPT, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MPLBACKEND": "agg"}
BIN = Path(sys.executable).parent


@dataclass(frozen=True)
class Cost:
    """Wall and CPU seconds of a command and its children."""

    wall: float
    cpu: float

    def __sub__(self, other: Cost) -> Cost:
        return Cost(self.wall - other.wall, self.cpu - other.cpu)

    def per(self, count: int) -> Cost:
        return Cost(self.wall / count, self.cpu / count)

    def ratio(self, ours: Cost) -> str:
        return f"{self.wall / ours.wall:6.1f}x wall  {self.cpu / ours.cpu:6.1f}x CPU"

    def __str__(self) -> str:
        return f"{self.wall:8.2f} s wall {self.cpu:8.2f} s CPU"


def timed(command: list[str], folder: Path, *, may_fail: bool = False) -> Cost:
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode and not may_fail:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return Cost(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def make(project: Project, folder: Path, chapters: list[str], count: int) -> Course:
    """A course in which `count` learners hand in each chapter: every third all right, the others with mistakes."""
    course = init(project, folder)
    for slug in chapters:
        solved = nbformat.read(course.path(course.source, ".", slug) / f"{slug}.ipynb", as_version=4)
        chapter = Chapter(released(course, slug), solved)
        for number in range(count):
            right = chapter.answered({**chapter.solved, **chapter.right(number)})
            notebook = right if number % 3 == 0 else _mistaken(chapter, number)
            place = course.path(course.submitted, f"learner-{number:03}", slug)
            place.mkdir(parents=True)
            nbformat.write(notebook, place / f"{slug}.ipynb")
    return course


def scores(course: Course, chapters: list[str]) -> dict[tuple[str, str, str], float | None]:
    with Book(course) as book:
        return {
            (student, slug, cell): mark.auto
            for slug in chapters
            for student in course.students(slug)
            if (marks := book.marks(student, slug, slug)) is not None
            for cell, mark in marks.cells.items()
        }


def compare(project: Project, chapters: list[str], count: int, jobs: int) -> tuple[Cost, Cost]:
    """The cost of stock and of ours for one class; prints how many scores differ.

    Stock fails where a kernel's output comes late (nbclient waits 4 s for it), and leaves that submission ungraded: it
    is counted, and has no score to compare.
    """
    with tempfile.TemporaryDirectory() as place:
        ours = make(project, Path(place) / "ours", chapters, count)
        shutil.copytree(ours.root, Path(place) / "stock")
        stock = Course(Path(place) / "stock")
        stock_cost = Cost(0, 0)
        for slug in chapters:
            one = timed([str(BIN / "nbgrader"), "autograde", slug], stock.root, may_fail=True)
            stock_cost = Cost(stock_cost.wall + one.wall, stock_cost.cpu + one.cpu)
            if len(chapters) > 1:  # hours: what is known is not lost with the rest
                print(f"  stock {one}   {slug}", flush=True)
        our_cost = timed([str(BIN / "autograder"), "grade", str(ours.root), "--jobs", str(jobs), "--json"],
                         ours.root, may_fail=True)  # what it refuses shows as a score that differs
        left, right = scores(stock, chapters), scores(ours, chapters)
        done = {(student, slug) for slug in chapters for student in stock.students(slug)
                if stock.path(stock.autograded, student, slug).is_dir()}
        left = {key: score for key, score in left.items() if key[:2] in done}
        different = [key for key in left if left[key] != right.get(key)]
    name = chapters[0] if len(chapters) == 1 else f"{len(chapters)} chapters"
    print(f"{name} x {count}: {len(left)} scores, {len(different)} differ; "
          f"stock left {count * len(chapters) - len(done)} of {count * len(chapters)} submissions ungraded")
    for key in sorted(different):
        print(f"  differs: {' '.join(key)}, stock {left[key]}, ours {right.get(key)}")
    print(f"  stock {stock_cost}   per submission {stock_cost.per(count * len(chapters))}")
    print(f"  ours  {our_cost}   per submission {our_cost.per(count * len(chapters))}")
    print(f"  ratio {stock_cost.ratio(our_cost)}", flush=True)
    return stock_cost, our_cost


def torch_import() -> Cost:
    return min((timed([sys.executable, "-c", "import torch"], Path.cwd()) for _ in range(3)), key=lambda cost: cost.cpu)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chapter", default="03_scaling")
    parser.add_argument("--sizes", type=int, nargs="+", default=[20, 60])
    parser.add_argument("--jobs", type=int, default=cores())
    parser.add_argument("--whole-course", type=int, metavar="COUNT", help="every chapter instead, for so many learners")
    given = parser.parse_args()
    project = Project.find(Path(__file__))
    if given.whole_course:
        compare(project, project.slugs(), given.whole_course, given.jobs)
        return
    costs, imports = [], []
    for size in given.sizes:
        costs.append(compare(project, [given.chapter], size, given.jobs))
        imports.append(torch_import())  # right after ours: the machine may have been quieter an hour ago
    if len(costs) > 1:
        more = given.sizes[-1] - given.sizes[0]
        stock, ours = ((costs[-1][i] - costs[0][i]).per(more) for i in range(2))
        print(f"marginal submission: stock {stock}   ours {ours}\n  ratio {stock.ratio(ours)}")
        importing = imports[-1]
        print(f"one import of torch: {importing}; a submission costs {ours.cpu / importing.cpu:.0%} of its CPU")


if __name__ == "__main__":
    main()
