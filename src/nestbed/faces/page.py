"""A report as text: sections of words, tables and figures, in Markdown or on one page that needs nothing else."""

import base64
import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Grid:
    """A table of text; a row may be marked as one to look at."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    marked: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Section:
    """A heading, what there is to say, tables and figures (file, caption)."""

    heading: str
    text: list[str] = field(default_factory=list)
    grids: list[Grid] = field(default_factory=list)
    pictures: list[tuple[Path, str]] = field(default_factory=list)


def markdown(title: str, sections: list[Section], folder: Path) -> str:
    """Return the report as Markdown, with the figures beside it."""
    parts = [f"# {title}"]
    for section in sections:
        parts.append(f"## {section.heading}")
        parts += section.text
        for grid in section.grids:
            lines = [grid.columns, ["---"] * len(grid.columns)]
            lines += [[f"**{c}**" if c and i in grid.marked else c for c in row] for i, row in enumerate(grid.rows)]
            parts.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
        parts += [f"![{caption}]({picture.relative_to(folder)})" for picture, caption in section.pictures]
    return "\n\n".join(parts) + "\n"


def as_html(title: str, sections: list[Section]) -> str:
    """Return the report as one page, with the figures in it."""
    links = " · ".join(f'<a href="#{_anchor(s.heading)}">{html.escape(s.heading)}</a>' for s in sections)
    body = [f"<h1>{html.escape(title)}</h1>", f"<nav>{links}</nav>"]
    for section in sections:
        body.append(f'<h2 id="{_anchor(section.heading)}">{html.escape(section.heading)}</h2>')
        body += [f"<p>{_bold(html.escape(text))}</p>" for text in section.text]
        body += [_grid(grid) for grid in section.grids]
        for picture, text in section.pictures:
            data = base64.b64encode(picture.read_bytes()).decode()
            caption = html.escape(text)
            body.append(
                f'<figure><img alt="{caption}" src="data:image/png;base64,{data}">'
                f"<figcaption>{caption}</figcaption></figure>"
            )
    return _PAGE.format(title=html.escape(title), style=_STYLE, body="\n".join(body))


def _grid(grid: Grid) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in grid.columns)
    rows = "".join(
        f"<tr{' class=marked' if i in grid.marked else ''}>"
        + "".join(f"<td>{html.escape(cell)}</td>" for cell in row)
        + "</tr>"
        for i, row in enumerate(grid.rows)
    )
    return f"<div class=wide><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"


def _bold(text: str) -> str:
    parts = text.split("**")
    return "".join(f"<b>{part}</b>" if i % 2 else part for i, part in enumerate(parts))


def _anchor(heading: str) -> str:
    return heading.lower().replace(" ", "-")


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>{style}</style></head>
<body>
{body}
</body></html>
"""
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 66rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h1 { font-size: 1.6rem; line-height: 1.25; } h2 { margin-top: 3rem; border-bottom: 1px solid #ccc; }
nav { margin: 1rem 0; } a { color: #0072B2; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; font-size: 0.88rem; }
th, td { padding: 0.25rem 0.55rem; text-align: right; border-bottom: 1px solid #e4e4e4; white-space: nowrap; }
th { text-align: right; border-bottom: 2px solid #888; } th:first-child, td:first-child { text-align: left; }
tr.marked td { background: #fdf0e0; font-weight: 600; }
figure { margin: 1.5rem 0; } img { max-width: 100%; height: auto; } figcaption { color: #555; font-size: 0.92rem; }
"""
