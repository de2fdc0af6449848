"""The three pictures of the README, taken of what `make course` has made."""

import io
import os
import sys
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Page, sync_playwright
from rich.console import Console

from autograder import doctor, report
from autograder.course import Course, Project
from autograder.errors import CourseError
from autograder.grade import stored_records

CHAPTER, HEADING, LEARNER = "03_scaling", "Look at the middle, not at the mean", "learner-mistake-1"
SIZE = {"width": 1180, "height": 1060}
LARGEST = 150_000   # bytes
TERMINAL = """<!doctype html><meta charset="utf-8"><style>body {{ margin: 0; background: #fff }}
pre {{ display: inline-block; margin: 0; padding: 12px; font: 14px/1.22 "DejaVu Sans Mono", monospace; {stylesheet} }}
</style><body><pre>{code}</pre>"""


def save(page: Page, path: Path, **options: Any) -> None:
    """A screenshot in at most 128 colours: sharp text, small file."""
    picture = Image.open(io.BytesIO(page.screenshot(**options))).convert("RGB")
    picture.quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path.name}: {path.stat().st_size:,} bytes")
    if path.stat().st_size > LARGEST:
        raise CourseError(f"{path}: larger than {LARGEST:,} bytes; crop it")


def chapter(page: Page, project: Project, path: Path) -> None:
    """A page of the book, from one heading on."""
    pages = sorted((project.build / "html").rglob(f"{CHAPTER}.html"))
    if not pages:
        raise CourseError(f"{project.build / 'html'}: has no {CHAPTER}.html; run make course first")
    page.goto(pages[0].as_uri(), wait_until="load")
    page.wait_for_timeout(2000)   # mathematics is set by a script
    heading = page.locator("h2, h3").filter(has_text=HEADING).first
    heading.evaluate("e => window.scrollTo(0, e.getBoundingClientRect().top + window.scrollY - 70)")   # below the bar
    page.wait_for_timeout(500)
    save(page, path)


def feedback(page: Page, course: Course, path: Path) -> None:
    """The page that a learner with mistakes gets back."""
    pages = sorted(course.path(course.feedback, LEARNER, CHAPTER).glob("*.html"))
    if not pages:
        raise CourseError(f"{course.feedback}: has no page for {LEARNER}; run make course first")
    page.goto(pages[0].as_uri(), wait_until="load")
    save(page, path)


def scores(page: Page, course: Course, path: Path) -> None:
    """The table that grading prints."""
    console = Console(record=True, width=110, file=io.StringIO(), color_system="truecolor", force_terminal=True)
    for table in report.score_tables(stored_records(course, chapter=CHAPTER), width=console.width):
        console.print(table)
    page.set_content(console.export_html(inline_styles=True, code_format=TERMINAL))
    save(page, path, clip=page.locator("pre").bounding_box())


def main() -> None:
    """Write all three into docs/."""
    project = Project.find(Path(__file__))
    course, folder = Course(project.build / "sample-course"), project.root / "docs"
    folder.mkdir(exist_ok=True)
    with sync_playwright() as play:
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []   # Chromium's own sandbox refuses root
        browser = play.chromium.launch(executable_path=str(doctor.chromium()), args=flags)
        page = browser.new_page(viewport=SIZE, color_scheme="light")
        chapter(page, project, folder / "chapter.png")
        feedback(page, course, folder / "feedback.png")
        scores(page, course, folder / "scores.png")
        browser.close()


if __name__ == "__main__":
    try:
        main()
    except CourseError as problem:
        sys.exit(str(problem))
