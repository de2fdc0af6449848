"""Everything that a file says to whoever gets it, as pieces of plain text: what is shown and what lies hidden in it.

A notebook says its cells, outputs, metadata and attachments; a page its text, code blocks, attributes and comments; an
archive its members; and any of them what is in base64 inside. The audit reads these pieces.
"""

import base64
import binascii
import gzip
import html
import io
import json
import re
import tarfile
import urllib.parse
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

_DEEPEST = 6   # archives in archives; a bomb nests deeper
_LARGEST = 64 * 2**20   # of an archive's member
_INLINE_TAGS = re.compile(r"</?(?:span|a|b|i|em|strong|code|u|s|mark|sub|sup|small|tt|kbd|var|font)\b[^>]*>", re.I)
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{20,}={0,2}")
# Base64 is often broken into lines, in JSON into strings or by a written \\n.
_BROKEN = re.compile(r"(?<=[A-Za-z0-9+/]{60})(?:\\n|\r?\n)(?:\",\s*\")?")
_DATA_URL = re.compile(r"data:[^,\s\"']*,([^\"'\s<>]*%[^\"'\s<>]*)")
_FENCED = re.compile(r"^[ >]*(`{3,}|~{3,})[^`\n]*\n(.*?)^[ >]*\1", re.DOTALL | re.MULTILINE)
_IMAGES = ("image/png", "image/jpeg", "image/gif", "application/pdf")


@dataclass(frozen=True)
class Piece:
    """Some text and where it stands: prose or data ("text"), a block of code, or one page's words in a search index."""

    where: str
    text: str
    kind: Literal["text", "code", "terms"] = "text"


def walk(place: Path, name: str) -> Iterator[Piece]:
    """The pieces of a file, or of every file below a folder; `name` is what the place is called."""
    if place.is_file():
        yield from pieces(name, place.read_bytes())
    for path in sorted(place.rglob("*")) if place.is_dir() else ():
        if path.is_file():
            yield from pieces(f"{name}/{path.relative_to(place).as_posix()}", path.read_bytes())


def pieces(name: str, data: bytes, depth: int = 0) -> Iterator[Piece]:
    """The pieces of one file's content; `name` ends as the file does."""
    if depth > _DEEPEST:
        return
    for member, content in _members(name, data):
        yield from pieces(member, content, depth + 1)
    text = _decoded(data)
    if text is None:
        return
    suffix = name.lower().rpartition(".")[2]
    value = _json(text, suffix)
    if isinstance(value, dict) and isinstance(value.get("cells"), list):
        yield from _notebook(name, value)
    elif value is not None:
        yield from _strings(name, value)
        yield from _index(name, value)
    elif suffix in ("html", "htm", "xhtml", "xml", "svg") or text.lstrip().startswith("<"):
        yield from _page(name, text)
    elif suffix in ("md", "rst", "txt"):
        yield from _markdown(name, text)
    else:
        yield Piece(name, text, "code" if suffix == "py" else "text")
    for hidden in _hidden(text):
        yield from pieces(f"{name}: encoded", hidden, depth + 1)


def _members(name: str, data: bytes) -> Iterator[tuple[str, bytes]]:
    """What is packed in an archive or a compressed file."""
    try:
        if data.startswith(b"PK\x03\x04"):
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                for info in archive.infolist():
                    if info.file_size <= _LARGEST:
                        yield f"{name}!{info.filename}", archive.read(info)
        elif data.startswith(b"\x1f\x8b"):
            content = gzip.GzipFile(fileobj=io.BytesIO(data)).read(_LARGEST)
            yield name.removesuffix(".gz") if not name.endswith(".tgz") else f"{name}!tar", content
        elif data[257:262] == b"ustar":
            with tarfile.open(fileobj=io.BytesIO(data)) as archive_:
                for member in archive_:
                    if member.isfile() and member.size <= _LARGEST and (held := archive_.extractfile(member)):
                        yield f"{name}!{member.name}", held.read()
        elif data.startswith(b"# Sphinx inventory version 2"):
            yield f"{name}!inventory", zlib.decompress(data.split(b"\n", 4)[4])
    except (zipfile.BadZipFile, tarfile.TarError, OSError, EOFError, zlib.error, RuntimeError):
        return   # damaged or locked: nobody reads it either


def _decoded(data: bytes) -> str | None:
    for encoding in ("utf-16",) if data[:2] in (b"\xff\xfe", b"\xfe\xff") else ("utf-8-sig",):
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            return None
        return None if "\0" in text[:4096] else text
    return None


def _json(text: str, suffix: str) -> Any:
    """A JSON file's value; that of a script which is one call of a JSON value, as Sphinx's search index is."""
    if suffix not in ("json", "ipynb", "js", "map") and not text.lstrip().startswith("{"):
        return None
    call = re.fullmatch(r"\s*[\w.]+\((\{.*\})\)\s*;?\s*", text, re.DOTALL) if suffix == "js" else None
    try:
        return json.loads(call[1] if call else text)
    except (ValueError, RecursionError):
        return None


def _strings(where: str, value: Any) -> Iterator[Piece]:
    """Every string inside a JSON value, keys too; a list of lines is one text, as notebooks have it."""
    if isinstance(value, str):
        yield Piece(where, value)
    elif isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        yield Piece(where, "".join(value))
        yield Piece(where, "\n".join(value))
    elif isinstance(value, list):
        for item in value:
            yield from _strings(where, item)
    elif isinstance(value, dict):
        yield Piece(where, "\n".join(map(str, value)))
        for item in value.values():
            yield from _strings(where, item)


def _index(name: str, value: Any) -> Iterator[Piece]:
    """The words of each page in Sphinx's search index."""
    if not (isinstance(value, dict) and isinstance(value.get("terms"), dict)):
        return
    words: dict[int, list[str]] = {}
    for table in (value["terms"], value.get("titleterms") or {}):
        for word, found in table.items():
            for page in found if isinstance(found, list) else [found]:
                words.setdefault(page, []).append(word)
    names = value.get("docnames") or []
    for page, terms in words.items():
        page_name = names[page] if isinstance(page, int) and page < len(names) else page
        yield Piece(f"{name}: words of {page_name}", " ".join(terms), "terms")


def _notebook(name: str, value: dict[str, Any]) -> Iterator[Piece]:
    yield from _strings(f"{name}: metadata", {key: held for key, held in value.items() if key != "cells"})
    for number, cell in enumerate(value["cells"]):
        if not isinstance(cell, dict):
            continue
        where = f"{name}: cell '{cell.get('id', number)}'"
        source = cell.get("source", "")
        source = source if isinstance(source, str) else "".join(map(str, source))
        if cell.get("cell_type") == "code":
            yield Piece(where, source, "code")
        else:
            yield from _markdown(where, source)
        for key, held in cell.items():
            if key == "outputs":
                yield from _outputs(f"{where}, output", held)
            elif key not in ("source", "id"):
                yield from _strings(f"{where}, {key}", held)


def _outputs(where: str, value: Any) -> Iterator[Piece]:
    """Every text of an output; HTML without its tags as well, an image's bytes not."""
    for output in value if isinstance(value, list) else ():
        data = output.get("data", {}) if isinstance(output, dict) else {}
        for kind, held in data.items() if isinstance(data, dict) else ():
            text = held if isinstance(held, str) else "".join(held) if isinstance(held, list) else json.dumps(held)
            if kind in ("text/html", "image/svg+xml"):
                yield from _page(where, text)
            elif kind not in _IMAGES:
                yield Piece(where, text)
        if isinstance(output, dict):
            yield from _strings(where, {key: held for key, held in output.items() if key != "data"})


def _markdown(where: str, text: str) -> Iterator[Piece]:
    yield Piece(where, text)
    if "<" in text or "&" in text:
        yield Piece(where, _shown(text))
    for block in _FENCED.finditer(text):
        quoted = block[0].lstrip().startswith(">")
        yield Piece(where, re.sub(r"^[ >]*> ?", "", block[2], flags=re.MULTILINE) if quoted else block[2], "code")


def _page(where: str, text: str) -> Iterator[Piece]:
    """A page as it is shown, as it is written (attributes, scripts), its comments, and its code blocks."""
    yield Piece(where, _shown(text))
    yield Piece(where, html.unescape(text))
    for comment in re.findall(r"<!--(.*?)-->", text, re.DOTALL):
        yield Piece(where, _shown(comment))
    for block in re.findall(r"<(?:pre|textarea)\b[^>]*>(.*?)</(?:pre|textarea)>", text, re.DOTALL | re.I):
        yield Piece(where, _shown(block), "code")


def _shown(text: str) -> str:
    """HTML without its tags: what ends a block ends a line, and a word stays whole."""
    return html.unescape(re.sub(r"<[^>]*>", "\n", _INLINE_TAGS.sub("", text)))


def _hidden(text: str) -> Iterator[bytes]:
    """What a text carries in base64 and in data addresses."""
    for match in _BASE64.finditer(_BROKEN.sub("", text)):
        run = match[0].rstrip("=").replace("-", "+").replace("_", "/")
        try:
            data = base64.b64decode(run[:len(run) - (len(run) % 4 == 1)] + "=" * (-len(run) % 4), validate=True)
        except (binascii.Error, ValueError):
            continue
        if data.startswith((b"PK\x03\x04", b"\x1f\x8b")) or _readable(data):
            yield data
    for match in _DATA_URL.finditer(text):
        yield urllib.parse.unquote(match[1]).encode()


def _readable(data: bytes) -> bool:
    """Is it text that someone wrote? Random base64 hardly ever decodes to it."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return False
    return text.isprintable() or all(char.isprintable() or char in "\n\r\t" for char in text)
