"""MyST directives and roles to plain Markdown, which JupyterLab, Colab and VS Code all show."""

import html
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import yaml

from autograder.errors import CourseError
from autograder.links import Links

DIRECTIVES = ("hint", "admonition", "note", "tip", "warning", "quiz")
ROLES = ("cite:p", "cite:t", "ref", "doc", "term")

_OPEN = re.compile(r"(:{3,})\{([^}]*)\}\s*(.*)")
_CLOSE = re.compile(r"(:{3,})\s*")
_FENCE = re.compile(r"\s*(`{3,}|~{3,})([^`]*)")
_LABEL = re.compile(r"\(([\w:.-]+)\)=\s*")
_EQUATION_LABEL = re.compile(r"\$\$\s*\([\w:.-]+\)\s*$")
# A role, or a stretch in which nothing is a role: a code span, mathematics.
_INLINE = re.compile(
    r"\{(?P<role>[A-Za-z][\w:.+-]*)\}`(?P<text>[^`]+)`"
    r"|(?P<ticks>`+)(?!`)(?:.*?)(?<!`)(?P=ticks)(?!`)"
    r"|\$\$.*?\$\$|\$[^$\n]+\$"
    r"|(?P<note>\[\^[\w-]+\])",
    re.DOTALL,
)


@dataclass(frozen=True)
class Directive:
    """One `:::{name} title` block; `line` counts from the top of its cell."""

    name: str
    title: str
    body: str
    line: int


@dataclass(frozen=True)
class Option:
    """One answer of a self-check question."""

    text: str
    correct: bool
    why: str


@dataclass(frozen=True)
class Quiz:
    """A self-check question with its explained answers."""

    question: str
    options: list[Option]


def blocks(text: str) -> Iterator[str | Directive]:
    """The stretches of plain Markdown and the directives of a cell, in order; code fences are left alone."""
    lines, plain, at = text.split("\n"), [], 0   # type: tuple[list[str], list[str], int]
    while at < len(lines):
        fence, opening = _FENCE.fullmatch(lines[at]), _OPEN.fullmatch(lines[at].rstrip())
        if fence:
            end = _end_of_fence(lines, at, fence)
            plain += lines[at:end + 1]
        elif opening:
            end = _end_of_directive(lines, at, len(opening[1]))
            yield "\n".join(plain)
            plain = []
            yield Directive(opening[2], opening[3].strip(), "\n".join(lines[at + 1:end]), at)
        else:
            if re.match(r"\s*:::", lines[at]):
                raise CourseError(f"'{lines[at].strip()}' neither opens nor closes a directive; write "
                                  "':::{name} title' at the start of a line and ':::' below it, or remove it")
            end = at
            plain.append(lines[at])
        at = end + 1
    yield "\n".join(plain)


def _end_of_fence(lines: list[str], start: int, fence: re.Match[str]) -> int:
    if "{" in fence[2]:
        raise CourseError(f"unknown directive '{fence[2].strip()}'; directives have colon fences, ':::{{name}}'")
    closing = re.compile(rf"\s*{re.escape(fence[1][0])}{{{len(fence[1])},}}\s*")
    for at in range(start + 1, len(lines)):
        if closing.fullmatch(lines[at]):
            return at
    raise CourseError(f"the code fence '{lines[start].strip()}' is never closed; close it")


def _end_of_directive(lines: list[str], start: int, colons: int) -> int:
    """A directive ends at the first line of exactly its colons, so an outer one takes more of them."""
    for at in range(start + 1, len(lines)):
        closing = _CLOSE.fullmatch(lines[at])
        if closing and len(closing[1]) == colons:
            return at
    raise CourseError(f"the directive '{lines[start].strip()}' is never closed; close it with '{':' * colons}'")


def quiz(directive: Directive) -> Quiz:
    """The question and options that the YAML of a `quiz` says."""
    wrong = f"quiz '{directive.title}': "
    try:
        data = yaml.safe_load(directive.body)
    except yaml.YAMLError as problem:
        raise CourseError(f"{wrong}the YAML cannot be read ({' '.join(str(problem).split())}); mend it") from problem
    if not isinstance(data, dict) or set(data) != {"question", "options"} or not isinstance(data["options"], list):
        raise CourseError(f"{wrong}write 'question: …' and 'options: [{{text: …, correct: true, why: …}}, …]'")
    for option in data["options"]:
        if not isinstance(option, dict) or set(option) != {"text", "correct", "why"}:
            raise CourseError(f"{wrong}every option has exactly text, correct and why; got {option!r}")
        if not isinstance(option["correct"], bool):
            raise CourseError(f"{wrong}'correct' is true or false; got {option['correct']!r}")
    if not directive.title or not any(option["correct"] for option in data["options"]):
        raise CourseError(f"{wrong}give it an id on its opening line and at least one option with correct: true")
    options = [Option(str(one["text"]).strip(), one["correct"], str(one["why"]).strip()) for one in data["options"]]
    return Quiz(str(data["question"]).strip(), options)


def inspect(text: str) -> None:
    """Raise CourseError for a directive, role or construct that lowering does not know."""
    lower(text, Links())


def lower(text: str, links: Links) -> str:
    """The cell's text with every directive and role as plain Markdown."""
    parts = [_plain(part, links) if isinstance(part, str) else _directive(part, links) for part in blocks(text)]
    return "\n\n".join(part.strip("\n") for part in parts if part.strip())


def _plain(text: str, links: Links) -> str:
    """Labels and comments dropped, roles replaced; code fences as they are."""
    done: list[str] = []
    lines, at, run = text.split("\n"), 0, []   # type: tuple[list[str], int, list[str]]
    while at < len(lines):
        fence = _FENCE.fullmatch(lines[at])
        end = _end_of_fence(lines, at, fence) if fence else at
        if fence:
            done += [_inline("\n".join(run), links)] if run else []
            done, run = done + lines[at:end + 1], []
        elif _EQUATION_LABEL.search(lines[at]):
            raise CourseError(f"the equation label in '{lines[at].strip()}' shows raw in a notebook; remove it")
        elif not (_LABEL.fullmatch(lines[at]) or lines[at].startswith("% ")):
            run.append(lines[at])
        at = end + 1
    return "\n".join([*done, _inline("\n".join(run), links)] if run else done)


def _inline(text: str, links: Links) -> str:
    def replaced(match: re.Match[str]) -> str:
        role = match["role"]
        if match["note"]:
            raise CourseError(f"the footnote '{match['note']}' shows raw in a notebook; say it in the text")
        if role is None:
            return match[0]
        if role not in ROLES:
            raise CourseError(f"unknown role '{{{role}}}'; use one of {', '.join(ROLES)}")
        return _role(role, " ".join(match["text"].split()), links)

    return _INLINE.sub(replaced, text)


def _role(role: str, text: str, links: Links) -> str:
    if role.startswith("cite"):
        cited = [_citation(key.strip(), links, textual=role == "cite:t") for key in text.split(",")]
        return ", ".join(cited) if role == "cite:t" else f"({'; '.join(cited)})"
    shown, _, target = text.rpartition("<") if text.endswith(">") else (text, "", "")
    target = target.rstrip("> ") or text
    title, url = links.labels.get(target.rsplit("/", 1)[-1] if role == "doc" else target, (text, ""))
    shown = shown.strip() if shown.strip() != text else title
    return shown if role == "term" or not url else f"[{shown}]({url})"


def _citation(key: str, links: Links, *, textual: bool) -> str:
    authors, year, url = links.citations.get(key, (key, "", ""))
    label = f"{authors} ({year})" if textual and year else f"{authors} {year}".strip()
    return f"[{label}]({url})" if url else label


def _directive(directive: Directive, links: Links) -> str:
    if directive.name not in DIRECTIVES:
        raise CourseError(f"unknown directive '{{{directive.name}}}'; use one of {', '.join(DIRECTIVES)}")
    if directive.name == "quiz":
        return quiz_text(quiz(directive), lambda text: _inline(text, links))
    options, body = _options(directive)
    # A notebook takes mathematics out before it reads Markdown, with any quote signs inside.
    body = re.sub(r"\$\$.*?\$\$", lambda math: math[0].replace("\n", " "), lower(body, links), flags=re.DOTALL)
    title = _inline(directive.title, links)
    if directive.name == "hint":
        return folded(f"Hint: {title}" if title else "Hint", body)
    if directive.name == "admonition" and not title:
        raise CourseError("an admonition has its title on the opening line: ':::{admonition} Title'")
    if set(options) - ({"class"} if directive.name == "admonition" else set()):
        raise CourseError(f"directive '{directive.name}': unknown option '{min(options)}'; remove it")
    quoted = [f"> {line}".rstrip() for line in f"**{title or directive.name.capitalize()}**\n\n{body}".split("\n")]
    return "\n".join(quoted)


def _options(directive: Directive) -> tuple[dict[str, str], str]:
    """The leading `:name: value` lines of a directive, and the rest."""
    lines, options = directive.body.split("\n"), {}
    while lines and (option := re.fullmatch(r":([\w-]+):\s*(.*)", lines[0].strip())):
        options[option[1]] = option[2]
        del lines[0]
    return options, "\n".join(lines).strip("\n")


def folded(summary: str, body: str) -> str:
    """A `<details>` element; the blank lines make notebooks read its body as Markdown."""
    shown = re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(summary, quote=False))
    return f"<details><summary>{shown}</summary>\n\n{body}\n\n</details>"


def quiz_text(quiz: Quiz, inline: Callable[[str], str] = str) -> str:
    """The question, then one `<details>` per option: its summary is the option, its content the verdict and why."""
    parts = [f"**Question.** {inline(quiz.question)}"]
    for option in quiz.options:
        verdict = "✓ **Right.**" if option.correct else "✗ **Not so.**"
        parts.append(folded(inline(option.text), f"{verdict} {inline(option.why)}"))
    return "\n\n".join(parts)
