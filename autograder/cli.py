"""The command line. Every command is thin: the rooms do the work."""

import sys
from pathlib import Path
from typing import Any

import click

from autograder.course import Project
from autograder.errors import CourseError


class _Group(click.Group):
    """Errors that the user can mend are one line on stderr and exit code 1, never a traceback."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except CourseError as problem:
            click.echo(f"error: {problem}", err=True)
            sys.exit(problem.exit_code)


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
