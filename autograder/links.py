"""What citations and references point to: the bibliography, the labels of every page, the book's address."""

import re
from dataclasses import dataclass, field

import yaml

from autograder.course import Project
from autograder.errors import CourseError


@dataclass(frozen=True)
class Links:
    """What roles point to: citations by key, labels and documents by name, each a text and a URL ("" = none)."""

    citations: dict[str, tuple[str, str, str]] = field(default_factory=dict)   # authors, year, URL
    labels: dict[str, tuple[str, str]] = field(default_factory=dict)           # title, URL


def find(project: Project) -> Links:
    """What the roles of this project's chapters point to: its bibliography, labels and pages."""
    base = _published(project)
    pages = [(project.source(slug), f"chapters/{slug}.html") for slug in project.slugs()]
    pages += [(path, f"book/{path.stem}.html") for path in sorted(project.book.glob("*.md"))]
    labels: dict[str, tuple[str, str]] = {}
    for path, page in pages:
        text, url = path.read_text(encoding="utf-8"), f"{base}/{page}" if base else ""
        heading = re.search(r"^# (.+)$", text, re.MULTILINE)
        labels[path.stem] = (heading[1].strip() if heading else path.stem, url)
        for label, title in re.findall(r"^\(([\w:.-]+)\)=\s*\n(?:\s*\n)*(?:#+ (.+))?", text, re.MULTILINE):
            labels[label] = (title.strip() or label, f"{url}#{_anchor(label)}" if url else "")
    return Links(_bibliography(project), labels)


def _anchor(label: str) -> str:
    """The id that Sphinx gives a label in its pages."""
    return re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")


def _published(project: Project) -> str:
    """The address the book is published at, as _config.yml says it (html: baseurl), or ""."""
    config = project.root / "_config.yml"
    data = yaml.safe_load(config.read_text(encoding="utf-8")) if config.is_file() else None
    return str(((data or {}).get("html") or {}).get("baseurl") or "").rstrip("/")


def _bibliography(project: Project) -> dict[str, tuple[str, str, str]]:
    from pybtex.database import parse_file  # slow to import, and most calls need no bibliography
    from pybtex.exceptions import PybtexError

    cited = {}
    for path in sorted(project.book.glob("*.bib")):
        try:
            entries = parse_file(str(path), bib_format="bibtex").entries
        except PybtexError as problem:
            reason = " ".join(str(problem).split())
            raise CourseError(f"{project.name(path)}: cannot be read ({reason}); mend the entry") from problem
        for key, entry in entries.items():
            names = [" ".join(map(str, (*person.rich_prelast_names, *person.rich_last_names)))
                     for person in entry.persons.get("author", [])]
            authors = f"{names[0]} et al." if len(names) > 2 else " & ".join(names) or key
            doi = entry.fields.get("doi", "")
            url = entry.fields.get("url") or (f"https://doi.org/{doi}" if doi else "")
            cited[key] = (authors, entry.fields.get("year", ""), url)
    return cited
