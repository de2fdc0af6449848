"""The command line. Every command is thin: the rooms do the work."""

import errno
import importlib
import sys
from pathlib import Path
from typing import Any

import click

from autograder.course import Course, Project, cores
from autograder.errors import CourseError

# What a system says that its user can mend.
_CURES = {
    errno.EROFS: "put the course where it can be written",
    errno.EACCES: "give yourself the right to write there",
    errno.EPERM: "give yourself the right to write there",
    errno.ENOSPC: "make room on this disk and run it again",
    errno.EDQUOT: "make room within your quota and run it again",
}


class _Group(click.Group):
    """Errors that the user can mend are one line on stderr and exit code 1, never a traceback."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except CourseError as problem:
            click.echo(f"error: {problem}", err=True)
            sys.exit(problem.exit_code)
        except OSError as problem:
            if problem.errno not in _CURES or not problem.filename:
                raise
            click.echo(f"error: {problem.filename}: {problem.strerror}; {_CURES[problem.errno]}", err=True)
            sys.exit(1)


def _import_jsonschema() -> None:
    """Without its check of internationalised addresses, of which no notebook has one: its grammar takes a second."""
    grammar = "rfc3987_syntax"
    if not {"jsonschema", grammar} & sys.modules.keys():
        sys.modules[grammar] = None  # type: ignore[assignment]  # as if it were not installed
        importlib.import_module("jsonschema")
        del sys.modules[grammar]


class _Command(click.Command):
    """What a command may import is made light before it runs; its help needs none of it."""

    def invoke(self, context: click.Context) -> Any:
        _import_jsonschema()
        return super().invoke(context)


_Group.command_class = _Command


@click.group(cls=_Group)
@click.option("--project", type=click.Path(exists=True, file_okay=False, path_type=Path), default=None,
              help="The course's repository (default: the one around the working directory).")
@click.pass_context
def main(context: click.Context, project: Path | None) -> None:
    """Build, release and grade the course "The Transformer, from the dot product up"."""
    context.obj = project


@main.command()
@click.option("--check", is_flag=True, help="Change nothing; name each stale file and exit 1.")
@click.pass_obj
def release(start: Path | None, check: bool) -> None:
    """Make chapters/ from solutions/."""
    from autograder.release import release

    stale = release(Project.find(start), check=check, say=click.echo)
    if check and stale:
        raise CourseError(f"{len(stale)} stale in chapters/: {', '.join(stale)}; run 'autograder release'")
    click.echo(f"chapters/ is up to date ({len(stale)} written)" if stale else "chapters/ is up to date")


@main.command()
@click.pass_obj
def book(start: Path | None) -> None:
    """Run what changed in the solved notebooks and build the book from the student editions."""
    from autograder.book import build

    click.echo(f"read it: {build(Project.find(start), say=click.echo) / 'index.html'}")


@main.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.pass_obj
def publish(start: Path | None, directory: Path) -> None:
    """Write the public tree to DIRECTORY: book, chapters, requirements, licences; audited, with no answer in it."""
    from autograder.publish import publish

    publish(Project.find(start), directory, say=click.echo)


@main.command()
def doctor() -> None:
    """Say what this machine has and lacks, with the cure; exit 1 if something needed is missing."""
    from autograder.doctor import examine

    findings = list(examine())
    for one in findings:
        click.echo(one.line())
    if lacking := [one.name for one in findings if one.state == "missing"]:
        raise CourseError(f"needed and not here: {', '.join(lacking)}; each line above says what to do")


@main.command()
@click.argument("places", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option("--feedback", "course", type=click.Path(exists=True, file_okay=False, path_type=Path), default=None,
              help="An nbgrader course: look into its feedback files, too.")
@click.pass_obj
def audit(start: Path | None, places: tuple[Path, ...], course: Path | None) -> None:
    """Look for solutions, hidden tests and mark schemes in what learners and readers get.

    PLACES are files and folders; without any, chapters/ and the built book.
    """
    from autograder import audit

    whose = _course(course) if course else None
    leaks = audit.audit(Project.find(start), *places, say=click.echo)
    leaks += audit.audit_feedback(Project.find(start), whose, say=click.echo) if whose else []
    for leak in leaks:
        click.echo(leak)
    if leaks:
        raise CourseError(f"{len(leaks)} leaks, listed above; mend each in solutions/ (or list it in audit.ALLOWED)")
    click.echo("nothing leaks")


def _course(directory: Path) -> Course:
    """The course in a folder that was named; CourseError where there is none."""
    course = Course(directory)
    course.must_be()
    return course


_COURSE = click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
_CHAPTER = click.option("--chapter", "--assignment", "chapter", help="Only this chapter (nbgrader's assignment).")
_STUDENT = click.option("--student", help="Only this student.")


@main.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.pass_obj
def init(start: Path | None, directory: Path) -> None:
    """Make an nbgrader course of the chapters in DIRECTORY, or bring the chapters of one up to date."""
    from autograder.newcourse import init

    course = init(Project.find(start), directory, say=click.echo)
    click.echo(f"{course.root}: release/ is for the learners; put what they hand in into submitted/STUDENT/CHAPTER/")


@main.command()
@_COURSE
@_CHAPTER
@_STUDENT
@click.option("--notebook", help="Only this notebook of an assignment; the others stay as they were graded.")
@click.option("--update", is_flag=True, help="Pass over what was graded and has not changed since.")
@click.option("--jobs", type=click.IntRange(1), default=cores(), show_default="one per core",
              help="How many submissions to run at a time.")
@click.option("--scheduler", metavar="ADDRESS", default="", help="Run notebooks on the workers of a dask scheduler.")
@click.option("--cluster", type=click.Choice(["local"]), help="Run notebooks on dask workers started here, one a job.")
@click.option("--sandbox", type=click.Choice(["on", "bwrap", "off"]), default="on", show_default=True,
              help="bwrap: bubblewrap's sandbox, slower and weaker, where a layer of ours is missing. off: learners' "
                   "code runs with your rights.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON record per learner and exercise, nothing else.")
@click.option("--dry-run", is_flag=True, help="Save nothing; say what would change: old score, new score, and why.")
@click.option("--yes", "--force", "yes", is_flag=True,
              help="Also save scores that change though the learner handed in the same; else they are held back.")
@click.option("--present", is_flag=True, help="Grade submissions of an older release against the present one.")
@click.option("--wait", is_flag=True, help="Wait for another run on this course to end, instead of refusing.")
def grade(
    directory: Path, chapter: str | None, student: str | None, notebook: str | None, update: bool, jobs: int,
    scheduler: str, cluster: str | None, sandbox: str, as_json: bool, dry_run: bool, yes: bool, present: bool,
    wait: bool,
) -> None:
    """Grade what was handed in to the nbgrader course in DIRECTORY, into its own gradebook.

    Chapter, student and notebook may be patterns, as for nbgrader: --student 'a*'.

    \b
    Exit code: 0  everything was graded
               1  nothing was handed in or graded, or the command can't
                  be carried out
               2  no such option
               3  some submissions were refused, the others are graded
               4  some were held back: a score would change though the learner
                  handed in the same; look with --dry-run, approve with --yes
    """
    if sys.platform == "win32":  # where the rooms that grade can't even be imported
        raise CourseError("Windows has no sandbox for learners' code; grade in WSL 2: wsl --install, then there")
    if update and yes or scheduler and cluster:
        first, second = ("--update", "--force") if update and yes else ("--scheduler", "--cluster")
        raise CourseError(f"{first} and {second} exclude each other; say one of them")
    from autograder import grade, options, progress, report

    course = Course(directory)
    for line in options.unfollowed(course):
        click.echo(f"note: {line}", err=True)
    mode = grade.settled(course, sandbox, elsewhere=bool(scheduler))
    with progress.Watch(mode, dry_run=dry_run) as watch:
        records = grade.grade(course, chapter=chapter, student=student, jobs=jobs, sandbox=mode, watch=watch,
                              dry_run=dry_run, yes=yes, present=present, wait=wait, notebook=notebook,
                              update=update, scheduler=scheduler, cluster=cluster is not None)
    if as_json:
        parts = [progress.changes_as_json(watch.outcomes) if dry_run else report.as_json(records)]
    else:
        tables = [progress.change_table(watch.outcomes)] if dry_run else report.tables_of_run(records)
        parts = [*tables, *watch.summary(), watch.cost()]
    for part in parts:
        progress.tell(part)
    for line in progress.misplaced(course):
        click.echo(f"note: {line}", err=True)
    if watch.code == 1:
        raise CourseError("nothing was graded: all that was handed in was refused, for the reasons above")
    if not watch.outcomes and not update:
        where = course.path(course.submitted, "NAME", chapter or "CHAPTER")
        raise CourseError(f"nothing was graded: nothing is handed in; put it into {where}/{chapter or 'CHAPTER'}.ipynb")
    sys.exit(watch.code)


@main.command()
@_COURSE
@_CHAPTER
@_STUDENT
def feedback(directory: Path, chapter: str | None, student: str | None) -> None:
    """Write a page of feedback for each graded notebook of the course in DIRECTORY."""
    from autograder.feedback import feedback
    from autograder.records import must_know

    course = _course(directory)
    must_know(course, chapter, student)
    pages = feedback(course, chapter=chapter, student=student)
    click.echo(f"{len(pages)} pages of feedback in {course.feedback}")


@main.command()
@_COURSE
@_CHAPTER
@click.option("--learners", is_flag=True, help="First a table of each learner's scores.")
@click.option("--json", "as_json", is_flag=True,
              help="Print a JSON record per exercise and part instead of the tables; with --learners, per learner and "
                   "exercise, as grade --json does.")
def report(directory: Path, chapter: str | None, learners: bool, as_json: bool) -> None:
    """Say how the class of the course in DIRECTORY did, exercise by exercise."""
    from autograder import progress, report
    from autograder.records import must_know, stored_records

    course = _course(directory)
    must_know(course, chapter)
    if as_json:
        records = stored_records(course, chapter=chapter)
        parts = [report.as_json(records) if learners else report.class_as_json(records)]
    else:
        parts = report.report(course, chapter=chapter, learners=learners)
    for part in parts:
        progress.tell(part)


@main.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.pass_obj
def sample(start: Path | None, directory: Path) -> None:
    """Make a course with a made-up class in DIRECTORY, to try the grader on."""
    from autograder.sample import sample

    sample(Project.find(start), directory, say=click.echo)
